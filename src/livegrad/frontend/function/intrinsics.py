"""Intrinsics: functions of `math`, NumPy, Python's builtins and livegrad that the compiler implements itself.

`intrinsic_of` maps a Python object to the name of its intrinsic; `INTRINSICS` maps names to implementations.
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import (
    Value,
    as_scalar_type,
    cast_to,
    name_of,
    node_of,
    static,
    tuple_value,
)
from livegrad.frontend.function.decimal_rounding import LARGEST_POWER, MOST_DIGITS, round_float, round_integer
from livegrad.frontend.function.operators import (
    Shaped,
    apply_binary,
    to_bool,
    unify,
)
from livegrad.ir import types as ir
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ops import elementwise, transcendental

Handler = Callable[[Context, Sequence[Value], ast.AST], Value]
SpecialForm = Callable[[Context, ast.Call], Value]
INTRINSICS: dict[str, Handler] = {}
SPECIAL_FORMS: dict[str, SpecialForm] = {}  # intrinsics that receive the call's syntax tree, not evaluated arguments

_UNARY = [
    "sqrt",
    "rsqrt",
    "cbrt",
    "exp",
    "exp2",
    "expm1",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "fract",
]
_NUMPY_NAMES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh"}
_NUMPY_NAMES |= {
    "arctanh": "atanh",
    "arctan2": "atan2",
    "power": "pow",
    "absolute": "abs",
    "rint": "round",
    "fabs": "abs",
}

_NAMES: dict[Any, str] = {
    builtins.abs: "abs", builtins.min: "min", builtins.max: "max", builtins.sum: "sum", builtins.len: "len",
    builtins.float: "float", builtins.int: "int", builtins.bool: "bool", builtins.round: "round_int",
    builtins.pow: "pow", builtins.divmod: "divmod", builtins.any: "any", builtins.all: "all",
    builtins.list: "list", builtins.tuple: "tuple", builtins.print: "print", builtins.isinstance: "isinstance",
    math.floor: "floor_int", math.ceil: "ceil_int", math.trunc: "int", math.fabs: "abs", math.pow: "pow",
    math.log: "log", math.atan2: "atan2", math.hypot: "hypot", math.fmod: "fmod", math.copysign: "copysign",
    math.isnan: "is_nan", math.isinf: "is_infinite", math.isfinite: "is_finite", math.radians: "radians",
    math.degrees: "degrees", math.prod: "prod", math.fsum: "sum", math.remainder: "remainder", math.dist: "dist",
    np.maximum: "maximum", np.minimum: "minimum", np.where: "where", np.clip: "clamp", np.dot: "dot",
    np.cross: "cross", np.linalg.norm: "length", np.sum: "sum", np.log: "log", np.sign: "sign", np.floor: "floor",
    np.ceil: "ceil", np.trunc: "trunc", np.rint: "round", np.isnan: "is_nan", np.isinf: "is_infinite",
    np.isfinite: "is_finite", np.hypot: "hypot", np.fmod: "fmod", np.mod: "mod", np.copysign: "copysign",
    np.array: "array_of", np.asarray: "array_of", np.prod: "prod", np.max: "max", np.min: "min",
    np.radians: "radians", np.degrees: "degrees", np.square: "square", np.linalg.det: "determinant",
    np.linalg.inv: "inverse", np.transpose: "transpose", np.float64: "float", np.int64: "int",
    np.matmul: "matmul", np.zeros: "zeros", np.ones: "ones", np.empty: "empty", np.full: "full",
    np.zeros_like: "zeros_like", np.ones_like: "ones_like", np.empty_like: "empty_like", np.full_like: "full_like",
    np.arange: "arange",
    np.copy: "copy", builtins.complex: "complex", np.real: "real", np.imag: "imag", np.conj: "conj",
}  # fmt: skip
for _name in _UNARY:
    for _module in (math, np):
        if hasattr(_module, _name):
            _NAMES[getattr(_module, _name)] = _name
for _numpy_name, _name in _NUMPY_NAMES.items():
    _NAMES[getattr(np, _numpy_name)] = _name


_MARK = "__livegrad_intrinsic__"


def intrinsic_of(target: Any) -> str | None:
    """The name of the intrinsic that implements a Python object, or None."""
    name = getattr(target, _MARK, None)
    if isinstance(name, str):
        return name
    if isinstance(target, Op):
        return target.name
    try:
        return _NAMES.get(target)
    except TypeError:
        return None


# Tensor functions whose intrinsic has another name; None: the intrinsic of that name has another meaning.
_TENSOR_NAMES = {
    "isnan": "is_nan", "isinf": "is_infinite", "isfinite": "is_finite", "clip": "clamp", "remainder": "mod",
    "bool": None, "float": None, "int": None,
}  # fmt: skip


# The tensor functions that captured code may call, with the names of their intrinsics.
TENSOR_FUNCTIONS: dict[Any, str] = {}


def register_tensor_functions(namespace: Any, names: Sequence[str]) -> None:
    """Registers tensor functions, such as `lg.sin`, as the intrinsics of the same meaning for scalars and vectors."""
    for name in names:
        tensor_name = _TENSOR_NAMES.get(name, name)
        function: Any = getattr(namespace, name)
        if (
            (tensor_name in INTRINSICS or tensor_name in SPECIAL_FORMS)
            and callable(function)
            and intrinsic_of(function) is None
        ):
            setattr(function, _MARK, tensor_name)
            TENSOR_FUNCTIONS[function] = tensor_name


def intrinsic(*names: str) -> Callable[[Handler], Handler]:
    """Registers the implementation of the intrinsics with these names."""

    def register(handler: Handler) -> Handler:
        for name in names:
            INTRINSICS[name] = handler
        return handler

    return register


def require_count(context: Context, values: Sequence[Value], count: int, name: str, at: ast.AST) -> None:
    """Raises unless the number of arguments is `count`."""
    if len(values) != count:
        many = "1 argument" if count == 1 else f"{count} arguments"
        raise context.error("LG108", f"`{name}` takes {many}", at, found=str(len(values)))


def _as_float_node(context: Context, value: Value, name: str, at: ast.AST) -> Node:
    """The node of a number or vector of floats; integers become float64."""
    if not isinstance(value.type, Shaped):
        raise context.error("LG201", f"`{name}` does not accept {name_of(value)}", at)
    scalar = ir.scalar_of(value.type)
    assert scalar is not None
    if scalar.kind in ("float", "complex") and not value.is_number:
        return node_of(value, context.span(at))
    return as_scalar_type(value, scalar if scalar.kind in ("float", "complex") else ir.f64, context.span(at))


def shaped_result(context: Context, node: Node, inputs: Sequence[Value], at: ast.AST, weak: bool = False) -> Value:
    """The value of a node that computes a number, vector or matrix from inputs."""
    assert isinstance(node.type, Shaped)
    return context.result(node.type, node, inputs, at, weak)


def _register_unary(name: str) -> None:
    op = Op.named(name)

    @intrinsic(name)
    def handler(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
        require_count(context, values, 1, name, at)
        return shaped_result(context, op(_as_float_node(context, values[0], name, at)), values, at, values[0].weak)


for _name in [*_UNARY, "floor", "ceil", "trunc", "round"]:
    _register_unary(_name)


def _register_binary(name: str, floats: bool = True) -> None:
    op = Op.named(name)

    @intrinsic(name)
    def handler(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
        require_count(context, values, 2, name, at)
        type, a, b = unify(context, values[0], values[1], at, name)
        scalar = ir.scalar_of(type)
        if floats and scalar is not None and scalar.kind not in ("float", "complex"):
            a, b = (as_scalar_type(Value(type, node), ir.f64, context.span(at)) for node in (a, b))
        return shaped_result(context, op(a, b), values, at, all(value.weak for value in values))


for _name in ("atan2", "fmod", "copysign"):
    _register_binary(_name)
for _name in ("minimum", "maximum"):
    _register_binary(_name, floats=False)


def _register_test(name: str) -> None:
    op = Op.named(name)

    @intrinsic(name)
    def handler(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
        require_count(context, values, 1, name, at)
        return shaped_result(context, op(_as_float_node(context, values[0], name, at)), [], at)


for _name in ("is_nan", "is_infinite", "is_finite"):
    _register_test(_name)


def _register_operator(name: str, op: ast.operator) -> None:
    @intrinsic(name)
    def handler(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
        require_count(context, values, 2, name, at)
        return apply_binary(context, op, values[0], values[1], at)


_register_operator("mod", ast.Mod())
_register_operator("matmul", ast.MatMult())


@intrinsic("pow")
def _pow(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    require_count(context, values, 2, "pow", at)
    return apply_binary(context, ast.Pow(), values[0], values[1], at)


@intrinsic("square")
def _square(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    require_count(context, values, 1, "square", at)
    return apply_binary(context, ast.Mult(), values[0], values[0], at)


@intrinsic("log")
def _log(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    if len(values) == 2:
        first, base = (_log(context, [value], at) for value in values)
        return apply_binary(context, ast.Div(), first, base, at)
    require_count(context, values, 1, "log", at)
    return shaped_result(
        context, transcendental.log(_as_float_node(context, values[0], "log", at)), values, at, values[0].weak
    )


@intrinsic("hypot")
def _hypot(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    total = values[0] if len(values) > 1 else _abs(context, values, at)
    for value in values[1:]:
        type, a, b = unify(context, total, value, at, "hypot")
        scalar = ir.scalar_of(type)
        if scalar is not None and scalar.kind != "float":
            a, b = (as_scalar_type(Value(type, node), ir.f64, context.span(at)) for node in (a, b))
        total = shaped_result(context, transcendental.hypot(a, b), [total, value], at)
    return total


@intrinsic("abs")
def _abs(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    require_count(context, values, 1, "abs", at)
    (value,) = values
    if not isinstance(value.type, Shaped):
        raise context.error("LG201", f"`abs` does not accept {name_of(value)}", at)
    node = (
        as_scalar_type(value, ir.i64, context.span(at)) if value.type is ir.bool_ else node_of(value, context.span(at))
    )
    return shaped_result(context, elementwise.abs(node), values, at, value.weak)


@intrinsic("sign")
def _sign(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    require_count(context, values, 1, "sign", at)
    return shaped_result(context, elementwise.sign(node_of(values[0], context.span(at))), [], at, values[0].weak)


def _register_int_conversion(name: str, op: Op | None) -> None:
    @intrinsic(name)
    def handler(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
        require_count(context, values, 1, name.removesuffix("_int"), at)
        (value,) = values
        if not isinstance(value.type, Shaped):
            raise context.error("LG201", f"{name_of(value)} cannot be converted to an int", at)
        node = node_of(value, context.span(at))
        scalar = ir.scalar_of(value.type)
        if op is not None and scalar is not None and scalar.kind == "float":
            node = op(node)
        return shaped_result(context, as_scalar_type(Value(value.type, node), ir.i64, context.span(at)), [], at)


_register_int_conversion("int", None)
_register_int_conversion("floor_int", elementwise.floor)
_register_int_conversion("ceil_int", elementwise.ceil)
_register_int_conversion("round_int", elementwise.round)
_round_to_int = INTRINSICS["round_int"]


@intrinsic("round_int")
def _round(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    """`round(x)` is an integer; `round(x, digits)` has the type of `x`."""
    if len(values) != 2 or values[1].static is None:
        return _round_to_int(context, values[:1] if len(values) == 2 else values, at)
    value, digits = values[0], values[1].static
    scalar = value.type if isinstance(value.type, ir.Scalar) else None
    if scalar is None or scalar.kind not in ("float", "signed"):
        raise context.error("LG201", f"`round` to digits takes a number, not {name_of(value)}", at)
    least = 0 if scalar.kind == "float" else -LARGEST_POWER
    if not isinstance(digits, int) or not least <= digits <= MOST_DIGITS:
        expected, found = f"a constant from {least} to {MOST_DIGITS}", str(digits) if values[1].is_static else "a value"
        advice = "write round(x / 100) * 100 for round(x, -2)" if isinstance(digits, int) and digits < 0 else None
        raise context.error("LG201", "invalid digits of `round`", at, expected=expected, found=found, help=advice)
    if scalar.kind == "signed":
        return shaped_result(context, round_integer(node_of(value, context.span(at)), digits), [], at, value.weak)
    exact = elementwise.detach(as_scalar_type(value, ir.f64, context.span(at)))  # like `round`, it has no derivative
    return shaped_result(context, cast_to(round_float(exact, digits), scalar), [], at, value.weak)


# Spellings that `float(...)` accepts for infinities and NaN.
_NON_FINITE_SPELLINGS = frozenset(sign + word for sign in ("", "+", "-") for word in ("inf", "infinity", "nan"))


@intrinsic("float")
def _float(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    require_count(context, values, 1, "float", at)
    (value,) = values
    if isinstance(value.static, str) and value.static.strip().lower() in _NON_FINITE_SPELLINGS:
        return static(float(value.static))
    if not isinstance(value.type, ir.Scalar):
        raise context.error("LG201", f"{name_of(value)} cannot be converted to a float", at)
    return shaped_result(context, as_scalar_type(value, ir.f64, context.span(at)), values, at)


@intrinsic("bool")
def _bool(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    require_count(context, values, 1, "bool", at)
    return to_bool(context, values[0], at)


@intrinsic("radians")
def _radians(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    require_count(context, values, 1, "radians", at)
    return apply_binary(context, ast.Mult(), values[0], static(math.pi / 180.0), at)


@intrinsic("degrees")
def _degrees(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    require_count(context, values, 1, "degrees", at)
    return apply_binary(context, ast.Mult(), values[0], static(180.0 / math.pi), at)


@intrinsic("divmod")
def _divmod(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    require_count(context, values, 2, "divmod", at)
    return tuple_value([apply_binary(context, op, values[0], values[1], at) for op in (ast.FloorDiv(), ast.Mod())])
