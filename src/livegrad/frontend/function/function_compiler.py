"""Compiles a captured function to an IR function for given parameter types.

`PlainFunction` calls `compile_specialization` for each specialisation.
"""

from __future__ import annotations

import ast
import threading
from typing import Any

from livegrad.frontend.function.aliases import parameter_key
from livegrad.frontend.function.array_patterns import TensorPattern, TuplePattern
from livegrad.frontend.function.assignment import DefiniteAssignment
from livegrad.frontend.function.branch_regions import (
    FLAGS,
    forbid_leaks,
    get_flag,
    resolve_returned,
    set_flag,
)
from livegrad.frontend.function.calls import call_value
from livegrad.frontend.function.captured import CapturedFunction, Slot, Specialization
from livegrad.frontend.function.compile_state import Context, Dependencies
from livegrad.frontend.function.compile_values import (
    Value,
    aliases_of,
    node_of,
    runtime,
    static,
    tuple_value,
    with_allocation,
    zero_value,
)
from livegrad.frontend.function.effects import tie_to_effects
from livegrad.frontend.function.expressions import evaluate
from livegrad.frontend.function.function_errors import FunctionError
from livegrad.frontend.function.function_types import NONE, FrontType, differential_type, ir_of
from livegrad.frontend.function.lvalues import detach_value
from livegrad.frontend.function.statements import check_result, execute
from livegrad.ir import types as ir
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node, input_op
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.recursion import deep_recursion
from livegrad.ir.source_lines import originating_from
from livegrad.ir.walk import toposort
from livegrad.ops.aggregate import make


class _Stack(threading.local):
    """The functions that this thread is compiling, for the detection of recursion."""

    def __init__(self) -> None:
        self.entries: list[CapturedFunction] = []


_stack = _Stack()


def compile_specialization(function: CapturedFunction, slots: tuple[Slot, ...]) -> Specialization:
    """Compiles a function for one list of slots."""
    source = function.source
    if function in _stack.entries:
        names = " -> ".join(f.__name__ for f in [*_stack.entries[_stack.entries.index(function) :], function])
        raise FunctionError(
            "LG105",
            f"`{function.__name__}` calls itself",
            source.span(source.definition),
            found=names,
            help="write it as a loop",
        )
    _stack.entries.append(function)
    try:
        with deep_recursion():
            return _compile(function, slots)
    except RecursionError:
        if len(_stack.entries) > 1:
            raise  # reported once, for the outermost function
        raise FunctionError(
            "LG112",
            f"`{function.__name__}` nests too deeply",
            source.span(source.definition),
            help="turn long chains of calls, branches or operators into loops or lists",
        ) from None
    finally:
        _stack.entries.pop()


def make_context(function: CapturedFunction, dependencies: Dependencies, differentiable: bool) -> Context:
    """Creates the compiler state for code of a function."""
    context = Context(function.source, dependencies, differentiable)
    context.connect(evaluate, execute, call_value)
    context.function_class = type(function)
    return context


def _compile(function: CapturedFunction, slots: tuple[Slot, ...]) -> Specialization:
    source, signature = function.source, function.signature
    context = make_context(function, Dependencies(), function.differentiable)
    context.complete_signature = signature.is_complete
    context.result_type = result_annotation(function, slots)
    context.result_pattern = signature.result.pattern
    context.result_no_diff = signature.result.no_diff
    for name in FLAGS:
        set_flag(context, name, False)
    inputs = _bind_parameters(context, function, slots)
    _bind_sizes(context, function, slots)
    names = [parameter.name for parameter in signature.parameters]
    context.assigned_after_loop.update(
        DefiniteAssignment(source, names, lambda loop: _runs_at_least_once(context, loop)).assigned_after
    )
    with originating_from((source.span(source.definition).origin,)):
        context.execute(source.body)
        value = _result_value(context)
        returned_type, updating = value.type, None
        if context.inouts:
            updating, value = _build_updating_function(context, value, inputs)
        node = tie_to_effects(context, node_of(value, source.span(source.definition)))
        if value.type is NONE and context.has_effects:
            node = node_of(context.environment["$effects"], source.span(source.definition))
    context.result_aliases = aliases_of(value)
    if not context.result_no_diff:
        context.expect(value)
    else:
        node = detach_value(node)
    function.verify(context)
    result_type = value.type
    assert result_type is not None
    function_ir = make_function(source.name, inputs, [node])
    forbid_leaks(source.name, (n for n in toposort(function_ir.results) if n.op is input_op))
    return Specialization(
        function,
        slots,
        function_ir,
        result_type,
        context.result_no_diff,
        context.dependencies,
        context,
        result_weak=value.weak and isinstance(result_type, ir.Scalar),
        updating=updating,
        returned_inout=next((n for n in context.inouts if context.environment[n].node is value.node), None),
        returned_type=returned_type,
    )


def result_annotation(function: CapturedFunction, slots: tuple[Slot, ...]) -> FrontType | None:
    """The declared type of the result, with type variables replaced by the types of the slots."""
    annotation = function.signature.result
    if annotation.variable is None:
        return annotation.type
    for parameter, slot in zip(function.signature.parameters, slots, strict=True):
        if parameter.annotation.variable is annotation.variable:
            return slot.type
    return None


def _bind_parameters(context: Context, function: CapturedFunction, slots: tuple[Slot, ...]) -> list[Node]:
    inputs: list[Node] = []
    for parameter, slot in zip(function.signature.parameters, slots, strict=True):
        if slot.type is None:
            context.environment[parameter.name] = context.outside_value(
                slot.static, parameter.name, context.source.definition
            )
            continue
        if parameter.annotation.variable is not None:
            context.type_variables[parameter.annotation.variable] = slot.type
        with originating_from((parameter.span.origin,)):
            node = input_node(Key(parameter.name), ir_of(slot.type))
        inputs.append(node)
        if parameter.annotation.inout:
            context.inouts.append(parameter.name)
            context.returned_names.add(parameter.name)
        value = _parameter_value(context, parameter, slot, node)
        context.environment[parameter.name] = with_allocation(value, parameter_key(parameter.name))
    return inputs


def _bind_sizes(context: Context, function: CapturedFunction, slots: tuple[Slot, ...]) -> None:
    """Binds the named sizes of annotations as variables of the function."""
    sizes: dict[str, int] = {}
    for parameter, slot in zip(function.signature.parameters, slots, strict=True):
        if parameter.annotation.pattern is not None:
            parameter.annotation.pattern.explain_mismatch(slot.type, sizes)
    for parameter in function.signature.parameters:
        if parameter.name in sizes:
            raise FunctionError(
                "LG204",
                f"`{parameter.name}` is a parameter and the name of a size",
                parameter.span,
                help="remove the parameter, or give the size another name",
            )
    context.sizes = sizes
    _require_bound_sizes(context, function)
    context.environment.update({name: static(size) for name, size in sizes.items()})


def _require_bound_sizes(context: Context, function: CapturedFunction) -> None:
    """Raises if the result annotation has a named size that no parameter has."""
    pattern, definition = function.signature.result.pattern, context.source.definition
    for part in pattern.elements if isinstance(pattern, TuplePattern) else (pattern,):
        for size in part.sizes if isinstance(part, TensorPattern) else ():
            if isinstance(size, str) and size not in context.sizes:
                raise context.error(
                    "LG204",
                    f'the size "{size}" of the result does not match any parameter',
                    getattr(definition, "returns", None) or definition,
                    expected=", ".join(map(repr, context.sizes)) or None,
                    help="use a size of a parameter, or lg.tensor[float, 2] for arrays of any sizes",
                )


def _build_updating_function(context: Context, value: Value, inputs: list[Node]) -> tuple[Function, Value]:
    """Returns the function for compiled callers, whose results are the value and the new `inout` arrays, and the result
    for callers from Python: the value, or the arrays if there is none.
    """
    span = context.span(context.source.definition)
    arrays = [context.environment[name] for name in context.inouts]
    nodes = [tie_to_effects(context, node_of(part, span)) for part in (value, *arrays)]
    value_and_arrays = make(*nodes, type=ir.Tuple(tuple(node.type for node in nodes)))
    updating = make_function(context.source.name, inputs, [value_and_arrays])
    if value.type is NONE:
        return updating, arrays[0] if len(arrays) == 1 else tuple_value(arrays)
    return updating, value


def _parameter_value(context: Context, parameter: Any, slot: Slot, node: Node) -> Value:
    type = slot.type
    assert type is not None
    differential = differential_type(type)
    if differential is None:
        return runtime(type, node, weak=slot.weak)
    context.dependencies.types[type] = differential
    kind = "cut" if slot.no_diff else "parameter"
    flow = context.graph.add(kind, parameter.span, [], parameter.name)
    return runtime(type, detach_value(node) if slot.no_diff else node, flow, slot.weak)


def _result_value(context: Context) -> Value:
    """The result of the function; falling off the end returns None."""
    definition = context.source.definition
    returned = get_flag(context.environment, "$returned")
    if returned.is_static and not returned.static:
        return check_result(context, static(None), definition)
    value = resolve_returned(context.environment.get("$return"), context.environment)
    if value is None and returned.static is True and context.result_type is not None:
        return runtime(context.result_type, zero_value(context.result_type))  # every path raises
    if value is None:
        return check_result(context, static(None), definition)
    if not returned.is_static and value.type is not NONE:
        raise context.error(
            "LG202",
            f"`{context.source.name}` may end without returning a value",
            context.source.body[-1],
            help="return a value on every path",
        )
    if value.type is None:
        raise context.error(
            "LG203",
            f"`{context.source.name}` returns different types on different paths",
            definition,
            found=str(getattr(value.static, "first", value.static))
            + " and "
            + str(getattr(value.static, "second", "")),
        )
    return value


def _runs_at_least_once(context: Context, loop: ast.For | ast.While) -> bool:
    """Whether a loop provably runs at least once: it iterates over a non-empty display or a static, non-empty range."""
    if not isinstance(loop, ast.For):
        return False
    iterable = loop.iter
    if isinstance(iterable, ast.List | ast.Tuple):
        return bool(iterable.elts)
    if not (isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and iterable.func.id == "range"):
        return False
    bounds = []
    for argument in iterable.args:
        try:
            bound = ast.literal_eval(argument)
        except ValueError:
            bound = context.source.lookup(argument.id) if isinstance(argument, ast.Name) else None
            is_local = isinstance(argument, ast.Name) and argument.id in context.environment
            if is_local or not isinstance(bound, int):
                return False
        bounds.append(bound)
    is_valid = 1 <= len(bounds) <= 3 and all(isinstance(bound, int) for bound in bounds) and bounds[2:] != [0]
    return is_valid and bool(range(*bounds))  # the compiler reports invalid arguments of `range`
