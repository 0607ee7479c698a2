"""Append buffers with several writers, whose rows are concatenated in the order of the pins.

Compiled to an `AppendStep`: a memset of the counter, then one append per writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.live.graph.block import Block, pin_names


class AppendBuffer(Block):
    """Concatenates the rows of several append blocks. Each writer has a pin, which takes the `values` of an append
    block.

    `values` has `capacity` rows, with zeros after the last used one. `count` is the number of stored rows, and `total`
    the number of emitted rows. An overflow is a warning of the frame.

    >>> from livegrad.live.blocks import append_block
    >>> from livegrad.live.engine import Engine
    >>> engine = Engine()
    >>> small = engine.add(append_block(lambda x: (x < 2.0, x), capacity=4, name="small"))
    >>> large = engine.add(append_block(lambda x: (x > 5.0, x), capacity=4, name="large"))
    >>> both = engine.add(AppendBuffer("both", capacity=4, writers=("small", "large")))
    >>> for writer in (small, large):
    ...     engine.set(writer["x"], [1.0, 3.0, 7.0, 9.0])
    ...     engine.connect(writer["values"], both[writer.name])
    >>> _ = engine.step()
    >>> engine.read(both["values"]).tolist(), int(engine.read(both["count"]))
    ([1.0, 7.0, 9.0, 0.0], 3)
    """

    appends = True

    def __init__(self, name: str, *, capacity: int, writers: Sequence[str]) -> None:
        if capacity.__class__ is not int or capacity < 1:
            raise UsageError("the capacity must be a positive integer", where=caller_origin(), found=repr(capacity))
        writers = pin_names(writers, "writers")
        if not writers:
            raise UsageError(f"`{name}` has no writers", where=caller_origin(), help="name a pin for each")
        self.capacity = capacity
        self.limits = {"total": capacity}
        self._set_up(name, tuple(writers), ("values", "count", "total"))

    def default_of(self, name: str) -> Any:
        return None
