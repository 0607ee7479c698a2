"""Zero-copy state of loops over tensors: large arrays are neither copied in nor out.

The first iteration reads the caller's array, and the last one writes the array of the plan's result. The iterations
between alternate between that array and a buffer of the loop. Kernels of the body have an argument block for each side
of the double-buffered state, whose addresses are set in each run. `loop_body.py` creates a `ZeroCopyState` for each
such leaf, and `tensor_loops.py` uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from livegrad.runtime.cpu.kernel_memory import Patch
from livegrad.runtime.cpu.memory_pool import memory_of_results, plan_memory
from livegrad.runtime.cpu.native.invoke import array_address
from livegrad.schedule.plan import Buffer

# Copying fewer bytes costs less than setting addresses.
ZERO_COPY_BYTES = 1 << 16

Array = np.ndarray[Any, Any]


class ZeroCopyState:
    """One leaf of the state of a loop: the arrays that each side reads and writes."""

    def __init__(self, into: Buffer, out: Buffer, patches: Sequence[dict[int, list[Patch]]]) -> None:
        """`into` and `out` are the body's argument and result; `patches` has the slots of buffers for each side."""
        self._slot = into
        self._keys = into.base.number, out.base.number
        self._read, self._written = ([side.get(key, ()) for side in patches] for key in self._keys)
        self._buffer: Array | None = None  # reused by all runs
        self._sides: list[Array] = []  # the array that iterations of each side read, after the first one

    def begin(
        self, initial: Any, target: Array | None, iterations: int | None, values: Sequence[dict[Any, Any]]
    ) -> None:
        """Begins a run. `target` is for the result; `iterations` is None for a `while` loop."""
        slot = self._slot
        if self._buffer is None:
            self._buffer = plan_memory(slot.bytes).view(slot.element.dtype).reshape(slot.shape)
        self._initial = np.asarray(initial, slot.element.dtype, order="C")
        if target is None:
            target = memory_of_results.current.array(slot.element, slot.shape, slot.bytes)
        self._target = target
        self._sides = [self._buffer, target] if iterations is not None and iterations % 2 else [target, self._buffer]
        _patch_slots(self._read[0], self._initial)
        _patch_slots(self._read[1], self._sides[1])
        for side, memory in enumerate(self._sides):
            _patch_slots(self._written[1 - side], memory)
        self._set_values(values, self._initial)

    def end_first_iteration(self, values: Sequence[dict[Any, Any]]) -> None:
        """Binds side 0 to the result of side 1 instead of the caller's array."""
        _patch_slots(self._read[0], self._sides[0])
        self._set_values(values, self._sides[0])

    def _set_values(self, values: Sequence[dict[Any, Any]], first: Array) -> None:
        """Sets the arrays for the host steps of both sides."""
        into, out = self._keys
        values[0][into], values[0][out] = first, self._sides[1]
        values[1][into], values[1][out] = self._sides[1], self._sides[0]

    def end(self, side: int, iterations: int) -> Array:
        """Returns the state after a run, in its target. `side` is the side of the next iteration."""
        target, state = self._target, self._sides[side] if iterations else self._initial
        if state is not target:
            np.copyto(target, state)
        del self._initial, self._target, self._sides[:]  # drops the references to arrays of the caller
        return target


def _patch_slots(patches: Sequence[Patch], memory: Array) -> None:
    start = array_address(memory)
    for block, index, offset in patches:
        block.ints[index] = start + offset
