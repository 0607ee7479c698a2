"""The `lower_tapes` pass: the tapes of loops over numbers become tensors, written and read by index.

For the CPU. A loop of bounded length stores the residuals of its derivative, or the outputs of a scan,
on a tape at its own index. As elements or rows of a tensor, one kernel writes them in place and another one reads them.
Tapes inside tapes, of loops inside loops, are further dimensions of the same tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace

from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant_op, input_node
from livegrad.ir.node import Function, Key, Node, make_node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Scalar, Tape, Tensor, Type, components, holds_tensor, i64, inner_types, shape_of
from livegrad.ir.walk import nodes_of, ops_in, reachable_functions
from livegrad.ops.aggregate import get, make, member
from livegrad.ops.assignment import assign
from livegrad.ops.control import for_loop
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast, index_along
from livegrad.ops.rules import zero
from livegrad.ops.tape import tape_get, tape_new, tape_set, tape_stack, tape_unstack, unwritten
from livegrad.passes.affine_bounds import Ranges, range_of, ranges_inside
from livegrad.passes.flatten_signature import get_of_make, leaf_types
from livegrad.passes.in_place_loops import writes_in_place
from livegrad.passes.join_tape_loops import join_tape_loops
from livegrad.passes.loop_over_elements import expand_loops
from livegrad.passes.loop_over_elements.cost import gains_by_elements, is_cheaper_by_elements
from livegrad.passes.scalarise_loops import scalarise_loops

_MAX_BYTES = 1 << 30  # of the tensors that replace one tape
_MAX_TAPES = 32  # that are tried one by one


class _NotLowered(Exception):
    """A tape is not written or read at a loop's own index alone, or holds tensors."""


def lower_tapes(function: Function) -> Function:
    """The function with tensors for the tapes of loops over numbers."""
    if ops_in(function).isdisjoint((tape_new, tape_unstack)):
        return function
    starts = [node for node in nodes_of(function) if _starts_tape(node) and _is_worth_it(node, function)]
    lowered = _lowered(function, set(starts)) if starts else None
    if lowered is None and len(starts) > 1:
        chosen = [start for start in starts[:_MAX_TAPES] if _lowered(function, {start}) is not None]
        lowered = _lowered(function, set(chosen)) if chosen else None
    return join_tape_loops(function if lowered is None else lowered)


def _starts_tape(node: Node) -> bool:
    """Whether a node is a loop over tensors that starts tapes, or makes a tape of a tensor.

    A loop over scalars keeps its tape: one kernel runs it and the loop that reads the tape.
    """
    if node.op is tape_unstack:
        return True
    return node.op is for_loop and holds_tensor(node.type) and any(o.op is tape_new for o in node.operands)


def _is_worth_it(start: Node, function: Function) -> bool:
    """Whether the tapes hold numbers, or rows that loops over elements compute faster than loops over tensors."""
    if not _holds_rows(start):
        return True
    values = {start, *[node for node in nodes_of(function) if node.op is get and node.operands[0] is start]}
    users = [node for node in nodes_of(function) if node.op is for_loop and not values.isdisjoint(node.operands)]
    loops = [start, *users] if start.op is for_loop else users
    return all(_moves_whole_rows(loop) or gains_by_elements(loop) for loop in loops)


def _moves_whole_rows(loop: Node) -> bool:
    """Whether a body only hands rows on to loops inside, as their tapes: as in a scan of scans."""
    arrays = [node for node in nodes_of(loop.attribute("body")) if isinstance(node.type, Tensor) and node.type.shape]
    return all(node.op in (tape_get, tape_stack) for node in arrays)


def _holds_rows(start: Node) -> bool:
    """Whether the tapes that a node starts hold tensors with dimensions."""
    types = [start.type] if isinstance(start.type, Tape) else components(start.type)
    tapes = [type for type in types if isinstance(type, Tape)]
    return any(isinstance(inner, Tensor) and inner.shape for tape in tapes for inner in inner_types(tape))


def _lowered(function: Function, chosen: Set[Node]) -> Function | None:
    """The function without the tapes that these nodes start; None if a loop that uses one is not one over numbers."""
    try:
        lowered = _without_tapes(function, chosen)
    except _NotLowered:
        return None
    before = {node.attribute("body") for node in nodes_of(function) if node.op is for_loop}
    new = [node for node in nodes_of(lowered) if node.op is for_loop and node.attribute("body") not in before]
    if not any(map(_holds_rows, chosen)):
        scalar = scalarise_loops(lowered)
        if _runs_in_kernels(scalar, function):
            return scalar
        # Loops whose tapes hold numbers may write rows and slices of other tensors.
        new = [node for node in new if is_cheaper_by_elements(node)]
    bodies = {node.attribute("body") for node in new}
    lowered = scalarise_loops(expand_loops(lowered, lambda node: node.attribute("body") in bodies))
    return lowered if _runs_in_kernels(lowered, function) else None


def _runs_in_kernels(lowered: Function, function: Function) -> bool:
    """Whether one kernel can run each loop over tensors that a function did not have before."""
    before = {node for node in nodes_of(function) if node.op is for_loop}
    loops = [n for n in nodes_of(lowered) if n.op is for_loop and n not in before and holds_tensor(n.type)]
    return all(map(writes_in_place, loops))


def _holds_tape(type: Type) -> bool:
    return any(isinstance(inner, Tape) for inner in inner_types(type))


@propagates_lines
def _without_tapes(function: Function, chosen: Set[Node]) -> Function:
    values: dict[Node, _Value] = {parameter: parameter for parameter in function.parameters}
    _Body(values, _Memory(_reads_unset_rows(function)), chosen).run(function)
    results = [values[result] for result in function.results]
    if not all(isinstance(result, Node) for result in results):
        raise _NotLowered
    return Function(function.name, function.parameters, tuple([r for r in results if isinstance(r, Node)]))


def _reads_unset_rows(function: Function) -> bool:
    """Whether a row of a tape may be read that no loop has set, and that is zero therefore."""
    nodes = [node for inner in reachable_functions([function]) for node in nodes_of(inner)]
    return any(
        node.op is tape_stack or (node.op is tape_new and not dict(node.attributes).get("residuals")) for node in nodes
    )


@dataclass(frozen=True)
class _LoweredTape:
    """The tensors that hold the leaves of a tape, at indices that begin with `prefix`: those of the loops around it."""

    element: Type
    tensors: tuple[Node, ...]
    prefix: tuple[Node, ...]
    is_list: bool = False  # created from a tensor: reads beyond its end give zero


@dataclass(frozen=True)
class _Row:
    """A row of a tape that is a tensor, as the tape of its elements: what a loop inside reads or has written."""

    tape: _LoweredTape


_Value = Node | _LoweredTape | _Row | tuple["_Value", ...]  # a tuple: an aggregate with tapes inside


# --- the tensors of a tape -------------------------------------------------------------------------------------------


def _leaves(element: Type) -> Iterator[Tensor]:
    """The scalars and tensors of one row of a tape, including those of nested tapes."""
    for leaf in leaf_types(element):
        if isinstance(leaf, Tape):
            yield from _leaves(leaf.element)
        elif isinstance(leaf, Scalar):
            yield Tensor(leaf, ())
        elif isinstance(leaf, Tensor) and all(isinstance(size, int) for size in leaf.shape):
            yield leaf
        else:
            raise _NotLowered


def _tape_types(loop: Node, number: int, ranges: Ranges) -> list[Tensor]:
    """The types of the tensors for a tape that a loop starts empty and carries as its value of this number."""
    body: Function = loop.attribute("body")
    written = body.results[number]
    if written.op is not tape_set or written.operands[:2] != (body.parameters[1 + number], body.parameters[0]):
        raise _NotLowered
    rows = range_of(loop.operands[0], ranges)
    if rows is None:
        raise _NotLowered
    inside = ranges_inside(loop, rows, ranges)
    types = [Tensor(type.element, (max(0, rows[1]), *type.shape)) for type in _row_types(written.operands[2], inside)]
    if sum(type.element.bits // 8 * _size(type) for type in types) > _MAX_BYTES:
        raise _NotLowered
    return types


def _size(type: Tensor) -> int:
    total = 1
    for extent in type.shape:
        assert isinstance(extent, int)
        total *= extent
    return total


def _row_types(value: Node, ranges: Ranges) -> list[Tensor]:
    """The types of what a row of a tape holds, for a value that is stored there."""
    if isinstance(value.type, Tape):
        loop = value.operands[0] if value.op is get else value
        if loop.op is not for_loop or loop.operands[1 + value.attribute("index")].op is not tape_new:
            raise _NotLowered
        return _tape_types(loop, value.attribute("index"), ranges)
    if value.op is make:
        return [type for operand in value.operands for type in _row_types(operand, ranges)]
    if _holds_tape(value.type):
        raise _NotLowered
    return list(_leaves(value.type))


@dataclass
class _Memory:
    """Initial values of the tensors that replace tapes: zeros if a read may precede every write, else undefined."""

    is_read_whole: bool
    slots: int = 0

    def start(self, type: Tensor) -> Node:
        if self.is_read_whole:
            return zero(type)
        self.slots += 1
        return unwritten(type=type, slot=self.slots)


# --- functions over lowered tapes ------------------------------------------------------------------------------------


@dataclass
class _Body:
    """The nodes of one function, over values in which tapes are tensors."""

    values: dict[Node, _Value]
    memory: _Memory
    chosen: Set[Node] = frozenset()  # the nodes whose tapes are lowered
    # Which tape a loop fills that it starts empty: (the loop, its carried value) -> tape. Others have their own.
    homes: dict[tuple[Node, int], _LoweredTape] = field(default_factory=dict)
    unstacked: Set[Node] = frozenset()  # rows that are only used as tapes
    index: Node | None = None  # of the loop around this body
    iterations: Node | None = None

    def run(self, function: Function) -> None:
        self.unstacked = _unstacked_rows(function)
        for node in nodes_of(function):
            if node not in self.values:
                with originating_from(node.origins):
                    self.values[node] = self._value(node, [self.values[operand] for operand in node.operands])

    def _value(self, node: Node, operands: Sequence[_Value]) -> _Value:
        mixed = not all(isinstance(operand, Node) for operand in operands)
        if node.op is for_loop and (mixed or node in self.chosen or any(loop is node for loop, _ in self.homes)):
            return self._loop(node, operands)
        if node.op is get and isinstance(operands[0], tuple):
            return operands[0][node.attribute("index")]
        if node.op is make and mixed:
            return tuple(operands)
        if node.op is tape_unstack and isinstance(operands[0], _Row):
            return operands[0].tape
        if node.op is tape_unstack and node in self.chosen and isinstance(operands[0], Node):
            assert isinstance(node.type, Tape)
            list(_leaves(node.type.element))
            return _LoweredTape(node.type.element, (operands[0],), (), is_list=True)
        if operands and isinstance(operands[0], _LoweredTape):
            return self._tape(node, operands[0], operands[1:])
        if mixed:
            raise _NotLowered
        rebuilt = make_node(node.op, tuple([o for o in operands if isinstance(o, Node)]), node.attributes)
        taken = get_of_make(rebuilt)  # a member of a row
        return rebuilt if taken is None else taken

    def _tape(self, node: Node, tape: _LoweredTape, operands: Sequence[_Value]) -> _Value:
        if node.op is tape_stack:
            (stacked,) = tape.tensors if len(tape.tensors) == 1 else (None,)
            if stacked is None or stacked.type.shape[len(tape.prefix) :] != node.type.shape:  # type: ignore[attr-defined]
                raise _NotLowered
            return _Row(tape) if tape.prefix else stacked
        index = operands[0] if operands else None
        if not isinstance(index, Node) or node.op not in (tape_get, tape_set):
            raise _NotLowered
        if tape.is_list and not self._has_row(tape, index):
            raise _NotLowered
        row = (*tape.prefix, index)
        if node.op is tape_get and node in self.unstacked:
            assert isinstance(tape.element, Tensor)
            inner = Tensor(tape.element.element, tape.element.shape[1:])
            return _Row(_LoweredTape(inner, tape.tensors, row, tape.is_list))
        if node.op is tape_get:
            return _read(tape.element, iter(tape.tensors), row)
        return _LoweredTape(
            tape.element, tuple(_write(operands[1], tape.element, iter(tape.tensors), row)), tape.prefix
        )

    def _has_row(self, tape: _LoweredTape, index: Node) -> bool:
        """Whether a list has a row at the index of this body, in each iteration."""
        rows = shape_of(tape.tensors[0].type)[len(tape.prefix)]
        iterations = self.iterations if index is self.index else None
        if iterations is None or iterations.op is not constant_op or not isinstance(rows, int):
            return False
        return iterations.attribute("value") <= rows

    # --- loops ---

    def _loop(self, node: Node, operands: Sequence[_Value]) -> _Value:
        carried, body = node.attribute("carried"), node.attribute("body")
        iterations, *arguments = operands
        if any(isinstance(argument, Node) and argument.op is tape_new for argument in arguments[carried:]):
            raise _NotLowered  # empty, and only read
        arguments = [
            self._start(node, number) if isinstance(argument, Node) and argument.op is tape_new else argument
            for number, argument in enumerate(arguments)
        ]
        outside = [*map(_nodes, arguments[:carried]), *map(_nodes, arguments[carried:])]
        prefixes = [n for a in arguments if isinstance(a, _LoweredTape) for n in a.prefix]
        index = input_node(Key("index"), i64)
        inputs = [[input_node(Key("leaf"), n.type) for n in nodes] for nodes in outside]
        own_prefixes = [input_node(Key("prefix"), i64) for _ in prefixes]
        assert isinstance(iterations, Node)
        inner = _Body({}, self.memory, index=index, iterations=iterations)
        supply = iter(own_prefixes)
        inner.values[body.parameters[0]] = index
        for parameter, argument, nodes in zip(body.parameters[1:], arguments, inputs, strict=True):
            inner.values[parameter] = _again(argument, nodes, supply)
        inner.homes = _homes(body, carried, inner.values, index)
        inner.run(body)
        results = [n for result in body.results for n in _nodes(inner.values[result])]
        flat = [n for nodes in inputs for n in nodes]
        lowered = make_function(body.name, [index, *flat, *own_prefixes], results)
        loop = for_loop(
            iterations,
            *[n for nodes in outside for n in nodes],
            *prefixes,
            body=lowered,
            carried=len(results),
            reverse=node.attribute("reverse"),
        )
        ends = iter([get(loop, index=number) for number in range(len(results))])
        return tuple([_ended(argument, ends) for argument in arguments[:carried]])

    def _start(self, loop: Node, number: int) -> _LoweredTape:
        """The lowered form of a tape that a loop starts empty: part of an outer tape, or new tensors."""
        home = self.homes.get((loop, number))
        if home is not None:
            return home
        type = loop.operands[1 + number].type
        assert isinstance(type, Tape)
        types = _tape_types(loop, number, {})
        return _LoweredTape(type.element, tuple([self.memory.start(type_of_part) for type_of_part in types]), ())


def _nodes(value: _Value) -> list[Node]:
    if isinstance(value, Node):
        return [value]
    if isinstance(value, _LoweredTape):
        return list(value.tensors)
    raise _NotLowered


def _again(value: _Value, nodes: Sequence[Node], prefixes: Iterator[Node]) -> _Value:
    """A value over other nodes."""
    if isinstance(value, _LoweredTape):
        return replace(value, tensors=tuple(nodes), prefix=tuple([next(prefixes) for _ in value.prefix]))
    return nodes[0]


def _ended(value: _Value, ends: Iterator[Node]) -> _Value:
    """A carried value after its loop."""
    if isinstance(value, _LoweredTape):
        return replace(value, tensors=tuple([next(ends) for _ in value.tensors]))
    return next(ends)


def _homes(
    body: Function, carried: int, values: dict[Node, _Value], index: Node
) -> dict[tuple[Node, int], _LoweredTape]:
    """For each tape that an inner loop fills and this body stores: its part of the body's own tape."""
    homes: dict[tuple[Node, int], _LoweredTape] = {}
    for number in range(carried):
        tape = values[body.parameters[1 + number]]
        if not isinstance(tape, _LoweredTape):
            continue
        written = body.results[number]
        if written.op is not tape_set:
            continue
        tensors = iter(tape.tensors)
        for leaf in _stored_leaves(written.operands[2]):
            if leaf.op is tape_stack and leaf.operands[0].op is get:
                taken = leaf.operands[0]
                key = (taken.operands[0], taken.attribute("index"))
                if key in homes or not _starts_empty(taken):
                    raise _NotLowered
                homes[key] = _LoweredTape(taken.type.element, (next(tensors),), (*tape.prefix, index))  # type: ignore[attr-defined]
            elif isinstance(leaf.type, Tape):
                components_of_leaf = tuple([next(tensors) for _ in _leaves(leaf.type.element)])
                key = (leaf.operands[0], leaf.attribute("index"))
                if key in homes:
                    raise _NotLowered
                homes[key] = _LoweredTape(leaf.type.element, components_of_leaf, (*tape.prefix, index))
            else:
                for _ in _leaves(leaf.type):
                    next(tensors)
    return homes


def _starts_empty(taken: Node) -> bool:
    """Whether a loop writes the tape starting with its first row."""
    loop = taken.operands[0]
    return loop.op is for_loop and loop.operands[1 + taken.attribute("index")].op is tape_new


def _unstacked_rows(function: Function) -> Set[Node]:
    """The rows of tapes that a function only reads as tapes of their elements."""
    rows = {node for node in nodes_of(function) if node.op is tape_get and isinstance(node.type, Tensor)}
    rows -= set(function.results)
    for node in nodes_of(function):
        if node.op is not tape_unstack:
            rows -= set(node.operands)
    return rows


def _stored_leaves(value: Node) -> Iterator[Node]:
    """The leaves of a row of a tape: tapes, and values without tapes."""
    if value.op is make:
        for operand in value.operands:
            yield from _stored_leaves(operand)
    elif _holds_tape(value.type) and not (isinstance(value.type, Tape) and value.op is get):
        raise _NotLowered
    else:
        yield value


def _read(type: Type, tensors: Iterator[Node], row: tuple[Node, ...]) -> _Value:
    """What a row of a tape holds."""
    if isinstance(type, Tape):
        return _LoweredTape(type.element, tuple([next(tensors) for _ in _leaves(type.element)]), row)
    if isinstance(type, Scalar):
        return lookup(next(tensors), *row)
    if isinstance(type, Tensor):
        if type.shape:
            return lookup(next(tensors), *_row_indices(type, row))
        return broadcast(lookup(next(tensors), *row), axes=(), shape=())
    members = [_read(part, tensors, row) for part in components(type)]
    nodes = [part for part in members if isinstance(part, Node)]
    return make(*nodes, type=type) if len(nodes) == len(members) else tuple(members)


def _row_indices(type: Tensor, row: tuple[Node, ...]) -> list[Node]:
    """The indices of all elements of a tensor that is stored in a row."""
    fixed = [broadcast(index, axes=(), shape=type.shape) for index in row]
    return [*fixed, *[index_along(type.shape, axis) for axis in range(type.rank)]]


def _write(value: _Value, type: Type, tensors: Iterator[Node], row: tuple[Node, ...]) -> list[Node]:
    """The tensors of a tape after a value was stored in a row."""
    if isinstance(type, Tape):
        assert isinstance(value, _LoweredTape)
        for _ in value.tensors:
            next(tensors)
        if value.prefix != row:
            raise _NotLowered
        return list(value.tensors)
    if isinstance(type, Scalar | Tensor):
        if isinstance(value, _Row):
            if value.tape.prefix != row:
                raise _NotLowered
            next(tensors)
            return list(value.tape.tensors)
        assert isinstance(value, Node)
        if isinstance(type, Tensor) and type.shape:
            return [assign(next(tensors), value, *_row_indices(type, row))]
        number = lookup(value) if isinstance(type, Tensor) else value
        return [assign(next(tensors), number, *row)]
    parts = value if isinstance(value, tuple) else [member(value, i) for i in range(len(components(type)))]  # type: ignore[arg-type]
    return [
        n
        for part, part_type in zip(parts, components(type), strict=True)
        for n in _write(part, part_type, tensors, row)
    ]
