"""Compiles calls of captured functions, types, methods and intrinsics.

In: a call expression. Out: its value. Objects of other modules are callable if they define `__livegrad_call__`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from livegrad.frontend.function.aliases import aliases_of_container, aliases_of_shallow_copy
from livegrad.frontend.function.array_arithmetic import array_intrinsic, is_array
from livegrad.frontend.function.array_creation import scalar_type
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import (
    Value,
    aliases_of,
    as_scalar_type,
    convert,
    from_python,
    name_of,
    node_of,
    static,
    with_aliases,
)
from livegrad.frontend.function.complex_numbers import METHODS
from livegrad.frontend.function.function_types import MISSING, ArrayType, RecordType, TensorType, describe
from livegrad.frontend.function.intrinsics import INTRINSICS, SPECIAL_FORMS, intrinsic_of
from livegrad.frontend.function.iteration import evaluate_all
from livegrad.frontend.function.overloads import call_captured
from livegrad.frontend.function.type_rules import rules
from livegrad.frontend.function.vectors import ShapedConstructor
from livegrad.ir import types as ir
from livegrad.ops.aggregate import make, members_of, splat

Keywords = dict[str, Value]


@dataclass(frozen=True, eq=False)
class BoundMethod:
    """A method with its instance, as a value that can only be called."""

    target: Value
    name: str
    run: Callable[[Context, Value, list[Value], Keywords, ast.AST], Value]


def call(context: Context, node: ast.Call) -> Value:
    """The value of a call."""
    callee = context.evaluate(node.func)
    if callee.type is not None or callee.items is not None:
        raise context.error("LG109", f"{name_of(callee)} cannot be called", node.func)
    name = intrinsic_of(callee.static)
    if name in SPECIAL_FORMS:
        return SPECIAL_FORMS[name](context, node)
    positional, keywords = arguments_of(context, node)
    return call_value(context, callee.static, positional, keywords, node)


def arguments_of(context: Context, node: ast.Call) -> tuple[list[Value], Keywords]:
    """Evaluates the arguments; expands `*values` of static length."""
    positional = evaluate_all(context, node.args)
    keywords: Keywords = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise context.error("LG102", "compiled functions do not support `**` in calls", keyword.value)
        keywords[keyword.arg] = context.evaluate(keyword.value)
    return positional, keywords


def call_value(context: Context, callee: Any, positional: list[Value], keywords: Keywords, at: ast.AST) -> Value:
    """Compiles a call of a static callee."""
    if isinstance(callee, BoundMethod):
        return callee.run(context, callee.target, positional, keywords, at)
    if isinstance(callee, CapturedFunction):
        positional, keywords = _export_arguments(context, positional, keywords, at)
        return call_captured(context, callee, positional, keywords, at)
    custom = getattr(callee, "__livegrad_call__", None)
    if custom is not None and not isinstance(callee, type):
        return custom(context, positional, keywords, at)
    name = intrinsic_of(callee)
    if name is not None:
        return _call_intrinsic(context, name, callee, positional, keywords, at)
    if isinstance(callee, ShapedConstructor):
        return _construct_shaped(context, callee, positional, at)
    if isinstance(callee, ir.Scalar):
        return _cast(context, callee, positional, at)
    if isinstance(callee, type) and issubclass(callee, np.number | np.bool_):
        return _cast(context, scalar_type(context, static(callee), ir.f64, at), positional, at)
    record = getattr(callee, "__livegrad_type__", None)
    if isinstance(callee, type) and isinstance(record, RecordType):
        return construct(context, record, positional, keywords, at)
    if isinstance(callee, RecordType):
        return construct(context, callee, positional, keywords, at)
    if isinstance(callee, BuiltinFunctionType) and callee.__module__ == "math":
        folded = _fold_call(callee, [value.static for value in positional]) if not keywords else MISSING
        if folded is not MISSING:
            return static(folded)
    if isinstance(callee, FunctionType) and _is_library_function(callee):
        raise context.error(
            "LG109",
            f"livegrad's `{callee.__name__}` cannot be called in a compiled function",
            at,
            help="call it outside and pass the result; a list of n zeros is [0.0] * n",
        )
    if isinstance(callee, FunctionType):
        positional, keywords = _export_arguments(context, positional, keywords, at)
        return call_captured(context, context.function_class.capture(callee), positional, keywords, at)
    if isinstance(callee, MethodType) and isinstance(callee.__func__, FunctionType):
        instance = from_python(callee.__self__, context.span(at))
        return call_captured(
            context, context.function_class.capture(callee.__func__), [instance, *positional], keywords, at
        )
    raise context.error(
        "LG109",
        f"{name_of(static(callee))} cannot be called in a compiled function",
        at,
        help="use a Python function, a function of math or numpy, or a type",
    )


def _export_arguments(
    context: Context, positional: list[Value], keywords: Keywords, at: ast.AST
) -> tuple[list[Value], Keywords]:
    """Converts local functions among the arguments to standalone functions, which cannot use enclosing variables."""

    def export(value: Value) -> Value:
        capture_standalone = getattr(value.static, "__livegrad_argument__", None)
        return value if capture_standalone is None else static(capture_standalone(context, at))

    return [export(value) for value in positional], {name: export(value) for name, value in keywords.items()}


def _call_intrinsic(
    context: Context, name: str, callee: Any, positional: list[Value], keywords: Keywords, at: ast.AST
) -> Value:
    if positional and all(value.is_number for value in positional) and not keywords and callable(callee):
        folded = _fold_call(callee, [value.static for value in positional])
        if folded is not MISSING:
            return static(folded)
    if name not in ("len", "copy", "print", "detach") and any(map(is_array, positional)) and not keywords:
        return array_intrinsic(context, name, positional, at)
    handler = INTRINSICS.get(name)
    if handler is None:
        raise context.error("LG109", f"the compiler does not support `{name}`", at)
    shown = name.removesuffix("_int")
    arguments = _bind_builtin(callee, positional, keywords)
    if arguments is None:
        raise context.error("LG108", f"`{shown}` takes no keywords", at, found=", ".join(keywords))
    if not arguments:
        raise context.error("LG108", f"`{shown}` needs an argument", at)
    return handler(context, arguments, at)


def _bind_builtin(callee: Any, positional: list[Value], keywords: Keywords) -> list[Value] | None:
    """The arguments of a builtin by position, as in `round(x, ndigits=2)`; None if they cannot be bound that way."""
    if not keywords:
        return positional
    try:
        bound = signature(callee).bind(*positional, **keywords)
    except (TypeError, ValueError):
        return None
    return None if bound.kwargs else list(bound.args)


def _is_library_function(callee: FunctionType) -> bool:
    """Whether a plain function belongs to livegrad; errors would point into a file that users did not write."""
    return (callee.__module__ or "").partition(".")[0] == __name__.partition(".")[0]


def _fold_call(callee: Any, numbers: list[Any]) -> Any:
    """Evaluates a function of `math` on static numbers; `MISSING` if that fails."""
    try:
        result = callee(*numbers)
    except Exception:
        return MISSING  # the compiled code reports the error, or follows IEEE rules where Python raises
    return result if type(result) in (bool, int, float) else MISSING


# --- calls of types --------------------------------------------------------------------------------------------------


def _cast(context: Context, scalar: ir.Scalar, positional: list[Value], at: ast.AST) -> Value:
    if len(positional) != 1:
        raise context.error("LG108", f"{describe(scalar)} takes one value", at, found=str(len(positional)))
    (value,) = positional
    if not isinstance(value.type, ir.Scalar | ir.Vector | ir.Matrix):
        raise context.error("LG201", f"{name_of(value)} cannot be converted to {describe(scalar)}", at)
    if value.is_number and scalar.kind in ("signed", "unsigned"):
        value = static(int(value.static))
    node = as_scalar_type(value, scalar, context.span(at))
    assert isinstance(node.type, ir.Scalar | ir.Vector | ir.Matrix)
    return context.result(node.type, node, [value], at)


def _construct_shaped(context: Context, constructor: ShapedConstructor, positional: list[Value], at: ast.AST) -> Value:
    type = constructor.type
    span = context.span(at)
    parts = []
    for value in positional:
        if not isinstance(value.type, ir.Scalar | ir.Vector | ir.Matrix | ArrayType):
            raise context.error("LG201", f"{constructor.name} cannot be constructed from {name_of(value)}", at)
        if isinstance(value.type, ArrayType):
            inner = [Value(value.type.element, node, weak=value.weak) for node in members_of(node_of(value, span))]
            parts += [as_scalar_type(item, type.element, span) for item in inner]
            continue
        node = as_scalar_type(value, type.element, span)
        parts += [node] if isinstance(node.type, ir.Scalar) else members_of(node)
    count = len(ir.components(type))
    if len(parts) == 1 and count != 1:
        return context.result(type, splat(parts[0], type=type), positional, at)
    if len(parts) != count:
        raise context.error("LG108", f"{constructor.name} takes 1 or {count} numbers", at, found=str(len(parts)))
    return context.result(type, make(*parts, type=type), positional, at)


def construct(context: Context, record: RecordType, positional: list[Value], keywords: Keywords, at: ast.AST) -> Value:
    """Constructs a struct from positional and keyword arguments and defaults."""
    fields = record.fields
    span = context.span(at)
    if len(positional) > len(fields):
        raise context.error("LG108", f"{record} has {len(fields)} fields", at, found=f"{len(positional)} values")
    by_name = {field.name: value for field, value in zip(fields, positional, strict=False)}
    for name, value in keywords.items():
        if record.index_of(name) is None or name in by_name:
            what = "has two values for" if name in by_name else "has no field"
            raise context.error("LG108", f"{record} {what} `{name}`", at)
        by_name[name] = value
    values = []
    for field in fields:
        value = by_name.get(field.name)
        if value is None:
            if field.default is MISSING:
                raise context.error("LG108", f"{record} needs a value for `{field.name}`", at)
            value = context.outside_value(field.default, f"{record}.{field.name}", at)
        value = convert(value, field.type, span, f"field `{field.name}`")
        if field.no_diff:
            value = context.with_flow(value, "field", [value], at, field.name)
        values.append(value)
    node = make(*[node_of(value, span) for value in values], type=record.ir)
    return with_aliases(context.result(record, node, values, at), aliases_of_container(map(aliases_of, values)))


# --- methods ---------------------------------------------------------------------------------------------------------


def method_of(context: Context, value: Value, name: str, at: ast.AST) -> Value | None:
    """A method of a value, as a static `BoundMethod`; None if there is no method of that name."""
    if isinstance(value.type, RecordType) and name in value.type.methods:
        method = value.type.methods[name]
        return static(BoundMethod(value, name, _method_runner(method)))
    for rule in rules.method:
        resolved = rule(context, value, name)
        if resolved is not None:
            return static(resolved)
    if name == "copy" and isinstance(value.type, ArrayType | TensorType | ir.Vector | ir.Matrix | RecordType):
        return static(BoundMethod(value, name, lambda context, target, *_: _copy_value(target)))
    if name in METHODS and isinstance(value.type, ir.Scalar):
        return static(BoundMethod(value, name, _intrinsic_method(METHODS[name])))
    if name in ("append", "pop", "insert", "extend") and isinstance(value.type, ArrayType):
        raise context.error("LG102", "a list cannot grow in a compiled function", at, help="write [0.0] * n first")
    return None


def _intrinsic_method(name: str) -> Callable[[Context, Value, list[Value], Keywords, ast.AST], Value]:
    def run(context: Context, target: Value, positional: list[Value], keywords: Keywords, at: ast.AST) -> Value:
        if keywords:
            raise context.error("LG108", "this method takes no keywords", at, found=", ".join(keywords))
        return INTRINSICS[name](context, [target, *positional], at)

    return run


def _copy_value(value: Value) -> Value:
    """The result of `.copy()`: a list of the same elements, or a struct whose fields are copied too."""
    return with_aliases(value, aliases_of_shallow_copy(value.aliases) if isinstance(value.type, ArrayType) else ())


def _method_runner(method: Any) -> Callable[[Context, Value, list[Value], Keywords, ast.AST], Value]:
    def run(context: Context, target: Value, positional: list[Value], keywords: Keywords, at: ast.AST) -> Value:
        inner = method.__func__ if isinstance(method, staticmethod) else method
        first = [] if isinstance(method, staticmethod) else [target]
        return call_value(context, inner, [*first, *positional], keywords, at)

    return run
