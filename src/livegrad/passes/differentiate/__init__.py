"""Automatic differentiation of value IR: forward mode, and reverse mode as the transpose of the linearised program."""

from livegrad.passes.differentiate import custom, recompute

__all__ = ["custom", "recompute"]  # imported because they add their rules to the tables of both modes
