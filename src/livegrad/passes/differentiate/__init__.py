"""Differentiation of value IR to value IR: forward mode, and reverse mode as the transpose of a linearised program."""

from livegrad.passes.differentiate import custom, recompute

__all__ = ["custom", "recompute"]  # imported here because they enter their rules into the tables of both modes
