"""Transformations of meaning, each from value IR to value IR."""
