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
from livegrad.ops.failing import constant_integer
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast, flip, permute, reshape, slice_
from livegrad.ops.rules import zero

# A zero cotangent passes through these ops as zero, so they are harmless before a loop; they need no memory.
_VIEWS = frozenset({broadcast, reshape, permute, slice_, flip, lookup})

Closed = tuple[Function, tuple[Node, ...]]  # a function, and the captured values that follow its inputs


def runs_at_least_once(iterations: Node) -> bool:
    """Whether a loop provably has an iteration, so that its invariants may be computed before it."""
    count = constant_integer(iterations)
    return isinstance(count, int) and count > 0  # not a symbolic size, which may be zero


def close_branches(
    names: Sequence[str], inputs: tuple[Node, ...], results: Sequence[tuple[Node, ...]], scope: Scope
) -> tuple[list[Function], tuple[Node, ...]]:
    """Turns traced branches into functions of their inputs and of everything that any of them captures.

    Values that were traced in a branch are computed inside it. A branch that is not taken therefore computes nothing,
    and neither does its derivative, whether a value is an argument or a capture.
    """
    captured = [node for nodes in results for node in captured_values(inputs, nodes, scope.can_be_passed)]
    captures = tuple(dict.fromkeys(captured))
    return [make_function(name, inputs + captures, nodes) for name, nodes in zip(names, results, strict=True)], captures


def close_body(
    name: str, inputs: tuple[Node, ...], results: tuple[Node, ...], scope: Scope, runs: Callable[[], Node]
) -> Closed:
    """Closes the body of a loop like `close_branches`, and captures invariants. The loop iterates if `runs` holds."""
    outer = captured_values(inputs, results)
    invariants = _invariant_tensors(outer, scope)
    passed = _passed_beside(outer, invariants, scope)
    (body,), captures = close_branches([name], inputs + invariants + passed, [results], scope)
    return body, compute_if(runs, invariants, scope.can_be_passed) + passed + captures


def _passed_beside(outer: tuple[Node, ...], invariants: tuple[Node, ...], scope: Scope) -> tuple[Node, ...]:
    """Values from around a body that depend on its invariants. With only those as inputs, it would recompute them.

    So `factor = a[i, k]` before a loop is read there, although the loop computes the same index for `a[i, j]`.
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
    """The values that a body computes from captured tensors. Invariant scalars stay inside; kernels hoist them."""
    invariants = [node for node in outer if not scope.can_be_passed(node)]
    from_tensors: set[Node] = set()
    for node in toposort(invariants, stop=scope.can_be_passed):
        is_own_tensor = isinstance(node.type, Tensor) and not scope.can_be_passed(node)
        if is_own_tensor or not from_tensors.isdisjoint(node.operands):
            from_tensors.add(node)
    return tuple(node for node in invariants if node in from_tensors)


def compute_if(
    runs: Callable[[], Node], values: Sequence[Node], can_be_passed: Callable[[Node], bool]
) -> tuple[Node, ...]:
    """The values, computed from values that can be passed if the loop `runs`, and zero otherwise."""
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
    """The nodes below views that the values are computed from."""
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
