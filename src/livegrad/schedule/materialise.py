"""Chooses materialisation points: the values that are stored (roots), and the kind of step that computes each.

A root is stored in memory, or passed between host steps as an object. Every other node is part of the expressions of
the roots that use it. The plan pass `materialise` calls `find_roots`; `fuse` groups the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import prod

from livegrad.ir.leaves import parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor
from livegrad.ir.walk import nodes_of, ops_in
from livegrad.ops.aggregate import get
from livegrad.ops.assignment import UPDATES, assign
from livegrad.ops.convolution import convolve
from livegrad.ops.indexing import scatter_add
from livegrad.ops.linalg import matmul
from livegrad.ops.maps import map_
from livegrad.ops.movement import broadcast, concatenate, iota, pad, permute, sizes, slice_
from livegrad.ops.sorting import searchsorted
from livegrad.passes.in_place_loops import find_memory_operands, writes_in_place
from livegrad.passes.regions import LOOPS
from livegrad.schedule.indexed_writes import assigned_box, is_uniform
from livegrad.schedule.step_kinds import (
    CONTROL,
    MOVES,
    READS,
    GroupKind,
    is_storable,
    map_result,
    materialised_kind,
    root_kind,
    uses_complex,
)
from livegrad.schedule.target import Target

Roots = dict[Node, GroupKind]  # in topological order
ForcedKinds = dict[Node, GroupKind | None]  # likewise; None for nodes that can be part of another's expression
MOST_DEPTH = 2000
_WRITES_BY_INDEX = (scatter_add, assign, searchsorted)  # only CPU kernels write or search by computed index
_CHEAP_COST = 4.0  # additions per element that are recomputed rather than stored
_MAX_SEARCHED = 64  # nodes of an expression that are searched for a read
_LONG_WINDOW = 32


def find_roots(function: Function, forced: ForcedKinds, also: Iterable[Node] = ()) -> Roots:
    """The nodes to store: results, nodes with a forced kind, `also`, and the operands that these need in memory.

    Users are visited before their operands: a host step stores its operands, and if memory cannot hold one of them (a
    tape, a tuple), the step that computes it is a host step too. A kernel that uses such a value recomputes it.
    """
    required: set[Node] = set(function.results) | set(also)
    kinds: Roots = {}
    for node, kind in reversed(forced.items()):
        if kind is None and node in required:
            kind = materialised_kind(node)
        stored = _stored_operands(node, kind)
        if stored:
            required.update(stored)
        if kind is not None:
            kinds[node] = kind
    return dict(reversed(kinds.items()))


def find_chain_cuts(function: Function) -> set[Node]:
    """The nodes at which very deep expressions are cut, so that a chain of any length is compiled in equal pieces."""
    depths: dict[Node, int] = {}
    cuts: set[Node] = set()
    if len(nodes_of(function)) <= MOST_DEPTH:
        return cuts
    for node in nodes_of(function):
        depth = 1 + max((depths[operand] for operand in node.operands), default=0)
        if depth > MOST_DEPTH and is_storable(node.type) and node.op is not parameter_op:
            cuts.add(node)
            depth = 0
        depths[node] = depth
    return cuts


def find_forced_kinds(function: Function, target: Target) -> ForcedKinds:
    """How each node except parameters must be computed. Users of objects that memory cannot hold run on the host."""
    kinds: ForcedKinds = {}
    objects: set[Node] = set()
    writes_by_index = target.kernels_write_by_index
    in_place = _find_loops_in_place(function) if writes_by_index else ()
    selected = _find_cheap_concatenations(function) if target.uses("select_parts") and target.selects_parts else ()
    for node in nodes_of(function):
        if node in in_place:
            kinds[node] = None
            continue
        if node.op is not parameter_op:
            kind = root_kind(node) if objects.isdisjoint(node.operands) else "host"
            if node.op is get and node.operands[0] in in_place:
                kind = "loop"
            if node in selected:
                kind = None
            if not writes_by_index and node.op in _WRITES_BY_INDEX and kind in (None, "write"):
                kind = _kind_without_index(node)
            kinds[node] = kind
            if kind != "host":
                continue
        if not is_storable(node.type):
            objects.add(node)
    return kinds | dict.fromkeys(_find_nested_concatenations(function, kinds))


def _kind_without_index(node: Node) -> GroupKind | None:
    """How a target whose kernels do not write by computed index computes a node of `_WRITES_BY_INDEX`."""
    if assigned_box(node) is None:
        return "host"
    return None if is_uniform(node.operands[1]) else "place"


def _find_loops_in_place(function: Function) -> set[Node]:
    """The loops that a single kernel runs, writing tensors in place. Each result is stored separately."""
    loops = {node for node in nodes_of(function) if node.op in LOOPS and writes_in_place(node)}
    if loops:
        loops.difference_update(function.results)
        loops.difference_update([o for node in nodes_of(function) if node.op is not get for o in node.operands])
    return loops


def _find_cheap_concatenations(function: Function) -> set[Node]:
    """Concatenations whose elements cost little: kernels that use them select among the parts at each element.

    The costs of nested ones multiply, so each is stored as soon as all its parts together cost more than a stored value
    is worth.
    """
    if concatenate not in ops_in(function):
        return set()
    selected: set[Node] = set()
    costs: dict[Node, float] = {}
    for node in nodes_of(function):
        cost = sum(costs[operand] for operand in node.operands) if _is_transparent(node) else 0.0
        if node.op is concatenate:
            cost += len(node.operands)
            if cost <= _CHEAP_COST and not uses_complex(node):
                selected.add(node)
            else:
                cost = 0.0
        costs[node] = max(cost + (node.op.cost if node.op.elementwise else 0.0), 0.25)
    return selected


def _is_transparent(node: Node) -> bool:
    """Whether an element of a node is computed from elements of its operands, each time that it is used."""
    return node.op in (concatenate, pad) or node.op.elementwise or node.op.name in MOVES


def _find_nested_concatenations(function: Function, kinds: ForcedKinds) -> list[Node]:
    """Concatenations with a concatenation as their only user. Their parts are written directly to the outer result."""
    concatenations = [node for node, kind in kinds.items() if kind == "place" and node.op is concatenate]
    if len(concatenations) < 2:
        return []
    uses = Counter([operand for node in nodes_of(function) for operand in node.operands])
    uses.update(function.results)
    concatenated = Counter([operand for node in concatenations for operand in node.operands])
    return [node for node in concatenations if node in concatenated and concatenated[node] == uses[node] == 1]


def _stored_operands(node: Node, kind: GroupKind | None) -> Sequence[Node]:
    """The operands that must be stored before a node can be computed."""
    if kind == "loop":
        return find_memory_operands(node.operands[0])
    if kind in (None, "host") and writes_in_place(node):
        return find_memory_operands(node)
    if kind in ("host", "view"):
        return [stored_operand(node, operand) for operand in node.operands if not is_generated(node, operand)]
    if node.op in READS or (node.op is pad and kind is None and not _is_cheap(node.operands[0])):
        return node.operands[:1]
    if node.op is slice_ and node.operands[0].op is pad and node.attribute("step")[-1] > 1:
        # With the border in memory, strided slices read whole rows together; otherwise each element is a lookup.
        return node.operands
    if node.op is assign and kind in (None, "fused", "place"):
        return _stored_for_box_write(node, kind)
    if kind == "write":
        # The results of a map are computed once, rather than for each operand.
        return [operand for operand in node.operands if map_result(operand) is not None]
    if node.op is map_:
        shared = zip(node.operands, node.attribute("lifted"), strict=True)
        return [operand for operand, lifted in shared if not lifted and isinstance(operand.type, Tensor)]
    if node.op in CONTROL:
        return [operand for operand in node.operands if isinstance(operand.type, Tensor)]
    return ()


def _stored_for_box_write(node: Node, kind: GroupKind | None) -> Sequence[Node]:
    """The stored operands of an assignment to a box.

    These are a base that is itself an assignment to a box, so that both write to one buffer, and updates that are
    computed from the elements they replace.
    """
    box = assigned_box(node)
    if box is None:
        return ()
    base, updates = node.operands[:2]
    if kind != "place":
        return () if is_uniform(updates) or _is_cheap(updates) else (updates,)
    is_small = 2 * prod(box.size) <= prod(sizes(node))
    written_bases = [base] if assigned_box(base) is not None else []
    return [*written_bases, updates] if is_small and _reads(updates, base) else written_bases


def _reads(node: Node, other: Node) -> bool:
    """Whether an expression may use a tensor. A search that exceeds its limit counts as a use."""
    if other.op is parameter_op:
        return False
    pending, visited = [node], {node}
    while pending and len(visited) < _MAX_SEARCHED:
        for operand in pending.pop().operands:
            if operand is other:
                return True
            if operand not in visited:
                visited.add(operand)
                pending.append(operand)
    return bool(pending)


def _is_cheap(node: Node) -> bool:
    """Whether the source of a pad can be recomputed at each use: cheap, and unable to fail out of bounds."""
    pending, cost = [node], 0.0
    while pending:
        inner = pending.pop()
        if inner.op is parameter_op or not isinstance(inner.type, Tensor) or root_kind(inner) is not None:
            continue
        moves = inner.op.name in MOVES or inner.op is pad
        cost += max(inner.op.cost, 0.25)
        if inner.op.checked or not (inner.op.elementwise or moves) or cost > _CHEAP_COST:
            return False
        pending += inner.operands
    return True


def stored_operand(node: Node, operand: Node) -> Node:
    """The node to store for an operand of a host step. Libraries read transposed matrices, so these are not copied, and
    neither are the indices of writes that rows of updates share.
    """
    if operand.op is broadcast and _is_index(node, operand) and repeats_whole(operand):
        return operand.operands[0]
    if operand.op is not permute:
        return operand
    reads_transposed = node.op is matmul or (node.op is convolve and _reads_transposed(node, operand))
    return operand.operands[0] if reads_transposed else operand


def is_generated(node: Node, operand: Node) -> bool:
    """Whether a host step generates an operand: indices of writes that count along an axis."""
    return operand.op is iota and _is_index(node, operand)


def _is_index(node: Node, operand: Node) -> bool:
    return node.op in UPDATES and operand in node.operands[2:]


def repeats_whole(node: Node) -> bool:
    """Whether a broadcast repeats a whole tensor along other axes, so that divisions give the index into the tensor."""
    (source,), axes = node.operands, node.attribute("axes")
    if not isinstance(source.type, Tensor) or not axes or axes != tuple(range(axes[0], axes[0] + len(axes))):
        return False
    return sizes(source) == tuple([sizes(node)[axis] for axis in axes])


def _reads_transposed(node: Node, operand: Node) -> bool:
    """Whether a convolution reads an operand with swapped first dimensions without a copy.

    A transposed kernel is contiguous only along a window, which must then be long.
    """
    rank = len(sizes(operand))
    if operand.attribute("axes") != (1, 0, *range(2, rank)):
        return False
    return operand is node.operands[0] or prod(sizes(operand)[2:]) >= _LONG_WINDOW
