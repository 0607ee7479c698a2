"""Compiles expressions to values, with Python's short-circuit evaluation.

`evaluate` dispatches on the kind of expression. Operands of `and`, `or` and conditional expressions are computed only
if they are needed, except for cheap ones that cannot fail.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from math import prod
from types import ModuleType
from typing import Any, TypeVar

from livegrad.frontend.function.binding import assign
from livegrad.frontend.function.branch_regions import Conflict, branch
from livegrad.frontend.function.calls import call, call_value, method_of
from livegrad.frontend.function.comparisons import compare
from livegrad.frontend.function.compile_state import Context, snapshot
from livegrad.frontend.function.compile_values import (
    Value,
    array_advice,
    from_python,
    name_of,
    node_of,
    runtime,
    static,
    tuple_value,
)
from livegrad.frontend.function.complex_numbers import PARTS
from livegrad.frontend.function.comprehensions import evaluate_comprehension
from livegrad.frontend.function.function_types import FrontType, RecordType, TensorType
from livegrad.frontend.function.intrinsics import INTRINSICS
from livegrad.frontend.function.iteration import evaluate_all
from livegrad.frontend.function.local_functions import define
from livegrad.frontend.function.lvalues import read_field, read_index, read_swizzle
from livegrad.frontend.function.narrowing import Facts, environment_name, narrow, narrow_field, narrowings
from livegrad.frontend.function.operators import apply_binary, apply_unary, convert_to_common_type, logical_and, to_bool
from livegrad.frontend.function.type_rules import rules
from livegrad.ir import types as ir
from livegrad.ops.elementwise import select


def evaluate(context: Context, expression: ast.expr) -> Value:
    """The value of an expression."""
    handler = _EXPRESSIONS.get(type(expression))
    if handler is None:
        descriptions = {
            "Dict": "dictionaries",
            "Set": "sets",
            "DictComp": "dictionaries",
            "SetComp": "sets",
            "Yield": "`yield`",
            "YieldFrom": "`yield`",
            "Await": "`await`",
        }
        name = descriptions.get(type(expression).__name__, f"`{type(expression).__name__}`")
        advice = "use a struct for named fields, or a list" if name == "dictionaries" else None
        raise context.error("LG102", f"compiled functions do not support {name}", expression, help=advice)
    return handler(context, expression)


def _evaluate_constant(context: Context, node: ast.Constant) -> Value:
    return static(node.value)


def _evaluate_name(context: Context, node: ast.Name) -> Value:
    value = context.environment.get(node.id)
    if value is None:
        outside = context.lookup_outside(node)
        if isinstance(outside, TypeVar):
            outside = context.type_variables.get(outside, outside)
        return context.outside_value(outside, node.id, node)
    if isinstance(value.static, Conflict):
        raise context.error(
            "LG203",
            f"`{node.id}` has different types on different paths",
            node,
            found=f"{value.static.first} and {value.static.second}",
            help="use two names, or convert one of the values",
        )
    return value


def _evaluate_binary(context: Context, node: ast.BinOp) -> Value:
    return apply_binary(context, node.op, context.evaluate(node.left), context.evaluate(node.right), node)


def _evaluate_unary(context: Context, node: ast.UnaryOp) -> Value:
    return apply_unary(context, node.op, context.evaluate(node.operand), node)


# --- conditional evaluation ------------------------------------------------------------------------------------------

_SPECULATABLE = (
    ast.Name, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.cmpop, ast.boolop, ast.unaryop, ast.expr_context,
    ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Attribute,
)  # fmt: skip


def _is_speculatable(expression: ast.expr) -> bool:
    """Whether an expression may be computed even if it is not needed: it is cheap and cannot fail."""
    return all(isinstance(part, _SPECULATABLE) for part in ast.walk(expression))


def _is_trivial(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Name | ast.Constant) or (
        isinstance(expression, ast.UnaryOp) and isinstance(expression.operand, ast.Constant)
    )


def _evaluate_boolean(context: Context, node: ast.BoolOp) -> Value:
    is_and = isinstance(node.op, ast.And)
    value = context.evaluate(node.values[0])
    facts: Facts = {}  # type facts that hold where the previous operands did not decide the result
    for index, right in enumerate(node.values[1:]):
        then, otherwise = narrowings(node.values[index])
        facts |= then if is_and else otherwise
        value = _short_circuit(context, is_and, value, right, node.values[index], facts)
    return value


def _short_circuit(context: Context, is_and: bool, left: Value, right: ast.expr, at: ast.expr, facts: Facts) -> Value:
    """`left and right` or `left or right`; the right operand is computed only if the left one does not decide."""
    test = to_bool(context, left, at)
    if test.is_static:
        return _evaluate_narrowed(context, right, facts) if bool(test.static) is is_and else left
    if left.type is ir.bool_ and _is_speculatable(right):
        right_value = _evaluate_narrowed(context, right, facts)
        if right_value.type is ir.bool_:
            if is_and:
                return logical_and(left, right_value, context, right)
            nodes = [node_of(value, context.span(right)) for value in (left, right_value)]
            return runtime(ir.bool_, nodes[0] | nodes[1])
    result, left_name = context.outcome(), context.outcome()
    context.environment[left_name] = left

    def use_left() -> None:
        context.environment[result] = context.environment[left_name]

    def compute_right() -> None:
        context.environment[result] = _evaluate_narrowed(context, right, facts)

    paths = (compute_right, use_left) if is_and else (use_left, compute_right)
    branch(context, node_of(test, context.span(at)), *paths, right)
    context.environment.pop(left_name)
    return _require_one_type(context, context.environment.pop(result), right)


def _evaluate_narrowed(context: Context, expression: ast.expr, facts: Facts) -> Value:
    """The value of an expression under the given type facts."""
    names = [environment_name(path) for path in facts]
    before = {name: context.environment.get(name) for name in names}
    narrow(context, facts)
    value = context.evaluate(expression)
    for name, previous in before.items():
        if previous is None:
            context.environment.pop(name, None)
        else:
            context.environment[name] = previous
    return value


def _require_one_type(context: Context, value: Value, at: ast.AST) -> Value:
    if isinstance(value.static, Conflict):
        found = f"{value.static.first} and {value.static.second}"
        raise context.error("LG203", "the two branches have different types", at, found=found)
    return value


def _evaluate_conditional(context: Context, node: ast.IfExp) -> Value:
    test = to_bool(context, context.evaluate(node.test), node.test)
    if test.is_static:
        return context.evaluate(node.body if test.static else node.orelse)
    predicate = node_of(test, context.span(node.test))
    narrowed = any(narrowings(node.test))
    if _is_trivial(node.body) and _is_trivial(node.orelse) and not narrowed:
        then, otherwise = context.evaluate(node.body), context.evaluate(node.orelse)
        if isinstance(then.type, ir.Scalar) and isinstance(otherwise.type, ir.Scalar):
            type, a, b = convert_to_common_type(context, then, otherwise, node)
            selected = select(predicate, *(node_of(value, context.span(node)) for value in (a, b)))
            return context.result(type, selected, [then, otherwise], node, then.weak and otherwise.weak)
    result = context.outcome()
    then_facts, otherwise_facts = narrowings(node.test)

    def path(expression: ast.expr, facts: Facts) -> Callable[[], None]:
        def run() -> None:
            context.environment[result] = _evaluate_narrowed(context, expression, facts)

        return run

    branch(context, predicate, path(node.body, then_facts), path(node.orelse, otherwise_facts), node)
    return _require_one_type(context, context.environment.pop(result), node)


def _evaluate_comparison(context: Context, node: ast.Compare) -> Value:
    """`a < b < c` evaluates `b < c` only if `a < b` holds; `b` is computed once."""
    left = context.evaluate(node.left)
    total: Value | None = None
    for index, (op, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
        if total is not None and not total.is_static and not _is_speculatable(right):
            return _compare_rest(context, total, left, node, index)
        value = context.evaluate(right)
        answer = compare(context, op, left, value, node)
        total = answer if total is None else logical_and(total, answer, context, node)
        left = value
    assert total is not None
    return total


def _compare_rest(context: Context, total: Value, left: Value, node: ast.Compare, index: int) -> Value:
    """The comparisons from `index` on, evaluated only if all previous ones hold."""
    result, left_name = context.outcome(), context.temporary("left")
    context.environment[left_name] = left
    left_expression = ast.copy_location(ast.Name(left_name, ast.Load()), node)
    rest = ast.copy_location(ast.Compare(left_expression, node.ops[index:], node.comparators[index:]), node)

    def compare_rest() -> None:
        context.environment[result] = context.evaluate(rest)

    def give_false() -> None:
        context.environment[result] = static(False)

    branch(context, node_of(total, context.span(node)), compare_rest, give_false, node)
    context.environment.pop(left_name)
    return context.environment.pop(result)


# --- parts -----------------------------------------------------------------------------------------------------------


def _evaluate_attribute(context: Context, node: ast.Attribute) -> Value:
    value = context.evaluate(node.value)
    name = node.attr
    if value.type is None and value.is_static:
        return _evaluate_static_attribute(context, value.static, node)
    if isinstance(value.type, RecordType):
        index = value.type.index_of(name)
        if index is not None:
            return narrow_field(context, node, read_field(context, value, index, node))
        if name in value.type.properties:
            return call_value(context, value.type.properties[name], [value], {}, node)
    if isinstance(value.type, TensorType) and name in _ARRAY_ATTRIBUTES:
        return from_python(_ARRAY_ATTRIBUTES[name](value.type), context.span(node))
    if isinstance(value.type, ir.Scalar) and name in PARTS:
        return INTRINSICS[PARTS[name]](context, [value], node)
    component = read_swizzle(context, value, name, node)
    if component is not None:
        return component
    method = method_of(context, value, name, node)
    if method is not None:
        return method
    field_names = ", ".join(field.name for field in value.type.fields) if isinstance(value.type, RecordType) else None
    help = array_advice(value) if name in _ARRAY_ATTRIBUTES else None
    raise context.error("LG207", f"{name_of(value)} has no attribute `{name}`", node, expected=field_names, help=help)


_ARRAY_ATTRIBUTES: dict[str, Callable[[TensorType], Any]] = {
    "shape": lambda type: type.shape,
    "ndim": lambda type: len(type.shape),
    "size": lambda type: prod(type.shape),
    "dtype": lambda type: type.element,
}


def _evaluate_static_attribute(context: Context, owner: Any, node: ast.Attribute) -> Value:
    for rule in rules.type_attribute if isinstance(owner, FrontType) else ():
        attribute = rule(owner, node.attr)
        if attribute is not None:
            return from_python(attribute, context.span(node))
    try:
        attribute = getattr(owner, node.attr)
    except AttributeError:
        raise context.error("LG207", f"{name_of(static(owner))} has no attribute `{node.attr}`", node) from None
    # Reading a bound method creates a new object each time, which no snapshot could match; it changes with its class.
    if attribute is getattr(owner, node.attr) or isinstance(owner, ModuleType) or not isinstance(owner, type):
        context.dependencies.attributes.append((owner, node.attr, snapshot(attribute)))
    return context.outside_value(attribute, node.attr, node)


def _evaluate_subscript(context: Context, node: ast.Subscript) -> Value:
    return read_index(context, context.evaluate(node.value), node.slice, node)


def _evaluate_tuple(context: Context, node: ast.Tuple) -> Value:
    return tuple_value(evaluate_all(context, node.elts))


def _evaluate_list(context: Context, node: ast.List) -> Value:
    return context.list_of(evaluate_all(context, node.elts), node)


def _assign_expression(context: Context, node: ast.NamedExpr) -> Value:
    assign(context, node.target, context.evaluate(node.value))
    return context.environment[node.target.id]


def _format_string(context: Context, node: ast.JoinedStr) -> Value:
    parts = []
    for part in node.values:
        value = context.evaluate(part.value if isinstance(part, ast.FormattedValue) else part)
        if not value.is_static:
            raise context.error(
                "LG102",
                "an f-string can only contain values that are known at compile time",
                part,
                help="use print(...)",
            )
        form = ""
        if isinstance(part, ast.FormattedValue):
            conversion = "" if part.conversion == -1 else f"!{chr(part.conversion)}"
            spec = "" if part.format_spec is None else f":{context.evaluate(part.format_spec).static}"
            form = conversion + spec
        parts.append(f"{{{form}}}".format(value.static))
    return static("".join(parts))


_EXPRESSIONS: dict[type[ast.expr], Callable[[Context, Any], Value]] = {
    ast.Constant: _evaluate_constant,
    ast.Name: _evaluate_name,
    ast.BinOp: _evaluate_binary,
    ast.UnaryOp: _evaluate_unary,
    ast.BoolOp: _evaluate_boolean,
    ast.IfExp: _evaluate_conditional,
    ast.Compare: _evaluate_comparison,
    ast.Attribute: _evaluate_attribute,
    ast.Subscript: _evaluate_subscript,
    ast.Tuple: _evaluate_tuple,
    ast.List: _evaluate_list,
    ast.ListComp: evaluate_comprehension,
    ast.GeneratorExp: evaluate_comprehension,
    ast.NamedExpr: _assign_expression,
    ast.JoinedStr: _format_string,
    ast.Call: call,
    ast.Lambda: define,
}
