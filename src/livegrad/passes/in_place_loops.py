"""Finds loops that read and write tensors element by element: one kernel runs all iterations and writes in place.

Used by `materialise` and `plan_passes`. In-place writes are equivalent if each version of a tensor is written once, and
if everything that reads a version can run before that write. Other values without memory, such as tapes, are computed
inside the kernel.
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
from livegrad.ops.control import map_, while_loop
from livegrad.ops.host import host_call
from livegrad.ops.indexing import lookup, lookup_or
from livegrad.ops.movement import broadcast
from livegrad.ops.tape import unwritten
from livegrad.passes.regions import BRANCHES, LOOPS, first_argument

_READS = (lookup, lookup_or)
_ELEMENTS = ("bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64")


class _NotInPlace(Exception):
    """A function does something else with a tensor than to read and write elements, or needs an old version."""


# --- loops of a plan -------------------------------------------------------------------------------------------------


def writes_in_place(node: Node) -> bool:
    """Whether a node is a loop over numbers that writes elements of tensors, and one kernel can compute all of it."""
    if node.op not in LOOPS or not any(isinstance(type, Tensor) for type in components(node.type)):
        return False
    if not all(map(_can_be_carried, components(node.type))):
        return False
    return all(map(_is_native, _between(node))) and _keeps_tensors(node)


def memory_below(node: Node) -> list[Node]:
    """The values that must be in memory for such a loop. A carried tensor that starts as one constant, or unwritten, is
    only in memory where it is carried."""
    first = first_argument(node)
    captured = {*node.operands[:first], *node.operands[first + node.attribute("carried") :]}
    return [value for value in _below(node) if _is_storable(value) and (value in captured or not _is_filled(value))]


def _is_filled(value: Node) -> bool:
    return value.op is unwritten or (value.op is broadcast and value.operands[0].op is constant_op)


def _between(node: Node) -> list[Node]:
    """The values between a loop and memory, which its kernel computes."""
    return [value for value in _below(node) if not _is_storable(value)]


def _below(node: Node) -> list[Node]:
    return toposort(node.operands, stop=_is_storable)


def _is_storable(value: Node) -> bool:
    return value.op is not constant_op and isinstance(value.type, Scalar | Vector | Matrix | Tensor)


def _is_native(value: Node) -> bool:
    """Whether a kernel can compute a value that is not an array."""
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
    """Whether a function uses tensors only to read elements."""
    return not any(
        node.op in (map_, host_call)
        or (isinstance(node.type, Tensor) and node.op is not parameter_op)
        or _is_complex(node)
        for inner in reachable_functions([function])
        for node in nodes_of(inner)
    )


def _keeps_tensors(loop: Node) -> bool:
    """Whether each tensor that a loop carries is, after an iteration, a version of itself."""
    carried = loop.attribute("carried")
    if loop.op is while_loop and not _only_reads(loop.attribute("condition")):
        return False
    body: Function = loop.attribute("body")
    try:
        sources = versions_returned(body)
    except _NotInPlace:
        return False
    carries = [isinstance(type, Tensor) for type in body.result_types[:carried]]
    return sources == tuple(1 + position if tensor else None for position, tensor in enumerate(carries))


@lru_cache(maxsize=1024)
def versions_returned(function: Function) -> tuple[int | None, ...]:
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
            returned = [None if position is None else node.operands[position] for position in operands_of_results(node)]
            positions = tuple([None if operand is None else source[operand] for operand in returned])
            if isinstance(node.type, Tensor):
                source[node] = source[returned[0]]  # type: ignore[index]
            members[node] = positions
        elif not _reads_elements(node, source):
            raise _NotInPlace
    _require_order(function, source)
    return tuple([source.get(result) for result in function.results])


def _reads_elements(node: Node, source: dict[Node, int]) -> bool:
    """Whether a node gives no tensor, and uses tensors only to read elements, or through functions that do."""
    if holds_tensor(node.type) or node.op in (map_, host_call) or _is_complex(node):
        return False
    if not all(map(_only_reads, node.functions)):
        return False
    reads = node.op in _READS or bool(node.functions)
    return reads or not any(operand in source for operand in node.operands)


def written_operands(node: Node) -> tuple[int, ...]:
    """The indices of the tensor operands that a node of such a function writes."""
    if node.op in UPDATES:
        return (0,)
    if node.op not in (*LOOPS, *BRANCHES) or not holds_tensor(node.type):
        return ()
    return tuple([position for position in dict.fromkeys(operands_of_results(node)) if position is not None])


def operands_of_results(node: Node) -> tuple[int | None, ...]:
    """For each result of a loop or branch, the index of the operand that it is a version of; None for a scalar."""
    if node.op in LOOPS:
        if not _keeps_tensors(node):
            raise _NotInPlace
        first, carried = first_argument(node), node.attribute("carried")
        types = [operand.type for operand in node.operands[first : first + carried]]
        return tuple([first + position if isinstance(type, Tensor) else None for position, type in enumerate(types)])
    every = [versions_returned(branch) for branch in node.functions]
    if any(sources != every[0] for sources in every):
        raise _NotInPlace
    return tuple([None if position is None else 1 + position for position in every[0]])


# --- order -----------------------------------------------------------------------------------------------------------


def _require_order(function: Function, source: dict[Node, int]) -> None:
    """Raises `_NotInPlace` unless each version is written once at most, after everything that reads it."""
    writers: dict[Node, Node] = {}
    for node in nodes_of(function):
        for position in written_operands(node):
            if node.operands[position] in writers or node.operands.count(node.operands[position]) > 1:
                raise _NotInPlace
            writers[node.operands[position]] = node
    results = [result for result in function.results if result in source]
    if len(set(results)) != len(results) or any(result in writers for result in results):
        raise _NotInPlace
    # What is written must be returned in the end: the caller expects all other tensors as they were.
    if any(node.op is not parameter_op and node not in writers and node not in results for node in source):
        raise _NotInPlace
    taken = {(node.operands[0], node.attribute("index")) for node in source if node.op is get}
    for node in set(writers.values()):
        if isinstance(node.type, Tuple) and any(
            isinstance(type, Tensor) and (node, index) not in taken for index, type in enumerate(components(node.type))
        ):
            raise _NotInPlace
    if order_before_writes(function.results, writers)[1]:
        raise _NotInPlace


def order_before_writes(results: Sequence[Node], writers: Mapping[Node, Node]) -> tuple[list[Node], set[Node]]:
    """All nodes, operands first, and each user of a value before the node that overwrites it.

    The second value holds what cannot be overwritten, because a user needs what its writer computes: that writer has to
    take a copy.
    """
    kept: set[Node] = set()
    while True:
        readers: dict[Node, list[_Edge]] = {}
        for node in toposort(results):
            for operand in node.operands:
                if operand not in kept and writers.get(operand, node) is not node:
                    readers.setdefault(writers[operand], []).append((node, operand))
        order, read_too_late = _order(results, readers)
        if read_too_late is None:
            return order, kept
        kept.add(read_too_late)


_Edge = tuple[Node, Node | None]  # a node that comes before another one, and the value that it reads; None: an operand


def _order(results: Sequence[Node], readers: Mapping[Node, Sequence[_Edge]]) -> tuple[list[Node], Node | None]:
    """An order with readers before writers, and None; or a part of one, and a value of which a reader would be late."""
    order: list[Node] = []
    path: dict[Node, Node | None] = {}  # the nodes whose index is being computed, and what each reads
    done: set[Node] = set()
    pending: list[tuple[Node, Node | None, bool]] = [(node, None, False) for node in reversed(results)]
    while pending:
        node, read, ready = pending.pop()
        if ready:
            del path[node]
            done.add(node)
            order.append(node)
        elif node in path:  # a cycle: from the node on, some edge of the path is there because of a write
            cycle = [*list(path.items())[list(path).index(node) + 1 :], (node, read)]
            return order, next(value for _, value in cycle if value is not None)
        elif node not in done:
            path[node] = read
            pending.append((node, read, True))
            operands = [(operand, None, False) for operand in reversed(node.operands)]
            pending += [(reader, value, False) for reader, value in reversed(readers.get(node, ()))]
            pending += operands
    return order, None
