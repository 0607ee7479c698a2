"""Walks the steps of a live plan: leaf steps, regions, and the buffers that graph nodes access."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from livegrad.live.compile.live_steps import AppendStep, BufferOperand, CapturedStep, LeafStep, RegionStep, Step


def leaves_of(steps: Iterable[Step]) -> Iterator[LeafStep]:
    """The leaf steps of these steps, including those inside regions."""
    for step in steps:
        if isinstance(step, RegionStep):
            yield from step.leaf_steps()
        else:
            yield step


def regions_of(steps: Iterable[Step]) -> Iterator[RegionStep]:
    """The regions among these steps, and those inside them."""
    for step in steps:
        if isinstance(step, RegionStep):
            yield step
            yield from regions_of(step.inner_steps())


def buffers_in_other_nodes(step: Step) -> Iterator[str]:
    """The buffers whose addresses are in nodes of regions, appends and copies, besides launches of bound steps."""
    if isinstance(step, CapturedStep):
        yield from (operand.key for operand in step.operands if isinstance(operand, BufferOperand))
    if isinstance(step, AppendStep):
        yield from step.results
        yield from (operand.key for operand in step.all_operands() if isinstance(operand, BufferOperand))
    if isinstance(step, RegionStep):
        yield from step.results
        yield from (variable.carry for variable in step.carried)
        if step.index is not None:
            yield step.index
        for operand in (step.control, *(variable.initial for variable in step.carried)):
            if isinstance(operand, BufferOperand):
                yield operand.key
        for inner in step.inner_steps():
            yield from buffers_in_other_nodes(inner)


def accessed_buffers(step: Step) -> Iterator[str]:
    """Every buffer that a step reads or writes."""
    yield from (operand.key for operand in step.all_operands() if isinstance(operand, BufferOperand))
    yield from step.results
    if isinstance(step, RegionStep):
        yield from written_inside(step)


def written_inside(step: RegionStep) -> list[str]:
    """The buffers that a region writes: its results, loop variables, and everything that its bodies compute."""
    written = [*step.results, *(variable.carry for variable in step.carried)]
    if step.index is not None:
        written.append(step.index)
    for inner in step.inner_steps():
        written += written_inside(inner) if isinstance(inner, RegionStep) else inner.results
    return list(dict.fromkeys(written))
