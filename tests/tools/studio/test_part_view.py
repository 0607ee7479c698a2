"""The 3D view of parts: which shader pages get, when they get another one, and why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.implicit import viewport_shader
from livegrad.tools.studio import part_view
from livegrad.tools.studio.gallery import EXAMPLES
from tests.tools.studio.client import TestPage

BOX = ((-2, -2, -2), (2, 2, 2))


def waves() -> lg.Part:
    """A part whose field is steeper for shorter periods."""
    period = lg.shapes.Parameter("period", 1.5, lg.Control(0.5, 3.0))
    radius = lg.shapes.Parameter("radius", 1.2)
    return lg.shapes.intersection(lg.shapes.gyroid(period), lg.shapes.sphere(radius)).part(BOX, "waves")


@pytest.fixture
def page() -> Iterator[TestPage]:
    with lg.studio(waves(), open_browser=False) as studio, TestPage(studio) as opened:
        opened.wait(lambda: opened.part)
        yield opened


def steepest(part: lg.Part, random: np.random.Generator) -> float:
    lengths = np.linalg.norm(part.gradient(random.uniform(-2, 2, (20_000, 3))), axis=1)
    return float(lengths[np.isfinite(lengths)].max())


def set_parameter(page: TestPage, name: str, value: Any) -> None:
    answer = page.edit({"op": "set", "pin": [page.id("distance"), name], "value": value})
    assert answer["type"] == "done"


def shader_of(page: TestPage) -> dict[str, Any]:
    assert page.part["problem"] is None
    return page.part["shader"]


def test_the_page_makes_room_for_the_shader_that_follows(page):
    described = {"block": page.id("distance"), "parameters": ["period", "radius"], "shader": None, "problem": None}
    assert page.snapshot["part"] == described
    assert shader_of(page)["text"] == str(viewport_shader(waves()))


def test_numbers_need_no_other_shader(page):
    parts = [page.part]
    for value in (0.5, 2.0, 3.0, 0.1):
        set_parameter(page, "period", value)
        page.wait(lambda value=value: page.input("distance", "period")["value"] == value)
        parts.append(page.part)
    page.wait(lambda: page.steepness > 2.0 * shader_of(page)["steepness"])  # the bound follows the last number
    assert all(part is parts[0] for part in parts)


@pytest.mark.parametrize("seed", range(4))
def test_the_steps_along_rays_are_safe_for_all_numbers(page, seed):
    random = np.random.default_rng(seed)
    for _ in range(6):
        values = {"period": round(float(random.uniform(0.3, 2.0) ** 2), 3), "radius": float(random.integers(1, 9))}
        for name, value in values.items():
            set_parameter(page, name, value)
        part = waves().with_parameters(**values)
        exact, slope = viewport_shader(part), steepest(part, random)
        page.wait(lambda slope=slope: page.steepness >= slope)
        # What the page draws is what a shader for these numbers would draw: the same text with the same uniforms.
        page.wait(lambda values=values: values == {name: page.input("distance", name)["value"] for name in values})
        assert shader_of(page)["text"] == str(exact)
        for uniform in exact.shader.uniforms:
            assert uniform.value == pytest.approx((values[uniform.name],))


def test_a_wire_into_a_parameter_brings_another_shader():
    with lg.studio(waves(), open_browser=False) as studio, TestPage(studio) as page:
        page.wait(lambda: page.part)
        first = page.part
        session = studio._engine_thread.session
        assert session is not None
        engine = session.engine
        source = engine.add(lg.block(lambda x=1.0: x * 2.0, name="source"))
        engine.connect(source, engine.graph.blocks["distance"]["period"])
        page.wait(lambda: page.part is not first)
        page.wait(lambda: page.input("distance", "period")["source"] == "edge")


def test_what_a_shader_cannot_do_is_said(monkeypatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise lg.CompileError("`heights` does not fit a texture", expected="less", found="more")

    monkeypatch.setattr(part_view, "viewport_shader", refuse)
    with lg.studio(waves(), open_browser=False) as studio, TestPage(studio) as page:
        page.wait(lambda: page.part)
        assert page.part["shader"] is None
        assert page.part["problem"]["message"] == "`heights` does not fit a texture"


def test_other_graphs_have_no_part():
    with lg.studio(lg.block(lambda x=1.0: x, name="one"), open_browser=False) as studio, TestPage(studio) as page:
        assert page.snapshot["part"] is None
    shown = {example.name for example in EXAMPLES if example.build().field is not None}
    assert shown == {"gyroid"}
