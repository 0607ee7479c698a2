"""Large state of a loop over tensors, which is read and written where it lies.

The first iteration reads the caller's array, and the last one writes the array that the plan wants the result in; the
iterations between them alternate between that array and one of the loop. The kernels of a body have an argument block
for each of the two sides of the double-buffered state, whose addresses are set for each run. `loop_body.py` creates a
`HandedOn` for each such leaf, and `tensor_loops.py` uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from livegrad.runtime.cpu.memory_pool import memory_of_results, plan_memory
from livegrad.runtime.cpu.native.invoke import ArgumentBlock, array_address
from livegrad.schedule.plan import Buffer

# State of fewer bytes is copied into and out of memory that stays where it is: that takes less than new addresses.
HANDED_ON_BYTES = 1 << 16

Word = tuple[ArgumentBlock, int, int]  # an argument block, an index of its words, a byte offset
Array = np.ndarray[Any, Any]


class HandedOn:
    """One leaf of the state of a loop: where each side reads it and writes it."""

    def __init__(self, into: Buffer, out: Buffer, words: Sequence[dict[int, list[Word]]]) -> None:
        """`into` and `out` are the body's argument and result; `words` has, for each side, the words of a buffer."""
        self._slot = into
        self._keys = into.base.number, out.base.number
        self._read, self._written = ([words_of_side.get(key, ()) for words_of_side in words] for key in self._keys)
        self._buffer: Array | None = None  # in which no run leaves its result
        self._sides: list[Array] = []  # where an iteration finds what one of that side reads

    def begin(
        self, initial: Any, target: Array | None, iterations: int | None, values: Sequence[dict[Any, Any]]
    ) -> None:
        """Takes the caller's array. `target` is for the result; `iterations` is None where a condition decides."""
        slot = self._slot
        if self._buffer is None:
            self._buffer = plan_memory(slot.bytes).view(slot.element.dtype).reshape(slot.shape)
        self._initial = np.asarray(initial, slot.element.dtype, order="C")
        if target is None:
            target = memory_of_results.current.array(slot.element, slot.shape, slot.bytes)
        self._target = target
        self._sides = [self._buffer, target] if iterations is not None and iterations % 2 else [target, self._buffer]
        _point_words(self._read[0], self._initial)
        _point_words(self._read[1], self._sides[1])
        for side, memory in enumerate(self._sides):
            _point_words(self._written[1 - side], memory)
        self._tell(values, self._initial)

    def leave_first(self, values: Sequence[dict[Any, Any]]) -> None:
        """After the first iteration: side 0 reads what side 1 wrote."""
        _point_words(self._read[0], self._sides[0])
        self._tell(values, self._sides[0])

    def _tell(self, values: Sequence[dict[Any, Any]], first: Array) -> None:
        """Lets the host steps of both sides find the arrays."""
        into, out = self._keys
        values[0][into], values[0][out] = first, self._sides[1]
        values[1][into], values[1][out] = self._sides[1], self._sides[0]

    def end(self, side: int, iterations: int) -> Array:
        """The state after so many iterations, which ended on a side, in the memory that was meant for it."""
        target, state = self._target, self._sides[side] if iterations else self._initial
        if state is not target:
            np.copyto(target, state)
        del self._initial, self._target, self._sides[:]  # they belong to others
        return target


def _point_words(words: Sequence[Word], memory: Array) -> None:
    start = array_address(memory)
    for block, index, offset in words:
        block.ints[index] = start + offset
