"""Lazy tensors: the Array API over the value IR."""
