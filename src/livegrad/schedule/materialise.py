"""Materialisation points: which values are stored, and how each has to be computed.

A root is a value that is materialised: it is stored in memory, or passed between host steps as an object. Every other
node is part of the expressions of the roots that use it. The pass `materialise` calls `find_roots`; `fuse` groups the
result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod
from typing import Literal

from livegrad.ir.leaves import parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Matrix, Scalar, Tensor, Type, Vector, bf16, holds_tensor, inner_types
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.aggregate import get, make
from livegrad.ops.assignment import UPDATES, assign
from livegrad.ops.control import call, component_shape, cond, for_loop, map_, switch, while_loop
from livegrad.ops.conversion import complex_parts, from_parts
from livegrad.ops.convolution import convolve
from livegrad.ops.host import host_call
from livegrad.ops.index_motion import Box
from livegrad.ops.indexing import lookup, lookup_or, scatter_add
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import concatenate, pad, permute, reshape, sizes, slice_, squeezed_axes
from livegrad.ops.order import after
from livegrad.ops.reduction import arg_reduce, cumulative, recurrence, reduce
from livegrad.ops.sorting import searchsorted
from livegrad.passes.in_place_loops import find_memory_operands, writes_in_place
from livegrad.passes.regions import LOOPS
from livegrad.schedule.indexed_writes import assigned_box, choice_of, is_uniform

GroupKind = Literal["fused", "scan", "place", "write", "loop", "host", "view"]
Roots = dict[Node, GroupKind]  # in topological order
ForcedKinds = dict[Node, GroupKind | None]  # the same; None for what can be part of another's expression
CONTROL = (call, cond, switch, for_loop, while_loop)
_BY_INDEX = (lookup_or, scatter_add, assign, searchsorted, pad)  # what kernels of the CPU alone do by computed index
_READS = (lookup, lookup_or, searchsorted)  # of a tensor that lies in memory
_LITTLE = 4.0  # additions
_LARGE_PART = 4  # a part this many times smaller than the whole is written by itself
_FEW = 256  # elements: a kernel over all of them costs no more than one over some
_SEARCHED = 64  # nodes of an expression that is searched for what it reads
_MOVES = ("broadcast", "permute", "slice", "flip", "reshape", "iota", "unwritten")


MOST_DEPTH = 2000
_LONG_WINDOW = 32


def find_roots(function: Function, forced: ForcedKinds, also: Iterable[Node] = ()) -> Roots:
    """The nodes that are stored, those whose kind is forced and `also` among them.

    Users are visited before their operands: a host step stores its operands, and if memory cannot hold one of them (a
    tape, a tuple), the step that computes it is a host step too. A kernel that uses such a value recomputes it.
    """
    wanted: set[Node] = set(function.results) | set(also)
    kinds: Roots = {}
    for node, kind in reversed(forced.items()):
        if kind is None and node in wanted:
            kind = _kind_of_materialised(node)
        stored = _stored_operands(node, kind)
        if stored:
            wanted.update(stored)
        if kind is not None:
            kinds[node] = kind
    return dict(reversed(kinds.items()))


def _kind_of_materialised(node: Node) -> GroupKind:
    if not is_storable(node.type):
        return "host"
    if node.op in (pad, concatenate) or _is_filled_apart(node):
        return "place"
    return "view" if shows_memory(node) else "fused"


def _is_filled_apart(node: Node) -> bool:
    """Whether an assignment to a box that is stored is written over what was there, instead of a choice at each
    element: one kernel for a few elements, or where one value goes to every other element of what is copied anyway."""
    box = assigned_box(node)
    if box is None or not _may_choose(node, box):
        return box is not None
    base = node.operands[0]
    return prod(sizes(node)) > _FEW and (box.is_dense or (base.op is not parameter_op and root_kind(base) is not None))


def _may_choose(node: Node, box: Box) -> bool:
    """Whether an expression can choose between old and new values at each element."""
    return box.is_dense or is_uniform(node.operands[1])


def shows_memory(node: Node) -> bool:
    """Whether a node only adds or removes dimensions of one, of what lies in memory in any case: a vector that is
    multiplied with a matrix, and the product, are not copied for that."""
    if node.op is not reshape or not isinstance(node.type, Tensor):
        return False
    (source,) = node.operands
    if source.op is parameter_op:
        return isinstance(source.type, Tensor)
    return is_storable(source.type) and (root_kind(source) not in (None, "write") or shows_memory(source))


def long_chain_cuts(function: Function) -> set[Node]:
    """Where very deep expressions are cut: code for a chain of any length is compiled in pieces (that are alike)."""
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


def forced_kinds(function: Function, kernels_write_by_index: bool) -> ForcedKinds:
    """How each node but parameters must be computed, users of objects that only the host can make among them."""
    kinds: ForcedKinds = {}
    objects: set[Node] = set()
    in_place = _loops_in_place(function) if kernels_write_by_index else ()
    for node in nodes_of(function):
        if node in in_place:
            kinds[node] = None
            continue
        if node.op is not parameter_op:
            kind = root_kind(node) if objects.isdisjoint(node.operands) else "host"
            if node.op is get and node.operands[0] in in_place:
                kind = "loop"
            if not kernels_write_by_index and node.op in _BY_INDEX and kind in (None, "write"):
                kind = _kind_without_index(node)
            kinds[node] = kind
            if kind != "host":
                continue
        if not is_storable(node.type):
            objects.add(node)
    return kinds | dict.fromkeys(_parts_of_wholes(function, kinds))


def _kind_without_index(node: Node) -> GroupKind | None:
    """How a node is computed that kernels of the CPU alone compute by index."""
    if node.op is pad:
        return "place"
    if assigned_box(node) is None:
        return "host"
    return None if is_uniform(node.operands[1]) else "place"


def _loops_in_place(function: Function) -> set[Node]:
    """The loops that one kernel runs, writing tensors in place; its results are stored one by one."""
    loops = {node for node in nodes_of(function) if node.op in LOOPS and writes_in_place(node)}
    if loops:
        loops.difference_update(function.results)
        loops.difference_update([o for node in nodes_of(function) if node.op is not get for o in node.operands])
    return loops


def _parts_of_wholes(function: Function, kinds: ForcedKinds) -> list[Node]:
    """Concatenations that only another concatenation uses: what they hold is written straight to the whole."""
    joined = [node for node, kind in kinds.items() if kind == "place" and node.op is concatenate]
    if len(joined) < 2:
        return []
    uses = Counter([operand for node in nodes_of(function) for operand in node.operands])
    uses.update(function.results)
    wholes = Counter([operand for node in joined for operand in node.operands])
    return [node for node in joined if node in wholes and wholes[node] == uses[node] == 1]


def _stored_operands(node: Node, kind: GroupKind | None) -> Sequence[Node]:
    """The operands that must lie in memory for a node to be computed."""
    if kind == "loop":
        return find_memory_operands(node.operands[0])
    if kind in (None, "host") and writes_in_place(node):
        return find_memory_operands(node)
    if kind in ("host", "view"):
        return [stored_operand(node, operand) for operand in node.operands]
    if node.op in _READS or (node.op is pad and kind is None and not _is_cheap(node.operands[0])):
        return node.operands[:1]
    if node.op is slice_ and node.operands[0].op is pad and node.attribute("step")[-1] > 1:
        # With a border in memory, several slices together are whole rows; else each number is read by itself.
        return node.operands
    if node.op is assign and kind in (None, "fused", "place"):
        return _stored_for_box(node, kind)
    if kind == "write":
        # The results of a map are computed together, not again for each operand.
        return [operand for operand in node.operands if map_result(operand) is not None]
    if node.op is map_:
        shared = zip(node.operands, node.attribute("lifted"), strict=True)
        return [operand for operand, lifted in shared if not lifted and isinstance(operand.type, Tensor)]
    if node.op in CONTROL:
        return [operand for operand in node.operands if isinstance(operand.type, Tensor)]
    return ()


def _stored_for_box(node: Node, kind: GroupKind | None) -> Sequence[Node]:
    """What lies in memory for an assignment to a box: what it fills in turn, so that both write to one buffer, and
    values that are computed from what they replace."""
    box = assigned_box(node)
    if box is None:
        return ()
    base, updates = node.operands[:2]
    if kind != "place":
        return () if is_uniform(updates) or _is_cheap(updates) else (updates,)
    little = 2 * prod(box.size) <= prod(sizes(node))
    in_turn = [base] if assigned_box(base) is not None else []
    return [*in_turn, updates] if little and _reads(updates, base) else in_turn


def _reads(node: Node, other: Node) -> bool:
    """Whether an expression uses a tensor, as far as a short search finds."""
    if other.op is parameter_op:
        return False
    pending, visited = [node], {node}
    while pending and len(visited) < _SEARCHED:
        for operand in pending.pop().operands:
            if operand is other:
                return True
            if operand not in visited:
                visited.add(operand)
                pending.append(operand)
    return bool(pending)


def _is_cheap(node: Node) -> bool:
    """Whether what a pad surrounds is as well computed where it is used: it is little, and cannot fail at a border."""
    pending, cost = [node], 0.0
    while pending:
        inner = pending.pop()
        if inner.op is parameter_op or not isinstance(inner.type, Tensor) or root_kind(inner) is not None:
            continue
        moves = inner.op.name in _MOVES or inner.op is pad
        cost += max(inner.op.cost, 0.25)
        if inner.op.checked or not (inner.op.elementwise or moves) or cost > _LITTLE:
            return False
        pending += inner.operands
    return True


def stored_operand(node: Node, operand: Node) -> Node:
    """What must lie in memory for an operand of a host step: the library takes the rows of a matrix for its columns."""
    if operand.op is not permute:
        return operand
    reads_transposed = node.op is matmul or (node.op is convolve and _reads_transposed(node, operand))
    return operand.operands[0] if reads_transposed else operand


def _reads_transposed(node: Node, operand: Node) -> bool:
    """Whether a convolution reads an operand in place that has its first two dimensions exchanged. Kernels that are
    turned lie in stretches as long as a window, which must be long."""
    rank = len(sizes(operand))
    if operand.attribute("axes") != (1, 0, *range(2, rank)):
        return False
    return operand is node.operands[0] or prod(sizes(operand)[2:]) >= _LONG_WINDOW


# --- how a node must be computed -------------------------------------------------------------------------------------


def root_kind(node: Node) -> GroupKind | None:
    """How a node must be computed if it cannot be part of another's expression; None if it can."""
    if node.op is after:
        # The same memory, from a later step on.
        return "view" if is_storable(node.type) else "host"
    if node.op in (complex_parts, from_parts):
        return "view"
    if node.op is host_call or _uses_complex(node):
        return "host"
    if node.op in CONTROL:
        return "host" if holds_tensor(node.type) or any(map(does_tensor_work, node.functions)) else None
    mapped = map_result(node)
    if mapped is not None:
        return _mapped_kind(*mapped)
    if node.op is map_:
        return None if _is_native_map(node) else "host"
    if not isinstance(node.type, Tensor) and holds_tensor(node.type) and node.op is not make:
        return "host"
    return _tensor_kind(node)


def _tensor_kind(node: Node) -> GroupKind | None:
    if node.op in (reduce, arg_reduce):
        return "fused"
    if node.op in (cumulative, recurrence):
        return "scan"
    if node.op is concatenate or (node.op is pad and any(node.attribute("interior"))):
        return "place"
    if node.op is reshape and squeezed_axes(sizes(node.operands[0]), sizes(node)) is None:
        return "view"
    if node.op in UPDATES:
        return _write_kind(node)
    if not isinstance(node.type, Tensor) or node.op.elementwise or node.op in (*_READS, pad, parameter_op):
        return None
    return None if node.op.name in _MOVES else "host"


def _write_kind(node: Node) -> GroupKind | None:
    if node.op is scatter_add and isinstance(node.type, Tensor) and node.type.element is bf16:
        return "host"
    box = assigned_box(node)
    if box is None:
        return "write" if choice_of(node) is None or _is_small_write_in_memory(node) else None
    if not _may_choose(node, box):
        return "place"
    if prod(sizes(node)) <= _FEW:
        return None
    # A chain of writes, each in place, costs less than a choice between them at each element; so does a small write of
    # values that are read only where they are meant.
    base, updates = node.operands[:2]
    much = is_uniform(updates) or 2 * prod(box.size) > prod(sizes(node))
    return None if much and assigned_box(base) is None else "place"


def _is_small_write_in_memory(node: Node) -> bool:
    """Whether a write changes few elements of what lies in memory: a choice would read and write all of them."""
    base, updates = node.operands[:2]
    total = prod(sizes(node))
    if total <= _FEW or _LARGE_PART * prod(sizes(updates)) > total:
        return False
    is_loop = base.op is get and base.operands[0].op in LOOPS
    return is_loop or (base.op in UPDATES and _write_kind(base) == "write")


def _mapped_kind(node: Node, number: int) -> GroupKind | None:
    if not _is_native_map(node):
        return "host"
    result = node.attribute("function").result_types[number]
    return "fused" if node.attribute("summed")[number] or component_shape(result) else None


def map_result(node: Node) -> tuple[Node, int] | None:
    """The map behind a node and which of its results that node is; None for a map's results taken together."""
    if node.op is map_:
        return (node, 0) if len(node.attribute("function").results) == 1 else None
    if node.op.name == "get" and node.operands[0].op is map_:
        source = node.operands[0]
        return (source, node.attribute("index")) if len(source.attribute("function").results) > 1 else None
    return None


def _is_native_map(node: Node) -> bool:
    function: Function = node.attribute("function")
    scalars = all(component_shape(type) is not None for type in function.result_types)
    return scalars and not does_tensor_work(function) and not has_complex(function)


# --- types -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def is_storable(type: Type) -> bool:
    """Whether an array holds a value of this type; any other goes from host step to host step as an object."""
    return isinstance(type, Scalar | Vector | Matrix | Tensor)


@lru_cache(maxsize=4096)
def _holds_complex(type: Type) -> bool:
    return any(isinstance(inner, Scalar) and inner.kind == "complex" for inner in inner_types(type))


def _uses_complex(node: Node) -> bool:
    """Whether complex numbers are among what a node takes, gives or works with: NumPy computes those that are whole."""
    for value in (node, *node.operands):
        if _holds_complex(value.type):
            return node.op is not parameter_op
    return any(map(has_complex, node.functions))


@lru_cache(maxsize=4096)
def has_complex(function: Function) -> bool:
    return any(_holds_complex(node.type) for inner in reachable_functions([function]) for node in nodes_of(inner))


@lru_cache(maxsize=4096)
def does_tensor_work(function: Function) -> bool:
    """Whether a function must run on the host: it calls it, or uses tensors other than by reading them by index."""
    return any(
        node.op in (map_, host_call) or (isinstance(node.type, Tensor) and node.op is not parameter_op)
        for inner in reachable_functions([function])
        for node in nodes_of(inner)
    )
