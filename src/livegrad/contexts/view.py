"""Context graphs as text, DOT and SVG: nodes, their needs, and the nullifications between them."""

from __future__ import annotations

from collections.abc import Iterable

from livegrad.contexts.link import Linked, Unit
from livegrad.ir.drawing import Box, draw_graph
from livegrad.ops.context import FeatureLevel
from livegrad.passes.nullify_context import Nullification

_ANSI = (32, 33, 34, 35, 36, 31, 92, 93, 94, 95, 96, 91)
_FILLS = ("#cfe8cf", "#f5e3b5", "#c9dcf2", "#e6cfe8", "#c8ecec", "#f4cccc", "#e2efc4", "#fbd9c0", "#d5d3f0", "#f0d0e0")


def _names(features: Iterable[FeatureLevel]) -> str:
    return ", ".join(map(str, features)) or "nothing"


def _dropped(linked: Linked) -> dict[tuple[str | None, int], Nullification]:
    return {(each.caller, each.number): each for each in linked.needs.nullifications}


def _colour_numbers(linked: Linked) -> dict[tuple[FeatureLevel, ...], int]:
    """A number for each need, in order of appearance; needing nothing is no colour."""
    needs = dict.fromkeys(unit.need for unit in linked.units if unit.need)
    return {need: number for number, need in enumerate(needs)}


def draw_text(linked: Linked, *, color: bool = False) -> str:
    """One node a line, callers first, with a `nullify` line before each input that gets less than its caller holds."""
    dropped, colours = _dropped(linked), _colour_numbers(linked)

    def painted(unit: Unit, text: str) -> str:
        if not color or not unit.need:
            return text
        return f"\x1b[{_ANSI[colours[unit.need] % len(_ANSI)]}m{text}\x1b[0m"

    lines = [f"context: {_names(linked.root)}"]
    if (None, 0) in dropped:
        lines.append(f"  nullify {_names(dropped[None, 0].dropped)}")
    lines.append(f"  → {linked.output.name}")
    for unit in reversed(linked.units):
        lines.append(painted(unit, f"{unit.name}: needs {_names(unit.need)}"))
        for number, edge in enumerate(unit.declaration.inputs):
            puts = [f"inject {name}" for name in sorted(edge.injects)]
            puts += [f"modify {name}" for name in sorted(edge.modifies)]
            found = dropped.get((unit.name, number))
            if found is not None:
                puts.append(f"nullify {_names(found.dropped)}")
            way = " → ".join([*puts, edge.source])
            lines.append(f"  {'scoped' if edge.scoped else 'plain '} → {way}")
    return "\n".join(lines)


def draw_dot(linked: Linked) -> str:
    """The graph in DOT, edges in the direction of calls."""
    dropped, colours = _dropped(linked), _colour_numbers(linked)
    position = {unit: index for index, unit in enumerate(linked.units)}
    by_name = {unit.name: unit for unit in linked.units}
    lines = ["digraph context {", '  node [shape=box, style="rounded,filled", fillcolor=white];']
    lines.append(f"  root [shape=plaintext, style=solid, label={_quoted(f'context: {_names(linked.root)}')}];")
    for unit in reversed(linked.units):
        fill = _FILLS[colours[unit.need] % len(_FILLS)] if unit.need else "white"
        label = _quoted(f"{unit.name}\\nneeds {_names(unit.need)}")
        lines.append(f'  n{position[unit]} [label={label}, fillcolor="{fill}"];')
    lines += _dot_edge("root", "0", f"n{position[linked.output]}", dropped.get((None, 0)), "solid", "")
    for unit in reversed(linked.units):
        for number, edge in enumerate(unit.declaration.inputs):
            puts = [f"inject {name}" for name in sorted(edge.injects)]
            puts += [f"modify {name}" for name in sorted(edge.modifies)]
            start, end = f"n{position[unit]}", f"n{position[by_name[edge.source]]}"
            style = "dashed" if edge.scoped else "solid"
            found = dropped.get((unit.name, number))
            lines += _dot_edge(start, str(number), end, found, style, ", ".join(puts))
    return "\n".join([*lines, "}"])


def draw_svg(linked: Linked) -> str:
    """The graph as a picture, from the inputs down: each node with what it needs, those that need nothing blue."""
    boxes = [
        Box(unit.name, (unit.name, f"needs {_names(unit.need)}"), "plain" if unit.need else "leaf")
        for unit in linked.units
    ]
    edges = [(edge.source, unit.name) for unit in linked.units for edge in unit.declaration.inputs]
    return draw_graph(boxes, edges, f"{len(boxes)} nodes")


def _dot_edge(start: str, number: str, end: str, found: Nullification | None, style: str, label: str) -> Iterable[str]:
    told = f", label={_quoted(label)}" if label else ""
    if found is None:
        return [f"  {start} -> {end} [style={style}{told}];"]
    middle = f"nullify_{start}_{number}"
    text = _quoted(f"nullify\\n{_names(found.dropped)}")
    return [
        f'  {middle} [shape=octagon, style=filled, fillcolor="#eeeeee", fontsize=10, label={text}];',
        f"  {start} -> {middle} [style={style}{told}];",
        f"  {middle} -> {end} [style={style}];",
    ]


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'
