"""`no_diff`, which excludes parameters, results, fields and calls from differentiation."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any, TypeVar

from livegrad.frontend.function.calls import BoundMethod, arguments_of, call_value
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import Value, flows_of, name_of, tuple_value
from livegrad.frontend.function.function_types import differential_type
from livegrad.frontend.function.intrinsics import SPECIAL_FORMS, intrinsic_of
from livegrad.frontend.function.lvalues import detach_value
from livegrad.frontend.function.signature import NoDiff

Item = TypeVar("Item")


class NoDiffMarker:
    """`no_diff[T]` annotates a parameter, result or field; `no_diff(f(x))` drops the derivative of a call.

    >>> no_diff(2.0)
    2.0
    """

    __livegrad_intrinsic__ = "no_diff"

    def __getitem__(self, annotation: Any) -> NoDiff:
        return NoDiff(annotation)

    def __call__(self, value: Item) -> Item:
        return value

    def __repr__(self) -> str:
        return "no_diff"


no_diff = NoDiffMarker()


def drop_derivative(value: Value) -> Value:
    """Drops the derivative of a value."""
    if value.items is not None:
        return tuple_value([drop_derivative(item) for item in value.items])
    if value.node is None:
        return value
    return replace(value, node=detach_value(value.node), flow=None)


def _no_diff_call(context: Context, node: ast.Call) -> Value:
    if len(node.args) != 1 or node.keywords:
        raise context.error("LG108", "`no_diff` takes one call", node)
    (inner,) = node.args
    if not isinstance(inner, ast.Call):
        raise context.error(
            "LG303", "`no_diff` goes directly on a call", inner, help="write detach(...) to drop a value's derivative"
        )
    if not context.differentiable:
        raise context.error(
            "LG304",
            f"this `no_diff` does nothing: `{context.source.name}` is not differentiable",
            node,
            help="remove it, or decorate the function with @differentiable",
        )
    callee = context.evaluate(inner.func)
    positional, keywords = arguments_of(context, inner)
    target = callee.static
    values = [*positional, *keywords.values()]
    if isinstance(target, BoundMethod):
        values.append(target.target)
        target = replace(target, target=drop_derivative(target.target))
    discarded_expression = [drop_derivative(value) for value in positional]
    result = call_value(
        context, target, discarded_expression, {n: drop_derivative(v) for n, v in keywords.items()}, inner
    )
    if context.complete_signature and (result.type is None or differential_type(result.type) is None):
        raise context.error(
            "LG304",
            "this `no_diff` does nothing: the result has no derivative",
            node,
            found=name_of(result),
            help="remove it",
        )
    # On a call of a differentiable function, `no_diff` must drop something; on other calls it may be redundant.
    is_differentiable = getattr(target, "differentiable", False) or intrinsic_of(target) is not None
    kind = "no_diff" if is_differentiable else "cut"
    flow = context.graph.add(kind, context.span(node), flows_of(*values))
    return replace(result, flow=flow) if result.items is None else result


SPECIAL_FORMS["no_diff"] = _no_diff_call
