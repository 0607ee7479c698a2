"""Blocks from whatever computes: functions of the value IR, captured functions, Python functions on tensors."""

from livegrad.authoring.block.append import AppendBlock, append_block
from livegrad.authoring.block.bodies import block, edit, replace_body
from livegrad.authoring.block.watch import watch

__all__ = ["AppendBlock", "append_block", "block", "edit", "replace_body", "watch"]
