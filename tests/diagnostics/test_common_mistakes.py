"""What newcomers write at first, and what they are told: which thing was meant, and how it is made."""

from __future__ import annotations

from typing import Any

import pytest

import livegrad as lg

# Of any type, for a type checker would find these mistakes first.
BALL: Any = lg.shapes.sphere(1.0)
PART: Any = BALL.part(((-2, -2, -2), (2, 2, 2)), "ball")
NUMBER: Any = 2.0


def engine_with_a_block() -> tuple[lg.Engine, lg.Block]:
    engine = lg.Engine()
    return engine, engine.add(lg.block(lambda x=1.0: x * 2.0, name="double"))


def set_a_block() -> None:
    engine, double = engine_with_a_block()
    engine.set(double, 2.0)  # type: ignore[arg-type]


def inputs_as_a_dictionary() -> None:
    graph = lg.ContextGraph()
    graph.value("data", 1.0)
    graph.node("page", lambda ctx, rows: rows, plain={"rows": "data"})


@pytest.mark.parametrize(
    ("mistake", "error", "said"),
    [
        (lambda: lg.mesh(BALL), lg.AssemblyError, "found Shape; `shape.part(bounds)` makes one of a shape"),
        (lambda: lg.render(BALL), lg.AssemblyError, "not a part"),
        (lambda: lg.slice(BALL, 0.0), lg.AssemblyError, "not a part"),
        (lambda: lg.save_3mf(PART, "a.3mf"), lg.FormatError, "found Part; `lg.assembly_of_part(part)` makes one"),
        (lambda: lg.save_stl(PART, "a.stl"), lg.FormatError, "found Part; `lg.mesh(part)` makes one of a part"),
        (lambda: BALL.part(NUMBER), lg.AssemblyError, "expected ((x0, y0, z0), (x1, y1, z1)), the low corner first"),
        (lambda: BALL.translate(NUMBER), lg.AssemblyError, "expected three numbers, found 2.0"),
        (lambda: BALL.scale(0), lg.AssemblyError, "not a scale"),
        (lambda: lg.shapes.box(NUMBER), lg.AssemblyError, "expected three numbers, found 2.0"),
        (lambda: BALL - 1.0, lg.AssemblyError, "expected a Shape, found float"),
        (lambda: BALL | None, lg.AssemblyError, "expected a Shape, found NoneType"),
        (lambda: lg.array([1.0, 2.0]), TypeError, "lg.asarray(...) makes a tensor of data"),
        (lambda: lg.vec(1.0, 2.0), TypeError, "`vec` is a family of types, such as vec[float, 3]; lg.vec3(...)"),
        (lambda: lg.jit(NUMBER), lg.UsageError, "`jit` takes a function"),
        (set_a_block, lg.UsageError, 'expected a pin: block["name"] with one of x, found the block `double`'),
        (inputs_as_a_dictionary, lg.ContextError, "inputs are listed in the order of the function's parameters"),
        (lambda: lg.save_png([[[0.0]]], "nowhere/a.png"), FileNotFoundError, "there is no such folder to write to"),
    ],
)
def test_a_mistake_is_told_with_a_way_out(mistake, error, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as caught:
        mistake()
    assert said in str(caught.value)


def test_the_file_and_line_of_the_mistake_are_named():
    with pytest.raises(lg.AssemblyError, match=r"test_common_mistakes\.py:\d+"):
        lg.mesh(BALL)


def test_a_prompt_completes_the_names_of_a_namespace_and_no_others():
    for namespace in (lg.nn, lg.optim, lg.linalg, lg.fft, lg.random, lg.shapes):
        offered = dir(namespace)
        assert sorted(offered) == sorted(namespace.__all__)
        assert all(hasattr(namespace, name) for name in offered)
        assert not {"np", "math", "annotations", "Any"} & set(offered)


def test_what_was_minimised_is_shown_in_a_line():
    found = lg.optim.minimize(lambda x: (x - 3.0) ** 2, lg.asarray(0.0), lg.optim.SGD(0.5), steps=3)
    assert repr(found) == "<minimum after 3 steps, loss 9 → 0: Tensor(3., dtype=float32)>"
