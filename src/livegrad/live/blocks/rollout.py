"""Gradients through frames: several frames of a running graph as one function, and its derivatives.

`lg.grad(engine, of=..., by=..., frames=n)` returns a `FrameGradient`. The blocks that an output depends on, and those
that feed the states it reads, become a loop over frames that carries the states. `pull.py` fits inputs with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.ir.function import inline, make_function
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, i64, is_differentiable
from livegrad.live.blocks.compose import Composition
from livegrad.live.compile.flatten import PinResolver, find_keys
from livegrad.live.compile.graph_compiler import Compilation
from livegrad.live.compile.network import NetworkNode, OutputRef, Ref, RootRef, inputs_of
from livegrad.live.compile.propagate import input_type_of, tensor_of
from livegrad.live.compile.topological_sort import sort_nodes
from livegrad.live.engine import Engine
from livegrad.live.frame import EngineError
from livegrad.live.graph.block import Block, Pin, State, only_output
from livegrad.live.graph.keys import pin_key
from livegrad.live.graph.problems import GraphError
from livegrad.live.graph.sources import Binding, InputType, Numbers, Setting
from livegrad.ops.aggregate import member
from livegrad.ops.context import FeatureLevel
from livegrad.ops.control import for_loop
from livegrad.ops.rules import add_values
from livegrad.passes.differentiate.budget import within_budget
from livegrad.passes.differentiate.forward import with_result_tangents
from livegrad.passes.differentiate.lower import with_derivatives_written
from livegrad.passes.differentiate.reverse import pull_back
from livegrad.runtime.cpu import compile_function
from livegrad.tensors.tracing import placeholders

MAX_RESIDUAL_BYTES = 1 << 26  # of all frames; beyond it, frames are recomputed in the backward pass
_EDITS_OF_PLANS = ("structure", "code")


@dataclass(frozen=True)
class Rollout:
    """`function` maps the number of frames before the last one, changes of inputs, and the values of a graph to an
    output in the last frame. The values are those of states, inputs, features and constants, in this order."""

    function: Function
    change_types: tuple[Tensor, ...]
    states: tuple[str, ...]  # nodes
    roots: tuple[tuple[Pin, InputType], ...]
    features: tuple[FeatureLevel, ...]
    constants: tuple[Numbers, ...]

    def arguments(self, engine: Engine, frames: int, changes: Sequence[Numbers]) -> list[Any]:
        """The arguments of `function` with the values that the next frame would read."""
        executable = engine._runtime.executable
        assert executable is not None
        buffers = {state.key: state.value for state in executable.plan.states}
        waiting = _waiting_states(engine)
        states = [waiting[key] if key in waiting else executable.read(buffers[key]) for key in self.states]
        roots = [_value_of_root(pin, input_type) for pin, input_type in self.roots]
        features = [engine.features.get(feature) for feature in self.features]
        for feature, value in zip(self.features, features, strict=True):
            if value is None:
                help = "give it a value with engine.set_feature"
                raise GraphError(f"the feature `{feature}` has no value", help=help)
        return [frames - 1, *changes, *states, *roots, *features, *self.constants]

    def value(self, arguments: Sequence[Any]) -> Numbers:
        """The output in the last frame."""
        return np.asarray(compile_function(self.function)(*arguments))

    def gradients(self, arguments: Sequence[Any], seed: Numbers) -> list[Numbers]:
        """The gradient of the output with respect to each change, weighted by `seed`."""
        results = compile_function(self._backward)(*arguments, seed)
        return [np.asarray(result) for result in (results if isinstance(results, tuple | list) else (results,))]

    def tangent(self, arguments: Sequence[Any], changes: Sequence[Numbers]) -> Numbers:
        """The change of the output for small changes of the inputs: forward mode."""
        return np.asarray(compile_function(self._forward)(*arguments, *changes)[1])

    @cached_property
    def _backward(self) -> Function:
        return pull_back(with_derivatives_written(within_budget(self.function, MAX_RESIDUAL_BYTES)), self._active)

    @cached_property
    def _forward(self) -> Function:
        return with_result_tangents(with_derivatives_written(self.function), self._active, (True,))

    @property
    def _active(self) -> tuple[bool, ...]:
        count = len(self.change_types)
        return tuple(1 <= position <= count for position in range(len(self.function.parameters)))


def _waiting_states(engine: Engine) -> dict[str, Numbers]:
    """The values that states take in the next frame because they were set, by key."""
    journal = engine.graph.journal
    subjects = [entry.subject for entry in (*journal.applying, *journal.entries) if entry.kind == "state"]
    return {key: subject.value for subject in subjects for key in find_keys(engine.graph, subject.state)}


def _value_of_root(pin: Pin, input_type: InputType) -> Numbers:
    """The value of an input, which must have the type that it has in the plan."""
    source = None if pin.block.home is None else pin.block.home.source_of(pin)
    if isinstance(source, Setting) and source.input_type == input_type:
        return np.asarray(source.value, input_type.type.element.dtype)
    if isinstance(source, Binding) and tensor_of(source.external.array) is input_type.type:
        return np.array(source.external.array)
    raise _waiting_edits()


def _waiting_edits() -> UsageError:
    help = "call engine.step() first, or engine.settle()"
    return UsageError("edits wait for the next frame", where=caller_origin(), help=help)


Inputs = list[tuple[str, str]]  # of nodes, by key and name


class _FrameComposer:
    """Evaluates one frame of a network on IR values."""

    def __init__(self, compilation: Compilation, by: Sequence[Inputs | OutputRef]) -> None:
        self.network, self.shapes = compilation.network, compilation.shapes
        self.composition = Composition()
        self.order = [self.network.nodes[key] for key, _ in sort_nodes(self.network)[0]]
        self.states: dict[str, Node] = {}
        self.roots: dict[str, tuple[Node, Pin, InputType]] = {}
        self.changes = [placeholders([self._type_of(entry)])[0] for entry in by]
        self.change_of = {
            place: change
            for entry, change in zip(by, self.changes, strict=True)
            if not isinstance(entry, OutputRef)
            for place in entry
        }
        self._computed: dict[str, Node] = {}
        self._evaluated: set[str] = set()

    def _type_of(self, entry: Inputs | OutputRef) -> Tensor:
        """The type of the changes of an input, or of a state."""
        if isinstance(entry, OutputRef):
            block = self.network.nodes[entry.node].block
            assert isinstance(block, State)
            type, name = tensor_of(block.initial), entry.node
        else:
            types = []
            for node, pin in entry:
                ref = inputs_of(self.network.nodes[node])[pin]
                assert ref is not None
                types.append(input_type_of(ref, self.shapes).type)
            type, name = types[0], pin_key(*entry[0])
            if any(other is not type for other in types):
                raise GraphError(f"`{name}` feeds inputs of different types", found=", ".join(map(str, types)))
        if not is_differentiable(type):
            what = f"there is no derivative with respect to `{name}`"
            raise GraphError(what, expected="real numbers", found=str(type))
        return type

    def evaluate(self, target: OutputRef) -> Node:
        """The value of an output. Every node is evaluated once."""
        needed = self._find_ancestors(target.node)
        for node in self.order:
            if node.key in needed and not isinstance(node.block, State):
                self._evaluate_node(node)
                needed.discard(node.key)
        return self._value(target, None)[0]

    def _find_ancestors(self, start: str) -> set[str]:
        ancestors: set[str] = set()
        worklist = [start]
        while worklist:
            node = self.network.nodes[worklist.pop()]
            if node.key not in ancestors and node.key not in self._evaluated:
                ancestors.add(node.key)
                worklist += [source for _, source in node.dependencies()]
        return ancestors

    def _evaluate_node(self, node: NetworkNode) -> None:
        values: dict[str, Node] = {}
        weak: dict[str, InputType] = {}
        for name, ref in inputs_of(node).items():
            assert ref is not None
            values[name], input_type = self._value(ref, self.change_of.get((node.key, name)))
            if input_type.weak:
                weak[name] = input_type
        for name, value in self.composition.evaluate(node, values, weak).items():
            self._computed[node.result_key(name)] = value
        self._evaluated.add(node.key)

    def _value(self, ref: Ref, change: Node | None) -> tuple[Node, InputType]:
        """The value behind an input, with a change if the gradient is with respect to it."""
        input_type = input_type_of(ref, self.shapes)
        if isinstance(ref, RootRef):
            if ref.key not in self.roots:
                self.roots[ref.key] = placeholders([input_type.type])[0], ref.pin, input_type
            value = self.roots[ref.key][0]
        elif isinstance(ref, OutputRef) and isinstance(self.network.nodes[ref.node].block, State):
            if ref.node not in self.states:
                self.states[ref.node] = placeholders([input_type.type])[0]
            value = self.states[ref.node]
        else:
            value = self._computed[ref.key]
        return (value if change is None else add_values(value, change)), input_type


def make_rollout(compilation: Compilation, of: OutputRef, by: Sequence[Inputs | OutputRef]) -> Rollout:
    """The frames of a graph as a function of the inputs `by`."""
    frame = _FrameComposer(compilation, by)
    result = frame.evaluate(of)
    if not is_differentiable(result.type):
        raise GraphError(f"`{of.key}` has no derivative", expected="real numbers", found=str(result.type))
    nexts: dict[str, Node] = {}
    while len(nexts) < len(frame.states):  # the inputs of states may read further states
        state = next(state for state in frame.states if state not in nexts)
        source = frame.network.nodes[state].feeds["next"]
        nexts[state] = frame.evaluate(source) if isinstance(source, OutputRef) else frame.states[state]
    states = list(frame.states.values())
    roots = [node for node, _, _ in frame.roots.values()]
    features = list(frame.composition.features.values())
    constants = [placeholder for placeholder, _ in frame.composition.constants]
    captured = [*frame.changes, *roots, *features, *constants]
    index, count = placeholders([i64, i64])
    step = make_function("frame", (index, *states, *captured), [nexts[state] for state in frame.states])
    last = make_function("last frame", (*states, *captured), [result])
    starts = placeholders([state.type for state in states])
    changed = {
        entry.node: change for entry, change in zip(by, frame.changes, strict=True) if isinstance(entry, OutputRef)
    }
    reached: list[Node] = [
        add_values(start, changed[key]) if key in changed else start
        for key, start in zip(frame.states, starts, strict=True)
    ]
    if states:
        loop = for_loop(count, *reached, *captured, body=step, carried=len(states), reverse=False)
        reached = [member(loop, position) for position in range(len(states))]
    parameters = (count, *frame.changes, *starts, *roots, *features, *constants)
    function = make_function("frames", parameters, inline(last, [*reached, *captured]))
    return Rollout(
        function,
        tuple(change.type for change in frame.changes),  # type: ignore[misc]
        tuple(frame.states),
        tuple((pin, input_type) for _, pin, input_type in frame.roots.values()),
        tuple(frame.composition.features),
        tuple(array for _, array in frame.composition.constants),
    )


# --- for users --------------------------------------------------------------------------------------------------------


class FrameGradient:
    """How an output in the last of the next `frames` frames depends on inputs now: `lg.grad(engine, frames=n)`.

    Inputs, features and bound memory are taken to stay as they are, and states start from their current values. Nothing
    in the engine runs or changes. With one frame, it is the gradient within a frame.

    >>> import livegrad as lg
    >>> engine = lg.Engine()
    >>> x = engine.add(lg.State("x", 1.0))
    >>> grow = engine.add(lg.block(lambda x, rate=2.0: x * rate, name="grow"))
    >>> engine.connect(x, grow["x"]), engine.connect(grow, x["next"])
    (None, None)
    >>> _ = engine.step()
    >>> slope = lg.grad(engine, of=grow, by=[grow["rate"]], frames=3)
    >>> float(slope.value()), float(slope.read()[grow["rate"]])      # x = 2 now, and then 2 · rate³
    (16.0, 24.0)
    """

    def __init__(self, engine: Engine, of: Pin, by: Sequence[Pin], frames: int) -> None:
        if not isinstance(frames, int) or isinstance(frames, bool) or frames < 1:
            found = shown(frames)
            raise UsageError("`frames` counts frames", where=caller_origin(), expected="1 or above", found=found)
        if of.direction != "output":
            raise UsageError(f"`{of}` is not an output", where=caller_origin(), help="differentiate a result")
        if not by:
            help = "name the pins: by=[block[...], ...]"
            raise UsageError("a gradient needs at least one pin in `by`", where=caller_origin(), help=help)
        self.engine, self.of, self.by, self.frames = engine, of, tuple(by), frames
        self._made: tuple[tuple[Compilation, int], Rollout] | None = None  # with what it was made from

    def __repr__(self) -> str:
        return f"<gradient of {self.of} by {', '.join(map(str, self.by))} through {self.frames} frames>"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the output."""
        with self.engine._runtime.lock, self.engine.graph.editing():
            (type,) = self._rollout().function.result_types
        assert isinstance(type, Tensor)
        return type.shape  # type: ignore[return-value]

    def value(self, changes: Mapping[Pin, Any] | None = None) -> Numbers:
        """The output in the last frame, if inputs change by these amounts."""
        return self._run(lambda rollout, arguments: rollout.value(arguments), changes)

    def read(self, seed: Any = 1.0, changes: Mapping[Pin, Any] | None = None) -> dict[Pin, Numbers]:
        """The gradient of the output with respect to each input.

        An output that is not one number needs a `seed` of its shape: the weights of its elements.
        """

        def gradients(rollout: Rollout, arguments: list[Any]) -> list[Numbers]:
            (type,) = rollout.function.result_types
            assert isinstance(type, Tensor)
            cotangent = np.asarray(seed, type.element.dtype)
            if cotangent.shape != type.shape:
                found, help = f"{type}", "pass read(seed=weights), or differentiate one number"
                what = f"`{self.of}` needs a seed of its shape"
                raise UsageError(what, where=caller_origin(), found=found, help=help)
            return rollout.gradients(arguments, cotangent)

        return dict(zip(self.by, self._run(gradients, changes), strict=True))

    def tangent(self, directions: Mapping[Pin, Any], changes: Mapping[Pin, Any] | None = None) -> Numbers:
        """The derivative of the output if inputs move in these directions: forward mode."""

        def tangent(rollout: Rollout, arguments: list[Any]) -> Numbers:
            return rollout.tangent(arguments, self._amounts(rollout, directions))

        return self._run(tangent, changes)

    def _run(self, compute: Callable[[Rollout, list[Any]], Any], changes: Mapping[Pin, Any] | None) -> Any:
        runtime = self.engine._runtime
        with runtime.lock, self.engine.graph.editing():
            runtime.conclude_last_frame()
            rollout = self._rollout()
            arguments = rollout.arguments(self.engine, self.frames, self._amounts(rollout, changes or {}))
        return compute(rollout, arguments)

    def _amounts(self, rollout: Rollout, changes: Mapping[Pin, Any]) -> list[Numbers]:
        for pin in changes:
            if pin not in self.by:
                expected = "one of " + ", ".join(map(str, self.by))
                raise UsageError(f"`{pin}` is not in `by`", where=caller_origin(), expected=expected)
        return [
            np.broadcast_to(np.asarray(changes.get(pin, 0.0), type.element.dtype), type.shape).copy()  # type: ignore[arg-type]
            for pin, type in zip(self.by, rollout.change_types, strict=True)
        ]

    def _rollout(self) -> Rollout:
        """The frames as a function, made again after every edit of the graph. Called with the locks held."""
        runtime, journal = self.engine._runtime, self.engine.graph.journal
        if runtime.problems:
            raise EngineError(runtime.problems)
        compilation = runtime.compilation
        entries = (*journal.applying, *journal.entries)
        if compilation is None or any(entry.kind in _EDITS_OF_PLANS for entry in entries):
            raise _waiting_edits()
        current = compilation, runtime.debug_version
        if self._made is None or self._made[0] != current:
            self._made = current, self._make(compilation)
        return self._made[1]

    def _make(self, compilation: Compilation) -> Rollout:
        resolver = PinResolver(self.engine.graph, "")
        network = compilation.network
        of = resolver.output(self.of)
        by: list[Inputs | OutputRef] = []
        for pin in self.by:
            if pin.direction == "output":
                ref = resolver.output(pin)
                if ref is None or not isinstance(network.nodes[ref.node].block, State):
                    help = "an input, or the value of a state"
                    what = f"cannot differentiate with respect to `{pin}`"
                    raise UsageError(what, where=caller_origin(), expected=help)
                by.append(ref)
                continue
            inputs = resolver.inputs(pin)
            if not inputs or any(node not in network.nodes for node, _ in inputs):
                raise _location_error(pin)
            by.append(list(inputs))
        if of is None or of.node not in network.nodes:
            raise _location_error(self.of)
        return make_rollout(compilation, of, by)


def _location_error(pin: Pin) -> UsageError:
    help = "use pins of blocks outside of regions"
    return UsageError(f"this engine does not run `{pin}`", where=caller_origin(), help=help)


def frame_gradient(engine: Any, *, of: Any, by: Any, frames: int) -> FrameGradient:
    """Creates the gradient through frames; `lg.grad` calls it if `frames` is passed."""
    if not isinstance(engine, Engine):
        help = "write lg.grad(engine, of=..., by=[...], frames=n)"
        raise UsageError("a gradient through frames needs the engine", where=caller_origin(), help=help)
    if not isinstance(of, Pin | Block):
        raise UsageError("a gradient needs an output: pass of=...", where=caller_origin(), found=shown(of))
    pins: Iterable[Any] = by.values() if isinstance(by, Mapping) else (by,) if isinstance(by, Pin) else by
    selected = [pin["value"] if isinstance(pin, State) else pin for pin in pins]
    for pin in selected:
        if not isinstance(pin, Pin):
            raise UsageError("`by` takes pins", where=caller_origin(), found=shown(pin), help='write block["gain"]')
    return FrameGradient(engine, only_output(of), selected, frames)
