"""The passes `run_members_in_turn` and `run_members_together`: choose a form for each `members_call`.

`vmap` makes these calls (`passes.batch.member_loop`). On the CPU, one kernel loops over the members. Devices run one
program over the whole batch: a loop would leave most of their threads idle.
"""

from __future__ import annotations

from collections.abc import Callable

from livegrad.ir.function import map_results
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.walk import ops_in
from livegrad.ops.members import call_in_turn, call_together, members_call
from livegrad.passes.functions import rewrite_functions


@propagates_lines
def run_members_in_turn(module: Module) -> Module:
    """Replaces each `members_call` by its loop over members."""
    return _resolve(module, call_in_turn)


@propagates_lines
def run_members_together(module: Module) -> Module:
    """Replaces each `members_call` by one program over all members."""
    return _resolve(module, call_together)


def _resolve(module: Module, call: Callable[[Node], Node]) -> Module:
    def rewrite(function: Function) -> Function:
        if members_call not in ops_in(function):
            return function
        return map_results(function, lambda node: call(node) if node.op is members_call else None)

    return rewrite_functions(module, rewrite)
