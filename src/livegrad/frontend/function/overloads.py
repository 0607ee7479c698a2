"""Overload resolution by argument types, and calls between captured functions with their aliasing rules.

Calls from Python, from captured functions and of derivatives resolve their overload with `choose`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from livegrad.frontend.function.aliases import (
    MAX_ALIAS_DEPTH,
    Aliases,
    aliases_of_result,
    is_outside,
    outside_alias,
    parameter_key,
)
from livegrad.frontend.function.arrays import require_writable
from livegrad.frontend.function.captured import CapturedFunction, Slot, Specialization
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import (
    Value,
    aliases_of,
    convert,
    convertible,
    from_python,
    name_of,
    node_of,
    runtime,
    with_aliases,
)
from livegrad.frontend.function.effects import add_effects_of_call
from livegrad.frontend.function.function_errors import FunctionError, Span
from livegrad.frontend.function.function_types import NONE, ArrayType, FrontType, TensorType, TupleType, describe
from livegrad.frontend.function.lvalues import assign_lvalue, find_alias, forbid_aliased_change
from livegrad.frontend.function.signature import Default, Parameter, array_type_for
from livegrad.frontend.function.type_rules import rules
from livegrad.ir import types as ir
from livegrad.ir.node import Node
from livegrad.ops.aggregate import member
from livegrad.ops.control import call as call_op


@dataclass
class Match:
    """A matching overload and its arguments in order. `conversions` counts the arguments that need a conversion, and
    those that change their kind: an integer to a float, a vector to a list.
    """

    function: CapturedFunction
    values: list[Value]
    slots: tuple[Slot, ...]
    conversions: tuple[int, int]


def match(
    function: CapturedFunction, positional: Sequence[Value], keywords: Mapping[str, Value], span: Span
) -> Match | str:
    """Matches arguments against one overload; returns the reason if they do not match."""
    bound = function.signature.bind(positional, keywords)
    if isinstance(bound, str):
        return bound
    values, slots, conversions, kind_changes = [], [], 0, 0
    variables: dict[TypeVar, FrontType] = {}
    sizes: dict[str, int] = {}
    for parameter in function.signature.parameters:
        argument = bound[parameter.name]
        value = argument
        if isinstance(argument, Default):
            value = with_aliases(from_python(argument.value, span), (outside_alias(parameter.name),))
        slot = slot_for(parameter, value, variables, sizes)
        if isinstance(slot, str):
            return slot
        as_list = parameter.annotation.list_element is not None and not isinstance(slot.type, ArrayType)
        conversions += as_list or (slot.type is not None and slot.type != value.type)
        kind_changes += as_list or (slot.type is not None and _kind_of(slot.type) != _kind_of(value.type))
        values.append(value)
        slots.append(slot)
    return Match(function, values, tuple(slots), (conversions, kind_changes))


def _kind_of(type: FrontType | None) -> object:
    """The part of a type that a mere change of precision preserves."""
    scalar = ir.scalar_of(type) if isinstance(type, ir.Scalar | ir.Vector | ir.Matrix) else None
    return type.__class__, None if scalar is None else scalar.kind


def slot_for(
    parameter: Parameter, value: Value, variables: dict[TypeVar, FrontType], sizes: dict[str, int]
) -> Slot | str:
    """The slot of a parameter for this argument, or the reason why the argument does not match.

    Extends `variables` and `sizes`, the bindings of type variables and named sizes.
    """
    annotation = parameter.annotation
    expected = annotation.type
    if annotation.list_element is not None:
        expected = array_type_for(annotation.list_element, value.type)
        if expected is None and not _can_be_list(value):
            return f"`{parameter.name}` expects {annotation!r}, found {name_of(value)}" + _array_advice(value)
    if annotation.pattern is not None:
        problem = annotation.pattern.explain_mismatch(value.type, sizes)
        return Slot(value.type, annotation.no_diff) if problem is None else f"`{parameter.name}` {problem}"
    if annotation.variable is not None:
        problem = bind_variable(annotation.variable, value, variables)
        if problem is not None:
            return BoundProblem(f"`{parameter.name}` {problem}")
        expected = variables[annotation.variable]
    if expected is not None:
        if not convertible(value, expected):
            return f"`{parameter.name}` expects {describe(expected)}, found {name_of(value)}"
        return Slot(expected, annotation.no_diff)
    if value.type is None:
        if value.items is None:
            return Slot(None, static=value.static)
        return f"`{parameter.name}` is a tuple with values that are only known at run time"
    if value.static is None:
        return Slot(None, static=None)
    return Slot(value.type, annotation.no_diff, value.weak and isinstance(value.type, ir.Scalar))


def _can_be_list(value: Value) -> bool:
    """Whether a value of another type, such as a tuple or a vector, is accepted for a list parameter."""
    return isinstance(value.type, ir.Vector | ir.Matrix | TupleType | TensorType) or value.items is not None


def _array_advice(value: Value) -> str:
    """Advice for an array that was passed for a list: an array matches as one number per point."""
    if not isinstance(value.type, ir.Scalar) or value.is_static:
        return ""
    return f"; a whole array is a parameter of type lg.tensor[{describe(value.type)}, 1]"


class BoundProblem(str):
    """The reason why a type does not satisfy the bound of a type variable."""

    code = "LG402"


def bind_variable(variable: TypeVar, value: Value, variables: dict[TypeVar, FrontType]) -> str | None:
    """Binds a type variable to the type of an argument; returns the reason if that is impossible."""
    bound = variables.get(variable)
    if bound is not None:
        return None if convertible(value, bound) else f"expects {describe(bound)}, found {name_of(value)}"
    if value.type is None:
        return f"expects a value, found {name_of(value)}"
    for rule in rules.bound:
        problem = rule(variable, value.type)
        if problem is not None:
            return problem
    variables[variable] = value.type
    return None


def choose(
    function: CapturedFunction,
    positional: Sequence[Value],
    keywords: Mapping[str, Value],
    span: Span,
    reject: Callable[[Match], str | None] | None = None,
) -> Match:
    """The matching overload with the fewest conversions; `reject` returns the reason to exclude a match, or None."""
    candidates: list[tuple[CapturedFunction, Match | str]] = []
    for overload in function.overloads:
        candidate = match(overload, positional, keywords, span)
        problem = reject(candidate) if reject is not None and isinstance(candidate, Match) else None
        candidates.append((overload, problem or candidate))
    matches = [candidate for _, candidate in candidates if isinstance(candidate, Match)]
    if not matches:
        if len(candidates) == 1:
            reason = candidates[0][1]
            code = getattr(reason, "code", "LG108")
            raise FunctionError(code, f"`{function.__name__}`: {reason}", span, expected=str(function.signature))
        reasons = "; ".join(f"{overload.signature}: {reason}" for overload, reason in candidates)
        raise FunctionError(
            "LG205",
            f"no overload of `{function.__name__}` matches",
            span,
            found=_describe_arguments(positional, keywords),
            help=reasons,
        )
    fewest = min(candidate.conversions for candidate in matches)
    best = [candidate for candidate in matches if candidate.conversions == fewest]
    if len(best) > 1:
        raise FunctionError(
            "LG206",
            f"more than one overload of `{function.__name__}` matches",
            span,
            found=_describe_arguments(positional, keywords),
            help="; ".join(str(candidate.function.signature) for candidate in best),
        )
    return best[0]


def _describe_arguments(positional: Sequence[Value], keywords: Mapping[str, Value]) -> str:
    parts = [name_of(value) for value in positional] + [f"{n}={name_of(v)}" for n, v in keywords.items()]
    return ", ".join(parts)


def argument_nodes(match: Match, span: Span) -> tuple[list[Value], list[Node]]:
    """The run-time arguments of a call, converted to the parameters' types, as values and as nodes."""
    values, nodes = [], []
    for parameter, value, slot in zip(match.function.signature.parameters, match.values, match.slots, strict=True):
        if slot.type is None:
            continue
        converted = convert(value, slot.type, span, f"`{parameter.name}`")
        values.append(converted)
        nodes.append(node_of(converted, span))
    return values, nodes


def call_captured(
    context: Context,
    function: CapturedFunction,
    positional: Sequence[Value],
    keywords: Mapping[str, Value],
    at: ast.AST,
) -> Value:
    """Compiles a call of one captured function from another."""
    span = context.span(at)
    match = choose(function, positional, keywords, span)
    specialization = match.function.specialize(match.slots)
    _forbid_lost_change(context, match, specialization, at)
    context.dependencies.callees.append(specialization.is_current)
    context.dependencies.types.update(specialization.dependencies.types)
    values, nodes = argument_nodes(match, span)
    if specialization.updating is not None:
        return _call_updating(
            context, match, specialization, values, call_op(*nodes, function=specialization.updating), at
        )
    node = match.function.wrap_call_result(call_op(*nodes, function=specialization.function))
    if specialization.context.has_effects:
        add_effects_of_call(
            context, node if specialization.result_type is NONE else None, specialization.context.prints
        )
    result = runtime(specialization.result_type, node, weak=specialization.result_weak)
    result = with_aliases(result, _result_aliases(context, match, specialization, at))
    return _with_flow_of_call(context, match, specialization, values, result, at)


def _with_flow_of_call(
    context: Context, match: Match, specialization: Specialization, values: list[Value], result: Value, at: ast.AST
) -> Value:
    """Connects the result of a call to its arguments in the derivative flow graph."""
    function = match.function
    carrying = [value for value, slot in zip(values, specialization.runtime_slots, strict=True) if not slot.no_diff]
    if not function.differentiable:
        return context.with_flow(result, "call", values, at, function.__name__)
    for value in carrying:
        context.expect(value)
    if specialization.result_no_diff:
        return context.with_flow(result, "cut", values, at)
    return context.with_flow(result, "operation", carrying, at, function.__name__)


def _call_updating(
    context: Context, match: Match, specialization: Specialization, values: list[Value], node: Node, at: ast.AST
) -> Value:
    """Compiles a call of a function with `inout` parameters, which writes the caller's arrays, as in Python."""
    assert specialization.returned_type is not None
    if specialization.context.has_effects:
        add_effects_of_call(context, None, specialization.context.prints)
    node = match.function.wrap_call_result(node)
    arguments = _argument_expressions(match, at)
    for index, name in enumerate(specialization.context.inouts):
        argument = dict(zip((p.name for p in match.function.signature.parameters), match.values, strict=True))[name]
        _forbid_shared_argument(context, match, name, argument, at)
        new = runtime(argument.type, member(node, 1 + index))  # type: ignore[arg-type]
        new = _with_flow_of_call(context, match, specialization, values, new, at)
        _write_back(context, match, name, arguments.get(name), argument, with_aliases(new, aliases_of(argument)), at)
    returned = specialization.returned_inout if specialization.returned_type is not NONE else None
    index = 0 if returned is None else 1 + specialization.context.inouts.index(returned)
    result = runtime(specialization.returned_type, member(node, index), weak=specialization.result_weak)
    result = with_aliases(result, _result_aliases(context, match, specialization, at))
    return _with_flow_of_call(context, match, specialization, values, result, at)


def _argument_expressions(match: Match, at: ast.AST) -> dict[str, ast.expr]:
    """The expression of each argument by parameter name; empty if the call cannot be bound by syntax."""
    if not isinstance(at, ast.Call) or any(isinstance(argument, ast.Starred) for argument in at.args):
        return {}
    bound = match.function.signature.bind(at.args, {k.arg: k.value for k in at.keywords if k.arg is not None})
    return {} if isinstance(bound, str) else {name: e for name, e in bound.items() if not isinstance(e, Default)}


def _forbid_shared_argument(context: Context, match: Match, name: str, argument: Value, at: ast.AST) -> None:
    """Raises if a function writes one argument that shares its array with another argument."""
    objects = {alias.object for alias in aliases_of(argument)}
    others = [value for value in match.values if value is not argument]
    others += [argument] * (sum(value is argument for value in match.values) - 1)
    if any(alias.object in objects for value in others for alias in aliases_of(value)):
        raise context.error(
            "LG106",
            f"`{match.function.__name__}` writes to its `{name}`, which is also passed as another argument",
            at,
            help="copy one of them: `a.copy()`",
        )


def _write_back(
    context: Context, match: Match, name: str, expression: ast.expr | None, argument: Value, new: Value, at: ast.AST
) -> None:
    """Assigns the new version of an array that a call has written to the caller's variable."""
    context.ordered_writes += 1  # the callee may contain `a[k] += x`
    if isinstance(expression, ast.Name) and context.environment.get(expression.id) is argument:
        forbid_aliased_change(context, expression, 0, at)
        require_writable(context, expression.id, aliases_of(argument), at)
        context.environment[expression.id] = new
    elif isinstance(expression, ast.Subscript | ast.Attribute) and aliases_of(argument):
        assign_lvalue(context, expression, new)
    elif aliases_of(argument):
        raise context.error(
            "LG106",
            f"`{match.function.__name__}` writes to its `{name}`, which is not a variable here",
            at,
            help="assign the array to a variable, and pass that",
        )


def _result_aliases(context: Context, match: Match, specialization: Specialization, at: ast.AST) -> Aliases:
    """The caller's objects that the result of a call shares."""
    parameters = [parameter_key(parameter.name) for parameter in match.function.signature.parameters]
    arguments = dict(zip(parameters, map(aliases_of, match.values), strict=True))
    counts = Counter(alias.object for alias in specialization.context.result_aliases)
    aliases: Aliases = ()
    for alias in specialization.context.result_aliases:
        key = (at, alias.object)
        if arguments.get(alias.object):
            aliases += aliases_of_result(alias, arguments[alias.object])
        elif is_outside(alias.object):
            aliases += (alias,)
        elif alias.object in specialization.context.sharing.shared or counts[alias.object] > 1:
            context.sharing.shared[key] = specialization.context.sharing.shared.get(alias.object, 0)
            aliases += (replace(alias, object=key),)
    return aliases


def _forbid_lost_change(context: Context, match: Match, specialization: Specialization, at: ast.AST) -> None:
    """Raises if a call changes a copy of an argument, but in Python the caller would see the change. Names that are
    never read again do not count: those that the result is assigned to, and all names if the caller returns the result.
    """
    target_call, names = context.result_target
    returns = target_call is at and names is None and not context.inlining
    excluded = context.environment.keys() if returns else (names or frozenset()) if target_call is at else frozenset()
    parameters = [parameter.name for parameter in match.function.signature.parameters]
    for parameter, value in zip(parameters, match.values, strict=True):
        if (
            parameter_key(parameter) not in specialization.context.sharing.changed
            or parameter in specialization.context.inouts
        ):
            continue
        others = Counter(alias.object for other in match.values for alias in aliases_of(other))
        others.subtract(alias.object for alias in aliases_of(value))
        for alias in aliases_of(value):
            object = alias.object
            is_shared = others[object] > 0 or context.sharing.is_shared(object, MAX_ALIAS_DEPTH)
            if is_shared or find_alias(context, object, MAX_ALIAS_DEPTH, excluded) is not None:
                raise _lost_change_error(context, match, parameter, at)
            context.sharing.changed.add(object)
        if context.discarded_expression is at:
            raise _lost_change_error(context, match, parameter, at)


def _lost_change_error(context: Context, match: Match, parameter: str, at: ast.AST) -> FunctionError:
    name = match.function.__name__
    return context.error(
        "LG106",
        f"`{name}` changes its `{parameter}`, which is a copy: the change would be lost",
        at,
        help=f"return the changed value from `{name}`, and assign it where it is called",
    )
