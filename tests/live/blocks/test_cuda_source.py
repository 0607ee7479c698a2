"""The heads of kernels in CUDA C, read without a device."""

from livegrad.live.blocks.cuda_source import read_head

SOURCE = """
// the distance: to nothing
extern "C" __global__ void scale(
    const float* x,  // not negative, and not NaN
    /* the
       gain */ float gain,
    float* y  // no alias of x
) { y[threadIdx.x] = gain * x[threadIdx.x]; }
"""


def test_comments_between_parameters_are_left_out():
    symbol, parameters = read_head(SOURCE, {"y": "same"}, {}, {})
    assert symbol == "scale"
    assert [(p.name, p.kind) for p in parameters] == [("x", "input"), ("gain", "number"), ("y", "output")]
