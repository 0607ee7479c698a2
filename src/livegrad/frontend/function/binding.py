"""Binds values to assignment targets: names, tuples of names, components and fields; evaluates local annotations.

Statements, loops and comprehensions call `assign`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from livegrad.frontend.function.arrays import require_same_array
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import Value, name_of
from livegrad.frontend.function.function_types import FrontType, TupleType
from livegrad.frontend.function.lvalues import assign_lvalue
from livegrad.frontend.function.signature import Annotation, read_annotation
from livegrad.frontend.function.type_reading import plain_type
from livegrad.ir import types as ir
from livegrad.ops.aggregate import member


def assign(context: Context, target: ast.expr, value: Value) -> None:
    """Binds a value to a name, a tuple of names, a component or a field."""
    match target:
        case ast.Name(id=name):
            require_same_array(context, name, value, target)
            context.environment[name] = context.bind_object(value, target)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            parts = unpack(context, value, target)
            if any(isinstance(element, ast.Starred) for element in elements):
                parts = _collect_starred(context, elements, parts, target)
            if len(parts) != len(elements):
                raise context.error(
                    "LG202",
                    "the number of values does not match the number of names",
                    target,
                    expected=f"{len(elements)} values",
                    found=str(len(parts)),
                )
            for element, part in zip(elements, parts, strict=True):
                inner = element.value if isinstance(element, ast.Starred) else element
                assign(context, inner, part)
        case ast.Attribute() | ast.Subscript():
            assign_lvalue(context, target, value)
        case _:
            raise context.error("LG102", "compiled functions do not support this kind of assignment", target)


def _collect_starred(context: Context, elements: list[ast.expr], parts: list[Value], at: ast.AST) -> list[Value]:
    index = next(i for i, element in enumerate(elements) if isinstance(element, ast.Starred))
    after = len(elements) - index - 1
    if len(parts) < len(elements) - 1:
        return parts
    middle = parts[index : len(parts) - after]
    return [*parts[:index], context.list_of(middle, at), *parts[len(parts) - after :]]


def unpack(context: Context, value: Value, at: ast.AST) -> list[Value]:
    """The members of a tuple, list or vector."""
    if value.items is not None:
        return list(value.items)
    type = value.type
    if value.node is not None and type is not None:
        inner = _member_types(type)
        if inner is not None:
            return [
                context.part(element_type, member(value.node, index), value, at, value.weak)
                for index, element_type in enumerate(inner)
            ]
    raise context.error("LG202", f"{name_of(value)} cannot be unpacked", at, expected="a tuple, list or vector")


def _member_types(type: FrontType) -> Sequence[FrontType] | None:
    if isinstance(type, ir.Vector):
        return [type.element] * type.size
    if isinstance(type, TupleType):
        return list(type.elements)
    element, size = getattr(type, "element", None), getattr(type, "size", None)
    return None if element is None or size is None else [element] * size


# --- annotations inside functions ------------------------------------------------------------------------------------


def annotation_type(context: Context, annotation: ast.expr) -> FrontType:
    """The type that an annotation in a function body names."""
    try:
        value = evaluate_annotation(context, annotation)
        return plain_type(value)
    except TypeError as error:
        raise context.error("LG204", str(error), annotation) from None


def local_annotation(context: Context, annotation: ast.expr) -> Annotation:
    """Reads the annotation of a variable: a type, or a list whose length comes from the value."""
    try:
        declared = read_annotation(evaluate_annotation(context, annotation))
    except TypeError as error:
        raise context.error("LG204", str(error), annotation) from None
    if declared.no_diff:
        problem = "a variable cannot be `no_diff`: only parameters, results and fields can"
        raise context.error("LG204", problem, annotation, help="assign `detach(value)` to it")
    return Annotation(annotation_type(context, annotation)) if declared.list_element is None else declared


def evaluate_annotation(context: Context, annotation: ast.expr) -> Any:
    source = context.source
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    names = {**source.function.__globals__, **source.closure}
    try:
        return eval(compile(ast.Expression(annotation), source.file, "eval"), names)
    except Exception as error:
        raise TypeError(f"the annotation cannot be evaluated: {error}") from None
