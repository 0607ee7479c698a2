"""Maps: a scalar function at every point of a domain. The record, its type rule, and the functions that build maps.

The body is a closed function in an attribute, like the bodies of `control.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from livegrad.diagnostics import TypeRuleError, UsageError, caller_origin
from livegrad.ir.dimension import Dimension, Size
from livegrad.ir.node import Function, Node
from livegrad.ir.op import Op
from livegrad.ir.types import Array, Matrix, Scalar, Struct, Tensor, Tuple, Type, Vector, map_members
from livegrad.ops.control import parameters_of


def component_shape(type: Type) -> tuple[int, ...] | None:
    """The trailing dimensions of a tensor that holds scalars, vectors or matrices of a type; None for other types."""
    match type:
        case Scalar():
            return ()
        case Vector(size=size):
            return (size,)
        case Matrix(rows=rows, columns=columns):
            return (rows, columns)
    return None


def lift_type(type: Type, domain: tuple[Size, ...]) -> Type:
    """The type of a tensor, or an aggregate of tensors, with one value of `type` for each point of a domain."""
    match type:
        case Scalar():
            return Tensor(type, domain)
        case Vector() | Matrix():
            return Tensor(type.element, (*domain, *(component_shape(type) or ())))
        case Struct() | Tuple() | Array():
            return map_members(type, lambda member: lift_type(member, domain))
    raise TypeRuleError(f"a map cannot return one {type} for each point")


def map_domain(types: Sequence[Type], function: Function, lifted: tuple[bool, ...]) -> tuple[Size, ...]:
    """The domain of a map: the leading dimensions of its lifted operands, without component dimensions."""
    for type, value, flag in zip(types, function.parameter_types, lifted, strict=True):
        while flag and isinstance(value, Struct | Tuple | Array) and isinstance(type, Struct | Tuple | Array):
            value, type = (t.element if isinstance(t, Array) else _first_member(t) for t in (value, type))
        if flag and isinstance(type, Tensor):
            component_rank = len(component_shape(value) or ())
            return type.shape[: type.rank - component_rank]
    raise TypeRuleError("a map needs an operand that has one value for each point")


def _first_member(type: Type) -> Type:
    if isinstance(type, Struct):
        return type.fields[0][1]
    assert isinstance(type, Tuple)
    return type.elements[0]


def _map_type(*types: Type, function: Function, lifted: tuple[bool, ...], summed: tuple[bool, ...]) -> Type:
    if len(types) != len(function.parameters) or len(lifted) != len(types) or len(summed) != len(function.results):
        raise TypeRuleError(f"`{function.name}` takes {len(function.parameters)} arguments", found=str(len(types)))
    domain = map_domain(types, function, lifted)
    for index, (type, parameter_type, flag) in enumerate(zip(types, function.parameter_types, lifted, strict=True)):
        expected = lift_type(parameter_type, domain) if flag else parameter_type
        if type is not expected:
            raise TypeRuleError(
                f"argument {index} of `{function.name}` does not fit", expected=str(expected), found=str(type)
            )
    results = tuple(t if flag else lift_type(t, domain) for t, flag in zip(function.result_types, summed, strict=True))
    return results[0] if len(results) == 1 else Tuple(results)


# `lifted` operands have one value for each point; the others are the same at all points, and tensors among them can be
# read by index in the function. `summed` results are summed over the domain.
map_ = Op("map", type_of=_map_type)


def make_map(function: Function, *operands: Node, summed: Sequence[bool] | None = None) -> Node:
    """Evaluates `function` at every point. Operands of a parameter's type are shared, others have a value per point.

    >>> import livegrad as lg
    >>> square = lg.ir.trace(lambda x: x * x, lg.f32)
    >>> lg.ir.trace(lambda xs: make_map(square, xs), lg.ir.types.Tensor(lg.f32, (4,))).result_type
    tensor<f32, [4]>
    """
    if len(operands) != len(function.parameters):
        raise UsageError(
            f"`{function.name}` takes {len(function.parameters)} arguments",
            where=caller_origin(),
            found=str(len(operands)),
        )
    lifted = tuple(node.type is not type for node, type in zip(operands, function.parameter_types, strict=True))
    flags = tuple(summed) if summed is not None else (False,) * len(function.results)
    return map_(*operands, function=function, lifted=lifted, summed=flags)


def map_over(function: Function, lifted: Sequence[bool] | None = None, *, size: str = "n") -> Function:
    """Returns a function of arrays that evaluates `function` at every point of a one-dimensional domain.

    `lifted` arguments (by default all) become arrays with one value per point; the others are shared.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32
    >>> map_over(trace(lambda x, r: x - r, f32, f32), lifted=(True, False))
    <function <lambda>(tensor<f32, [n]>, f32) -> tensor<f32, [n]>>
    """
    flags = tuple(lifted) if lifted is not None else (True,) * len(function.parameters)
    domain = (Dimension.symbol(size),)
    types = [lift_type(t, domain) if flag else t for t, flag in zip(function.parameter_types, flags, strict=True)]
    parameters = parameters_of(types)
    value = make_map(function, *parameters)
    result_count = len(function.results)
    results = (
        (value,) if result_count == 1 else tuple(Op.named("get")(value, index=index) for index in range(result_count))
    )
    mapped = Function(function.name, parameters, results)
    mapped.source_locations.update(function.source_locations)
    return mapped
