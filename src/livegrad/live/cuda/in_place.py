"""Finds loop variables that can be updated in place, without copies.

In: the loops of a plan and the code of their steps. Out: for each such variable, the result that shares its memory. A
result may overwrite its variable if all readers of the variable have finished: earlier steps and kernels, and a kernel
that reads only the element that it is about to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from livegrad.live.compile.live_steps import BlockStep, BufferOperand, Carried, RegionStep, Step
from livegrad.live.cuda.step_code import StepCode
from livegrad.runtime.cuda.serialised_launches import SerialisedHostStep, SerialisedLaunch
from livegrad.schedule.plan import KernelStep, View


def find_in_place(regions: Iterable[RegionStep], codes: Mapping[str, StepCode]) -> dict[str, str]:
    """The loop variables that can share memory with a result: maps the buffer of each to the result."""
    in_place: dict[str, str] = {}
    for region in regions:
        if region.kind not in ("while", "for"):
            continue
        leaves = [leaf for leaf in region.leaf_steps() if leaf.key in codes]
        if any(isinstance(item, SerialisedHostStep) for leaf in leaves for item in codes[leaf.key].items):
            continue  # the host runs the loop
        results = [variable.result for variable in region.carried]
        for variable in region.carried:
            if results.count(variable.result) == 1 and _may_share(variable, region.bodies[0], codes):
                in_place[variable.carry] = variable.result
    return in_place


def _may_share(carried: Carried, body: Sequence[Step], codes: Mapping[str, StepCode]) -> bool:
    writers = [position for position, step in enumerate(body) if carried.result in step.results]
    readers = [position for position, step in enumerate(body) if _reads(step, carried.carry)]
    if len(writers) != 1 or any(reader > writers[0] for reader in readers):
        return False
    writer = body[writers[0]]
    if not isinstance(writer, BlockStep) or writer.key not in codes:
        return False
    return _writes_after_reading(writer, codes[writer.key], carried)


def _reads(step: Step, buffer: str) -> bool:
    return any(isinstance(operand, BufferOperand) and operand.key == buffer for operand in step.all_operands())


def _writes_after_reading(step: BlockStep, code: StepCode, carried: Carried) -> bool:
    """Whether no item of a step reads the variable after its result was written."""
    carries = {
        buffer
        for buffer, position in code.slots.items()
        if isinstance(operand := step.operands[position], BufferOperand) and operand.key == carried.carry
    }
    results = {buffer for buffer, position in code.results.items() if step.results[position] == carried.result}
    writers = [
        item for item, (_, writes) in enumerate(code.touched) if any(buffer.base.number in results for buffer in writes)
    ]
    readers = [
        item for item, (reads, _) in enumerate(code.touched) if any(buffer.base.number in carries for buffer in reads)
    ]
    if len(writers) != 1 or any(reader > writers[0] for reader in readers):
        return False
    if writers[0] not in readers:
        return True
    item = code.items[writers[0]]
    if not isinstance(item, SerialisedLaunch) or item.number >= len(code.plan.steps):
        return False  # a library call or a user kernel: the order of its accesses is unknown
    kernel = code.plan.steps[item.number]
    return isinstance(kernel, KernelStep) and _reads_only_what_it_writes(kernel, carries, results)


def _reads_only_what_it_writes(kernel: KernelStep, carries: set[int], results: set[int]) -> bool:
    """Whether each thread reads of `carries` only the elements that it then writes to `results`.

    A kernel of one stage reads everything it needs for a row before it writes the row.
    """
    if kernel.inner or kernel.chunk or any(whole.base.number in carries for whole in kernel.indexed_buffers):
        return False
    if len(kernel.kernel.stages) != 1 or any(port.scratch for port in kernel.kernel.outputs):
        return False
    is_single = prod(kernel.domain) == 1
    if not is_single and any(view.buffer.base.number in carries for view in kernel.scalar_arguments):
        return False
    written = {_layout_of(view) for view in kernel.outputs if view.buffer.base.number in results}
    read = {_layout_of(view) for view in kernel.reads if view.buffer.base.number in carries}
    return is_single or (len(written) == 1 and read <= written)


def _layout_of(view: View) -> tuple[int, tuple[int, ...]]:
    return view.offset, view.strides
