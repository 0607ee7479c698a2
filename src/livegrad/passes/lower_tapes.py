"""The `lower_tapes` pass: the tapes of loops over scalars become tensors, written and read by index.

For the CPU. A loop of bounded length stores the residuals of its derivative, or the outputs of a scan, on a tape at its
index. As elements or rows of a tensor, one kernel writes them in place and another reads them. Nested tapes, of nested
loops, become further dimensions of the same tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant_op, input_node
from livegrad.ir.node import Function, Key, Node, make_node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Tape, Tensor, Type, components, holds_tensor, i64, inner_types, shape_of
from livegrad.ir.walk import nodes_of, ops_in, reachable_functions
from livegrad.ops.aggregate import get, make
from livegrad.ops.control import for_loop
from livegrad.ops.rules import zero
from livegrad.ops.tape import tape_get, tape_new, tape_set, tape_stack, tape_unstack, unwritten
from livegrad.passes.affine_bounds import Ranges, range_of, ranges_inside
from livegrad.passes.flatten_signature import get_of_make
from livegrad.passes.in_place_loops import writes_in_place
from livegrad.passes.join_tape_loops import join_tape_loops
from livegrad.passes.loop_over_elements import expand_loops
from livegrad.passes.loop_over_elements.cost import gains_by_elements, is_cheaper_by_elements
from livegrad.passes.scalarise_loops import scalarise_loops
from livegrad.passes.tape_tensors import (
    LoweredTape,
    NotLowered,
    Row,
    TapeValue,
    nodes_of_value,
    read_row,
    row_leaves,
    with_next_nodes,
    with_nodes,
    write_row,
)

_MAX_BYTES = 1 << 30  # of the tensors that replace one tape
_MAX_TAPES = 32  # that are tried one by one, if lowering all of them fails


def lower_tapes(function: Function) -> Function:
    """Replaces the tapes of loops over scalars by tensors."""
    if ops_in(function).isdisjoint((tape_new, tape_unstack)):
        return function
    starts = [node for node in nodes_of(function) if _starts_tape(node) and _is_profitable(node, function)]
    lowered = _lower_chosen(function, set(starts)) if starts else None
    if lowered is None and len(starts) > 1:
        chosen = [start for start in starts[:_MAX_TAPES] if _lower_chosen(function, {start}) is not None]
        lowered = _lower_chosen(function, set(chosen)) if chosen else None
    return join_tape_loops(function if lowered is None else lowered)


def _starts_tape(node: Node) -> bool:
    """Whether a node is a loop over tensors that starts tapes, or converts a tensor to a tape.

    A loop over scalars keeps its tape: one kernel runs this loop and the one that reads the tape.
    """
    if node.op is tape_unstack:
        return True
    return node.op is for_loop and holds_tensor(node.type) and any(o.op is tape_new for o in node.operands)


def _is_profitable(start: Node, function: Function) -> bool:
    """Whether the tapes hold scalars, or rows that loops over elements compute faster than loops over tensors."""
    if not _holds_rows(start):
        return True
    values = {start, *[node for node in nodes_of(function) if node.op is get and node.operands[0] is start]}
    users = [node for node in nodes_of(function) if node.op is for_loop and not values.isdisjoint(node.operands)]
    loops = [start, *users] if start.op is for_loop else users
    return all(_moves_whole_rows(loop) or gains_by_elements(loop) for loop in loops)


def _moves_whole_rows(loop: Node) -> bool:
    """Whether a body only passes rows to inner loops, as their tapes. Scans of scans do."""
    arrays = [node for node in nodes_of(loop.attribute("body")) if isinstance(node.type, Tensor) and node.type.shape]
    return all(node.op in (tape_get, tape_stack) for node in arrays)


def _holds_rows(start: Node) -> bool:
    """Whether the tapes that a node starts hold tensors of rank 1 or more."""
    types = [start.type] if isinstance(start.type, Tape) else components(start.type)
    tapes = [type for type in types if isinstance(type, Tape)]
    return any(isinstance(inner, Tensor) and inner.shape for tape in tapes for inner in inner_types(tape))


def _lower_chosen(function: Function, chosen: Set[Node]) -> Function | None:
    """Lowers the tapes that these nodes start; returns None if one kernel cannot run each loop that uses them."""
    try:
        lowered = _replace_tapes(function, chosen)
    except NotLowered:
        return None
    before = {node.attribute("body") for node in nodes_of(function) if node.op is for_loop}
    new = [node for node in nodes_of(lowered) if node.op is for_loop and node.attribute("body") not in before]
    if not any(map(_holds_rows, chosen)):
        scalar = scalarise_loops(lowered)
        if _runs_in_kernels(scalar, function):
            return scalar
        # Loops whose tapes hold scalars may still write rows and slices of other tensors.
        new = [node for node in new if is_cheaper_by_elements(node)]
    bodies = {node.attribute("body") for node in new}
    lowered = scalarise_loops(expand_loops(lowered, lambda node: node.attribute("body") in bodies))
    return lowered if _runs_in_kernels(lowered, function) else None


def _runs_in_kernels(lowered: Function, function: Function) -> bool:
    """Whether one kernel can run each new loop over tensors in the lowered function."""
    before = {node for node in nodes_of(function) if node.op is for_loop}
    loops = [n for n in nodes_of(lowered) if n.op is for_loop and n not in before and holds_tensor(n.type)]
    return all(map(writes_in_place, loops))


def _holds_tape(type: Type) -> bool:
    return any(isinstance(inner, Tape) for inner in inner_types(type))


@propagates_lines
def _replace_tapes(function: Function, chosen: Set[Node]) -> Function:
    values: dict[Node, TapeValue] = {parameter: parameter for parameter in function.parameters}
    _TapeInterpreter(values, _Memory(_reads_unset_rows(function)), chosen).run(function)
    results = [values[result] for result in function.results]
    if not all(isinstance(result, Node) for result in results):
        raise NotLowered
    return Function(function.name, function.parameters, tuple([r for r in results if isinstance(r, Node)]))


def _reads_unset_rows(function: Function) -> bool:
    """Whether rows of tapes may be read that no loop has set: these must be zero."""
    nodes = [node for inner in reachable_functions([function]) for node in nodes_of(inner)]
    return any(
        node.op is tape_stack or (node.op is tape_new and not dict(node.attributes).get("residuals")) for node in nodes
    )


# --- the tensors of a tape -------------------------------------------------------------------------------------------


def _tape_types(loop: Node, index: int, ranges: Ranges) -> list[Tensor]:
    """The types of the tensors for a tape that a loop starts empty; `index` is that of the carried value."""
    body: Function = loop.attribute("body")
    update = body.results[index]
    if update.op is not tape_set or update.operands[:2] != (body.parameters[1 + index], body.parameters[0]):
        raise NotLowered
    rows = range_of(loop.operands[0], ranges)
    if rows is None:
        raise NotLowered
    inside = ranges_inside(loop, rows, ranges)
    types = [Tensor(type.element, (max(0, rows[1]), *type.shape)) for type in _row_types(update.operands[2], inside)]
    if sum(type.element.bits // 8 * _count_elements(type) for type in types) > _MAX_BYTES:
        raise NotLowered
    return types


def _count_elements(type: Tensor) -> int:
    total = 1
    for extent in type.shape:
        assert isinstance(extent, int)
        total *= extent
    return total


def _row_types(value: Node, ranges: Ranges) -> list[Tensor]:
    """The tensor types of the leaves of a value that is stored in a row of a tape."""
    if isinstance(value.type, Tape):
        loop = value.operands[0] if value.op is get else value
        if loop.op is not for_loop or loop.operands[1 + value.attribute("index")].op is not tape_new:
            raise NotLowered
        return _tape_types(loop, value.attribute("index"), ranges)
    if value.op is make:
        return [type for operand in value.operands for type in _row_types(operand, ranges)]
    if _holds_tape(value.type):
        raise NotLowered
    return list(row_leaves(value.type))


@dataclass
class _Memory:
    """Creates the tensors that replace tapes: zeros if rows may be read that are never set, else unwritten memory."""

    must_be_zero: bool
    slots: int = 0

    def allocate(self, type: Tensor) -> Node:
        if self.must_be_zero:
            return zero(type)
        self.slots += 1
        return unwritten(type=type, slot=self.slots)


# --- functions over lowered tapes ------------------------------------------------------------------------------------


@dataclass
class _TapeInterpreter:
    """Interprets one function over values in which tapes are tensors."""

    values: dict[Node, TapeValue]
    memory: _Memory
    chosen: Set[Node] = frozenset()  # the nodes whose tapes are lowered
    # (inner loop, index of its carried tape) → the part of an outer tape that it fills. Other tapes get new tensors.
    outer_tapes: dict[tuple[Node, int], LoweredTape] = field(default_factory=dict)
    unstacked: Set[Node] = frozenset()  # rows that are only used as tapes
    index: Node | None = None  # of the loop around this body
    iterations: Node | None = None

    def run(self, function: Function) -> None:
        self.unstacked = _find_unstacked_rows(function)
        for node in nodes_of(function):
            if node not in self.values:
                with originating_from(node.origins):
                    self.values[node] = self._lower_node(node, [self.values[operand] for operand in node.operands])

    def _lower_node(self, node: Node, operands: Sequence[TapeValue]) -> TapeValue:
        has_tapes = not all(isinstance(operand, Node) for operand in operands)
        if node.op is for_loop and (
            has_tapes or node in self.chosen or any(loop is node for loop, _ in self.outer_tapes)
        ):
            return self._lower_loop(node, operands)
        if node.op is get and isinstance(operands[0], tuple):
            return operands[0][node.attribute("index")]
        if node.op is make and has_tapes:
            return tuple(operands)
        if node.op is tape_unstack and isinstance(operands[0], Row):
            return operands[0].tape
        if node.op is tape_unstack and node in self.chosen and isinstance(operands[0], Node):
            assert isinstance(node.type, Tape)
            list(row_leaves(node.type.element))
            return LoweredTape(node.type.element, (operands[0],), (), is_list=True)
        if operands and isinstance(operands[0], LoweredTape):
            return self._access_tape(node, operands[0], operands[1:])
        if has_tapes:
            raise NotLowered
        rebuilt = make_node(node.op, tuple([o for o in operands if isinstance(o, Node)]), node.attributes)
        member_of_row = get_of_make(rebuilt)
        return rebuilt if member_of_row is None else member_of_row

    def _access_tape(self, node: Node, tape: LoweredTape, operands: Sequence[TapeValue]) -> TapeValue:
        if node.op is tape_stack:
            (stacked,) = tape.tensors if len(tape.tensors) == 1 else (None,)
            if stacked is None or stacked.type.shape[len(tape.prefix) :] != node.type.shape:  # type: ignore[attr-defined]
                raise NotLowered
            return Row(tape) if tape.prefix else stacked
        index = operands[0] if operands else None
        if not isinstance(index, Node) or node.op not in (tape_get, tape_set):
            raise NotLowered
        if tape.is_list and not self._has_row(tape, index):
            raise NotLowered
        row = (*tape.prefix, index)
        if node.op is tape_get and node in self.unstacked:
            assert isinstance(tape.element, Tensor)
            inner = Tensor(tape.element.element, tape.element.shape[1:])
            return Row(LoweredTape(inner, tape.tensors, row, tape.is_list))
        if node.op is tape_get:
            return read_row(tape.element, iter(tape.tensors), row)
        return LoweredTape(
            tape.element, tuple(write_row(operands[1], tape.element, iter(tape.tensors), row)), tape.prefix
        )

    def _has_row(self, tape: LoweredTape, index: Node) -> bool:
        """Whether a list has a row at the loop index in each iteration."""
        rows = shape_of(tape.tensors[0].type)[len(tape.prefix)]
        iterations = self.iterations if index is self.index else None
        if iterations is None or iterations.op is not constant_op or not isinstance(rows, int):
            return False
        return iterations.attribute("value") <= rows

    # --- loops ---

    def _lower_loop(self, node: Node, operands: Sequence[TapeValue]) -> TapeValue:
        carried, body = node.attribute("carried"), node.attribute("body")
        iterations, *arguments = operands
        if any(isinstance(argument, Node) and argument.op is tape_new for argument in arguments[carried:]):
            raise NotLowered  # an empty tape that is only read
        arguments = [
            self._start_tape(node, position) if isinstance(argument, Node) and argument.op is tape_new else argument
            for position, argument in enumerate(arguments)
        ]
        outside = [*map(nodes_of_value, arguments[:carried]), *map(nodes_of_value, arguments[carried:])]
        prefixes = [n for a in arguments if isinstance(a, LoweredTape) for n in a.prefix]
        index = input_node(Key("index"), i64)
        inputs = [[input_node(Key("leaf"), n.type) for n in nodes] for nodes in outside]
        inner_prefixes = [input_node(Key("prefix"), i64) for _ in prefixes]
        assert isinstance(iterations, Node)
        inner = _TapeInterpreter({}, self.memory, index=index, iterations=iterations)
        supply = iter(inner_prefixes)
        inner.values[body.parameters[0]] = index
        for parameter, argument, nodes in zip(body.parameters[1:], arguments, inputs, strict=True):
            inner.values[parameter] = with_nodes(argument, nodes, supply)
        inner.outer_tapes = _find_outer_tapes(body, carried, inner.values, index)
        inner.run(body)
        results = [n for result in body.results for n in nodes_of_value(inner.values[result])]
        flat = [n for nodes in inputs for n in nodes]
        lowered = make_function(body.name, [index, *flat, *inner_prefixes], results)
        loop = for_loop(
            iterations,
            *[n for nodes in outside for n in nodes],
            *prefixes,
            body=lowered,
            carried=len(results),
            reverse=node.attribute("reverse"),
        )
        members = iter([get(loop, index=position) for position in range(len(results))])
        return tuple([with_next_nodes(argument, members) for argument in arguments[:carried]])

    def _start_tape(self, loop: Node, index: int) -> LoweredTape:
        """Lowers a tape that a loop starts empty: to part of an outer tape, or to new tensors."""
        outer_tape = self.outer_tapes.get((loop, index))
        if outer_tape is not None:
            return outer_tape
        type = loop.operands[1 + index].type
        assert isinstance(type, Tape)
        types = _tape_types(loop, index, {})
        return LoweredTape(type.element, tuple([self.memory.allocate(tensor_type) for tensor_type in types]), ())


def _find_outer_tapes(
    body: Function, carried: int, values: dict[Node, TapeValue], index: Node
) -> dict[tuple[Node, int], LoweredTape]:
    """For each tape that an inner loop fills and this body stores on its own tape: its part of that tape."""
    outer_tapes: dict[tuple[Node, int], LoweredTape] = {}
    for position in range(carried):
        tape = values[body.parameters[1 + position]]
        if not isinstance(tape, LoweredTape):
            continue
        update = body.results[position]
        if update.op is not tape_set:
            continue
        tensors = iter(tape.tensors)
        for leaf in _stored_leaves(update.operands[2]):
            if leaf.op is tape_stack and leaf.operands[0].op is get:
                inner_tape = leaf.operands[0]
                key = (inner_tape.operands[0], inner_tape.attribute("index"))
                if key in outer_tapes or not _starts_empty(inner_tape):
                    raise NotLowered
                outer_tapes[key] = LoweredTape(inner_tape.type.element, (next(tensors),), (*tape.prefix, index))  # type: ignore[attr-defined]
            elif isinstance(leaf.type, Tape):
                components_of_leaf = tuple([next(tensors) for _ in row_leaves(leaf.type.element)])
                key = (leaf.operands[0], leaf.attribute("index"))
                if key in outer_tapes:
                    raise NotLowered
                outer_tapes[key] = LoweredTape(leaf.type.element, components_of_leaf, (*tape.prefix, index))
            else:
                for _ in row_leaves(leaf.type):
                    next(tensors)
    return outer_tapes


def _starts_empty(tape: Node) -> bool:
    """Whether a tape is the result of a loop that starts it empty."""
    loop = tape.operands[0]
    return loop.op is for_loop and loop.operands[1 + tape.attribute("index")].op is tape_new


def _find_unstacked_rows(function: Function) -> Set[Node]:
    """The rows of tapes that a function only uses as tapes of their elements."""
    rows = {node for node in nodes_of(function) if node.op is tape_get and isinstance(node.type, Tensor)}
    rows -= set(function.results)
    for node in nodes_of(function):
        if node.op is not tape_unstack:
            rows -= set(node.operands)
    return rows


def _stored_leaves(value: Node) -> Iterator[Node]:
    """The leaves of a value that is stored on a tape: tapes, and values without tapes."""
    if value.op is make:
        for operand in value.operands:
            yield from _stored_leaves(operand)
    elif _holds_tape(value.type) and not (isinstance(value.type, Tape) and value.op is get):
        raise NotLowered
    else:
        yield value
