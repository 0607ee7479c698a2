"""Compiles `for` and `while` loops, unrolled or as IR loops, with `break`, `continue`, `return` and `else`.

The statements module calls `run_for` and `run_while`; `loop_regions` builds the IR loop from the compiled parts.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from functools import partial

from livegrad.frontend.function.assignment import bound_names, contains, returned_parts, stored_names
from livegrad.frontend.function.binding import assign
from livegrad.frontend.function.branch_regions import branch, get_flag, pending_jump, set_flag
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import Value, name_of, node_of, with_aliases
from livegrad.frontend.function.iteration import Steps, plan_iteration
from livegrad.frontend.function.loop_regions import Loop, run_loop
from livegrad.frontend.function.lvalues import ITERATED
from livegrad.frontend.function.operators import to_bool
from livegrad.frontend.function.parallel_writes import refuse_shared_writes
from livegrad.ir.node import Node
from livegrad.ir.source_lines import originating_from


def continue_unless(context: Context, jump: Node, rest: Callable[[], None], at: ast.AST) -> None:
    """Compiles the rest of a block, which runs only if a possible jump was not taken."""

    def end_path() -> None:
        context.exited = True
        if pending_jump(context, ("$broken", "$continued")) is False:
            set_flag(context, "$returned", True)

    def run_rest() -> None:
        for name in ("$returned", "$broken", "$continued"):
            set_flag(context, name, False)
        rest()

    branch(context, jump, end_path, run_rest, at)


def jump_break(context: Context, statement: ast.Break) -> None:
    set_flag(context, "$broken", True)
    context.exited = True


def jump_continue(context: Context, statement: ast.Continue) -> None:
    set_flag(context, "$continued", True)
    context.exited = True


def _changed_names(loop: ast.For | ast.While) -> set[str]:
    names = stored_names([*loop.body, *([loop.target] if isinstance(loop, ast.For) else [])])
    names.add("$effects")
    if contains(loop.body, ast.Break, loops=False):
        names.add("$broken")
    if contains(loop.body, (ast.Return, ast.Raise), loops=True):
        names |= {"$returned", "$return"} | returned_parts(loop.body)
    return names


def run_while(context: Context, statement: ast.While) -> None:
    test, limit = _split_bounded_condition(context, statement.test)
    endless = isinstance(test, ast.Constant) and bool(test.value)
    jumps = contains(statement.body, ast.Break, loops=False)

    def condition() -> Node:
        value = to_bool(context, context.evaluate(test), test)
        return node_of(value, context.span(test))

    loop = Loop(
        _changed_names(statement),
        context.assigned_after_loop.get(statement, frozenset()),
        lambda index: context.execute(statement.body),
        None,
        condition,
        limit,
        jumps=True,
    )
    _run_with_else(context, loop, statement)
    if endless and not jumps:
        # The only way out is `return`.
        set_flag(context, "$returned", True)
        context.exited = True


def _split_bounded_condition(context: Context, test: ast.expr) -> tuple[ast.expr, int | None]:
    """Splits `bounded(condition, limit)` into the condition and its limit; other conditions have no limit."""
    if not isinstance(test, ast.Call) or len(test.args) != 2:
        return test, None
    callee = context.evaluate(test.func)
    if getattr(callee.static, "__livegrad_intrinsic__", None) != "bounded":
        return test, None
    limit = context.evaluate(test.args[1])
    if not isinstance(limit.static, int):
        raise context.error(
            "LG107", "the limit of a loop must be known at compile time", test.args[1], found=name_of(limit)
        )
    return test.args[0], limit.static


def _run_with_else(context: Context, loop: Loop, statement: ast.For | ast.While) -> None:
    broken = get_flag(context.environment, "$broken")
    with originating_from((context.span(statement).origin,)):
        run_loop(context, loop, statement)
    if statement.orelse:
        _compile_loop_else(context, statement)
    context.environment["$broken"] = broken


def _compile_loop_else(context: Context, statement: ast.For | ast.While) -> None:
    jump = pending_jump(context, ("$broken", "$returned"))
    if isinstance(jump, bool):
        if not jump:
            context.execute(statement.orelse)
        return
    returned = get_flag(context.environment, "$returned")
    branch(context, jump, lambda: None, lambda: context.execute(statement.orelse), statement)
    if not returned.is_static and get_flag(context.environment, "$returned").is_static:
        context.environment["$returned"] = returned
    context.exited = False


def run_for(context: Context, statement: ast.For) -> None:
    before = set(context.environment)
    rebound, context.rebound = context.rebound, frozenset(bound_names([statement.target, *statement.body]))
    steps = plan_iteration(context, statement.iter)
    context.rebound = rebound
    refuse_shared_writes(context, statement, steps.parallel)
    if steps.unrolled is not None:
        for value in steps.iterated_values:
            context.environment[context.temporary(ITERATED.removeprefix("~"))] = value
        _unroll(context, statement, steps.unrolled)
    else:
        _compile_loop(context, statement, steps)
    for name in set(context.environment) - before:
        if name.startswith("~"):
            context.environment.pop(name)
    if not _are_read_later(context, statement):
        for name in bound_names([statement.target]) & context.environment.keys():
            context.environment[name] = with_aliases(context.environment[name], ())


def _are_read_later(context: Context, loop: ast.For) -> bool:
    """Whether the loop's variables may be read after it, other than in loops over the same variables."""
    names = bound_names([loop.target])
    read_in_loops, all_reads = Counter[str](), Counter[str]()
    for statement in context.source.body:
        for node in ast.walk(statement):
            all_reads.update(_read_names(node, names))
            if isinstance(node, ast.For) and names <= bound_names([node.target]):
                inner = [part for child in node.body for part in ast.walk(child)]
                if not any(isinstance(part, ast.For) and names <= bound_names([part.target]) for part in inner):
                    for part in inner:
                        read_in_loops.update(_read_names(part, names))
    return all_reads != read_in_loops


def _read_names(node: ast.AST, names: set[str]) -> list[str]:
    return [node.id] if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names else []


def _compile_loop(context: Context, statement: ast.For, steps: Steps) -> None:
    assert steps.at is not None
    jumps = contains(statement.body, ast.Break, loops=False) or contains(
        statement.body, (ast.Return, ast.Raise), loops=True
    )

    def body(index: Node) -> None:
        assert steps.at is not None
        assign(context, statement.target, steps.at(index))
        context.execute(statement.body)

    loop = Loop(
        _changed_names(statement),
        context.assigned_after_loop.get(statement, frozenset()),
        body,
        steps.iterations,
        None,
        None,
        jumps=jumps,
        parallel=steps.is_parallel,
    )
    _run_with_else(context, loop, statement)


def _unroll(context: Context, statement: ast.For, values: list[Value]) -> None:
    broken = get_flag(context.environment, "$broken")
    set_flag(context, "$broken", False)

    def run_from(first: int) -> None:
        for index in range(first, len(values)):
            assign(context, statement.target, values[index])
            set_flag(context, "$continued", False)
            context.execute(statement.body)
            context.exited = False
            set_flag(context, "$continued", False)
            jump = pending_jump(context, ("$broken", "$returned"))
            if jump is True:
                return
            if isinstance(jump, Node):
                continue_unless(context, jump, partial(run_in_branch, index + 1), statement)
                return
        context.execute(statement.orelse)

    # Run-time values are kept in variables, so that branches which contain later iterations can use them.
    names = []
    for value in values:
        names.append(context.temporary("item"))
        context.environment[names[-1]] = value

    def run_in_branch(first: int) -> None:
        for index, name in enumerate(names):
            values[index] = context.environment[name]
        run_from(first)

    outer = list(values)
    run_from(0)
    values[:] = outer
    returned = get_flag(context.environment, "$returned")
    context.exited = bool(returned.is_static and returned.static)
    context.environment["$broken"] = broken
