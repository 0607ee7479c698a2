"""The host's work for a frame of many kernels depends on the number of changes, not of kernels."""

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
    with simulated() as simulated_driver:
        yield simulated_driver


class Walks(dict):
    """A dictionary that counts iterations and copies."""

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
    """Replaces the dictionaries with an entry for each step or buffer by counting ones."""
    compilation = engine._runtime.compilation
    assert compilation is not None
    assert compilation.plan is not None
    for owner, names in (
        (compilation.plan, ("steps", "buffers", "parameters", "contents")),
        (compilation.network, ("nodes",)),
        (compilation.shapes, ("bodies", "types", "inputs")),
        (engine._running, ("bound",)),
    ):
        for name in names:
            object.__setattr__(owner, name, Walks(getattr(owner, name)))
    Walks.count = 0


def hot_calls(engine: Engine, edited_block: Any) -> int:
    """Calls of livegrad's own functions in `set` and `step`."""

    def frame(gain: float) -> None:
        edited_block.home.set(edited_block["gain"], gain)
        engine.step()

    for gain in (3.0, 4.0, 5.0):  # the general path, then the path that records, then the fast path
        frame(gain)
    package = str(Path(livegrad.__file__).parent)
    return min(calls_of(lambda gain=gain: frame(gain), package) for gain in (6.0, 7.0, 8.0))


def test_a_hot_number_costs_a_few_calls_whether_one_kernel_is_stale_or_all(driver):
    counts = []
    for length in (3, 40):
        engine, blocks = chain(length)
        counts += [hot_calls(engine, blocks[0]), hot_calls(engine, blocks[-1])]
        assert engine.frame.level is Level.HOT
        assert engine.frame.changes[blocks[-1].name].cause == f"b{length - 1}.gain: 7.0 → 8.0"
        np.testing.assert_array_equal(engine.read(blocks[-1]), NUMBERS * 8 * 8 * 2.0 ** (length - 2))
    assert len(set(counts)) == 1
    assert counts[0] <= 14


@pytest.mark.parametrize("nested", [False, True])
def test_an_edit_of_code_inspects_only_its_block(driver, nested):
    engine, blocks = chain(12, nested)
    bodies = [
        replace_body(blocks[6], lambda x, gain=2.0: x + gain),
        replace_body(blocks[6], lambda x, gain=2.0: x * gain),
    ]
    blocks[6].home.edit(blocks[6], bodies[0])
    engine.step()
    watch_walks(engine)
    blocks[6].home.edit(blocks[6], bodies[1])
    driver.calls.clear()
    assert engine.step().level is Level.CODE
    assert Walks.count == 0
    assert "cuGraphInstantiate" not in driver.calls
    assert driver.count("cuGraphExecKernelNodeSetParams") == 1
    np.testing.assert_array_equal(engine.read(blocks[-1]), NUMBERS * 2.0**12)


def test_a_failed_edit_does_not_change_the_compilation(driver):
    engine, blocks = chain(4)
    compilation = engine._runtime.compilation
    assert compilation is not None
    assert compilation.plan is not None
    tables = (compilation.plan.steps, compilation.shapes.bodies, compilation.network.nodes)
    before = [{key: id(value) for key, value in table.items()} for table in tables]
    for _ in range(2):  # alone, and then after the rejected edit
        blocks[1].home.edit(blocks[1], replace_body(blocks[1], lambda x, gain=2.0: x.nothing()))
        assert not engine.step().ok
        assert [{key: id(value) for key, value in table.items()} for table in tables] == before
    blocks[1].home.edit(blocks[1], replace_body(blocks[1], lambda x, gain=2.0: x * gain))
    assert engine.step().ok
    np.testing.assert_array_equal(engine.read(blocks[-1]), NUMBERS * 16)


def test_another_default_in_new_code_is_the_value_of_the_pin(driver):
    engine, blocks = chain(3)
    for default, factor in ((2.0, 8.0), (5.0, 20.0), (-0.0, -0.0)):
        edited = replace_body(blocks[1], eval(f"lambda x, gain={default!r}: x * gain"))
        blocks[1].home.edit(blocks[1], edited)
        assert engine.step().ok
        np.testing.assert_array_equal(engine.read(blocks[-1]), NUMBERS * factor)
    engine.set(blocks[1]["gain"], 3.0)
    engine.step()
    blocks[1].home.edit(blocks[1], replace_body(blocks[1], lambda x, gain=9.0: x * gain + 1.0))
    engine.step()  # the set value stays
    np.testing.assert_array_equal(engine.read(blocks[-1]), (NUMBERS * 6 + 1) * 2)


def test_a_changed_edge_recompiles_and_rebinds_nothing_else(driver, monkeypatch):
    engine, blocks = chain(12)
    source = engine.add(block(lambda x: x + 1.0, name="source"))
    engine.set(source["x"], NUMBERS)
    engine.step()
    done: list[str] = []

    def counted(module: Any, name: str, of: Any) -> None:
        original = getattr(module, name)

        def call(*arguments: Any, **named: Any) -> Any:
            done.append(f"{name} {of(arguments).key}")
            return original(*arguments, **named)

        monkeypatch.setattr(module, name, call)

    counted(propagate, "specialize_node", lambda arguments: arguments[0])
    counted(wire, "wire_node", lambda arguments: arguments[0])
    counted(executable, "bind_step", lambda arguments: arguments[1])
    assert bind_steps.bind_step is not executable.bind_step
    engine.connect(source, blocks[6]["x"])
    assert engine.step().level is Level.COLD
    # The levels of `source` and of the blocks below it change.
    assert {entry.split()[1] for entry in done if entry.startswith("specialize")} == {"b6"}
    assert {entry.split()[1] for entry in done if entry.startswith("bind")} == {"b6"}
    np.testing.assert_array_equal(engine.read(blocks[-1]), (NUMBERS + 1) * 2.0**6)
    assert engine.frame.ran == tuple(f"b{number}" for number in range(6, 12))
