"""Types of batched values, and helpers of the batch rules: broadcasting, selecting and masking members.

The batch is the first axis of a tensor. Scalars, vectors and matrices become tensors; structs, tuples, arrays and tapes
are batched member by member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from livegrad.diagnostics import UsageError
from livegrad.ir.dimension import Size
from livegrad.ir.node import Function, Node
from livegrad.ir.types import (
    Array,
    Matrix,
    Scalar,
    Struct,
    Tape,
    Tensor,
    Tuple,
    Type,
    Vector,
    components,
    i64,
    inner_types,
    map_members,
    shape_of,
)
from livegrad.ops.aggregate import make, member
from livegrad.ops.control import parameters_of
from livegrad.ops.elementwise import detach, select
from livegrad.ops.indexing import lookup
from livegrad.ops.maps import map_
from livegrad.ops.movement import broadcast, iota
from livegrad.ops.reduction import arg_reduce
from livegrad.ops.tape import tape_new


class SharedTapeError(UsageError):
    """A tape written for the whole batch is needed for each member separately; `value` is that tape."""

    value: Node


@lru_cache(maxsize=4096)
def batched_type(type: Type, size: Size) -> Type:
    """The batched form of `type` for `size` members.

    >>> from livegrad.ir.types import f32
    >>> batched_type(Tuple((f32, Tensor(f32, (3,)))), 8)
    (tensor<f32, [8]>, tensor<f32, [8, 3]>)
    """
    match type:
        case Scalar():
            return Tensor(type, (size,))
        case Vector(element=element, size=count):
            return Tensor(element, (size, count))
        case Matrix(element=element, rows=rows, columns=columns):
            return Tensor(element, (size, rows, columns))
        case Tensor(element=element, shape=shape):
            return Tensor(element, (size, *shape))
        case Struct() | Tuple() | Array() | Tape():
            return map_members(type, lambda member: batched_type(member, size))
    raise UsageError(f"values of type {type} cannot be batched")


@lru_cache(maxsize=4096)
def has_leaves(type: Type) -> bool:
    """Whether a type contains scalars, which can differ between the members of a batch."""
    return any(isinstance(inner, Scalar) for inner in inner_types(type))


@lru_cache(maxsize=4096)
def holds_tensors(type: Type) -> bool:
    """Whether a type contains tensors or tapes, so that it cannot be the type of one point of a map."""
    return any(isinstance(inner, Tensor | Tape) for inner in inner_types(type))


def spread(value: Node, size: Size) -> Node:
    """Repeats a shared value for every member of a batch."""
    type = value.type
    match type:
        case Scalar() | Tensor():
            shape = (size, *shape_of(type))
            return broadcast(value, shape=shape, axes=tuple(range(1, len(shape))))
        case Vector() | Matrix():
            index, shared = parameters_of([i64, type])
            whole = Function("spread", (index, shared), (shared,))
            return map_(along_batch(size, ()), value, function=whole, lifted=(True, False), summed=(False,))
        case Tape():
            if value.op is not tape_new:
                error = SharedTapeError(
                    "a tape that was written outside of a batch cannot be batched", where=value.origin
                )
                error.value = value
                raise error
            return tape_new(**{**dict(value.attributes), "type": batched_type(type, size)})
    parts = [spread(member(value, index), size) for index in range(len(components(type)))]
    return make(*parts, type=batched_type(type, size))


def along_batch(size: Size, shape: tuple[Size, ...]) -> Node:
    """The batch index of each element of a tensor of this shape."""
    return iota(shape=(size, *shape), axis=0, type=i64)


def zip_leaves(rule: Callable[..., Node], *values: Node) -> Node:
    """Applies a rule to corresponding tensors of values of one type; the rule may change their type.

    Tapes come from the first value.
    """
    first = values[0].type
    if isinstance(first, Tensor):
        return rule(*values)
    if isinstance(first, Tape):
        return values[0]
    parts = [zip_leaves(rule, *(member(value, index) for value in values)) for index in range(len(components(first)))]
    members = iter([part.type for part in parts])
    return make(*parts, type=map_members(first, lambda _: next(members)) if parts else first)


def choose(mask: Node, then: Node, otherwise: Node) -> Node:
    """Selects each member of the batch from `then` or `otherwise`. Tapes come from `then`."""

    def choice(a: Node, b: Node) -> Node:
        return select(mask_like(mask, a), a, b)

    return zip_leaves(choice, then, otherwise)


def mask_like(mask: Node, value: Node) -> Node:
    """Broadcasts the mask of members over the other axes of a tensor."""
    shape = shape_of(value.type)
    return mask if len(shape) == 1 else broadcast(mask, shape=shape, axes=(0,))


def stand_in_members(mask: Node, values: Sequence[Node], flags: Sequence[bool]) -> list[Node]:
    """Replaces the inactive members of batched values by copies of an active member.

    Whatever is computed from a copy is also computed for the active member, so masking adds no failures and no NaN. The
    copies are detached and their results are not selected, so they do not contribute to derivatives.
    """
    if shape_of(mask.type) == (0,):
        return list(values)
    first = lookup(arg_reduce(mask, kind="argmax", axis=0))

    def stand_in(value: Node) -> Node:
        shape = shape_of(value.type)
        member_shape = shape[1:]
        choices = (
            [first]
            if not member_shape
            else [
                broadcast(first, shape=member_shape, axes=()),
                *(iota(shape=member_shape, axis=axis, type=i64) for axis in range(len(member_shape))),
            ]
        )
        row = detach(lookup(value, *choices))
        return select(mask_like(mask, value), value, broadcast(row, shape=shape, axes=tuple(range(1, len(shape)))))

    return [zip_leaves(stand_in, value) if flag else value for value, flag in zip(values, flags, strict=True)]
