"""The `interchange_elementwise_loops` pass: a loop of elementwise ops over tensors becomes a map of loops over scalars.

For the CPU. Fixed-point iterations and time steps of particles have this form. Each point runs all iterations
independently, so the state stays in registers; a loop of kernels would write it to memory in each iteration.

In a derivative, the backward loop reads the tape of the forward loop. Its map runs the forward loop again at each
point: the tape of a few points is small, but that of all points may not fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from livegrad.ir.function import trace
from livegrad.ir.leaves import constant_op, parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.types import Scalar, Tape, Tensor, Tuple, Type, components, i64, shape_of
from livegrad.ir.walk import nodes_of, ops_in, substitute, users_of
from livegrad.ops.aggregate import get, make, make_tuple
from livegrad.ops.control import for_loop, make_for_loop
from livegrad.ops.indexing import lookup
from livegrad.ops.maps import map_
from livegrad.ops.movement import broadcast, iota
from livegrad.ops.rules import filled
from livegrad.ops.tape import tape_add, tape_get, tape_new, tape_set, tape_unstack

_MAX_NODES = 300  # of a body: the values of larger ones do not fit in registers
_Shape = tuple[int, ...]


def interchange_elementwise_loops(function: Function) -> Function:
    """Turns loops of elementwise ops over tensors into maps of loops over scalars."""
    return _build_maps(function) if for_loop in ops_in(function) else function


@propagates_lines
def _build_maps(function: Function) -> Function:
    loops = _loops_to_interchange(function)
    results: dict[Node, Node] = {}  # replacements of the loops and of their members
    for node, loop in loops.items():
        interchanged = _MapBuilder(loop, loops)
        if not interchanged.has_points:
            continue  # all points compute the same values, such as a counter
        values = interchanged.build(results)
        results |= {get(node, index=index): value for index, value in values.items()}
        if not loop.tapes:
            results[node] = make_tuple(*values.values())
    if not loops:
        return function
    return Function(
        function.name, function.parameters, substitute(function.results, results, function.source_locations)
    )


# --- analysis ---------------------------------------------------------------------------------------------------------


def _loops_to_interchange(function: Function) -> dict[Node, _PointwiseLoop]:
    """The loops to interchange, in order. A loop that writes a tape and all readers of the tape go together."""
    nodes = nodes_of(function)
    users = users_of(nodes)
    candidates = ((node, _pointwise_loop(node)) for node in nodes if node.op is for_loop)
    loops = {node: loop for node, loop in candidates if loop is not None}
    while misfits := [node for node in loops if not _can_interchange(node, loops, users, function.results)]:
        for node in misfits:
            del loops[node]
    return loops


def _can_interchange(
    node: Node, loops: dict[Node, _PointwiseLoop], users: dict[Node, list[Node]], results: Sequence[Node]
) -> bool:
    loop = loops[node]
    if any(source not in loops or loops[source].shape != loop.shape for source, _ in loop.sources):
        return False
    if not loop.tapes:
        return True
    takers = users[node]
    tapes = [taker for taker in takers if isinstance(taker.type, Tape)]
    read_by_loops = all(user in loops for tape in tapes for user in users[tape])
    return read_by_loops and all(taker.op is get for taker in takers) and {node, *tapes}.isdisjoint(results)


@dataclass
class _PointwiseLoop:
    """A loop that computes each point of `shape` independently."""

    node: Node
    shape: _Shape
    # Nodes of the body that become operands of the map: a value for each point, or a row with a value per iteration.
    by_point: dict[Node, Node] = field(default_factory=dict)
    rows: dict[Node, Node] = field(default_factory=dict)
    pointwise: set[Node] = field(default_factory=set)  # the nodes of the body that each point computes

    @property
    def body(self) -> Function:
        return self.node.attribute("body")

    @property
    def arguments(self) -> dict[Node, Node]:
        """The parameters of the body except the index, with their initial values."""
        return dict(zip(self.body.parameters[1:], self.node.operands[1:], strict=True))

    @property
    def point_arguments(self) -> dict[Node, Node]:
        """The arguments that a point uses, and all carried ones: a loop without iterations returns them."""
        needed = {*self.pointwise, *self.carried}
        return {parameter: value for parameter, value in self.arguments.items() if parameter in needed}

    @property
    def carried(self) -> Sequence[Node]:
        return self.body.parameters[1 : 1 + self.node.attribute("carried")]

    @property
    def tapes(self) -> list[int]:
        """The carried values that are tapes."""
        return [index for index, parameter in enumerate(self.carried) if isinstance(parameter.type, Tape)]

    @property
    def sources(self) -> list[tuple[Node, int]]:
        """The loops that wrote the tapes among the arguments, and the indices of these tapes in their results."""
        tapes = [value for value in self.arguments.values() if isinstance(value.type, Tape) and value.op is get]
        return [(value.operands[0], value.attribute("index")) for value in tapes]


def _pointwise_loop(node: Node) -> _PointwiseLoop | None:
    body: Function = node.attribute("body")
    shapes = {shape for type in body.result_types for shape in _leaf_shapes(type)} - {()}
    if len(shapes) != 1 or len(nodes_of(body)) > _MAX_NODES:
        return None
    (shape,) = shapes
    if shape is None or 0 in shape:
        return None
    loop = _PointwiseLoop(node, shape)
    for inner in nodes_of(body):
        if inner is body.parameters[0] or _is_pointwise(loop, inner):
            loop.pointwise.add(inner)
    return loop if loop.pointwise.issuperset(body.results) else None


def _leaf_shapes(type: Type) -> Iterator[_Shape | None]:
    """The shapes of the leaves of a type; None for leaves without a value at each point."""
    if isinstance(type, Tape):
        yield from _leaf_shapes(type.element)
    elif isinstance(type, Tuple):
        for member in components(type):
            yield from _leaf_shapes(member)
    else:
        yield shape_of(type) if isinstance(type, Tensor | Scalar) else None  # type: ignore[misc]


def _is_pointwise(loop: _PointwiseLoop, node: Node) -> bool:
    """Whether a node of the body is elementwise: computed from the values at one point and from shared scalars."""
    arguments, pointwise = loop.arguments, loop.pointwise
    if node in arguments:
        is_supported = not isinstance(node.type, Tape) or _has_known_writer(arguments[node])
        return is_supported and _has_points(node.type, loop.shape)
    if node.op.elementwise or node.op in (constant_op, make, get) or (node.op is lookup and len(node.operands) == 1):
        return pointwise.issuperset(node.operands) and _has_points(node.type, loop.shape)
    if node.op is broadcast:
        (source,) = node.operands
        if source in pointwise and shape_of(source.type) in ((), loop.shape):
            return True
        if source not in arguments or shape_of(node.type) != loop.shape:
            return False
        loop.by_point[node] = broadcast(arguments[source], **dict(node.attributes))
        return True
    if node.op is iota and shape_of(node.type) == loop.shape:
        loop.by_point[node] = node
        return True
    if node.op in (tape_get, tape_set, tape_add) and node.operands[0] in pointwise:
        return node.operands[1] is loop.body.parameters[0] and pointwise.issuperset(node.operands)
    return node.op is tape_get and _reads_row(loop, node)


def _has_points(type: Type, shape: _Shape) -> bool:
    return all(leaf_shape in ((), shape) for leaf_shape in _leaf_shapes(type))


def _has_known_writer(tape: Node) -> bool:
    """Whether a tape is new, or the result of a loop."""
    return tape.op is tape_new or (tape.op is get and tape.operands[0].op is for_loop)


def _reads_row(loop: _PointwiseLoop, node: Node) -> bool:
    """Whether a node reads the scalar for the current iteration from a row with at least one scalar per iteration."""
    arguments, iterations, (rows, index) = loop.arguments, loop.node.operands[0], node.operands
    rows = arguments.get(rows, rows)
    if rows.op is not tape_unstack or index is not loop.body.parameters[0] or not isinstance(node.type, Tensor):
        return False
    values = arguments.get(rows.operands[0], rows.operands[0])
    if node.type.rank or (
        rows.operands[0] not in arguments and rows not in arguments.values() and values.op is not iota
    ):
        return False
    count = shape_of(values.type)[0]
    if iterations.op is not constant_op or not isinstance(count, int) or iterations.attribute("value") > count:
        return False
    loop.rows[node] = values
    return True


# --- rewriting --------------------------------------------------------------------------------------------------------


class _MapBuilder:
    """Builds the map of a loop. Each point first runs the loops that write the tapes that the loop reads."""

    def __init__(self, loop: _PointwiseLoop, loops: dict[Node, _PointwiseLoop]) -> None:
        self._loop, self._loops = loop, loops
        self._tapes_read: dict[Node, set[int]] = {loop.node: set()}  # by loop that runs: its tapes that are read
        self._add_sources(loop)
        self._operands: dict[tuple[Node, bool], int] = {}  # (value, whether by point) → position
        for node in self._tapes_read:
            for operand in _operands_of(loops[node]):
                self._operands.setdefault(operand, len(self._operands))

    @property
    def has_points(self) -> bool:
        """Whether an operand has a value for each point."""
        return any(by_point for _, by_point in self._operands)

    def _add_sources(self, loop: _PointwiseLoop) -> None:
        for source, index in loop.sources:
            is_new = source not in self._tapes_read
            self._tapes_read.setdefault(source, set()).add(index)
            if is_new:
                self._add_sources(self._loops[source])

    def build(self, results: dict[Node, Node]) -> dict[int, Node]:
        """The final carried values of the loop except tapes, by index; `results` has those of previous loops."""
        body, operands = self._loop.body, substitute([operand for operand, _ in self._operands], results)
        lifted = tuple([by_point for _, by_point in self._operands])
        types = [o.type.element if flag else o.type for o, flag in zip(operands, lifted, strict=True)]  # type: ignore[attr-defined]
        returned = [index for index in range(len(self._loop.carried)) if index not in self._loop.tapes]
        point = trace(lambda *values: self._run_at_point(returned, values), *types, name=body.name)
        value = map_(*operands, function=point, lifted=lifted, summed=(False,) * len(returned))
        members = [value] if len(returned) == 1 else [get(value, index=index) for index in range(len(returned))]
        types = [body.result_types[index] for index in returned]
        return dict(zip(returned, map(self._as_carried, members, types), strict=True))

    def _as_carried(self, value: Node, type: Type) -> Node:
        """Converts a result of the map to the type that the loop returns; a scalar is the same at all points."""
        if shape_of(type) == self._loop.shape:
            return value
        scalar = lookup(value, *[filled(0, i64) for _ in self._loop.shape])
        return broadcast(scalar, shape=(), axes=()) if isinstance(type, Tensor) else scalar

    # --- one point ---

    def _run_at_point(self, returned: Sequence[int], values: Sequence[Node]) -> list[Node]:
        final_values = self._run_loop(self._loop, values, {})
        return [final_values[index] for index in returned]

    def _run_loop(
        self, loop: _PointwiseLoop, values: Sequence[Node], runs: dict[Node, dict[int, Node]]
    ) -> dict[int, Node]:
        """Runs a loop at one point; returns its final carried values by index, without unread tapes."""
        if loop.node in runs:
            return runs[loop.node]
        for source, _ in loop.sources:
            self._run_loop(self._loops[source], values, runs)
        unread = set(loop.tapes) - self._tapes_read[loop.node] - _find_tapes_read_inside(loop)
        returned = [index for index in range(len(loop.carried)) if index not in unread]
        dropped = {loop.carried[index] for index in unread}
        initial_values = {
            parameter: self._initial_value(operand, loop.shape, values, runs)
            for parameter, operand in loop.point_arguments.items()
            if parameter not in dropped
        }
        constant = {node: self._value_at_point(operand, True, values) for node, operand in loop.by_point.items()}
        rows = {node: self._value_at_point(operand, False, values) for node, operand in loop.rows.items()}

        def step(index: Node, *state: Node) -> list[Node]:
            carried = [loop.carried[position] for position in returned]
            inside = initial_values | constant | dict(zip(carried, state, strict=True))
            inside |= {node: lookup(row, index) for node, row in rows.items()}
            inside[loop.body.parameters[0]] = index
            for node in nodes_of(loop.body):
                if node.op is not parameter_op and node not in inside and inside.keys() >= set(node.operands):
                    inside[node] = _compute(node, [inside[operand] for operand in node.operands])
            return [inside[loop.body.results[position]] for position in returned]

        iterations = self._value_at_point(loop.node.operands[0], False, values)
        initial = [initial_values[loop.carried[position]] for position in returned]
        final_values = make_for_loop(iterations, step, *initial, reverse=loop.node.attribute("reverse"))
        runs[loop.node] = dict(zip(returned, final_values, strict=True))
        return runs[loop.node]

    def _initial_value(
        self, operand: Node, shape: _Shape, values: Sequence[Node], runs: dict[Node, dict[int, Node]]
    ) -> Node:
        if not isinstance(operand.type, Tape):
            return self._value_at_point(operand, shape_of(operand.type) == shape, values)
        if operand.op is tape_new:
            return tape_new(type=_type_at_point(operand.type))
        return runs[operand.operands[0]][operand.attribute("index")]

    def _value_at_point(self, operand: Node, by_point: bool, values: Sequence[Node]) -> Node:
        """The value of an operand at one point; a tensor of rank 0 becomes a scalar."""
        value = values[self._operands[operand, by_point]]
        return lookup(value) if isinstance(value.type, Tensor) and not value.type.rank else value


def _operands_of(loop: _PointwiseLoop) -> Iterable[tuple[Node, bool]]:
    """The operands of the map of a loop, and whether each point has its own value."""
    yield loop.node.operands[0], False
    for operand in loop.point_arguments.values():
        if not isinstance(operand.type, Tape):
            yield operand, shape_of(operand.type) == loop.shape
    yield from ((operand, True) for operand in loop.by_point.values())
    yield from ((operand, False) for operand in loop.rows.values())


def _find_tapes_read_inside(loop: _PointwiseLoop) -> set[int]:
    """The carried tapes that the loop itself reads."""
    read_tapes = {node.operands[0] for node in nodes_of(loop.body) if node.op is tape_get}
    return {index for index in loop.tapes if not read_tapes.isdisjoint(_find_versions(loop, loop.carried[index]))}


def _find_versions(loop: _PointwiseLoop, tape: Node) -> set[Node]:
    versions = {tape}
    for node in nodes_of(loop.body):
        if node.op in (tape_set, tape_add) and node.operands[0] in versions:
            versions.add(node)
    return versions


def _compute(node: Node, operands: Sequence[Node]) -> Node:
    """Computes a node of a body at one point."""
    if not operands:
        return node
    if node.op is make:
        return make_tuple(*operands)
    return operands[0] if node.op in (broadcast, lookup) else node.op(*operands, **dict(node.attributes))


def _type_at_point(type: Type) -> Type:
    if isinstance(type, Tape):
        return Tape(_type_at_point(type.element))
    if isinstance(type, Tuple):
        return Tuple(tuple(map(_type_at_point, components(type))))
    return type.element if isinstance(type, Tensor) else type
