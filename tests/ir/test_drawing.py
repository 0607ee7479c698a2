"""Drawings of graphs: boxes do not overlap, edges point downwards, cycles are broken."""

from __future__ import annotations

import random
import re
from itertools import combinations
from xml.etree import ElementTree

import pytest

from livegrad.ir.drawing import COLORS, Box, draw_graph


def rectangles(svg: str) -> list[tuple[float, float, float, float]]:
    actual = re.findall(r'<rect x="(\S+)" y="(\S+)" width="(\S+)" height="(\S+)"', svg)
    return [(float(x), float(y), float(x) + float(w), float(y) + float(h)) for x, y, w, h in actual]


def random_graph(seed: int) -> tuple[list[Box], list[tuple[str, str]]]:
    numbers = random.Random(seed)
    boxes = [Box(f"n{k}", ("x" * numbers.randint(1, 30),) * numbers.randint(1, 3)) for k in range(25)]
    edges = [(f"n{a}", f"n{b}") for a, b in combinations(range(25), 2) if numbers.random() < 0.12]
    return boxes, edges


@pytest.mark.parametrize("seed", range(5))
def test_boxes_do_not_overlap_and_stay_inside_the_picture(seed):
    boxes, edges = random_graph(seed)
    svg = draw_graph(boxes, edges)
    width, height = (float(re.findall(rf'{side}="(\d+)"', svg)[0]) for side in ("width", "height"))
    drawn = rectangles(svg)
    assert len(drawn) == 25
    for left, top, right, bottom in drawn:
        assert left >= 0
        assert top >= 0
        assert right <= width
        assert bottom <= height
    for a, b in combinations(drawn, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


@pytest.mark.parametrize("seed", range(5))
def test_a_box_is_below_all_its_predecessors(seed):
    boxes, edges = random_graph(seed)
    place = dict(zip([box.key for box in boxes], rectangles(draw_graph(boxes, edges)), strict=True))
    assert all(place[source][3] < place[target][1] for source, target in edges)


def test_a_back_edge_is_dashed():
    svg = draw_graph([Box("a", ("a",)), Box("b", ("b",))], [("a", "b"), ("b", "a"), ("a", "a")])
    assert svg.count("stroke-dasharray") == 2
    assert svg.count('class="edge"') == 3


def test_text_is_escaped_and_the_picture_is_well_formed():
    svg = draw_graph([Box("a", ("x < y & z", "tensor<f32>"), "leaf")], [], title="<&>")
    root = ElementTree.fromstring(svg)
    assert [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")] == ["x < y & z", "tensor<f32>"]
    assert COLORS["leaf"] in svg


def test_an_empty_graph_is_an_empty_picture():
    assert ElementTree.fromstring(draw_graph([], [])).tag.endswith("svg")
