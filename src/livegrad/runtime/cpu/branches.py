"""Branches over tensors: each branch is a separate plan that runs directly on the memory of the outer plan.

`compiled_plan.py` creates a `BranchCall` for each such branch. A branch is compiled when it is first taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from livegrad.diagnostics import KernelCheckError
from livegrad.ir.node import Function, Node
from livegrad.ops.control import cond
from livegrad.passes.flatten_signature import assemble_value, flatten_value
from livegrad.runtime.cpu.loop_body import StepOwner, reader
from livegrad.schedule.plan import HostStep, ObjectSlot


class RunnablePlan(Protocol):
    """A compiled plan that maps argument leaves to result leaves."""

    def run(self, arguments: Sequence[Any], into: list[Any] | None = None) -> list[Any]: ...


class BranchCall:
    """A `cond` or `switch` of a plan."""

    def __init__(self, step: HostStep, owner: StepOwner, make_plan: Callable[[Function], RunnablePlan]) -> None:
        self._step, self._make_plan = step, make_plan
        self._read_operands, self._target = reader(step.operands, owner), reader([step.result], owner)
        self._node: Node = step.function.results[0]
        self._operand_slots = [operand.attribute("index") for operand in self._node.operands]
        self._branches = branches_of(self._node)
        self._plans: dict[int, RunnablePlan] = {}

    def run(self, values: dict[Any, Any]) -> None:
        arguments = self._read_operands(values)
        choice, *operands = [arguments[position] for position in self._operand_slots]
        number = self._branch_number(choice)
        branch = self._branches[number]
        plan = self._plans.get(number)
        if plan is None:
            plan = self._plans[number] = self._make_plan(branch)
        types = branch.parameter_types
        leaves = [leaf for value, type in zip(operands, types, strict=True) for leaf in flatten_value(value, type)]
        if not isinstance(self._step.result, ObjectSlot):
            plan.run(leaves, self._target(values))
            return
        supply = iter(plan.run(leaves))
        results = tuple(assemble_value(supply, type) for type in branch.result_types)
        values[self._step.result] = results[0] if len(results) == 1 else results

    def _branch_number(self, choice: Any) -> int:
        if self._node.op is cond:
            return 0 if choice else 1
        number = int(choice)
        if not 0 <= number < len(self._branches):
            message = f"switch on {number}, but there are {len(self._branches)} branches"
            raise KernelCheckError(message, where=self._node.origin)
        return number


def branches_of(node: Node) -> tuple[Function, ...]:
    """The branches of a node. For a `cond`, the branch for true comes first."""
    if node.op is cond:
        return node.attribute("then"), node.attribute("otherwise")
    return node.attribute("branches")
