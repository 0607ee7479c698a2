"""The state of compiling one function: variables, derivative flow, dependencies and error reporting.

`function_compiler` creates one for each specialisation; expressions and statements read and update it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from livegrad.frontend.function.aliases import (
    Aliases,
    Sharing,
    aliases_of_container,
    aliases_of_element,
    merge_aliases,
    outside_alias,
)
from livegrad.frontend.function.array_patterns import TensorPattern, TuplePattern
from livegrad.frontend.function.compile_values import (
    Value,
    aliases_of,
    array_value,
    flows_of,
    from_python,
    runtime,
    with_aliases,
    with_allocation,
    with_retired_site,
)
from livegrad.frontend.function.derivative_flow import FlowGraph
from livegrad.frontend.function.function_errors import FunctionError, Span
from livegrad.frontend.function.function_types import (
    FrontType,
    RecordType,
    TensorType,
    differential_type,
    mutable_depth,
)
from livegrad.frontend.function.python_source import MISSING, Source
from livegrad.ir import types as ir
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.source_lines import originating_from
from livegrad.passes.affine_bounds import Range, range_of

Environment = dict[str, Value]

FIELD_FACT = "$narrowed "  # prefix of the entries that hold what a test established about a field, see `narrowing`


@dataclass(eq=False)
class Dependencies:
    """What a compiled function depends on besides its own source: it is compiled again when any of it changes."""

    names: dict[str, Any] = field(default_factory=dict)  # names of the function's surroundings
    attributes: list[tuple[Any, str, Any]] = field(default_factory=list)  # of modules
    callees: list[Callable[[], bool]] = field(default_factory=list)  # whether what was called is still current
    types: dict[FrontType, FrontType] = field(default_factory=dict)  # differentiable types with their differentials


class Context:
    """The state of compiling a function body."""

    def __init__(self, source: Source, dependencies: Dependencies, differentiable: bool) -> None:
        self.source = source
        self.dependencies = dependencies
        self.differentiable = differentiable
        self.graph = FlowGraph()
        self.environment: Environment = {}
        self.sharing = Sharing()
        self.rebound: frozenset[str] = frozenset()  # names that the loop whose iterable is looked at assigns to
        self.result_target: tuple[ast.AST | None, frozenset[str] | None] = (
            None,
            None,
        )  # a call, and names it gives new values to
        self.result_aliases: Aliases = ()
        self.inouts: list[str] = []  # parameters whose arrays the function writes
        self.ordered_writes = 0  # how many writes there are that parallel loops make in order: `a[k] += x`
        self.enclosing_loops: list[frozenset[str]] = []  # for each loop around, the variables that it began with
        self.returned_names: set[str] = set()  # variables that a result is read from when the function ends
        self.returned_inouts: set[str] | None = None  # those that every result contains
        self.ranges: dict[Node, Range] = {}  # what is known of integers
        self.sizes: dict[str, int] = {}  # what the names of sizes in annotations stand for
        self.exited = False  # no way leads from here to the next statement
        self.assigned_after_loop: dict[Any, frozenset[str]] = {}
        self.result_type: FrontType | None = None
        self.result_pattern: TensorPattern | TuplePattern | None = None
        self.result_no_diff = False
        self.type_variables: dict[Any, FrontType] = {}  # what they stand for here
        self.complete_signature = True  # every parameter has a type of its own
        self.kind: Any = None  # the class of captured functions that is being compiled
        self.inlining: list[ast.AST] = []  # local functions that are being written out
        self.standalone_functions: dict[ast.AST, Any] = {}  # local functions that were handed on
        self.discarded_expression: ast.expr | None = None  # an expression whose value nobody takes
        self.has_effects = False  # checks or prints
        self.prints = False
        self._evaluate: Callable[[Context, ast.expr], Value]
        self._execute: Callable[[Context, list[ast.stmt]], None]
        self._call: Callable[[Context, Any, list[Value], dict[str, Value], ast.AST], Value]
        self._temporary = 0

    # --- the parts of the compiler that call each other, given by it ---

    def connect(self, evaluate: Any, execute: Any, call: Any) -> None:
        self._evaluate, self._execute, self._call = evaluate, execute, call

    def evaluate(self, expression: ast.expr) -> Value:
        """The value of an expression; its nodes stand for the expression's place."""
        with originating_from((self.span(expression).origin,)):
            return self._evaluate(self, expression)

    def execute(self, statements: list[ast.stmt]) -> None:
        self._execute(self, statements)

    def call(self, callee: Any, positional: list[Value], at: ast.AST) -> Value:
        return self._call(self, callee, positional, {}, at)

    # --- places and errors ---

    def span(self, node: ast.AST) -> Span:
        return self.source.span(node)

    def error(self, code: str, what: str, node: ast.AST, **details: Any) -> FunctionError:
        return FunctionError(code, what, self.span(node), **details)

    # --- values ---

    def result(self, type: FrontType, node: Node, inputs: Iterable[Value], at: ast.AST, weak: bool = False) -> Value:
        """The result of an operation on values: its derivative flows on from theirs."""
        differential = differential_type(type)
        flow = None
        inputs = list(inputs)
        if differential is not None:
            self.dependencies.types[type] = differential
            flows = flows_of(*inputs)
            flow = self.graph.add("operation", self.span(at), flows) if flows else None
        value = runtime(type, node, flow, weak)
        if isinstance(type, ir.Vector | ir.Matrix | TensorType):
            return value  # arithmetic makes new ones
        return with_aliases(value, merge_aliases(*map(aliases_of, inputs)))  # unless the caller knows better

    def part(self, type: FrontType, node: Node, whole: Value, at: ast.AST, weak: bool = False) -> Value:
        """An element or field of a value: the very object that is in it."""
        return with_aliases(self.result(type, node, [whole], at, weak), aliases_of_element(aliases_of(whole)))

    def bind_object(self, value: Value, holder: Hashable) -> Value:
        """The value as a variable holds it that gets it at a place in the program."""
        if value.items is None and not mutable_depth(value.type):
            return value
        self.sharing.record_shared(aliases_of(value))
        fresh = with_allocation(with_retired_site(value, holder), holder)
        if any(alias.object not in {a.object for a in aliases_of(value)} for alias in aliases_of(fresh)):
            for name, other in self.environment.items():
                self.environment[name] = with_retired_site(other, holder)
        return fresh

    def outside_value(self, value: Any, name: str, at: ast.AST) -> Value:
        """A value from around the function, which others may see."""
        return with_aliases(from_python(value, self.span(at)), (outside_alias(name),))

    def list_of(self, items: Sequence[Value], at: ast.AST) -> Value:
        """A list of values of one type, through which their derivatives flow."""
        listed = array_value(items, self.span(at))
        assert listed.type is not None
        assert listed.node is not None
        value = self.result(listed.type, listed.node, items, at, listed.weak)
        return with_aliases(value, aliases_of_container(map(aliases_of, items)))

    def with_flow(self, value: Value, kind: str, inputs: Iterable[Value], at: ast.AST, label: str = "") -> Value:
        """The same value with a flow of its own in the place of what it had."""
        flow = self.graph.add(kind, self.span(at), flows_of(*inputs), label)
        return self._reflow(value, flow)

    def _reflow(self, value: Value, flow: Any) -> Value:
        if value.items is not None:
            return replace(value, items=tuple(self._reflow(item, flow) for item in value.items))
        carries = value.node is not None and value.type is not None and differential_type(value.type) is not None
        return replace(value, flow=flow if carries else None)

    def expect(self, value: Value) -> None:
        """A derivative is expected to come through this value."""
        self.graph.expected += flows_of(value)

    # --- names ---

    def temporary(self, label: str) -> str:
        """A variable that no program can name, for use in this region of control flow and those inside it."""
        self._temporary += 1
        return f"~{label}{self._temporary}"

    def outcome(self) -> str:
        """A variable that no program can name, which branches set and what follows them reads."""
        self._temporary += 1
        return f"$outcome{self._temporary}"

    def lookup_outside(self, name: ast.Name) -> Any:
        """What a name means outside the function; the function is compiled anew when that changes."""
        value = self.source.lookup(name.id)
        if value is MISSING:
            raise self.error("LG104", f"`{name.id}` is not defined", name, help="assign it first, or import it")
        self.dependencies.names[name.id] = snapshot(value)
        return value

    def inner_environment(self) -> tuple[Environment, dict[Node, Node]]:
        """The variables as a region of control flow sees them, and which input stands for which node."""
        inputs: dict[Node, Node] = {}
        inner = {name: _as_region_input(value, name, inputs) for name, value in self.environment.items()}
        for lookup_outside, inside in inputs.items():
            bounds = range_of(lookup_outside, self.ranges) if lookup_outside.type is ir.i64 else None
            if bounds is not None:
                self.ranges[inside] = bounds
        return inner, inputs


def _as_region_input(value: Value, name: str, inputs: dict[Node, Node]) -> Value:
    if value.items is not None:
        return replace(value, items=tuple(_as_region_input(item, name, inputs) for item in value.items))
    if value.node is None:
        return value
    if value.node not in inputs:
        inputs[value.node] = input_node(Key(name), value.node.type)
    return replace(value, node=inputs[value.node])


@dataclass(frozen=True)
class FieldsSnapshot:
    """A struct instance, and the values of its fields at compile time."""

    instance: Any
    fields: tuple[Any, ...]


def snapshot(value: Any) -> Any:
    """A value to compare with later: things that can be changed in place are copied."""
    if isinstance(value, list | tuple):
        return type(value)(map(snapshot, value)) if type(value) in (list, tuple) else value
    if type(value) is dict:
        return {key: snapshot(item) for key, item in value.items()}
    record = getattr(value, "__livegrad_type__", None)
    if isinstance(record, RecordType) and not isinstance(value, type):
        return FieldsSnapshot(value, tuple(snapshot(getattr(value, field.name)) for field in record.fields))
    copy = getattr(value, "__array__", None)
    if copy is not None and not isinstance(value, type):
        return value.copy() if hasattr(value, "copy") else value
    return value
