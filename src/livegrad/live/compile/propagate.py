"""Shape propagation, a phase of the graph compiler: specialises every body for its input types.

In: a network and its order. Out: the function of each node and the type of each buffer, or problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from livegrad.diagnostics import LivegradError, UsageError
from livegrad.ir.node import Function
from livegrad.ir.types import Matrix, Scalar, Tensor, Type, Vector, f32, f64, i64, scalar_of, scalar_of_dtype
from livegrad.live.compile.network import Network, NetworkNode, OutputRef, Ref, RootRef
from livegrad.live.compile.topological_sort import sort_nodes
from livegrad.live.graph.append_buffer import AppendBuffer
from livegrad.live.graph.block import Body, Specialized, State
from livegrad.live.graph.captured_call import CapturedCall
from livegrad.live.graph.keys import carry_key, pin_key
from livegrad.live.graph.problems import GraphError, PinError, Problem, make_problem
from livegrad.live.graph.regions import Region
from livegrad.live.graph.shape_rules import apply_shape_rule
from livegrad.live.graph.sources import InputType, Setting
from livegrad.live.graph.user_kernel import CudaKernel
from livegrad.passes.bind_sizes import bind_type
from livegrad.runtime.arguments import scalar_argument

_LARGEST_SAFE = 1e38  # floats up to this fit in f32 and f64


@dataclass
class Shapes:
    """The specialised body of each node, and the type of each buffer by its key."""

    bodies: MutableMapping[str, Specialized] = field(default_factory=dict)
    types: MutableMapping[str, Tensor] = field(default_factory=dict)
    inputs: MutableMapping[str, Inputs] = field(default_factory=dict)  # of each node's specialisation
    before: Before | None = None  # the previous compilation, during propagation only


@dataclass(frozen=True, eq=False)
class Before:
    """The previous compilation: its nodes, and their shapes."""

    nodes: Mapping[str, NetworkNode]
    shapes: Shapes


@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs of a specialisation and its result types: equal inputs give equal results."""

    body: Body
    input_types: tuple[InputType, ...]
    sources: tuple[Any, ...]  # the settings among its inputs, whose numbers were checked
    results: tuple[Tensor, ...]


def propagate_shapes(
    network: Network, order: Iterable[tuple[str, int]], broken: set[str], previous: Before | None = None
) -> tuple[Shapes, list[Problem]]:
    """Specialises each body for the types of its inputs. Dependents of a broken node are skipped and not reported.

    Results of the previous compilation are reused where a body and its input types are unchanged.
    """
    shapes, problems, broken = Shapes(before=previous), [], set(broken)
    for node in network.nodes.values():
        if isinstance(node.block, State):
            note_state(node, shapes)
    _propagate(network, order, shapes, problems, broken)
    for node in network.nodes.values():
        if isinstance(node.block, State):
            problems += check_state(node, shapes, broken)
    shapes.before = None
    return shapes, problems


def _propagate(
    network: Network, order: Iterable[tuple[str, int]], shapes: Shapes, problems: list[Problem], broken: set[str]
) -> None:
    for key, _ in order:
        node = network.nodes[key]
        if isinstance(node.block, State):
            continue
        if broken and (key in broken or not broken.isdisjoint(node.sources)):
            broken.add(key)
            continue
        if shapes.before is not None and _reuse_previous(node, shapes, shapes.before):
            continue
        specialize(node, shapes, problems, broken)


def specialize(node: NetworkNode, shapes: Shapes, problems: list[Problem], broken: set[str]) -> None:
    """Specialises one node and the nodes inside it. A node with problems is added to `broken`."""
    before = len(problems)
    if isinstance(node.block, Region):
        specialize_region(node, shapes, problems, broken)
    else:
        try:
            specialize_node(node, shapes)
        except LivegradError as error:
            problems.append(make_problem(node, pin_of(error, node), error))
    if len(problems) > before:
        broken.add(node.key)


def _reuse_previous(node: NetworkNode, shapes: Shapes, before: Before) -> bool:
    """Reuses the previous result of an unchanged node if the types of its inputs are unchanged too."""
    inputs = before.shapes.inputs.get(node.key)
    if inputs is None or before.nodes.get(node.key) is not node:
        return False
    types, types_before = shapes.types, before.shapes.types
    for key in node.read_keys:
        if key not in types or types[key] is not types_before.get(key):
            return False
    shapes.inputs[node.key], shapes.bodies[node.key] = inputs, before.shapes.bodies[node.key]
    for key, type in zip(node.output_keys, inputs.results, strict=True):
        types[key] = type
    return True


def pin_of(error: LivegradError, node: NetworkNode) -> str | None:
    """The input that an error names, or None."""
    name = getattr(error, "pin", None)
    return name if name in node.feeds else None


def input_type_of(ref: Ref, shapes: Shapes) -> InputType:
    """The type that reaches an input."""
    if isinstance(ref, RootRef):
        if isinstance(ref.source, Setting):
            return ref.source.input_type
        return InputType(tensor_of(ref.source.external.array))
    return _strong_type(shapes.types[ref.key])


@lru_cache(maxsize=4096)
def _strong_type(type: Tensor) -> InputType:
    return InputType(type)


def specialize_node(node: NetworkNode, shapes: Shapes) -> bool:
    """Specialises one block. Returns whether the types of its outputs changed."""
    block = node.block
    if isinstance(block, AppendBuffer):
        return _specialize_append(node, block, shapes)
    input_types = tuple([input_type_of(ref, shapes) for ref in node.feeds.values() if ref is not None])
    body = node.body
    sources = tuple([ref.source for ref in node.feeds.values() if isinstance(ref, RootRef)])
    inputs = None if shapes.before is None else shapes.before.shapes.inputs.get(node.key)
    if inputs is not None and inputs.body is body and inputs.input_types == input_types and inputs.sources == sources:
        assert shapes.before is not None
        shapes.inputs[node.key], shapes.bodies[node.key] = inputs, shapes.before.shapes.bodies[node.key]
        return _note_types(node, inputs.results, shapes)
    specialized = body.specialize(input_types)
    _require_numbers_to_fit(node, specialized.function)
    types = specialized.function.result_types
    if specialized.sizes:
        types = [bind_type(type, dict(specialized.sizes)) for type in types]
    results = [_as_tensor(type) for type in types]
    if len(results) != len(node.outputs):
        raise GraphError(
            f"`{block.name}` has {len(node.outputs)} outputs and its function returns {len(results)} values",
            help="name them all: block(..., outputs=(...))",
        )
    for name, rule in block.shapes.items():
        position = list(block.outputs).index(name)
        shape = apply_shape_rule(rule, [input_type.type.shape for input_type in input_types])  # type: ignore[arg-type]
        if shape != results[position].shape:
            raise GraphError(
                f"output `{name}` breaks its shape rule `{rule}`",
                expected=str(shape),
                found=str(results[position].shape),
            )
    shapes.bodies[node.key] = specialized
    shapes.inputs[node.key] = Inputs(body, input_types, sources, tuple(results))
    return _note_types(node, results, shapes)


def _note_types(node: NetworkNode, results: Iterable[Tensor], shapes: Shapes) -> bool:
    changed = False
    for name, type in zip(node.outputs, results, strict=True):
        key = pin_key(node.key, name)
        changed |= shapes.types.get(key) is not type
        shapes.types[key] = type
    return changed


def _specialize_append(node: NetworkNode, block: AppendBuffer, shapes: Shapes) -> bool:
    """The types of an append buffer, whose writers must have rows of one type."""
    rows: Tensor | None = None
    for name, ref in node.feeds.items():
        assert ref is not None
        type = input_type_of(ref, shapes).type
        row = Tensor(type.element, type.shape[1:])
        rows = rows or row
        if row is not rows:
            raise PinError(name, f"rows of {rows}, like the first writer", f"rows of {row}")
    assert rows is not None
    scalar = Tensor(i64, ())
    return _note_types(node, (Tensor(rows.element, (block.capacity, *rows.shape)), scalar, scalar), shapes)


def parameter_value(value: Any, type: Type, label: str) -> Any:
    """A number converted to the type of a parameter."""
    scalar = scalar_of(type)
    if scalar is None or not isinstance(type, Scalar | Tensor):
        raise UsageError(f"`{label}` takes {type}", found=repr(value))
    return scalar(scalar_argument(value, scalar, f"`{label}`"))


def require_number(value: Any, type: Type, label: str) -> None:
    """Raises if a number does not fit the type of a parameter."""
    is_number = isinstance(type, Scalar | Tensor)
    if (
        is_number
        and value.__class__ is float
        and -_LARGEST_SAFE <= value <= _LARGEST_SAFE
        and scalar_of(type) in (f32, f64)
    ):
        return
    parameter_value(value, type, label)


def _require_numbers_to_fit(node: NetworkNode, function: Function | CapturedCall | CudaKernel) -> None:
    for (name, ref), type in zip(node.feeds.items(), function.parameter_types, strict=False):
        if isinstance(ref, RootRef) and isinstance(ref.source, Setting) and ref.source.is_number:
            try:
                require_number(ref.source.value, type, ref.key)
            except LivegradError as error:
                raise PinError(name, str(error.expected or type), str(error.found or ref.source.value)) from error


def _type_of_start(ref: Ref | None, shapes: Shapes) -> Tensor:
    """The initial type of a loop variable. A Python float is float32 unless the body produces float64."""
    assert ref is not None
    input_type = input_type_of(ref, shapes)
    return Tensor(f32, ()) if input_type.weak and input_type.type.element is f64 else input_type.type


def _adopt_types(node: NetworkNode, region: Region, shapes: Shapes, outputs: Mapping[str, Tensor]) -> bool:
    """Turns variables that start as Python floats into float64 if the body does. Returns whether any changed."""
    changed = False
    for entering, leaving in region.carried.items():
        key, ref = carry_key(node.key, entering), node.feeds[entering]
        first, later = shapes.types[key], outputs[leaving]
        assert ref is not None
        if input_type_of(ref, shapes).weak and first == Tensor(f32, ()) and later == Tensor(f64, ()):
            shapes.types[key] = later
            changed = True
    return changed


def _propagate_bodies(
    node: NetworkNode, shapes: Shapes, problems: list[Problem], broken: set[str]
) -> dict[str, Tensor]:
    """The types of a region's outputs, which must agree between its bodies."""
    outputs: dict[str, Tensor] = {}
    before = len(problems)
    for body in node.bodies:
        problems += validate_outputs(node, body)
        body.order, cycles = sort_nodes(body)
        problems += cycles
        _propagate(body, body.order, shapes, problems, broken)
        if not broken.isdisjoint(body.nodes):
            broken.add(node.key)  # the inner problems are reported already
        if node.key in broken or len(problems) > before:
            continue
        for name, ref in body.outputs.items():
            type = shapes.types[ref.key]
            if outputs.setdefault(name, type) is not type:
                error = GraphError(
                    f"the bodies have different types for output `{name}`", expected=str(outputs[name]), found=str(type)
                )
                problems.append(make_problem(node, None, error))
            shapes.types[node.result_key(name)] = type
    return outputs


def specialize_region(node: NetworkNode, shapes: Shapes, problems: list[Problem], broken: set[str]) -> None:
    """Specialises the inside of a region. Its key is added to `broken` if anything inside is broken."""
    region = node.block
    assert isinstance(region, Region)
    for name in region.carried:
        shapes.types[carry_key(node.key, name)] = _type_of_start(node.feeds[name], shapes)
    if region.index_name is not None:
        shapes.types[carry_key(node.key, region.index_name)] = Tensor(i64, ())
    before = len(problems)
    outputs = _propagate_bodies(node, shapes, problems, broken)
    while node.key not in broken and len(problems) == before and _adopt_types(node, region, shapes, outputs):
        outputs = _propagate_bodies(node, shapes, problems, broken)
    if node.key in broken or len(problems) > before:
        return
    if region.kind == "while" and outputs["condition"].shape != ():
        found = str(outputs["condition"])
        problems.append(
            make_problem(node, None, GraphError("the control input of a region must be one number", found=found))
        )
    control = node.feeds[region.control_name]
    assert control is not None
    control_type = input_type_of(control, shapes).type
    if control_type.shape != ():
        error = GraphError("the control input of a region must be one number", found=str(control_type))
        problems.append(make_problem(node, region.control_name, error))
    elif region.kind in ("for", "switch") and control_type.element.kind in ("float", "complex"):
        error = GraphError(
            f"`{region.control_name}` must be an integer", expected="an integer", found=str(control_type)
        )
        problems.append(make_problem(node, region.control_name, error))
    for entering, leaving in region.carried.items():
        first, later = shapes.types[carry_key(node.key, entering)], outputs[leaving]
        if first is not later:
            error = GraphError(f"`{leaving}` cannot become `{entering}`", expected=str(first), found=str(later))
            problems.append(make_problem(node, entering, error))


def validate_outputs(node: NetworkNode, body: Network) -> list[Problem]:
    """Reports outputs that a body exposes twice or does not compute."""
    seen: dict[OutputRef, str] = {}
    problems = []
    for name, ref in body.outputs.items():
        if seen.setdefault(ref, name) != name:
            problems.append(make_problem(node, None, GraphError(f"`{seen[ref]}` and `{name}` are the same output")))
        if ref.node not in body.nodes:
            problems.append(make_problem(node, None, GraphError(f"`{name}` is not computed in the region")))
    return problems


def note_state(node: NetworkNode, shapes: Shapes) -> None:
    """Records the type of a state, which is that of its initial value."""
    assert isinstance(node.block, State)
    shapes.types[pin_key(node.key, "value")] = tensor_of(node.block.initial)


def check_state(node: NetworkNode, shapes: Shapes, broken: set[str]) -> list[Problem]:
    """Reports a `next` whose type is not that of the state."""
    ref = node.feeds["next"]
    # The outputs of a broken node have no type, even if one was recorded before it failed.
    if ref is None or (isinstance(ref, OutputRef) and (ref.node in broken or ref.key not in shapes.types)):
        return []
    if isinstance(ref, RootRef):
        error = GraphError("the `next` of a state must be computed", help="connect it to an output")
        return [make_problem(node, "next", error)]
    next_type, state_type = shapes.types[ref.key], shapes.types[pin_key(node.key, "value")]
    if next_type is state_type:
        return []
    return [
        make_problem(
            node,
            "next",
            GraphError("the type of a state cannot change", expected=str(state_type), found=str(next_type)),
        )
    ]


def tensor_of(array: np.ndarray[Any, Any]) -> Tensor:
    return Tensor(scalar_of_dtype(array.dtype), array.shape)


def _as_tensor(type: Type) -> Tensor:
    """The tensor type of a result in memory."""
    match type:
        case Tensor():
            return type
        case Scalar():
            return Tensor(type, ())
        case Vector(element=element, size=size):
            return Tensor(element, (size,))
        case Matrix(element=element, rows=rows, columns=columns):
            return Tensor(element, (rows, columns))
    raise GraphError(f"a pin cannot hold {type}", expected="numbers, vectors, matrices or tensors")
