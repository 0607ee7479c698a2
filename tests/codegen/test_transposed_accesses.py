"""Transposed, reversed and strided tensors: full loads instead of gathers, with the same values."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livegrad.codegen.llvm.kernel_module import emit_kernel
from livegrad.compiler import lower_loops
from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Tensor, bool_, f16, f32, f64, i32, i64, shape_of, u8
from livegrad.ops.comparison import equal
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import select
from livegrad.ops.movement import broadcast, flip, index_along, permute, slice_
from livegrad.ops.reduction import cumulative, reduce
from livegrad.runtime.cpu import CpuFunction, compiled_plan, kernel_code
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.memory_pool import aligned_memory
from livegrad.runtime.cpu.native.pool import set_threads, threads
from livegrad.runtime.reference import evaluate
from livegrad.schedule.loops.nest import for_cpu
from livegrad.schedule.plan import KernelStep
from tests.codegen.llvm_instructions import calls, instructions
from tests.schedule.plans import along, plan_of, softmax, total

GATHER, SCATTER = "llvm.masked.gather", "llvm.masked.scatter"


def transposed(x: Node) -> Node:
    return permute(x, axes=tuple(reversed(range(len(shape_of(x.type))))))


def modules(function: Callable[..., object] | Function, *types: Tensor, vector_bytes: int = 64) -> list[str]:
    """The LLVM modules of all kernels of a function."""
    steps = [step for step in plan_of(function, *types).steps if isinstance(step, KernelStep)]
    nests = [lower_loops(for_cpu(step, CPU, vector_bytes)) for step in steps]
    return [emit_kernel(nest).text for nest in nests]


def numbers(element: Scalar, shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    drawn = np.random.default_rng(seed).integers(0, 50, shape)
    return (drawn % 2).astype(bool) if element is bool_ else drawn.astype(element.dtype)


def agrees(function: Function, *given: np.ndarray[Any, Any]) -> None:
    found, expected = CpuFunction(function)(*given), evaluate(function, *given)
    several = isinstance(expected, tuple)
    for one, other in zip(found if several else [found], expected if several else [expected], strict=True):
        np.testing.assert_array_equal(one, other)


# --- emitted code -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("element", [f32, f64, i32, f16, u8, bool_], ids=str)
def test_a_transposed_matrix_is_neither_gathered_nor_scattered(element: Scalar) -> None:
    matrix = Tensor(element, (300, 200))
    for program in (
        lambda x: transposed(x),
        lambda x: (transposed(x), equal(transposed(x), flip(transposed(x), axes=(0,)))),
    ):
        for module in modules(program, matrix):
            assert not calls(module, GATHER)
            assert not calls(module, SCATTER)


def test_permuted_dimensions_and_sums_of_a_matrix_and_its_transpose_are_not_gathered() -> None:
    square, block = Tensor(f32, (300, 300)), Tensor(f32, (8, 40, 30, 20))
    assert not any(calls(module, GATHER) for module in modules(lambda x: x + transposed(x), square))
    for axes in ((3, 2, 1, 0), (0, 3, 1, 2), (1, 0, 3, 2), (0, 2, 1, 3)):
        (module,) = modules(lambda x, axes=axes: permute(x, axes=axes) + 1.0, block)
        assert not calls(module, GATHER)


def test_scans_and_short_rows_are_transposed_in_tiles() -> None:
    rows, short = Tensor(f32, (500, 100)), Tensor(f32, (500, 10))
    scan = cumulative_rows
    programs = ((scan, rows), (lambda x: softmax(x, 1), short), (lambda x: total(x, 1), short))
    for module in (module for program, type in programs for module in modules(program, type)):
        assert any(instruction.opcode == "alloca" for instruction in instructions(module))
        assert not calls(module, GATHER)
        assert not calls(module, SCATTER)


def test_reductions_of_a_product_with_a_transpose_are_not_gathered() -> None:
    square = Tensor(i32, (300, 300))
    for axis in (0, 1):
        function = trace(lambda x, y, axis=axis: total(x * transposed(y), axis), square, square)
        assert not any(calls(module, GATHER) for module in modules(function, square, square))
        agrees(function, numbers(i32, (300, 300)), numbers(i32, (300, 300), 1))


@pytest.mark.parametrize("step", [-1, 2, 3, 4])
def test_small_strides_are_gathered_only_at_the_end_of_a_row(step: int) -> None:
    def program(x: Node) -> Node:
        if step < 0:
            return flip(x, axes=(1,)) * 2.0
        return slice_(x, start=(0, 1), size=(100, 99), step=(1, step)) * 2.0

    (module,) = modules(program, Tensor(f32, (100, 400)))
    (gather,) = calls(module, GATHER)
    assert gather.type == "<32 x float>"
    whole = {own.block for own in instructions(module) if own.opcode == "load" and own.type.startswith("<")}
    assert whole
    assert gather.block not in whole  # only for the remaining lanes


# --- values -----------------------------------------------------------------------------------------------------------


def cumulative_rows(x: Node) -> Node:
    return cumulative(x, kind="sum", axis=1, reverse=False, exclusive=False)


def cumulative_back(x: Node) -> Node:
    return cumulative(x, kind="sum", axis=1, reverse=True, exclusive=True)


@pytest.mark.parametrize("size", [(5, 300), (300, 5), (15, 17), (129, 100), (1100, 31)], ids=str)
@pytest.mark.parametrize("element", [f16, f32, f64, i32, u8, bool_], ids=str)
def test_transposes_of_every_size_and_element_are_exact(element: Scalar, size: tuple[int, int]) -> None:
    types = Tensor(element, size), Tensor(element, size[::-1])
    function = trace(lambda x, y: (transposed(x), select(equal(x, transposed(y)), x, transposed(y))), *types)
    agrees(function, numbers(element, size), numbers(element, size[::-1], 1))


@pytest.mark.parametrize("size", [(70, 9), (129, 16), (1000, 33)], ids=str)
@pytest.mark.parametrize("element", [f32, i64, u8], ids=str)
def test_scans_along_rows_are_exact(element: Scalar, size: tuple[int, int]) -> None:
    agrees(trace(lambda x: (cumulative_rows(x), cumulative_back(x)), Tensor(element, size)), numbers(element, size))


def test_types_of_different_widths_share_a_tile() -> None:
    def program(x: Node, y: Node, z: Node) -> tuple[Node, Node]:
        return transposed(cast(x, type=f64)) + cast(transposed(y), type=f64) + z, transposed(y)

    types = Tensor(f32, (70, 90)), Tensor(u8, (70, 90)), Tensor(f64, (90, 70))
    agrees(trace(program, *types), *[numbers(type.element, type.shape) for type in types])  # type: ignore[arg-type]


def test_indices_are_correct_when_dimensions_are_permuted() -> None:
    def program(x: Node) -> Node:
        flipped = transposed(x)
        shape = shape_of(flipped.type)
        return flipped * 1000.0 + cast(index_along(shape, 0) * 7 + index_along(shape, 1), type=f32)

    agrees(trace(program, Tensor(f32, (50, 37))), numbers(f32, (50, 37)))


# --- any view ---------------------------------------------------------------------------------------------------------

SIZES = st.sampled_from([1, 2, 3, 7, 16, 17, 40, 65])


@st.composite
def views(draw: st.DrawFn) -> tuple[tuple[int, ...], Callable[[Node], Node]]:
    """A shape of at most three dimensions, and a sequence of movement ops."""
    shape = tuple(draw(SIZES) for _ in range(draw(st.integers(1, 3))))
    moves = [draw(st.sampled_from(["permute", "flip", "slice", "broadcast"])) for _ in range(draw(st.integers(1, 4)))]
    seed = draw(st.integers(0, 1000))

    def move(x: Node) -> Node:
        rng = np.random.default_rng(seed)
        for kind in moves:
            own: tuple[int, ...] = shape_of(x.type)  # type: ignore[assignment]
            if kind == "permute":
                x = permute(x, axes=tuple(int(axis) for axis in rng.permutation(len(own))))
            elif kind == "flip":
                x = flip(x, axes=(int(rng.integers(len(own))),))
            elif kind == "slice":
                start = tuple(int(rng.integers((size + 3) // 4)) for size in own)
                step = tuple(int(rng.integers(1, 5)) for _ in own)
                size = tuple(-(-(extent - first) // by) for extent, first, by in zip(own, start, step, strict=True))
                x = slice_(x, start=start, size=size, step=step)
            elif len(own) < 4:
                place, size = int(rng.integers(len(own) + 1)), int(rng.integers(1, 6))
                axes = tuple(axis + (axis >= place) for axis in range(len(own)))
                x = broadcast(x, shape=(*own[:place], size, *own[place:]), axes=axes)
        return x

    return shape, move


@settings(max_examples=20, deadline=None, derandomize=True)
@given(views(), st.sampled_from([f32, f64, i32, u8]), st.sampled_from(["sum", "max", "none", "running"]))
def test_any_view_agrees_with_the_reference(
    view: tuple[tuple[int, ...], Callable[[Node], Node]], element: Scalar, then: str
) -> None:
    shape, move = view

    def program(x: Node, y: Node) -> Node:
        seen = move(x) + move(y)
        rank = len(shape_of(seen.type))
        if then == "running":
            return cumulative(seen, kind="sum", axis=rank - 1, reverse=False, exclusive=False)
        if then == "none":
            return seen + flip(seen, axes=(0,))
        return along(total(seen, rank - 1, then), seen, rank - 1) + seen

    function = trace(program, Tensor(element, shape), Tensor(element, shape))
    agrees(function, numbers(element, shape), numbers(element, shape, 1))


# --- the same bits everywhere -----------------------------------------------------------------------------------------


@pytest.fixture
def _keep_threads() -> Iterator[None]:
    before = threads()
    yield
    set_threads(before)


def several(x: Node) -> tuple[Node, ...]:
    return softmax(x, 1), cumulative_rows(x), transposed(x) * 0.3, flip(x, axes=(1,)), total(x * x, 1)


@pytest.mark.usefixtures("_keep_threads")
def test_threads_and_tiers_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).standard_normal((500, 13)).astype(np.float32)
    function = trace(several, Tensor(f32, (500, 13)))
    found = set()
    for choice in ("baseline", "optimised"):
        monkeypatch.setitem(os.environ, "LIVEGRAD_CODE", choice)
        compiled = CpuFunction(function)
        for count in (1, 2, 5):
            set_threads(count)
            found.add(b"".join(np.asarray(part).tobytes() for part in compiled(values)))
    assert len(found) == 1


@pytest.mark.parametrize("vector_bytes", [16, 32])
def test_narrower_vectors_give_the_same_values(vector_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = replace(kernel_code.host_target(), vector_bytes=vector_bytes)
    monkeypatch.setattr(kernel_code, "host_target", lambda: narrow)
    agrees(
        trace(lambda x: (transposed(x) + 1.0, cumulative_rows(x), flip(x, axes=(1,))), Tensor(f32, (70, 45))),
        numbers(f32, (70, 45)),
    )
    agrees(
        trace(lambda x: (transposed(x), reduce(x, kind="max", axes=(1,))), Tensor(u8, (90, 21))), numbers(u8, (90, 21))
    )


# --- non-temporal stores ----------------------------------------------------------------------------------------------

LARGE = 1 << 22  # float32 elements: 16 MB


def test_only_large_results_have_non_temporal_stores() -> None:
    def stores(function: Callable[..., object], *types: Tensor) -> list[bool]:
        kernels = [instructions(module) for module in modules(function, *types)]
        return [any(instruction.is_non_temporal for instruction in kernel) for kernel in kernels]

    assert stores(lambda x: x + 1.0, Tensor(f32, (LARGE,))) == [True]
    assert stores(lambda x: transposed(x), Tensor(f32, (2048, 2048))) == [True]
    assert stores(lambda x: x + 1.0, Tensor(f32, (LARGE // 2,))) == [False]
    assert stores(lambda x: x + 1.0, Tensor(f32, (LARGE // 1000, 1001))) == [True]  # one long dimension
    assert stores(lambda x: transposed(x), Tensor(f32, (2112, 2001))) == [True]
    assert stores(lambda x: transposed(x), Tensor(f32, (2001, 2100))) == [False]  # rows are not aligned to cache lines
    assert stores(lambda x: total(x, 0), Tensor(f32, (2048, 2048)))[-1] is False


@pytest.mark.parametrize("shift", [0, 1], ids=["at a line", "between lines"])
def test_large_results_are_exact_at_any_alignment(shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "LIVEGRAD_CODE", "optimised")

    def maker(element: Scalar, shape: tuple[int, ...], size: int) -> Callable[[], np.ndarray[Any, Any]]:
        place = aligned_memory(size + 64)[4 * shift :][:size]
        return lambda: place.view(element.dtype).reshape(shape)

    monkeypatch.setattr(compiled_plan, "result_maker", maker)
    values = np.arange(LARGE + 5, dtype=np.int32)
    np.testing.assert_array_equal(CpuFunction(trace(lambda x: x * 3, Tensor(i32, (LARGE + 5,))))(values), values * 3)
    square = values[:LARGE].reshape(2048, 2048)
    np.testing.assert_array_equal(
        CpuFunction(trace(lambda x: transposed(x) + 1, Tensor(i32, (2048, 2048))))(square), square.T + 1
    )
