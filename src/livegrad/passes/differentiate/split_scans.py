"""Splits scans into segments that reverse mode recomputes: a scan over segments, each a scan under `recompute_call`.

In: a loop that reads rows of tensors and returns a value for each iteration, and the length of a segment. Out: its
carried values. Rows of inputs and outputs are split with the loop, so each segment has its own. Called by `budget.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tape, Tensor, i64, shape_of
from livegrad.ir.walk import nodes_of, substitute
from livegrad.ops.aggregate import get
from livegrad.ops.control import for_loop, parameters_of
from livegrad.ops.custom import recompute_call
from livegrad.ops.movement import concatenate, reshape, slice_
from livegrad.ops.tape import tape_get, tape_new, tape_set, tape_stack, tape_unstack
from livegrad.passes.differentiate.tangents import result_nodes


@dataclass(frozen=True)
class _Scan:
    """A loop whose tapes have a row for each iteration. `read` and `written` are indices of its operands, in order."""

    node: Node
    written: tuple[int, ...]
    read: tuple[int, ...]

    @property
    def body(self) -> Function:
        return self.node.attribute("body")

    @property
    def reverse(self) -> bool:
        return self.node.attribute("reverse")

    @property
    def state(self) -> tuple[int, ...]:
        """The operands that are carried and no tapes."""
        return tuple([i for i in range(1, 1 + self.node.attribute("carried")) if i not in self.written])

    @property
    def captures(self) -> tuple[int, ...]:
        first = 1 + self.node.attribute("carried")
        return tuple([i for i in range(first, len(self.node.operands)) if i not in self.read])


def split_scan(node: Node, iterations: int, length: int) -> list[Node] | None:
    """The carried values of a scan after segments of this length; None if it is not a scan that can be split."""
    scan = _match_scan(node)
    if scan is None or not 0 < length < iterations:
        return None
    full = iterations - iterations % length
    state = [node.operands[i] for i in scan.state]
    inputs = [node.operands[i].operands[0] for i in scan.read]  # the tensors that the tapes were made from
    outputs: list[list[Node]] = []
    spans = [(0, full)] + [(full, iterations)] * (full < iterations)
    for low, high in reversed(spans) if scan.reverse else spans:
        rows = [_rows(x, low, high) for x in inputs]
        if low == 0:
            state, stacked = _run_segments(scan, state, rows, full // length, length)
        else:
            state, stacked = _run(scan, scan.body, constant(low, i64), state, rows, _captures_of(scan), high - low)
        outputs.append(stacked)
    in_order = outputs[::-1] if scan.reverse else outputs
    joined = [parts[0] if len(parts) == 1 else concatenate(*parts, axis=0) for parts in zip(*in_order, strict=True)]
    results: list[Node] = [node] * node.attribute("carried")
    for i, value in zip(scan.state, state, strict=True):
        results[i - 1] = value
    for i, value in zip(scan.written, joined, strict=True):
        results[i - 1] = tape_unstack(value)
    return results


def _match_scan(node: Node) -> _Scan | None:
    body, carried = node.attribute("body"), node.attribute("carried")
    tapes = [i for i, operand in enumerate(node.operands) if isinstance(operand.type, Tape)]
    written = tuple([i for i in tapes if i <= carried])
    read = tuple([i for i in tapes if i > carried])
    users = {i: [n for n in nodes_of(body) if body.parameters[i] in n.operands] for i in tapes}
    for i in tapes:
        operand = node.operands[i]
        if not isinstance(operand.type, Tape) or not _has_static_rows(operand.type):
            return None
        if any(user.operands[:2] != (body.parameters[i], body.parameters[0]) for user in users[i]):
            return None
    for i in written:
        update = body.results[i - 1]
        if node.operands[i].op is not tape_new or update.op is not tape_set or users[i] != [update]:
            return None
        if sum(update in n.operands for n in nodes_of(body)) or body.results.count(update) != 1:
            return None
    for i in read:
        is_read = all(user.op is tape_get for user in users[i]) and body.parameters[i] not in body.results
        if node.operands[i].op is not tape_unstack or not is_read:
            return None
    return _Scan(node, written, read)


def _has_static_rows(type: Tape) -> bool:
    return isinstance(type.element, Tensor) and all(isinstance(size, int) for size in type.element.shape)


def _rows(tensor: Node, low: int, high: int) -> Node:
    shape = shape_of(tensor.type)
    if (low, high) == (0, shape[0]):
        return tensor
    start, size = (low, *[0] * (len(shape) - 1)), (high - low, *shape[1:])
    return slice_(tensor, start=start, size=size, step=(1,) * len(shape))


def _captures_of(scan: _Scan) -> list[Node]:
    return [scan.node.operands[i] for i in scan.captures]


def _run(
    scan: _Scan,
    body: Function,
    start: Node,
    state: Sequence[Node],
    rows: Sequence[Node],
    captures: Sequence[Node],
    n: int,
) -> tuple[list[Node], list[Node]]:
    """The state after `n` iterations from `start`, over these rows, and the stacked outputs."""
    shifted, empty = _shift(scan, body), [_empty_tape(scan, i) for i in scan.written]
    tapes = [tape_unstack(x) for x in rows]
    carried = len(state) + len(empty)
    loop = for_loop(
        constant(n, i64), *state, *empty, *captures, *tapes, start, body=shifted, carried=carried, reverse=scan.reverse
    )
    nodes = [get(loop, index=index) for index in range(carried)]
    return nodes[: len(state)], [tape_stack(tape, size=n) for tape in nodes[len(state) :]]


def _empty_tape(scan: _Scan, i: int) -> Node:
    return tape_new(**dict(scan.node.operands[i].attributes))


def _shift(scan: _Scan, body: Function) -> Function:
    """The body with its operands in the order of `_run`, whose index counts from an additional argument at the end."""
    order = (*scan.state, *scan.written, *scan.captures, *scan.read)
    index, *fresh, start = parameters_of([i64, *[body.parameters[i].type for i in order], i64])
    exchange = dict(zip([body.parameters[i] for i in order], fresh, strict=True))
    for node in nodes_of(body):  # rows count from zero in each segment
        if node.op is tape_get and node.operands[0] in exchange:
            exchange[node] = tape_get(exchange[node.operands[0]], index)
    exchange[body.parameters[0]] = index + start
    values = [body.results[i - 1] for i in scan.state]
    stored = [body.results[i - 1].operands[2] for i in scan.written]
    results = substitute([*values, *stored], exchange, body.source_locations)
    tapes = fresh[len(scan.state) : len(scan.state) + len(stored)]
    updates = [tape_set(tape, index, value) for tape, value in zip(tapes, results[len(values) :], strict=True)]
    return Function(body.name, (index, *fresh, start), (*results[: len(values)], *updates))


def _run_segments(
    scan: _Scan, state: Sequence[Node], rows: Sequence[Node], segments: int, length: int
) -> tuple[list[Node], list[Node]]:
    """The state after all segments, and the stacked outputs."""
    blocks = [reshape(x, shape=(segments, length, *shape_of(x.type)[1:])) for x in rows]
    captures = _captures_of(scan)
    segment = _segment(scan, state, blocks, captures, length)
    outputs = segment.result_types[len(state) :]
    tapes = [tape_new(type=Tape(type)) for type in outputs]
    types = [i64, *[n.type for n in state], *[t.type for t in tapes], *[n.type for n in captures]]
    fresh = parameters_of([*types, *[Tape(Tensor(b.type.element, b.type.shape[1:])) for b in blocks]])  # type: ignore[attr-defined]
    index, values = fresh[0], fresh[1 : 1 + len(state)]
    carried, rest = 1 + len(state) + len(tapes), len(captures)
    own_captures, own_blocks = fresh[carried : carried + rest], fresh[carried + rest :]
    value = recompute_call(
        index * length, *values, *[tape_get(tape, index) for tape in own_blocks], *own_captures, function=segment
    )
    results = result_nodes(value, len(segment.results))
    pairs = zip(fresh[1 + len(state) : carried], results[len(state) :], strict=True)
    updates = [tape_set(tape, index, output) for tape, output in pairs]
    body = Function(segment.name, tuple(fresh), (*results[: len(state)], *updates))
    loop = for_loop(
        constant(segments, i64), *state, *tapes, *captures, *[tape_unstack(block) for block in blocks],
        body=body, carried=carried - 1, reverse=scan.reverse,
    )  # fmt: skip
    nodes = [get(loop, index=position) for position in range(carried - 1)]
    stacked = [tape_stack(tape, size=segments) for tape in nodes[len(state) :]]
    shapes = [(segments * length, *shape_of(x.type)[2:]) for x in stacked]
    return nodes[: len(state)], [reshape(x, shape=shape) for x, shape in zip(stacked, shapes, strict=True)]


def _segment(
    scan: _Scan, state: Sequence[Node], blocks: Sequence[Node], captures: Sequence[Node], length: int
) -> Function:
    """(first iteration, state, rows of a segment, captures) → state and outputs of its iterations."""
    row_types = [Tensor(b.type.element, b.type.shape[1:]) for b in blocks]  # type: ignore[attr-defined]
    start, *fresh = parameters_of([i64, *[n.type for n in state], *row_types, *[n.type for n in captures]])
    values, rest = fresh[: len(state)], fresh[len(state) :]
    after, outputs = _run(scan, scan.body, start, values, rest[: len(blocks)], rest[len(blocks) :], length)
    return Function("segment", (start, *fresh), (*after, *outputs))
