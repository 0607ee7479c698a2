"""Producer–consumer tiling: finds chains of matrix products and kernels in which each step reads the rows that the
previous step wrote. In: a plan. Out: the chains that can run over blocks of rows, and the plan's memory arranged for
them.

A backend that runs the whole chain for one block of rows before the next keeps intermediate results in cache: the
scores of an attention are never written to memory. Other backends run the same steps in sequence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import prod

from livegrad.ir.node import Node
from livegrad.ir.types import scalar_of
from livegrad.ir.walk import nodes_of, ops_in, reachable_functions
from livegrad.ops.conversion import cast
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import permute
from livegrad.schedule.materialise import CONTROL
from livegrad.schedule.plan import Buffer, HostStep, KernelStep, RowChain, Step, View, reached

_MOST_PUT_OFF = 4  # steps that are put off hold on to memory


def row_chains(steps: Sequence[Step]) -> list[RowChain]:
    """The longest chains that begin with a product, in order."""
    chains: list[tuple[int, ...]] = []
    taken: set[int] = set()
    for number in range(len(steps)):
        if number not in taken:
            numbers = _chain_from(steps, number, taken)
            if len(numbers) > 1:
                chains.append(numbers)
                taken.update(numbers)
    uses = _uses_of_buffers(steps) if chains else Counter[Buffer]()
    return [_row_chain(numbers, tuple([steps[number] for number in numbers]), uses) for numbers in chains]


def _row_chain(numbers: tuple[int, ...], steps: tuple[Step, ...], uses: Counter[Buffer]) -> RowChain:
    first, buffer_uses = steps[0], _uses_of_buffers(steps)
    assert isinstance(first, HostStep)
    assert isinstance(first.result, Buffer)
    written = [buffer for step in steps for buffer in step.results if buffer.lifetime == "graph"]
    private = frozenset([buffer for buffer in written if buffer_uses[buffer] == uses[buffer]])
    return RowChain(numbers, steps, first.result.shape[:-1], private)


def _uses_of_buffers(steps: Iterable[Step]) -> Counter[Buffer]:
    """How many of the steps touch each buffer."""
    return Counter([buffer for step in steps for buffer in {*step.inputs, *step.results}])


def _chain_from(steps: Sequence[Step], first: int, taken: set[int]) -> tuple[int, ...]:
    """The steps of the longest chain that begins with this one, by number; none if it is no product."""
    start = steps[first]
    if not isinstance(start, HostStep) or start.op is not matmul or not isinstance(start.result, Buffer):
        return ()
    rows = start.result.shape[:-1]
    numbers, written, put_off = [first], {start.result.base}, set[Buffer]()
    for number in range(first + 1, len(steps)):
        step = steps[number]
        waits = not (put_off.isdisjoint(step.inputs) and put_off.isdisjoint(step.results))
        goes_on = not written.isdisjoint(step.inputs)
        if number not in taken and goes_on and not waits and _is_row_by_row(step, rows, written):
            numbers.append(number)
            written.update(b for b in step.results if b.lifetime != "region")
        elif number - first - len(numbers) < _MOST_PUT_OFF and _may_come_later(step):
            put_off.update(step.results)
        else:
            break
    return tuple(numbers)


def _may_come_later(step: Step) -> bool:
    """Whether a step only computes its results: it may run after steps that do not need them."""
    return step.op is matmul if isinstance(step, HostStep) else not _may_stop(step)


def _is_row_by_row(step: Step, rows: tuple[int, ...], written: set[Buffer]) -> bool:
    """Whether a step computes each row of its results only from the same row of the values that the chain has
    written."""
    return _is_row_product(step, rows, written) if isinstance(step, HostStep) else _is_row_kernel(step, rows, written)


def _is_row_product(step: HostStep, rows: tuple[int, ...], written: set[Buffer]) -> bool:
    if step.op is not matmul or not isinstance(step.result, Buffer) or step.result.shape[:-1] != rows:
        return False
    left, right = step.function.results[0].operands
    sources = [o.operands[0] if o.op is permute else o for o in (left, right)]
    first, second = (step.operands[source.attribute("index")] for source in sources)
    assert isinstance(first, Buffer)
    assert isinstance(second, Buffer)
    if second.base in written:
        return False
    return first.base not in written or (left.op is not permute and first.shape[:-1] == rows)


def _is_row_kernel(step: KernelStep, rows: tuple[int, ...], written: set[Buffer]) -> bool:
    by_row = step.domain == rows if step.vector_axis == "inner" else step.domain[:-1] == rows and not step.inner
    if not by_row or step.chunk or _may_stop(step):
        return False
    whole = (*(view.buffer for view in step.scalar_arguments), *step.indexed_buffers)
    if any(buffer.base in written for buffer in whole):
        return False
    extents = (*step.domain, *step.inner)
    reads = [view for view in step.reads if view.buffer.base in written]
    outputs = [view for view in step.outputs if view.buffer.lifetime != "region"]
    return all(_stays_in_row(view, rows, extents) for view in (*reads, *outputs))


def _may_stop(step: KernelStep) -> bool:
    """Whether a kernel has checks that end the run, or loops that an interrupt ends."""
    functions = reachable_functions([stage.body for stage in step.kernel.stages])
    if not any(op.checked or op in CONTROL for function in functions for op in ops_in(function)):
        return False
    return any(is_checked(node) or node.op in CONTROL for function in functions for node in nodes_of(function))


def is_checked(node: Node) -> bool:
    """Whether some values of its operands are reported, or would be at a point that does not count."""
    if node.op is cast:  # of a float to an integer that may not hold it
        source, target = scalar_of(node.operands[0].type), scalar_of(node.type)
        return source is None or target is None or (source.kind == "float" and target.kind != "float")
    return node.op.checked


def _stays_in_row(view: View, rows: tuple[int, ...], extents: tuple[int, ...]) -> bool:
    """Whether a kernel at some row touches that row of a buffer, and no other."""
    buffer, count = view.buffer, len(rows)
    if buffer.shape[:count] != rows:
        return False
    leading = zip(view.strides, buffer.strides, rows, strict=False)
    if any(actual != stride and size != 1 for actual, stride, size in leading):
        return False
    first, last = reached(view.offset, view.strides[count:], extents[count:])
    return first >= 0 and last < prod(buffer.shape[count:])
