"""The dependence test of a loop nest that writes a tensor while it reads it.

In: the indices of the writes and reads as scalar expressions over the loop variables, outermost first. A nest may write
in place if no iteration reads what an earlier one has written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Node
from livegrad.ir.types import i64
from livegrad.ir.walk import toposort
from livegrad.ops.elementwise import add, mul, sub

_MOST = 1 << 31


@dataclass(frozen=True)
class AffineIndex:
    """`start` plus the sum of `factors[v] * v` over nodes v: loop variables, and values that no iteration changes."""

    start: int
    factors: Mapping[Node, int]

    def plus(self, other: AffineIndex, times: int) -> AffineIndex:
        factors = dict(self.factors)
        for node, factor in other.factors.items():
            factors[node] = factors.get(node, 0) + times * factor
        return AffineIndex(self.start + times * other.start, {node: f for node, f in factors.items() if f})


def affine_index(index: Node, variables: Sequence[Node]) -> AffineIndex | None:
    """An index as an affine function of loop variables; None if it is not affine."""
    forms: dict[Node, AffineIndex | None] = {}
    depends: set[Node] = set(variables)
    for node in toposort([index], stop=depends.__contains__):
        if not depends.isdisjoint(node.operands):
            depends.add(node)
        forms[node] = _form(node, [forms[operand] for operand in node.operands], node in depends)
    return forms[index]


def _form(node: Node, operands: list[AffineIndex | None], varies: bool) -> AffineIndex | None:
    if node.type is i64:
        match operands:
            case [] if node.op is constant_op:
                return _bounded(AffineIndex(node.attribute("value"), {}))
            case [AffineIndex() as a, AffineIndex() as b] if node.op in (add, sub):
                return _bounded(a.plus(b, 1 if node.op is add else -1))
            case [AffineIndex() as a, AffineIndex() as b] if node.op is mul and not (a.factors and b.factors):
                times, scaled = (a.start, b) if not a.factors else (b.start, a)
                return _bounded(AffineIndex(0, {}).plus(scaled, times))
    # A loop-invariant value is an opaque term, equal only to itself.
    return None if varies and node.operands else AffineIndex(0, {node: 1})


def _bounded(form: AffineIndex) -> AffineIndex | None:
    """The form; None if it may overflow, because the index then differs from it."""
    return form if all(abs(number) < _MOST for number in (form.start, *form.factors.values())) else None


def may_read_behind(
    writes: Sequence[Node], reads: Sequence[Node], variables: Sequence[Node], extents: Sequence[int]
) -> bool:
    """Whether an iteration may read at `reads` what an earlier iteration has written at `writes`.

    Equal indices give, dimension by dimension, how far apart the two iterations are. They are the same iteration, or
    the write comes later, if all distances are known and the first that is not zero is positive.
    """
    distances: dict[Node, int] = {v: 0 for v, extent in zip(variables, extents, strict=True) if extent == 1}
    for write, read in zip(writes, reads, strict=True):
        written, read_form = (affine_index(index, variables) for index in (write, read))
        if written is None or read_form is None:
            continue
        gap = read_form.plus(written, -1)
        if any(node not in variables for node in gap.factors):
            continue
        steps = [form.factors.get(v, 0) for form in (written, read_form) for v in variables]
        divisor = gcd(*steps)
        if gap.start % divisor if divisor else gap.start:
            return False  # no two iterations meet
        moving = [v for v in variables if v in written.factors]
        if gap.factors or len(moving) != 1:
            continue
        step = written.factors[moving[0]]
        if gap.start % step:
            return False
        if distances.setdefault(moving[0], gap.start // step) != gap.start // step:
            return False
    for variable, extent in zip(variables, extents, strict=True):
        if variable not in distances:
            return True
        if abs(distances[variable]) >= extent:
            return False
        if distances[variable]:
            return distances[variable] < 0
    return False
