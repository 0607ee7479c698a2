"""Calls of a function for every member of a batch, in two equivalent forms; each target chooses one.

`vmap` makes them. Together: one program over whole tensors, whose loops run until the last member is done. In turn: a
loop over members, which each run their own loops and write their own arrays by index.
"""

from __future__ import annotations

from typing import Any

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.node import Function, Node
from livegrad.ir.op import Op
from livegrad.ir.types import Type


def _members_call_type(*types: Type, function: Function, in_turn: Function) -> Type:
    for callee in (function, in_turn):
        if callee.parameter_types != types or callee.result_types != function.result_types:
            raise TypeRuleError(
                f"`{callee.name}` does not fit the batch",
                expected=", ".join(map(str, types)),
                found=", ".join(map(str, callee.parameter_types)),
            )
    return function.result_type


def call_together(node: Node) -> Node:
    """The call as one program over the whole batch; derivatives are those of this form."""
    return Op.named("call")(*node.operands, function=node.attribute("function"))


def call_in_turn(node: Node) -> Node:
    """The call as a loop over the members."""
    return Op.named("call")(*node.operands, function=node.attribute("in_turn"))


def _evaluate(*values: Any, function: Any, in_turn: Any) -> Any:
    return function(*values)


members_call = Op("members_call", type_of=_members_call_type, evaluate=_evaluate, expand=call_together)
