"""Blocks from whatever computes: functions of the value IR, captured functions, Python functions on tensors."""

from livegrad.authoring.block.append import AppendBlock, append_block
from livegrad.authoring.block.bodies import block, edit, replace_body
from livegrad.authoring.block.captured import captured_block
from livegrad.authoring.block.cuda_source import cuda_block, load_cuda_block, watch_cuda
from livegrad.authoring.block.gradient import GradientBlock
from livegrad.authoring.block.neighbours import NeighbourBlock, fold_neighbours, neighbour_block, neighbours
from livegrad.authoring.block.watch import watch

__all__ = [
    "AppendBlock",
    "GradientBlock",
    "NeighbourBlock",
    "append_block",
    "block",
    "captured_block",
    "cuda_block",
    "edit",
    "fold_neighbours",
    "load_cuda_block",
    "neighbour_block",
    "neighbours",
    "replace_body",
    "watch",
    "watch_cuda",
]
