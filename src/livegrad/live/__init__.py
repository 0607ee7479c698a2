"""The live engine: a graph of blocks that runs while it is edited, at a cost proportional to the change.

`graph/` is the description, `compile/` turns it into a plan, `update/` updates a running plan. `cpu/` and `cuda/`
execute plans. `engine.py` is the public interface. `blocks/` creates blocks from Python functions, CUDA source and
gradients. `history/` undoes edits, `recording/` writes sessions to files and replays them, `documents/` saves and opens
graphs.
"""

from livegrad.public_names import front_door

__getattr__, __dir__, __all__ = front_door(__name__)
