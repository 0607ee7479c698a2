"""The dependence test of a loop nest that writes a tensor while it reads it.

In: the indices of the writes and reads as scalar expressions over the loop variables, outermost first. A nest may write
in place if no iteration reads what an earlier one has written.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from livegrad.ir.node import Node
from livegrad.ir.walk import toposort
from livegrad.ops.affine import AffineForm, affine_form

_MOST = 1 << 31


def index_form(index: Node, variables: Sequence[Node]) -> AffineForm[Node] | None:
    """An index over loop variables, and values that no iteration changes; None if it is no such form, or may
    overflow."""
    form = affine_form(index)
    others = [unknown for unknown in form.coefficients if unknown not in variables]
    if not set(variables).isdisjoint(toposort(others)):
        return None
    is_small = all(abs(number) < _MOST for number in (form.constant, *form.coefficients.values()))
    return form if is_small else None


def may_read_behind(
    writes: Sequence[Node], reads: Sequence[Node], variables: Sequence[Node], extents: Sequence[int]
) -> bool:
    """Whether an iteration may read at `reads` what an earlier iteration has written at `writes`.

    Equal indices give, dimension by dimension, how far apart the two iterations are. They are the same iteration, or
    the write comes later, if all distances are known and the first that is not zero is positive.
    """
    distances: dict[Node, int] = {v: 0 for v, extent in zip(variables, extents, strict=True) if extent == 1}
    for write, read in zip(writes, reads, strict=True):
        written, read_form = (index_form(index, variables) for index in (write, read))
        if written is None or read_form is None:
            continue
        gap = read_form.plus(written, -1)
        if any(node not in variables for node in gap.coefficients):
            continue
        steps = [form.coefficients.get(v, 0) for form in (written, read_form) for v in variables]
        divisor = gcd(*steps)
        if gap.constant % divisor if divisor else gap.constant:
            return False  # no two iterations meet
        moving = [v for v in variables if v in written.coefficients]
        if gap.coefficients or len(moving) != 1:
            continue
        step = written.coefficients[moving[0]]
        if gap.constant % step:
            return False
        if distances.setdefault(moving[0], gap.constant // step) != gap.constant // step:
            return False
    for variable, extent in zip(variables, extents, strict=True):
        if variable not in distances:
            return True
        if abs(distances[variable]) >= extent:
            return False
        if distances[variable]:
            return distances[variable] < 0
    return False
