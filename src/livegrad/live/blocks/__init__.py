"""Creates blocks from functions of the value IR, captured functions, Python functions, CUDA source and gradients.

`bodies.py` and `captured_block.py` make blocks of functions, `cuda_source.py` of CUDA source, `append.py` of emitting
functions, `compose.py` of several blocks, `graph_gradient.py` and `rollout.py` of gradients. `pull.py` changes inputs
until an output has a value. `watch.py` and `source_files.py` follow files that are edited.
"""

from livegrad.live.blocks.append import AppendBlock, append_block
from livegrad.live.blocks.bodies import block, edit, replace_body
from livegrad.live.blocks.captured_block import captured_block
from livegrad.live.blocks.cuda_source import cuda_block, load_cuda_block, watch_cuda
from livegrad.live.blocks.graph_gradient import GradientBlock
from livegrad.live.blocks.neighbours import NeighbourBlock, fold_neighbours, neighbour_block, neighbours
from livegrad.live.blocks.watch import watch

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
