"""Producer–consumer tiling: finds chains of matrix products and kernels that can run tile by tile over rows.

In a chain, each step reads only the rows that earlier steps wrote. A backend that runs the whole chain for one tile of
rows before the next keeps intermediate results in cache: attention scores are never written to memory. Other backends
run the same steps in sequence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod

from livegrad.ir.node import Function, Node
from livegrad.ir.types import scalar_of
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.conversion import cast
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import permute
from livegrad.schedule.plan import Buffer, HostStep, KernelStep, RowChain, Step, View, element_range
from livegrad.schedule.step_kinds import CONTROL

_MOST_DEFERRED = 4  # deferred steps keep their operands alive


def find_row_chains(steps: Sequence[Step]) -> list[RowChain]:
    """The longest chains that start with a matrix product, in order."""
    chains: list[tuple[int, ...]] = []
    taken: set[int] = set()
    for start in range(len(steps)):
        if start not in taken:
            chain = _find_chain_from(steps, start, taken)
            if len(chain) > 1:
                chains.append(chain)
                taken.update(chain)
    uses = _count_users(steps) if chains else Counter[Buffer]()
    return [_make_chain(chain, tuple([steps[index] for index in chain]), uses) for chain in chains]


def _make_chain(indices: tuple[int, ...], steps: tuple[Step, ...], uses: Counter[Buffer]) -> RowChain:
    first, buffer_uses = steps[0], _count_users(steps)
    assert isinstance(first, HostStep)
    assert isinstance(first.result, Buffer)
    written = [buffer for step in steps for buffer in step.results if buffer.lifetime == "graph"]
    private = frozenset([buffer for buffer in written if buffer_uses[buffer] == uses[buffer]])
    return RowChain(indices, steps, first.result.shape[:-1], private)


def _count_users(steps: Iterable[Step]) -> Counter[Buffer]:
    """The number of steps that use each buffer."""
    return Counter([buffer for step in steps for buffer in {*step.inputs, *step.results}])


def _find_chain_from(steps: Sequence[Step], first: int, taken: set[int]) -> tuple[int, ...]:
    """The indices of the longest chain that starts with a step; empty if that is not a matrix product."""
    start = steps[first]
    if not isinstance(start, HostStep) or start.op is not matmul or not isinstance(start.result, Buffer):
        return ()
    rows = start.result.shape[:-1]
    chain, written, deferred = [first], {start.result.base}, set[Buffer]()
    for index in range(first + 1, len(steps)):
        step = steps[index]
        waits = not (deferred.isdisjoint(step.inputs) and deferred.isdisjoint(step.results))
        continues = not written.isdisjoint(step.inputs)
        if index not in taken and continues and not waits and _is_row_by_row(step, rows, written):
            chain.append(index)
            written.update(b for b in step.results if b.lifetime != "region")
        elif index - first - len(chain) < _MOST_DEFERRED and _can_be_deferred(step):
            deferred.update(step.results)
        else:
            break
    return tuple(chain)


def _can_be_deferred(step: Step) -> bool:
    """Whether a step has no effect besides its results, so that it can run after steps that do not need them."""
    return step.op is matmul if isinstance(step, HostStep) else not _may_fail(step)


def _is_row_by_row(step: Step, rows: tuple[int, ...], written: set[Buffer]) -> bool:
    """Whether each row of a step's results depends only on the same row of the values that the chain wrote."""
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
    if not by_row or step.chunk or _may_fail(step):
        return False
    unstrided = (*(view.buffer for view in step.scalar_arguments), *step.indexed_buffers)
    if any(buffer.base in written for buffer in unstrided):
        return False
    extents = (*step.domain, *step.inner)
    reads = [view for view in step.reads if view.buffer.base in written]
    outputs = [view for view in step.outputs if view.buffer.lifetime != "region"]
    return all(_stays_in_row(view, rows, extents) for view in (*reads, *outputs))


def _may_fail(step: KernelStep) -> bool:
    """Whether a kernel can end the run: by a failed check, or by an interrupt in a loop."""
    return any(_has_checks(stage.body) for stage in step.kernel.stages)


@lru_cache(maxsize=4096)
def _has_checks(body: Function) -> bool:
    nodes = [node for function in reachable_functions([body]) for node in nodes_of(function)]
    return any(is_checked(node) or node.op in CONTROL for node in nodes)


def is_checked(node: Node) -> bool:
    """Whether a node checks its operands at run time."""
    if node.op is cast:  # a float may not fit an integer
        source, target = scalar_of(node.operands[0].type), scalar_of(node.type)
        return source is None or target is None or (source.kind == "float" and target.kind != "float")
    return node.op.checked


def _stays_in_row(view: View, rows: tuple[int, ...], extents: tuple[int, ...]) -> bool:
    """Whether a view accesses only the row of the buffer that the kernel is at."""
    buffer, count = view.buffer, len(rows)
    if buffer.shape[:count] != rows:
        return False
    leading = zip(view.strides, buffer.strides, rows, strict=False)
    if any(actual != stride and size != 1 for actual, stride, size in leading):
        return False
    first, last = element_range(view.offset, view.strides[count:], extents[count:])
    return first >= 0 and last < prod(buffer.shape[count:])
