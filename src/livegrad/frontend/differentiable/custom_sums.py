"""Makes reverse mode sum cotangents with a type's custom `dadd` where a value has several uses.

In: a captured function as IR, and the types with a custom `dadd`. Out: the function in which each such value is
duplicated for its uses by a call whose derivative is the sum. Called by `attach_custom_derivatives`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from livegrad.frontend.differentiable.differentials import lower_differential, raise_differential
from livegrad.frontend.differentiable.protocol import (
    add_nodes,
    has_custom_operation,
    has_custom_sum,
    require_differential,
    zero_node,
)
from livegrad.frontend.function.captured import CapturedFunction, Specialization
from livegrad.frontend.function.compile_state import Context, Dependencies
from livegrad.frontend.function.compile_values import node_of, runtime
from livegrad.frontend.function.function_compiler import make_context
from livegrad.frontend.function.function_errors import FunctionError
from livegrad.frontend.function.function_types import FrontType, describe, ir_of
from livegrad.ir import types as ir
from livegrad.ir.function import make_function, map_results
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key, Node, make_node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.walk import nodes_of, substitute
from livegrad.ops.aggregate import get, make_tuple, member
from livegrad.ops.control import cond, for_loop, parameters_of, switch, while_loop
from livegrad.ops.custom import make_custom_call
from livegrad.ops.maps import map_

_CONTROL = (cond, switch, for_loop, while_loop, map_)


def use_custom_sums(owner: CapturedFunction, specialization: Specialization) -> Function:
    """The function whose derivative uses the custom `dadd` of its types; unchanged if no type has one."""
    types = list(specialization.dependencies.types)
    rules = {ir_of(type): _Sum(owner, specialization, type) for type in types if has_custom_sum(type)}
    for type in types if rules else ():
        rule = rules.get(ir_of(type))
        if rule is not None and rule.type is not type:
            raise FunctionError(
                "LG308",
                f"two types named {describe(type)} have the same fields, and one of them defines its own dadd",
                owner.source.span(owner.source.definition),
                help="rename one of them",
            )
    for rule in rules.values():
        rule.record_dependencies()
    return _CopyInserter(rules).function(specialization.function) if rules else specialization.function


def custom_zero(owner: CapturedFunction, type: FrontType) -> Node | None:
    """The node of a type's custom `dzero`, from which a derivative of `owner` starts its sum; None if it has none."""
    if not has_custom_operation(type, "dzero"):
        return None
    context, at = _synthetic_context(owner, Dependencies())
    return node_of(zero_node(context, type, at), context.span(at))


def add_custom_zero(owner: CapturedFunction, type: FrontType, differential: Node) -> Node:
    """Adds a differential that a derivative returns to the custom `dzero` of its type, if it has one."""
    start = custom_zero(owner, type)
    if start is None:
        return differential
    context, at = _synthetic_context(owner, Dependencies())
    sum_type = require_differential(type)
    return node_of(
        add_nodes(context, type, runtime(sum_type, start), runtime(sum_type, differential), at), context.span(at)
    )


def _synthetic_context(owner: CapturedFunction, dependencies: Dependencies) -> tuple[Context, ast.AST]:
    """A compiler context for code that belongs to a function but is not in its source."""
    return make_context(owner, dependencies, differentiable=True), owner.source.definition


@dataclass(frozen=True)
class _Sum:
    """The custom sum of cotangents of a type."""

    owner: CapturedFunction
    specialization: Specialization
    type: FrontType

    def record_dependencies(self) -> None:
        """Records the dependencies of the sum, so that the function is stale when a method of the type changes."""
        context, at = _synthetic_context(self.owner, self.specialization.dependencies)
        zero = zero_node(context, self.type, at)
        add_nodes(context, self.type, zero, zero, at)

    def copies(self, value: Node, count: int) -> list[Node]:
        """Duplicates a value into `count` copies, each for one use."""
        type, differential = value.type, ir.differential_of(value.type)
        copied = input_node(Key("value"), type)
        function = make_function("copies", [copied], [copied] * count)
        tangent = input_node(Key("tangent"), differential)
        forward = make_function("copies.forward", [copied, tangent], [tangent] * count)
        parts = [input_node(Key("cotangent"), differential) for _ in range(count)]
        backward = make_function("copies.backward", [copied, *parts], [self._total(parts, copied)])
        node = make_custom_call(function, value, forward=forward, backward=backward)
        return [member(node, index) for index in range(count)]

    def _total(self, parts: list[Node], primal: Node) -> Node:
        context, at = _synthetic_context(self.owner, self.specialization.dependencies)
        differential = require_differential(self.type)
        total, *others = [
            runtime(differential, raise_differential(self.type, part, primal, cotangent=True)) for part in parts
        ]
        for other in others:
            total = add_nodes(context, self.type, total, other, at)
        return lower_differential(self.type, node_of(total, context.span(at)), primal, cotangent=True)


@dataclass
class _CopyInserter:
    """Inserts the copies into a function and the functions of its loops and branches."""

    rules: Mapping[ir.Type, _Sum]
    rewritten: dict[Function, Function] = field(default_factory=dict)

    def function(self, function: Function) -> Function:
        """The function with copies for each use of a value with a custom sum; memoised."""
        if function not in self.rewritten:
            self.rewritten[function] = self._rewrite(function)
        return self.rewritten[function]

    def _rewrite(self, function: Function) -> Function:
        plain = map_results(function, self._copy_in_control_flow)
        supplies = {node: self._copy_supplier(plain, node) for node in nodes_of(plain) if node.type in self.rules}
        rewritten_nodes: dict[Node, Node] = {}

        def read_value(value: Node, user: Node | None) -> Node:
            supply = supplies.get(value)
            return rewritten_nodes[value] if supply is None else supply(rewritten_nodes[value], user)

        for node in nodes_of(plain):
            operands = tuple(read_value(operand, node) for operand in node.operands)
            with originating_from(node.origins):
                rewritten_nodes[node] = (
                    node if operands == node.operands else make_node(node.op, operands, node.attributes)
                )
        results = tuple(read_value(result, None) for result in plain.results)
        rewritten = Function(function.name, plain.parameters, results)
        rewritten.source_locations.update(function.source_locations)
        return rewritten

    def _copy_supplier(self, function: Function, value: Node) -> Callable[[Node, Node | None], Node]:
        """Returns a function that gives each use of a value its own copy. Reads of fields share one copy, whose
        cotangents are summed field by field.
        """
        users = [node for node in nodes_of(function) for operand in node.operands if operand is value]
        has_field_reads = any(node.op is get for node in users)
        whole_uses = sum(node.op is not get for node in users) + sum(result is value for result in function.results)
        nodes: list[Node] = []
        count = int(has_field_reads) + whole_uses
        next_copy = iter(range(int(has_field_reads), count))

        def take(current: Node, user: Node | None) -> Node:
            if count < 2:
                return current
            if not nodes:
                nodes.extend(self.rules[value.type].copies(current, count))
            return nodes[0 if user is not None and user.op is get else next(next_copy)]

        return take

    def _copy_in_control_flow(self, node: Node) -> Node | None:
        """Rewrites control flow to use functions with copies. Captured values with a custom sum become loop-carried, so
        that the contributions of the iterations are also summed through copies.
        """
        if node.op not in _CONTROL:
            return None
        attributes = dict(node.attributes)
        operands = list(node.operands)
        carried = attributes.get("carried", 0)
        if node.op in (for_loop, while_loop):
            first = int(node.op is for_loop)
            values = operands[first:]
            promoted = [index for index in range(carried, len(values)) if values[index].type in self.rules]
            order = [*range(carried), *promoted, *(i for i in range(carried, len(values)) if i not in promoted)]
            operands[first:] = [values[index] for index in order]
            attributes["carried"] = carried + len(promoted)
            attributes["body"] = _reorder_parameters(attributes["body"], order, 1, promoted)
            if node.op is while_loop:
                attributes["condition"] = _reorder_parameters(attributes["condition"], order, 0, [])
        rewritten = node.op(*operands, **{name: self._copy_in_functions(value) for name, value in attributes.items()})
        if rewritten.type is node.type:
            return rewritten
        return make_tuple(*(get(rewritten, index=index) for index in range(carried)))

    def _copy_in_functions(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._copy_in_functions, value))
        return self.function(value) if isinstance(value, Function) else value


def _reorder_parameters(function: Function, order: list[int], first: int, also_returned: list[int]) -> Function:
    """Reorders the parameters after the first ones, and appends some of them to the results."""
    types = function.parameter_types
    fresh = parameters_of([*types[:first], *(types[first + index] for index in order)])
    replacements = dict(zip(function.parameters[:first], fresh[:first], strict=True))
    replacements |= {
        function.parameters[first + index]: fresh[first + position] for position, index in enumerate(order)
    }
    results = substitute((*function.results, *(function.parameters[first + i] for i in also_returned)), replacements)
    return Function(function.name, fresh, results)
