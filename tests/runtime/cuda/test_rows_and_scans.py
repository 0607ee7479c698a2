"""Rows in registers of threads, and shared scans, on the simulated driver."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

from livegrad import ops
from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.codegen.cuda.launch import bind
from livegrad.compiler import OPTIONAL_ON_DEVICES, compile_plan
from livegrad.diagnostics import LivegradError
from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Tensor, f32, f64, i32
from livegrad.runtime.cuda import CudaFunction
from livegrad.schedule.loops.nest import LoopNest
from livegrad.schedule.plan import KernelStep
from livegrad.schedule.target import Target
from tests.runtime.cuda.simulate import COMPILER, simulated

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler here")


def nests_of(function: Function, target: Target = CUDA) -> list[LoopNest]:
    plan = compile_plan(function, target)
    return [bind(step, plan, True, target).nest for step in plan.steps if isinstance(step, KernelStep)]


def along_rows(x: Node, kind: str) -> Node:
    shape = x.type.shape  # type: ignore[attr-defined]
    return ops.broadcast(ops.reduce(x, kind=kind, axes=(1,)), shape=shape, axes=(0,))


def softmax(x: Node) -> Node:
    e = ops.exp(x - along_rows(x, "max"))
    return e / along_rows(e, "sum")


def normalise(x: Node) -> Node:
    count = float(x.type.shape[1])  # type: ignore[attr-defined]
    centred = x - along_rows(x, "sum") / count
    return centred / ops.sqrt(along_rows(centred * centred, "sum") / count + 1e-5)


PROGRAMS: dict[str, tuple[Callable[[Node], Node], Callable[[Any], Any]]] = {
    "softmax": (softmax, lambda x: special.softmax(x, axis=1)),
    "normalise": (normalise, lambda x: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "element"), [((3, 40), f32), ((2, 500), f64), ((2, 700), f32), ((3, 2100), f64), ((2, 4096), f32)]
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_in_registers_give_the_bits_of_rows_in_memory(
    name: str, shape: tuple[int, int], element: Scalar, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, expected = PROGRAMS[name]
    traced = trace(program, Tensor(element, shape))
    x = np.random.default_rng(0).normal(size=shape).astype(element.dtype)
    with simulated():
        in_registers = CudaFunction(traced)(x)
    np.testing.assert_allclose(in_registers, expected(x), rtol=1e-5, atol=1e-6)
    assert any(nest.kept_points for nest in nests_of(traced))
    # The size of blocks differs with and without it, so only rows of a warp are summed in the same order.
    without = CUDA.without("keep_rows")
    assert not any(nest.kept_points for nest in nests_of(traced, without))
    monkeypatch.setattr(CudaFunction, "target", without)
    with simulated():
        from_memory = CudaFunction(traced)(x)
    if shape[1] <= 512:
        np.testing.assert_array_equal(in_registers, from_memory)
    else:
        np.testing.assert_allclose(in_registers, from_memory, rtol=1e-5, atol=1e-6)


def test_a_row_is_read_once_and_needs_no_scratch_memory() -> None:
    (nest,) = nests_of(trace(softmax, Tensor(f32, (64, 8192))))
    assert (nest.kept_points, nest.rows.step) == (16, 512)
    plan = compile_plan(trace(softmax, Tensor(f32, (64, 8192))), CUDA)
    (step,) = plan.steps
    assert isinstance(step, KernelStep)
    assert bind(step, plan).scratch_bytes == 0
    (longer,) = nests_of(trace(softmax, Tensor(f32, (512, 100_000))))
    assert longer.kept_points == 0, "registers do not hold that much"


def test_one_kernel_serves_rows_of_many_lengths() -> None:
    keys = {nests_of(trace(softmax, Tensor(f32, (64, length))))[0].key for length in (4097, 5000, 8191)}
    assert len(keys) == 1


FOLDS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def _scanned(x: Any, kind: str, axis: int, reverse: bool, exclusive: bool) -> Any:
    x = np.flip(x, axis) if reverse else x
    result = FOLDS[kind].accumulate(x, axis=axis, dtype=x.dtype)
    if exclusive:
        first = np.full_like(np.take(x, [0], axis), 0 if kind == "sum" else 1)
        result = np.concatenate([first, np.take(result, range(x.shape[axis] - 1), axis)], axis)
    return np.flip(result, axis) if reverse else result


_KINDS = [("sum", False), ("sum", True), ("prod", False), ("prod", True), ("max", False), ("min", False)]
_SHAPES = [((3, 33), 1), ((2, 512), 1), ((2, 1500), 1), ((1100, 3), 0)]
_SCANS = [(*kind, *shape, reverse) for kind in _KINDS for shape in _SHAPES for reverse in (False, True)]


@pytest.mark.parametrize(("kind", "exclusive", "shape", "axis", "reverse"), random.Random(0).sample(_SCANS, 16))
@pytest.mark.parametrize("element", [f32, i32])
def test_scans_that_threads_share_equal_numpys(
    kind: str, shape: tuple[int, ...], axis: int, reverse: bool, exclusive: bool, element: Scalar
) -> None:
    numbers = np.random.default_rng(1)
    x = numbers.uniform(0.98, 1.02, shape) if kind == "prod" else numbers.normal(size=shape) * 100
    x = x.astype(element.dtype)
    traced = trace(
        lambda x: ops.cumulative(x, kind=kind, axis=axis, reverse=reverse, exclusive=exclusive), Tensor(element, shape)
    )
    with simulated():
        result = CudaFunction(traced)(x)
    wanted = _scanned(x, kind, axis, reverse, exclusive)
    if element is i32 or kind in ("max", "min"):
        np.testing.assert_array_equal(result, wanted)
    else:
        scale = 1e-3 if element is f32 else 1e-10
        np.testing.assert_allclose(result, wanted, rtol=scale, atol=scale)


@pytest.mark.parametrize(("shape", "axis", "runner"), [
    ((4096, 8192), 1, "block"), ((4096, 400), 1, "warp"), ((4096, 20), 1, "thread"), ((300, 8192), 0, "thread"),
    ((8192, 30), 0, "block"),
])  # fmt: skip
def test_whether_a_thread_or_a_block_scans_a_row(shape: tuple[int, ...], axis: int, runner: str) -> None:
    traced = trace(
        lambda x: ops.cumulative(x, kind="sum", axis=axis, reverse=False, exclusive=False), Tensor(f32, shape)
    )
    (nest,) = nests_of(traced)
    assert nest.rows.by == runner


def test_a_scan_that_is_not_associative_runs_in_order() -> None:
    traced = trace(lambda a, b: ops.recurrence(a, b, axis=1, reverse=False), *[Tensor(f32, (4096, 8192))] * 2)
    assert nests_of(traced)[0].rows.by == "thread"


def test_a_nan_stays_in_a_scan() -> None:
    x = np.random.default_rng(2).normal(size=(2, 300)).astype(np.float32)
    x[0, 100] = np.nan
    for kind in ("max", "sum"):
        traced = trace(
            lambda x, kind=kind: ops.cumulative(x, kind=kind, axis=1, reverse=False, exclusive=False),
            Tensor(f32, (2, 300)),
        )
        with simulated():
            result = CudaFunction(traced)(x)
        np.testing.assert_array_equal(np.isnan(result), np.isnan(FOLDS[kind].accumulate(x, axis=1)))


TRANSPOSED: dict[str, tuple[tuple[int, ...], Callable[[Node], Node], Callable[[Any], Any]]] = {
    "sum with its transpose": ((300, 300), lambda x: x + ops.permute(x, axes=(1, 0)), lambda x: x + x.T),
    "a batch": ((3, 170, 130), lambda x: ops.abs(ops.permute(x, axes=(0, 2, 1))), lambda x: abs(x.transpose(0, 2, 1))),
    "first axis last": ((40, 33, 50), lambda x: -ops.permute(x, axes=(1, 2, 0)), lambda x: -x.transpose(1, 2, 0)),
    "reversed": ((40, 33, 50), lambda x: -ops.permute(x, axes=(2, 1, 0)), lambda x: -x.transpose(2, 1, 0)),
    "every other row": (
        (600, 260),
        lambda x: ops.permute(ops.slice_(x, start=(1, 0), size=(299, 260), step=(2, 1)), axes=(1, 0)) * 3.0,
        lambda x: x[1:599:2].T * 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_reads_go_through_shared_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, program, expected = TRANSPOSED[name]
    traced = trace(program, Tensor(f32, shape))
    monkeypatch.setattr("livegrad.schedule.loops.device.LEAST_TILED", 1000)
    (nest,) = nests_of(traced)
    assert nest.rows.by == "tile"
    assert len(nest.tiled_reads) == 1
    assert nests_of(traced, CUDA.without("tile_transposed_reads"))[0].rows.by == "thread"
    x = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    with simulated():
        np.testing.assert_allclose(CudaFunction(traced)(x), expected(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_random_transposed_reads_give_the_bits_of_reads_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random_numbers = random.Random(seed)
    shape = random_numbers.randrange(80, 130), random_numbers.randrange(2, 5), random_numbers.randrange(65, 100)
    axes = random_numbers.choice([(2, 1, 0), (1, 2, 0)])
    step = random_numbers.choice([1, 2])

    def program(x: Node) -> Node:
        rows = -(-shape[0] // step)
        thinned = ops.slice_(x, start=(0, 0, 0), size=(rows, *shape[1:]), step=(step, 1, 1))
        moved = ops.permute(thinned, axes=axes)
        return ops.sin(moved) * 0.5 + moved

    traced = trace(program, Tensor(f32, shape))
    x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    monkeypatch.setattr("livegrad.schedule.loops.device.LEAST_TILED", 1000)
    without = CUDA.without("tile_transposed_reads")
    assert nests_of(traced)[0].rows.by == "tile"
    assert nests_of(traced, without)[0].rows.by == "thread"
    with simulated():
        in_tiles = CudaFunction(traced)(x)
    monkeypatch.setattr(CudaFunction, "target", without)
    with simulated():
        np.testing.assert_array_equal(in_tiles, CudaFunction(traced)(x))


def test_every_optional_pass_for_devices_is_left_out_by_a_random_test() -> None:
    here = Path(__file__).parent
    text = "".join((here / name).read_text("utf-8") for name in ("test_chosen_elements.py", "test_rows_and_scans.py"))
    assert [name for name in OPTIONAL_ON_DEVICES if f'CUDA.without("{name}")' not in text] == []


def test_a_failed_check_in_a_tile_names_its_element(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("livegrad.schedule.loops.device.LEAST_TILED", 1000)
    traced = trace(
        lambda x: ops.floor_div(ops.permute(x, axes=(1, 0)), ops.permute(x, axes=(1, 0))), Tensor(i32, (70, 90))
    )
    assert nests_of(traced)[0].rows.by == "tile"
    x = np.ones((70, 90), np.int32)
    x[40, 5] = 0
    with simulated(), pytest.raises(LivegradError, match=f"at element {5 * 70 + 40}"):
        CudaFunction(traced)(x)
