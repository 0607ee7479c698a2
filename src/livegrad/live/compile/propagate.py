"""Propagates shapes through a network, and specialises every body for its input types. A phase of the graph compiler.

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
    inputs: MutableMapping[str, Inputs] = field(default_factory=dict)  # the inputs of each specialisation
    previous: PreviousShapes | None = None  # the previous compilation, during propagation only


@dataclass(frozen=True, eq=False)
class PreviousShapes:
    """The previous compilation: its nodes, and their shapes."""

    nodes: Mapping[str, NetworkNode]
    shapes: Shapes


@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs of a specialisation and its result types. Equal inputs give equal results."""

    body: Body
    input_types: tuple[InputType, ...]
    sources: tuple[Any, ...]  # the settings among its inputs, whose numbers were checked
    results: tuple[Tensor, ...]


def propagate_shapes(
    network: Network, order: Iterable[tuple[str, int]], broken: set[str], previous: PreviousShapes | None = None
) -> tuple[Shapes, list[Problem]]:
    """Specialises each body for the types of its inputs. Dependents of a broken node are skipped and not reported.

    Results of the previous compilation are reused where a body and its input types are unchanged.
    """
    shapes, problems, broken = Shapes(previous=previous), [], set(broken)
    for node in network.nodes.values():
        if isinstance(node.block, State):
            record_state_type(node, shapes)
    _propagate(network, order, shapes, problems, broken)
    for node in network.nodes.values():
        if isinstance(node.block, State):
            problems += check_state(node, shapes, broken)
    shapes.previous = None
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
        if shapes.previous is not None and _reuse_previous(node, shapes, shapes.previous):
            continue
        specialize(node, shapes, problems, broken)


def specialize(node: NetworkNode, shapes: Shapes, problems: list[Problem], broken: set[str]) -> None:
    """Specialises one node and the nodes inside it. A node with problems is added to `broken`."""
    problem_count = len(problems)
    if isinstance(node.block, Region):
        specialize_region(node, shapes, problems, broken)
    else:
        try:
            specialize_node(node, shapes)
        except LivegradError as error:
            problems.append(make_problem(node, pin_of(error, node), error))
    if len(problems) > problem_count:
        broken.add(node.key)


def _reuse_previous(node: NetworkNode, shapes: Shapes, previous: PreviousShapes) -> bool:
    """Reuses the previous result of an unchanged node if the types of its inputs are unchanged too."""
    inputs = previous.shapes.inputs.get(node.key)
    if inputs is None or previous.nodes.get(node.key) is not node:
        return False
    types, previous_types = shapes.types, previous.shapes.types
    for key in node.read_keys:
        if key not in types or types[key] is not previous_types.get(key):
            return False
    shapes.inputs[node.key], shapes.bodies[node.key] = inputs, previous.shapes.bodies[node.key]
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
    inputs = None if shapes.previous is None else shapes.previous.shapes.inputs.get(node.key)
    if inputs is not None and inputs.body is body and inputs.input_types == input_types and inputs.sources == sources:
        assert shapes.previous is not None
        shapes.inputs[node.key], shapes.bodies[node.key] = inputs, shapes.previous.shapes.bodies[node.key]
        return _record_types(node, inputs.results, shapes)
    specialized = body.specialize(input_types)
    _require_numbers_to_fit(node, specialized.function)
    types = specialized.function.result_types
    if specialized.sizes:
        types = [bind_type(type, dict(specialized.sizes)) for type in types]
    results = [as_tensor(type) for type in types]
    if len(results) != len(node.outputs):
        raise GraphError(
            f"`{block.name}` has {len(node.outputs)} outputs, but its function returns {len(results)} values",
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
    return _record_types(node, results, shapes)


def _record_types(node: NetworkNode, results: Iterable[Tensor], shapes: Shapes) -> bool:
    changed = False
    for name, type in zip(node.outputs, results, strict=True):
        key = pin_key(node.key, name)
        changed |= shapes.types.get(key) is not type
        shapes.types[key] = type
    return changed


def _specialize_append(node: NetworkNode, block: AppendBuffer, shapes: Shapes) -> bool:
    """Records the types of an append buffer. Its writers must have rows of one type."""
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
    return _record_types(node, (Tensor(rows.element, (block.capacity, *rows.shape)), scalar, scalar), shapes)


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


def _initial_type(ref: Ref | None, shapes: Shapes) -> Tensor:
    """The initial type of a loop variable. A Python float is float32; the caller may widen it."""
    assert ref is not None
    input_type = input_type_of(ref, shapes)
    return Tensor(f32, ()) if input_type.weak and input_type.type.element is f64 else input_type.type


def _widen_carried_floats(node: NetworkNode, region: Region, shapes: Shapes, outputs: Mapping[str, Tensor]) -> bool:
    """Widens variables that start as Python floats if the body produces float64. Returns whether any changed."""
    changed = False
    for input_name, output_name in region.carried.items():
        key, ref = carry_key(node.key, input_name), node.feeds[input_name]
        initial_type, result_type = shapes.types[key], outputs[output_name]
        assert ref is not None
        if input_type_of(ref, shapes).weak and initial_type == Tensor(f32, ()) and result_type == Tensor(f64, ()):
            shapes.types[key] = result_type
            changed = True
    return changed


def _propagate_bodies(
    node: NetworkNode, shapes: Shapes, problems: list[Problem], broken: set[str]
) -> dict[str, Tensor]:
    """The types of a region's outputs, which must agree between its bodies."""
    outputs: dict[str, Tensor] = {}
    problem_count = len(problems)
    for body in node.bodies:
        problems += validate_outputs(node, body)
        body.order, cycles = sort_nodes(body)
        problems += cycles
        _propagate(body, body.order, shapes, problems, broken)
        if not broken.isdisjoint(body.nodes):
            broken.add(node.key)  # the inner problems are reported already
        if node.key in broken or len(problems) > problem_count:
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
        shapes.types[carry_key(node.key, name)] = _initial_type(node.feeds[name], shapes)
    if region.index_name is not None:
        shapes.types[carry_key(node.key, region.index_name)] = Tensor(i64, ())
    problem_count = len(problems)
    outputs = _propagate_bodies(node, shapes, problems, broken)
    while (
        node.key not in broken
        and len(problems) == problem_count
        and _widen_carried_floats(node, region, shapes, outputs)
    ):
        outputs = _propagate_bodies(node, shapes, problems, broken)
    if node.key in broken or len(problems) > problem_count:
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
    for input_name, output_name in region.carried.items():
        initial_type, result_type = shapes.types[carry_key(node.key, input_name)], outputs[output_name]
        if initial_type is not result_type:
            error = GraphError(
                f"`{output_name}` cannot become `{input_name}`", expected=str(initial_type), found=str(result_type)
            )
            problems.append(make_problem(node, input_name, error))


def validate_outputs(node: NetworkNode, body: Network) -> list[Problem]:
    """Reports outputs that a body exposes twice or does not compute."""
    name_of: dict[OutputRef, str] = {}
    problems = []
    for name, ref in body.outputs.items():
        if name_of.setdefault(ref, name) != name:
            problems.append(make_problem(node, None, GraphError(f"`{name_of[ref]}` and `{name}` are the same output")))
        if ref.node not in body.nodes:
            problems.append(make_problem(node, None, GraphError(f"`{name}` is not computed in the region")))
    return problems


def record_state_type(node: NetworkNode, shapes: Shapes) -> None:
    """Records the type of a state, which is that of its initial value."""
    assert isinstance(node.block, State)
    shapes.types[pin_key(node.key, "value")] = tensor_of(node.block.initial)


def check_state(node: NetworkNode, shapes: Shapes, broken: set[str]) -> list[Problem]:
    """Reports a `next` whose type differs from that of the state."""
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
    """The tensor type of an array."""
    return Tensor(scalar_of_dtype(array.dtype), array.shape)


def as_tensor(type: Type) -> Tensor:
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
