"""Compiles branches to `cond`: merges the variables that the two paths change, and tracks pending jumps in flags.

The statements module passes callables that compile the paths; this module makes the variables that may change explicit
results of the `cond`. `loop_regions` does the same for loops.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from livegrad.diagnostics import VerifyError
from livegrad.frontend.function.aliases import merge_aliases
from livegrad.frontend.function.compile_state import FIELD_FACT, Context, Environment
from livegrad.frontend.function.compile_values import (
    Value,
    aliases_of,
    convert,
    flows_of,
    join,
    name_of,
    node_of,
    runtime,
    static,
    tuple_value,
    with_aliases,
    zero_value,
)
from livegrad.frontend.function.derivative_flow import Flow
from livegrad.frontend.function.function_types import FrontType, differential_type
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_op
from livegrad.ir.node import Function, Node
from livegrad.ir.walk import toposort
from livegrad.ops.aggregate import get
from livegrad.ops.control import cond

FLAGS = ("$returned", "$broken", "$continued")


@dataclass(frozen=True)
class Conflict:
    """The value of a variable that has different types on different paths; reading it is an error."""

    first: str
    second: str


@dataclass(frozen=True)
class ReturnedVariable:
    """A result, or a part of one, that is the value of a variable when the function ends.

    Without it, a loop that returns an array early would carry a second array beside the array that it writes.
    """

    name: str


def resolve_returned(value: Value | None, environment: Environment) -> Value | None:
    """Replaces each `ReturnedVariable` in a result by the value of its variable."""
    if value is None:
        return None
    if value.items is not None:
        items = [resolve_returned(item, environment) for item in value.items]
        return tuple_value([item for item in items if item is not None])
    return environment[value.static.name] if isinstance(value.static, ReturnedVariable) else value


def set_flag(context: Context, name: str, value: bool) -> None:
    context.environment[name] = static(value)


def get_flag(environment: Environment, name: str) -> Value:
    return environment.get(name, static(False))


def pending_jump(context: Context, names: Iterable[str] = FLAGS) -> Node | bool:
    """Whether one of these jumps has been taken: a bool if that is static, else a node."""
    nodes: list[Node] = []
    for name in names:
        value = get_flag(context.environment, name)
        if value.is_static:
            if value.static:
                return True
        elif value.node is not None:
            nodes.append(value.node)
    result: Node | bool = False
    for node in nodes:
        result = node if isinstance(result, bool) else result | node
    return result


def forbid_leaks(name: str, unknown: Iterable[Node]) -> None:
    """Raises if a function or region uses values of another region, which would be undefined or silently zero there."""
    node = next(iter(unknown), None)
    if node is not None:
        raise VerifyError(
            f"a branch or loop of `{name}` has leaked the value `{node.attribute('key').name}`",
            where=node.origin,
            help="this is a bug in livegrad: please report it with the function",
        )


def close_regions(
    name: str, region_parameters: Sequence[Sequence[Node]], inputs: dict[Node, Node], results: Sequence[Sequence[Node]]
) -> tuple[list[Function], list[Node]]:
    """Closes regions over the outer nodes that any of them uses: each function takes its own parameters, then these."""
    used: set[Node] = set()
    for parameters, group in zip(region_parameters, results, strict=True):
        reached = {node for node in toposort(group) if node.op is input_op}
        forbid_leaks(name, reached.difference(parameters, inputs.values()))
        used |= reached
    captured = [outer for outer, inner in inputs.items() if inner in used]
    inner = [inputs[outer] for outer in captured]
    functions = [
        make_function(name, [*parameters, *inner], group)
        for parameters, group in zip(region_parameters, results, strict=True)
    ]
    return functions, captured


# --- branches --------------------------------------------------------------------------------------------------------


def branch(
    context: Context, predicate: Node, then: Callable[[], None], otherwise: Callable[[], None], at: ast.AST
) -> None:
    """Compiles two paths, of which the predicate selects one at run time, and merges their variables."""
    outer = context.environment
    inner, inputs = context.inner_environment()
    paths: list[tuple[Environment, bool]] = []
    for run in (then, otherwise):
        context.environment, context.exited = dict(inner), False
        run()
        paths.append((context.environment, context.exited))
    context.environment = merge_paths(context, outer, inner, inputs, predicate, paths, at)
    context.exited = paths[0][1] and paths[1][1]


def merge_paths(
    context: Context,
    outer: Environment,
    inner: Environment,
    inputs: dict[Node, Node],
    predicate: Node,
    paths: Sequence[tuple[Environment, bool]],
    at: ast.AST,
) -> Environment:
    """The variables after a branch, given those at the end of each path and whether the path has exited."""
    (first, first_exited), (second, second_exited) = paths
    returned = [exited and get_flag(environment, "$returned").static is True for environment, exited in paths]
    merger = _Merger(context, at)
    merged: Environment = {}
    plans: dict[str, _Plan] = {}
    for name in dict.fromkeys([*first, *second]):
        a, b = first.get(name), second.get(name)
        if a is b and a is inner.get(name):
            merged[name] = outer[name]
            continue
        if name.startswith("~") and name not in outer:
            continue
        if name.startswith(FIELD_FACT):
            continue  # narrowed types of fields hold only inside the branch
        if name == "$return" and a and b and not _same_variables(a, b):
            a, b = resolve_returned(a, first), resolve_returned(b, second)
        if not name.startswith("$") and name not in context.returned_names:
            # After a path has returned, its variables are never read.
            a = None if returned[0] and not second_exited and b is not None else a
            b = None if returned[1] and not first_exited and a is not None else b
        plans[name] = merger.plan(a, b)
    nodes = _build_cond(context, merger, inputs, predicate) if merger.slots else []
    for name, plan in plans.items():
        merged[name] = plan(nodes)
    return merged


_Plan = Callable[[list[Node]], Value]


class _Merger:
    """Collects the pairs of nodes that a `cond` must select between to merge two environments."""

    def __init__(self, context: Context, at: ast.AST) -> None:
        self.context, self.at = context, at
        self.slots: list[tuple[Node, Node]] = []

    def plan(self, first: Value | None, second: Value | None) -> _Plan:
        """Returns a function from the results of the `cond` to the merged value."""
        if first is None or second is None:
            present = first if second is None else second
            assert present is not None
            if present.is_static and present.static is not None and not present.is_number:
                return lambda nodes: present
            if present.items is not None:
                parts = [self.plan(*((item, None) if second is None else (None, item))) for item in present.items]
                return lambda nodes: tuple_value([part(nodes) for part in parts])
            return self._add_slot(first, second)
        if same_static(first, second):
            return lambda nodes: first  # a run-time value belongs to its own region and cannot be reused
        if first.items is not None and second.items is not None and len(first.items) == len(second.items):
            parts = [self.plan(a, b) for a, b in zip(first.items, second.items, strict=True)]
            return lambda nodes: tuple_value([part(nodes) for part in parts])
        if join(first, second) is None:
            conflict = static(Conflict(name_of(first), name_of(second)))
            return lambda nodes: conflict
        return self._add_slot(first, second)

    def _add_slot(self, first: Value | None, second: Value | None) -> _Plan:
        present = [value for value in (first, second) if value is not None]
        type = join(present[0], present[-1])
        if type is None:
            return lambda nodes: present[0]
        span = self.context.span(self.at)
        pair = [
            zero_value(type) if value is None else node_of(convert(value, type, span), span)
            for value in (first, second)
        ]
        index = len(self.slots)
        self.slots.append((pair[0], pair[1]))
        weak = all(value.weak for value in present)
        aliases = merge_aliases(*map(aliases_of, present))
        flows = flows_of(*present)
        return lambda nodes: with_aliases(self._merged_value(type, nodes[index], flows, weak), aliases)

    def _merged_value(self, type: FrontType, node: Node, flows: list[Flow], weak: bool) -> Value:
        flow = flows[0] if len(flows) == 1 else None
        if len(flows) > 1 and differential_type(type) is not None:
            flow = self.context.graph.add("operation", self.context.span(self.at), flows)
        return runtime(type, node, flow, weak)


def same_static(first: Value, second: Value) -> bool:
    """Whether two values are static and equal."""
    if not first.is_static or not second.is_static:
        return False
    a, b = first.static, second.static
    if a is b or (isinstance(a, ReturnedVariable) and a == b):
        return True
    if isinstance(a, float) and isinstance(b, float):
        return a.hex() == b.hex()
    return type(a) is type(b) and first.is_number and a == b


def _same_variables(first: Value, second: Value) -> bool:
    """Whether two results are the values of the same variables."""
    if first.items is None or second.items is None or len(first.items) != len(second.items):
        return same_static(first, second)
    return all(map(_same_variables, first.items, second.items))


def _build_cond(context: Context, merger: _Merger, inputs: dict[Node, Node], predicate: Node) -> list[Node]:
    firsts, seconds = [a for a, _ in merger.slots], [b for _, b in merger.slots]
    (then, otherwise), captured = close_regions(context.source.name, [[], []], inputs, [firsts, seconds])
    value = cond(predicate, *captured, then=then, otherwise=otherwise)
    return [value] if len(firsts) == 1 else [get(value, index=index) for index in range(len(firsts))]
