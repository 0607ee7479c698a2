"""The `interchange_point_loops` pass: a loop over tensors of points becomes a map of loops over scalars.

For the CPU. `interchange_elementwise_loops` handles loops of elementwise ops. Here a point may have small tensors (a
position, a colour, a matrix), nested loops and branches, and may read tensors by index. The state of a point stays in
registers; over whole tensors, each op of each iteration would go through memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Tape, Tensor, Type, i64, inner_types, shape_of
from livegrad.ir.walk import nodes_of, ops_in, substitute
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.control import parameters_of
from livegrad.ops.indexing import lookup
from livegrad.ops.maps import map_
from livegrad.ops.movement import broadcast, concatenate, iota, permute, reshape, slice_
from livegrad.ops.rules import filled
from livegrad.passes.differentiate.tangents import result_nodes
from livegrad.passes.functions import rearrange_signature
from livegrad.passes.regions import LOOPS, used_parameters
from livegrad.passes.scalar_replacement import Memory, NotReplaced, Value, flatten, replace_tensors
from livegrad.passes.scalar_replacement.values import array_of, static_shape
from livegrad.passes.unbatch import AtPoint, NotPointwise, Unbatcher

_MAX_COMPONENTS = 16  # dimensions up to this size are components of a point, larger ones are the domain
_MIN_POINTS = 64


def interchange_point_loops(function: Function) -> Function:
    """Turns loops over tensors of independent points into maps of loops over scalars."""
    return _build_maps(function) if not ops_in(function).isdisjoint(LOOPS) else function


@propagates_lines
def _build_maps(function: Function) -> Function:
    replacements: dict[Node, Node] = {}
    for node in nodes_of(function):
        if node.op not in LOOPS:
            continue
        domain = _find_domain(node)
        if domain is None:
            continue
        try:
            with originating_from(node.origins):
                results = _PointMap(node, domain).build(replacements)
        except (NotPointwise, NotReplaced):
            continue
        replacements |= {get(node, index=index): value for index, value in enumerate(results)}
        replacements[node] = make_tuple(*results)
    if not replacements:
        return function
    return Function(
        function.name, function.parameters, substitute(function.results, replacements, function.source_locations)
    )


def _find_domain(node: Node) -> tuple[int, ...] | None:
    """The dimensions that all large tensors of a loop's state share, if there are enough points."""
    types = node.attribute("body").result_types
    if any(isinstance(inner, Tape) for type in types for inner in inner_types(type)):
        return None
    shapes = [shape_of(type) for type in types if isinstance(type, Tensor)]
    large = [_strip_components(shape) for shape in shapes if prod(shape) >= _MIN_POINTS]  # type: ignore[arg-type]
    domain = min(large, key=len, default=None)
    return domain if domain and prod(domain) >= _MIN_POINTS else None  # type: ignore[return-value,arg-type]


def _strip_components(shape: Sequence[object]) -> tuple[object, ...]:
    large = [axis for axis, size in enumerate(shape) if isinstance(size, int) and size > _MAX_COMPONENTS]
    return tuple(shape[large[0] : large[-1] + 1]) if large else ()


class _PointMap:
    """Builds the map of one loop. Points get each operand of the loop by point, as a whole tensor, or both."""

    def __init__(self, node: Node, domain: tuple[int, ...]) -> None:
        self._node, self._domain = node, domain
        self._unbatcher = Unbatcher(domain, ())

    def build(self, replacements: dict[Node, Node]) -> list[Node]:
        node, body = self._node, self._node.attribute("body")
        operands = substitute(node.operands, replacements)
        inside = self._trace_point(operands)
        inputs = self._map_inputs(operands)
        types = [self._unbatcher.type_at_point(type) for type in body.result_types]

        def scalars(*nodes: Node) -> list[Node]:
            values = self._group_values(iter(nodes), operands)
            results = zip(replace_tensors(inside, values), types, strict=True)
            return [node for value, type in results for node in flatten(value, type)]

        point = trace(scalars, *[type for _, type, _ in inputs], name=body.name)
        used = used_parameters(point)
        positions = [position for position in range(len(inputs)) if position in used]
        if not any(inputs[position][2] for position in positions):
            positions = [0, *positions]  # a map takes its domain from a lifted operand: the first coordinate
        point = rearrange_signature(point, positions)
        value = map_(
            *[inputs[position][0] for position in positions],
            function=point,
            lifted=tuple([inputs[position][2] for position in positions]),
            summed=(False,) * len(point.results),
        )
        supply = iter(result_nodes(value, len(point.results)))
        return [self._assemble_result(supply, type) for type in body.result_types]

    # --- one point ---

    def _trace_point(self, operands: Sequence[Node]) -> Function:
        """The loop at one point: a function of the coordinates and of both forms of each operand."""
        types = [type for operand in operands for type in self._forms(operand.type)]

        def run(*nodes: Node) -> list[Node]:
            supply = iter(nodes)
            at = Unbatcher(self._domain, [next(supply) for _ in self._domain])
            values = [AtPoint(*[next(supply) for _ in self._forms(operand.type)]) for operand in operands]
            values = [value if value.whole is not None else AtPoint(value.at_point, value.at_point) for value in values]
            parameters = parameters_of([operand.type for operand in operands])
            whole = Function(self._node.op.name, parameters, _rebuild_loop(self._node, parameters))
            return [at.scalar(result) for result in at.results(whole, values)]

        return trace(run, *[i64] * len(self._domain), *types, name=self._node.attribute("body").name)

    def _forms(self, type: Type) -> list[Type]:
        """The types of an operand's forms: the value at one point, if it has one, and the whole operand."""
        point_type = self._unbatcher.type_at_point(type)
        return [point_type] if point_type is type else [point_type, type]

    def _map_inputs(self, operands: Sequence[Node]) -> list[tuple[Node, Type, bool]]:
        """The operands of the map, their types at a point, and whether each point has its own value."""
        inputs: list[tuple[Node, Type, bool]] = []
        for axis in range(len(self._domain)):
            inputs.append((iota(shape=self._domain, axis=axis, type=i64), i64, True))
        for operand in operands:
            point_type, *whole = self._forms(operand.type)
            if whole:
                assert isinstance(point_type, Tensor)
                inputs += [(part, point_type.element, True) for part in self._split_components(operand)]
            if whole or not isinstance(operand.type, Tensor) or operand.type.rank:
                inputs.append((operand, operand.type, False))
            else:
                inputs.append((lookup(operand), operand.type.element, False))
        return inputs

    def _group_values(self, nodes: Iterator[Node], operands: Sequence[Node]) -> list[Value]:
        """The arguments of the function from `_trace_point`, from the operands of the map at one point."""
        values: list[Value] = [next(nodes) for _ in self._domain]
        for operand in operands:
            point_type, *whole = self._forms(operand.type)
            if whole:
                shape: tuple[int, ...] = shape_of(point_type)  # type: ignore[assignment]
                values.append(array_of([next(nodes) for _ in range(prod(shape))], shape))
            node = next(nodes)
            if isinstance(node.type, Tensor):
                values.append(Memory(node))
            else:
                values.append(array_of([node], ()) if isinstance(operand.type, Tensor) else node)
        return values

    # --- tensors of points ---

    def _split_components(self, operand: Node) -> list[Node]:
        """Splits an operand into one tensor of points for each component, in order."""
        start = self._unbatcher.domain_start(operand.type)
        assert start is not None
        shape, rank = shape_of(operand.type), len(self._domain)
        components = self._unbatcher.remove_domain(shape, start)
        if not components:
            return [operand]
        parts: list[Node] = []
        for index in np.ndindex(components):
            first = (*index[:start], *[0] * rank, *index[start:])
            size = (*[1] * start, *self._domain, *[1] * (len(components) - start))
            part = slice_(operand, start=tuple(map(int, first)), size=size, step=(1,) * len(shape))
            parts.append(reshape(part, shape=self._domain))
        return parts

    def _assemble_result(self, parts: Iterator[Node], type: Type) -> Node:
        """Builds a result of the loop from the next results of the map."""
        point_type = self._unbatcher.type_at_point(type)
        nodes = [next(parts) for _ in range(prod(static_shape(point_type)))]
        if point_type is type:
            return self._assemble_uniform(nodes, type)
        start = self._unbatcher.domain_start(type)
        assert start is not None
        components = shape_of(point_type)
        if not components:
            return nodes[0]
        rows = concatenate(*[reshape(node, shape=(1, *self._domain)) for node in nodes], axis=0)
        stacked = reshape(rows, shape=(*components, *self._domain))
        last = range(len(components), len(components) + len(self._domain))
        axes = (*range(start), *last, *range(start, len(components)))
        return stacked if axes == tuple(range(len(axes))) else permute(stacked, axes=axes)

    def _assemble_uniform(self, nodes: list[Node], type: Type) -> Node:
        """Builds a value that is the same at every point from the values at the first point."""
        first = [lookup(node, *[filled(0, i64) for _ in self._domain]) for node in nodes]
        if not isinstance(type, Tensor):
            return first[0]
        parts = [broadcast(node, shape=(1,), axes=()) for node in first]
        return reshape(parts[0] if len(parts) == 1 else concatenate(*parts, axis=0), shape=type.shape)


def _rebuild_loop(node: Node, operands: Sequence[Node]) -> tuple[Node, ...]:
    """The results of a copy of the loop over these operands."""
    loop = node.op(*operands, **dict(node.attributes))
    return tuple([get(loop, index=index) for index in range(node.attribute("carried"))])
