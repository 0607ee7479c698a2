"""Closure conversion of branches and loop bodies: captured values become additional inputs.

Values traced in a branch or body are computed inside it, and so are their checks and derivatives. Loop invariants are
nevertheless computed once before the loop, provided that the loop has an iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from livegrad.ir.function import captured_values, make_function
from livegrad.ir.node import Function, Node
from livegrad.ir.op import Op
from livegrad.ir.scopes import Scope
from livegrad.ir.types import Tensor
from livegrad.ir.walk import substitute, toposort
from livegrad.ops.failing import constant_integer
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast, flip, permute, reshape, slice_
from livegrad.ops.rules import zero

# These ops map a zero cotangent to zero and need no memory, so they may be computed before a loop that does not run.
_VIEWS = frozenset({broadcast, reshape, permute, slice_, flip, lookup})

Closed = tuple[Function, tuple[Node, ...]]  # a function, and the captured values for its additional parameters


def runs_at_least_once(iterations: Node) -> bool:
    """Whether a loop provably has an iteration, so that its invariants may be computed before it."""
    count = constant_integer(iterations)
    return isinstance(count, int) and count > 0  # a symbolic size may be zero


def close_branches(
    names: Sequence[str], inputs: tuple[Node, ...], results: Sequence[tuple[Node, ...]], scope: Scope
) -> tuple[list[Function], tuple[Node, ...]]:
    """Turns traced branches into functions with the same parameters: the inputs, then the captures of all branches.

    Values traced in a branch are computed inside it, so a branch that is not taken computes nothing, and neither does
    its derivative.
    """
    captured = [node for nodes in results for node in captured_values(inputs, nodes, scope.can_be_passed)]
    captures = tuple(dict.fromkeys(captured))
    return [make_function(name, inputs + captures, nodes) for name, nodes in zip(names, results, strict=True)], captures


def close_body(
    name: str, inputs: tuple[Node, ...], results: tuple[Node, ...], scope: Scope, runs: Callable[[], Node]
) -> Closed:
    """Closes the body of a loop and hoists its invariants. `runs` builds the condition that the loop iterates."""
    outer = captured_values(inputs, results)
    invariants = _invariant_tensors(outer, scope)
    dependents = _dependents_of_invariants(outer, invariants, scope)
    (body,), captures = close_branches([name], inputs + invariants + dependents, [results], scope)
    return body, compute_if(runs, invariants, scope.can_be_passed) + dependents + captures


def _dependents_of_invariants(outer: tuple[Node, ...], invariants: tuple[Node, ...], scope: Scope) -> tuple[Node, ...]:
    """Outer values that depend on invariants of the body. Without a parameter for each, the body would recompute them.

    For example, `factor = a[i, k]` is read before the loop, even if the loop computes the same index for `a[i, j]`.
    """
    if not invariants:
        return ()
    values = [node for node in outer if scope.can_be_passed(node)]
    dependents = set(invariants)
    for node in toposort(values):
        if not dependents.isdisjoint(node.operands):
            dependents.add(node)
    return tuple([node for node in values if node in dependents])


def _invariant_tensors(outer: tuple[Node, ...], scope: Scope) -> tuple[Node, ...]:
    """The invariants that depend on tensors. Invariant scalars stay in the body, where kernels hoist them."""
    invariants = [node for node in outer if not scope.can_be_passed(node)]
    from_tensors: set[Node] = set()
    for node in toposort(invariants, stop=scope.can_be_passed):
        is_inner_tensor = isinstance(node.type, Tensor) and not scope.can_be_passed(node)
        if is_inner_tensor or not from_tensors.isdisjoint(node.operands):
            from_tensors.add(node)
    return tuple(node for node in invariants if node in from_tensors)


def compute_if(
    runs: Callable[[], Node], values: Sequence[Node], can_be_passed: Callable[[Node], bool]
) -> tuple[Node, ...]:
    """Computes values if the loop `runs`, and zeros otherwise, from values that can be passed to a branch."""
    work = _nodes_below_views(values, can_be_passed)
    if not work:
        return tuple(values)
    captures = captured_values((), work, can_be_passed)
    then = make_function("invariants", captures, work)
    otherwise = Function(then.name, then.parameters, tuple([zero(node.type) for node in work]))
    value = Op.named("cond")(runs(), *captures, then=then, otherwise=otherwise)
    parts = [value] if len(work) == 1 else [Op.named("get")(value, index=index) for index in range(len(work))]
    return tuple(substitute(values, dict(zip(work, parts, strict=True))))


def _nodes_below_views(values: Sequence[Node], can_be_passed: Callable[[Node], bool]) -> tuple[Node, ...]:
    """The nodes that values are views of."""
    work: dict[Node, None] = {}
    pending, visited = list(reversed(values)), set(values)
    while pending:
        node = pending.pop()
        if not node.operands or can_be_passed(node):
            continue
        if node.op not in _VIEWS or node.may_fail:
            work[node] = None
            continue
        pending += [operand for operand in node.operands if operand not in visited]
        visited.update(node.operands)
    return tuple(work)
