"""Compiles operators and functions on whole arrays by tracing the same operations on lazy tensors.

Python numbers take the element type of the array operand; without one they are 64 bits wide. Used by operators, calls
and slices.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

from livegrad.diagnostics import LivegradError
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import Value, as_scalar_type, name_of
from livegrad.frontend.function.function_errors import FunctionError
from livegrad.frontend.function.function_types import TensorType
from livegrad.frontend.function.promotion import promote
from livegrad.ir import types as ir
from livegrad.ops.indexing import lookup
from livegrad.tensors import namespace, products
from livegrad.tensors.handle import Tensor, wrap

# Intrinsics that accept whole arrays, mapped to the names of the tensor functions.
_IN_FLOATS = (
    "sqrt", "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "hypot", "atan2",
)  # fmt: skip
_IN_ANY_TYPE = (
    "floor", "ceil", "trunc", "round", "abs", "sign", "square", "minimum", "maximum", "where", "pow", "sum", "prod",
    "max", "min", "any", "all", "dot", "matmul",
)  # fmt: skip
_FUNCTIONS = {name: name for name in (*_IN_FLOATS, *_IN_ANY_TYPE)} | {
    "is_nan": "isnan", "is_infinite": "isinf", "is_finite": "isfinite", "clamp": "clip",
}  # fmt: skip


def is_array(value: Value) -> bool:
    return isinstance(value.type, TensorType)


def _element(value: Value) -> ir.Scalar | None:
    element = value.type.element if isinstance(value.type, TensorType) else value.type
    return element if isinstance(element, ir.Scalar) else None


def _operands(context: Context, values: Sequence[Value], name: str, at: ast.AST, floats: bool) -> list[Tensor]:
    """Converts arrays and numbers to tensors of one element type; weakly typed numbers take the type of the others."""
    common: tuple[ir.Scalar, bool] | None = None
    for value in values:
        element = _element(value)
        if element is None:
            raise context.error("LG201", f"`{name}` does not accept {name_of(value)} together with an array", at)
        if common is None:
            common = element, value.weak
        else:
            common = promote(*common, element, value.weak), common[1] and value.weak
    assert common is not None
    scalar = common[0]
    scalar = ir.f64 if floats and scalar.kind not in ("float", "complex") else scalar
    return [wrap(as_scalar_type(value, scalar, context.span(at))) for value in values]


def array_operation(
    context: Context, run: Callable[..., Any], values: Sequence[Value], name: str, at: ast.AST, floats: bool = False
) -> Value:
    """Applies an elementwise operation to arrays and numbers, with NumPy's broadcasting."""
    operands = _operands(context, values, name, at, floats)
    result = trace_tensors(context, at, lambda: run(*operands))
    assert isinstance(result.node.type, ir.Tensor)
    differentiable = ir.is_differentiable(result.node.type.element)
    return array_result(context, result, list(values) if differentiable else [], at)


def array_binary(context: Context, op: ast.operator, symbol: str, values: Sequence[Value], at: ast.AST) -> Value:
    """`left op right` where at least one operand is an array."""
    return array_operation(context, _OPERATORS[type(op)], values, symbol, at, floats=isinstance(op, ast.Div))


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}  # fmt: skip


def array_intrinsic(context: Context, name: str, values: Sequence[Value], at: ast.AST) -> Value:
    """Calls an intrinsic on whole arrays."""
    if name not in _FUNCTIONS:
        raise context.error("LG201", f"`{name}` does not accept whole arrays", at, help="loop over the elements")
    if name == "where":
        return _where(context, values, at)
    run = products.dot if name == "dot" else getattr(namespace, _FUNCTIONS[name])
    return array_operation(context, run, values, name, at, floats=name in _IN_FLOATS)


def _where(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    if len(values) != 3:
        raise context.error("LG108", "`where` takes 3 arguments", at, found=str(len(values)))
    condition = _operands(context, values[:1], "where", at, False)[0]
    then, otherwise = _operands(context, values[1:], "where", at, False)
    result = trace_tensors(context, at, lambda: namespace.where(condition, then, otherwise))
    return array_result(context, result, list(values[1:]), at)


def trace_tensors(context: Context, at: ast.AST, compute: Callable[[], Tensor]) -> Tensor:
    """Traces an operation on lazy tensors. Its errors are reported at the line of the captured function."""
    try:
        return compute()
    except FunctionError:
        raise
    except LivegradError as error:
        details = {"expected": error.expected, "found": error.found, "help": error.help}
        raise context.error("LG208", error.what, at, **details) from None


def array_result(context: Context, tensor: Tensor, inputs: list[Value], at: ast.AST) -> Value:
    """Converts a lazy tensor to a value: an array, or a number if it has no dimensions."""
    type = tensor.node.type
    assert isinstance(type, ir.Tensor)
    if not type.shape:
        return context.result(type.element, lookup(tensor.node), inputs, at)
    shape = tuple(size for size in type.shape if isinstance(size, int))  # captured functions have no symbolic sizes
    return context.result(TensorType(type.element, shape), tensor.node, inputs, at)
