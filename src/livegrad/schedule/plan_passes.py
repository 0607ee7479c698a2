"""The plan passes. Each makes one decision about a draft: materialisation, fusion, order, steps, memory.

`livegrad.compiler` lists and runs them. The algorithms are in the modules that they call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from livegrad.diagnostics import VerifyError
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node, parameter_op
from livegrad.ir.node import Key, Node
from livegrad.ir.types import Tensor
from livegrad.ir.verify import verify_function
from livegrad.ir.walk import nodes_of
from livegrad.ops.aggregate import get
from livegrad.ops.assignment import assign
from livegrad.ops.control import for_loop, while_loop
from livegrad.ops.movement import pad, permute
from livegrad.passes.flatten_signature import leaf_types
from livegrad.passes.in_place_loops import find_memory_operands, writes_in_place
from livegrad.passes.regions import first_argument
from livegrad.schedule.allocate import Touching, allocate_arena
from livegrad.schedule.draft import Draft, view_of
from livegrad.schedule.extrema import compared_with_extrema
from livegrad.schedule.fuse import Group, computed_often, group_roots, read_outside, shared_between
from livegrad.schedule.fuse_siblings import fuse_siblings
from livegrad.schedule.kernels import build_kernel_steps
from livegrad.schedule.loop_rows import row_loop
from livegrad.schedule.loop_steps import build_loop
from livegrad.schedule.materialise import (
    GroupKind,
    find_roots,
    forced_kinds,
    is_storable,
    long_chain_cuts,
    stored_operand,
)
from livegrad.schedule.order_for_memory import in_memory_order
from livegrad.schedule.partial_updates import partial_updates, readers_before_writes
from livegrad.schedule.plan import Buffer, HostStep, KernelStep, ObjectSlot, RowChain, Step
from livegrad.schedule.special import build_copy, build_placements, build_scan
from livegrad.schedule.tile_row_chains import row_chains
from livegrad.schedule.verify import verify_order, verify_sharing, verify_views
from livegrad.schedule.work import StandIns, Trials
from livegrad.schedule.write_steps import build_writes, count_chunks

_ROUNDS = 4


@dataclass(frozen=True)
class PlanPass:
    """A plan pass: one decision about a draft; `verify` raises if the decision is invalid."""

    run: Callable[[Draft], Iterator[Step] | None]  # a pass that makes steps gives each as soon as it is there
    verify: Callable[[Draft], None] = lambda draft: None
    optional: bool = False  # an optimisation that `Target.without` leaves out

    @property
    def name(self) -> str:
        return self.run.__name__


def materialise(draft: Draft) -> None:
    """Decides what is materialised: required values, cuts in long chains, and values that a broadcast would recompute
    many times."""
    function = draft.function
    draft.forced = forced_kinds(function, draft.target.kernels_write_by_index)
    draft.compared = compared_with_extrema(function)
    draft.materialised = long_chain_cuts(function) | draft.compared
    if draft.target.uses("write_in_place"):
        draft.updates = partial_updates(function, draft.overwrites)
        draft.forced |= dict.fromkeys(draft.updates, "write")
        draft.materialised |= {update.operands[1] for update in draft.updates} - {*function.parameters}
    if not draft.target.uses("guard_padded_loads"):
        draft.materialised |= {node for node in nodes_of(function) if node.op is pad}
    draft.materialised |= _copied_for_libraries(draft)
    draft.roots = find_roots(function, draft.forced, draft.materialised)
    if draft.target.uses("store_repeated") and (often := computed_often(function, draft.roots)):
        _store_also(draft, often)


def _copied_for_libraries(draft: Draft) -> set[Node]:
    """The permuted operands of host steps that are copied first, because the target's library needs another layout."""
    reads_permuted = draft.target.reads_permuted
    if reads_permuted is None:
        return set()
    steps = [node for node, kind in draft.forced.items() if kind == "host"]
    operands = [(node, operand) for node in steps for operand in node.operands if operand.op is permute]
    return {operand for node, operand in operands if not reads_permuted(node, operand)}


def _store_also(draft: Draft, nodes: set[Node]) -> None:
    draft.materialised |= nodes
    draft.roots = find_roots(draft.function, draft.forced, draft.materialised)


def fuse(draft: Draft) -> None:
    """Decides fusion. An expensive value that several groups need is materialised, and the groups are formed again."""
    for _ in range(_ROUNDS):
        _form_groups(draft)
        more = shared_between(draft.groups, draft.roots) - draft.materialised
        if not more:
            return
        _store_also(draft, more)
    _form_groups(draft)


def _form_groups(draft: Draft) -> None:
    draft.trials = Trials(StandIns(draft.roots, draft.stored))
    can_hold = draft.trials.can_hold if draft.target.uses("fuse") else lambda *_: False
    draft.groups = group_roots(draft.roots, can_hold, draft.target.splits_long_columns, draft.compared)


def order_for_memory(draft: Draft) -> None:
    """Decides the order: of the groups that can run, the one after which least memory is in use comes first."""
    for writer, reader in readers_before_writes(draft.groups, draft.updates):
        writer.needs.add(reader)
    draft.groups = in_memory_order(draft.groups, draft.roots, draft.function.results)


def assign_buffers(draft: Draft) -> None:
    """Gives each stored value its buffer; those that are views have their operand's."""
    for root, kind in draft.roots.items():
        if not is_storable(root.type):
            draft.objects.setdefault(root, ObjectSlot(len(draft.objects), root.op.name))
        elif root not in draft.stored and kind != "view":
            draft.stored[root] = draft.buffer_for(root, root.op.name, "graph")


def write_in_place(draft: Draft) -> None:
    """Computes a value in the buffer of a write or of a loop, if nothing uses the value after that."""
    roots = draft.roots
    if not {"write", "loop", "place"}.intersection(roots.values()):
        return
    owned = {draft.function.parameters[number]: result for number, result in draft.overwrites.items()}
    uses = Counter(operand for node in nodes_of(draft.function) for operand in node.operands)
    uses.update(draft.function.results)
    readers = _readers(draft)
    for root, kind in reversed(roots.items()):
        base = _changed_by(root, kind)
        if base is None:
            continue
        if base in owned and draft.stored[root] is draft.results[owned[base]]:
            if _is_last_use(draft, root, base, uses, readers) and draft.write_to_argument(base, owned[base]):
                continue
            draft.why_copied[draft.stored[root]] = "its old value is used again"
        elif roots.get(base) not in ("fused", "scan", "place", "write", "loop"):
            draft.why_copied[draft.stored[root]] = _owner_of(base, roots.get(base))
        elif _is_last_use(draft, root, base, uses, readers):
            draft.stored[base] = draft.stored[root]
        else:
            draft.why_copied[draft.stored[root]] = "its old value is used again"


def _is_last_use(
    draft: Draft, root: Node, base: Node, uses: Mapping[Node, int], readers: dict[Node, list[tuple[int, Node]]]
) -> bool:
    """Whether nothing reads a tensor after the step that replaces it, or while it does."""
    return uses[base] == 1 or (draft.roots[root] != "loop" and _reads_last(draft, root, base, readers))


def _owner_of(base: Node, kind: GroupKind | None) -> str:
    """Why a value cannot be overwritten, though nothing else may use it; nothing if it has no memory of its own."""
    if base.op is parameter_op:
        return "the caller keeps it"
    return {"host": "the host computed it", "view": "it is a view"}.get(kind or "", "")


def _readers(draft: Draft) -> dict[Node, list[tuple[int, Node]]]:
    """For each stored value, the roots whose steps read it, with the number of their group."""
    readers: dict[Node, list[tuple[int, Node]]] = {}
    stored = {*draft.roots, *draft.function.parameters}
    for number, group in enumerate(draft.groups):
        for root, below in group.below.items():
            for node in below:
                if node in stored:
                    readers.setdefault(node, []).append((number, root))
    return readers


def _reads_last(draft: Draft, root: Node, base: Node, readers: dict[Node, list[tuple[int, Node]]]) -> bool:
    """Whether an assignment is the last step that reads what it replaces, and only to replace it."""
    end = next(number for number, reader in readers[base] if reader is root)
    others = [(number, reader) for number, reader in readers[base] if reader is not root]
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


def _changed_by(root: Node, kind: GroupKind) -> Node | None:
    """The tensor that a root is a later version of."""
    if kind == "write":
        return root.operands[0] if count_chunks(root) == 1 else None
    if kind == "place":
        return root.operands[0] if root.op is assign else None
    if kind != "loop" or not isinstance(root.type, Tensor):
        return None
    (loop,) = root.operands
    return loop.operands[first_argument(loop) + root.attribute("index")]


def build_steps(draft: Draft) -> Iterator[Step]:
    """Builds the steps of each group, in order, and those that copy results from other buffers."""
    wanted = read_outside(draft.groups, draft.roots) | set(draft.function.results)
    for kind, groups in groupby(draft.groups, key=lambda group: group.kind):
        if kind == "place" and draft.target.fuses_siblings and draft.target.uses("fuse_siblings"):
            built = [_steps_of(draft, group, wanted) for group in groups]
            together = [fuse_siblings([s for steps in built for s in steps if isinstance(s, KernelStep)])]
        else:
            together = (_steps_of(draft, group, wanted) for group in groups)
        for step in together:
            draft.steps += step
            yield from step
    for node, slot in zip(draft.function.results, draft.results, strict=True):
        if isinstance(slot, Buffer) and draft.stored[node] is not slot:
            draft.steps.append(_copy_step(draft, draft.stored[node], slot))


def _steps_of(draft: Draft, group: Group, wanted: set[Node]) -> list[Step]:
    stored, new_buffer = draft.stored, draft.new_buffer
    match group.kind:
        case "fused":
            assert draft.trials is not None
            builder = draft.trials.finished(group, stored)
            return [*build_kernel_steps(builder, stored, new_buffer, wanted, draft.target.splits_long_columns)]
        case "scan":
            return [build_scan(root, stored, new_buffer) for root in group.roots]
        case "place":
            return [step for root in group.roots for step in _placements(draft, root)]
        case "write":
            built = [(build_writes(root, stored, new_buffer), count_chunks(root)) for root in group.roots]
            return [s for steps, chunks in built for s in _with_notes(draft, steps, "in place" if chunks == 1 else "")]
        case "loop":
            return [*_with_notes(draft, build_loop(group.roots, stored, new_buffer), "native loop, in place")]
        case "view":
            # A reshape of stored memory, or the same after other steps: the same bytes under another shape or name.
            for root in group.roots:
                if root not in stored:
                    stored[root] = view_of(stored[root.operands[0]], root)
            return []
        case "host":
            return [_host_step(draft, root) for root in group.roots]


def _placements(draft: Draft, root: Node) -> list[KernelStep]:
    steps = build_placements(root, draft.stored, draft.new_buffer)
    return _with_notes(draft, steps, "in place") if root.op is assign else steps


def _with_notes(draft: Draft, steps: Sequence[KernelStep], how: str) -> list[KernelStep]:
    """Copies, and the step that writes into them, with what people want to know of each."""
    reasons = [draft.why_copied.get(step.results[0]) for step in steps[:-1]]
    notes = [f"copied, because {why}" if why else "" for why in reasons]
    return [replace(step, note=note) for step, note in zip(steps, [*notes, how], strict=True)]


def _host_step(draft: Draft, root: Node) -> HostStep:
    if writes_in_place(root):
        operands = find_memory_operands(root)
    else:
        operands = list(dict.fromkeys(o if o in draft.stored else stored_operand(root, o) for o in root.operands))
    function = make_function(root.op.name, operands, [root])
    return HostStep(root.op, function, tuple(map(draft.slot, operands)), draft.slot(root), root.origin)


def _copy_step(draft: Draft, source: Buffer, result: Buffer) -> Step:
    node = input_node(Key("source"), Tensor(source.element, source.shape))
    return build_copy(node, result, {node: source}, draft.new_buffer)


def access_tapes_by_row(draft: Draft) -> None:
    """Rewrites loops over tensors to take and return rows of tapes, where the target runs plans of bodies."""
    if not draft.target.binds_loop_bodies:
        return
    for number, step in enumerate(draft.steps):
        if isinstance(step, HostStep) and step.op in (for_loop, while_loop):
            loop = step.function.results[0]
            if not writes_in_place(loop):
                draft.steps[number] = replace(step, loop=row_loop(loop, _used_results(draft, step)))


def _used_results(draft: Draft, loop: HostStep) -> set[int]:
    """Which of a loop's results anything reads."""
    every = set(range(loop.function.results[0].attribute("carried")))
    used: set[int] = every if loop.result in draft.results else set()
    for step in draft.steps:
        if isinstance(step, HostStep) and loop.result in step.operands:
            node = step.function.results[0]
            used |= {node.attribute("index")} if node.op is get else every
    return used


def store_loop_results(draft: Draft) -> None:
    """Lets loops over tensors write results to their buffers, instead of into a tuple that steps copy them from."""
    for loop in [step for step in draft.steps if isinstance(step, HostStep) and step.loop is not None]:
        readers = [step for step in draft.steps if isinstance(step, HostStep) and loop.result in step.operands]
        if loop.result in draft.results or any(step.op is not get for step in readers):
            continue
        copies = [step for step in readers if _copies_tensor(draft, step)]
        stored = [(step.function.results[0].attribute("index"), step.result) for step in copies]
        draft.steps = [step for step in draft.steps if step not in copies]
        draft.steps[draft.steps.index(loop)] = replace(loop, stored=tuple(stored))


def _copies_tensor(draft: Draft, step: HostStep) -> bool:
    """Whether a step copies a tensor to a buffer that no step before it uses for another value."""
    buffer = step.result
    if not isinstance(buffer, Buffer) or not isinstance(step.function.results[0].type, Tensor):
        return False
    before = draft.steps[: draft.steps.index(step)]
    used = {base for other in before for base in (*other.inputs, *other.results)}
    return buffer not in draft.arguments and buffer.base not in used


def tile_row_chains(draft: Draft) -> None:
    """Tiles chains of steps that work row by row, where the target gains from it."""
    rows_of_tile = draft.target.rows_of_tile
    if rows_of_tile is None:
        return
    tiled = [(chain, rows_of_tile(chain)) for chain in row_chains(draft.steps)]
    draft.chains = tuple([replace(chain, tile=tile) for chain, tile in tiled if tile is not None])
    if draft.chains:
        draft.steps = [step for item in _with_chains(draft) for step in _steps_in(item)]


def _with_chains(draft: Draft) -> list[Step | RowChain]:
    """The steps in order, each chain as one of them, where its first step is."""
    starts = {id(chain.steps[0]): chain for chain in draft.chains}
    inside = {id(step) for chain in draft.chains for step in chain.steps}
    items = [starts.get(id(step), step) for step in draft.steps]
    return [item for item in items if id(item) not in inside]


def _steps_in(item: Step | RowChain) -> tuple[Step, ...]:
    return item.steps if isinstance(item, RowChain) else (item,)


def allocate(draft: Draft) -> None:
    """Assigns arena offsets to buffers. A chain counts as one step: its reads and writes share no bytes, and its
    private buffers need none."""
    private = {buffer for chain in draft.chains for buffer in chain.private}
    inside = [buffer for buffer in draft.buffers if buffer.lifetime == "graph" and buffer not in private]
    steps: list[Touching] = [*_with_chains(draft)] if draft.chains else [*draft.steps]
    draft.arena_offsets, draft.arena_bytes = allocate_arena(steps, inside)


# --- verification -----------------------------------------------------------------------------------------------------


def verify_groups(draft: Draft) -> None:
    """Raises `VerifyError` unless each stored value is computed once, after what it needs."""
    done: set[Group] = set()
    computed: set[Node] = set()
    for group in draft.groups:
        done.add(group)
        if not done.issuperset(group.needs):
            raise VerifyError(
                f"a group of `{draft.function.name}` is scheduled before a group that it depends on", found=str(draft)
            )
        computed.update(group.roots)
    if computed != draft.roots.keys():
        raise VerifyError(f"not every stored value of `{draft.function.name}` is in a group", found=str(draft))


def verify_steps(draft: Draft) -> None:
    """Raises `VerifyError` where a step reads what no step before it has written, or leaves a buffer."""
    plan = draft.plan()
    verify_order(plan)
    verify_views(plan)


def verify_row_loops(draft: Draft) -> None:
    """Raises `VerifyError` where a body does not take and return what its loop passes to it."""
    loops = [(s, s.loop) for s in draft.steps if isinstance(s, HostStep) and s.loop is not None]
    for step, loop in loops:
        verify_function(loop.body)
        taken = 1 + len(loop.state) + len(loop.fixed) + sum(len(row.reads) for row in loop.rows)
        written = sum(len(leaf_types(row.element)) for row in loop.rows if row.writes)
        returned = len(loop.state) + written + (step.op is while_loop)
        counts = len(loop.body.parameters), len(loop.body.results)
        if counts != (taken, returned):
            raise VerifyError(
                f"the body of a `{step.op.name}` of `{draft.function.name}` does not fit its loop",
                expected=f"{taken} parameters and {returned} results",
                found=f"{counts[0]} and {counts[1]}",
            )


def verify_chains(draft: Draft) -> None:
    """Raises `VerifyError` where steps that were put off are missed."""
    if draft.chains:
        verify_order(draft.plan())


def verify_memory(draft: Draft) -> None:
    """Raises `VerifyError` where two buffers share bytes while both are in use."""
    verify_sharing(draft.plan())
