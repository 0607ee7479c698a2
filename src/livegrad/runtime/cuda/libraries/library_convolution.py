"""Large convolutions and the gradients of their kernels, with cuDNN where it is installed.

The gradient of kernels is a convolution of the image with the cotangents, both with batch and channels swapped. cuDNN
reads both as they are. `device_convolution.py` has our kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal

from livegrad.codegen.cuda.kernel_values import memory_type
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, f32, f64
from livegrad.ops.convolution import convolve, window_count
from livegrad.ops.movement import permute, sizes
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import check, driver
from livegrad.runtime.cuda.libraries import cudnn
from livegrad.runtime.cuda.libraries.cudnn import ConvolutionPlan, Problem
from livegrad.runtime.cuda.libraries.library_call import LibraryCall, launch_kernel
from livegrad.runtime.cuda.modules import load_function
from livegrad.schedule.plan import Buffer, HostStep

# Multiplications and additions. A smaller convolution is over before cuDNN has been called.
_LEAST_OPERATIONS = 5e8
# Products of an element. With 576, our kernel takes 0.36 ms and cuDNN 0.43; with 2,304, 2.7 and 1.8.
_LEAST_INNER = 1024
_ALIGNMENT = 16

_SWAP = """\
struct Arguments { const number* from; number* to; long long rows, columns, each; };
extern "C" __global__ void swap_axes(const __grid_constant__ Arguments a)
{
    const long long step = (long long)gridDim.x * blockDim.x, count = a.rows * a.columns * a.each;
    for (long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x; e < count; e += step)
        a.to[(e / a.each % a.columns * a.rows + e / a.each / a.columns) * a.each + e % a.each] = a.from[e];
}
"""


class LibraryConvolution:
    """A convolution by a plan of cuDNN."""

    def __init__(self, problem: Problem, plan: ConvolutionPlan) -> None:
        self.problem, self._plan = problem, plan
        self._is_gradient = problem.kind == "kernel gradient"
        self._memory: dict[str, DeviceMemory] = {}
        self._text = f"typedef {memory_type(problem.element)} number;\n{_SWAP}"

    @property
    def name(self) -> str:
        return f"{self.problem.kind} {'x'.join(map(str, self.problem.kernels))}"

    def prepare(self) -> None:
        """Allocates memory for the gradient before its first axes are swapped."""
        if self._is_gradient:
            load_function(self._text, "convolutions", "swap_axes")
            self._place("gradient", self._bytes(self.problem.result))

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        """Enqueues the operation on an image and kernels, or on an image and cotangents."""
        shapes = (self.problem.image, self.problem.kernels)
        image, kernels = [
            self._aligned(stream, address, self._bytes(shape), name)
            for address, shape, name in zip(operands, shapes, ("image", "kernels"), strict=True)
        ]
        if not self._is_gradient:
            self._plan.enqueue(stream, image, kernels, result)
            return
        gradient = self._place("gradient", self._bytes(self.problem.result))
        self._plan.enqueue(stream, image, kernels, gradient)
        rows, columns, *window = self.problem.result
        slots = (gradient, result, rows, columns, prod(window))
        launch_kernel(load_function(self._text, "convolutions", "swap_axes"), stream, prod(self.problem.result), slots)

    def _bytes(self, shape: Sequence[int]) -> int:
        return prod(shape) * self.problem.element.dtype.itemsize

    def _place(self, name: str, size: int) -> int:
        if name not in self._memory:
            self._memory[name] = DeviceMemory(size)
        return self._memory[name].address

    def _aligned(self, stream: Any, address: int, size: int, name: str) -> int:
        """The address of an operand, or of a copy if rows of a larger array begin at any element."""
        if address % _ALIGNMENT == 0:
            return address
        copy = self._place(name, size)
        check(driver.cuMemcpyDtoDAsync(copy, address, size, stream))
        return copy


def library_convolution(step: HostStep) -> LibraryCall | None:
    """The call of a step; None if cuDNN is missing or has no plan, or if our kernels are done sooner."""
    node, result = step.function.results[0], step.result
    problem = _problem_of(node) if isinstance(result, Buffer) else None
    plan = None if problem is None else cudnn.plan_of(problem)
    return None if problem is None or plan is None else LibraryConvolution(problem, plan)


def reads_swapped(node: Node, operand: Node) -> bool:
    """Whether a convolution reads an operand with batch and channels swapped without a copy."""
    if node.op is not convolve or cudnn.library() is None or not _is_swapped(operand):
        return False
    problem = _problem_of(node)
    return problem is not None and cudnn.plan_of(problem) is not None


def _problem_of(node: Node) -> Problem | None:
    image, kernels = node.operands
    if not isinstance(image.type, Tensor) or image.type.element not in (f32, f64) or cudnn.library() is None:
        return None
    if any(0 in sizes(one) for one in (image, kernels, node)) or any(map(any, node.attribute("padding"))):
        return None
    strides, dilation = node.attribute("strides"), node.attribute("dilation")
    if 2.0 * prod(sizes(node)) * prod(sizes(kernels)[1:]) < _LEAST_OPERATIONS:
        return None
    if _is_swapped(image) and _is_swapped(kernels) and node.attribute("groups") == 1:
        source, cotangents = image.operands[0], kernels.operands[0]
        channels, outputs, *window = sizes(node)
        counts = [
            window_count(size, extent, stride, step)
            for size, extent, stride, step in zip(sizes(source)[2:], window, dilation, strides, strict=True)
        ]
        if counts != list(sizes(cotangents)[2:]):
            return None
        result = (outputs, channels, *window)
        # The gradient moves by the steps between elements of the cotangents, and the other way round.
        return _problem(
            "kernel gradient", image.type.element, sizes(source), sizes(cotangents), result, dilation, strides
        )
    if permute in (image.op, kernels.op) or prod(sizes(kernels)[1:]) < _LEAST_INNER:
        return None
    return _problem("forward", image.type.element, sizes(image), sizes(kernels), sizes(node), strides, dilation)


def _problem(
    kind: Literal["forward", "kernel gradient"],
    element: Any,
    image: tuple[int, ...],
    kernels: tuple[int, ...],
    result: tuple[int, ...],
    strides: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Problem:
    """A problem of at least two dimensions, as cuDNN wants it."""
    if len(strides) == 1:
        image, kernels, result = [(*shape[:2], 1, *shape[2:]) for shape in (image, kernels, result)]
        strides, dilation = (1, *strides), (1, *dilation)
    return Problem(kind, element, tuple(image), tuple(kernels), tuple(result), tuple(strides), tuple(dilation))


def _is_swapped(operand: Node) -> bool:
    """Whether an operand is a tensor with its first two axes swapped."""
    if operand.op is not permute:
        return False
    axes = operand.attribute("axes")
    return axes == (1, 0, *range(2, len(axes)))
