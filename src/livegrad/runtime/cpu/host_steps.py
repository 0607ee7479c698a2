"""Host steps: ops of a plan that NumPy computes, and operations on tuples and tapes in Python.

In: a `HostStep`. Out: a `HostCall`, which `compiled_plan.py` and `loop_body.py` run between kernels. Transforms, sorts
and decompositions of many rows or matrices are split among threads: NumPy releases the GIL, and rows are independent,
so results do not depend on the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from livegrad.ir.leaves import parameter_op
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.persistent_array import PersistentArray
from livegrad.ir.types import Tuple
from livegrad.ops.aggregate import get, make
from livegrad.ops.decompositions import cholesky, qr
from livegrad.ops.fourier import fft, irfft, rfft
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import permute
from livegrad.ops.solving import cofactors, inv, pinv, solve, triangular_solve
from livegrad.ops.sorting import argsort, sort, top_positions
from livegrad.ops.spectra import eig, eigh, eigvals, eigvalsh, svd, svdvals
from livegrad.ops.tape import tape_set, tape_stack, tape_unstack
from livegrad.passes.in_place_loops import writes_in_place
from livegrad.runtime.cpu.loop_body import StepOwner
from livegrad.runtime.cpu.native.pool import threads
from livegrad.runtime.cpu.tape_rows import TapeValues
from livegrad.runtime.reference import apply_node
from livegrad.schedule.plan import HostStep, ObjectSlot, Slot
from livegrad.state import BackgroundWork, Owned, call_after_fork

# --- parts for threads ------------------------------------------------------------------------------------------------

_MIN_WORK = 5e5  # additions; handing a part to a thread costs as much as ten thousand

_ALONG_AN_AXIS = frozenset({rfft, irfft, sort, argsort, top_positions})
_OF_MATRICES: frozenset[Op] = frozenset({eig, eigh, eigvals, eigvalsh, svd, svdvals, cofactors, inv, pinv})
# Small matrices take so little time in these ops that threads mostly wait for each other's memory.
_OF_LARGER_MATRICES: frozenset[Op] = frozenset({cholesky, qr, solve, triangular_solve})
_MIN_MATRIX_ROWS = 8
_SPLITTABLE = _ALONG_AN_AXIS | _OF_MATRICES | _OF_LARGER_MATRICES | {fft}


class _Workers(BackgroundWork):
    """Threads for parts of steps. Each step waits for its parts, so the threads are idle between steps."""

    def __init__(self) -> None:
        self._start()
        call_after_fork(self, "_start")  # the child of a fork does not have them

    def _start(self) -> None:
        self.executor = ThreadPoolExecutor(max(1, os.cpu_count() or 1), thread_name_prefix="livegrad-part")

    def suspend(self) -> None:
        """Does nothing: the threads are idle between steps."""

    def resume(self) -> None:
        """Does nothing, like `suspend`."""

    def close(self) -> None:
        self.executor.shutdown()


_workers = Owned(_Workers)


def compute_in_parts(
    node: Node, operands: Sequence[Any], compute: Callable[[Sequence[Any]], Any], target: Any = None
) -> Any:
    """Computes the value of a step in parts on several threads; None if one thread is faster.

    With `target`, writes the value to that array and returns it.
    """
    if node.op not in _SPLITTABLE or operands[0].size * node.op.cost < _MIN_WORK or threads() < 2:
        return None
    if node.op is fft and len(node.attribute("axes")) == operands[0].ndim > 1:
        return _transform_all_axes(node, operands[0], target)
    axis = _batch_axis(node, operands)
    if axis is None:
        return None
    regions = _split_axis(operands[0].shape, axis)

    def compute_part(region: tuple[slice, ...]) -> Any:
        value = compute([operand[region] for operand in operands])
        return value if target is None else np.copyto(target[region], value, casting="unsafe")

    values = _run_on_threads([partial(compute_part, region) for region in regions])
    if target is not None:
        return target
    return tuple(np.concatenate(members, axis=axis) for members in zip(*values, strict=True))


def _transform_all_axes(node: Node, value: Any, target: Any) -> Any:
    """Computes a transform over all axes, from the last to the first, as NumPy does."""
    transform, norm = np.fft.ifft if node.attribute("inverse") else np.fft.fft, node.attribute("norm")
    source = value
    for axis in reversed(node.attribute("axes")):
        split_axis = next(other for other in (*range(value.ndim), 0) if other != axis)

        def transform_part(region: tuple[slice, ...], source: Any = source, axis: int = axis) -> None:
            target[region] = transform(source[region], axis=axis, norm=norm)

        _run_on_threads([partial(transform_part, region) for region in _split_axis(value.shape, split_axis)])
        source = target
    return target


def _split_axis(shape: tuple[int, ...], axis: int) -> list[tuple[slice, ...]]:
    """Regions along an axis, one for each thread."""
    count = min(threads(), shape[axis])
    cuts = [shape[axis] * index // count for index in range(count + 1)]
    return [(*(slice(None),) * axis, slice(low, high)) for low, high in pairwise(cuts)]


def _batch_axis(node: Node, operands: Sequence[Any]) -> int | None:
    """An axis along which the rows or matrices of a step are independent; None if there is none."""
    rank = operands[0].ndim
    if node.op in _OF_LARGER_MATRICES and operands[0].shape[-1] < _MIN_MATRIX_ROWS:
        return None
    if node.op in _OF_MATRICES or node.op in _OF_LARGER_MATRICES:
        same_length = all(operand.ndim > 0 and operand.shape[0] == operands[0].shape[0] for operand in operands)
        return 0 if rank > 2 and same_length and (len(operands) == 1 or _ranks_agree(node, operands)) else None
    if node.op in _ALONG_AN_AXIS:
        op_axes: tuple[int, ...] = (node.attribute("axis"),)
    else:
        op_axes = node.attribute("axes")
    return next((axis for axis in range(rank) if axis not in op_axes and operands[0].shape[axis] > 1), None)


def _ranks_agree(node: Node, operands: Sequence[Any]) -> bool:
    """Whether the first axis of each operand is a batch axis. The tolerance of `pinv` has only batch axes."""
    ranks = [operand.ndim + (2 if node.op is pinv and position else 0) for position, operand in enumerate(operands)]
    return len(set(ranks)) == 1


def _run_on_threads(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """Runs the first task on this thread and the others on workers; returns their values."""
    executor = _workers.current.executor
    others = [executor.submit(_without_warnings, task) for task in tasks[1:]]
    try:
        first = tasks[0]()
    finally:
        wait(others)  # also after an error: they read memory that the caller may reuse
    return [first, *(other.result() for other in others)]


def _without_warnings(task: Callable[[], Any]) -> Any:
    with np.errstate(all="ignore"):  # this setting is thread-local
        return task()


# --- steps ------------------------------------------------------------------------------------------------------------


class HostCall:
    """One op that Python runs. Functions among its attributes run as compiled plans."""

    def __init__(self, step: HostStep, owner: StepOwner) -> None:
        self.step, self._owner = step, owner
        # Looked up once, because loops over tensors run their steps thousands of times.
        self._only_moves = _only_moves_values(step.function.results[0])
        slots = [slot for slot in (*step.operands, step.result) if not isinstance(slot, ObjectSlot)]
        self._arrays = {slot: array for slot in slots if (array := owner.fixed_array(slot)) is not None}

    def run(self, values: dict[Any, Any]) -> None:
        step = self.step
        node = step.function.results[0]
        arguments = [self._value(slot, values) for slot in step.operands]
        if writes_in_place(node):  # such a step has more than one op, so it runs as a function
            values[step.result] = self._owner.run_nested(step.function, *[_copy_array(value) for value in arguments])
            return
        operands = [_operand_view(operand, arguments) for operand in node.operands]
        if self._only_moves:
            self._move_values(node, operands, values)
            return
        with np.errstate(all="ignore"):
            self._compute(node, operands, values)
        for index, buffer in step.stored:
            np.copyto(self._value(buffer, values), values[step.result][index], casting="unsafe")

    def _value(self, slot: Slot, values: Mapping[Any, Any]) -> Any:
        if isinstance(slot, ObjectSlot):
            return values[slot]
        array = self._arrays.get(slot)
        return self._owner.array_of(slot, values) if array is None else array

    def _move_values(self, node: Node, operands: list[Any], values: dict[Any, Any]) -> None:
        """Packs a tuple, reads a member of one, or sets an entry of a tape. Copies arrays out of the arena."""
        if node.op is make:
            result: Any = tuple([_copy_array(value) for value in operands])
        elif node.op is get:
            result = operands[0][node.attribute("index")]
        else:
            tape, index, value = operands
            table = tape if isinstance(tape, PersistentArray | TapeValues) else PersistentArray(dict(tape))
            result = table.with_item(int(index), _copy_array(value))
        if isinstance(self.step.result, ObjectSlot):
            values[self.step.result] = result
        else:
            np.copyto(self._value(self.step.result, values), result, casting="unsafe")

    def _compute(self, node: Node, operands: list[Any], values: dict[Any, Any]) -> None:
        step = self.step
        if node.op is tape_unstack:
            stacked = _copy_array(operands[0])
            values[step.result] = TapeValues(node.type.element, [stacked], len(stacked))  # type: ignore[attr-defined]
            return
        if isinstance(step.result, ObjectSlot):
            value = compute_in_parts(node, operands, partial(self._apply, node))
            # Objects outlive the contents of the arena and may alias operands, hence the copies.
            values[step.result] = self._apply(node, [_copy_array(v) for v in operands]) if value is None else value
            return
        target = self._value(step.result, values)
        if node.op is matmul:
            np.matmul(*operands, out=target)
            return
        if node.op is tape_stack and isinstance(operands[0], TapeValues) and operands[0].count == len(target):
            np.copyto(target, operands[0].columns[0][: len(target)])
            return
        if compute_in_parts(node, operands, partial(self._apply, node), target) is None:
            np.copyto(target, self._apply(node, operands), casting="unsafe")

    def _apply(self, node: Node, operands: Sequence[Any]) -> Any:
        return apply_node(node, operands, self._owner.run_nested)


def _only_moves_values(node: Node) -> bool:
    """Whether a step only packs a tuple, reads a member of one, or sets an entry of a tape."""
    holder = node.operands[0] if node.op is get else node
    return node.op is tape_set or (node.op in (get, make) and isinstance(holder.type, Tuple))


def _operand_view(operand: Node, arguments: Sequence[Any]) -> Any:
    """The value of an operand: an argument of the step, a view of one, or an index that the step generates."""
    if operand.op is permute:
        return np.transpose(_operand_view(operand.operands[0], arguments), operand.attribute("axes"))
    if operand.op is parameter_op:
        return arguments[operand.attribute("index")]
    evaluate = operand.op.evaluate
    assert evaluate is not None
    return evaluate(*[_operand_view(inner, arguments) for inner in operand.operands], **dict(operand.attributes))


def _copy_array(value: Any) -> Any:
    return np.array(value) if isinstance(value, np.ndarray) else value
