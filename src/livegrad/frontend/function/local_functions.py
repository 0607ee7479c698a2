"""Inlines nested functions (`def` and `lambda`) at their calls.

A nested function sees the enclosing variables as they are at the call. One that uses none of them can also be passed as
an argument: it is then captured as a standalone function.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

from livegrad.frontend.function.aliases import MAX_ALIAS_DEPTH
from livegrad.frontend.function.assignment import DefiniteAssignment, bound_names, stored_names
from livegrad.frontend.function.binding import annotation_type
from livegrad.frontend.function.branch_regions import FLAGS, get_flag, set_flag
from livegrad.frontend.function.calls import Keywords
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import Value, aliases_of, convert, static
from livegrad.frontend.function.function_types import NONE
from livegrad.frontend.function.python_source import Source

Definition = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True, eq=False)
class LocalFunction:
    """A nested function; `defaults` maps parameters to the hidden variables that hold their defaults."""

    definition: Definition
    defaults: Mapping[str, str]

    @property
    def name(self) -> str:
        return "lambda" if isinstance(self.definition, ast.Lambda) else self.definition.name

    @property
    def __name__(self) -> str:  # type: ignore[override]
        return self.name

    def __livegrad_call__(self, context: Context, positional: list[Value], keywords: Keywords, at: ast.AST) -> Value:
        return _inline_call(context, self, positional, keywords, at)

    def __livegrad_argument__(self, context: Context, at: ast.AST) -> CapturedFunction:
        """Captures the function as a standalone function, so that it can be passed as an argument."""
        return _capture_standalone(context, self, at)


def define(context: Context, definition: Definition) -> Value:
    """Defines a local function and returns it as a static value."""
    arguments = definition.args
    extra = arguments.vararg or arguments.kwarg
    if extra is not None:
        raise context.error(
            "LG102", f"compiled functions do not support `*{extra.arg}`", extra, help="name each parameter"
        )
    if isinstance(definition, ast.FunctionDef) and definition.decorator_list:
        raise context.error(
            "LG102", "a nested function cannot have decorators", definition.decorator_list[0],
            help="define it outside",
        )  # fmt: skip
    positional = [*arguments.posonlyargs, *arguments.args]
    with_default = positional[len(positional) - len(arguments.defaults) :]
    pairs = [*zip(with_default, arguments.defaults, strict=True)]
    pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
    defaults = {}
    for argument, default in pairs:
        # Defaults live in variables, because branches and loops replace the nodes of variables by their own inputs.
        variable = defaults[argument.arg] = context.temporary("default")
        context.environment[variable] = context.bind_object(context.evaluate(default), default)
    return static(LocalFunction(definition, defaults))


def _source_of(context: Context, function: LocalFunction) -> Source:
    return replace(context.source, definition=function.definition)


def _parameters(function: LocalFunction) -> list[ast.arg]:
    arguments = function.definition.args
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def _inline_call(
    context: Context, function: LocalFunction, positional: Sequence[Value], keywords: Keywords, at: ast.AST
) -> Value:
    if function.definition in context.inlining:
        raise context.error("LG105", f"`{function.name}` calls itself", at, help="write it as a loop")
    source = _source_of(context, function)
    arguments = _bind_arguments(context, function, positional, keywords, at)
    names = [argument.arg for argument in _parameters(function)]
    local_names = bound_names(source.body) | set(names)
    changed = sorted(stored_names(source.body) - local_names)
    if changed:
        # Enclosing loops and branches find the names that they change by syntax, which does not show this change.
        raise context.error(
            "LG102", f"`{function.name}` changes `{changed[0]}` of the enclosing function", at,
            help="return the new value instead",
        )  # fmt: skip
    context.assigned_after_loop.update(DefiniteAssignment(source, names, lambda loop: False).assigned_after)
    objects = {alias.object for value in context.environment.values() for alias in aliases_of(value)}
    for parameter in _parameters(function):
        arguments[parameter.arg] = context.bind_object(arguments[parameter.arg], parameter)
    outer = {name: context.environment.get(name) for name in (*local_names, *FLAGS, "$return")}
    hidden = {name: context.temporary("hidden") for name in local_names if name in context.environment}
    for name, temporary in hidden.items():
        context.environment[temporary] = context.environment.pop(name)  # shadowed, but still checked for aliases
    context.environment.pop("$return", None)
    context.environment.update(arguments)
    for name in FLAGS:
        set_flag(context, name, False)
    result_type, context.result_type = context.result_type, _result_type(context, function)
    result_pattern, context.result_pattern = context.result_pattern, None
    context.inlining.append(function.definition)
    context.execute(source.body)
    value = _returned_value(context, function)
    context.inlining.pop()
    # An object that only local names of the function referred to is new for the caller.
    value = _filter_aliases(
        value, lambda object: object in objects or context.sharing.is_shared(object, MAX_ALIAS_DEPTH)
    )
    context.result_type, context.result_pattern, context.exited = result_type, result_pattern, False
    for name, shadowed in outer.items():
        context.environment.pop(name, None)
        if shadowed is not None:
            context.environment[name] = context.environment.pop(hidden[name]) if name in hidden else shadowed
    return value


def _filter_aliases(value: Value, outlives_call: Callable[[Hashable], bool]) -> Value:
    """The value with only the aliases of objects that outlive the call."""
    if value.items is not None:
        return replace(value, items=tuple(_filter_aliases(item, outlives_call) for item in value.items))
    return replace(value, aliases=tuple(alias for alias in value.aliases if outlives_call(alias.object)))


def _result_type(context: Context, function: LocalFunction) -> Any:
    definition = function.definition
    if isinstance(definition, ast.Lambda) or definition.returns is None:
        return None
    return annotation_type(context, definition.returns)


def _bind_arguments(
    context: Context, function: LocalFunction, positional: Sequence[Value], keywords: Keywords, at: ast.AST
) -> dict[str, Value]:
    """Binds a value to each parameter."""
    parameters = _parameters(function)
    count = len(parameters) - len(function.definition.args.kwonlyargs)
    if len(positional) > count:
        expected = f"{count} argument{'s' * (count != 1)}"
        raise context.error("LG108", f"`{function.name}` takes {expected}", at, found=str(len(positional)))
    arguments = {parameter.arg: value for parameter, value in zip(parameters, positional, strict=False)}
    for name, value in keywords.items():
        if name in arguments or name not in {parameter.arg for parameter in parameters}:
            what = "has two values for" if name in arguments else "has no parameter"
            raise context.error("LG108", f"`{function.name}` {what} `{name}`", at)
        arguments[name] = value
    for parameter in parameters:
        name = parameter.arg
        if name not in arguments:
            if name not in function.defaults:
                raise context.error("LG108", f"`{function.name}` needs a value for `{name}`", at)
            arguments[name] = context.environment[function.defaults[name]]
        if parameter.annotation is not None:
            type = annotation_type(context, parameter.annotation)
            arguments[name] = convert(arguments[name], type, context.span(at), f"`{name}`")
    return arguments


def _returned_value(context: Context, function: LocalFunction) -> Value:
    returned = get_flag(context.environment, "$returned")
    value = context.environment.get("$return")
    if value is None or (returned.is_static and not returned.static):
        return static(None)
    if not returned.is_static and value.type is not NONE:
        raise context.error(
            "LG202", f"`{function.name}` may end without returning a value", function.definition,
            help="return a value on every path",
        )  # fmt: skip
    return value


# --- passed as arguments ---------------------------------------------------------------------------------------------


def _capture_standalone(context: Context, function: LocalFunction, at: ast.AST) -> CapturedFunction:
    source = _source_of(context, function)
    local_names = bound_names(source.body) | {argument.arg for argument in _parameters(function)}
    names = {node.id for statement in source.body for node in ast.walk(statement) if isinstance(node, ast.Name)}
    enclosing = sorted(name for name in names - local_names if name in context.environment)
    if enclosing or function.defaults:
        raise context.error(
            "LG102", f"`{function.name}` can only be called here: it uses variables of the enclosing function", at,
            found=", ".join(f"`{name}`" for name in enclosing) or "a default",
            help="define it outside, and pass what it needs",
        )  # fmt: skip
    captured = context.standalone_functions.get(function.definition)
    if captured is None:
        function_object = _python_function(context.source, function.definition)
        captured = context.standalone_functions[function.definition] = context.function_class(function_object)
        captured.__dict__["source"] = replace(source, function=function_object)
    return captured


def _python_function(source: Source, definition: Definition) -> FunctionType:
    names = {**source.function.__globals__, **source.closure}
    if isinstance(definition, ast.Lambda):
        return eval(compile(ast.Expression(definition), source.file, "eval", dont_inherit=True), names)
    exec(compile(ast.Module([definition], []), source.file, "exec", dont_inherit=True), names)
    return names[definition.name]
