"""What a picked place is: the value of a pixel and the block that made it; the surface at a point, and what made it.

In: a place that a page has clicked. Out: JSON. Called by `engine_thread.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from livegrad import ir
from livegrad.diagnostics import CompileError
from livegrad.implicit.bodies.part import Part
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant_op, parameter_op
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.walk import toposort
from livegrad.live.graph.block import Block, Pin
from livegrad.live.graph.composite import Composite
from livegrad.passes.inline_calls import inline_calls
from livegrad.tools.studio.edits import MessageError
from livegrad.tools.studio.values import Json, plain

_CHOICES = ("min", "max", "minimum", "maximum")
_MAX_NODES = 20_000  # of a part whose shapes are told apart, which evaluates each of them once
_MAX_DEPTH = 4  # of the text of a formula
_SIGNS: Mapping[str, str] = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def maker_of(pin: Pin) -> Block:
    """The block that computes an output: inside of composites, the innermost one."""
    block = pin.block
    while isinstance(block, Composite):
        pin = block.inner_outputs[pin.name]
        block = pin.block
    return block


def pick_element(value: Any, at: Any) -> Any:
    """An element of an array, or the channels of a pixel, as JSON.

    >>> pick_element(np.eye(2), [1, 1]), pick_element(np.zeros((2, 2, 3)), [0, 1])
    (1.0, [0.0, 0.0, 0.0])
    """
    array = np.asarray(value)
    indices = at if isinstance(at, list) else []
    is_index = all(isinstance(index, int) and not isinstance(index, bool) for index in indices)
    if not is_index or len(indices) not in (array.ndim, array.ndim - 1):
        raise MessageError("not an element of this value", found=repr(at)[:60])
    if any(not 0 <= index < size for index, size in zip(indices, array.shape, strict=False)):
        raise MessageError("the value has no such element", expected=str(array.shape), found=repr(at)[:60])
    return plain(array[tuple(indices)])


def pick_point(part: Part, point: Any) -> Json:
    """A point of a part: its distance, the normal, what made it, and how far parameters move the surface there.

    >>> import livegrad as lg
    >>> ball = lg.shapes.sphere(lg.shapes.Parameter("radius", 1.0))
    >>> both = (ball | lg.shapes.box((9.0, 0.5, 0.5))).part(((-5, -1, -1), (5, 1, 1)))
    >>> found = pick_point(both, [0.0, 1.0, 0.0])
    >>> found["normal"], found["maker"]["text"], found["moves"]
    ([0.0, 1.0, 0.0], 'length(p) - radius', {'radius': 1.0})
    """
    match point:
        case [int() | float(), int() | float(), int() | float()] if all(map(math.isfinite, point)):
            place = np.asarray([point], part.element.dtype)
        case _:
            raise MessageError("not a point", expected="three numbers", found=repr(point)[:60])
    gradient = part.gradient(place)[0].astype(np.float64)
    length = float(np.linalg.norm(gradient))
    slopes = part.parameter_gradient(place)
    moves = {name: -float(slope) / length for name, slope in slopes.items() if np.ndim(slope) == 0 and length > 0.0}
    return {
        "distance": plain(part(place)[0]),
        "normal": plain(gradient / length if length > 0.0 else gradient),
        "gradient": plain(length),
        "maker": _find_maker(part, place[0]),
        "moves": {name: plain(move) for name, move in moves.items()},
    }


# --- which shape made a point -----------------------------------------------------------------------------------------


def _find_maker(part: Part, point: Any) -> Json | None:
    """The operand that minima and maxima take at a point, such as one shape of a union: its formula and its line."""
    try:
        function = inline_calls(Module((part.function,))).functions[0]
    except CompileError:
        return None  # too large to inline
    nodes = toposort(function.results)
    if len(nodes) > _MAX_NODES:
        return None
    chosen = _chosen_operands(function, nodes, (point, *part.arguments))
    node = function.results[0]
    while (following := chosen.get(node)) is not None:
        node = following
    names = ("p", *part.parameter_names, *part.table_names)
    lines = function.origins_of(node)
    return {"text": _formula(node, names), "where": str(lines[0]) if lines else None}


def _chosen_operands(function: Function, nodes: Sequence[Node], arguments: Sequence[Any]) -> dict[Node, Node]:
    """For each minimum and maximum, the operand that has its value; for each sign and offset, what it is applied to."""
    choices = [node for node in nodes if node.op.name in _CHOICES and node.type == function.results[0].type]
    operands = list(dict.fromkeys(operand for node in choices for operand in node.operands))
    evaluated = make_function("operands", function.parameters, operands) if operands else None
    found = () if evaluated is None else ir.evaluate(evaluated, *arguments)
    values = dict(zip(operands, found if isinstance(found, tuple) else (found,), strict=True))
    chosen: dict[Node, Node] = {}
    for node in choices:
        best = min if node.op.name in ("min", "minimum") else max
        chosen[node] = best(node.operands, key=lambda operand: float(values[operand]))
    for node in nodes:
        below = _below(node)
        is_sign = node.op.name == "neg"  # what a difference takes away
        if below is not None and (is_sign or any(inner in chosen for inner in toposort([below]))):
            chosen[node] = below
    return chosen


def _below(node: Node) -> Node | None:
    """What a sign change or a constant offset or factor is applied to."""
    if node.op.name == "neg":
        return node.operands[0]
    if node.op.name in _SIGNS:
        varying = [operand for operand in node.operands if operand.op is not constant_op]
        return varying[0] if len(varying) == 1 else None
    return None


def _formula(node: Node, names: tuple[str, ...], depth: int = _MAX_DEPTH) -> str:
    """A node as a formula, without what is deep inside."""
    if node.op is parameter_op:
        index: int = node.attribute("index")
        return names[index] if index < len(names) else "…"
    if node.op is constant_op:
        return f"{node.attribute('value'):.4g}"
    if depth == 0:
        return "…"
    texts = [_formula(operand, names, depth - 1) for operand in node.operands]
    if node.op.name in _SIGNS and len(texts) == 2:
        return f"{texts[0]} {_SIGNS[node.op.name]} {texts[1]}"
    return f"{node.op.name}({', '.join(texts)})"
