"""Identity ops that constrain scheduling and storage: `after` orders evaluation, `kept` stores a residual.

`passes.differentiate` creates `after` where reverse mode recomputes values; frontends create it to print in program
order, and `kept` to prevent recomputation.
"""

from __future__ import annotations

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Array, Struct, Tuple, Type, components
from livegrad.ops.aggregate import make, member


def _after_type(value: Type, *others: Type) -> Type:
    if not others:
        raise TypeRuleError("`after` needs at least one other value")
    return value


# The value, after the others have been computed. Everything computed from it therefore runs later, and is never merged
# with the same computation from the value itself.
after = Op(
    "after",
    type_of=_after_type,
    evaluate=lambda value, *others: value,
    jvp=lambda y, dx, *_: None if dx is None else after(dx, *y.operands[1:]),
    transpose=lambda y, ct, *linear: (after(ct, *y.operands[1:]), *[None] * (len(y.operands) - 1)),
    linear_in=(0,),
    expand=lambda y: y.operands[0],
    cost=0.0,
)


def each_after(value: Node, *others: Node) -> Node:
    """`after` for each scalar, vector, matrix and tensor of a value, so that none of them is hidden in an aggregate.

    >>> from livegrad.ir.leaves import parameter
    >>> from livegrad.ir.types import f32
    >>> each_after(parameter(0, f32), parameter(1, f32))
    <after: f32>
    """
    if not others:
        return value
    if not isinstance(value.type, Struct | Tuple | Array):
        return after(value, *others)
    parts = [each_after(member(value, index), *others) for index in range(len(components(value.type)))]
    return make(*parts, type=value.type)


# The value, which reverse mode stores even where it would otherwise recompute it: in a map, or from a loop index.
kept = Op(
    "kept",
    type_of=lambda type: type,
    evaluate=lambda value: value,
    jvp=lambda y, dx: dx,
    transpose=lambda y, ct, linear: (ct,),
    linear_in=(0,),
    cost=0.0,
)
