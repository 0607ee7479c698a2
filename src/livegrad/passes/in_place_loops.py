"""In-place analysis: finds loops over scalars that one kernel can run, updating the elements of tensors in place.

Used by `materialise` and `plan_passes`. In-place updates are equivalent if each version of a tensor is overwritten at
most once, and all its readers can run before that. Other values without memory, such as tapes, are computed inside the
kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from livegrad.ir.leaves import constant_op, parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Matrix, Scalar, Tensor, Tuple, Type, Vector, components, holds_tensor, inner_types
from livegrad.ir.walk import nodes_of, reachable_functions, toposort
from livegrad.ops.aggregate import get
from livegrad.ops.assignment import UPDATES
from livegrad.ops.control import while_loop
from livegrad.ops.host import host_call
from livegrad.ops.indexing import lookup, lookup_or
from livegrad.ops.maps import map_
from livegrad.ops.movement import broadcast
from livegrad.ops.tape import unwritten
from livegrad.passes.regions import BRANCHES, LOOPS, first_argument

_READS = (lookup, lookup_or)
_ELEMENTS = ("bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64")


class _NotInPlace(Exception):
    """A function uses a tensor other than to read or write elements, or reads a version after it is overwritten."""


# --- loops and their operands ----------------------------------------------------------------------------------------


def writes_in_place(node: Node) -> bool:
    """Whether a node is a loop that updates elements of tensors, and that one kernel can run in place."""
    if node.op not in LOOPS or not any(isinstance(type, Tensor) for type in components(node.type)):
        return False
    if not all(map(_can_be_carried, components(node.type))):
        return False
    return all(map(_is_native, _find_fused_operands(node))) and _updates_carried_tensors(node)


def find_memory_operands(node: Node) -> list[Node]:
    """The values that such a loop reads from memory.

    A carried tensor that starts as a constant, or unwritten, needs only the memory of the loop's state.
    """
    first = first_argument(node)
    captured = {*node.operands[:first], *node.operands[first + node.attribute("carried") :]}
    return [
        value
        for value in _walk_to_memory(node)
        if _is_storable(value) and (value in captured or not _is_constant_or_unwritten(value))
    ]


def _is_constant_or_unwritten(value: Node) -> bool:
    return value.op is unwritten or (value.op is broadcast and value.operands[0].op is constant_op)


def _find_fused_operands(node: Node) -> list[Node]:
    """The values that the kernel of a loop computes itself, from values in memory."""
    return [value for value in _walk_to_memory(node) if not _is_storable(value)]


def _walk_to_memory(node: Node) -> list[Node]:
    return toposort(node.operands, stop=_is_storable)


def _is_storable(value: Node) -> bool:
    return value.op is not constant_op and isinstance(value.type, Scalar | Vector | Matrix | Tensor)


def _is_native(value: Node) -> bool:
    """Whether a kernel can compute a value without memory."""
    if value.op is parameter_op or value.op in (map_, host_call) or holds_tensor(value.type) or _is_complex(value):
        return False
    return all(map(_only_reads, value.functions))


def _is_complex(value: Node) -> bool:
    return any(isinstance(inner, Scalar) and inner.kind == "complex" for inner in inner_types(value.type))


def _can_be_carried(type: Type) -> bool:
    if isinstance(type, Tensor):
        return type.element.name in _ELEMENTS and all(isinstance(size, int) for size in type.shape)
    if isinstance(type, Scalar):
        return type.kind != "complex" and type.name != "bf16"
    return isinstance(type, Vector | Matrix) and all(map(_can_be_carried, components(type)))


# --- versions of tensors inside a function ---------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _only_reads(function: Function) -> bool:
    """Whether a function only reads elements of tensors, and computes no tensors."""
    return not any(
        node.op in (map_, host_call)
        or (isinstance(node.type, Tensor) and node.op is not parameter_op)
        or _is_complex(node)
        for inner in reachable_functions([function])
        for node in nodes_of(inner)
    )


def _updates_carried_tensors(loop: Node) -> bool:
    """Whether each carried tensor is an updated version of itself after an iteration."""
    carried = loop.attribute("carried")
    if loop.op is while_loop and not _only_reads(loop.attribute("condition")):
        return False
    body: Function = loop.attribute("body")
    try:
        sources = find_returned_versions(body)
    except _NotInPlace:
        return False
    carries = [isinstance(type, Tensor) for type in body.result_types[:carried]]
    return sources == tuple(1 + position if tensor else None for position, tensor in enumerate(carries))


@lru_cache(maxsize=1024)
def find_returned_versions(function: Function) -> tuple[int | None, ...]:
    """For each result, the index of the tensor parameter that it is a version of; None for scalars.

    Raises an error if the function cannot write its tensors in place.
    """
    source = {
        parameter: position
        for position, parameter in enumerate(function.parameters)
        if isinstance(parameter.type, Tensor)
    }
    members: dict[Node, tuple[int | None, ...]] = {}
    for node in nodes_of(function):
        if node.op is parameter_op:
            continue
        if node.op is get and node.operands[0] in members:
            position = members[node.operands[0]][node.attribute("index")]
            if position is not None:
                source[node] = position
        elif node.op in UPDATES and not isinstance(node.operands[1].type, Tensor):
            source[node] = source[node.operands[0]]
        elif node.op in (*LOOPS, *BRANCHES) and holds_tensor(node.type):
            operands = [None if position is None else node.operands[position] for position in operands_of_results(node)]
            positions = tuple([None if operand is None else source[operand] for operand in operands])
            if isinstance(node.type, Tensor):
                source[node] = source[operands[0]]  # type: ignore[index]
            members[node] = positions
        elif not _reads_elements(node, source):
            raise _NotInPlace
    _require_valid_order(function, source)
    return tuple([source.get(result) for result in function.results])


def _reads_elements(node: Node, source: dict[Node, int]) -> bool:
    """Whether a node computes no tensor, and only reads elements of tensors, itself or in its functions."""
    if holds_tensor(node.type) or node.op in (map_, host_call) or _is_complex(node):
        return False
    if not all(map(_only_reads, node.functions)):
        return False
    reads = node.op in _READS or bool(node.functions)
    return reads or not any(operand in source for operand in node.operands)


def written_operands(node: Node) -> tuple[int, ...]:
    """The indices of the tensor operands that a node overwrites."""
    if node.op in UPDATES:
        return (0,)
    if node.op not in (*LOOPS, *BRANCHES) or not holds_tensor(node.type):
        return ()
    return tuple([position for position in dict.fromkeys(operands_of_results(node)) if position is not None])


def operands_of_results(node: Node) -> tuple[int | None, ...]:
    """For each result of a loop or branch, the index of the operand that it is a version of; None for scalars."""
    if node.op in LOOPS:
        if not _updates_carried_tensors(node):
            raise _NotInPlace
        first, carried = first_argument(node), node.attribute("carried")
        types = [operand.type for operand in node.operands[first : first + carried]]
        return tuple([first + position if isinstance(type, Tensor) else None for position, type in enumerate(types)])
    sources_by_branch = [find_returned_versions(branch) for branch in node.functions]
    if any(sources != sources_by_branch[0] for sources in sources_by_branch):
        raise _NotInPlace
    return tuple([None if position is None else 1 + position for position in sources_by_branch[0]])


# --- order -----------------------------------------------------------------------------------------------------------


def _require_valid_order(function: Function, source: dict[Node, int]) -> None:
    """Raises `_NotInPlace` unless each version is overwritten at most once, and after all its readers."""
    writers: dict[Node, Node] = {}
    for node in nodes_of(function):
        for position in written_operands(node):
            if node.operands[position] in writers or node.operands.count(node.operands[position]) > 1:
                raise _NotInPlace
            writers[node.operands[position]] = node
    results = [result for result in function.results if result in source]
    if len(set(results)) != len(results) or any(result in writers for result in results):
        raise _NotInPlace
    # The last version must be returned: the caller expects tensors that are not returned to be unchanged.
    if any(node.op is not parameter_op and node not in writers and node not in results for node in source):
        raise _NotInPlace
    read_results = {(node.operands[0], node.attribute("index")) for node in source if node.op is get}
    for node in set(writers.values()):
        if isinstance(node.type, Tuple) and any(
            isinstance(type, Tensor) and (node, index) not in read_results
            for index, type in enumerate(components(node.type))
        ):
            raise _NotInPlace
    if order_before_writes(function.results, writers)[1]:
        raise _NotInPlace


def order_before_writes(results: Sequence[Node], writers: Mapping[Node, Node]) -> tuple[list[Node], set[Node]]:
    """A topological order with each reader of a value before the node that overwrites it.

    Also returns the values that cannot be overwritten, because a reader depends on the writer: these writers must copy.
    """
    copied: set[Node] = set()
    while True:
        readers: dict[Node, list[_Edge]] = {}
        for node in toposort(results):
            for operand in node.operands:
                if operand not in copied and writers.get(operand, node) is not node:
                    readers.setdefault(writers[operand], []).append((node, operand))
        order, conflict = _sort_readers_first(results, readers)
        if conflict is None:
            return order, copied
        copied.add(conflict)


_Edge = tuple[Node, Node | None]  # a predecessor, and the value that it must read before a write; None for operands


def _sort_readers_first(
    results: Sequence[Node], readers: Mapping[Node, Sequence[_Edge]]
) -> tuple[list[Node], Node | None]:
    """A topological order with readers before writers, and None; or a partial order and a value on a cycle."""
    order: list[Node] = []
    path: dict[Node, Node | None] = {}  # the nodes of the current depth-first path, and what each reads
    visited: set[Node] = set()
    pending: list[tuple[Node, Node | None, bool]] = [(node, None, False) for node in reversed(results)]
    while pending:
        node, value_read, ready = pending.pop()
        if ready:
            del path[node]
            visited.add(node)
            order.append(node)
        elif node in path:  # a cycle: at least one of its edges orders a reader before a write
            cycle = [*list(path.items())[list(path).index(node) + 1 :], (node, value_read)]
            return order, next(value for _, value in cycle if value is not None)
        elif node not in visited:
            path[node] = value_read
            pending.append((node, value_read, True))
            operands = [(operand, None, False) for operand in reversed(node.operands)]
            pending += [(reader, value, False) for reader, value in reversed(readers.get(node, ()))]
            pending += operands
    return order, None
