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

_Indices = frozenset[int]
_NONE: _Indices = frozenset()


@lru_cache(maxsize=4096)
def holds_tape(type: Type) -> bool:
    """Whether a type contains a tape."""
    return any(isinstance(inner, Tape) for inner in inner_types(type))


@lru_cache(maxsize=1024)
def tapes_in_results(function: Function) -> tuple[_Indices, ...]:
    """For each result, the indices of the parameters whose tapes it may contain."""
    reaching: dict[Node, _Indices] = {}
    for node in nodes_of(function):
        reaching[node] = _tapes_reaching(node, reaching) if holds_tape(node.type) else _NONE
    return tuple(reaching[result] for result in function.results)


def _tapes_reaching(node: Node, reaching: dict[Node, _Indices]) -> _Indices:
    if node.op is parameter_op:
        return frozenset({node.attribute("index")})
    if node.op in (tape_new, tape_unstack):
        return _NONE
    sources = node.operands
    if node.functions:
        # From operands to parameters: branches have none for the predicate, and a loop body has one more, the index.
        shift = {cond: -1, switch: -1, while_loop: 1}.get(node.op, 0)
        positions = _NONE.union(
            *(inner_positions for inner in node.functions for inner_positions in tapes_in_results(inner))
        )
        positions |= frozenset(range(1, 1 + node.attribute("carried"))) if node.op in (for_loop, while_loop) else _NONE
        sources = tuple(operand for position, operand in enumerate(node.operands) if position + shift in positions)
    return _NONE.union(*(reaching[operand] for operand in sources))
