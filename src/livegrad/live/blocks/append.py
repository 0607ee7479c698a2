"""Creates append blocks: a function decides for each element whether to emit it, and emitted elements are compacted.

In: a function that returns `(emit, value)`. Out: a block with the outputs `values` (`capacity` rows, zeros after
the last emitted row), `count` and `total`. Each run of the step resets the counter. Elements keep their order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.live.blocks.bodies import TracedBody
from livegrad.live.blocks.search import integer_tensor, pack, take_rows
from livegrad.live.graph.block import Block
from livegrad.tensors import namespace as xp
from livegrad.tensors.tracing import name_of


class AppendBlock(Block):
    """A block that appends elements to a buffer. The engine warns if `total` exceeds the capacity.

    >>> import livegrad as lg
    >>> AppendBlock(lambda x: (x > 0.0, x), capacity=8, name="positive")
    <block positive(x) -> values, count, total>
    """

    appends = True

    def __init__(self, function: Callable[..., Any], capacity: int, name: str | None = None) -> None:
        if capacity.__class__ is not int or capacity < 1:
            raise UsageError("the capacity must be a positive integer", where=caller_origin(), found=repr(capacity))
        self.function, self.capacity = function, capacity
        self.limits = {"total": capacity}
        super().__init__(_make_body(function, capacity, name or name_of(function)), name)


def append_block(function: Callable[..., Any], *, capacity: int, name: str | None = None) -> AppendBlock:
    """Creates a block that collects the elements which a function emits.

    >>> from livegrad.live.engine import Engine
    >>> engine = Engine()
    >>> keep = engine.add(append_block(lambda x: (x > 1.0, x), capacity=3, name="keep"))
    >>> engine.set(keep["x"], [0.5, 2.0, 3.0, 1.0])
    >>> _ = engine.step()
    >>> engine.read(keep["values"]).tolist(), int(engine.read(keep["count"]))
    ([2.0, 3.0, 0.0], 2)
    """
    return AppendBlock(function, capacity, name)


def _make_body(function: Callable[..., Any], capacity: int, name: str) -> TracedBody:
    def append(**inputs: Any) -> tuple[Any, Any, Any]:
        emit, value = function(**inputs)
        emit = xp.astype(emit, xp.bool)
        if emit.ndim != 1 or value.ndim < 1 or value.shape[0] != emit.shape[0]:
            raise UsageError(
                f"`{name}` must return a vector of booleans and one value for each of them",
                found=f"shapes {emit.shape} and {value.shape}",
            )
        if emit.shape[0] == 0:
            return xp.zeros((capacity, *value.shape[1:]), dtype=value.dtype), integer_tensor(0), integer_tensor(0)
        indices, total = pack(emit, capacity)
        rows = take_rows(value, indices)
        valid = xp.reshape(xp.arange(capacity, dtype=xp.int64) < total, (capacity,) + (1,) * (value.ndim - 1))
        return xp.where(valid, rows, xp.zeros_like(rows)), xp.minimum(total, integer_tensor(capacity)), total

    append.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return TracedBody(append, {}, ("values", "count", "total"), name)
