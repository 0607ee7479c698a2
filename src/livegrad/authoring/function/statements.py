"""Statements of a captured function: assignment, branches, loops, jumps and assertions.

`execute` runs statements over a context's variables; jumps are flags that make what follows a branch of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from livegrad.authoring.function.assignment import always_exits, contains, stored_names
from livegrad.authoring.function.context import Context
from livegrad.authoring.function.effects import add_check
from livegrad.authoring.function.iteration import iteration_of
from livegrad.authoring.function.narrowing import narrow, narrowings
from livegrad.authoring.function.operators import binary, truth
from livegrad.authoring.function.places import assign_place, forbid_shared, read_place, share
from livegrad.authoring.function.regions import Loop, branch, flag, pending_jump, run_loop, set_flag
from livegrad.authoring.function.types import FrontType, TupleType, plain_type
from livegrad.authoring.function.values import (
    Value,
    array_value,
    convert,
    name_of,
    node_of,
    static,
)
from livegrad.ir import types as ir
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node, originating_from
from livegrad.ops.aggregate import member


def execute(context: Context, statements: list[ast.stmt]) -> None:
    """Statements in order. After a jump that may have happened, the rest is a branch of its own."""
    for index, statement in enumerate(statements):
        rest = statements[index + 1 :]
        if isinstance(statement, ast.If) and rest and (always_exits(statement.body) or always_exits(statement.orelse)):
            # What follows belongs to the way that does not leave: no flags, no second branch.
            _if(context, statement, rest)
            return
        with originating_from((context.span(statement).origin,)):
            _STATEMENTS.get(type(statement), _unsupported)(context, statement)
        if context.exited:
            return
        if rest:
            jump = pending_jump(context)
            if jump is True:
                context.exited = True
                return
            if not isinstance(jump, bool):
                continue_unless(context, jump, partial(execute, context, rest), rest[0])
                return


def continue_unless(context: Context, jump: Node, rest: Callable[[], None], at: ast.AST) -> None:
    """What follows a jump that may have happened."""

    def jumped() -> None:
        context.exited = True
        if pending_jump(context, ("$broken", "$continued")) is False:
            set_flag(context, "$returned", True)

    def go_on() -> None:
        for name in ("$returned", "$broken", "$continued"):
            set_flag(context, name, False)
        rest()

    branch(context, jump, jumped, go_on, at)


def _unsupported(context: Context, statement: ast.stmt) -> None:
    names = {
        "FunctionDef": ("a function inside a function", "define it outside"),
        "With": ("`with`", "it has no meaning in compiled code"),
        "Try": ("`try`", "checks end the run; test the condition before"),
        "Global": ("`global`", "return the value instead"),
        "Nonlocal": ("`nonlocal`", "return the value instead"),
        "Delete": ("`del`", "leave the name alone"),
        "Import": ("`import`", "import at the top of the module"),
        "ImportFrom": ("`import`", "import at the top of the module"),
        "ClassDef": ("a class inside a function", "define it outside"),
        "Match": ("`match`", "write it with if and elif"),
    }
    what, help = names.get(type(statement).__name__, (f"`{type(statement).__name__}`", None))
    raise context.error("LG102", f"functions do not have {what}", statement, help=help)


# --- simple statements -----------------------------------------------------------------------------------------------


def _expression(context: Context, statement: ast.Expr) -> None:
    if isinstance(statement.value, ast.Constant):
        return  # a docstring
    context.evaluate(statement.value)


def _pass(context: Context, statement: ast.Pass) -> None:
    return


def _return(context: Context, statement: ast.Return) -> None:
    value = static(None) if statement.value is None else context.evaluate(statement.value)
    at = statement.value or statement
    value = checked_result(context, value, at)
    context.environment["$return"] = value
    set_flag(context, "$returned", True)
    context.exited = True


def checked_result(context: Context, value: Value, at: ast.AST) -> Value:
    """A result as the annotation wants it."""
    if value.is_static and not value.is_number and value.static is not None:
        value = context_value(context, value, at)
    if context.result_type is None:
        return value
    return convert(value, context.result_type, context.span(at), f"the result of `{context.source.name}`")


def context_value(context: Context, value: Value, at: ast.AST) -> Value:
    raise context.error("LG202", f"{name_of(value)} cannot be a result", at, help="return numbers, vectors or structs")


def _raise(context: Context, statement: ast.Raise) -> None:
    message = "raised"
    call = statement.exc
    if isinstance(call, ast.Call):
        name = call.func.id if isinstance(call.func, ast.Name) else "error"
        texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        message = f"{name}: {texts[0]}" if texts else name
    elif isinstance(call, ast.Name):
        message = call.id
    add_check(context, constant(False, ir.bool_), message)
    set_flag(context, "$returned", True)
    context.exited = True


def _assert(context: Context, statement: ast.Assert) -> None:
    condition = truth(context, context.evaluate(statement.test), statement.test)
    message = "assertion failed"
    if isinstance(statement.msg, ast.Constant) and isinstance(statement.msg.value, str):
        message += f": {statement.msg.value}"
    elif statement.msg is not None:
        message += f": {ast.unparse(statement.msg)}"
    add_check(context, node_of(condition, context.span(statement.test)), message)


# --- assignment ------------------------------------------------------------------------------------------------------


def _assign(context: Context, statement: ast.Assign) -> None:
    value = context.evaluate(statement.value)
    value = share(context, statement.value, value)
    if len(statement.targets) > 1 and value.type is not None:
        value = replace(value, shared=True)
    for target in statement.targets:
        assign(context, target, value)


def assign(context: Context, target: ast.expr, value: Value) -> None:
    """Binds a value to a name, a tuple of names, a component or a field."""
    match target:
        case ast.Name(id=name):
            context.environment[name] = value
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            parts = unpacked(context, value, target)
            if any(isinstance(element, ast.Starred) for element in elements):
                parts = _starred(context, elements, parts, target)
            if len(parts) != len(elements):
                raise context.error(
                    "LG202",
                    "the numbers of values and names differ",
                    target,
                    expected=f"{len(elements)} values",
                    found=str(len(parts)),
                )
            for element, part in zip(elements, parts, strict=True):
                inner = element.value if isinstance(element, ast.Starred) else element
                assign(context, inner, part)
        case ast.Attribute() | ast.Subscript():
            assign_place(context, target, value)
        case _:
            raise context.error("LG102", "functions do not have this kind of assignment", target)


def _starred(context: Context, elements: list[ast.expr], parts: list[Value], at: ast.AST) -> list[Value]:
    place = next(i for i, element in enumerate(elements) if isinstance(element, ast.Starred))
    after = len(elements) - place - 1
    if len(parts) < len(elements) - 1:
        return parts
    middle = parts[place : len(parts) - after]
    return [*parts[:place], array_value(middle, context.span(at)), *parts[len(parts) - after :]]


def unpacked(context: Context, value: Value, at: ast.AST) -> list[Value]:
    """The members of a tuple, list or vector."""
    if value.items is not None:
        return list(value.items)
    type = value.type
    if value.node is not None and type is not None:
        inner = _member_types(type)
        if inner is not None:
            return [
                context.result(own, member(value.node, index), [value], at, value.weak)
                for index, own in enumerate(inner)
            ]
    raise context.error("LG202", f"{name_of(value)} cannot be taken apart", at, expected="a tuple, list or vector")


def _member_types(type: FrontType) -> Sequence[FrontType] | None:
    if isinstance(type, ir.Vector):
        return [type.element] * type.size
    if isinstance(type, TupleType):
        return list(type.elements)
    element, size = getattr(type, "element", None), getattr(type, "size", None)
    return None if element is None or size is None else [element] * size


def _augmented(context: Context, statement: ast.AugAssign) -> None:
    target = statement.target
    if isinstance(target, ast.Name):
        forbid_shared(context, target, statement)
    if isinstance(target, ast.Name):
        load = ast.copy_location(ast.Name(target.id, ast.Load()), target)
        before = context.evaluate(load)
    else:
        before = read_place(context, target)
    after = binary(context, statement.op, before, context.evaluate(statement.value), statement)
    assign(context, target, after)


def _annotated(context: Context, statement: ast.AnnAssign) -> None:
    type = annotation_type(context, statement.annotation)
    if statement.value is None:
        return
    value = share(context, statement.value, context.evaluate(statement.value))
    assign(context, statement.target, convert(value, type, context.span(statement.value), "the value"))


def annotation_type(context: Context, annotation: ast.expr) -> FrontType:
    """The type that an annotation inside a function names."""
    try:
        value = evaluate_annotation(context, annotation)
        return plain_type(value)
    except TypeError as error:
        raise context.error("LG204", str(error), annotation) from None


def evaluate_annotation(context: Context, annotation: ast.expr) -> Any:
    source = context.source
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    names = {**source.function.__globals__, **source.closure}
    try:
        return eval(compile(ast.Expression(annotation), source.file, "eval"), names)
    except Exception as error:
        raise TypeError(f"the annotation cannot be evaluated: {error}") from None


# --- branches --------------------------------------------------------------------------------------------------------


def _if_alone(context: Context, statement: ast.If) -> None:
    _if(context, statement, [])


def _if(context: Context, statement: ast.If, rest: list[ast.stmt]) -> None:
    """A branch, with the statements that follow it as part of the way (if any) that reaches them."""
    body, orelse = list(statement.body), list(statement.orelse)
    if rest:
        if always_exits(body):
            orelse += rest
        else:
            body += rest
    test = truth(context, context.evaluate(statement.test), statement.test)
    if test.is_static:
        context.execute(body if test.static else orelse)
        return
    predicate = node_of(test, context.span(statement.test))
    with originating_from((context.span(statement).origin,)):
        then, otherwise = narrowings(statement.test)
        branch(context, predicate, _way(context, body, then), _way(context, orelse, otherwise), statement)


def _way(context: Context, statements: list[ast.stmt], known: set[str]) -> Callable[[], None]:
    """One way of a branch, on which these names are known to have a value."""

    def run() -> None:
        before = {name: context.environment.get(name) for name in known}
        narrow(context, known)
        narrowed = {name: context.environment.get(name) for name in known}
        context.execute(statements)
        for name, value in before.items():
            if value is not None and context.environment.get(name) is narrowed[name]:
                context.environment[name] = value  # what follows the branch knows no more than before

    return run


# --- loops -----------------------------------------------------------------------------------------------------------


def _break(context: Context, statement: ast.Break) -> None:
    set_flag(context, "$broken", True)
    context.exited = True


def _continue(context: Context, statement: ast.Continue) -> None:
    set_flag(context, "$continued", True)
    context.exited = True


def _changed_names(loop: ast.For | ast.While) -> set[str]:
    names = stored_names([*loop.body, *([loop.target] if isinstance(loop, ast.For) else [])])
    names.add("$effects")
    if contains(loop.body, ast.Break, loops=False):
        names.add("$broken")
    if contains(loop.body, (ast.Return, ast.Raise), loops=True):
        names |= {"$returned", "$return"}
    return names


def _while(context: Context, statement: ast.While) -> None:
    test, limit = _bound(context, statement.test)
    endless = isinstance(test, ast.Constant) and bool(test.value)
    jumps = contains(statement.body, ast.Break, loops=False)

    def condition() -> Node:
        value = truth(context, context.evaluate(test), test)
        return node_of(value, context.span(test))

    loop = Loop(
        _changed_names(statement),
        context.after_loop.get(statement, frozenset()),
        lambda index: context.execute(statement.body),
        None,
        condition,
        limit,
        jumps=True,
    )
    _run(context, loop, statement)
    if endless and not jumps:
        # It can only be left by returning.
        set_flag(context, "$returned", True)
        context.exited = True


def _bound(context: Context, test: ast.expr) -> tuple[ast.expr, int | None]:
    """`while bounded(condition, limit)`: running past the limit is an error."""
    if not isinstance(test, ast.Call) or len(test.args) != 2:
        return test, None
    callee = context.evaluate(test.func)
    if getattr(callee.static, "__livegrad_intrinsic__", None) != "bounded":
        return test, None
    limit = context.evaluate(test.args[1])
    if not isinstance(limit.static, int):
        raise context.error("LG107", "the limit of a loop must be known now", test.args[1], found=name_of(limit))
    return test.args[0], limit.static


def _run(context: Context, loop: Loop, statement: ast.For | ast.While) -> None:
    broken = flag(context.environment, "$broken")
    with originating_from((context.span(statement).origin,)):
        run_loop(context, loop, statement)
    if statement.orelse:
        _loop_else(context, statement)
    context.environment["$broken"] = broken


def _loop_else(context: Context, statement: ast.For | ast.While) -> None:
    jump = pending_jump(context, ("$broken", "$returned"))
    if isinstance(jump, bool):
        if not jump:
            context.execute(statement.orelse)
        return
    returned = flag(context.environment, "$returned")
    branch(context, jump, lambda: None, lambda: context.execute(statement.orelse), statement)
    if not returned.is_static and flag(context.environment, "$returned").is_static:
        context.environment["$returned"] = returned
    context.exited = False


def _for(context: Context, statement: ast.For) -> None:
    steps = iteration_of(context, statement.iter)
    if steps.unrolled is not None:
        _unrolled(context, statement, steps.unrolled)
        return
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
        context.after_loop.get(statement, frozenset()),
        body,
        steps.trips,
        None,
        None,
        jumps=jumps,
    )
    _run(context, loop, statement)


def _unrolled(context: Context, statement: ast.For, values: list[Value]) -> None:
    broken = flag(context.environment, "$broken")
    set_flag(context, "$broken", False)

    def step(first: int) -> None:
        for number in range(first, len(values)):
            assign(context, statement.target, values[number])
            set_flag(context, "$continued", False)
            context.execute(statement.body)
            context.exited = False
            set_flag(context, "$continued", False)
            jump = pending_jump(context, ("$broken", "$returned"))
            if jump is True:
                return
            if isinstance(jump, Node):
                continue_unless(context, jump, partial(_inner_step, step, number + 1), statement)
                return
        context.execute(statement.orelse)

    # The values may be nodes; as variables they reach the branches that later steps are in.
    names = []
    for value in values:
        names.append(context.temporary("item"))
        context.environment[names[-1]] = value

    def _inner_step(run: Callable[[int], None], number: int) -> None:
        for place, name in enumerate(names):
            values[place] = context.environment[name]
        run(number)

    outer = list(values)
    step(0)
    values[:] = outer
    returned = flag(context.environment, "$returned")
    context.exited = bool(returned.is_static and returned.static)
    context.environment["$broken"] = broken


_STATEMENTS: dict[type[ast.stmt], Callable[[Context, Any], None]] = {
    ast.Expr: _expression,
    ast.Pass: _pass,
    ast.Return: _return,
    ast.Raise: _raise,
    ast.Assert: _assert,
    ast.Assign: _assign,
    ast.AugAssign: _augmented,
    ast.AnnAssign: _annotated,
    ast.If: _if_alone,
    ast.For: _for,
    ast.While: _while,
    ast.Break: _break,
    ast.Continue: _continue,
}
