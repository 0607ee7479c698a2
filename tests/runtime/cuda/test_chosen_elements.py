"""Kernels that choose among concatenated parts, padding and sources at each element, on the simulated driver."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.codegen.cuda.launch import bind, reciprocal_of
from livegrad.compiler import compile_plan
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, f32, i64
from livegrad.ir.walk import nodes_of
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import sizes
from livegrad.runtime.cuda import CudaFunction
from livegrad.runtime.reference import evaluate
from livegrad.schedule.plan import KernelStep, Plan
from livegrad.schedule.target import Target
from livegrad.tensors.handle import wrap
from tests.runtime.cuda.simulate import COMPILER, simulated

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")
TARGETS = {
    "usual": CUDA,
    "parts are copied": CUDA.without("select_parts"),
    "positions have 64 bits": CUDA.without("narrow_positions"),
}


class _Programs:
    """Random movement of elements, with arithmetic between."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def program(self, count: int) -> Callable[[Node, Node], Node]:
        def run(x: Node, y: Node) -> Node:
            values = [x, y]
            for _ in range(count):
                values.append(self.step(values))
            return values[-1]

        return run

    def step(self, values: list[Node]) -> Node:
        x = self.random.choice(values[-3:])
        move = self.random.choice([self.roll, self.join, self.pad, self.cut, self.flip, self.turn, self.combine])
        return move(x, self.random.choice(values))

    def combine(self, x: Node, y: Node) -> Node:
        """Arithmetic with the largest common corner of another value."""
        size = tuple([min(a, b) for a, b in zip(sizes(x), sizes(y), strict=True)])
        return _corner(x, size) * 0.5 + ops.sin(_corner(y, size))

    def roll(self, x: Node, _: Node) -> Node:
        axis = self.random.randrange(2)
        shift = self.random.randrange(sizes(x)[axis])
        if shift == 0:
            return -x
        return ops.concatenate(_part(x, axis, shift, None), _part(x, axis, 0, shift), axis=axis)

    def join(self, x: Node, y: Node) -> Node:
        axis = self.random.randrange(2)
        if sizes(x)[axis] > 40:
            return x + 1.0
        other = [*sizes(x)]
        other[axis] = sizes(y)[axis]
        fits = all(a <= b for a, b in zip(other, sizes(y), strict=True))
        parts = [x, _corner(y, tuple(other)) if fits else x * 2.0]
        self.random.shuffle(parts)
        return ops.concatenate(*parts, axis=axis)

    def pad(self, x: Node, _: Node) -> Node:
        low, high = ([self.random.randrange(3) for _ in range(2)] for _ in range(2))
        fill = constant(self.random.choice([0.0, 2.5]), f32)
        return ops.pad(x, fill, low=tuple(low), high=tuple(high), interior=(0, 0))

    def cut(self, x: Node, _: Node) -> Node:
        start, size, step = [], [], []
        for extent in sizes(x):
            step.append(self.random.choice([1, 1, 2]) if extent > 6 else 1)
            start.append(self.random.randrange(max(1, extent // 3)))
            size.append((extent - start[-1] - 1) // step[-1] + 1)
        return ops.slice_(x, start=tuple(start), size=tuple(size), step=tuple(step))

    def flip(self, x: Node, _: Node) -> Node:
        return ops.flip(x, axes=(self.random.randrange(2),))

    def turn(self, x: Node, _: Node) -> Node:
        return ops.permute(x, axes=(1, 0))


def _part(x: Node, axis: int, start: int, stop: int | None) -> Node:
    size = [*sizes(x)]
    starts = [0] * len(size)
    starts[axis], size[axis] = start, (size[axis] if stop is None else stop) - start
    return ops.slice_(x, start=tuple(starts), size=tuple(size), step=(1,) * len(size))


def _corner(x: Node, size: tuple[int, ...]) -> Node:
    return ops.slice_(x, start=(0,) * len(size), size=size, step=(1,) * len(size))


def _run(function: Function, target: Target, monkeypatch: pytest.MonkeyPatch, *arrays: Any) -> Any:
    with monkeypatch.context() as patch, simulated():
        patch.setattr(CudaFunction, "target", target)
        return CudaFunction(function)(*arrays)


def kernels_of(plan: Plan) -> list[KernelStep]:
    return [step for step in plan.steps if isinstance(step, KernelStep)]


@pytest.mark.parametrize("seed", range(24))
def test_random_movement_gives_the_same_bits_however_it_is_read(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = _Programs(seed)
    shapes = [(5, 7), (9, 6)]
    function = trace(programs.program(3 + seed % 8), *[Tensor(f32, shape) for shape in shapes])
    numbers = np.random.default_rng(seed)
    arrays = [numbers.normal(size=shape).astype(np.float32) for shape in shapes]
    if seed % 3 == 0:
        monkeypatch.setattr("livegrad.schedule.loops.device.SHORT_INDEX", 1)  # as for very large buffers
    results = {name: _run(function, target, monkeypatch, *arrays) for name, target in TARGETS.items()}
    for name, result in results.items():
        np.testing.assert_array_equal(result, results["usual"], err_msg=name)
    np.testing.assert_allclose(results["usual"], evaluate(function, *arrays), rtol=1e-5, atol=1e-5)


def _shift(x: Any) -> Any:
    rows = lg.roll(x, 1, axis=0) + lg.roll(x, -1, axis=0)
    return rows + lg.roll(x, 1, axis=1) + lg.roll(x, -1, axis=1) - 4.0 * x


def test_a_periodic_stencil_is_one_kernel_that_copies_nothing() -> None:
    function = trace(lambda x: _shift(wrap(x)).node, Tensor(f32, (64, 80)))
    (step,) = kernels_of(compile_plan(function, CUDA))
    assert sum(node.op.name == "lookup_or" for node in nodes_of(step.kernel.stages[0].body)) == 4
    assert len(kernels_of(compile_plan(function, TARGETS["parts are copied"]))) > 4


def test_nested_concatenations_do_not_multiply_without_limit() -> None:
    def spread(x: Node) -> Node:
        for _ in range(12):
            x = ops.concatenate(_part(x, 0, 1, None), _part(x, 0, 0, 1), axis=0) + ops.flip(x, axes=(0,))
        return x

    steps = kernels_of(compile_plan(trace(spread, Tensor(f32, (64, 64))), CUDA))
    assert max(len(nodes_of(stage.body)) for step in steps for stage in step.kernel.stages) < 200


def test_positions_in_range_by_the_sizes_need_no_check() -> None:
    def gathered(table: Any, rows: Any) -> Any:
        return wrap(table)[wrap(rows)] * 2.0

    function = trace(lambda table, rows: gathered(table, rows).node, Tensor(f32, (50, 8)), Tensor(i64, (20,)))
    (step,) = kernels_of(compile_plan(function, CUDA))
    nest = bind(step, compile_plan(function, CUDA), True, CUDA).nest
    (read,) = [node for node in nodes_of(nest.kernel.stages[0].body) if node.op is lookup]
    assert read.attribute("in_range") == (1,), "the row may be out of range, the column cannot"
    table, rows = np.arange(400, dtype=np.float32).reshape(50, 8), np.array([*range(19), 50])
    with simulated():
        compiled = CudaFunction(function)
        with pytest.raises(lg.LivegradError, match="index out of range for axis 0"):
            compiled(table, rows)
        np.testing.assert_array_equal(compiled(table, rows - 1), 2.0 * table[rows - 1])


def test_quotients_are_exact_for_all_numbers_that_indices_reach() -> None:
    choose = random.Random(0)
    powers = [1 << bits for bits in range(1, 31)]
    divisors = [*range(2, 200), *powers, *(power - 1 for power in powers[1:]), *(power + 1 for power in powers)]
    for divisor in divisors + [choose.randrange(2, 1 << 31) for _ in range(2000)]:
        reciprocal = reciprocal_of(divisor)
        factor, shift = reciprocal & 0xFFFFFFFF, reciprocal >> 32
        most = ((1 << 31) - 1) // divisor
        multiples = [divisor * choose.randint(1, max(1, most)) for _ in range(20)]
        for number in [0, 1, (1 << 31) - 1, *multiples, *(multiple - 1 for multiple in multiples)]:
            if number < 1 << 31:
                assert (number * factor >> 32) >> (shift - 1) == number // divisor
