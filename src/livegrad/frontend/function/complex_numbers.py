"""Intrinsics for complex numbers: `complex(re, im)`, `z.real`, `z.imag`, `z.conjugate()`, `lg.real`, `lg.conj`, ...

Importing the module adds them to `INTRINSICS`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import Value, as_scalar_type, name_of, node_of
from livegrad.frontend.function.intrinsics import intrinsic, require_count, shaped_result
from livegrad.ir import types as ir
from livegrad.ir.node import Node
from livegrad.ops import conversion
from livegrad.ops.rules import zero

PARTS = {"real": "real", "imag": "imag"}  # attributes of numbers
METHODS = {"conjugate": "conj"}


def _number(context: Context, values: Sequence[Value], name: str, at: ast.AST) -> tuple[Node, bool]:
    """The node of the only argument, and whether it is complex; integers become floats."""
    require_count(context, values, 1, name, at)
    (value,) = values
    if not isinstance(value.type, ir.Scalar):
        raise context.error("LG201", f"`{name}` takes a number, not {name_of(value)}", at)
    if value.type.kind in ("float", "complex"):
        return node_of(value, context.span(at)), value.type.kind == "complex"
    return as_scalar_type(value, ir.f64, context.span(at)), False


@intrinsic("real")
def _real(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    node, is_complex = _number(context, values, "real", at)
    return shaped_result(context, conversion.real(node) if is_complex else node, values, at, values[0].weak)


@intrinsic("imag")
def _imag(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    node, is_complex = _number(context, values, "imag", at)
    if not is_complex:
        return shaped_result(context, zero(node.type), [], at, values[0].weak)
    return shaped_result(context, conversion.imag(node), values, at, values[0].weak)


@intrinsic("conj")
def _conj(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    node, is_complex = _number(context, values, "conj", at)
    return shaped_result(context, conversion.conj(node) if is_complex else node, values, at, values[0].weak)


@intrinsic("complex")
def _complex(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    """`complex(z)`, or `complex(re, im)` of two real numbers."""
    if len(values) == 1:
        _number(context, values, "complex", at)
        return shaped_result(context, as_scalar_type(values[0], ir.c128, context.span(at)), values, at)
    require_count(context, values, 2, "complex", at)
    if any(not isinstance(value.type, ir.Scalar) or value.type.kind == "complex" for value in values):
        found = f"{name_of(values[0])} and {name_of(values[1])}"
        raise context.error("LG201", "`complex` takes one number, or two real ones", at, found=found)
    parts = [as_scalar_type(value, ir.f64, context.span(at)) for value in values]
    return shaped_result(context, conversion.make_complex(*parts), values, at)
