"""Large convolutions with cuDNN, where it is installed. `device_convolution.py` has our kernels."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, f32, f64
from livegrad.ops.movement import permute, sizes
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import check, driver
from livegrad.runtime.cuda.libraries import cudnn
from livegrad.runtime.cuda.libraries.cudnn import ConvolutionPlan, Problem
from livegrad.runtime.cuda.libraries.library_call import LibraryCall
from livegrad.schedule.plan import Buffer, HostStep

# Multiplications and additions. A smaller convolution is over before cuDNN has been called.
_LEAST_OPERATIONS = 5e8
# Products of an element, and elements of a window. With 576 products, our kernel takes 0.36 ms and cuDNN 0.43; with
# 2,304, 2.7 and 1.8. A gradient of kernels is a convolution with a window for each element of the cotangents.
_LEAST_INNER, _LARGEST_WINDOW = 1024, 256


class LibraryConvolution:
    """A convolution by a plan of cuDNN."""

    def __init__(self, problem: Problem, plan: ConvolutionPlan) -> None:
        self.problem, self._plan = problem, plan
        self._copies: dict[str, DeviceMemory] = {}

    @property
    def name(self) -> str:
        return f"convolution {'x'.join(map(str, self.problem.kernels))}"

    def prepare(self) -> None:
        """Nothing: the plan has its workspace."""

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        """Enqueues the convolution of an image with kernels."""
        image, kernels = operands
        self._plan.enqueue(
            stream,
            self._aligned(stream, image, self.problem.image, "image"),
            self._aligned(stream, kernels, self.problem.kernels, "kernels"),
            result,
        )

    def _aligned(self, stream: Any, address: int, shape: Sequence[int], name: str) -> int:
        """The address of an operand, or of a copy if rows of a larger array begin at any element."""
        if address % self.problem.alignment == 0:
            return address
        size = prod(shape) * self.problem.element.dtype.itemsize
        if name not in self._copies:
            self._copies[name] = DeviceMemory(size)
        check(driver.cuMemcpyDtoDAsync(self._copies[name].address, address, size, stream))
        return self._copies[name].address


def library_convolution_call(step: HostStep) -> LibraryCall | None:
    """The call of a step; None if cuDNN is missing or has no plan, or if our kernels are done sooner."""
    problem = _problem_of(step.function.results[0]) if isinstance(step.result, Buffer) else None
    plan = None if problem is None else cudnn.plan_of(problem)
    return None if problem is None or plan is None else LibraryConvolution(problem, plan)


def _problem_of(node: Node) -> Problem | None:
    """A large convolution as cuDNN describes it, with at least two dimensions."""
    image, kernels = node.operands
    if not isinstance(image.type, Tensor) or image.type.element not in (f32, f64) or cudnn.library() is None:
        return None
    shapes = (sizes(image), sizes(kernels), sizes(node))
    if any(0 in shape for shape in shapes) or any(map(any, node.attribute("padding"))):
        return None
    inner, window = prod(shapes[1][1:]), prod(shapes[1][2:])
    is_large = inner >= _LEAST_INNER and 2.0 * prod(shapes[2]) * inner >= _LEAST_OPERATIONS
    if permute in (image.op, kernels.op) or not is_large or window > _LARGEST_WINDOW:
        return None
    strides, dilation = node.attribute("strides"), node.attribute("dilation")
    if len(strides) == 1:
        strides, dilation = (1, *strides), (1, *dilation)
        shapes = tuple([(*shape[:2], 1, *shape[2:]) for shape in shapes])
    first, second, third = shapes
    return Problem(image.type.element, first, second, third, strides, dilation)
