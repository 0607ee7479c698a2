"""Finds scalar loops that accumulate into tensors, as in gradients of functions that read tensors by index.

Used by `roots` and `schedule`: such a loop is one step that a backend may run in place, with tapes and other values
without memory computed inside. Every version of the tensor is used once, so in-place addition is equivalent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from livegrad.ir.leaves import parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Array, Matrix, Scalar, Struct, Tensor, Tuple, Type, Vector, components, inner_types
from livegrad.ir.walk import nodes_of, reachable_functions, toposort
from livegrad.ops.aggregate import get
from livegrad.ops.control import cond, for_loop, map_, switch
from livegrad.ops.host import host_call
from livegrad.ops.indexing import scatter_add

_KINDS = ("f32", "f64", "i32", "i64")


class _Otherwise(Exception):
    """The function does something else with a tensor than to add numbers at indices."""


def accumulates(node: Node) -> bool:
    """Whether a node is a loop of numbers that adds to tensors, and all that goes into it can be computed with it."""
    if node.op is not for_loop or not any(isinstance(type, Tensor) for type in components(node.type)):
        return False
    if not all(map(_can_be_carried, components(node.type))):
        return False
    if not all(map(_is_native, _between(node))):
        return False
    return _body_accumulates(node.attribute("body"), node.attribute("carried"))


def memory_below(node: Node) -> list[Node]:
    """The values that must lie in memory for such a loop."""
    return [value for value in _below(node) if _is_storable(value)]


def _between(node: Node) -> list[Node]:
    """The values between a loop and memory, which are computed with it."""
    return [value for value in _below(node) if not _is_storable(value)]


def _below(node: Node) -> list[Node]:
    """What goes into a node, down to values that memory can hold."""
    return toposort(node.operands, stop=_is_storable)


def _is_storable(value: Node) -> bool:
    return isinstance(value.type, Scalar | Vector | Matrix | Tensor)


def _is_native(value: Node) -> bool:
    """Whether a kernel can compute a value that is not an array."""
    if value.op is parameter_op or value.op in (map_, host_call) or _is_strange(value.type):
        return False
    return all(map(_reads_only, value.functions))


def _is_strange(type: Type) -> bool:
    return any(isinstance(t, Tensor) or (isinstance(t, Scalar) and t.kind == "complex") for t in inner_types(type))


def _can_be_carried(type: Type) -> bool:
    if isinstance(type, Tensor):
        return type.element.name in _KINDS and all(isinstance(size, int) for size in type.shape)
    if isinstance(type, Scalar):
        return type.kind != "complex" and type.name != "bf16"
    return isinstance(type, Vector | Matrix | Struct | Tuple | Array) and all(map(_can_be_carried, components(type)))


@lru_cache(maxsize=1024)
def _reads_only(function: Function) -> bool:
    """Whether a function uses tensors by reading them at indices alone."""
    return not any(
        node.op in (map_, host_call)
        or (isinstance(node.type, Tensor) and node.op is not parameter_op)
        or any(isinstance(t, Scalar) and t.kind == "complex" for t in inner_types(node.type))
        for inner in reachable_functions([function])
        for node in nodes_of(inner)
    )


@lru_cache(maxsize=1024)
def _body_accumulates(body: Function, carried: int) -> bool:
    flags = tuple(1 <= place <= carried and isinstance(p.type, Tensor) for place, p in enumerate(body.parameters))
    try:
        sources = _sources_of_results(body, flags)
    except _Otherwise:
        return False
    return all(source == (1 + place if flags[1 + place] else None) for place, source in enumerate(sources))


def _sources_of_results(function: Function, flags: Sequence[bool]) -> list[int | None]:
    """For each result the flagged parameter that it is a version of; None for one that is no tensor."""
    source = {own: place for place, own in enumerate(function.parameters) if flags[place]}
    of_members: dict[Node, list[int | None]] = {}
    uses: Counter[Node] = Counter(function.results)
    for node in nodes_of(function):
        uses.update(operand for operand in node.operands if operand in source)
        if node.op is parameter_op:
            continue
        given = any(operand in source for operand in node.operands)
        if node.op is get and node.operands[0] in of_members:
            found = of_members[node.operands[0]][node.attribute("index")]
            if found is not None:
                source[node] = found
        elif node.op is scatter_add and node.operands[0] in source and not isinstance(node.operands[1].type, Tensor):
            source[node] = source[node.operands[0]]
        elif given and node.op in (for_loop, cond, switch):
            members = _sources_through(node, source)
            if isinstance(node.type, Tensor):
                source[node] = members[0]  # type: ignore[assignment]
            of_members[node] = members
        elif given or isinstance(node.type, Tensor) or not _is_native_inside(node):
            raise _Otherwise
    if any(uses[version] != 1 for version in source):
        raise _Otherwise
    return [source.get(result) for result in function.results]


def _is_native_inside(node: Node) -> bool:
    strange = any(isinstance(t, Scalar) and t.kind == "complex" for t in inner_types(node.type))
    return node.op not in (map_, host_call) and not strange and all(map(_reads_only, node.functions))


def _sources_through(node: Node, source: dict[Node, int]) -> list[int | None]:
    """Which of the tensors around a loop or branch each of its results is a version of."""
    arguments = list(node.operands[1:])
    flags = [operand in source for operand in arguments]
    if node.op is for_loop:
        carried = node.attribute("carried")
        if any(flags[carried:]) or not _body_accumulates(node.attribute("body"), carried):
            raise _Otherwise
        return [source.get(operand) for operand in arguments[:carried]]
    every = [_sources_of_results(branch, flags) for branch in node.functions]
    if any(found != every[0] for found in every):
        raise _Otherwise
    return [None if place is None else source[arguments[place]] for place in every[0]]
