"""Generates forward and backward derivatives of resolved functions, as IR functions.

`resolution` calls it. The generated functions take and return Differentials of frontend types, and can be
differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from livegrad.frontend.differentiable.custom_sums import add_custom_zero
from livegrad.frontend.differentiable.differentials import lower_differential, raise_differential
from livegrad.frontend.differentiable.pair import pair_type
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.frontend.function.compile_values import Value
from livegrad.frontend.function.function_errors import FunctionError, Span
from livegrad.frontend.function.function_types import NONE, FrontType, TupleType, describe, differential_type, ir_of
from livegrad.ir import types as ir
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ops.aggregate import make, member
from livegrad.ops.control import call as call_op
from livegrad.ops.differential import bwd_diff as bwd_op
from livegrad.ops.differential import fwd_diff as fwd_op
from livegrad.ops.rules import zero


@dataclass(frozen=True)
class Argument:
    """A run-time parameter of a resolved function."""

    name: str
    type: FrontType
    no_diff: bool
    bound: bool = False  # bound to the function, such as the instance of a method

    @property
    def active(self) -> bool:
        return not self.no_diff and differential_type(self.type) is not None


@dataclass(eq=False)
class Resolved:
    """A function, or a derivative of one, resolved for argument types."""

    name: str
    function: Function
    arguments: list[Argument]
    result: FrontType
    result_no_diff: bool
    is_current: Callable[[], bool]
    types: Mapping[FrontType, FrontType]

    def with_dependencies_of(self, inner: Resolved) -> Resolved:
        """The same function, with the dependencies of the function that it was derived from."""
        return replace(self, is_current=inner.is_current, types=inner.types)


def resolution_key(inner: Resolved) -> Any:
    """The cache key of a derivative. It includes frontend types: equal IR functions may have different structs."""
    return inner.function, tuple(inner.arguments), inner.result, inner.result_no_diff


def forward_derivative(name: str, inner: Resolved) -> Resolved:
    """(pairs and plain values) → a pair of the result, as an IR function."""
    inputs: list[Node] = []
    primals: list[Node] = []
    tangents: list[Node] = []
    arguments: list[Argument] = []
    for argument in inner.arguments:
        plain = ir.differential_of(ir_of(argument.type))
        if argument.active:
            type = pair_type(argument.type)
            node = input_node(Key(argument.name), type.ir)
            primals.append(member(node, 0))
            tangents.append(lower_differential(argument.type, member(node, 1), primals[-1]))
            arguments.append(Argument(argument.name, type, False))
        else:
            node = input_node(Key(argument.name), ir_of(argument.type))
            primals.append(node)
            tangents.append(zero(plain))
            arguments.append(argument)
        inputs.append(node)
    results = fwd_op(*primals, *tangents, function=inner.function)
    value = member(results, 0)
    result = inner.result
    if differential_type(result) is not None and not inner.result_no_diff:
        result = pair_type(inner.result)
        value = make(value, raise_differential(inner.result, member(results, 1), value), type=result.ir)
    function = make_function(name, inputs, [value])
    return Resolved(name, function, arguments, result, False, inner.is_current, inner.types)


def backward_derivative(name: str, base: CapturedFunction, inner: Resolved, span: Span) -> Resolved:
    """(arguments, the result's differential) → a differential for each argument, as an IR function."""
    result_differential = differential_type(inner.result)
    if result_differential is None or inner.result_no_diff:
        raise FunctionError(
            "LG306",
            f"the result of `{inner.name}` has no derivative",
            span,
            found=describe(inner.result),
        )
    inputs = [input_node(Key(argument.name), ir_of(argument.type)) for argument in inner.arguments]
    seed = input_node(Key("d_result"), ir_of(result_differential))
    lowered = lower_differential(inner.result, seed, _primal_result(inner, inputs), cotangent=True)
    parts = bwd_op(*inputs, lowered, function=inner.function)
    results: list[Node] = []
    types: list[FrontType] = []
    for index, argument in enumerate(inner.arguments):
        if argument.bound:
            continue
        node = parts if len(inner.arguments) == 1 else member(parts, index)
        differential = differential_type(argument.type)
        if not argument.active or differential is None:
            results.append(make(type=ir.UNIT))
            types.append(NONE)
        else:
            raised = raise_differential(argument.type, node, inputs[index], cotangent=True)
            results.append(add_custom_zero(base, argument.type, raised))
            types.append(differential)
    result = TupleType(tuple(types))
    function = make_function(name, [*inputs, seed], [make(*results, type=result.ir)])
    arguments = [*inner.arguments, Argument("d_result", result_differential, False)]
    return Resolved(name, function, arguments, result, False, inner.is_current, inner.types)


def _primal_result(inner: Resolved, inputs: list[Node]) -> Node:
    """The primal result, which differentials of tagged unions depend on; dead code for other types."""
    return call_op(*inputs, function=inner.function)


class DerivativeProtocol(Protocol):
    """The interface of derivatives that resolution needs; `derivative_operators.Derivative` implements it."""

    target: Any  # a captured function, or another derivative
    mode: str
    __name__: str
    _resolved: dict[Any, Resolved]

    def resolve_call(self, values: Sequence[Value], span: Span) -> tuple[Resolved, list[Any]]:
        """Resolves the derivative for arguments of these types; returns it with the source of each of its arguments."""
        ...
