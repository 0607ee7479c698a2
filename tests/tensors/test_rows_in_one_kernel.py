"""Row-wise programs become one kernel however they are written, with or without `keepdims`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.compiler import compile_plan
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.target import Target
from livegrad.tensors.tracing import trace_call


def layer_norm(x: Any) -> Any:
    return (x - lg.mean(x, axis=1, keepdims=True)) / lg.sqrt(lg.var(x, axis=1, keepdims=True) + 1e-5)


def layer_norm_by_index(x: Any) -> Any:
    centred = x - lg.mean(x, axis=1)[:, None]
    return centred / lg.sqrt(lg.mean(centred * centred, axis=1) + 1e-5)[:, None]


def root_mean_square(x: Any) -> Any:
    return x * (1.0 / lg.sqrt(lg.mean(x * x, axis=1, keepdims=True) + 1e-5))


def log_softmax(x: Any) -> Any:
    shifted = x - lg.max(x, axis=-1, keepdims=True)
    return shifted - lg.log(lg.sum(lg.exp(shifted), axis=-1, keepdims=True))


def unit_rows(x: Any) -> Any:
    return x / lg.expand_dims(lg.linalg.vector_norm(x, axis=1), axis=1)


def over_several_axes(x: Any) -> Any:
    blocks = lg.reshape(x, (100, 30, 40))
    return blocks / lg.sqrt(lg.sum(blocks**2, axis=(1, 2), keepdims=True) + 1.0)


PROGRAMS = [layer_norm, layer_norm_by_index, root_mean_square, log_softmax, unit_rows, over_several_axes]


@pytest.mark.parametrize("target", [CPU, CUDA], ids=lambda target: target.name)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_over_rows_is_one_kernel(program: Callable[[Any], Any], target: Target) -> None:
    x = lg.asarray(np.random.default_rng(0).normal(size=(100, 1200)).astype(np.float32))
    function = trace_call(program, [x.type], "program").function
    assert len(compile_plan(function, target).steps) == 1


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_over_rows_has_the_values_and_gradients_of_the_reference(program: Callable[[Any], Any]) -> None:
    x = lg.asarray(np.random.default_rng(0).normal(size=(100, 1200)))

    def loss(x: Any) -> Any:
        return lg.sum(program(x) ** 3)

    values = [lg.jit(f)(x).numpy() for f in (program, lg.grad(loss))]
    reference = [f(x.to("reference")).numpy() for f in (program, lg.grad(loss))]
    for value, expected in zip(values, reference, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-9)
