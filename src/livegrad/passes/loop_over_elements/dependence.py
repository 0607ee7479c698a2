"""The dependence test of loop nests: may a nest overwrite a tensor in place while it reads it?

In: the indices of writes and reads as scalar expressions over the loop variables, outermost first. A nest may write in
place if no iteration reads an element that an earlier iteration has overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from livegrad.ir.node import Node
from livegrad.ir.walk import toposort
from livegrad.ops.affine import AffineForm, affine_form

_MAX_COEFFICIENT = 1 << 31


def index_form(index: Node, variables: Sequence[Node]) -> AffineForm[Node] | None:
    """An index as an affine form over loop variables and loop-invariant values.

    None if it is not affine, or if its coefficients are so large that it may overflow.
    """
    form = affine_form(index)
    invariants = [symbol for symbol in form.coefficients if symbol not in variables]
    if not set(variables).isdisjoint(toposort(invariants)):
        return None
    is_small = all(abs(value) < _MAX_COEFFICIENT for value in (form.constant, *form.coefficients.values()))
    return form if is_small else None


def may_read_overwritten(
    writes: Sequence[Node], reads: Sequence[Node], variables: Sequence[Node], extents: Sequence[int]
) -> bool:
    """Whether an iteration may read at `reads` an element that an earlier iteration has written at `writes`.

    Equating the indices in each dimension gives the distance vector between the two iterations. If all distances are
    constant and the first nonzero one is positive, the write comes later; if all are zero, it is the same iteration.
    """
    distances: dict[Node, int] = {v: 0 for v, extent in zip(variables, extents, strict=True) if extent == 1}
    for write, read in zip(writes, reads, strict=True):
        write_form, read_form = (index_form(index, variables) for index in (write, read))
        if write_form is None or read_form is None:
            continue
        gap = read_form.plus(write_form, -1)
        if any(node not in variables for node in gap.coefficients):
            continue
        steps = [form.coefficients.get(v, 0) for form in (write_form, read_form) for v in variables]
        divisor = gcd(*steps)
        if gap.constant % divisor if divisor else gap.constant:
            return False  # GCD test: the indices are never equal
        write_variables = [v for v in variables if v in write_form.coefficients]
        if gap.coefficients or len(write_variables) != 1:
            continue
        step = write_form.coefficients[write_variables[0]]
        if gap.constant % step:
            return False
        if distances.setdefault(write_variables[0], gap.constant // step) != gap.constant // step:
            return False
    for variable, extent in zip(variables, extents, strict=True):
        if variable not in distances:
            return True
        if abs(distances[variable]) >= extent:
            return False
        if distances[variable]:
            return distances[variable] < 0
    return False
