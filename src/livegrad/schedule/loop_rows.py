"""Rewrites loops over tensors so that each iteration takes and returns one row of a tape.

A body that accesses a tape only at its own index reads and writes an ordinary value in each iteration. `build_row_loop`
turns these values into parameters and results, so that the loop can run natively. The plan pass `access_tapes_by_row`
calls it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import Array, Struct, Tape, Tuple, Type, components
from livegrad.ir.walk import nodes_of, rewrite, substitute, toposort
from livegrad.ops.aggregate import make
from livegrad.ops.control import while_loop
from livegrad.ops.rules import add_values, zero
from livegrad.ops.tape import tape_add, tape_get, tape_new, tape_set, tape_sum
from livegrad.passes.flatten_signature import flatten_signature, leaf_types, leaves_of
from livegrad.schedule.plan import RowLoop, RowTape


def build_row_loop(node: Node, used: Collection[int]) -> RowLoop:
    """Builds the `RowLoop` of a `for_loop` or `while_loop`, of which only the `used` results are read."""
    body_function: Function = node.attribute("body")
    body = flatten_signature(body_function)
    test = flatten_signature(node.attribute("condition")) if node.op is while_loop else None
    index, *leaves = body.parameters
    types = body_function.parameter_types[1 : 1 + node.attribute("carried")]
    owners = [index for index, type in enumerate(types) for _ in leaf_types(type)]
    carried = len(owners)
    unchanged = {position for position in range(carried) if body.results[position] is leaves[position]}
    by_row = sorted(_tapes_by_row(body, carried) - ({p for p, _ in _used_parameters(test)} if test else set()))

    inputs: dict[int, list[Node]] = {position: [] for position in by_row}
    entries = {leaves[p]: _make_row_inputs(leaves[p].type.element, inputs[p]) for p in by_row}  # type: ignore[attr-defined]
    results = rewrite(body.results, lambda inner: _access_row(inner, index, entries))

    state = [position for position in range(carried) if position not in unchanged and position not in inputs]
    invariant = [
        position
        for position in range(len(leaves))
        if position not in inputs and (position >= carried or position in unchanged)
    ]
    written = {
        position for position in by_row if position < carried and position not in unchanged and owners[position] in used
    }
    results_of_row = [results[position] for position in state]
    results_of_row += [
        leaf for position in by_row if position in written for leaf in leaves_of(entries[results[position]])
    ]
    if test is not None:
        after = {parameter: results[p] if p < carried else leaves[p] for p, parameter in _used_parameters(test)}
        results_of_row += substitute(test.results, after)
    needed = set(toposort(results_of_row))
    rows = []
    for position in by_row:
        reads = tuple(index for index, leaf in enumerate(inputs[position]) if leaf in needed)
        rows.append(RowTape(position, entries[leaves[position]].type, reads, position in written))
    row_inputs = [inputs[row.leaf][read] for row in rows for read in row.reads]
    parameters = [index, *(leaves[p] for p in (*state, *invariant)), *row_inputs]
    row_body = make_function(body_function.name, parameters, results_of_row)
    return RowLoop(row_body, carried, tuple(state), tuple(invariant), tuple(rows))


def _used_parameters(test: Function) -> Iterator[tuple[int, Node]]:
    """The parameters that a function uses, with their positions."""
    used = set(nodes_of(test))
    return ((position, parameter) for position, parameter in enumerate(test.parameters) if parameter in used)


def _tapes_by_row(body: Function, carried: int) -> set[int]:
    """The positions of tapes that a body accesses only at its own index and returns at the same position."""
    index, *leaves = body.parameters
    position_of = {leaf: position for position, leaf in enumerate(leaves) if isinstance(leaf.type, Tape)}
    source: dict[Node, int | None] = dict(position_of)  # the tape of which a node is a version; None: an empty tape
    excluded: set[int | None] = set()
    for node in nodes_of(body):
        match node.op, node.operands:
            case op, (tape, at, *value) if op in (tape_get, tape_set, tape_add) and at is index and tape in source:
                excluded.update(source[inner] for inner in value if inner in source)
                if op is not tape_get:
                    source[node] = source[tape]
            case op, (first, second) if op is tape_sum and None in (source.get(first, -1), source.get(second, -1)):
                both = [source.get(operand, -1) for operand in (first, second)]
                source[node] = next((position for position in both if position is not None), None)
            case op, operands:
                excluded.update(source[operand] for operand in operands if operand in source)
                if op is tape_new:
                    source[node] = None
    for position, result in enumerate(body.results):
        if isinstance(result.type, Tape) and source.get(result, -1) != position:
            excluded |= {position, source.get(result)}
    return set(position_of.values()) - excluded  # type: ignore[operator]


def _make_row_inputs(type: Type, leaves: list[Node]) -> Node:
    """A value of a type made of input nodes, which are appended to `leaves`."""
    if isinstance(type, Struct | Tuple | Array):
        return make(*[_make_row_inputs(part, leaves) for part in components(type)], type=type)
    leaves.append(input_node(Key("row"), type))
    return leaves[-1]


def _access_row(node: Node, index: Node, entries: dict[Node, Node]) -> Node | None:
    """Replaces a read by the row itself. `entries` records the row of each version of a tape."""
    if node.op is tape_new:
        entries[node] = zero(node.type.element)  # type: ignore[attr-defined]
    elif node.op is tape_sum and all(operand in entries for operand in node.operands):
        entries[node] = add_values(*(entries[operand] for operand in node.operands))
    elif node.op in (tape_get, tape_set, tape_add) and node.operands[0] in entries and node.operands[1] is index:
        before = entries[node.operands[0]]
        if node.op is tape_get:
            return before
        entries[node] = node.operands[2] if node.op is tape_set else add_values(before, node.operands[2])
    return None
