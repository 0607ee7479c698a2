"""Compilation work is linear in the length of lists."""

import cProfile
import gc
from collections.abc import Callable
from typing import Any

import pytest

import livegrad as lg
from livegrad.compiler import lower
from livegrad.frontend.differentiable.plain_function import PlainFunction
from livegrad.frontend.function.captured import Slot
from livegrad.frontend.function.function_types import ArrayType
from livegrad.ir.node import Function
from livegrad.ir.types import f64
from livegrad.ir.walk import nodes_of
from livegrad.ops.control import for_loop
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import compile_function
from livegrad.schedule.plan import KernelStep
from tests.long_forms import LONG


def over_elements(x: list[float]) -> float:
    total = 0.0
    for v in x:
        total += v * v
    return total


def until_enough(x: list[float]) -> float:
    total = 0.0
    for i in range(len(x)):
        if total > 10.0:
            break
        total += x[i] * x[i]
    return total


def changed_in_place(x: list[float]) -> float:
    y = [0.0] * len(x)
    for i, v in enumerate(x):
        y[i] = v * 2.0
    return sum(v * v for v in y)


def written_out(x: list[float]) -> float:
    total = 1.0
    for v in lg.unroll(x):
        total = total * (v + 1.0)
    return total


def comprehended(x: list[float]) -> float:
    return sum([v * 2.0 for v in x])


def mapped(x: list[float]) -> list[float]:
    return [v * v for v in x]


pytestmark = pytest.mark.own_process  # calls are counted, and clearing up after other tests would count
PROGRAMS = [over_elements, until_enough, changed_in_place, written_out, comprehended, mapped]
DERIVATIVES: dict[str, Callable[[Function], Function]] = {"value": lambda f: f, "vjp": vjp, "jvp": jvp}


def calls_of(program: Any, derivative: Callable[[Function], Function], size: int) -> int:
    """The number of Python function calls that it takes to compile a program for lists of a size to kernels."""
    gc.collect()
    gc.disable()
    profile = cProfile.Profile()
    profile.enable()
    captured = PlainFunction(program).specialize((Slot(ArrayType(f64, size)),)).function
    compile_function(derivative(captured)).schedule()
    profile.disable()
    gc.enable()
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("derivative", DERIVATIVES)
def test_the_work_of_compiling_is_linear_in_the_length_of_a_list(program, derivative):
    calls_of(program, DERIVATIVES[derivative], 3)  # what is done once
    sizes = (41, 81, 161) if LONG else (21, 41, 81)
    small, middle, large = (calls_of(program, DERIVATIVES[derivative], size) for size in sizes)
    # Twice as many elements more; a square would make it four times.
    assert large - middle < 2.3 * (middle - small)


def test_the_gradient_of_a_list_is_one_kernel():
    function = PlainFunction(over_elements).specialize((Slot(ArrayType(f64, 50)),)).function
    plan = compile_function(vjp(function)).schedule()
    assert sum(isinstance(step, KernelStep) for step in plan.steps) == 1


def read_and_written_by_index(x: list[float]) -> float:
    y = [v * 2.0 for v in x]
    for i in range(len(y)):
        y[i] = y[i] * x[i] * x[i - 1]
    return sum(y)


def read_by_two_indices(m: list[list[float]]) -> float:
    total = 1.0
    for i in range(len(m)):
        for j in range(len(m)):
            total = total + m[i][j] * m[j][i] * total
    return total


def nodes_of_innermost_loops(function: Function) -> int:
    loops = [node for node in nodes_of(function) if node.op is for_loop]
    if not loops:
        return len(nodes_of(function))
    return sum(nodes_of_innermost_loops(loop.attribute("body")) for loop in loops)


@pytest.mark.parametrize("program", [read_and_written_by_index, read_by_two_indices])
def test_an_iteration_that_reads_an_element_adds_only_to_its_gradient(program):
    def of_size(size: int) -> int:
        type = ArrayType(f64, size) if program is read_and_written_by_index else ArrayType(ArrayType(f64, size), size)
        return nodes_of_innermost_loops(lower(vjp(PlainFunction(program).specialize((Slot(type),)).function)))

    assert of_size(9) == of_size(5)


def test_elements_that_are_read_several_times_have_the_sum_of_their_gradients():
    x = [0.5, 1.0, 1.5]
    (gradient,) = lg.bwd_diff(lg.differentiable(read_and_written_by_index))(x, 1.0)
    # The sum of 2 x[i]² x[i-1], where x[-1] is the last.
    assert gradient == pytest.approx([4 * x[i] * x[i - 1] + 2 * x[(i + 1) % 3] ** 2 for i in range(3)])
    m = [[0.5, 1.0], [1.5, 0.25]]
    gradient = lg.grad(lg.differentiable(read_by_two_indices))(m)
    product = (1 + 0.5**2) * (1 + 1.5) ** 2 * (1 + 0.25**2)
    expected = [[2 * 0.5 / (1 + 0.5**2), 2 * 1.5 / 2.5], [2 * 1.0 / 2.5, 2 * 0.25 / (1 + 0.25**2)]]
    assert [list(row) for row in gradient] == [[pytest.approx(product * v) for v in row] for row in expected]


def test_the_gradient_of_a_long_list_is_correct():
    x = [0.01 * k for k in range(300)]
    (gradient,) = lg.bwd_diff(lg.differentiable(over_elements))(x, 1.0)
    assert gradient == [2.0 * v for v in x]
