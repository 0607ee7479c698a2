"""Closure conversion of branches and loop bodies: captured values become additional inputs.

Values that a branch or body computes belong to it, including their checks and derivatives. Loop invariants are still
computed only once, before the loop, if the loop has at least one iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from livegrad.ir.function import captured_values, make_function
from livegrad.ir.node import Function, Node
from livegrad.ir.op import Op
from livegrad.ir.scopes import Scope
from livegrad.ir.types import Tensor
from livegrad.ir.walk import substitute, toposort
from livegrad.ops.failing import known_integer
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast, flip, permute, reshape, slice_
from livegrad.ops.rules import zero

# A cotangent of zero passes through them as zero, so that they do no harm before a loop; memory need not hold them.
_VIEWS = frozenset({broadcast, reshape, permute, slice_, flip, lookup})

Closed = tuple[Function, tuple[Node, ...]]  # a function, and the captured values that follow its inputs


def runs_at_least_once(iterations: Node) -> bool:
    """Whether a loop of so many iterations is known to have one: what it computes in each, it may compute before."""
    known = known_integer(iterations)
    return isinstance(known, int) and known > 0  # not a symbolic size, which may be zero


def close_branches(
    names: Sequence[str], inputs: tuple[Node, ...], results: Sequence[tuple[Node, ...]], scope: Scope
) -> tuple[list[Function], tuple[Node, ...]]:
    """Branches that gave these results for these inputs, as functions of the inputs and of what any of them captures.

    What they made as they were traced is computed inside: a branch that is not taken does nothing, and its derivative
    neither, whether it takes a value as an argument or from around it.
    """
    found = [node for nodes in results for node in captured_values(inputs, nodes, scope.can_be_passed)]
    captures = tuple(dict.fromkeys(found))
    return [make_function(name, inputs + captures, nodes) for name, nodes in zip(names, results, strict=True)], captures


def close_body(
    name: str, inputs: tuple[Node, ...], results: tuple[Node, ...], scope: Scope, runs: Callable[[], Node]
) -> Closed:
    """Closes the body of a loop, like `close_branches`; invariants are captured. It has an iteration if it `runs`."""
    outer = captured_values(inputs, results)
    invariants = _invariant_tensors(outer, scope)
    passed = _passed_beside(outer, invariants, scope)
    (body,), captures = close_branches([name], inputs + invariants + passed, [results], scope)
    return body, compute_if(runs, invariants, scope.can_be_passed) + passed + captures


def _passed_beside(outer: tuple[Node, ...], invariants: tuple[Node, ...], scope: Scope) -> tuple[Node, ...]:
    """Values from around a body that are computed from its invariants: as inputs, those would have them computed inside.

    So `factor = a[i, k]` before a loop is read there, although the loop computes the same place for `a[i, j]`.
    """
    if not invariants:
        return ()
    values = [node for node in outer if scope.can_be_passed(node)]
    above = set(invariants)
    for node in toposort(values):
        if not above.isdisjoint(node.operands):
            above.add(node)
    return tuple([node for node in values if node in above])


def _invariant_tensors(outer: tuple[Node, ...], scope: Scope) -> tuple[Node, ...]:
    """What a body computes of tensors around it. Invariant numbers stay inside: kernels compute them before loops."""
    invariants = [node for node in outer if not scope.can_be_passed(node)]
    from_tensors: set[Node] = set()
    for node in toposort(invariants, stop=scope.can_be_passed):
        own = isinstance(node.type, Tensor) and not scope.can_be_passed(node)
        if own or not from_tensors.isdisjoint(node.operands):
            from_tensors.add(node)
    return tuple(node for node in invariants if node in from_tensors)


def compute_if(
    runs: Callable[[], Node], values: Sequence[Node], can_be_passed: Callable[[Node], bool]
) -> tuple[Node, ...]:
    """The values; what they compute of those that can be passed is computed if a loop `runs`, else it is zero."""
    work = _work_of(values, can_be_passed)
    if not work:
        return tuple(values)
    captures = captured_values((), work, can_be_passed)
    then = make_function("invariants", captures, work)
    otherwise = Function(then.name, then.parameters, tuple([zero(node.type) for node in work]))
    value = Op.named("cond")(runs(), *captures, then=then, otherwise=otherwise)
    parts = [value] if len(work) == 1 else [Op.named("get")(value, index=index) for index in range(len(work))]
    return tuple(substitute(values, dict(zip(work, parts, strict=True))))


def _work_of(values: Sequence[Node], can_be_passed: Callable[[Node], bool]) -> tuple[Node, ...]:
    """What is to be computed for the values, without the views of it that they are."""
    found: dict[Node, None] = {}
    pending, seen = list(reversed(values)), set(values)
    while pending:
        node = pending.pop()
        if not node.operands or can_be_passed(node):
            continue
        if node.op not in _VIEWS or node.may_fail:
            found[node] = None
            continue
        pending += [operand for operand in node.operands if operand not in seen]
        seen.update(node.operands)
    return tuple(found)
