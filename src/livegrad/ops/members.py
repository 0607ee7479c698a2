"""Batched calls in two equivalent forms, of which each target chooses one.

Together: one program over whole tensors, whose loops run until the last member is done. In turn: each member runs its
own loops and writes its own arrays by index. `vmap` creates them, and gradients of loops over points that share tensors
(`passes.differentiate.by_point`), whose members are the points.
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
    """Expands to one program over the whole batch, which also defines the derivatives."""
    return Op.named("call")(*node.operands, function=node.attribute("function"))


def call_in_turn(node: Node) -> Node:
    """Expands to a loop over the members."""
    return Op.named("call")(*node.operands, function=node.attribute("in_turn"))


def _evaluate(*values: Any, function: Any, in_turn: Any) -> Any:
    return function(*values)


members_call = Op("members_call", type_of=_members_call_type, evaluate=_evaluate, expand=call_together)
