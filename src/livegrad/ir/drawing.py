"""Draws graphs as SVG with a layered (Sugiyama) layout and no dependencies.

In: boxes with lines of text, and edges between them. Out: SVG text. Draws tensors, functions, node graphs and live
graphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from livegrad.ir.node import Function, Node

LETTER, LINE, PADDING = 7.3, 15.0, 9.0
BETWEEN_BOXES, BETWEEN_LAYERS = 22.0, 34.0
SWEEPS = 6
COLORS = {"plain": "#f4f1ec", "leaf": "#dfe9f5", "known": "#e2f0de", "result": "#f8dfc8", "problem": "#f6d0d0"}


@dataclass(frozen=True)
class Box:
    """A node of a drawing: lines of text, the first of them bold; `kind`, a key of `COLORS`, selects the colour."""

    key: str
    lines: tuple[str, ...]
    kind: str = "plain"

    @property
    def width(self) -> float:
        return max(map(len, self.lines), default=1) * LETTER + 2 * PADDING

    @property
    def height(self) -> float:
        return len(self.lines) * LINE + 2 * PADDING - 4


def draw_graph(boxes: Sequence[Box], edges: Iterable[tuple[str, str]], title: str = "graph") -> str:
    """Draws a graph from top to bottom. Back edges are dashed; duplicate edges are drawn once.

    >>> svg = draw_graph([Box("a", ("x",), "leaf"), Box("b", ("sin", "f32"))], [("a", "b")])
    >>> svg.count("<rect"), svg.count('class="edge"'), svg.startswith("<svg")
    (2, 1, True)
    """
    boxes_by_key = {box.key: box for box in boxes}
    drawn = list(dict.fromkeys(edge for edge in edges if edge[0] in boxes_by_key and edge[1] in boxes_by_key))
    backward = _find_back_edges(boxes_by_key, drawn)
    forward = [edge for edge in drawn if edge not in backward]
    layers, routes = _route_edges(_assign_layers(boxes_by_key, forward), forward)
    neighbours = _find_neighbours(routes)
    _reduce_crossings(layers, neighbours)
    centres = _place_boxes(layers, neighbours, boxes_by_key)
    return _render_svg(boxes_by_key, layers, centres, routes, sorted(backward), title)


# --- layers -----------------------------------------------------------------------------------------------------------


def draw_function(function: Function) -> str:
    """Draws the nodes of a function. Parameters are blue, results orange."""
    keys: dict[Node, str] = {}
    stack = list(reversed(function.results))
    while stack:
        node = stack.pop()
        if node not in keys:
            keys[node] = f"n{len(keys)}"
            stack.extend(reversed(node.operands))
    kinds = dict.fromkeys(function.results, "result") | dict.fromkeys(function.parameters, "leaf")
    boxes = [Box(key, (_label(node), str(node.type)), kinds.get(node, "plain")) for node, key in keys.items()]
    edges = [(keys[operand], key) for node, key in keys.items() for operand in node.operands]
    return draw_graph(boxes, edges, function.name)


def _label(node: Node) -> str:
    return str(node.attribute("value")) if node.op.name == "constant" else node.op.name


def _successors(keys: Iterable[str], edges: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    successors: dict[str, list[str]] = {key: [] for key in keys}
    for source, target in edges:
        successors[source].append(target)
    return successors


def _find_back_edges(keys: Iterable[str], edges: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """The edges that close a cycle."""
    after = _successors(keys, edges)
    back_edges: set[tuple[str, str]] = set()
    state: dict[str, str] = {}
    for start in after:
        stack = [] if start in state else [(start, iter(after[start]))]
        state.setdefault(start, "open")
        while stack:
            key, rest = stack[-1]
            target = next(rest, None)
            if target is None:
                state[key] = "done"
                stack.pop()
            elif state.get(target) == "open":
                back_edges.add((key, target))
            elif target not in state:
                state[target] = "open"
                stack.append((target, iter(after[target])))
    return back_edges


def _assign_layers(keys: Iterable[str], edges: list[tuple[str, str]]) -> dict[str, int]:
    """Assigns each box the length of the longest path to it. Sources go directly above their first user."""
    after, pending_inputs = _successors(keys, edges), dict.fromkeys(keys, 0)
    for _, target in edges:
        pending_inputs[target] += 1
    layer = dict.fromkeys(pending_inputs, 0)
    ready = [key for key, count in pending_inputs.items() if count == 0]
    sources = list(ready)
    for key in ready:  # grows during the loop
        for target in after[key]:
            layer[target] = max(layer[target], layer[key] + 1)
            pending_inputs[target] -= 1
            if pending_inputs[target] == 0:
                ready.append(target)
    for key in sources:
        layer[key] = min((layer[target] for target in after[key]), default=1) - 1
    return layer


def _route_edges(
    layer: dict[str, int], edges: list[tuple[str, str]]
) -> tuple[list[list[str]], dict[tuple[str, str], list[str]]]:
    """The keys of each layer, and the path of each edge, with a bend in every layer that it crosses."""
    layers: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for key, index in layer.items():
        layers[index].append(key)
    routes: dict[tuple[str, str], list[str]] = {}
    for source, target in edges:
        between = range(layer[source] + 1, layer[target])
        bends = [f"{source}\0{target}\0{index}" for index in between]
        for index, bend in zip(between, bends, strict=True):
            layers[index].append(bend)
        routes[source, target] = [source, *bends, target]
    return layers, routes


# --- positions in a layer ---------------------------------------------------------------------------------------------


def _find_neighbours(routes: dict[tuple[str, str], list[str]]) -> dict[str, list[str]]:
    neighbours: dict[str, list[str]] = {}
    for route in routes.values():
        for upper, lower in pairwise(route):
            neighbours.setdefault(upper, []).append(lower)
            neighbours.setdefault(lower, []).append(upper)
    return neighbours


def _reduce_crossings(layers: list[list[str]], neighbours: dict[str, list[str]]) -> None:
    """Barycentre heuristic: sorts each layer by the mean position of neighbours in the previous layer, alternating down
    and up.
    """
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for layer in range(1, len(layers)) if down else range(len(layers) - 2, -1, -1):
            fixed = {key: index for index, key in enumerate(layers[layer - 1 if down else layer + 1])}
            current = {key: float(index) for index, key in enumerate(layers[layer])}
            for key in current:
                positions = [fixed[other] for other in neighbours.get(key, ()) if other in fixed]
                current[key] = sum(positions) / len(positions) if positions else current[key]
            layers[layer].sort(key=lambda key: current[key])


def _place_boxes(layers: list[list[str]], neighbours: dict[str, list[str]], boxes: dict[str, Box]) -> dict[str, float]:
    """The horizontal centre of each box: as close to the mean of its neighbours as the order and the widths allow."""
    centre: dict[str, float] = {}
    for layer in layers:
        at = 0.0
        for key in layer:
            centre[key] = at + _width(key, boxes) / 2
            at += _width(key, boxes) + BETWEEN_BOXES
    for sweep in range(2 * SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            targets = [_mean([centre[other] for other in neighbours.get(key, ())], centre[key]) for key in layer]
            widths = [_width(key, boxes) for key in layer]
            for key, at in zip(layer, _remove_overlaps(targets, widths), strict=True):
                centre[key] = at
    left = min((centre[key] - _width(key, boxes) / 2 for layer in layers for key in layer), default=0.0)
    return {key: at - left for key, at in centre.items()}


def _remove_overlaps(targets: list[float], widths: list[float]) -> list[float]:
    """The least-squares positions in the given order without overlap, by pooling adjacent violators."""
    offsets, groups, at = [], [], 0.0
    for index, width in enumerate(widths):
        at += width / 2 + (widths[index - 1] / 2 + BETWEEN_BOXES if index else 0.0)
        offsets.append(at)
        groups.append((targets[index] - at, 1))
        while len(groups) > 1 and groups[-2][0] > groups[-1][0]:
            (mean, count), (other, more) = groups.pop(-2), groups.pop()
            groups.append(((mean * count + other * more) / (count + more), count + more))
    bases = [mean for mean, count in groups for _ in range(count)]
    return [base + offset for base, offset in zip(bases, offsets, strict=True)]


def _mean(values: list[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _width(key: str, boxes: dict[str, Box]) -> float:
    return boxes[key].width if key in boxes else 0.0


# --- text -------------------------------------------------------------------------------------------------------------


def _render_svg(
    boxes: dict[str, Box],
    layers: list[list[str]],
    centre: dict[str, float],
    routes: dict[tuple[str, str], list[str]],
    backward: list[tuple[str, str]],
    title: str,
) -> str:
    top: dict[str, float] = {}
    floor: dict[str, float] = {}  # the lower edge of the whole layer: edges start there, so that no box hides them
    at = PADDING
    for layer in layers:
        top |= dict.fromkeys(layer, at)
        at += max((boxes[key].height for key in layer if key in boxes), default=0.0)
        floor |= dict.fromkeys(layer, at)
        at += BETWEEN_LAYERS
    height = at - BETWEEN_LAYERS + PADDING
    width = max((centre[key] + _width(key, boxes) / 2 for key in centre), default=0.0) + 2 * PADDING
    bottom = {key: top[key] + (boxes[key].height if key in boxes else 0.0) for key in top}
    middle = {key: x + PADDING for key, x in centre.items()}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="12" fill="#2b2622">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#8a8178"/></marker></defs>',
    ]
    lines += [
        _render_edge([(middle[key], top[key], floor[key]) for key in route], bottom[route[0]])
        for route in routes.values()
    ]
    lines += [
        _render_edge([(middle[key], top[key], bottom[key]) for key in edge], bottom[edge[0]], dashed=True)
        for edge in backward
    ]
    lines += [_render_box(box, middle[box.key], top[box.key]) for box in boxes.values()]
    return "\n".join([*lines, "</svg>\n"])


def _render_edge(points: list[tuple[float, float, float]], start: float, dashed: bool = False) -> str:
    """A path from the bottom of the first box to the top of the last, straight within layers, curved between them."""
    x, _, y = points[0]
    path = f"M{x:.1f} {start:.1f}V{y:.1f}"
    for index, (next_x, top, floor) in enumerate(points[1:], 1):
        half = (top - y) / 2
        path += f"C{x:.1f} {y + half:.1f} {next_x:.1f} {top - half:.1f} {next_x:.1f} {top:.1f}"
        path += f"V{floor:.1f}" if index < len(points) - 1 else ""
        x, y = next_x, floor
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<path class="edge" d="{path}" fill="none" stroke="#8a8178"{dash} marker-end="url(#tip)"/>'


def _render_box(box: Box, middle: float, top: float) -> str:
    fill = COLORS[box.kind]
    svg = (
        f'<rect x="{middle - box.width / 2:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'rx="4" fill="{fill}" stroke="#8a8178"/>'
    )
    for index, line in enumerate(box.lines):
        weight = ' font-weight="bold"' if index == 0 else ""
        baseline = top + PADDING + (index + 0.6) * LINE
        svg += f'<text x="{middle:.1f}" y="{baseline:.1f}" text-anchor="middle"{weight}>{escape(line)}</text>'
    return svg
