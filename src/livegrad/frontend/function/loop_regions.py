"""Compiles a loop to `for_loop` or `while_loop`: finds the loop-carried variables with their types and aliases.

The `loops` module passes callables that compile the parts. The body is compiled repeatedly until the types and aliases
of its variables reach a fixed point, so that they hold in every iteration.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from livegrad.frontend.function.aliases import merge_aliases, swapped_names
from livegrad.frontend.function.branch_regions import (
    FLAGS,
    Conflict,
    branch,
    close_regions,
    pending_jump,
    same_static,
    set_flag,
)
from livegrad.frontend.function.compile_state import Context, Environment
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
    with_aliases,
    zero_value,
)
from livegrad.frontend.function.derivative_flow import Flow
from livegrad.frontend.function.function_types import TensorType, differential_type, ir_of
from livegrad.ir.leaves import input_node, is_constant
from livegrad.ir.node import Key, Node
from livegrad.ir.types import bool_, i64
from livegrad.ops.aggregate import get
from livegrad.ops.control import for_loop, while_loop
from livegrad.passes.counted_while_loops import as_for_loop


@dataclass
class Loop:
    """A loop to compile: `names` may change in it, `body(index)` compiles one iteration, and `condition()` compiles the
    loop condition (None: run `iterations` times).
    """

    names: set[str]
    set_after: frozenset[str]  # names that are assigned after the loop, even if they are unassigned before it
    body: Callable[[Node], None]
    iterations: Node | None
    condition: Callable[[], Node] | None
    limit: int | None
    jumps: bool  # the body may leave the loop early
    parallel: bool = False  # iterations are independent, except for `a[k] += x`
    iteration: str = ""  # the hidden variable that counts the iterations of a loop that may end early


def run_loop(context: Context, loop: Loop, at: ast.AST) -> None:
    """Compiles the loop; afterwards the variables have their values from the end of the last iteration."""
    outer = context.environment
    carried: dict[str, Value | None] = {}
    for name in sorted(loop.names):
        if name in outer:
            carried[name] = outer[name]
        elif name in FLAGS:
            carried[name] = static(False)
        elif name.startswith("$") or name in loop.set_after:
            carried[name] = None
    if loop.condition is not None or loop.jumps:
        loop.iteration = context.temporary("iteration")
        carried[loop.iteration] = static(0)
    types = {name: value for name, value in carried.items() if value is not None and value.type is not None}
    graph = context.graph
    flows, expected = len(graph.flows), len(graph.expected)
    for _ in range(20):
        attempt = _Attempt(context, loop, outer, types, at)
        widened = attempt.run(carried)
        if widened is None:
            attempt.finish(carried)
            return
        types = widened
        del graph.flows[flows:], graph.expected[expected:]  # discard the flows of the failed attempt
    raise context.error(
        "LG203",
        "the types of this loop's variables cannot be inferred",
        at,
        help="annotate the variables before the loop: `x: float = 0.0`",
    )


class _Attempt:
    """One attempt to compile a loop body, with given types and aliases of the loop-carried variables."""

    def __init__(self, context: Context, loop: Loop, outer: Environment, types: dict[str, Value], at: ast.AST) -> None:
        self.context, self.loop, self.outer, self.types, self.at = context, loop, outer, types, at
        self.flows: dict[str, Flow] = {}

    def run(self, carried: dict[str, Value | None]) -> dict[str, Value] | None:
        """Compiles the body. Returns None at the fixed point, else the widened types for the next attempt.

        Adds arrays that calls in the body write to `carried`.
        """
        context, loop = self.context, self.loop
        context.environment = self.outer
        inner, self.inputs = context.inner_environment()
        for name in carried:
            before = inner.pop(name, None)
            if before is not None and before.type is None:
                inner[name] = static(Conflict(name_of(before), "another type in the loop"))
        self.names = list(self.types)
        self.index = input_node(Key("index"), i64)
        self.parameters: list[Node] = []
        for name, carried_value in self.types.items():
            inner[name] = self._add_parameter(name, carried_value)
        self.start = dict(inner)
        context.environment, context.exited = dict(inner), False
        for name in ("$broken", "$continued", "$returned"):
            if name not in self.types:
                set_flag(context, name, False)
        if loop.iteration:
            self._count_iteration()
        shared_before = dict(context.sharing.shared)
        context.enclosing_loops.append(frozenset(self.outer))
        ordered_writes = context.ordered_writes
        loop.body(self.index)
        self.writes_in_order = context.ordered_writes != ordered_writes
        context.enclosing_loops.pop()
        self.end = context.environment
        written = self._arrays_written_by_calls(carried)
        if written:
            carried |= written
            return self.types | written
        widened = self._widen_types(carried)
        # An object that gets a second name in one iteration has it from the start of the next one: compile again.
        return self.types if widened is None and shared_before != context.sharing.shared else widened

    def _arrays_written_by_calls(self, carried: dict[str, Value | None]) -> dict[str, Value]:
        """The arrays that the body changes through `inout` parameters of calls, without an assignment."""
        return {
            name: self.outer[name]
            for name, before in self.start.items()
            if name not in carried and isinstance(before.type, TensorType) and self.end.get(name) is not before
        }

    def _count_iteration(self) -> None:
        variables = self.context.environment
        iteration = variables[self.loop.iteration]
        assert iteration.node is not None
        variables[self.loop.iteration] = runtime(i64, iteration.node + 1)

    def _add_parameter(self, name: str, carried: Value) -> Value:
        assert carried.type is not None
        node = input_node(Key(name), ir_of(carried.type))
        self.parameters.append(node)
        flow = None
        if differential_type(carried.type) is not None:
            flow = self.flows[name] = self.context.graph.add("operation", self.context.span(self.at), [], name)
        return with_aliases(runtime(carried.type, node, flow, carried.weak), aliases_of(carried))

    def _widen_types(self, carried: dict[str, Value | None]) -> dict[str, Value] | None:
        widened: dict[str, Value] = {}
        changed = False
        swapped = self._swapped_arrays()
        for name in carried:
            before, after = self.types.get(name), self.end.get(name)
            if after is None or (after.type is None and before is None):
                if before is not None:
                    widened[name] = before
                continue
            type = after.type if before is None else join(before, after)
            if type is None:
                # No common type: reading the name after the loop is an error.
                self.end[name] = static(Conflict(name_of(before or after), name_of(after)))
                if before is not None and before.type is not None:
                    raise self.context.error(
                        "LG203",
                        f"the type of `{name}` changes in this loop",
                        self.at,
                        found=f"{name_of(before)} before the loop, {name_of(after)} after an iteration",
                        help="use another name, or convert the value",
                    )
                continue
            weak = after.weak and (before is None or before.weak)
            aliases_before = () if before is None else aliases_of(before)
            aliases = aliases_before if name in swapped else merge_aliases(aliases_before, aliases_of(after))
            widened[name] = Value(type, weak=weak, aliases=aliases)
            changed |= before is None or type != before.type or set(aliases) != set(aliases_before)
        return widened if changed else None

    def _swapped_arrays(self) -> set[str]:
        """The names of arrays that an iteration permutes, as in `old, new = new, old`."""
        before = {name: aliases_of(value) for name, value in self.start.items()}
        names = swapped_names(before, {name: aliases_of(value) for name, value in self.end.items()})
        carried = [self.types.get(name) for name in names]
        arrays = all(value is not None and isinstance(value.type, TensorType) for value in carried)
        shared = any(before[name][0].object in self.context.sharing.shared for name in names)
        return names if arrays and not shared else set()

    def finish(self, carried: dict[str, Value | None]) -> None:
        """Builds the IR loop and assigns its results to the variables."""
        context, loop, span = self.context, self.loop, self.context.span(self.at)
        results, initial = [], []
        for name, carried_value in self.types.items():
            type = carried_value.type
            assert type is not None
            end = self.end.get(name)
            results.append(zero_value(type) if end is None else node_of(convert(end, type, span), span))
            value = carried.get(name)
            initial.append(zero_value(type) if value is None else node_of(convert(value, type, span), span))
            if name in self.flows:
                self.flows[name].inputs += flows_of(*[v for v in (value, end) if v is not None])
        outputs = self._build_loop(initial, results)
        context.environment = dict(self.outer)
        for name, carried_value, node in zip(self.names, self.types.values(), outputs, strict=True):
            assert carried_value.type is not None
            result = runtime(carried_value.type, node, self.flows.get(name), carried_value.weak)
            context.environment[name] = with_aliases(result, aliases_of(carried_value))
        for name in self.loop.names:
            before, end = context.environment.get(name), self.end.get(name)
            if name in self.types or before is None or end is None or end is self.start.get(name):
                continue
            # A static value, such as a function or a string, which a run-time loop cannot carry.
            if not same_static(before, end):
                context.environment[name] = static(Conflict(name_of(before), name_of(end)))
        returned = self.end.get("$return")
        if returned is not None and "$return" in carried and "$return" not in self.types:
            context.environment["$return"] = returned  # refers to arrays by the names of variables
        context.environment.pop(loop.iteration, None)
        context.exited = False

    def _build_loop(self, initial: list[Node], results: list[Node]) -> list[Node]:
        context, loop = self.context, self.loop
        name = context.source.name
        carried = len(initial)
        if loop.condition is None and not loop.jumps:
            assert loop.iterations is not None
            (body,), captured = close_regions(name, [[self.index, *self.parameters]], self.inputs, [results])
            hints = {"independent": True} if loop.parallel and not self.writes_in_order else {}
            value = for_loop(loop.iterations, *initial, *captured, body=body, carried=carried, reverse=False, **hints)
        else:
            test = self._condition()
            groups = [[self.index, *self.parameters], self.parameters]
            (body, condition), captured = close_regions(name, groups, self.inputs, [results, [test]])
            value = while_loop(*initial, *captured, body=body, condition=condition, carried=carried, limit=loop.limit)
            counted = as_for_loop(value)
            value = value if counted is None else counted
        return [get(value, index=index) for index in range(carried)]

    def _condition(self) -> Node:
        """The loop condition, computed from the variables at the start of an iteration."""
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
            in_range = iteration < inner
            return in_range if isinstance(stop, bool) else ~stop & in_range
        if isinstance(stop, bool):
            return loop.condition()
        result = context.outcome()

        def evaluate_condition() -> None:
            assert loop.condition is not None
            context.environment[result] = runtime(bool_, loop.condition())

        def leave_loop() -> None:
            context.environment[result] = static(False)

        branch(context, stop, leave_loop, evaluate_condition, self.at)
        return node_of(context.environment[result], context.span(self.at))
