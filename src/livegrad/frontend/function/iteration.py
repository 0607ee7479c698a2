"""Compiles the iterables of `for` loops: ranges, lists, vectors, tuples, `enumerate`, `zip`, `reversed` and `unroll`.

In: an iterable expression. Out: `Steps`, the number of iterations and the value at an index, or all values to unroll.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from dataclasses import dataclass, replace

from livegrad.frontend.function.array_arithmetic import array_result
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import (
    Value,
    name_of,
    node_of,
    runtime,
    static,
    tuple_value,
    with_aliases,
)
from livegrad.frontend.function.function_types import ArrayType, TensorType
from livegrad.frontend.function.lvalues import ITERATED
from livegrad.frontend.function.operators import expect_int
from livegrad.ir import types as ir
from livegrad.ir.leaves import constant, constant_op
from livegrad.ir.node import Node
from livegrad.ops import comparison, elementwise
from livegrad.ops.aggregate import get_at, member
from livegrad.ops.control import check
from livegrad.ops.indexing import lookup
from livegrad.passes.affine_bounds import Range, range_of
from livegrad.tensors.handle import wrap

_INTEGERS = 1 << 63  # int64 values are in [-_INTEGERS, _INTEGERS)


@dataclass
class Steps:
    """The iterations of a loop: either `unrolled` values, or a number of `iterations` and a function `at` from an index
    to a value, which is called when the body is compiled.
    """

    iterations: Node | None = None
    at: Callable[[Node], Value] | None = None
    unrolled: list[Value] | None = None
    static_iterations: int | None = None
    iterated_values: tuple[Value, ...] = ()  # the lists that are iterated over, as they are before the loop
    is_parallel: bool = False
    parallel: range | None = None  # the range of a parallel loop, if it is static


def plan_iteration(context: Context, expression: ast.expr) -> Steps:
    """The steps of a loop over the value of an expression."""
    if isinstance(expression, ast.Call):
        callee = context.evaluate(expression.func)
        handler = _CALLS.get(callee.static) if callee.is_static and _is_hashable(callee.static) else None
        if handler is None and getattr(callee.static, "__livegrad_intrinsic__", None) == "unroll":
            handler = _iterate_unrolled
        if handler is None and getattr(callee.static, "__livegrad_intrinsic__", None) == "parallel":
            handler = _iterate_parallel
        if handler is not None:
            return handler(context, expression)
    return _iterate_value(context, context.evaluate(expression), expression)


def _is_hashable(value: object) -> bool:
    return getattr(type(value), "__hash__", None) is not None


def _iterate_value(context: Context, value: Value, at: ast.AST) -> Steps:
    if value.items is not None:
        return Steps(unrolled=list(value.items))
    if value.is_static and isinstance(value.static, range | list | tuple | set | frozenset | dict):
        items = [static(item) for item in value.static]
        if isinstance(value.static, range):
            values = value.static
            return _make_range_steps(context, static(values.start), static(values.stop), static(values.step), at)
        return Steps(unrolled=items)
    if isinstance(value.type, ArrayType | ir.Vector) and value.node is not None:
        name = _iterable_variable(context, value, at)
        size = value.type.size
        if size == 0:
            return Steps(
                unrolled=[], iterated_values=(value,)
            )  # an empty list has no element type to compile a body for

        def element(index: Node) -> Value:
            container = context.environment[name]
            assert container.node is not None
            assert isinstance(container.type, ArrayType | ir.Vector)
            return context.part(container.type.element, get_at(container.node, index), container, at, container.weak)

        return Steps(constant(size, ir.i64), element, static_iterations=size, iterated_values=(value,))
    if isinstance(value.type, TensorType) and value.type.shape and value.node is not None:
        return _iterate_tensor(context, value, at)
    raise context.error(
        "LG107", f"a loop cannot iterate over {name_of(value)}", at, expected="a range, list, vector or tuple"
    )


def _iterable_variable(context: Context, value: Value, at: ast.AST) -> str:
    """The variable that a loop reads elements from: the list's own variable, so that changes are visible as in Python,
    or a hidden variable if the loop rebinds the name.
    """
    if isinstance(at, ast.Name) and at.id not in context.rebound and context.environment.get(at.id) is value:
        return at.id
    name = context.temporary(ITERATED.removeprefix("~"))
    context.environment[name] = value
    return name


def _iterate_tensor(context: Context, value: Value, at: ast.AST) -> Steps:
    name = context.temporary("over")
    context.environment[name] = value
    assert isinstance(value.type, TensorType)
    size = value.type.shape[0]

    def element(index: Node) -> Value:
        container = context.environment[name]
        assert container.node is not None
        assert isinstance(container.type, TensorType)
        if len(container.type.shape) == 1:
            return context.result(container.type.element, lookup(container.node, index), [container], at)
        row = array_result(context, wrap(container.node)[wrap(index)], [container], at)
        return with_aliases(row, container.aliases)  # a row is a view in NumPy

    return Steps(constant(size, ir.i64), element, static_iterations=size)


def _iterate_range(context: Context, call: ast.Call) -> Steps:
    if call.keywords or not 1 <= len(call.args) <= 3:
        raise context.error("LG108", "range takes one to three numbers", call)
    values = [context.evaluate(argument) for argument in call.args]
    if len(values) == 1:
        values = [static(0), values[0]]
    if len(values) == 2:
        values.append(static(1))
    return _make_range_steps(context, values[0], values[1], values[2], call)


def _iterate_parallel(context: Context, call: ast.Call) -> Steps:
    if call.keywords or not 1 <= len(call.args) <= 2:
        raise context.error("LG108", "`parallel` takes one or two numbers", call)
    steps = _iterate_range(context, call)
    bounds = [context.evaluate(argument).static for argument in call.args]
    is_static = all(isinstance(bound, int) for bound in bounds)
    return replace(steps, is_parallel=True, parallel=range(*bounds) if is_static else None)


def _make_range_steps(context: Context, start: Value, stop: Value, step: Value, at: ast.AST) -> Steps:
    bounds = [value.static for value in (start, stop, step)]
    if all(isinstance(number, int) for number in bounds):
        if bounds[2] == 0:
            raise context.error("LG107", "range's step must not be zero", at)
        count = max(0, -((bounds[0] - bounds[1]) // bounds[2]))  # `len(range(...))` fails beyond the size of an index
        if not all(-_INTEGERS <= number < _INTEGERS for number in (*bounds, count)):
            raise context.error("LG107", "a range beyond 64 bits", at)
        values = _make_affine_values(context, start, step, at, _range_bounds(context, start, stop, step, at))
        return Steps(constant(count, ir.i64), values, static_iterations=count)
    first, last, stride = (expect_int(context, value, at, "a bound of range") for value in (start, stop, step))
    if isinstance(step.static, int):
        if step.static == 0:
            raise context.error("LG107", "range's step must not be zero", at)
        if step.static == 1:
            iterations = last - first if start.static != 0 else last
        else:
            sign = 1 if step.static > 0 else -1
            iterations = elementwise.floor_div(last - first + (step.static - sign), stride)
    else:
        message = "range's step must not be zero"
        stride = check(stride, comparison.not_equal(stride, 0), message=message)
        iterations = elementwise.floor_div(last - first + stride - elementwise.sign(stride), stride)
    bounds = _range_bounds(context, start, stop, step, at)
    return Steps(
        iterations,
        _make_affine_values(
            context, _bound_value(context, start, first), _bound_value(context, step, stride), at, bounds
        ),
    )


def _range_bounds(context: Context, start: Value, stop: Value, step: Value, at: ast.AST) -> Range | None:
    """The smallest and the largest value of a range, or None if unknown.

    An array access omits the handling of negative indices if its index is provably not negative.
    """
    if not isinstance(step.static, int):
        return None
    first, last = (expect_int(context, value, at, "a bound of range") for value in (start, stop))
    lowest, highest = range_of(first, context.ranges), range_of(last, context.ranges)
    if lowest is None or highest is None:
        return None
    low, high = (lowest[0], highest[1] - 1) if step.static > 0 else (highest[0] + 1, lowest[1])
    return (low, high) if low <= high else None


def _bound_value(context: Context, value: Value, node: Node) -> Value:
    return value if value.is_static else runtime(ir.i64, node)


def _make_affine_values(
    context: Context, start: Value, step: Value, at: ast.AST, bounds: Range | None
) -> Callable[[Node], Value]:
    """start + index * step, as a function of the index; hidden variables make the operands visible to the body."""
    names = [context.temporary("start"), context.temporary("step")]
    for name, operand in zip(names, (start, step), strict=True):
        context.environment[name] = operand

    def value(index: Node) -> Value:
        first, stride = (node_of(context.environment[name], context.span(at)) for name in names)
        scaled = index if step.static == 1 else index * stride
        result = scaled if start.static == 0 else scaled + first
        if bounds is not None and result.op is not constant_op:
            context.ranges[result] = bounds
        return runtime(ir.i64, result)

    return value


def _iterate_enumerate(context: Context, call: ast.Call) -> Steps:
    if not 1 <= len(call.args) + len(call.keywords) <= 2 or not call.args or {k.arg for k in call.keywords} - {"start"}:
        raise context.error("LG108", "`enumerate` takes an iterable and `start`", call)
    start = context.evaluate(call.args[1]) if len(call.args) > 1 else static(0)
    for keyword in call.keywords:
        start = context.evaluate(keyword.value)
    if not isinstance(start.static, int):
        raise context.error("LG107", "enumerate's start must be known at compile time", call)
    offset = start.static
    inner = plan_iteration(context, call.args[0])
    if inner.unrolled is not None:
        numbered = [tuple_value([static(offset + k), value]) for k, value in enumerate(inner.unrolled)]
        return Steps(unrolled=numbered, iterated_values=inner.iterated_values)
    at = inner.at
    assert at is not None
    return Steps(
        inner.iterations,
        lambda index: tuple_value([runtime(ir.i64, index + offset if offset else index), at(index)]),
        static_iterations=inner.static_iterations,
        iterated_values=inner.iterated_values,
    )


def _iterate_zip(context: Context, call: ast.Call) -> Steps:
    inner = [plan_iteration(context, argument) for argument in call.args]
    iterated_values = tuple(value for steps in inner for value in steps.iterated_values)
    if any(keyword.arg != "strict" for keyword in call.keywords):
        raise context.error("LG108", "`zip` takes iterables and `strict`", call)
    if any(context.evaluate(keyword.value).static is not False for keyword in call.keywords):
        lengths = {steps.static_iterations if steps.unrolled is None else len(steps.unrolled) for steps in inner}
        if None in lengths:
            raise context.error("LG107", "the lengths of a strict `zip` must be known at compile time", call)
        if len(lengths) > 1:
            raise context.error(
                "LG107",
                "the iterables of a strict `zip` have different lengths",
                call,
                found=", ".join(map(str, lengths)),
            )
    if inner and all(steps.unrolled is None for steps in inner):
        iterations = inner[0].iterations
        assert iterations is not None
        for steps in inner[1:]:
            assert steps.iterations is not None
            iterations = elementwise.min(iterations, steps.iterations)
        static_lengths = [steps.static_iterations for steps in inner]
        least = None if None in static_lengths else min(k for k in static_lengths if k is not None)
        return Steps(
            iterations if least is None else constant(least, ir.i64),
            lambda index: tuple_value([steps.at(index) for steps in inner if steps.at is not None]),
            static_iterations=least,
            iterated_values=iterated_values,
        )
    static_elements = [_unroll_values(context, steps, call) for steps in inner]
    return Steps(
        unrolled=[tuple_value(row) for row in zip(*static_elements, strict=False)], iterated_values=iterated_values
    )


def _unroll_values(context: Context, steps: Steps, at: ast.AST) -> list[Value]:
    """All values of a loop of static length."""
    if steps.unrolled is not None:
        return steps.unrolled
    if steps.static_iterations is None or steps.at is None:
        raise context.error(
            "LG107", "the number of iterations must be known at compile time", at, help="loop over a range of constants"
        )
    values = []
    for index in range(steps.static_iterations):
        value = steps.at(constant(index, ir.i64))
        values.append(_fold_constant_index(value))
    return values


def _fold_constant_index(value: Value) -> Value:
    """Folds an index that is computed from constants, so that an element access needs no bounds check."""
    if value.items is not None:
        return tuple_value([_fold_constant_index(item) for item in value.items])
    node = value.node
    if node is None:
        return value
    number = _fold_constant_node(node)
    if number is not None:
        return static(number)
    if node.op is get_at:
        index = _fold_constant_node(node.operands[1])
        if index is not None:
            element = member(node.operands[0], index)
            return (
                with_aliases(runtime(value.type, element, value.flow, value.weak), value.aliases)
                if value.type
                else value
            )
    return value


def _fold_constant_node(node: Node) -> int | None:
    if node.op.name == "constant" and node.type is ir.i64:
        return node.attribute("value")
    if node.op.name in ("add", "mul") and node.type is ir.i64:
        parts = [_fold_constant_node(operand) for operand in node.operands]
        if parts[0] is not None and parts[1] is not None:
            return parts[0] + parts[1] if node.op.name == "add" else parts[0] * parts[1]
    return None


def _iterate_reversed(context: Context, call: ast.Call) -> Steps:
    _require_single_argument(context, call, "reversed")
    inner = plan_iteration(context, call.args[0])
    if inner.unrolled is not None:
        return Steps(unrolled=inner.unrolled[::-1], iterated_values=inner.iterated_values)
    iterations, at = inner.iterations, inner.at
    assert iterations is not None
    assert at is not None
    name = context.temporary("last")
    context.environment[name] = runtime(ir.i64, iterations - 1)

    def value(index: Node) -> Value:
        last = context.environment[name].node
        assert last is not None
        return at(last - index)

    return Steps(iterations, value, static_iterations=inner.static_iterations, iterated_values=inner.iterated_values)


def _require_single_argument(context: Context, call: ast.Call, name: str) -> None:
    if len(call.args) != 1 or call.keywords:
        raise context.error("LG108", f"`{name}` takes one iterable", call)


def _iterate_unrolled(context: Context, call: ast.Call) -> Steps:
    _require_single_argument(context, call, "unroll")
    inner = plan_iteration(context, call.args[0])
    return Steps(unrolled=_unroll_values(context, inner, call), iterated_values=inner.iterated_values)


_CALLS: dict[object, Callable[[Context, ast.Call], Steps]] = {
    builtins.range: _iterate_range,
    builtins.enumerate: _iterate_enumerate,
    builtins.zip: _iterate_zip,
    builtins.reversed: _iterate_reversed,
}


def static_elements(context: Context, expression: ast.expr) -> list[Value] | None:
    """All values of an iterable of static length; None if the length is known only at run time."""
    steps = plan_iteration(context, expression)
    if steps.unrolled is None and steps.static_iterations is None:
        return None
    return _unroll_values(context, steps, expression)


def evaluate_all(context: Context, elements: list[ast.expr]) -> list[Value]:
    """Evaluates expressions in order; expands `*values` of static length."""
    values: list[Value] = []
    for element in elements:
        if isinstance(element, ast.Starred):
            inner = static_elements(context, element.value)
            if inner is None:
                raise context.error("LG102", "the number of values after `*` must be known at compile time", element)
            values += inner
        else:
            values.append(context.evaluate(element))
    return values
