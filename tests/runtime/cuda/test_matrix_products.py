"""Layouts of matrix products: what cuBLAS reads and writes, compared with NumPy without a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from livegrad import ops
from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.compiler import compile_plan
from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, f32, f64
from livegrad.runtime.cuda.libraries import cublas
from livegrad.runtime.cuda.libraries.cublas import Matrices, MatrixProduct, matmul_call
from livegrad.schedule.plan import Buffer, HostStep, KernelStep


@pytest.fixture(autouse=True)
def _cublas_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublas, "library", lambda: "never called")


def host_steps(function: Function) -> list[HostStep]:
    plan = compile_plan(function, CUDA)
    return [step for step in plan.steps if isinstance(step, HostStep)]


def product_of(function: Function) -> MatrixProduct:
    (step,) = host_steps(function)
    call = matmul_call(step)
    assert isinstance(call, MatrixProduct)
    return call


def _offsets(matrices: Matrices, index: tuple[int, ...], rows: int, columns: int) -> Any:
    start = sum(digit * step for digit, step in zip(index, matrices.steps, strict=True))
    down, across = np.arange(rows)[:, None], np.arange(columns)
    return start + (across * matrices.lead + down if matrices.transposed else down * matrices.lead + across)


def compute(product: MatrixProduct, first: Any, second: Any, size: int) -> Any:
    """What the library computes, element by element."""
    result = np.full(size, np.nan)
    rows, columns, inner = product.rows, product.columns, product.inner
    for index in np.ndindex(product.batch):
        a = first.ravel()[_offsets(product.first, index, rows, inner)]
        b = second.ravel()[_offsets(product.second, index, inner, columns)]
        result[_offsets(product.result, index, rows, columns)] = a @ b
    return result


def random_operand(random: Any, batch: tuple[int, ...], rows: int, columns: int) -> tuple[Any, tuple[int, ...]]:
    """An array, and a permutation of its axes to a batch of matrices; some batch axes broadcast, some are absent."""
    shared_axes = batch[int(random.integers(0, len(batch) + 1)) :]
    wanted = [*[1 if random.random() < 0.3 else size for size in shared_axes], rows, columns]
    axes = np.arange(len(wanted)) if random.random() < 0.3 else random.permutation(len(wanted))
    return random.normal(size=[wanted[position] for position in np.argsort(axes)]), tuple(axes.tolist())


def _matrices_of(x: Node, axes: tuple[int, ...]) -> Node:
    return x if axes == tuple(sorted(axes)) else ops.permute(x, axes=axes)


@pytest.mark.parametrize("seed", range(150))
def test_any_layout_and_batch_is_one_library_call(seed: int) -> None:
    random = np.random.default_rng(seed)
    batch = tuple(random.choice([1, 2, 3, 4], int(random.integers(0, 5))).tolist())
    rows, inner, columns = random.choice([1, 2, 3, 5], 3).tolist()
    (a, axes_a), (b, axes_b) = (random_operand(random, batch, *matrix) for matrix in ((rows, inner), (inner, columns)))

    def function(x: Node, y: Node) -> Node:
        return ops.matmul(_matrices_of(x, axes_a), _matrices_of(y, axes_b))

    traced = trace(function, Tensor(f64, a.shape), Tensor(f64, b.shape))
    expected = np.transpose(a, axes_a) @ np.transpose(b, axes_b)
    (step,) = host_steps(traced)
    product = matmul_call(step)
    assert isinstance(product, MatrixProduct)
    assert len(product.batch) <= max(1, len(batch))
    # An operand that the library cannot read in place was copied.
    memory = [
        array if isinstance(slot, Buffer) and slot.lifetime == "external" else np.transpose(array, axes).copy()
        for slot, array, axes in zip(_operand_slots(step), (a, b), (axes_a, axes_b), strict=True)
    ]
    result = compute(product, memory[0], memory[1], expected.size)
    np.testing.assert_allclose(result.reshape(expected.shape), expected, rtol=1e-12, atol=1e-12)


def _operand_slots(step: HostStep) -> list[Any]:
    nodes = [node.operands[0] if node.op is ops.permute else node for node in step.function.results[0].operands]
    return [step.operands[node.attribute("index")] for node in nodes]


def test_interleaved_attention_heads_are_read_in_place() -> None:
    def scores(q: Node, k: Node) -> Node:  # (batch, position, head, channel)
        return ops.matmul(ops.permute(q, axes=(0, 2, 1, 3)), ops.permute(k, axes=(0, 2, 3, 1)))

    traced = trace(scores, *[Tensor(f32, (8, 16, 4, 32))] * 2)
    assert not any(isinstance(step, KernelStep) for step in compile_plan(traced, CUDA).steps)
    product = product_of(traced)
    assert (product.batch, product.first.steps, product.second.transposed) == ((8, 4), (2048, 32), True)


def test_a_shared_right_operand_makes_the_batch_one_product() -> None:
    layer = trace(lambda x, w: ops.matmul(x, w), Tensor(f32, (8, 16, 32)), Tensor(f32, (32, 64)))
    product = product_of(layer)
    assert (product.batch, product.rows, product.columns) == ((), 128, 64)


def test_operands_without_contiguous_rows_or_columns_are_copied_first() -> None:
    def function(x: Node, w: Node) -> Node:
        return ops.matmul(ops.permute(x, axes=(2, 1, 0)), w)

    traced = trace(function, Tensor(f32, (5, 6, 4)), Tensor(f32, (5, 3)))
    kinds = [type(step) for step in compile_plan(traced, CUDA).steps]
    assert kinds == [KernelStep, HostStep]
    assert product_of(traced).batch == (), "what was copied is dense, and the batch is rows of one product"
