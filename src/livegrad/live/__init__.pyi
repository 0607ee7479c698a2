"""What type checkers read in place of `__init__.py`: every public name, imported from where it is.

Made from the tables in `public_names.py`; `./test --update-ir tests/test_import.py` writes it again.
"""
# ruff: noqa: I001, RUF022

from livegrad.live.blocks import (
    append_block,
    AppendBlock,
    block,
    captured_block,
    cuda_block,
    edit,
    fold_neighbours,
    GradientBlock,
    load_cuda_block,
    neighbour_block,
    NeighbourBlock,
    neighbours,
    watch,
    watch_cuda,
)
from livegrad.live.blocks.pull import (
    pull,
    PullResult,
)
from livegrad.live.blocks.rollout import (
    FrameGradient,
)
from livegrad.live.documents import (
    Document,
    DocumentError,
    load_document,
)
from livegrad.live.engine import (
    Engine,
)
from livegrad.live.frame import (
    EngineError,
    Frame,
)
from livegrad.live.graph.append_buffer import (
    AppendBuffer,
)
from livegrad.live.graph.block import (
    Block,
    State,
)
from livegrad.live.graph.composite import (
    Composite,
)
from livegrad.live.graph.control import (
    Control,
)
from livegrad.live.graph.regions import (
    For,
    If,
    IfElse,
    Switch,
    While,
)
from livegrad.live.graph.sources import (
    ExternalBuffer,
)
from livegrad.live.history import (
    Gesture,
    History,
    HistoryEntry,
)
from livegrad.live.parameters import (
    PinParameter,
)
from livegrad.live.presets import (
    Presets,
)
from livegrad.live.profile import (
    chrome_trace,
)
from livegrad.live.recording import (
    Difference,
    record,
    Recording,
    Replay,
    replay,
)
from livegrad.live.update.diff_plans import (
    Level,
)

__all__ = [
    "append_block",
    "AppendBlock",
    "block",
    "captured_block",
    "cuda_block",
    "edit",
    "fold_neighbours",
    "GradientBlock",
    "load_cuda_block",
    "neighbour_block",
    "NeighbourBlock",
    "neighbours",
    "watch",
    "watch_cuda",
    "pull",
    "PullResult",
    "FrameGradient",
    "Document",
    "DocumentError",
    "load_document",
    "Engine",
    "EngineError",
    "Frame",
    "AppendBuffer",
    "Block",
    "State",
    "Composite",
    "Control",
    "For",
    "If",
    "IfElse",
    "Switch",
    "While",
    "ExternalBuffer",
    "Gesture",
    "History",
    "HistoryEntry",
    "PinParameter",
    "Presets",
    "chrome_trace",
    "Difference",
    "record",
    "Recording",
    "Replay",
    "replay",
    "Level",
]
