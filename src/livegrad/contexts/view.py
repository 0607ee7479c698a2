"""Draws context graphs as text, DOT and SVG: nodes, their needs, and the nullifications on edges."""

from __future__ import annotations

from collections.abc import Iterable

from livegrad.contexts.declare import InputDeclaration
from livegrad.contexts.link import Linked, Unit
from livegrad.ir.drawing import Box, draw_graph
from livegrad.ops.context import FeatureLevel
from livegrad.passes.nullify_context import Nullification

_ANSI = (32, 33, 34, 35, 36, 31, 92, 93, 94, 95, 96, 91)
_FILLS = ("#cfe8cf", "#f5e3b5", "#c9dcf2", "#e6cfe8", "#c8ecec", "#f4cccc", "#e2efc4", "#fbd9c0", "#d5d3f0", "#f0d0e0")


def _names(features: Iterable[FeatureLevel]) -> str:
    return ", ".join(map(str, features)) or "nothing"


def _nullifications(linked: Linked) -> dict[tuple[str | None, int], Nullification]:
    """The nullifications by edge: the caller's name, and the index of the input."""
    return {(each.caller, each.number): each for each in linked.needs.nullifications}


def _context_changes(edge: InputDeclaration) -> list[str]:
    """The features that a node injects into an input or modifies for it, as text."""
    changes = [f"inject {name}" for name in sorted(edge.injects)]
    return changes + [f"modify {name}" for name in sorted(edge.modifies)]


def _colour_indices(linked: Linked) -> dict[tuple[FeatureLevel, ...], int]:
    """A colour index for each need, in order of appearance. Nodes without needs have no colour."""
    needs = dict.fromkeys(unit.need for unit in linked.units if unit.need)
    return {need: index for index, need in enumerate(needs)}


def draw_text(linked: Linked, *, color: bool = False) -> str:
    """One node per line, callers first, with a `nullify` before each input that gets fewer features than its caller."""
    nullifications, colours = _nullifications(linked), _colour_indices(linked)

    def paint(unit: Unit, text: str) -> str:
        if not color or not unit.need:
            return text
        return f"\x1b[{_ANSI[colours[unit.need] % len(_ANSI)]}m{text}\x1b[0m"

    lines = [f"context: {_names(linked.root)}"]
    if (None, 0) in nullifications:
        lines.append(f"  nullify {_names(nullifications[None, 0].dropped)}")
    lines.append(f"  → {linked.output.name}")
    for unit in reversed(linked.units):
        lines.append(paint(unit, f"{unit.name}: needs {_names(unit.need)}"))
        for index, edge in enumerate(unit.declaration.inputs):
            steps = _context_changes(edge)
            nullification = nullifications.get((unit.name, index))
            if nullification is not None:
                steps.append(f"nullify {_names(nullification.dropped)}")
            lines.append(f"  {'scoped' if edge.scoped else 'plain '} → {' → '.join([*steps, edge.source])}")
    return "\n".join(lines)


def draw_dot(linked: Linked) -> str:
    """The graph in DOT, edges in the direction of calls."""
    nullifications, colours = _nullifications(linked), _colour_indices(linked)
    position = {unit: index for index, unit in enumerate(linked.units)}
    by_name = {unit.name: unit for unit in linked.units}
    lines = ["digraph context {", '  node [shape=box, style="rounded,filled", fillcolor=white];']
    lines.append(f"  root [shape=plaintext, style=solid, label={_quote(f'context: {_names(linked.root)}')}];")
    for unit in reversed(linked.units):
        fill = _FILLS[colours[unit.need] % len(_FILLS)] if unit.need else "white"
        label = _quote(f"{unit.name}\\nneeds {_names(unit.need)}")
        lines.append(f'  n{position[unit]} [label={label}, fillcolor="{fill}"];')
    lines += _dot_edge("root", "0", f"n{position[linked.output]}", nullifications.get((None, 0)), "solid", "")
    for unit in reversed(linked.units):
        for input_index, edge in enumerate(unit.declaration.inputs):
            start, end = f"n{position[unit]}", f"n{position[by_name[edge.source]]}"
            style = "dashed" if edge.scoped else "solid"
            nullification = nullifications.get((unit.name, input_index))
            lines += _dot_edge(start, str(input_index), end, nullification, style, ", ".join(_context_changes(edge)))
    return "\n".join([*lines, "}"])


def draw_svg(linked: Linked) -> str:
    """The graph as a picture, inputs at the top: each node with its needs; nodes without needs are blue."""
    boxes = [
        Box(unit.name, (unit.name, f"needs {_names(unit.need)}"), "plain" if unit.need else "leaf")
        for unit in linked.units
    ]
    edges = [(edge.source, unit.name) for unit in linked.units for edge in unit.declaration.inputs]
    return draw_graph(boxes, edges, f"{len(boxes)} nodes")


def _dot_edge(
    start: str, input_index: str, end: str, nullification: Nullification | None, style: str, label: str
) -> Iterable[str]:
    label_attribute = f", label={_quote(label)}" if label else ""
    if nullification is None:
        return [f"  {start} -> {end} [style={style}{label_attribute}];"]
    middle = f"nullify_{start}_{input_index}"
    text = _quote(f"nullify\\n{_names(nullification.dropped)}")
    return [
        f'  {middle} [shape=octagon, style=filled, fillcolor="#eeeeee", fontsize=10, label={text}];',
        f"  {start} -> {middle} [style={style}{label_attribute}];",
        f"  {middle} -> {end} [style={style}];",
    ]


def _quote(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'
