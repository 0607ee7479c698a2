"""Splits NumPy steps over many rows or matrices into parts for the threads of the pool.

Called by `HostCall`. Transforms, sorting and decompositions release the GIL, and the rows or matrices are independent,
so the results have the same bits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ops.decompositions import cholesky, eig, eigh, eigvals, eigvalsh, qr, svd, svdvals
from livegrad.ops.fourier import fft, irfft, rfft
from livegrad.ops.solving import cofactors, inv, pinv, solve, triangular_solve
from livegrad.ops.sorting import argsort, sort, top_positions
from livegrad.runtime.cpu.native.pool import threads
from livegrad.state import BackgroundWork, Owned, call_after_fork

_WORTHWHILE = 5e5  # additions: to hand a part to a thread takes as long as some ten thousand

_ALONG_AN_AXIS = frozenset({rfft, irfft, sort, argsort, top_positions})
_OF_MATRICES: frozenset[Op] = frozenset({eig, eigh, eigvals, eigvalsh, svd, svdvals, cofactors, inv, pinv})
# One of these takes so little for a small matrix that threads wait for each other's memory most of the time.
_OF_LARGER_MATRICES: frozenset[Op] = frozenset({cholesky, qr, solve, triangular_solve})
_FEWEST_ROWS = 8
_IN_PARTS = _ALONG_AN_AXIS | _OF_MATRICES | _OF_LARGER_MATRICES | {fft}


class _Workers(BackgroundWork):
    """Threads for parts of steps. Nobody leaves a part to them without waiting for it."""

    def __init__(self) -> None:
        self._start()
        call_after_fork(self, "_start")  # a fork has none of them

    def _start(self) -> None:
        self.executor = ThreadPoolExecutor(max(1, os.cpu_count() or 1), thread_name_prefix="livegrad-part")

    def suspend(self) -> None:
        """Nothing is under way between steps."""

    def resume(self) -> None:
        """Nothing was stopped."""

    def close(self) -> None:
        self.executor.shutdown()


_workers = Owned(_Workers)


def computed_in_parts(
    node: Node, operands: Sequence[Any], compute: Callable[[Sequence[Any]], Any], target: Any = None
) -> Any:
    """The value of a step, computed part by part at the same time; None where it is better computed as a whole.

    A value that is one array is written to `target`, and that is given.
    """
    if node.op not in _IN_PARTS or operands[0].size * node.op.cost < _WORTHWHILE or threads() < 2:
        return None
    if node.op is fft and len(node.attribute("axes")) == operands[0].ndim > 1:
        return _transformed(node, operands[0], target)
    axis = _axis_of_parts(node, operands)
    if axis is None:
        return None
    parts = _parts(operands[0].shape, axis)

    def part(region: tuple[slice, ...]) -> Any:
        value = compute([operand[region] for operand in operands])
        return value if target is None else np.copyto(target[region], value, casting="unsafe")

    values = _all_at_once([partial(part, piece) for piece in parts])
    if target is not None:
        return target
    return tuple(np.concatenate(members, axis=axis) for members in zip(*values, strict=True))


def _transformed(node: Node, value: Any, target: Any) -> Any:
    """A transform over all dimensions, one after the other from the last, as NumPy has it."""
    transform, norm = np.fft.ifft if node.attribute("inverse") else np.fft.fft, node.attribute("norm")
    source = value
    for axis in reversed(node.attribute("axes")):
        across = next(other for other in (*range(value.ndim), 0) if other != axis)

        def part(region: tuple[slice, ...], source: Any = source, axis: int = axis) -> None:
            target[region] = transform(source[region], axis=axis, norm=norm)

        _all_at_once([partial(part, piece) for piece in _parts(value.shape, across)])
        source = target
    return target


def _parts(shape: tuple[int, ...], axis: int) -> list[tuple[slice, ...]]:
    """As many parts along a dimension as there are threads."""
    count = min(threads(), shape[axis])
    cuts = [shape[axis] * index // count for index in range(count + 1)]
    return [(*(slice(None),) * axis, slice(low, high)) for low, high in pairwise(cuts)]


def _axis_of_parts(node: Node, operands: Sequence[Any]) -> int | None:
    """Along which dimension rows or matrices follow each other that know nothing of each other."""
    rank = operands[0].ndim
    if node.op in _OF_LARGER_MATRICES and operands[0].shape[-1] < _FEWEST_ROWS:
        return None
    if node.op in _OF_MATRICES or node.op in _OF_LARGER_MATRICES:
        alike = all(operand.ndim > 0 and operand.shape[0] == operands[0].shape[0] for operand in operands)
        return 0 if rank > 2 and alike and (len(operands) == 1 or _ranks_agree(node, operands)) else None
    if node.op in _ALONG_AN_AXIS:
        taken: tuple[int, ...] = (node.attribute("axis"),)
    else:
        taken = node.attribute("axes")
    return next((axis for axis in range(rank) if axis not in taken and operands[0].shape[axis] > 1), None)


def _ranks_agree(node: Node, operands: Sequence[Any]) -> bool:
    """Whether the first dimension of each operand counts matrices; the tolerance of `pinv` has no others."""
    ranks = [operand.ndim + (2 if node.op is pinv and position else 0) for position, operand in enumerate(operands)]
    return len(set(ranks)) == 1


def _all_at_once(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """The values of some tasks, each by a thread of its own, the first by this one."""
    executor = _workers.current.executor
    others = [executor.submit(_quietly, task) for task in tasks[1:]]
    try:
        first = tasks[0]()
    finally:
        wait(others)  # also after an error: they read memory that may be used again
    return [first, *(other.result() for other in others)]


def _quietly(task: Callable[[], Any]) -> Any:
    with np.errstate(all="ignore"):  # which is each thread's own
        return task()
