"""Converts nodes of a live graph, including regions and append buffers, to functions of the value IR.

In: a node of a network and its input types. Out: a `Specialized` whose function computes the node. `gradient`
differentiates these functions; the engine itself runs regions as control flow over steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from livegrad.ir.function import inline, make_function
from livegrad.ir.leaves import constant, input_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Tensor, Type, bool_, f32, f64, i64
from livegrad.ir.walk import toposort
from livegrad.live.compile.network import Network, NetworkNode, inputs_of, results_of
from livegrad.live.compile.propagate import tensor_of
from livegrad.live.compile.topological_sort import sort_nodes
from livegrad.live.graph.append_buffer import AppendBuffer
from livegrad.live.graph.block import Specialized
from livegrad.live.graph.captured_call import CapturedCall
from livegrad.live.graph.keys import carry_key, pin_key
from livegrad.live.graph.problems import GraphError
from livegrad.live.graph.regions import Region
from livegrad.live.graph.sources import InputType, Numbers
from livegrad.live.graph.user_kernel import CudaKernel
from livegrad.ops.aggregate import member
from livegrad.ops.comparison import not_equal
from livegrad.ops.context import FeatureLevel
from livegrad.ops.control import cond, for_loop, make_cond, switch, while_loop
from livegrad.ops.conversion import cast
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast
from livegrad.ops.rules import zero
from livegrad.passes.bind_sizes import bind_sizes
from livegrad.passes.differentiate.tangents import result_nodes
from livegrad.tensors import namespace as xp
from livegrad.tensors.handle import Tensor as Handle
from livegrad.tensors.handle import wrap
from livegrad.tensors.tracing import placeholders

Values = Mapping[str, Node]


def function_of(node: NetworkNode, input_types: Sequence[InputType]) -> Specialized:
    """The function of a node, from its `inputs_of` to its `results_of`."""
    if not node.bodies and not isinstance(node.block, AppendBuffer):
        return node.body.specialize(tuple(input_types))
    names = list(inputs_of(node))
    composition = Composition()
    parameters = placeholders([input_type.type for input_type in input_types])
    values = dict(zip(names, parameters, strict=True))
    weak = {name: input_type for name, input_type in zip(names, input_types, strict=True) if input_type.weak}
    results = composition.evaluate(node, values, weak)
    features, constants = composition.features, composition.constants
    inputs = (*parameters, *features.values(), *(placeholder for placeholder, _ in constants))
    function = make_function(node.key, inputs, [results[name] for name in results_of(node)])
    return Specialized(function, tuple(features), tuple(array for _, array in constants))


class Composition:
    """Evaluates nodes on IR values, and collects the features and constants that they need."""

    def __init__(self) -> None:
        self.features: dict[FeatureLevel, Node] = {}
        self.constants: list[tuple[Node, Numbers]] = []

    def evaluate(self, node: NetworkNode, values: Values, weak: Mapping[str, InputType]) -> dict[str, Node]:
        """The results of one node by name."""
        if isinstance(node.block, Region):
            return _RegionCall(self, node, node.block, values, weak).evaluate()
        if isinstance(node.block, AppendBuffer):
            return _concatenate_rows(node, node.block.capacity, values)
        input_types = tuple(weak.get(name) or InputType(_require_tensor(value.type)) for name, value in values.items())
        specialized = node.body.specialize(input_types)
        if isinstance(specialized.function, CapturedCall):
            raise GraphError(
                f"`{node.key}` calls a library, which has no derivative", help="write a block for its gradient"
            )
        if isinstance(specialized.function, CudaKernel):
            what = f"`{node.key}` is a CUDA kernel, which has no derivative"
            raise GraphError(what, help="write a block for its gradient")
        # The arguments have known sizes, and loops carry values of one size.
        function = bind_sizes(specialized.function, dict(specialized.sizes))
        types = function.parameter_types
        feature_types = zip(specialized.features, types[len(values) :], strict=False)
        arguments = [*values.values(), *(self._feature_parameter(feature, type) for feature, type in feature_types)]
        arguments += [self._constant_parameter(array) for array in specialized.constants]
        results = inline(function, [_convert(value, type) for value, type in zip(arguments, types, strict=True)])
        return {name: _as_tensor(value) for name, value in zip(node.outputs, results, strict=True)}

    def _feature_parameter(self, feature: FeatureLevel, type: Type) -> Node:
        if feature not in self.features:
            self.features[feature] = placeholders([type])[0]
        return self.features[feature]

    def _constant_parameter(self, array: Numbers) -> Node:
        for placeholder, constant_array in self.constants:  # several blocks may share an array
            if constant_array is array:
                return placeholder
        (placeholder,) = placeholders([tensor_of(array)])
        self.constants.append((placeholder, array))
        return placeholder


class _RegionCall:
    """Converts one region to an op of the value IR.

    Bodies are closed functions of the inputs of the region, so an untaken branch computes nothing, and neither does its
    derivative. Each body is evaluated once, so the work is linear in the number of regions, at any nesting depth.
    """

    def __init__(
        self,
        composition: Composition,
        node: NetworkNode,
        region: Region,
        values: Values,
        weak: Mapping[str, InputType],
    ) -> None:
        self.composition, self.node, self.region = composition, node, region
        self.values, self.weak = values, weak
        self.inside = dict(zip(values, placeholders([value.type for value in values.values()]), strict=True))
        self.names = tuple(node.bodies[0].outputs)

    def evaluate(self) -> dict[str, Node]:
        """The results of the region by name."""
        control = lookup(self.values[self.region.control_name])
        if self.region.kind in ("while", "for"):
            results = self._evaluate_loop(control)
        else:
            results = self._evaluate_branch(control)
        return dict(zip(self.names, results, strict=True))

    def _evaluate_body(self, body: Network, carried: Mapping[str, Node]) -> tuple[Node, ...]:
        computed = dict(carried)
        for key, _ in sort_nodes(body)[0]:
            inner = body.nodes[key]
            values, weak = {}, {}
            for name, ref in inputs_of(inner).items():
                # The inputs of an inner region already have complete keys as names.
                input_key = name if inner.bodies and name not in inner.feeds else pin_key(key, name)
                if input_key in self.inside:
                    values[name] = self.inside[input_key]
                    if input_key in self.weak:
                        weak[name] = self.weak[input_key]
                else:
                    assert ref is not None
                    values[name] = computed[ref.key]
            for name, value in self.composition.evaluate(inner, values, weak).items():
                computed[pin_key(key, name)] = value
        return tuple(computed[body.outputs[name].key] for name in self.names)

    def _evaluate_branch(self, control: Node) -> Sequence[Node]:
        bodies = [self._evaluate_body(body, {}) for body in self.node.bodies]
        if self.region.kind == "switch" or len(bodies) == 1:
            bodies.append(tuple(zero(value.type) for value in bodies[0]))
        parameters = tuple(self.inside.values())
        captures = _inputs_besides(parameters, [value for results in bodies for value in results])
        inputs = (*parameters, *captures)
        functions = tuple([make_function(self.node.key, inputs, results) for results in bodies])
        operands = (*self.values.values(), *captures)
        if self.region.kind == "switch":
            index = cast(control, type=i64) if control.type is not i64 else control
            count = constant(len(self.node.bodies), i64)
            is_body = (index >= constant(0, i64)) & (index < count)
            result = switch(_select(is_body, index, count), *operands, branches=functions)
        else:
            result = cond(_to_bool(control), *operands, then=functions[0], otherwise=functions[1])
        return result_nodes(result, len(self.names))

    def _evaluate_loop(self, control: Node) -> Sequence[Node]:
        """A loop that carries the region's variables and its results, which have initial values for zero iterations."""
        region, key = self.region, self.node.key
        (index,) = placeholders([i64])
        carried, state, by_name = self._evaluate_iteration(index)
        initial_results = dict(zip(region.carried.values(), carried.values(), strict=True))
        first = {name: initial_results.get(name, zero(value.type)) for name, value in by_name.items()}
        if region.kind == "while":
            # The pin controls the first iteration, the result of the body all further ones.
            first["condition"] = broadcast(_to_bool(control), shape=(), axes=())
            by_name["condition"] = broadcast(_to_bool(lookup(by_name["condition"])), shape=(), axes=())
        results = (*(by_name[name] for name in region.carried.values()), *by_name.values())
        previous = placeholders([value.type for value in first.values()])
        parameters = (*state, *previous, *self.inside.values())
        captures = _inputs_besides((index, *parameters), results)
        inputs = (*parameters, *captures)
        operands = (*carried.values(), *first.values(), *self.values.values(), *captures)
        carried_count = len(carried) + len(first)
        body = make_function(key, (index, *inputs), results)
        if region.kind == "for":
            count = cast(control, type=i64) if control.type is not i64 else control
            loop = for_loop(count, *operands, body=body, carried=carried_count, reverse=False)
        else:
            test = make_function(key, inputs, [lookup(previous[self.names.index("condition")])])
            loop = while_loop(*operands, condition=test, body=body, carried=carried_count, limit=None)
        return [member(loop, position) for position in range(len(carried), carried_count)]

    def _evaluate_iteration(self, index: Node) -> tuple[dict[str, Node], tuple[Node, ...], dict[str, Node]]:
        """The initial values of the loop's variables by key, their values in an iteration, and the body's results.

        A Python float starts as float32 unless the body produces float64, as in the running loop (`propagate.py`).
        """
        region, key = self.region, self.node.key
        starts = {name: self.values[name] for name in region.carried}
        wide = {name for name in starts if name in self.weak and starts[name].type == Tensor(f64, ())}
        starts |= {name: _convert(starts[name], Tensor(f32, ())) for name in wide}
        while True:
            carried = {carry_key(key, name): start for name, start in starts.items()}
            state = placeholders([start.type for start in carried.values()])
            values = {
                **dict(zip(carried, state, strict=True)),
                carry_key(key, region.index_name or ""): _as_tensor(index),
            }
            results = dict(zip(self.names, self._evaluate_body(self.node.bodies[0], values), strict=True))
            widened = {name for name in wide if results[region.carried[name]].type == Tensor(f64, ())}
            if not widened:
                return carried, state, results
            starts |= {name: self.values[name] for name in widened}
            wide -= widened


def _inputs_besides(parameters: Sequence[Node], results: Sequence[Node]) -> tuple[Node, ...]:
    """The inputs of results that are not parameters of the body: features and constants."""
    return tuple(node for node in toposort(results) if node.op is input_op and node not in parameters)


def _concatenate_rows(node: NetworkNode, capacity: int, values: Values) -> dict[str, Node]:
    """The rows of an append buffer, gathered from its writers."""
    rows_of = [(wrap(values[name]), wrap(values[f"{name}#total"])) for name in node.feeds]
    index = xp.arange(capacity, dtype=xp.int64)
    start = total = _integer_tensor(0)
    gathered = None
    for rows, emitted in rows_of:
        row_count = xp.minimum(emitted, _integer_tensor(rows.shape[0]))
        row_index = index - start
        is_in_writer = xp.reshape((row_index >= 0) & (row_index < row_count), (capacity,) + (1,) * (rows.ndim - 1))
        chosen = xp.take(rows, xp.clip(row_index, 0, rows.shape[0] - 1), axis=0)
        chosen = xp.where(is_in_writer, chosen, xp.zeros_like(chosen))
        gathered = chosen if gathered is None else xp.where(is_in_writer, chosen, gathered)
        start, total = start + row_count, total + emitted
    assert gathered is not None
    count = xp.minimum(start, _integer_tensor(capacity))
    return {"values": gathered.node, "count": count.node, "total": total.node}


def _integer_tensor(value: int) -> Handle:
    return wrap(_as_tensor(constant(value, i64)))


def _select(condition: Node, first: Node, second: Node) -> Node:
    return make_cond(condition, lambda: first, lambda: second)


def _to_bool(value: Node) -> Node:
    return value if value.type is bool_ else not_equal(value, zero(value.type))


def _convert(value: Node, wanted: Type) -> Node:
    """A value converted to the type of a parameter."""
    if value.type is wanted:
        return value
    if isinstance(wanted, Scalar):
        scalar = lookup(value)
        return scalar if scalar.type is wanted else cast(scalar, type=wanted)
    if isinstance(wanted, Tensor) and wanted.shape == ():
        return broadcast(cast(lookup(value), type=wanted.element), shape=(), axes=())
    raise GraphError(f"{wanted} cannot be differentiated inside a region", help="use tensor parameters there")


def _as_tensor(value: Node) -> Node:
    if isinstance(value.type, Tensor):
        return value
    if isinstance(value.type, Scalar):
        return broadcast(value, shape=(), axes=())
    raise GraphError(f"{value.type} cannot be differentiated inside a region", help="return tensors there")


def _require_tensor(type: Type) -> Tensor:
    assert isinstance(type, Tensor)
    return type


def differentiable_function(specialized: Specialized) -> Function:
    """The function of a specialised body; raises for library calls and CUDA kernels, which have no derivative."""
    if isinstance(specialized.function, CapturedCall):
        raise GraphError(
            f"`{specialized.function.name}` calls a library, which has no derivative",
            help="write a block for its gradient",
        )
    if isinstance(specialized.function, CudaKernel):
        what = f"`{specialized.function.name}` is a CUDA kernel, which has no derivative"
        raise GraphError(what, help="write a block for its gradient")
    return specialized.function
