"""The `unguard_invariants` pass: what a loop computes beforehand, if it runs, is computed whether or not it runs.

A guard is for derivatives and checks: what a body computes is nothing where it does not run (`ops/closing.py`). Once
derivatives are taken, values that only such a body reads, that cannot fail and cost little need none, and are fused
with the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from livegrad.ir.function import inline
from livegrad.ir.leaves import constant_op, is_constant, parameter_op
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.walk import nodes_of, rebuild
from livegrad.ops.aggregate import get, make_tuple, member
from livegrad.ops.comparison import greater
from livegrad.ops.control import cond, for_loop
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast, flip, iota, permute, reshape, slice_
from livegrad.ops.rules import is_zero_node
from livegrad.passes.functions import rewrite_functions, uses_any

_VIEWS = frozenset({broadcast, reshape, permute, slice_, flip, lookup})
_Users = Mapping[Node, list[tuple[Node, int]]]  # the nodes that read a node, and as which operand


def unguard_invariants(function: Function) -> Function:
    """The function, and those inside it, without guards of cheap values that only a loop reads."""
    if not uses_any([function], (for_loop,)):
        return function
    return rewrite_functions(Module((function,)), _unguarded).functions[0]


def _unguarded(function: Function) -> Function:
    guards = [node for node in nodes_of(function) if node.op is cond and _is_guard(node)]
    if not guards:
        return function
    users = _users_in(function)
    needless = {guard for guard in guards if _is_read_by_loops(guard, users, function)}
    if not needless:
        return function
    done: dict[Node, Node] = {}
    for node in nodes_of(function):
        operands = tuple([done[operand] for operand in node.operands])
        if node in needless:
            done[node] = _computed(node, operands)
        elif node.op is get and node.operands[0] in needless:
            done[node] = member(operands[0], node.attribute("index"))
        else:
            done[node] = rebuild(node, operands)
    changed = Function(function.name, function.parameters, tuple([done[result] for result in function.results]))
    changed.source_locations.update(function.source_locations)
    return changed


def _computed(guard: Node, operands: tuple[Node, ...]) -> Node:
    results = inline(guard.attribute("then"), operands[1:])
    return results[0] if len(results) == 1 else make_tuple(*results)


def _is_guard(node: Node) -> bool:
    """Whether a choice computes cheap values if a loop has iterations, and zeros if it has none."""
    test = node.operands[0]
    if test.op is not greater or not is_constant(test.operands[1], 0):
        return False
    return all(map(is_zero_node, node.attribute("otherwise").results)) and _is_cheap(node.attribute("then"))


@lru_cache(maxsize=1024)
def _is_cheap(function: Function) -> bool:
    """Whether a function is elementwise, and cannot fail."""
    return all(
        not node.may_fail and (node.op.elementwise or node.op in _VIEWS or node.op in (constant_op, parameter_op, iota))
        for node in nodes_of(function)
    )


def _users_in(function: Function) -> _Users:
    users: dict[Node, list[tuple[Node, int]]] = {}
    for node in nodes_of(function):
        for position, operand in enumerate(node.operands):
            users.setdefault(operand, []).append((node, position))
    return users


def _is_read_by_loops(guard: Node, users: _Users, function: Function) -> bool:
    """Whether only loops, and selects with the guard's condition, read the guarded value or a view of it."""
    pending = [guard]
    while pending:
        value = pending.pop()
        if value in function.results:
            return False
        for user, position in users.get(value, ()):
            if user.op is get or (user.op in _VIEWS and not user.may_fail):
                pending.append(user)
            elif not _reads_if_running(user, position, guard.operands[0]):
                return False
    return True


def _reads_if_running(user: Node, position: int, test: Node) -> bool:
    """Whether a node reads an operand only if the test, that a loop has iterations, holds."""
    if user.op is for_loop:
        return position > user.attribute("carried") and user.operands[0] is test.operands[0]
    if user.op is not cond or user.operands[0] is not test or not position:
        return False
    otherwise: Function = user.attribute("otherwise")
    return otherwise.parameters[position - 1] not in nodes_of(otherwise)
