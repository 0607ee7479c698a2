"""Compiles branches and loops: which variables they change, their types, and the resulting IR.

The statements module passes callables that compile the parts; this module makes the variables that may change explicit.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from livegrad.diagnostics import VerifyError
from livegrad.frontend.function.aliases import alias_either, exchanged_names
from livegrad.frontend.function.compile_state import Context, Environment
from livegrad.frontend.function.compile_values import (
    Value,
    aliased,
    aliases_of,
    convert,
    flows_of,
    join,
    name_of,
    node_of,
    runtime,
    static,
    tuple_value,
    zero_value,
)
from livegrad.frontend.function.derivative_flow import Flow
from livegrad.frontend.function.function_types import FrontType, TensorType, differential_type, ir_of
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node, input_op, is_constant
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import bool_, i64
from livegrad.ir.walk import toposort
from livegrad.ops.aggregate import get
from livegrad.ops.control import cond, for_loop, while_loop

FLAGS = ("$returned", "$broken", "$continued")


@dataclass(frozen=True)
class Conflict:
    """What a variable is that has different types on different paths: an error, but only for those who read it."""

    first: str
    second: str


@dataclass(frozen=True)
class ReturnedArray:
    """The result of a function that returns the array of a variable: what that is when the function ends.

    A loop that returns early would otherwise carry a second array beside the one that it writes.
    """

    name: str


def resolve_returned(value: Value | None, environment: Environment) -> Value | None:
    """A result with the arrays of variables in place of their names."""
    if value is None:
        return None
    if value.items is not None:
        items = [resolve_returned(item, environment) for item in value.items]
        return tuple_value([item for item in items if item is not None])
    return environment[value.static.name] if isinstance(value.static, ReturnedArray) else value


def set_flag(context: Context, name: str, value: bool) -> None:
    context.environment[name] = static(value)


def flag(environment: Environment, name: str) -> Value:
    return environment.get(name, static(False))


def pending_jump(context: Context, names: Iterable[str] = FLAGS) -> Node | bool:
    """Whether a jump is under way: known, or a node."""
    nodes: list[Node] = []
    for name in names:
        value = flag(context.environment, name)
        if value.is_static:
            if value.static:
                return True
        elif value.node is not None:
            nodes.append(value.node)
    result: Node | bool = False
    for node in nodes:
        result = node if isinstance(result, bool) else result | node
    return result


def refuse_leaks(name: str, unknown: Iterable[Node]) -> None:
    """An error if a function or region uses values of another, which would be unknown, or silently zero, in it."""
    node = next(iter(unknown), None)
    if node is not None:
        raise VerifyError(
            f"a branch or loop of `{name}` has leaked the value `{node.attribute('key').name}`",
            where=node.origin,
            help="this is a bug in livegrad: please report it with the function",
        )


def close_regions(
    name: str, own: Sequence[Sequence[Node]], inputs: dict[Node, Node], results: Sequence[Sequence[Node]]
) -> tuple[list[Function], list[Node]]:
    """Functions of their own parameters and then of the outer nodes that any of them uses."""
    used: set[Node] = set()
    for parameters, group in zip(own, results, strict=True):
        found = {node for node in toposort(group) if node.op is input_op}
        refuse_leaks(name, found.difference(parameters, inputs.values()))
        used |= found
    captured = [outer for outer, inner in inputs.items() if inner in used]
    inner = [inputs[outer] for outer in captured]
    functions = [
        make_function(name, [*parameters, *inner], group) for parameters, group in zip(own, results, strict=True)
    ]
    return functions, captured


# --- branches --------------------------------------------------------------------------------------------------------


def branch(
    context: Context, predicate: Node, then: Callable[[], None], otherwise: Callable[[], None], at: ast.AST
) -> None:
    """One of two ways, chosen when the function runs; afterwards the variables are what the taken way made them."""
    outer = context.environment
    inner, inputs = context.inner_environment()
    ways: list[tuple[Environment, bool]] = []
    for run in (then, otherwise):
        context.environment, context.exited = dict(inner), False
        run()
        ways.append((context.environment, context.exited))
    context.environment = merge_ways(context, outer, inner, inputs, predicate, ways, at)
    context.exited = ways[0][1] and ways[1][1]


def merge_ways(
    context: Context,
    outer: Environment,
    inner: Environment,
    inputs: dict[Node, Node],
    predicate: Node,
    ways: Sequence[tuple[Environment, bool]],
    at: ast.AST,
) -> Environment:
    (first, first_exited), (second, second_exited) = ways
    returned = [exited and flag(way, "$returned").static is True for way, exited in ways]
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
        if name == "$return" and a and b and not _same_variables(a, b):
            a, b = resolve_returned(a, first), resolve_returned(b, second)
        if not name.startswith("$") and name not in context.returned_names:
            # Where a way has returned, its variables are read by nobody.
            a = None if returned[0] and not second_exited and b is not None else a
            b = None if returned[1] and not first_exited and a is not None else b
        plans[name] = merger.plan(a, b)
    nodes = _cond_results(context, merger, inputs, predicate) if merger.slots else []
    for name, plan in plans.items():
        merged[name] = plan(nodes)
    return merged


_Plan = Callable[[list[Node]], Value]


class _Merger:
    """Collects the results that a `cond` must give so that two values become one."""

    def __init__(self, context: Context, at: ast.AST) -> None:
        self.context, self.at = context, at
        self.slots: list[tuple[Node, Node]] = []

    def plan(self, first: Value | None, second: Value | None) -> _Plan:
        """How to make the merged value, once the nodes of the slots are there."""
        if first is None or second is None:
            present = first if second is None else second
            assert present is not None
            if present.is_static and present.static is not None and not present.is_number:
                return lambda nodes: present
            if present.items is not None:
                parts = [self.plan(*((item, None) if second is None else (None, item))) for item in present.items]
                return lambda nodes: tuple_value([part(nodes) for part in parts])
            return self._slot(first, second)
        if _same_static(first, second):
            return lambda nodes: first  # not for a value of the running function: it belongs to its own way
        if first.items is not None and second.items is not None and len(first.items) == len(second.items):
            parts = [self.plan(a, b) for a, b in zip(first.items, second.items, strict=True)]
            return lambda nodes: tuple_value([part(nodes) for part in parts])
        if join(first, second) is None:
            conflict = static(Conflict(name_of(first), name_of(second)))
            return lambda nodes: conflict
        return self._slot(first, second)

    def _slot(self, first: Value | None, second: Value | None) -> _Plan:
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
        aliases = alias_either(*map(aliases_of, present))
        flows = flows_of(*present)
        return lambda nodes: aliased(self._merged(type, nodes[index], flows, weak), aliases)

    def _merged(self, type: FrontType, node: Node, flows: list[Flow], weak: bool) -> Value:
        flow = flows[0] if len(flows) == 1 else None
        if len(flows) > 1 and differential_type(type) is not None:
            flow = self.context.graph.add("operation", self.context.span(self.at), flows)
        return runtime(type, node, flow, weak)


def _same_static(first: Value, second: Value) -> bool:
    if not first.is_static or not second.is_static:
        return False
    a, b = first.static, second.static
    if a is b or (isinstance(a, ReturnedArray) and a == b):
        return True
    if isinstance(a, float) and isinstance(b, float):
        return a.hex() == b.hex()
    return type(a) is type(b) and first.is_number and a == b


def _same_variables(first: Value, second: Value) -> bool:
    """Whether two results are the arrays of the same variables."""
    if first.items is None or second.items is None or len(first.items) != len(second.items):
        return _same_static(first, second)
    return all(map(_same_variables, first.items, second.items))


def _cond_results(context: Context, merger: _Merger, inputs: dict[Node, Node], predicate: Node) -> list[Node]:
    firsts, seconds = [a for a, _ in merger.slots], [b for _, b in merger.slots]
    (then, otherwise), captured = close_regions(context.source.name, [[], []], inputs, [firsts, seconds])
    value = cond(predicate, *captured, then=then, otherwise=otherwise)
    return [value] if len(firsts) == 1 else [get(value, index=index) for index in range(len(firsts))]


# --- loops -----------------------------------------------------------------------------------------------------------


@dataclass
class Loop:
    """A loop to compile: `names` may change in it, `body(index)` compiles one iteration, `condition()` says whether to
    continue (None: run `iterations` times)."""

    names: set[str]
    kept: frozenset[str]  # names that are set after the loop, even if they are not before
    body: Callable[[Node], None]
    iterations: Node | None
    condition: Callable[[], Node] | None
    limit: int | None
    jumps: bool  # whether the body may leave the loop early
    iteration: str = ""  # the variable that counts the iterations of a loop that may end early


def run_loop(context: Context, loop: Loop, at: ast.AST) -> None:
    """Compiles the loop; afterwards the variables are what its last iteration made them."""
    outer = context.environment
    carried: dict[str, Value | None] = {}
    for name in sorted(loop.names):
        if name in outer:
            carried[name] = outer[name]
        elif name in FLAGS:
            carried[name] = static(False)
        elif name.startswith("$") or name in loop.kept:
            carried[name] = None
    if loop.condition is not None or loop.jumps:
        loop.iteration = context.temporary("iteration")
        carried[loop.iteration] = static(0)
    types = {name: value for name, value in carried.items() if value is not None and value.type is not None}
    graph = context.graph
    flows, expected = len(graph.flows), len(graph.expected)
    for _ in range(20):
        attempt = _Attempt(context, loop, outer, types, at)
        grown = attempt.run(carried)
        if grown is None:
            attempt.finish(carried)
            return
        types = grown
        del graph.flows[flows:], graph.expected[expected:]  # what the failed attempt has left
    raise context.error(
        "LG203",
        "the types of this loop's variables cannot be inferred",
        at,
        help="annotate the variables before the loop: `x: float = 0.0`",
    )


class _Attempt:
    """One try at a loop's body with variables of given types."""

    def __init__(self, context: Context, loop: Loop, outer: Environment, types: dict[str, Value], at: ast.AST) -> None:
        self.context, self.loop, self.outer, self.types, self.at = context, loop, outer, types, at
        self.flows: dict[str, Flow] = {}

    def run(self, carried: dict[str, Value | None]) -> dict[str, Value] | None:
        """None if the types hold, else better ones; `carried` gets the arrays that calls in the body have written."""
        context, loop = self.context, self.loop
        context.environment = self.outer
        inner, self.inputs = context.inner_environment()
        for name in carried:
            before = inner.pop(name, None)
            if before is not None and before.type is None:
                inner[name] = static(Conflict(name_of(before), "what the loop makes it"))
        self.names = list(self.types)
        self.index = input_node(Key("index"), i64)
        self.parameters: list[Node] = []
        for name, known in self.types.items():
            inner[name] = self._parameter(name, known)
        self.start = dict(inner)
        context.environment, context.exited = dict(inner), False
        for name in ("$broken", "$continued", "$returned"):
            if name not in self.types:
                set_flag(context, name, False)
        if loop.iteration:
            self._next_iteration()
        named = dict(context.sharing.shared)
        context.loops.append(frozenset(self.outer))
        loop.body(self.index)
        context.loops.pop()
        self.end = context.environment
        written = self._written_by_calls(carried)
        if written:
            carried |= written
            return self.types | written
        grown = self._grown(carried)
        # A second name that an object gets in one iteration, it has from the start of the next.
        return self.types if grown is None and named != context.sharing.shared else grown

    def _written_by_calls(self, carried: dict[str, Value | None]) -> dict[str, Value]:
        """The arrays that the body has changed without an assignment: functions with `inout` parameters do."""
        return {
            name: self.outer[name]
            for name, before in self.start.items()
            if name not in carried and isinstance(before.type, TensorType) and self.end.get(name) is not before
        }

    def _next_iteration(self) -> None:
        variables = self.context.environment
        iteration = variables[self.loop.iteration]
        assert iteration.node is not None
        variables[self.loop.iteration] = runtime(i64, iteration.node + 1)

    def _parameter(self, name: str, known: Value) -> Value:
        assert known.type is not None
        node = input_node(Key(name), ir_of(known.type))
        self.parameters.append(node)
        flow = None
        if differential_type(known.type) is not None:
            flow = self.flows[name] = self.context.graph.add("operation", self.context.span(self.at), [], name)
        return aliased(runtime(known.type, node, flow, known.weak), aliases_of(known))

    def _grown(self, carried: dict[str, Value | None]) -> dict[str, Value] | None:
        grown: dict[str, Value] = {}
        changed = False
        exchanged = self._exchanged_arrays()
        for name in carried:
            before, after = self.types.get(name), self.end.get(name)
            if after is None or (after.type is None and before is None):
                if before is not None:
                    grown[name] = before
                continue
            type = after.type if before is None else join(before, after)
            if type is None:
                # Not one type: whoever reads the name after the loop is told.
                self.end[name] = static(Conflict(name_of(before or after), name_of(after)))
                if before is not None and before.type is not None:
                    raise self.context.error(
                        "LG203",
                        f"`{name}` changes its type in this loop",
                        self.at,
                        found=f"{name_of(before)} before the loop, {name_of(after)} after an iteration",
                        help="use another name, or convert the value",
                    )
                continue
            weak = after.weak and (before is None or before.weak)
            held = () if before is None else aliases_of(before)
            aliases = held if name in exchanged else alias_either(held, aliases_of(after))
            grown[name] = Value(type, weak=weak, aliases=aliases)
            changed |= before is None or type != before.type or set(aliases) != set(held)
        return grown if changed else None

    def _exchanged_arrays(self) -> set[str]:
        """The arrays that change their names in an iteration."""
        before = {name: aliases_of(value) for name, value in self.start.items()}
        names = exchanged_names(before, {name: aliases_of(value) for name, value in self.end.items()})
        carried = [self.types.get(name) for name in names]
        arrays = all(value is not None and isinstance(value.type, TensorType) for value in carried)
        shared = any(before[name][0].object in self.context.sharing.shared for name in names)
        return names if arrays and not shared else set()

    def finish(self, carried: dict[str, Value | None]) -> None:
        """Makes the IR loop and puts its results into the variables."""
        context, loop, span = self.context, self.loop, self.context.span(self.at)
        results, initial = [], []
        for name, known in self.types.items():
            type = known.type
            assert type is not None
            end = self.end.get(name)
            results.append(zero_value(type) if end is None else node_of(convert(end, type, span), span))
            given = carried.get(name)
            initial.append(zero_value(type) if given is None else node_of(convert(given, type, span), span))
            if name in self.flows:
                self.flows[name].inputs += flows_of(*[v for v in (given, end) if v is not None])
        outputs = self._make(initial, results)
        context.environment = dict(self.outer)
        for name, known, node in zip(self.names, self.types.values(), outputs, strict=True):
            assert known.type is not None
            made = runtime(known.type, node, self.flows.get(name), known.weak)
            context.environment[name] = aliased(made, aliases_of(known))
        for name in self.loop.names:
            before, end = context.environment.get(name), self.end.get(name)
            if name in self.types or before is None or end is None or end is self.start.get(name):
                continue
            # A function, a text, a tuple with one: nothing that the running function could carry along.
            if not _same_static(before, end):
                context.environment[name] = static(Conflict(name_of(before), name_of(end)))
        returned = self.end.get("$return")
        if returned is not None and "$return" in carried and "$return" not in self.types:
            context.environment["$return"] = returned  # arrays of variables: they are known by name
        context.environment.pop(loop.iteration, None)
        context.exited = False

    def _make(self, initial: list[Node], results: list[Node]) -> list[Node]:
        context, loop = self.context, self.loop
        name = context.source.name
        carried = len(initial)
        if loop.condition is None and not loop.jumps:
            assert loop.iterations is not None
            (body,), captured = close_regions(name, [[self.index, *self.parameters]], self.inputs, [results])
            value = for_loop(loop.iterations, *initial, *captured, body=body, carried=carried, reverse=False)
        else:
            test = self._condition()
            groups = [[self.index, *self.parameters], self.parameters]
            (body, condition), captured = close_regions(name, groups, self.inputs, [results, [test]])
            value = while_loop(*initial, *captured, body=body, condition=condition, carried=carried, limit=loop.limit)
        return [get(value, index=index) for index in range(carried)]

    def _condition(self) -> Node:
        """Whether to go on, from the variables as they are at an iteration's start."""
        context, loop = self.context, self.loop
        context.environment = dict(self.start)
        stop = pending_jump(context, ("$returned", "$broken"))
        if loop.condition is None:
            iteration, iterations = self.start[loop.iteration].node, loop.iterations
            assert iteration is not None
            assert iterations is not None
            inner = (
                iterations
                if is_constant(iterations)
                else self.inputs.setdefault(iterations, input_node(Key("iterations"), i64))
            )
            go_on = iteration < inner
            return go_on if isinstance(stop, bool) else ~stop & go_on
        if isinstance(stop, bool):
            return loop.condition()
        decided = context.outcome()

        def ask() -> None:
            assert loop.condition is not None
            context.environment[decided] = runtime(bool_, loop.condition())

        def leave() -> None:
            context.environment[decided] = static(False)

        branch(context, stop, leave, ask, self.at)
        return node_of(context.environment[decided], context.span(self.at))
