"""Rewrites loops over tensors so that each iteration accesses one row of a tape.

A body that uses a tape only at its own index reads and writes an ordinary value in each iteration. `row_loop` turns the
tape into parameters and results, so that nothing is interpreted while the loop runs. The plan pass
`access_tapes_by_row` calls it.
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


def row_loop(node: Node, used: Collection[int]) -> RowLoop:
    """The form of a `for_loop` or `while_loop` of whose results only those `used` are read."""
    own: Function = node.attribute("body")
    body = flatten_signature(own)
    test = flatten_signature(node.attribute("condition")) if node.op is while_loop else None
    index, *leaves = body.parameters
    types = own.parameter_types[1 : 1 + node.attribute("carried")]
    owners = [number for number, type in enumerate(types) for _ in leaf_types(type)]
    carried = len(owners)
    unchanged = {place for place in range(carried) if body.results[place] is leaves[place]}
    by_row = sorted(_used_by_row(body, carried) - ({p for p, _ in _parameters_used(test)} if test else set()))

    inputs: dict[int, list[Node]] = {place: [] for place in by_row}
    entries = {leaves[p]: _assembled(leaves[p].type.element, inputs[p]) for p in by_row}  # type: ignore[attr-defined]
    results = rewrite(body.results, lambda inner: _without_tape(inner, index, entries))

    state = [place for place in range(carried) if place not in unchanged and place not in inputs]
    fixed = [place for place in range(len(leaves)) if place not in inputs and (place >= carried or place in unchanged)]
    written = {place for place in by_row if place < carried and place not in unchanged and owners[place] in used}
    given = [results[place] for place in state]
    given += [leaf for place in by_row if place in written for leaf in leaves_of(entries[results[place]])]
    if test is not None:
        after = {parameter: results[p] if p < carried else leaves[p] for p, parameter in _parameters_used(test)}
        given += substitute(test.results, after)
    needed = set(toposort(given))
    rows = []
    for place in by_row:
        reads = tuple(number for number, leaf in enumerate(inputs[place]) if leaf in needed)
        rows.append(RowTape(place, entries[leaves[place]].type, reads, place in written))
    read = [inputs[row.leaf][number] for row in rows for number in row.reads]
    made = make_function(own.name, [index, *(leaves[p] for p in (*state, *fixed)), *read], given)
    return RowLoop(made, carried, tuple(state), tuple(fixed), tuple(rows))


def _parameters_used(test: Function) -> Iterator[tuple[int, Node]]:
    found = set(nodes_of(test))
    return ((place, parameter) for place, parameter in enumerate(test.parameters) if parameter in found)


def _used_by_row(body: Function, carried: int) -> set[int]:
    """The places of tapes that the body touches at its own index alone, and gives back where it took them."""
    index, *leaves = body.parameters
    place_of = {leaf: place for place, leaf in enumerate(leaves) if isinstance(leaf.type, Tape)}
    source: dict[Node, int | None] = dict(place_of)  # the place of the tape that a node is a version of; None: empty
    elsewhere: set[int | None] = set()
    for node in nodes_of(body):
        match node.op, node.operands:
            case op, (tape, at, *value) if op in (tape_get, tape_set, tape_add) and at is index and tape in source:
                elsewhere.update(source[inner] for inner in value if inner in source)
                if op is not tape_get:
                    source[node] = source[tape]
            case op, (first, second) if op is tape_sum and None in (source.get(first, -1), source.get(second, -1)):
                both = [source.get(operand, -1) for operand in (first, second)]
                source[node] = next((place for place in both if place is not None), None)
            case op, operands:
                elsewhere.update(source[operand] for operand in operands if operand in source)
                if op is tape_new:
                    source[node] = None
    for place, result in enumerate(body.results):
        if isinstance(result.type, Tape) and source.get(result, -1) != place:
            elsewhere |= {place, source.get(result)}
    return set(place_of.values()) - elsewhere  # type: ignore[operator]


def _assembled(type: Type, leaves: list[Node]) -> Node:
    if isinstance(type, Struct | Tuple | Array):
        return make(*[_assembled(own, leaves) for own in components(type)], type=type)
    leaves.append(input_node(Key("row"), type))
    return leaves[-1]


def _without_tape(node: Node, index: Node, entries: dict[Node, Node]) -> Node | None:
    """A read of a row as the row itself; what a tape holds at the index is noted down for every version of it."""
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
