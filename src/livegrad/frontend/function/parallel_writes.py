"""Static race detection: rejects `for i in parallel(n)` if two iterations provably write the same element.

`loops` calls `refuse_shared_writes` before it compiles such a loop. The check covers writes that every iteration
reaches, with indices that depend only on the loop variable and constants, or that are the same in every iteration.
`f.debug(...)` finds other races at run time (`parallel_debugging`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from livegrad.frontend.function.assignment import bound_names
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.function_types import TensorType

_MAX_CHECKED_ITERATIONS = 4096
_ARITHMETIC = (
    ast.Constant, ast.Name, ast.BinOp, ast.UnaryOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub,
    ast.Load, ast.Tuple,
)  # fmt: skip
Index = tuple[int | str, ...]  # of a write: evaluated indices, and the source text of loop-invariant ones


def refuse_shared_writes(context: Context, loop: ast.For, values: range | None) -> None:
    """Raises if two iterations of a parallel loop over `values` write the same element of an array from outside."""
    if values is None or len(values) < 2 or not isinstance(loop.target, ast.Name):
        return
    private = bound_names(loop.body)
    for target, inner in _find_certain_writes(context, loop.body, private, ()):
        name = target.value.id if isinstance(target.value, ast.Name) else None
        variable = None if name is None else context.environment.get(name)
        if name is None or name in private or variable is None or not isinstance(variable.type, TensorType):
            continue
        collision = _find_collision(context, target.slice, loop.target.id, (private, set(inner)), variable.type, values)
        if collision is not None:
            first, second, index = collision
            raise context.error(
                "LG111",
                f"two iterations of this parallel loop write `{name}[{index}]`",
                target,
                found=f"`{loop.target.id}` is {first} and {second}",
                help="use `range` for a loop whose iterations depend on each other; `+=` adds in order",
            )


def _find_certain_writes(
    context: Context, statements: list[ast.stmt], private: set[str], inner: tuple[str, ...]
) -> Iterator[tuple[ast.Subscript, tuple[str, ...]]]:
    """Yields the element assignments that every iteration reaches, with the variables of their inner loops."""
    for statement in statements:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Subscript):
                    yield target, inner
        elif isinstance(statement, ast.For) and isinstance(statement.target, ast.Name):
            if _always_runs(context, statement, private):
                yield from _find_certain_writes(context, statement.body, private, (*inner, statement.target.id))
        elif not isinstance(statement, ast.AugAssign | ast.AnnAssign | ast.Expr | ast.Pass):
            return  # statements after a branch or jump may be unreachable


def _always_runs(context: Context, loop: ast.For, private: set[str]) -> bool:
    """Whether an inner loop runs at least once, over the same values in every iteration of the outer loop."""
    call = loop.iter
    if private & {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}:
        return False
    if not isinstance(call, ast.Call) or call.keywords or not 1 <= len(call.args) <= 2:
        return False
    bounds = [_evaluate_constant(context, argument, {}) for argument in call.args]
    if None in bounds:
        return False
    return bool(range(*[bound for bound in bounds if bound is not None]))


def _is_arithmetic(expression: ast.expr) -> bool:
    return all(isinstance(node, _ARITHMETIC) for node in ast.walk(expression))


def _evaluate_constant(context: Context, expression: ast.expr, variables: dict[str, int]) -> int | None:
    """The value of an arithmetic expression of static ints and `variables`; None for other expressions."""
    names = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
    if not _is_arithmetic(expression):
        return None
    values: dict[str, int] = dict(variables)
    for name in names - values.keys():
        variable = context.environment.get(name)
        if variable is None or not isinstance(variable.static, int):
            return None
        values[name] = variable.static
    try:
        value = eval(compile(ast.Expression(expression), "<index>", "eval"), {"__builtins__": {}}, values)
    except ZeroDivisionError:
        return None
    return value if isinstance(value, int) else None


def _find_collision(
    context: Context, index: ast.expr, variable: str, bound: tuple[set[str], set[str]], type: TensorType, values: range
) -> tuple[int, int, str] | None:
    """Two values of the loop variable that give the same index, and the text of the index; None if there are none.
    `bound` is the set of names that an iteration binds, and the set of those that inner loops iterate over.
    """
    private, inner = bound
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    first_values: dict[Index, int] = {}
    for value in values[:_MAX_CHECKED_ITERATIONS]:
        key: list[int | str] = []
        for part, size in zip(parts, type.shape, strict=False):
            names = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}
            number = None if names & private else _evaluate_constant(context, part, {variable: value})
            if number is not None:
                key.append(number % size if size else number)
            elif variable in names or names & (private - inner) or not _is_arithmetic(part):
                return None
            else:
                key.append(ast.unparse(part))
        first = first_values.setdefault(tuple(key), value)
        if first != value:
            return first, value, ", ".join(map(str, key))
    return None
