"""Differentiation of value IR to value IR: forward mode, and reverse mode as the transpose of a linearised program."""
