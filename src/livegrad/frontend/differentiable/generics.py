"""Checks generic functions at their definition, against the bounds of their type variables.

A parameter whose type variable is bound to an interface accepts every implementing type, so the function may use only
members that the interface declares. The check compiles the body with a stand-in type that has only these members.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from livegrad.frontend.differentiable.differentials import TaggedType, scale_floats
from livegrad.frontend.differentiable.interface import InterfaceType
from livegrad.frontend.differentiable.plain_function import PlainFunction
from livegrad.frontend.differentiable.protocol import Differentiable, ProtocolCall
from livegrad.frontend.function.calls import BoundMethod
from livegrad.frontend.function.captured import CapturedFunction, Slot
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import Value, convert, runtime
from livegrad.frontend.function.function_errors import FunctionError, Span
from livegrad.frontend.function.function_types import MISSING, ArrayType, FrontType, differential_type, ir_of
from livegrad.frontend.function.signature import SELF
from livegrad.frontend.function.type_rules import TypeRules
from livegrad.ir import types as ir
from livegrad.ir.node import Node
from livegrad.ops.aggregate import make, member
from livegrad.ops.rules import add_values, zero

if TYPE_CHECKING:
    from livegrad.frontend.differentiable.differentiable_function import DifferentiableFunction


class StandIn(TaggedType):
    """An unspecified type that implements an interface; used only to check generic functions."""

    def __init__(self, variable: TypeVar, interface: InterfaceType) -> None:
        self.variable, self.interface = variable, interface

    def __repr__(self) -> str:
        return self.variable.__name__

    @property
    def ir(self) -> ir.Type:
        return ir.Struct(self.variable.__name__, (("value", ir.f64),))

    @property
    def differential(self) -> FrontType | None:
        return self

    @property
    def methods(self) -> dict[str, CapturedFunction]:
        return self.interface.methods

    def lower_differential(self, node: Node, primal: Node, cotangent: bool) -> Node:
        return make(member(node, 0), type=ir.differential_of(self.ir))

    def raise_differential(self, node: Node, primal: Node, cotangent: bool) -> Node:
        return make(member(node, 0), type=self.ir)

    def zero_differential(self) -> Node:
        return zero(self.ir)

    def add_differentials(self, first: Node, second: Node) -> Node:
        return add_values(first, second)

    def scale_differential(self, factor: Callable[[ir.Scalar], Node], node: Node) -> Node:
        return scale_floats(factor, node)


# The types that replace a variable bound to Differentiable. A body that compiles for none of them is rejected.
_STAND_INS = (ir.f64, ir.Vector(ir.f64, 3), ArrayType(ir.f64, 2), ir.Matrix(ir.f64, 3, 3))


def check_generic(function: DifferentiableFunction) -> None:
    """Compiles a generic function with stand-ins for its type variables; raises the first error if none compiles."""
    annotations = function.python_function.__annotations__
    names = [value for value in annotations.values() if isinstance(value, str)]
    if not names and not any(isinstance(value, TypeVar) for value in annotations.values()):
        return
    if any(not name.isidentifier() or function.source.lookup(name) is MISSING for name in names):
        return  # names that are defined later: the first call reports errors
    if not any(parameter.annotation.variable for parameter in function.signature.parameters):
        return
    problems: list[FunctionError] = []
    for free in _STAND_INS:
        slots = _slots(function, free)
        if slots is None:
            return  # some types are known only in a call
        try:
            PlainFunction(function.python_function).specialize(slots)
        except FunctionError as problem:
            if problem.code == "LG403":
                return  # no type implements the interface yet
            problems.append(problem)
        else:
            return
    raise problems[0]


@dataclass(frozen=True)
class VariableDifferential:
    """`T.Differential` of a type variable."""

    variable: TypeVar

    def __repr__(self) -> str:
        return f"{self.variable.__name__}.Differential"


# Stand-ins with float16, which functions rarely use: they identify the types that come from type variables.
_MARKED = (ir.f16, ir.Vector(ir.f16, 3), ArrayType(ir.f16, 2), ir.Matrix(ir.f16, 3, 3))


def types_of_generic(function: DifferentiableFunction) -> dict[Any, Any] | None:
    """The differentiable types of a generic function, including its type variables; None if it is not generic."""
    variables = [parameter.annotation.variable for parameter in function.signature.parameters]
    if not any(variables):
        return None
    for free in (*_MARKED, *_STAND_INS):
        slots = _slots(function, free)
        if slots is None:
            return None
        try:
            specialization = PlainFunction(function.python_function).specialize(slots)
        except FunctionError:
            continue
        differentials: dict[Any, Any] = {variable: VariableDifferential(variable) for variable in variables if variable}
        recorded = specialization.dependencies.types.items()
        return differentials | {
            type: differential for type, differential in recorded if not (_is_marked(type) or isinstance(type, StandIn))
        }
    return None


def _is_marked(type: FrontType) -> bool:
    return not isinstance(type, TaggedType) and ir.f16 in _scalars(ir_of(type))


def _scalars(type: ir.Type) -> set[ir.Type]:
    return {type} if isinstance(type, ir.Scalar) else set().union(*map(_scalars, ir.components(type)))


def _slots(function: DifferentiableFunction, free: FrontType) -> tuple[Slot, ...] | None:
    """The slots that the function is checked with; `free` replaces variables bound to Differentiable. None if a type is
    not known before a call.
    """
    slots = []
    for parameter in function.signature.parameters:
        variable = parameter.annotation.variable
        type = parameter.annotation.type if variable is None else _stand_in(variable)
        if type is None and variable is not None and variable.__bound__ is Differentiable:
            type = free
        if type is None:
            return None
        slots.append(Slot(type, parameter.annotation.no_diff))
    return tuple(slots)


@cache
def _stand_in(variable: TypeVar) -> StandIn | None:
    bound = getattr(variable.__bound__, "__livegrad_type__", None)
    return StandIn(variable, bound) if isinstance(bound, InterfaceType) else None


def _method(context: Context, value: Value, name: str) -> BoundMethod | None:
    if not isinstance(value.type, StandIn):
        return None
    method = value.type.interface.methods.get(name)
    if method is None:
        return None

    def run(context: Context, target: Value, positional: list[Value], keywords: dict[str, Value], at: ast.AST) -> Value:
        bound = method.signature.bind([target, *positional], keywords)
        if isinstance(bound, str):
            raise context.error("LG108", f"`{name}` {bound}", at, expected=str(method.signature))
        for parameter in method.signature.parameters[1:]:
            argument: Any = bound[parameter.name]
            if isinstance(argument, Value) and parameter.annotation.type is not None:
                convert(argument, parameter.annotation.type, context.span(at), f"`{parameter.name}`")
        declared = method.signature.result
        result = value.type.interface if declared.variable is SELF else declared.type  # type: ignore[union-attr]
        if result is None:
            raise FunctionError("LG401", f"`{name}` of {value.type} has no result type", context.span(at))
        result_type = target.type if result is value.type.interface else result  # type: ignore[union-attr]
        assert result_type is not None
        placeholder = runtime(result_type, zero(ir_of(result_type)))
        return (
            context.with_flow(placeholder, "operation", [target, *positional], at)
            if differential_type(result_type)
            else placeholder
        )

    return BoundMethod(value, name, run)


def _convert(value: Value, target: FrontType, span: Span | None) -> Any:
    """Converts a stand-in to its interface, or to a base of the interface."""
    if not isinstance(value.type, StandIn) or not isinstance(target, InterfaceType):
        return None
    if not issubclass(value.type.interface.cls, target.cls):
        return None
    return Value(target) if span is None else Value(target, zero(target.ir), flow=value.flow)


def _type_attribute(type: FrontType, name: str) -> Any:
    """`T.dzero`, `T.Differential` and methods of T, for a type or type variable T."""
    if name in ("dzero", "dadd", "dmul"):
        return ProtocolCall(name, type)
    return differential_type(type) if name == "Differential" else getattr(type, "methods", {}).get(name)


RULES = TypeRules(conversion=_convert, method=_method, type_attribute=_type_attribute)
