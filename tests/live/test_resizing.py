"""An array of another length is a warm update: only its dependents get new memory and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest

import livegrad as lg
from livegrad.live.blocks import block
from livegrad.live.engine import Engine
from livegrad.live.graph.composite import Composite
from livegrad.live.update.diff_plans import Level
from livegrad.runtime.cpu.kernel_code import KernelCompiler
from tests.fuzz.engine_kept import compare_with_scratch
from tests.live.test_cold_edits import nothing_compiled_anew
from tests.live.test_work_of_a_frame import calls_of, chain


def numbers(length: int) -> np.ndarray[Any, Any]:
    return np.arange(1, length + 1, dtype=np.float32)


@contextmanager
def compiled_kernels() -> Iterator[list[object]]:
    """Collects the kernels that are compiled meanwhile, because they are neither in memory nor on disk."""
    found: list[object] = []
    make = KernelCompiler._load_or_compile

    def note(self: Any, nest: Any) -> Any:
        found.append(nest.kernel)
        return make(self, nest)

    with mock.patch.object(KernelCompiler, "_load_or_compile", note):
        yield found


def levels(engine: Engine) -> dict[str, Level]:
    return {key: change.level for key, change in engine.frame.changes.items()}


def test_changing_a_length_and_back_is_warm_and_affects_only_dependents():
    engine = Engine()
    wave = engine.add(block(lambda x: lg.sin(x) * 2.0, name="wave"))
    power = engine.add(block(lambda x: x * x, name="power"))
    total = engine.add(block(lambda x: lg.sum(x), name="total"))
    after = engine.add(block(lambda x: x + 1.0, name="after"))  # reads a number, independent of the length
    other = engine.add(block(lambda x: x * 3.0, name="other"))
    for source, target in ((wave, power), (power, total), (total, after)):
        engine.connect(source, target["x"])
    engine.set(wave["x"], numbers(100))
    engine.set(other["x"], numbers(5))
    assert engine.step().ok
    running: Any = engine._runtime.executable
    kept = [running._memory[key] for key in ("total.result", "after.result", "other.result", "other.x")]
    kept += [running.calls[key] for key in ("after", "other")]
    for length, traces in ((260, 2), (100, 2), (260, 2)):
        engine.set(wave["x"], numbers(length))
        with compiled_kernels() as compiled, nothing_compiled_anew():
            frame = engine.step()
        assert levels(engine) == dict.fromkeys(("wave", "power", "total"), Level.WARM)
        assert (frame.level, frame.ran, compiled) == (Level.WARM, ("wave", "power", "total", "after"), [])
        assert [own.body.traces for own in (wave, power, total, after, other)] == [traces, traces, traces, 1, 1]  # type: ignore[attr-defined]
        assert engine._runtime.executable is running
        now = [running._memory[key] for key in ("total.result", "after.result", "other.result", "other.x")]
        now += [running.calls[key] for key in ("after", "other")]
        assert all(own is before for own, before in zip(now, kept, strict=True))
        expected = (np.sin(numbers(length)) * np.float32(2)) ** 2
        np.testing.assert_allclose(engine.read(power), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(engine.read(after), expected.sum() + 1, rtol=1e-4)
        compare_with_scratch(engine)
    assert "new sizes" in engine.explain()


def test_binding_memory_of_another_length_is_warm(executor_name):
    engine = Engine(executor_name)
    double = engine.add(block(lambda x: x * 2.0, name="double"))
    engine.bind(double["x"], numbers(4))
    engine.step()
    for length in (9, 4, 30):
        engine.bind(double["x"], numbers(length))
        assert engine.step().level is Level.WARM
        np.testing.assert_array_equal(engine.read(double), numbers(length) * 2)


def test_a_body_whose_operations_depend_on_the_length_is_a_code_update(executor_name):
    def by_hand(x: Any) -> Any:
        total = x[0]
        for number in range(1, len(x)):
            total = total + x[number]
        return total

    engine = Engine(executor_name)
    add = engine.add(block(by_hand, name="add"))
    engine.set(add["x"], numbers(3))
    engine.step()
    for length in (5, 2):
        engine.set(add["x"], numbers(length))
        assert engine.step().level is Level.CODE
        assert float(engine.read(add)) == numbers(length).sum()


def test_another_element_type_or_rank_is_a_code_update(executor_name):
    engine = Engine(executor_name)
    double = engine.add(block(lambda x: x * 2.0, name="double"))
    engine.set(double["x"], numbers(4))
    engine.step()
    for array in (numbers(5).astype(np.float64), numbers(6).reshape(2, 3), numbers(3)):
        engine.set(double["x"], array)
        assert engine.step().level is Level.CODE
        np.testing.assert_array_equal(engine.read(double), array * 2)


def test_a_change_of_length_is_warm_in_composites_regions_and_gradients(executor_name):
    engine = Engine(executor_name)
    outer = Composite("outer")
    scale = outer.graph.add(block(lambda x, gain=2.0: x * gain, name="scale"))
    outer.expose(scale["x"])
    outer.expose(scale["result"])
    engine.add(outer)
    body = Composite("body")
    more = body.graph.add(block(lambda x: x + 1.0, name="more"))
    body.expose(more["x"])
    body.expose(more["result"])
    often = engine.add(lg.For("often", body, carried={"x": "result"}))
    energy = engine.add(block(lambda x: lg.sum(x * x), name="energy"))
    engine.set(often["count"], 3)
    engine.connect(outer["result"], often["x"])
    engine.connect(often["result"], energy["x"])
    slope = engine.add(lg.grad(of=energy, by=[energy["x"]], name="slope"))
    engine.set(outer["x"], numbers(4))
    assert engine.step().ok, engine.frame.problems
    for length in (7, 4, 12):
        engine.set(outer["x"], numbers(length))
        with nothing_compiled_anew():
            assert engine.step().ok
        assert engine.frame.level is Level.WARM, engine.explain()
        expected = numbers(length) * 2 + 3
        np.testing.assert_array_equal(engine.read(often["result"]), expected)
        np.testing.assert_array_equal(engine.read(slope["x"]), expected * 2)


@pytest.mark.parametrize("seed", range(3))
def test_random_lengths_are_warm_and_correct(seed):
    """Random graphs whose arrays change their lengths repeatedly, compared with NumPy."""
    chance = np.random.default_rng(seed)
    kinds = (
        (lambda x, y: x * 2.0 - y, lambda x, y: x * np.float32(2) - y),
        (lambda x, y: lg.maximum(x, y), np.maximum),
        (lambda x, y: lg.flip(x, axis=0) + y, lambda x, y: x[::-1] + y),
        (lambda x, y: x - lg.max(y), lambda x, y: x - y.max()),
    )
    engine = Engine()
    first = engine.add(block(lambda x: x + 1.0, name="first"))
    made: list[tuple[Any, Any, list[int]]] = [(first, None, [])]
    for number in range(8):
        kind, model = kinds[chance.integers(len(kinds))]
        own = engine.add(block(kind, name=f"b{number}"))
        picks = [int(one) for one in chance.integers(len(made), size=2)]
        for pin, pick in zip("xy", picks, strict=True):
            engine.connect(made[pick][0], own[pin])
        made.append((own, model, picks))
    before = 0
    for frame in range(8):
        length = int(chance.integers(2, 50)) + (frame % 2) * 50
        array = chance.integers(-9, 9, length).astype(np.float32)
        engine.set(first["x"], array)
        assert engine.step().ok, engine.frame.problems
        assert engine.frame.level is (Level.COLD if before == 0 else Level.WARM)
        before, values = length, [array + 1]
        for _, model, picks in made[1:]:
            values.append(model(*(values[pick] for pick in picks)))
        for (own, _, _), value in zip(made, values, strict=True):
            np.testing.assert_array_equal(engine.read(own), value)
    compare_with_scratch(engine)


def test_the_cost_of_a_change_of_length_is_independent_of_the_graph_size():
    counts = []
    for blocks in (40, 640):
        engine, _ = chain(blocks)
        alone = engine.add(block(lambda x: x * 2.0, name="alone"))
        engine.set(alone["x"], numbers(3))
        engine.step()

        def resize(length: int, engine: Engine = engine, alone: Any = alone) -> None:
            engine.set(alone["x"], numbers(length))
            assert engine.step().level is Level.WARM

        for length in (5, 3):  # cached from now on
            resize(length)
        counts.append(min(calls_of(lambda length=length: resize(length)) for length in (5, 3, 5)))
    assert counts[1] < 1.5 * counts[0]


def test_a_symbolic_size_in_arithmetic_explains_how_to_count_elements() -> None:
    sized = {"x": lg.ir.types.Tensor(lg.f32, (lg.ir.Dimension.symbol("n"),))}
    engine = lg.Engine()
    scale = engine.add(lg.block(lambda x: x * x.shape[0], name="scale", inputs=sized))
    engine.set(scale["x"], np.ones(3, np.float32))
    (problem,) = engine.step().problems
    assert "found Tensor; to use it in tensor code, write lg.sum(lg.ones_like(x))" in str(problem)
    lg.live.edit(engine, scale, lambda x: x * lg.sum(lg.ones_like(x)))
    for size in (3, 5, 4):
        engine.set(scale["x"], np.ones(size, np.float32))
        assert engine.step().ok
        assert engine.read(scale).tolist() == [float(size)] * size
    assert scale.body.traces == 1  # type: ignore[attr-defined]
