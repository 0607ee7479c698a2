"""The live engine: a graph of blocks that runs while it is edited, and pays only for what changed.

`graph/` is what users describe, `compile/` turns it into a plan, `update/` brings a running plan up to date. `cpu/` and
`cuda/` execute plans. `engine.py` is the front, `blocks/` makes blocks of Python functions, CUDA source and gradients,
`recording/` writes sessions to files and replays them.
"""

from livegrad.public_names import front_door

__getattr__, __dir__, __all__ = front_door(__name__)
