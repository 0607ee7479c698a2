"""The compiler's state for one function: variables, aliases, derivative flow, dependencies and error reporting.

`function_compiler` creates a `Context` for each specialisation; expressions and statements read and update it.
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
    MISSING,
    FrontType,
    RecordType,
    TensorType,
    differential_type,
    mutable_depth,
)
from livegrad.frontend.function.python_source import Source
from livegrad.ir import types as ir
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.source_lines import originating_from
from livegrad.passes.affine_bounds import Range, range_of

Environment = dict[str, Value]

FIELD_FACT = "$narrowed "  # prefix of environment entries that record the narrowed type of a field, see `narrowing`


@dataclass(eq=False)
class Dependencies:
    """The dependencies of a compiled function besides its source; a change of any makes the specialisation stale."""

    names: dict[str, Any] = field(default_factory=dict)  # global and closure names, with snapshots of their values
    attributes: list[tuple[Any, str, Any]] = field(default_factory=list)  # (owner, name, snapshot of the value)
    callees: list[Callable[[], bool]] = field(default_factory=list)  # whether each callee is still current
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
        self.rebound: frozenset[str] = frozenset()  # names that the loop assigns whose iterable is being compiled
        # The value expression of the current assignment, and the names assigned; names are None for `return`.
        self.result_target: tuple[ast.AST | None, frozenset[str] | None] = (None, None)
        self.result_aliases: Aliases = ()
        self.inouts: list[str] = []  # parameters whose arrays the function writes
        self.ordered_writes = 0  # the number of writes that parallel loops must keep in order: `a[k] += x`
        self.enclosing_loops: list[frozenset[str]] = []  # for each enclosing loop, the variables before it
        self.returned_names: set[str] = set()  # variables whose final value is the result
        self.returned_inouts: set[str] | None = None  # `inout` parameters whose arrays every result contains
        self.ranges: dict[Node, Range] = {}  # value ranges of integers
        self.sizes: dict[str, int] = {}  # named sizes of the annotations
        self.exited = False  # control does not reach the next statement
        self.assigned_after_loop: dict[Any, frozenset[str]] = {}
        self.result_type: FrontType | None = None
        self.result_pattern: TensorPattern | TuplePattern | None = None
        self.result_no_diff = False
        self.type_variables: dict[Any, FrontType] = {}  # the types that replace them
        self.complete_signature = True  # every parameter has a concrete type
        self.function_class: Any = None  # the subclass of `CapturedFunction` that is being compiled
        self.inlining: list[ast.AST] = []  # the stack of local functions that are being inlined
        self.standalone_functions: dict[ast.AST, Any] = {}  # local functions that were passed as arguments
        self.discarded_expression: ast.expr | None = None  # the current expression statement, whose value is unused
        self.has_effects = False  # checks or prints
        self.prints = False
        self._evaluate: Callable[[Context, ast.expr], Value]
        self._execute: Callable[[Context, list[ast.stmt]], None]
        self._call: Callable[[Context, Any, list[Value], dict[str, Value], ast.AST], Value]
        self._temporary_count = 0

    # --- mutually recursive parts of the compiler, injected by `connect` ---

    def connect(self, evaluate: Any, execute: Any, call: Any) -> None:
        self._evaluate, self._execute, self._call = evaluate, execute, call

    def evaluate(self, expression: ast.expr) -> Value:
        """The value of an expression; its nodes get the source location of the expression."""
        with originating_from((self.span(expression).origin,)):
            return self._evaluate(self, expression)

    def execute(self, statements: list[ast.stmt]) -> None:
        self._execute(self, statements)

    def call(self, callee: Any, positional: list[Value], at: ast.AST) -> Value:
        return self._call(self, callee, positional, {}, at)

    # --- source locations and errors ---

    def span(self, node: ast.AST) -> Span:
        return self.source.span(node)

    def error(self, code: str, what: str, node: ast.AST, **details: Any) -> FunctionError:
        return FunctionError(code, what, self.span(node), **details)

    # --- values ---

    def result(self, type: FrontType, node: Node, inputs: Iterable[Value], at: ast.AST, weak: bool = False) -> Value:
        """The result of an operation on values; the derivative flow graph connects it to them."""
        differential = differential_type(type)
        flow = None
        inputs = list(inputs)
        if differential is not None:
            self.dependencies.types[type] = differential
            flows = flows_of(*inputs)
            flow = self.graph.add("operation", self.span(at), flows) if flows else None
        value = runtime(type, node, flow, weak)
        if isinstance(type, ir.Vector | ir.Matrix | TensorType):
            return value  # arithmetic allocates new objects
        return with_aliases(value, merge_aliases(*map(aliases_of, inputs)))  # conservative; callers may refine it

    def part(self, type: FrontType, node: Node, whole: Value, at: ast.AST, weak: bool = False) -> Value:
        """An element or field of a value, which shares its object with the value."""
        return with_aliases(self.result(type, node, [whole], at, weak), aliases_of_element(aliases_of(whole)))

    def bind_object(self, value: Value, site: Hashable) -> Value:
        """The value as a variable holds it; a new object is allocated at the site that binds it."""
        if value.items is None and not mutable_depth(value.type):
            return value
        self.sharing.record_shared(aliases_of(value))
        fresh = with_allocation(with_retired_site(value, site), site)
        if any(alias.object not in {a.object for a in aliases_of(value)} for alias in aliases_of(fresh)):
            for name, variable in self.environment.items():
                self.environment[name] = with_retired_site(variable, site)
        return fresh

    def outside_value(self, value: Any, name: str, at: ast.AST) -> Value:
        """A global or closure value, whose changes other code may see."""
        return with_aliases(from_python(value, self.span(at)), (outside_alias(name),))

    def list_of(self, items: Sequence[Value], at: ast.AST) -> Value:
        """A list of values of one type; derivatives flow from the values to the list."""
        array = array_value(items, self.span(at))
        assert array.type is not None
        assert array.node is not None
        value = self.result(array.type, array.node, items, at, array.weak)
        return with_aliases(value, aliases_of_container(map(aliases_of, items)))

    def with_flow(self, value: Value, kind: str, inputs: Iterable[Value], at: ast.AST, label: str = "") -> Value:
        """The value with a new flow, of this kind and with these inputs, in place of its own."""
        flow = self.graph.add(kind, self.span(at), flows_of(*inputs), label)
        return self._reflow(value, flow)

    def _reflow(self, value: Value, flow: Any) -> Value:
        if value.items is not None:
            return replace(value, items=tuple(self._reflow(item, flow) for item in value.items))
        carries = value.node is not None and value.type is not None and differential_type(value.type) is not None
        return replace(value, flow=flow if carries else None)

    def expect(self, value: Value) -> None:
        """Records that a derivative is expected to arrive through this value."""
        self.graph.expected += flows_of(value)

    # --- names ---

    def temporary(self, label: str) -> str:
        """A new hidden variable, visible in this control-flow region and in regions inside it."""
        self._temporary_count += 1
        return f"~{label}{self._temporary_count}"

    def outcome(self) -> str:
        """A new hidden variable that branches assign and code after them reads."""
        self._temporary_count += 1
        return f"$outcome{self._temporary_count}"

    def lookup_outside(self, name: ast.Name) -> Any:
        """The value of a global or closure name, recorded as a dependency of the specialisation."""
        value = self.source.lookup(name.id)
        if value is MISSING:
            raise self.error("LG104", f"`{name.id}` is not defined", name, help="assign it first, or import it")
        self.dependencies.names[name.id] = snapshot(value)
        return value

    def inner_environment(self) -> tuple[Environment, dict[Node, Node]]:
        """The variables as seen inside a control-flow region, and the region input that represents each outer node."""
        inputs: dict[Node, Node] = {}
        inner = {name: _as_region_input(value, name, inputs) for name, value in self.environment.items()}
        for outer_node, region_input in inputs.items():
            bounds = range_of(outer_node, self.ranges) if outer_node.type is ir.i64 else None
            if bounds is not None:
                self.ranges[region_input] = bounds
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
    """A struct instance and snapshots of its fields at compile time."""

    instance: Any
    fields: tuple[Any, ...]


def snapshot(value: Any) -> Any:
    """A copy of a value that later comparisons detect changes with; immutable values are not copied."""
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
