"""Compiles list comprehensions and generator expressions: unrolled to a list, or summed by a loop.

Importing the module adds `sum` to `SPECIAL_FORMS`.
"""

from __future__ import annotations

import ast
from typing import Any

from livegrad.frontend.function.array_arithmetic import array_intrinsic, is_array
from livegrad.frontend.function.assignment import stored_names
from livegrad.frontend.function.binding import assign
from livegrad.frontend.function.calls import arguments_of
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import Value, static
from livegrad.frontend.function.intrinsics import INTRINSICS, SPECIAL_FORMS
from livegrad.frontend.function.iteration import static_elements
from livegrad.frontend.function.operators import to_bool


def evaluate_comprehension(context: Context, node: ast.ListComp | ast.GeneratorExp) -> Value:
    """A list of static length."""
    return context.list_of(comprehension_values(context, node), node)


def comprehension_values(context: Context, node: ast.ListComp | ast.GeneratorExp) -> list[Value]:
    """The elements of a comprehension, unrolled; its variables do not outlive it."""
    before = dict(context.environment)
    values: list[Value] = []

    def expand(depth: int) -> None:
        if depth == len(node.generators):
            values.append(context.evaluate(node.elt))
            return
        generator = node.generators[depth]
        items = static_elements(context, generator.iter)
        if items is None:
            raise context.error(
                "LG107",
                "the length of a list must be known at compile time",
                generator.iter,
                help="use a loop that accumulates the result",
            )
        for item in items:
            assign(context, generator.target, item)
            tests = [to_bool(context, context.evaluate(test), test) for test in generator.ifs]
            if any(not test.is_static for test in tests):
                raise context.error("LG107", "the condition of a list's elements must be known at compile time", node)
            if all(test.static for test in tests):
                expand(depth + 1)

    expand(0)
    context.environment = before
    return values


def _evaluate_sum(context: Context, node: ast.Call) -> Value:
    """`sum(f(i) for i in range(n))`: a loop with an accumulator; the number of values need not be static."""
    generator = node.args[0] if len(node.args) == 1 and not node.keywords else None
    if not isinstance(generator, ast.GeneratorExp):
        positional, keywords = arguments_of(context, node)
        if len(positional) == 1 and list(keywords) == ["start"]:
            positional, keywords = [*positional, keywords["start"]], {}
        if keywords or not positional:
            raise context.error("LG108", "`sum` takes values and `start`", node)
        if is_array(positional[0]):
            return array_intrinsic(context, "sum", positional, node)
        return INTRINSICS["sum"](context, positional, node)
    total = context.temporary("total")

    def at(new_node: ast.expr) -> Any:
        return ast.copy_location(new_node, node)

    body: list[ast.stmt] = [
        ast.copy_location(ast.AugAssign(at(ast.Name(total, ast.Store())), ast.Add(), generator.elt), generator.elt)
    ]
    for part in reversed(generator.generators):
        for test in reversed(part.ifs):
            body = [ast.copy_location(ast.If(test, body, []), test)]
        body = [ast.copy_location(ast.For(part.target, part.iter, body, []), part.iter)]
    names = stored_names([part.target for part in generator.generators])
    before = {name: context.environment[name] for name in names if name in context.environment}
    context.environment[total] = static(0)
    context.execute(body)
    for name in names:
        context.environment.pop(name, None)
    context.environment.update(before)
    return context.environment.pop(total)


SPECIAL_FORMS["sum"] = _evaluate_sum
