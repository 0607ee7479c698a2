"""Parts cut off at their bounds: a field may go on beyond them, a body does not.

Meshing, slicing and rendering look at the part that this gives.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from livegrad import ops
from livegrad.authoring.assembly.part import Part
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key
from livegrad.ops.aggregate import members_of


def clipped(part: Part) -> Part:
    """The part as a body that ends at its bounds; those of a level set end at their domain already.

    >>> import livegrad as lg
    >>> made = lg.add_expression(lg.Assembly(), "wall", "abs(pos.x) - 1", {"pos": "vector"})
    >>> wall = lg.part_of_function(made, "wall", ((-2, -2, -2), (2, 2, 2)))
    >>> wall([0, 3, 0]), clipped(wall)([0, 3, 0])
    (array(-1., dtype=float32), array(1., dtype=float32))
    """
    if part.ends_itself:
        return part
    corners = (part.low.astype(part.element.dtype), part.high.astype(part.element.dtype))
    tables = len(part.arguments) - len(part.parameter_names)
    names = (*(part.table_names or ("",) * tables), "low", "high")
    return replace(
        part,
        function=_clipped_function(part.function),
        arguments=(*part.arguments, *corners),
        table_names=names,
        ends_itself=True,
    )


@lru_cache(maxsize=256)
def _clipped_function(function: Function) -> Function:
    """The function with two more arguments, the corners of a box that its body is cut off at."""
    vector = function.parameter_types[0]
    position, low, high = (input_node(Key(name), vector) for name in ("position", "low", "high"))
    others = [input_node(Key("argument"), type) for type in function.parameter_types[1:]]
    value = ops.call(position, *others, function=function)
    for coordinate, least, most in zip(*map(members_of, (position, low, high)), strict=True):
        value = ops.max(value, ops.max(least - coordinate, coordinate - most))
    return make_function(f"{function.name}.clipped", [position, *others, low, high], [value])
