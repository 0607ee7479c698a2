"""Derivatives as ops, `fwd_diff` and `bwd_diff`, which the `differentiate` pass expands."""

from __future__ import annotations

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.node import Function
from livegrad.ir.op import Op
from livegrad.ir.types import Tuple, Type, differential_of
from livegrad.ops.rules import tuple_of


def _require_operands(types: tuple[Type, ...], function: Function, primals: tuple[Type, ...], role: str) -> None:
    expected = (*function.parameter_types, *map(differential_of, primals))
    if types != expected:
        raise TypeRuleError(
            f"a derivative of `{function.name}` takes its arguments, then {role}",
            expected=", ".join(map(str, expected)),
            found=", ".join(map(str, types)),
        )


def _forward_type(*types: Type, function: Function) -> Type:
    _require_operands(types, function, function.parameter_types, "a tangent for each")
    return Tuple((function.result_type, tuple_of(tuple(map(differential_of, function.result_types)))))


def _backward_type(*types: Type, function: Function) -> Type:
    _require_operands(types, function, function.result_types, "a cotangent for each result")
    return tuple_of(tuple(map(differential_of, function.parameter_types)))


# fwd_diff(*arguments, *tangents) is (value, tangent); bwd_diff(*arguments, *cotangents) a cotangent for each argument.
fwd_diff = Op("fwd_diff", type_of=_forward_type)
bwd_diff = Op("bwd_diff", type_of=_backward_type)
