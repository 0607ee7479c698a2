"""Finds the tape parameters of a function that continue in its results, extended or unchanged.

Reading from a tape does not count. Used by the batch rules of branches whose members take different branches.
"""

from __future__ import annotations

from functools import lru_cache

from livegrad.ir.leaves import parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tape, Type, inner_types
from livegrad.ir.walk import nodes_of
from livegrad.ops.control import cond, for_loop, switch, while_loop
from livegrad.ops.tape import tape_new, tape_unstack

_Places = frozenset[int]
_NONE: _Places = frozenset()


@lru_cache(maxsize=4096)
def holds_tape(type: Type) -> bool:
    """Whether a tape is in a type."""
    return any(isinstance(inner, Tape) for inner in inner_types(type))


@lru_cache(maxsize=1024)
def written_on(function: Function) -> tuple[_Places, ...]:
    """For each result, the indices of the parameters whose tapes it may contain."""
    carried: dict[Node, _Places] = {}
    for node in nodes_of(function):
        carried[node] = _carried_by(node, carried) if holds_tape(node.type) else _NONE
    return tuple(carried[result] for result in function.results)


def _carried_by(node: Node, carried: dict[Node, _Places]) -> _Places:
    if node.op is parameter_op:
        return frozenset({node.attribute("index")})
    if node.op in (tape_new, tape_unstack):
        return _NONE
    carrying = node.operands
    if node.functions:
        # Which parameter an operand is: a branch has none for what decides, and a loop's body one more, for the index.
        shift = {cond: -1, switch: -1, while_loop: 1}.get(node.op, 0)
        positions = _NONE.union(*(inner_positions for inner in node.functions for inner_positions in written_on(inner)))
        positions |= frozenset(range(1, 1 + node.attribute("carried"))) if node.op in (for_loop, while_loop) else _NONE
        carrying = tuple(operand for position, operand in enumerate(node.operands) if position + shift in positions)
    return _NONE.union(*(carried[operand] for operand in carrying))
