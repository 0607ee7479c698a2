"""Compiles statements: assignments, branches, loops, jumps and assertions.

`execute` compiles statements over the variables of a context. A jump sets a flag, and the statements after it become a
branch that the flag guards.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any

from livegrad.frontend.function.array_patterns import TensorPattern, TuplePattern
from livegrad.frontend.function.arrays import require_writable, update_in_place
from livegrad.frontend.function.assignment import always_exits, part_name, root_name
from livegrad.frontend.function.binding import assign, local_annotation
from livegrad.frontend.function.branch_regions import ReturnedVariable, branch, pending_jump, set_flag
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import (
    Value,
    aliases_of,
    convert,
    name_of,
    node_of,
    static,
    tuple_value,
)
from livegrad.frontend.function.effects import add_check
from livegrad.frontend.function.function_types import ArrayType, TensorType
from livegrad.frontend.function.local_functions import define
from livegrad.frontend.function.loops import continue_unless, jump_break, jump_continue, run_for, run_while
from livegrad.frontend.function.lvalues import forbid_aliased_change, read_lvalue
from livegrad.frontend.function.narrowing import Facts, environment_name, narrow, narrowings
from livegrad.frontend.function.operators import apply_binary, to_bool
from livegrad.frontend.function.signature import array_type_for
from livegrad.ir import types as ir
from livegrad.ir.leaves import constant
from livegrad.ir.source_lines import originating_from


def execute(context: Context, statements: list[ast.stmt]) -> None:
    """Compiles statements in order. After a possible jump, the remaining statements become a branch."""
    for index, statement in enumerate(statements):
        rest = statements[index + 1 :]
        if isinstance(statement, ast.If) and rest and (always_exits(statement.body) or always_exits(statement.orelse)):
            # One path exits, so the statements after it move into the other path: no flags, no second branch.
            _compile_if(context, statement, rest)
            return
        with originating_from((context.span(statement).origin,)):
            _STATEMENTS.get(type(statement), _reject_statement)(context, statement)
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


def _reject_statement(context: Context, statement: ast.stmt) -> None:
    names = {
        "With": ("`with`", "it has no meaning in compiled code"),
        "Try": ("`try`", "a failed check ends the call; test the condition first"),
        "Global": ("`global`", "return the value instead"),
        "Nonlocal": ("`nonlocal`", "return the value instead"),
        "Delete": ("`del`", "remove the statement"),
        "Import": ("`import`", "import at the top of the module"),
        "ImportFrom": ("`import`", "import at the top of the module"),
        "ClassDef": ("a class inside a function", "define it outside"),
    }
    what, help = names.get(type(statement).__name__, (f"`{type(statement).__name__}`", None))
    raise context.error("LG102", f"compiled functions do not support {what}", statement, help=help)


# --- simple statements -----------------------------------------------------------------------------------------------


def _execute_expression(context: Context, statement: ast.Expr) -> None:
    if isinstance(statement.value, ast.Constant):
        return  # a docstring
    context.discarded_expression = statement.value
    context.evaluate(statement.value)
    context.discarded_expression = None


def _execute_pass(context: Context, statement: ast.Pass) -> None:
    return


def _execute_definition(context: Context, statement: ast.FunctionDef) -> None:
    context.environment[statement.name] = define(context, statement)


def _execute_return(context: Context, statement: ast.Return) -> None:
    context.result_target = statement.value, None
    value = static(None) if statement.value is None else context.evaluate(statement.value)
    at = statement.value or statement
    value = check_result(context, value, at)
    note_returned_arrays(context, value)
    context.environment["$return"] = _as_returned_variables(context, value, statement.value)
    set_flag(context, "$returned", True)
    context.exited = True


def _as_returned_variables(context: Context, value: Value, expression: ast.expr | None, name: str = "$return") -> Value:
    """A result as `ReturnedVariable`, if it is the array of a variable, or a tuple with such an array; else unchanged.

    The other parts of the tuple become the hidden variables `NAME.INDEX` (see `returned_parts`).
    """
    if isinstance(expression, ast.Tuple) and value.items is not None:
        names = [part_name(name, index) for index in range(len(value.items))]
        parts = [
            _as_returned_variables(context, *part) for part in zip(value.items, expression.elts, names, strict=True)
        ]
        if all(part is item for part, item in zip(parts, value.items, strict=True)):
            return value
        return tuple_value(
            [
                _kept_in_variables(context, item, element, hidden) if part is item else part
                for part, item, element, hidden in zip(parts, value.items, expression.elts, names, strict=True)
            ]
        )
    if context.inlining or not isinstance(expression, ast.Name) or not isinstance(value.type, TensorType):
        return value
    variable = expression.id
    if variable not in context.environment or not all(variable in names for names in context.enclosing_loops):
        return value
    context.returned_names.add(variable)
    return static(ReturnedVariable(variable))


def _kept_in_variables(context: Context, value: Value, expression: ast.expr, name: str) -> Value:
    """Keeps a part of a result in a hidden variable; the parts of a tuple in several."""
    if isinstance(expression, ast.Tuple) and value.items is not None:
        parts = enumerate(zip(value.items, expression.elts, strict=True))
        return tuple_value([_kept_in_variables(context, *part, part_name(name, index)) for index, part in parts])
    context.environment[name] = value
    return static(ReturnedVariable(name))


def check_result(context: Context, value: Value, at: ast.AST) -> Value:
    """Converts a result to the annotated result type; raises if it cannot be a result."""
    if value.is_static and not value.is_number and value.static is not None:
        raise context.error(
            "LG202", f"{name_of(value)} cannot be a result", at, help="return numbers, vectors or structs"
        )
    pattern = context.result_pattern
    if pattern is not None:
        return _check_array_result(context, pattern, value, at)
    if context.result_type is None:
        return value
    return convert(value, context.result_type, context.span(at), f"the result of `{context.source.name}`")


def _check_array_result(context: Context, pattern: TensorPattern | TuplePattern, value: Value, at: ast.AST) -> Value:
    """Checks a result that contains whole arrays against the sizes in the annotation."""
    if isinstance(pattern, TuplePattern) and value.items is not None and len(value.items) == len(pattern.elements):
        parts = [
            item
            if isinstance(element, TensorPattern | TuplePattern)
            else convert(item, element, context.span(at), "the result")
            for item, element in zip(value.items, pattern.elements, strict=True)
        ]
        value = tuple_value(parts)
    problem = pattern.explain_mismatch(value.type, dict(context.sizes))
    if problem is not None:
        raise context.error("LG202", f"the result of `{context.source.name}` {problem}", at)
    return value


def note_returned_arrays(context: Context, value: Value) -> None:
    """Records which `inout` arrays every result contains in their current version. A caller from Python would not see
    changes of the others.
    """
    if context.inlining:
        return
    parts = value.items or (value,)
    returned_names = {
        name for name in context.inouts if any(part.node is context.environment[name].node for part in parts)
    }
    returned = context.returned_inouts
    context.returned_inouts = returned_names if returned is None or value.static is None else returned & returned_names


def _execute_raise(context: Context, statement: ast.Raise) -> None:
    message = "raised"
    call = statement.exc
    if isinstance(call, ast.Call):
        name = call.func.id if isinstance(call.func, ast.Name) else "error"
        message = f"{name}: {_message_text(context, call.args[0])}" if call.args else name
    elif isinstance(call, ast.Name):
        message = call.id
    add_check(context, constant(False, ir.bool_), message)
    set_flag(context, "$returned", True)
    context.exited = True


def _message_text(context: Context, text: ast.expr) -> str:
    """The text of a message; run-time values are replaced by their source text in braces."""
    if isinstance(text, ast.Constant):
        return str(text.value)
    if isinstance(text, ast.JoinedStr):
        return "".join(_message_text(context, part) for part in text.values)
    inner = text.value if isinstance(text, ast.FormattedValue) else text
    value = context.evaluate(inner)
    return str(value.static) if value.is_static else f"{{{ast.unparse(inner)}}}"


def _execute_assert(context: Context, statement: ast.Assert) -> None:
    condition = to_bool(context, context.evaluate(statement.test), statement.test)
    message = "assertion failed"
    if statement.msg is not None:
        message += f": {_message_text(context, statement.msg)}"
    add_check(context, node_of(condition, context.span(statement.test)), message)


# --- assignment ------------------------------------------------------------------------------------------------------


def _execute_assign(context: Context, statement: ast.Assign) -> None:
    if len(statement.targets) == 1:
        context.result_target = statement.value, frozenset(_assigned_names(statement.targets[0]))
    value = context.evaluate(statement.value)
    if len(statement.targets) > 1:
        value = context.bind_object(value, statement)  # one object with several names
    for target in statement.targets:
        assign(context, target, value)


def _assigned_names(target: ast.expr) -> list[str]:
    """The names that an assignment binds."""
    if isinstance(target, ast.Tuple | ast.List):
        return [name for element in target.elts for name in _assigned_names(element)]
    return [target.id] if isinstance(target, ast.Name) else []


def _execute_augmented_assign(context: Context, statement: ast.AugAssign) -> None:
    target = statement.target
    if isinstance(target, ast.Name):
        load = ast.copy_location(ast.Name(target.id, ast.Load()), target)
        before = context.evaluate(load)
    else:
        before = read_lvalue(context, target)
        context.ordered_writes += 1
    root = root_name(target)
    if root is not None and isinstance(before.type, ArrayType | TensorType | ir.Vector | ir.Matrix):
        forbid_aliased_change(context, root, _lvalue_depth(target), statement)  # `+=` changes these in place
    after = apply_binary(context, statement.op, before, context.evaluate(statement.value), statement)
    if isinstance(target, ast.Name) and isinstance(before.type, TensorType):
        require_writable(context, target.id, aliases_of(before), statement)
        context.environment[target.id] = update_in_place(context, before, after, statement)
        return
    assign(context, target, after)


def _lvalue_depth(target: ast.expr) -> int:
    """The depth of an lvalue inside its variable."""
    return 1 + _lvalue_depth(target.value) if isinstance(target, ast.Attribute | ast.Subscript) else 0


def _execute_annotated_assign(context: Context, statement: ast.AnnAssign) -> None:
    annotation = local_annotation(context, statement.annotation)
    if statement.value is None:
        return
    context.result_target = statement.value, frozenset(_assigned_names(statement.target))
    value = context.evaluate(statement.value)
    type = annotation.type if annotation.list_element is None else array_type_for(annotation.list_element, value.type)
    if type is None:
        type_name = name_of(value)
        raise context.error(
            "LG202", "the value has the wrong type", statement, expected=repr(annotation), found=type_name
        )
    assign(context, statement.target, convert(value, type, context.span(statement.value), "the value"))


# --- branches --------------------------------------------------------------------------------------------------------


def _execute_if(context: Context, statement: ast.If) -> None:
    _compile_if(context, statement, [])


def _compile_if(context: Context, statement: ast.If, rest: list[ast.stmt]) -> None:
    """Compiles a branch. `rest`, the statements after it, become part of the one path that does not exit."""
    body, orelse = list(statement.body), list(statement.orelse)
    if rest:
        if always_exits(body):
            orelse += rest
        else:
            body += rest
    test = to_bool(context, context.evaluate(statement.test), statement.test)
    if test.is_static:
        context.execute(body if test.static else orelse)
        return
    predicate = node_of(test, context.span(statement.test))
    with originating_from((context.span(statement).origin,)):
        then, otherwise = narrowings(statement.test)
        branch(
            context,
            predicate,
            _narrowed_path(context, body, then),
            _narrowed_path(context, orelse, otherwise),
            statement,
        )


def _narrowed_path(context: Context, statements: list[ast.stmt], facts: Facts) -> Callable[[], None]:
    """A callable that compiles one path of a branch under the given type facts."""

    def run() -> None:
        names = [environment_name(path) for path in facts]
        before = {name: context.environment.get(name) for name in names}
        narrow(context, facts)
        narrowed = {name: context.environment.get(name) for name in names}
        context.execute(statements)
        for name, value in before.items():
            if value is not None and context.environment.get(name) is narrowed[name]:
                context.environment[name] = value  # the facts hold only inside the branch

    return run


_STATEMENTS: dict[type[ast.stmt], Callable[[Context, Any], None]] = {
    ast.Expr: _execute_expression,
    ast.FunctionDef: _execute_definition,
    ast.Pass: _execute_pass,
    ast.Return: _execute_return,
    ast.Raise: _execute_raise,
    ast.Assert: _execute_assert,
    ast.Assign: _execute_assign,
    ast.AugAssign: _execute_augmented_assign,
    ast.AnnAssign: _execute_annotated_assign,
    ast.If: _execute_if,
    ast.For: run_for,
    ast.While: run_while,
    ast.Break: jump_break,
    ast.Continue: jump_continue,
}
