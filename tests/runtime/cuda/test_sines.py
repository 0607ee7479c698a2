"""Sine and cosine of single precision, as kernels have them: their text runs as OpenCL C where there is no GPU.

`test_folds_and_loops.py` runs them on one.
"""

import re
from typing import Any

import numpy as np
import pytest

from livegrad.codegen.cuda.prelude import library

pyopencl: Any = pytest.importorskip("pyopencl")
pytestmark = pytest.mark.opencl

_KERNEL = """
__kernel void evaluate(__global const float* x, __global float* y)
{
    const size_t i = get_global_id(0);
    float sine, cosine;
    lg_sincos(x[i], &sine, &cosine);
    y[4 * i] = lg_sin(x[i]);
    y[4 * i + 1] = lg_cos(x[i]);
    y[4 * i + 2] = sine;
    y[4 * i + 3] = cosine;
}
"""


def as_opencl(text: str) -> str:
    """CUDA C of functions of floats as OpenCL C, which has one name for all precisions."""
    text = text.replace("__device__ inline ", "").replace("__device__ __noinline__ ", "")
    return re.sub(r"\b(fma|fabs|sin|cos)f\(", r"\1(", text)


def waves(x: np.ndarray) -> np.ndarray:
    """By row: sine, cosine, and both from one call."""
    device = pyopencl.get_platforms()[0].get_devices()[0]
    context = pyopencl.Context([device])
    queue = pyopencl.CommandQueue(context)
    text = "\n".join(library(_KERNEL, ieee=False, largest_slot=16))
    kernel = pyopencl.Program(context, as_opencl(text) + _KERNEL).build(["-cl-std=CL1.2"]).evaluate
    flags = pyopencl.mem_flags
    input_buffer = pyopencl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=x)
    output_buffer = pyopencl.Buffer(context, flags.WRITE_ONLY, 16 * len(x))
    actual = np.empty((len(x), 4), np.float32)
    kernel(queue, (len(x),), None, input_buffer, output_buffer)
    pyopencl.enqueue_copy(queue, actual, output_buffer)
    return actual.T


def test_sine_and_cosine_are_within_one_and_a_half_ulp_where_they_reduce_themselves() -> None:
    rng = np.random.default_rng(7)
    near = rng.uniform(-71_476, 71_476, 100_000)
    turns = np.arange(1, 45_000) * (np.pi / 2)  # where one of them is nearly zero
    x = np.concatenate([near, near / 1e4, turns, 10.0 ** rng.uniform(-44, 4.8, 50_000)]).astype(np.float32)
    sine, cosine, *both = waves(x)
    exact = np.sin(x, dtype=np.float64), np.cos(x, dtype=np.float64)
    for actual, again, expected in zip((sine, cosine), both, exact, strict=True):
        last_place = np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64)
        assert np.max(np.abs(actual - expected) / last_place) <= 1.5
        np.testing.assert_array_equal(actual, again)


def test_zeros_keep_their_sign_and_infinity_has_no_sine() -> None:
    sine, cosine, *both = waves(np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32))
    np.testing.assert_array_equal(both, [sine, cosine])
    np.testing.assert_array_equal(sine, [0.0, -0.0, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(np.signbit(sine[:2]), [False, True])
    np.testing.assert_array_equal(cosine, [1.0, 1.0, np.nan, np.nan, np.nan])
