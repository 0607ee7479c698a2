"""What a frame of many kernels costs the host: it depends on what changed, not on how many there are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad
from livegrad.live.blocks import block, replace_body
from livegrad.live.compile import propagate, wire
from livegrad.live.cuda import bind_steps, executable
from livegrad.live.engine import Engine
from livegrad.live.update.diff_plans import Level
from tests.live.test_work_of_a_frame import NUMBERS, calls_of
from tests.live.test_work_of_a_frame import chain as chain_of_blocks
from tests.runtime.cuda.simulate import COMPILER, simulated
from tests.runtime.cuda.simulated_driver import SimulatedDriver

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")
chain = partial(chain_of_blocks, backend="cuda")


@pytest.fixture
def driver() -> Iterator[SimulatedDriver]:
    with simulated() as made:
        yield made


class Walks(dict):
    """A dictionary that counts how often all of it is looked at or copied."""

    count = 0

    def __iter__(self) -> Any:
        Walks.count += 1
        return super().__iter__()

    def keys(self) -> Any:
        Walks.count += 1
        return super().keys()

    def values(self) -> Any:
        Walks.count += 1
        return super().values()

    def items(self) -> Any:
        Walks.count += 1
        return super().items()

    def copy(self) -> Any:
        Walks.count += 1
        return super().copy()


def watch_walks(engine: Engine) -> None:
    """Puts counting dictionaries in the place of those that have an entry for each step or buffer."""
    known = engine._runtime.compilation
    assert known is not None
    assert known.plan is not None
    for owner, names in (
        (known.plan, ("steps", "buffers", "parameters", "contents")),
        (known.network, ("nodes",)),
        (known.shapes, ("bodies", "types", "inputs")),
        (engine._running, ("bound",)),
    ):
        for name in names:
            object.__setattr__(owner, name, Walks(getattr(owner, name)))
    Walks.count = 0


def hot_calls(engine: Engine, own: Any) -> int:
    """Calls of livegrad's own functions in `set` and `step`."""

    def frame(gain: float) -> None:
        own.home.set(own["gain"], gain)
        engine.step()

    for gain in (3.0, 4.0, 5.0):  # the long way, then what there is to remember, then the short way
        frame(gain)
    package = str(Path(livegrad.__file__).parent)
    return min(calls_of(lambda gain=gain: frame(gain), package) for gain in (6.0, 7.0, 8.0))


def test_a_hot_number_costs_a_few_calls_whether_one_kernel_is_stale_or_all(driver):
    counts = []
    for length in (3, 40):
        engine, made = chain(length)
        counts += [hot_calls(engine, made[0]), hot_calls(engine, made[-1])]
        assert engine.frame.level is Level.HOT
        assert engine.frame.changes[made[-1].name].cause == f"b{length - 1}.gain: 7.0 → 8.0"
        np.testing.assert_array_equal(engine.read(made[-1]), NUMBERS * 8 * 8 * 2.0 ** (length - 2))
    assert len(set(counts)) == 1
    assert counts[0] <= 14


@pytest.mark.parametrize("nested", [False, True])
def test_an_edit_of_code_looks_at_its_block_only(driver, nested):
    engine, made = chain(12, nested)
    bodies = [replace_body(made[6], lambda x, gain=2.0: x + gain), replace_body(made[6], lambda x, gain=2.0: x * gain)]
    made[6].home.edit(made[6], bodies[0])
    engine.step()
    watch_walks(engine)
    made[6].home.edit(made[6], bodies[1])
    driver.calls.clear()
    assert engine.step().level is Level.CODE
    assert Walks.count == 0
    assert "cuGraphInstantiate" not in driver.calls
    assert driver.count("cuGraphExecKernelNodeSetParams") == 1
    np.testing.assert_array_equal(engine.read(made[-1]), NUMBERS * 2.0**12)


def test_an_edit_that_fails_leaves_what_was_compiled_as_it_was(driver):
    engine, made = chain(4)
    known = engine._runtime.compilation
    assert known is not None
    assert known.plan is not None
    kept = (known.plan.steps, known.shapes.bodies, known.network.nodes)
    before = [{key: id(value) for key, value in own.items()} for own in kept]
    for _ in range(2):  # by itself, then with the edit that was refused before it
        made[1].home.edit(made[1], replace_body(made[1], lambda x, gain=2.0: x.nothing()))
        assert not engine.step().ok
        assert [{key: id(value) for key, value in own.items()} for own in kept] == before
    made[1].home.edit(made[1], replace_body(made[1], lambda x, gain=2.0: x * gain))
    assert engine.step().ok
    np.testing.assert_array_equal(engine.read(made[-1]), NUMBERS * 16)


def test_another_default_in_new_code_is_the_value_of_the_pin(driver):
    engine, made = chain(3)
    for default, factor in ((2.0, 8.0), (5.0, 20.0), (-0.0, -0.0)):
        edited = replace_body(made[1], eval(f"lambda x, gain={default!r}: x * gain"))
        made[1].home.edit(made[1], edited)
        assert engine.step().ok
        np.testing.assert_array_equal(engine.read(made[-1]), NUMBERS * factor)
    engine.set(made[1]["gain"], 3.0)
    engine.step()
    made[1].home.edit(made[1], replace_body(made[1], lambda x, gain=9.0: x * gain + 1.0))
    engine.step()  # what was set stays
    np.testing.assert_array_equal(engine.read(made[-1]), (NUMBERS * 6 + 1) * 2)


def test_an_edge_that_changes_is_the_only_thing_that_is_compiled_and_bound_anew(driver, monkeypatch):
    engine, made = chain(12)
    source = engine.add(block(lambda x: x + 1.0, name="source"))
    engine.set(source["x"], NUMBERS)
    engine.step()
    done: list[str] = []

    def counted(module: Any, name: str, of: Any) -> None:
        own = getattr(module, name)

        def call(*given: Any, **named: Any) -> Any:
            done.append(f"{name} {of(given).key}")
            return own(*given, **named)

        monkeypatch.setattr(module, name, call)

    counted(propagate, "specialize_node", lambda given: given[0])
    counted(wire, "wire_node", lambda given: given[0])
    counted(executable, "bind_step", lambda given: given[1])
    assert bind_steps.bind_step is not executable.bind_step
    engine.connect(source, made[6]["x"])
    assert engine.step().level is Level.COLD
    # `source` has another level than before, for nothing else; the blocks below have other levels too.
    assert {entry.split()[1] for entry in done if entry.startswith("specialize")} == {"b6"}
    assert {entry.split()[1] for entry in done if entry.startswith("bind")} == {"b6"}
    np.testing.assert_array_equal(engine.read(made[-1]), (NUMBERS + 1) * 2.0**6)
    assert engine.frame.ran == tuple(f"b{number}" for number in range(6, 12))
