"""The plan passes. Each makes one decision about a draft: materialisation, fusion, order, steps or memory.

`livegrad.compiler` lists and runs them; the algorithms are in the modules that they call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node, parameter_op
from livegrad.ir.node import Key, Node
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor
from livegrad.ir.walk import nodes_of
from livegrad.ops.aggregate import get
from livegrad.ops.assignment import assign
from livegrad.ops.control import for_loop, while_loop
from livegrad.ops.movement import pad, permute
from livegrad.passes.in_place_loops import find_memory_operands, writes_in_place
from livegrad.passes.regions import first_argument
from livegrad.schedule.allocate import BufferUser, allocate_arena
from livegrad.schedule.draft import Draft, view_of
from livegrad.schedule.extrema import find_compared_with_extrema
from livegrad.schedule.fuse import Group, find_external_reads, find_recomputed, find_shared_expensive, group_roots
from livegrad.schedule.fuse_siblings import fuse_siblings
from livegrad.schedule.kernels import build_kernel_steps
from livegrad.schedule.loop_rows import build_row_loop
from livegrad.schedule.loop_steps import build_loop
from livegrad.schedule.materialise import (
    find_chain_cuts,
    find_forced_kinds,
    find_roots,
    is_generated,
    stored_operand,
)
from livegrad.schedule.merge_additions import merge_additions
from livegrad.schedule.order_for_memory import sort_for_memory
from livegrad.schedule.partial_updates import find_partial_updates, readers_before_writes
from livegrad.schedule.plan import Buffer, HostStep, KernelStep, ObjectSlot, RowChain, Step
from livegrad.schedule.special import build_copy, build_placements, build_scan
from livegrad.schedule.step_kinds import GroupKind, is_storable
from livegrad.schedule.tile_row_chains import find_row_chains
from livegrad.schedule.work import TrialBuffers, Trials
from livegrad.schedule.write_steps import build_writes, count_chunks

_MAX_ROUNDS = 4


@dataclass(frozen=True)
class PlanPass:
    """A plan pass: one decision about a draft; `verify` raises if the decision is invalid."""

    run: Callable[[Draft], Iterator[Step] | None]  # a pass that builds steps yields each as soon as it is built
    verify: Callable[[Draft], None] = lambda draft: None
    needs: frozenset[Op] = frozenset()  # has nothing to do unless the function has one of these ops; empty: it may
    optional: bool = False  # an optimisation that `Target.without` leaves out

    @property
    def name(self) -> str:
        return self.run.__name__


def materialise(draft: Draft) -> None:
    """Decides what is materialised: required values, cuts in deep expressions, and often recomputed values."""
    function = draft.function
    draft.forced = find_forced_kinds(function, draft.target)
    draft.compared = find_compared_with_extrema(function)
    draft.materialised = find_chain_cuts(function) | draft.compared
    if draft.target.uses("write_in_place"):
        draft.updates = find_partial_updates(function, draft.overwrites)
        draft.forced |= dict.fromkeys(draft.updates, "write")
        draft.materialised |= {update.operands[1] for update in draft.updates} - {*function.parameters}
    if not draft.target.uses("guard_padded_loads"):
        draft.materialised |= {node for node in nodes_of(function) if node.op is pad}
    draft.materialised |= _find_copies_for_libraries(draft)
    draft.roots = find_roots(function, draft.forced, draft.materialised)
    if draft.target.uses("store_repeated") and (recomputed := find_recomputed(function, draft.roots)):
        _materialise_more(draft, recomputed)


def _find_copies_for_libraries(draft: Draft) -> set[Node]:
    """Permuted operands of host steps that must be copied, because the target's library cannot read them in place."""
    reads_permuted = draft.target.reads_permuted
    if reads_permuted is None:
        return set()
    steps = [node for node, kind in draft.forced.items() if kind == "host"]
    operands = [(node, operand) for node in steps for operand in node.operands if operand.op is permute]
    return {operand for node, operand in operands if not reads_permuted(node, operand)}


def _materialise_more(draft: Draft, nodes: set[Node]) -> None:
    draft.materialised |= nodes
    draft.roots = find_roots(draft.function, draft.forced, draft.materialised)


def fuse(draft: Draft) -> None:
    """Decides fusion. Expensive values that several groups need are materialised, and the groups are formed again."""
    for _ in range(_MAX_ROUNDS):
        _form_groups(draft)
        more = find_shared_expensive(draft.groups, draft.roots) - draft.materialised
        if not more:
            return
        _materialise_more(draft, more)
    _form_groups(draft)


def _form_groups(draft: Draft) -> None:
    draft.trials = Trials(TrialBuffers(draft.roots, draft.stored))
    can_add = draft.trials.can_add if draft.target.uses("fuse") else lambda *_: False
    target = draft.target
    draft.groups = group_roots(draft.roots, can_add, target.splits_long_columns, draft.compared, target.cut_rows)


def order_for_memory(draft: Draft) -> None:
    """Decides the order: of the groups that can run, one that frees memory runs first."""
    for writer, reader in readers_before_writes(draft.groups, draft.updates):
        writer.needs.add(reader)
    draft.groups = sort_for_memory(draft.groups, draft.roots, draft.function.results)


def assign_buffers(draft: Draft) -> None:
    """Assigns a buffer to each stored value. Views use the buffer of their operand."""
    for root, kind in draft.roots.items():
        if not is_storable(root.type):
            draft.objects.setdefault(root, ObjectSlot(len(draft.objects), root.op.name))
        elif root not in draft.stored and kind != "view":
            draft.stored[root] = draft.buffer_for(root, root.op.name, "graph")


def write_in_place(draft: Draft) -> None:
    """Shares a buffer between a write or loop and the value that it overwrites, if nothing uses the old value later."""
    roots = draft.roots
    if not {"write", "loop", "place"}.intersection(roots.values()):
        return
    reusable = {draft.function.parameters[index]: result for index, result in draft.overwrites.items()}
    uses = Counter(operand for node in nodes_of(draft.function) for operand in node.operands)
    uses.update(draft.function.results)
    readers = _find_readers(draft)
    for root, kind in reversed(roots.items()):
        base = _overwritten_operand(root, kind)
        if base is None:
            continue
        if base in reusable and draft.stored[root] is draft.results[reusable[base]]:
            if _is_last_use(draft, root, base, uses, readers) and draft.reuse_argument(base, reusable[base]):
                continue
            draft.copy_reasons[draft.stored[root]] = "its old value is used again"
        elif roots.get(base) not in ("fused", "scan", "place", "write", "loop"):
            draft.copy_reasons[draft.stored[root]] = _reason_for_copy(base, roots.get(base))
        elif _is_last_use(draft, root, base, uses, readers):
            draft.stored[base] = draft.stored[root]
        else:
            draft.copy_reasons[draft.stored[root]] = "its old value is used again"


def _is_last_use(
    draft: Draft, root: Node, base: Node, uses: Mapping[Node, int], readers: dict[Node, list[tuple[int, Node]]]
) -> bool:
    """Whether no step reads a tensor after, or during, the step that overwrites it."""
    return uses[base] == 1 or (draft.roots[root] != "loop" and _is_last_reader(draft, root, base, readers))


def _reason_for_copy(base: Node, kind: GroupKind | None) -> str:
    """Why a value cannot be overwritten even without other uses; empty for a value without memory of its own."""
    if base.op is parameter_op:
        return "the caller keeps it"
    return {"host": "the host computed it", "view": "it is a view"}.get(kind or "", "")


def _find_readers(draft: Draft) -> dict[Node, list[tuple[int, Node]]]:
    """For each stored value, the roots that read it, each with the index of its group."""
    readers: dict[Node, list[tuple[int, Node]]] = {}
    stored = {*draft.roots, *draft.function.parameters}
    for index, group in enumerate(draft.groups):
        for root, below in group.below.items():
            for node in below:
                if node in stored:
                    readers.setdefault(node, []).append((index, root))
    return readers


def _is_last_reader(draft: Draft, root: Node, base: Node, readers: dict[Node, list[tuple[int, Node]]]) -> bool:
    """Whether an assignment is the last step that reads the value it overwrites, and only as its base."""
    end = next(index for index, reader in readers[base] if reader is root)
    others = [(index, reader) for index, reader in readers[base] if reader is not root]
    if base in draft.function.results or any(n >= end or draft.roots[reader] == "view" for n, reader in others):
        return False
    pending, visited = list(root.operands[1:]), set[Node]()
    while pending:
        node = pending.pop()
        if node is base:
            return False
        if node not in readers and node not in visited:
            visited.add(node)
            pending += node.operands
    return True


def _overwritten_operand(root: Node, kind: GroupKind) -> Node | None:
    """The tensor of which a root is an updated version; None for other roots."""
    if kind == "write":
        return root.operands[0] if count_chunks(root) == 1 else None
    if kind == "place":
        return root.operands[0] if root.op is assign else None
    if kind != "loop" or not isinstance(root.type, Tensor):
        return None
    (loop,) = root.operands
    return loop.operands[first_argument(loop) + root.attribute("index")]


def build_steps(draft: Draft) -> Iterator[Step]:
    """Builds the steps of each group, in order, and copies of results that are stored elsewhere."""
    outputs = find_external_reads(draft.groups, draft.roots) | set(draft.function.results)
    for kind, groups in groupby(draft.groups, key=lambda group: group.kind):
        if kind in ("place", "write") and draft.target.fuses_siblings and draft.target.uses("fuse_siblings"):
            built = [_build_group(draft, group, outputs) for group in groups]
            kernels = [step for steps in built for step in steps if isinstance(step, KernelStep)]
            step_lists = [fuse_siblings(kernels) if kind == "place" else merge_additions(kernels)]
        else:
            step_lists = (_build_group(draft, group, outputs) for group in groups)
        for steps in step_lists:
            draft.steps += steps
            yield from steps
    for node, slot in zip(draft.function.results, draft.results, strict=True):
        if isinstance(slot, Buffer) and draft.stored[node] is not slot:
            draft.steps.append(_build_copy_step(draft, draft.stored[node], slot))


def _build_group(draft: Draft, group: Group, outputs: set[Node]) -> list[Step]:
    """Builds the steps of a group; `outputs` are the values read outside it."""
    stored, new_buffer = draft.stored, draft.new_buffer
    match group.kind:
        case "fused":
            assert draft.trials is not None
            builder = draft.trials.finish(group, stored)
            return [*build_kernel_steps(builder, stored, new_buffer, outputs, draft.target.splits_long_columns)]
        case "scan":
            return [build_scan(root, stored, new_buffer) for root in group.roots]
        case "place":
            return [step for root in group.roots for step in _build_placements(draft, root)]
        case "write":
            built = [(build_writes(root, stored, new_buffer), count_chunks(root)) for root in group.roots]
            return [s for steps, chunks in built for s in _add_notes(draft, steps, "in place" if chunks == 1 else "")]
        case "loop":
            return [*_add_notes(draft, build_loop(group.roots, stored, new_buffer), "native loop, in place")]
        case "view":
            # The same bytes under another shape, or at a later step.
            for root in group.roots:
                if root not in stored:
                    stored[root] = view_of(stored[root.operands[0]], root)
            return []
        case "host":
            return [_build_host_step(draft, root) for root in group.roots]


def _build_placements(draft: Draft, root: Node) -> list[KernelStep]:
    steps = build_placements(root, draft.stored, draft.new_buffer)
    return _add_notes(draft, steps, "in place") if root.op is assign else steps


def _add_notes(draft: Draft, steps: Sequence[KernelStep], write_note: str) -> list[KernelStep]:
    """Adds notes for display to the copies before a write, and to the write itself."""
    reasons = [draft.copy_reasons.get(step.results[0]) for step in steps[:-1]]
    notes = [f"copied, because {why}" if why else "" for why in reasons]
    return [replace(step, note=note) for step, note in zip(steps, [*notes, write_note], strict=True)]


def _build_host_step(draft: Draft, root: Node) -> HostStep:
    if writes_in_place(root):
        operands = find_memory_operands(root)
    else:
        needed = [o for o in root.operands if o in draft.stored or not is_generated(root, o)]
        operands = list(dict.fromkeys(o if o in draft.stored else stored_operand(root, o) for o in needed))
    function = make_function(root.op.name, operands, [root])
    return HostStep(root.op, function, tuple(map(draft.slot, operands)), draft.slot(root), root.origin)


def _build_copy_step(draft: Draft, source: Buffer, result: Buffer) -> Step:
    node = input_node(Key("source"), Tensor(source.element, source.shape))
    return build_copy(node, result, {node: source}, draft.new_buffer)


def access_tapes_by_row(draft: Draft) -> None:
    """Rewrites loops over tensors to take and return rows of tapes, if the target runs the plans of loop bodies."""
    if not draft.target.binds_loop_bodies:
        return
    for index, step in enumerate(draft.steps):
        if isinstance(step, HostStep) and step.op in (for_loop, while_loop):
            loop = step.function.results[0]
            if not writes_in_place(loop):
                draft.steps[index] = replace(step, loop=build_row_loop(loop, _used_results(draft, step)))


def _used_results(draft: Draft, loop: HostStep) -> set[int]:
    """The indices of a loop's results that are read."""
    all_results = set(range(loop.function.results[0].attribute("carried")))
    used: set[int] = all_results if loop.result in draft.results else set()
    for step in draft.steps:
        if isinstance(step, HostStep) and loop.result in step.operands:
            node = step.function.results[0]
            used |= {node.attribute("index")} if node.op is get else all_results
    return used


def store_loop_results(draft: Draft) -> None:
    """Lets loops over tensors write results to their buffers directly, instead of to a tuple from which steps copy."""
    for loop in [step for step in draft.steps if isinstance(step, HostStep) and step.loop is not None]:
        readers = [step for step in draft.steps if isinstance(step, HostStep) and loop.result in step.operands]
        if loop.result in draft.results or any(step.op is not get for step in readers):
            continue
        copies = [step for step in readers if _copies_tensor(draft, step)]
        stored = [(step.function.results[0].attribute("index"), step.result) for step in copies]
        draft.steps = [step for step in draft.steps if step not in copies]
        draft.steps[draft.steps.index(loop)] = replace(loop, stored=tuple(stored))


def _copies_tensor(draft: Draft, step: HostStep) -> bool:
    """Whether a step copies a tensor to a buffer that no earlier step uses for another value."""
    buffer = step.result
    if not isinstance(buffer, Buffer) or not isinstance(step.function.results[0].type, Tensor):
        return False
    before = draft.steps[: draft.steps.index(step)]
    used = {base for other in before for base in (*other.inputs, *other.results)}
    return buffer not in draft.arguments and buffer.base not in used


def tile_row_chains(draft: Draft) -> None:
    """Tiles chains of steps that work row by row, if the target benefits."""
    rows_of_tile = draft.target.rows_of_tile
    if rows_of_tile is None:
        return
    tiled = [(chain, rows_of_tile(chain)) for chain in find_row_chains(draft.steps)]
    draft.chains = tuple([replace(chain, tile=tile) for chain, tile in tiled if tile is not None])
    if draft.chains:
        draft.steps = [step for item in _group_chains(draft) for step in _steps_of_item(item)]


def _group_chains(draft: Draft) -> list[Step | RowChain]:
    """The steps in order, with each chain as one item at the position of its first step."""
    starts = {id(chain.steps[0]): chain for chain in draft.chains}
    chained = {id(step) for chain in draft.chains for step in chain.steps}
    items = [starts.get(id(step), step) for step in draft.steps]
    return [item for item in items if id(item) not in chained]


def _steps_of_item(item: Step | RowChain) -> tuple[Step, ...]:
    return item.steps if isinstance(item, RowChain) else (item,)


def allocate(draft: Draft) -> None:
    """Assigns arena offsets to buffers.

    A chain counts as one step: its reads and writes share no bytes, and its private buffers need no arena memory.
    """
    private = {buffer for chain in draft.chains for buffer in chain.private}
    temporaries = [buffer for buffer in draft.buffers if buffer.lifetime == "graph" and buffer not in private]
    steps: list[BufferUser] = [*_group_chains(draft)] if draft.chains else [*draft.steps]
    draft.arena_offsets, draft.arena_bytes = allocate_arena(steps, temporaries)


# --- verification -----------------------------------------------------------------------------------------------------
