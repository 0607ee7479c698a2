"""Device loops update variables in place, and copy only where that would be wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.live.blocks import block, edit
from livegrad.live.engine import Engine
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.regions import For
from tests.runtime.cuda.simulate import COMPILER, simulated
from tests.runtime.cuda.simulated_driver import SimulatedDriver

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")
NUMBERS = np.arange(1, 7, dtype=np.float32)


@pytest.fixture
def driver() -> Iterator[SimulatedDriver]:
    with simulated() as simulated_driver:
        yield simulated_driver


def loop_of(function: Callable[..., Any], count: int = 3) -> tuple[Engine, Any, Any]:
    body = Composite("body")
    step = body.graph.add(block(function, name="step"))
    for pin in (step["x"], step["result"]):
        body.expose(pin)
    engine = Engine("cuda")
    loop = engine.add(For("loop", body, {"x": "result"}))
    engine.set(loop["x"], NUMBERS)
    engine.set(loop["count"], count)
    return engine, loop, step


def expected(function: Callable[..., Any], count: int = 3) -> np.ndarray:
    value = NUMBERS
    for _ in range(count):
        value = function(value)
    return value


def test_a_variable_that_is_read_element_by_element_is_never_copied(driver):
    engine, loop, _ = loop_of(lambda x: x * 0.5 + 1.0)
    driver.calls.clear()
    engine.step()
    assert driver.count("cuGraphAddMemcpyNode") == 1  # the initial value
    np.testing.assert_array_equal(engine.read(loop), expected(lambda x: x * 0.5 + 1.0))
    engine.set(loop["count"], 0)
    engine.step()
    np.testing.assert_array_equal(engine.read(loop), NUMBERS)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: lg.flip(x) + x if isinstance(x, lg.Tensor) else np.flip(x) + x,
        lambda x: x / lg.sum(x) if isinstance(x, lg.Tensor) else x / np.sum(x),
        lambda x: x + lg.roll(x, 1) if isinstance(x, lg.Tensor) else x + np.roll(x, 1),
    ],
    ids=["other elements", "all elements", "neighbours"],
)
def test_a_variable_with_other_readers_has_the_right_value(driver, function):
    engine, loop, _ = loop_of(function)
    engine.step()
    np.testing.assert_allclose(engine.read(loop), expected(function), rtol=1e-6)


def test_an_edit_inside_the_loop_may_need_the_copy_or_need_it_no_more(driver):
    engine, loop, step = loop_of(lambda x: x + 1.0)
    engine.step()

    def turned(x: Any) -> Any:
        return (lg.flip(x) if isinstance(x, lg.Tensor) else np.flip(x)) * 2.0

    for function in (turned, lambda x: x * 3.0, turned):
        edit(engine, step, function)
        assert engine.step().ok, engine.frame.problems
        np.testing.assert_array_equal(engine.read(loop), expected(function))
    engine.add(block(lambda x=1.0: x, name="other"))  # a new executable takes over the state
    edit(engine, step, lambda x: x + 2.0)
    assert engine.step().ok
    np.testing.assert_array_equal(engine.read(loop), NUMBERS + 6)
    engine.add(block(lambda x=1.0: x, name="another"))
    edit(engine, step, turned)
    assert engine.step().ok
    np.testing.assert_array_equal(engine.read(loop), expected(turned))


def test_a_variable_that_an_earlier_step_reads_waits_for_it(driver):
    """Two steps read other elements of the variable, and one of them does not depend on the step that writes it."""
    body = Composite("body")
    look = body.graph.add(block(lambda x: lg.flip(x), name="look"))
    count = body.graph.add(block(lambda x: lg.sum(x), name="count"))
    step = body.graph.add(block(lambda x, other: x + other * 0.5, name="step"))
    body.graph.connect(look, step["other"])
    for pin in (look["x"], count["x"], step["x"]):
        body.expose(pin, "x")
    body.expose(step["result"])
    body.expose(count["result"], "counted")
    engine = Engine("cuda")
    loop = engine.add(For("loop", body, {"x": "result"}))
    engine.set(loop["x"], NUMBERS)
    driver.calls.clear()
    for number in (1, 3, 2, 3):
        engine.set(loop["count"], number)
        engine.step()
        wanted = [expected(lambda x: x + np.flip(x) * np.float32(0.5), times) for times in (number, number - 1)]
        np.testing.assert_array_equal(engine.read(loop["result"]), wanted[0])
        np.testing.assert_allclose(engine.read(loop["counted"]), np.sum(wanted[1]), rtol=1e-6)
    assert driver.count("cuGraphAddMemcpyNode") == 1


def test_another_result_still_has_the_old_value_of_the_variable(driver):
    body = Composite("body")
    step = body.graph.add(
        block(lambda x, n: (x * 0.5, x, n - 1, x + n), name="step", outputs=("next", "old", "m", "both"))
    )
    for pin in (*step.inputs.values(), *step.outputs.values()):
        body.expose(pin)
    engine = Engine("cuda")
    loop = engine.add(For("loop", body, {"x": "next", "n": "m"}))
    engine.set(loop["x"], NUMBERS)
    engine.set(loop["n"], np.float32(10))
    engine.set(loop["count"], 3)
    engine.step()
    for pin, wanted in (("next", NUMBERS / 8), ("old", NUMBERS / 4), ("m", 7), ("both", NUMBERS / 4 + 8)):
        np.testing.assert_array_equal(engine.read(loop[pin]), wanted, err_msg=pin)
