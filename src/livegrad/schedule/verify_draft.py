"""What the plan passes promise: the verifiers of `PLAN_PASSES`, each of which examines a draft after a pass."""

from __future__ import annotations

from livegrad.diagnostics import VerifyError
from livegrad.ir.node import Node
from livegrad.ir.verify import verify_function
from livegrad.ops.control import while_loop
from livegrad.passes.flatten_signature import leaf_types
from livegrad.schedule.draft import Draft
from livegrad.schedule.fuse import Group
from livegrad.schedule.plan import HostStep
from livegrad.schedule.verify import verify_order, verify_sharing, verify_views


def verify_groups(draft: Draft) -> None:
    """Raises `VerifyError` unless each stored value is computed once, after its dependencies."""
    done: set[Group] = set()
    computed: set[Node] = set()
    for group in draft.groups:
        done.add(group)
        if not done.issuperset(group.needs):
            raise VerifyError(
                f"a group of `{draft.function.name}` is scheduled before a group that it depends on", found=str(draft)
            )
        computed.update(group.roots)
    if computed != draft.roots.keys():
        raise VerifyError(f"not every stored value of `{draft.function.name}` is in a group", found=str(draft))


def verify_steps(draft: Draft) -> None:
    """Raises `VerifyError` if a step reads a value before it is written, or accesses memory outside a buffer."""
    plan = draft.plan()
    verify_order(plan)
    verify_views(plan)


def verify_row_loops(draft: Draft) -> None:
    """Raises `VerifyError` if the signature of a body does not match its loop."""
    loops = [(s, s.loop) for s in draft.steps if isinstance(s, HostStep) and s.loop is not None]
    for step, loop in loops:
        verify_function(loop.body)
        parameters = 1 + len(loop.state) + len(loop.invariants) + sum(len(row.reads) for row in loop.rows)
        written = sum(len(leaf_types(row.element)) for row in loop.rows if row.writes)
        results = len(loop.state) + written + (step.op is while_loop)
        counts = len(loop.body.parameters), len(loop.body.results)
        if counts != (parameters, results):
            raise VerifyError(
                f"the body of a `{step.op.name}` of `{draft.function.name}` does not fit its loop",
                expected=f"{parameters} parameters and {results} results",
                found=f"{counts[0]} and {counts[1]}",
            )


def verify_chains(draft: Draft) -> None:
    """Raises `VerifyError` if reordering the steps for chains broke a dependency."""
    if draft.chains:
        verify_order(draft.plan())


def verify_memory(draft: Draft) -> None:
    """Raises `VerifyError` if two live buffers share bytes."""
    verify_sharing(draft.plan())
