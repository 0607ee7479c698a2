"""The `unguard_invariants` pass: removes the guards of hoisted loop invariants that are cheap and cannot fail.

Hoisted values are computed under a guard, if the loop has iterations, for the sake of derivatives and checks
(`ops/closing.py`). After differentiation, cheap values that only the loop reads need no guard; without it, they are
fused with the loop.
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
_Users = Mapping[Node, list[tuple[Node, int]]]  # node → its users, with the position of the operand


def unguard_invariants(function: Function) -> Function:
    """Removes the guards of cheap values that only loops read, in a function and in its nested functions."""
    if not uses_any([function], (for_loop,)):
        return function
    return rewrite_functions(Module((function,)), _remove_guards).functions[0]


def _remove_guards(function: Function) -> Function:
    guards = [node for node in nodes_of(function) if node.op is cond and _is_guard(node)]
    if not guards:
        return function
    users = _find_users(function)
    removable = {guard for guard in guards if _is_read_by_loops(guard, users, function)}
    if not removable:
        return function
    rewritten: dict[Node, Node] = {}
    for node in nodes_of(function):
        operands = tuple([rewritten[operand] for operand in node.operands])
        if node in removable:
            rewritten[node] = _inline_guarded(node, operands)
        elif node.op is get and node.operands[0] in removable:
            rewritten[node] = member(operands[0], node.attribute("index"))
        else:
            rewritten[node] = rebuild(node, operands)
    changed = Function(function.name, function.parameters, tuple([rewritten[result] for result in function.results]))
    changed.source_locations.update(function.source_locations)
    return changed


def _inline_guarded(guard: Node, operands: tuple[Node, ...]) -> Node:
    results = inline(guard.attribute("then"), operands[1:])
    return results[0] if len(results) == 1 else make_tuple(*results)


def _is_guard(node: Node) -> bool:
    """Whether a `cond` computes cheap values if a loop has iterations, and zeros if it has none."""
    test = node.operands[0]
    if test.op is not greater or not is_constant(test.operands[1], 0):
        return False
    return all(map(is_zero_node, node.attribute("otherwise").results)) and _is_cheap(node.attribute("then"))


@lru_cache(maxsize=1024)
def _is_cheap(function: Function) -> bool:
    """Whether a function is elementwise and cannot fail."""
    return all(
        not node.may_fail and (node.op.elementwise or node.op in _VIEWS or node.op in (constant_op, parameter_op, iota))
        for node in nodes_of(function)
    )


def _find_users(function: Function) -> _Users:
    users: dict[Node, list[tuple[Node, int]]] = {}
    for node in nodes_of(function):
        for position, operand in enumerate(node.operands):
            users.setdefault(operand, []).append((node, position))
    return users


def _is_read_by_loops(guard: Node, users: _Users, function: Function) -> bool:
    """Whether only loops, and branches with the guard's condition, read the guarded value or a view of it."""
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
    """Whether a node reads an operand only if `test` holds: that the loop has iterations."""
    if user.op is for_loop:
        return position > user.attribute("carried") and user.operands[0] is test.operands[0]
    if user.op is not cond or user.operands[0] is not test or not position:
        return False
    otherwise: Function = user.attribute("otherwise")
    return otherwise.parameters[position - 1] not in nodes_of(otherwise)
