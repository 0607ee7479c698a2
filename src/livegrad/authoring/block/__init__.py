"""Blocks from whatever computes: functions of the value IR, captured functions, Python functions on tensors."""

from livegrad.authoring.block.bodies import block, edit, replace_body

__all__ = ["block", "edit", "replace_body"]
