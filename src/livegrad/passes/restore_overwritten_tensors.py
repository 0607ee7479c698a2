"""The `restore_overwritten_tensors` pass: backward loops undo writes instead of reading whole tensors from a tape.

A loop that writes a few elements of a tensor in each iteration, and whose derivative needs the tensor as it was, would
store all of it each time: n iterations of n rows store n² rows. Instead, the tape holds the elements that an iteration
overwrites. The backward loop starts from the final tensor and writes them back, so it has the tensor of each iteration,
bit by bit. Whatever was read from that tensor is read again instead of stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Function, Module, Node, make_node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Tape, Tuple, i64, scalar_of, shape_of
from livegrad.ir.walk import exchanged_functions, nodes_of, ops_below, substitute, toposort
from livegrad.ops.aggregate import get, make, make_tuple
from livegrad.ops.assignment import UPDATES, assign
from livegrad.ops.control import for_loop, parameters_of, while_loop
from livegrad.ops.elementwise import add
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast, permute, reshape
from livegrad.ops.tape import tape_get, tape_new, tape_set
from livegrad.passes.functions import count_uses, rewrite_functions, rewrite_to_fixpoint
from livegrad.passes.regions import LOOPS, first_argument

_MIN_RATIO = 4  # of the bytes that a tape no longer stores to those of the overwritten elements
_READS = (lookup, permute, reshape, broadcast)  # how a stored value may be read from a restored tensor


def restore_overwritten_tensors(function: Function) -> Function:
    """Removes tensors that loops overwrite in part from the tapes of a function and of its nested functions."""
    ops = ops_below(function)
    if not {for_loop, tape_new} <= ops or ops.isdisjoint(UPDATES):
        return function
    changed = rewrite_functions(Module((function,)), lambda inner: rewrite_to_fixpoint(inner, _next_change))
    return changed.functions[0]


def _next_change(function: Function) -> dict[Node, Node] | None:
    """The replacements for the results of the next forward loop and of its backward loops; None if there is none."""
    nodes = nodes_of(function)
    for loop in nodes:
        if loop.op not in LOOPS or not any(operand.op is tape_new for operand in loop.operands):
            continue
        pair = _match_pair(loop, nodes, function)
        plan = None if pair is None else _choose(pair)
        if pair is not None and plan is not None:
            with originating_from(loop.origins):
                return _rewrite(pair, plan, nodes)
    return None


# --- the loops -------------------------------------------------------------------------------------------------------


class _Pair(NamedTuple):
    """A loop that writes a tape, and the loops that read it in reverse. `stored` are the members of a row."""

    forward: Node
    position: int  # of the tape among the carried values
    stored: tuple[Node, ...]
    backward: tuple[Node, ...]

    @property
    def body(self) -> Function:
        return self.forward.attribute("body")

    @property
    def carried(self) -> Sequence[Node]:
        return self.body.parameters[1 : 1 + self.forward.attribute("carried")]

    @property
    def tape(self) -> Node:
        return get(self.forward, index=self.position)


def _match_pair(loop: Node, nodes: Sequence[Node], function: Function) -> _Pair | None:
    """Matches a loop whose only tape is read by loops that run the same iterations in reverse."""
    body, carried, first = loop.attribute("body"), loop.attribute("carried"), first_argument(loop)
    tapes = [position for position in range(carried) if loop.operands[first + position].op is tape_new]
    if len(tapes) != 1 or (loop.op is for_loop and loop.attribute("reverse")):
        return None
    (position,) = tapes
    update = body.results[position]
    if update.op is not tape_set or update.operands[:2] != (body.parameters[1 + position], body.parameters[0]):
        return None
    row, uses = update.operands[2], count_uses(body)
    if row.op is not make or uses[body.parameters[1 + position]] != 1 or uses[update] != 1:
        return None
    tape = get(loop, index=position)
    users = tuple([node for node in nodes if tape in node.operands])
    if not users or tape in function.results or any(node.op is not get for node in nodes if loop in node.operands):
        return None
    if loop in function.results or not all(_reads_in_reverse(user, tape, loop) for user in users):
        return None
    return _Pair(loop, position, row.operands, users)


def _reads_in_reverse(loop: Node, tape: Node, forward: Node) -> bool:
    """Whether a node is a loop over the iterations of another one in reverse that reads its row of a tape."""
    if loop.op is not for_loop or not loop.attribute("reverse") or not _counts_iterations(loop.operands[0], forward):
        return False
    if loop.operands.count(tape) != 1 or loop.operands.index(tape) <= loop.attribute("carried"):
        return False
    body: Function = loop.attribute("body")
    parameter = body.parameters[loop.operands.index(tape)]
    rows = [node for node in nodes_of(body) if parameter in node.operands]
    if len(rows) != 1 or rows[0].op is not tape_get or rows[0].operands[1] is not body.parameters[0]:
        return False
    if not {parameter, rows[0]}.isdisjoint(body.results):
        return False
    return all(node.op is get for node in nodes_of(body) if rows[0] in node.operands)


def _counts_iterations(count: Node, loop: Node) -> bool:
    """Whether a value is the number of iterations of a loop."""
    if loop.op is for_loop:
        return count is loop.operands[0]
    if count.op is not get or count.operands[0] is not loop:
        return False
    counter = count.attribute("index")
    start, step, body = loop.operands[counter], loop.attribute("body").results[counter], loop.attribute("body")
    is_next = step.op is add and step.operands[0] is body.parameters[0] and _is_integer(step.operands[1], 1)
    return is_next and _is_integer(start, 0)


def _is_integer(node: Node, value: int) -> bool:
    return node.op is constant_op and node.type is i64 and node.attribute("value") == value


# --- what to restore -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """What the tape holds instead, and what the backward loops compute from it."""

    restored: Mapping[Node, Sequence[Node]]  # carried tensor → its updates in an iteration, in order
    overwritten: Mapping[Node, Node]  # update → the elements before it
    reread: frozenset[Node]  # stored values that the backward loops read from restored tensors
    row: tuple[Node, ...]  # the members of a row: other stored values, overwritten elements, indices


def _choose(pair: _Pair) -> _Plan | None:
    """Chooses the tensors to restore; None if the tape would not shrink much."""
    stored_bytes = sum(map(_bytes, dict.fromkeys(pair.stored)))
    restored: dict[Node, Sequence[Node]] = {}
    for tensor, result in zip(pair.carried, pair.body.results, strict=True):
        updates = _find_updates(tensor, result)
        if updates and any(_is_read_from(node, {tensor, *updates}, set()) for node in pair.stored):
            restored[tensor] = updates
    while restored:
        plan = _plan(pair, restored)
        if 0 < _MIN_RATIO * sum(map(_bytes, plan.row)) <= stored_bytes:
            return plan
        most = max(restored, key=lambda tensor: sum(_bytes(plan.overwritten[u]) for u in restored[tensor]))
        del restored[most]
    return None


def _find_updates(tensor: Node, result: Node) -> list[Node]:
    """The writes that turn a carried tensor into its next value; empty if something else does."""
    updates: list[Node] = []
    while result is not tensor:
        if result.op not in UPDATES:
            return []
        updates.append(result)
        result = result.operands[0]
    return updates[::-1]


def _plan(pair: _Pair, restored: Mapping[Node, Sequence[Node]]) -> _Plan:
    updates = [update for chain in restored.values() for update in chain]
    overwritten = {update: _read_before(update) for update in updates}
    changing = _dependents(nodes_of(pair.body), pair.carried)
    indices = [index for update in updates for index in update.operands[2:] if index in changing]
    versions = {*restored, *updates}
    reread = frozenset([node for node in pair.stored if _is_read_from(node, versions, changing)])
    others = [node for node in pair.stored if node not in reread]
    row = tuple(dict.fromkeys([*others, *overwritten.values(), *indices]))
    return _Plan(dict(restored), overwritten, reread, row)


def _read_before(update: Node) -> Node:
    """The elements that an update overwrites, before it does."""
    base, _, *indices = update.operands
    with originating_from(update.origins):
        return make_node(lookup, (base, *indices), update.attributes)


def _dependents(nodes: Sequence[Node], sources: Sequence[Node]) -> set[Node]:
    reached = set(sources)
    for node in nodes:
        if not reached.isdisjoint(node.operands):
            reached.add(node)
    return reached


def _is_read_from(node: Node, versions: Set[Node], changing: Set[Node]) -> bool:
    """Whether a value is one of these tensors, or is read from one at indices that do not depend on carried values."""
    while node not in versions:
        if node.op not in _READS or not changing.isdisjoint(node.operands[1:]):
            return False
        node = node.operands[0]
    return True


def _bytes(node: Node) -> int:
    """The bytes of a value on a tape. A nested tape stays on it, so its size does not matter."""
    scalar, sizes = scalar_of(node.type), shape_of(node.type)
    return 0 if scalar is None else scalar.dtype.itemsize * prod([size for size in sizes if isinstance(size, int)])


# --- rewriting -------------------------------------------------------------------------------------------------------


def _rewrite(pair: _Pair, plan: _Plan, nodes: Sequence[Node]) -> dict[Node, Node]:
    """The replacements for the members of all these loops."""
    forward = _store_overwritten(pair, plan)
    replacements = _replace_members(pair.forward, forward, nodes)
    for loop in pair.backward:
        changed = _restore(pair, plan, loop, forward, replacements)
        replacements |= _replace_members(loop, changed, nodes)
    return replacements


def _replace_members(loop: Node, changed: Node, nodes: Sequence[Node]) -> dict[Node, Node]:
    members = [node for node in nodes if node.op is get and node.operands[0] is loop]
    return {member: get(changed, index=member.attribute("index")) for member in members}


def _store_overwritten(pair: _Pair, plan: _Plan) -> Node:
    """The forward loop with the planned rows on its tape."""
    loop, body, position = pair.forward, pair.body, pair.position
    parameters = [*body.parameters]
    tape_type = Tape(Tuple(tuple([node.type for node in plan.row])))
    types = [node.type for node in parameters]
    types[1 + position] = tape_type
    fresh = parameters_of(types)
    results = [*body.results[:position], *plan.row, *body.results[position + 1 :]]
    nodes = substitute(results, dict(zip(parameters, fresh, strict=True)), body.source_locations)
    end = position + len(plan.row)
    update = tape_set(fresh[1 + position], fresh[0], make_tuple(*nodes[position:end]))
    stored = Function(body.name, fresh, (*nodes[:position], update, *nodes[end:]))
    operands = list(loop.operands)
    place = first_argument(loop) + position
    operands[place] = tape_new(**{**dict(operands[place].attributes), "type": tape_type})
    changes: dict[Function, Function] = {body: stored}
    if loop.op is while_loop:
        condition: Function = loop.attribute("condition")
        fresh = parameters_of(types[1:])
        exchange = dict(zip(condition.parameters, fresh, strict=True))
        holds = substitute(condition.results, exchange, condition.source_locations)
        changes[condition] = Function(condition.name, fresh, holds)
    return make_node(loop.op, tuple(operands), exchanged_functions(loop.attributes, changes))  # type: ignore[arg-type]


def _restore(pair: _Pair, plan: _Plan, loop: Node, forward: Node, replacements: Mapping[Node, Node]) -> Node:
    """A backward loop that also carries the tensors, from their final values back to the first."""
    carried, tape_at = loop.attribute("carried"), loop.operands.index(pair.tape)
    finals = [get(forward, index=pair.carried.index(tensor)) for tensor in plan.restored]
    needed = _find_captures(pair, plan)
    first = first_argument(pair.forward)
    captures = [pair.forward.operands[first - 1 + pair.body.parameters.index(node)] for node in needed]
    operands = list(substitute(loop.operands, dict(replacements)))
    operands[tape_at] = get(forward, index=pair.position)
    body: Function = loop.attribute("body")
    types = [operands[0].type, *[node.type for node in (*operands[1 : 1 + carried], *finals)]]
    types += [node.type for node in (*operands[1 + carried :], *captures)]
    fresh = parameters_of(types)
    at_start = fresh[1 + carried : 1 + carried + len(finals)]
    own = [*fresh[: 1 + carried], *fresh[1 + carried + len(finals) : len(fresh) - len(captures)]]
    exchange = dict(zip(body.parameters, own, strict=True))
    inside = dict(zip(needed, fresh[len(fresh) - len(captures) :], strict=True)) | {pair.body.parameters[0]: fresh[0]}
    row = tape_get(exchange[body.parameters[tape_at]], fresh[0])
    inside |= {node: get(row, index=index) for index, node in enumerate(plan.row)}
    restored = _undo_updates(plan, inside, dict(zip(plan.restored, at_start, strict=True)))
    reread = dict(zip(pair.stored, substitute(pair.stored, inside, pair.body.source_locations), strict=True))
    for node in nodes_of(body):
        if (
            node.op is get
            and node.operands[0].op is tape_get
            and node.operands[0].operands[0] is body.parameters[tape_at]
        ):
            exchange[node] = reread[pair.stored[node.attribute("index")]]
    results = substitute(body.results, exchange, body.source_locations)
    changed = Function(body.name, fresh, (*results, *restored))
    values = [*operands[: 1 + carried], *finals, *operands[1 + carried :], *captures]
    return for_loop(*values, body=changed, carried=carried + len(finals), reverse=True)


def _find_captures(pair: _Pair, plan: _Plan) -> list[Node]:
    """The captures of the forward loop that the indices of writes and reads depend on."""
    roots = [index for update in plan.overwritten for index in update.operands[2:]]
    reads = toposort([*roots, *plan.reread], stop={*plan.row, *plan.restored, *plan.overwritten}.__contains__)
    used = {node for node in reads if node not in plan.row}
    captures = pair.body.parameters[1 + pair.forward.attribute("carried") :]
    return [node for node in captures if node in used]


def _undo_updates(plan: _Plan, inside: dict[Node, Node], finals: Mapping[Node, Node]) -> list[Node]:
    """The tensors before an iteration, from those after it; `inside` gets the versions between."""
    tensors: list[Node] = []
    for tensor, updates in plan.restored.items():
        value = finals[tensor]
        for update in reversed(updates):
            inside[update] = value
            indices = substitute(update.operands[2:], inside)
            with originating_from(update.origins):
                value = make_node(assign, (value, inside[plan.overwritten[update]], *indices), update.attributes)
        inside[tensor] = value
        tensors.append(value)
    return tensors
