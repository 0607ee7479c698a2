"""The `batch` pass: vectorises a function over a new leading axis. Called by `lg.vmap`.

`walk.py` is the interpreter. The rules of ops are in `tensors.py`, `library.py`, `control.py`, `maps.py` and
`host.py`. Loops and branches that diverge become maps over the members (`points.py`) or loops over them
(`member_loop.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.dimension import Size
from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.types import Array, Struct, Tensor, Tuple, Type, components, map_members, shape_of
from livegrad.ops.aggregate import make, member
from livegrad.ops.control import parameters_of
from livegrad.ops.movement import permute
from livegrad.passes.batch.control import CONTROL_RULES
from livegrad.passes.batch.host import HOST_RULES
from livegrad.passes.batch.library import LIBRARY_RULES
from livegrad.passes.batch.maps import MAP_RULES
from livegrad.passes.batch.tensors import TENSOR_RULES
from livegrad.passes.batch.values import batched_type, has_leaves, spread
from livegrad.passes.batch.walk import RULES, BatchRule, Context, Operand, Parts, batch_values
from livegrad.passes.differentiate.lower import with_derivatives_written

__all__ = [
    "RULES",
    "BatchRule",
    "Context",
    "Operand",
    "Parts",
    "batch",
    "batched_type",
]


for _rules in (TENSOR_RULES, LIBRARY_RULES, MAP_RULES, HOST_RULES, CONTROL_RULES):
    RULES.update(_rules)


@propagates_lines
def batch(function: Function, in_axes: int | Sequence[int | None] | None = 0, *, size: Size) -> Function:
    """Vectorises a function over a batch of `size`. The batch is the first axis of the results.

    `in_axes` is the batch axis of each parameter, or None for parameters that all members share; scalars, vectors and
    matrices become tensors.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32
    >>> batch(trace(lambda x, y: x * y, f32, f32), (0, None), size=8)
    <function <lambda>.batch(tensor<f32, [8]>, f32) -> tensor<f32, [8]>>
    """
    axes = _check_axes(function, in_axes)
    expanded = with_derivatives_written(function)
    flags = [axis is not None and has_leaves(type) for axis, type in zip(axes, function.parameter_types, strict=True)]
    types = [
        _with_axis(batched_type(type, size), axis or 0) if flag else type
        for type, axis, flag in zip(function.parameter_types, axes, flags, strict=True)
    ]
    parameters = parameters_of(types)
    arguments = [
        Operand(_move_batch_first(node, axis or 0) if flag else node, flag)
        for node, axis, flag in zip(parameters, axes, flags, strict=True)
    ]
    results = batch_values(expanded, arguments, Context(size))
    nodes = tuple(result.value if result.batched else spread(result.value, size) for result in results)
    return Function(f"{function.name}.batch", parameters, nodes)


def _check_axes(function: Function, in_axes: int | Sequence[int | None] | None) -> list[int | None]:
    """One batch axis, or None, for each parameter."""
    count = len(function.parameters)
    axes = list(in_axes) if isinstance(in_axes, Sequence) else [in_axes] * count
    if len(axes) != count:
        raise UsageError(
            f"`{function.name}` needs an axis, or None, for each of its parameters",
            where=caller_origin(),
            expected=str(count),
            found=str(len(axes)),
        )
    if all(axis is None for axis in axes):
        raise UsageError(
            f"no argument of `{function.name}` has a batch axis", where=caller_origin(), help="give an axis"
        )
    return axes


def _normalise_axis(axis: int, type: Tensor) -> int:
    """The batch axis of a tensor as a non-negative index."""
    if not -type.rank <= axis < type.rank:
        raise UsageError(f"batch axis {axis} is out of range", where=caller_origin(), expected=f"an axis of {type}")
    return axis % type.rank


def _with_axis(type: Type, axis: int) -> Type:
    """A batched type with the batch axis of its tensors moved from the front to `axis`."""
    match type:
        case Tensor(element=element, shape=(size, *shape)):
            position = _normalise_axis(axis, type)
            return Tensor(element, (*shape[:position], size, *shape[position:]))
        case Struct() | Tuple() | Array():
            return map_members(type, lambda member: _with_axis(member, axis))
    return type


def _move_batch_first(value: Node, axis: int) -> Node:
    """Moves the batch axis of a value's tensors to the front."""
    if axis == 0:
        return value
    if isinstance(value.type, Tensor):
        position = _normalise_axis(axis, value.type)
        remaining = [index for index in range(len(shape_of(value.type))) if index != position]
        return permute(value, axes=(position, *remaining))
    parts = [_move_batch_first(member(value, index), axis) for index in range(len(components(value.type)))]
    return make(*parts, type=_type_with_batch_first(value.type, axis)) if parts else value


def _type_with_batch_first(type: Type, axis: int) -> Type:
    match type:
        case Tensor(element=element, shape=shape):
            position = _normalise_axis(axis, type)
            return Tensor(element, (shape[position], *shape[:position], *shape[position + 1 :]))
        case Struct() | Tuple() | Array():
            return map_members(type, lambda member: _type_with_batch_first(member, axis))
    return type
