"""Seed 004, "Update Levels": a test for each row of both tables, on every executor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from livegrad.ir.types import Tensor, f32
from livegrad.live.blocks import block, captured_block, edit, watch
from livegrad.live.engine import Engine
from livegrad.live.graph.regions import For
from livegrad.live.graph.sources import ExternalBuffer
from livegrad.live.update.diff_plans import Level
from tests.seeds.graphs import NUMBERS, N, chain, expected, levels, summing_body

# --- KernelNode updates ----------------------------------------------------------------------------------------------


def test_scalar_value_changed_is_hot(executor_name):
    """Seed 004, "KernelNode Updates": Scalar value changed."""
    engine, blocks = chain(executor_name)
    engine.step()
    engine.set(blocks["b"]["gain"], 3.0)
    frame = engine.step()
    assert levels(engine) == {"b": Level.HOT}
    assert frame.ran == ("b", "d")
    assert frame.prepared == 0
    np.testing.assert_array_equal(engine.read(blocks["d"]), expected(NUMBERS, 3.0))


def test_buffer_content_changed_needs_no_update(executor_name):
    """Seed 004, "KernelNode Updates": Buffer content changed."""
    engine, blocks = chain(executor_name)
    shared = engine.bind(blocks["a"]["x"], ExternalBuffer(NUMBERS.copy(), version=0))
    engine.step()
    shared.array[0] = 9
    assert engine.step().ran == ()
    shared.touch()
    assert engine.step().level is Level.NONE
    assert engine.frame.ran == ("a", "b", "c", "d")
    np.testing.assert_array_equal(engine.read(blocks["d"]), expected(shared.array))


def test_buffer_rebind_of_the_same_size_is_warm(executor_name):
    """Seed 004, "KernelNode Updates": Buffer rebind (same size)."""
    engine, blocks = chain(executor_name)
    engine.bind(blocks["a"]["x"], ExternalBuffer(NUMBERS.copy(), version=0))
    engine.step()
    engine.bind(blocks["a"]["x"], ExternalBuffer(NUMBERS + 1, version=0))
    engine.step()
    assert levels(engine) == {"a": Level.WARM}
    np.testing.assert_array_equal(engine.read(blocks["d"]), expected(NUMBERS + 1))


def test_buffer_resize_is_warm(executor_name):
    """Seed 004, "KernelNode Updates": Buffer resize."""
    engine, blocks = chain(executor_name)
    engine.step()
    longer = np.arange(9, dtype=np.float32)
    engine.set(blocks["a"]["x"], longer)
    engine.step()
    assert levels(engine) == dict.fromkeys("abcd", Level.WARM)
    np.testing.assert_array_equal(engine.read(blocks["d"]), expected(longer))


def test_another_grid_is_warm(executor_name):
    """Seed 004, "KernelNode Updates": Grid size changed; here a symbol is another size, the code is the same."""
    engine, blocks = chain(executor_name)
    engine.step()
    for size in (6, 2):
        shorter = np.arange(size, dtype=np.float32)
        engine.set(blocks["a"]["x"], shorter)
        assert engine.step().level is Level.WARM
        assert "n" in engine.frame.changes["a"].cause
        assert engine.read(blocks["d"]).shape == (size,)
        np.testing.assert_array_equal(engine.read(blocks["d"]), expected(shorter))


def test_changed_logic_is_a_code_update_of_that_block(executor_name):
    """Seed 004, "KernelNode Updates": Patchable kernel logic changed."""
    engine, blocks = chain(executor_name)
    engine.step()
    edit(engine, blocks["c"], lambda x: x - 1.0)
    frame = engine.step()
    assert levels(engine) == {"c": Level.CODE}
    assert frame.ran == ("c", "d")
    assert frame.prepared == 1
    np.testing.assert_array_equal(engine.read(blocks["d"]), (NUMBERS + 1) * 2 + NUMBERS)


def test_added_and_removed_blocks_are_cold_and_the_rest_keeps_its_values(executor_name):
    """Seed 004, "KernelNode Updates": Node added/removed."""
    engine, blocks = chain(executor_name)
    engine.step()
    extra = engine.add(block(lambda x: x * 10.0, name="extra"))
    engine.connect(blocks["a"], extra["x"])
    frame = engine.step()
    assert levels(engine) == {"extra": Level.COLD}
    assert frame.ran == ("extra",)
    engine.remove(extra)
    frame = engine.step()
    assert levels(engine) == {"extra": Level.COLD}
    assert frame.ran == ()
    np.testing.assert_array_equal(engine.read(blocks["d"]), expected(NUMBERS))


def test_a_changed_edge_is_cold(executor_name):
    """Seed 004, "KernelNode Updates": Edge added/removed."""
    engine, blocks = chain(executor_name)
    engine.step()
    engine.connect(blocks["b"], blocks["d"]["y"])
    frame = engine.step()
    assert levels(engine) == {"d": Level.COLD}
    assert frame.ran == ("d",)
    np.testing.assert_array_equal(engine.read(blocks["d"]), (NUMBERS + 1) * 4)


def test_an_added_region_is_cold(executor_name):
    """Seed 004, "KernelNode Updates": Region added/removed."""
    engine, blocks = chain(executor_name)
    engine.step()
    loop = engine.add(For("loop", summing_body(), {"total": "sum"}))
    engine.connect(blocks["a"], loop["total"])
    engine.connect(blocks["b"], loop["x"])
    engine.set(loop["count"], 2)
    engine.step()
    assert levels(engine) == {"loop": Level.COLD}
    np.testing.assert_array_equal(engine.read(loop), (NUMBERS + 1) * 5)
    engine.remove(loop)
    engine.step()
    assert levels(engine) == {"loop": Level.COLD}


def test_changes_of_every_kind_in_one_frame_are_all_applied_in_it(executor_name):
    """Seed 004, "Update Levels": two kinds of dirt in one frame do not wait for each other."""
    engine, blocks = chain(executor_name)
    engine.bind(blocks["a"]["x"], ExternalBuffer(NUMBERS.copy(), version=0))
    engine.step()
    engine.set(blocks["b"]["gain"], 7.0)
    engine.bind(blocks["a"]["x"], ExternalBuffer(NUMBERS + 2, version=0))
    edit(engine, blocks["c"], lambda x: x + 3.0)
    engine.step()
    assert levels(engine) == {"a": Level.WARM, "b": Level.HOT, "c": Level.CODE}
    np.testing.assert_array_equal(engine.read(blocks["d"]), (NUMBERS + 3) * 7 + (NUMBERS + 6))


def test_a_saved_source_file_is_a_code_update(executor_name, tmp_path: Path):
    """Seed 004, "KernelNode Updates": PTX changed (hot-reload). A function is swapped, so that no rebuild is needed."""
    engine, blocks = chain(executor_name)
    file = tmp_path / "shade.py"
    file.write_text("def shade(x):\n    return x * 2.0\n")
    shade = watch(engine, file, "shade")
    engine.connect(blocks["a"], shade["x"])
    engine.step()
    file.write_text("def shade(x):\n    return x * 16.0\n")
    frame = engine.step()
    assert levels(engine) == {"shade": Level.CODE}
    assert frame.ran == ("shade",)
    np.testing.assert_array_equal(engine.read(shade), (NUMBERS + 1) * 16)


# --- CapturedNode updates --------------------------------------------------------------------------------------------


@pytest.fixture
def scale(executor_name) -> Callable[..., None]:
    """A library call on the memory of each executor: `result = x * factor`."""
    if executor_name == "cpu":
        return lambda stream, x, factor, result: np.multiply(x, factor, out=result)
    cupy = pytest.importorskip("cupy")

    def scale_on_device(stream, x, factor, result):
        with cupy.cuda.ExternalStream(int(stream)):
            number = factor if isinstance(factor, float | np.floating) else cupy.asarray(factor)
            cupy.multiply(cupy.asarray(x), number, out=cupy.asarray(result))

    return scale_on_device


def with_library_call(executor_name, scale, **options):
    """a → scaled → after, where `scaled` is a call of a library between two functions."""
    engine = Engine(executor_name)
    row = {"x": Tensor(f32, (N,))}
    first = engine.add(block(lambda x, offset=1.0: x + offset, name="first", inputs=row))
    scaled = engine.add(captured_block(scale, outputs={"result": "same(0)"}, name="scaled", **options))
    after = engine.add(block(lambda x: x - 1.0, name="after", inputs=row))
    engine.set(first["x"], NUMBERS)
    engine.set(scaled["factor"], np.float32(2.0))
    engine.connect(first, scaled["x"])
    engine.connect(scaled, after["x"])
    return engine, first, scaled, after


def test_a_scalar_of_a_captured_call_means_another_capture(executor_name, scale):
    """Seed 004, "CapturedNode Updates": Scalar or pointer parameter changed."""
    engine, _, scaled, after = with_library_call(executor_name, scale)
    assert engine.step().ok, engine.frame.problems
    np.testing.assert_array_equal(engine.read(after), (NUMBERS + 1) * 2 - 1)
    engine.set(scaled["factor"], np.float32(5.0))
    frame = engine.step()
    assert levels(engine) == {"scaled": Level.RECAPTURE}
    assert frame.ran == ("scaled", "after")
    assert frame.prepared == 0
    np.testing.assert_array_equal(engine.read(after), (NUMBERS + 1) * 5 - 1)


def test_other_memory_of_a_captured_call_means_another_capture(executor_name, scale):
    """Seed 004, "CapturedNode Updates": Scalar or pointer parameter changed; what is around it is warm."""
    engine, first, _, after = with_library_call(executor_name, scale)
    engine.step()
    longer = np.arange(9, dtype=np.float32)
    engine.set(first["x"], longer)
    engine.step()
    assert levels(engine) == {"first": Level.WARM, "scaled": Level.RECAPTURE, "after": Level.WARM}
    np.testing.assert_array_equal(engine.read(after), (longer + 1) * 2 - 1)


def test_a_scalar_in_memory_is_written_without_another_capture(executor_name, scale):
    """Seed 004, "CapturedNode Updates": Scalar with DEVICE pointer mode."""
    engine, _, scaled, after = with_library_call(executor_name, scale, in_memory=("factor",))
    engine.step()
    for factor in (3.0, 7.0):
        engine.set(scaled["factor"], np.float32(factor))
        frame = engine.step()
        assert levels(engine) == {"scaled": Level.WARM}
        assert frame.ran == ("scaled", "after")
        np.testing.assert_array_equal(engine.read(after), (NUMBERS + 1) * factor - 1)


def test_captured_calls_are_added_and_removed_cold(executor_name, scale):
    """Seed 004, "CapturedNode Updates": Node added/removed."""
    engine, first, scaled, after = with_library_call(executor_name, scale)
    engine.step()
    other = engine.add(captured_block(scale, outputs={"result": "same(0)"}, name="other"))
    engine.connect(scaled, other["x"])
    engine.set(other["factor"], np.float32(10.0))
    frame = engine.step()
    assert levels(engine) == {"other": Level.COLD}
    assert frame.ran == ("other",)
    np.testing.assert_array_equal(engine.read(other), (NUMBERS + 1) * 20)
    engine.remove(other)
    assert engine.step().ran == ()
    assert levels(engine) == {"other": Level.COLD}
    engine.set(first["offset"], 2.0)
    engine.step()
    np.testing.assert_array_equal(engine.read(after), (NUMBERS + 2) * 2 - 1)


def test_another_call_means_another_capture(executor_name, scale):
    """Seed 004, "CapturedNode Updates": a captured call is swapped like any code."""
    engine, _, scaled, after = with_library_call(executor_name, scale)
    engine.step()
    edit(engine, scaled, lambda stream, x, factor, result: scale(stream, x, factor * np.float32(2), result))
    engine.step()
    assert levels(engine) == {"scaled": Level.RECAPTURE}
    np.testing.assert_array_equal(engine.read(after), (NUMBERS + 1) * 4 - 1)
