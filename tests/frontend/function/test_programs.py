"""Every program of the corpus: compiled code agrees with Python, and derivatives agree with finite differences."""

import importlib
import math
import pkgutil
from typing import Any

import numpy as np
import pytest

from livegrad.frontend.differentiable.plain_function import PlainFunction
from livegrad.frontend.function.dispatch import prepare
from livegrad.frontend.function.function_types import from_result, to_argument
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.reference import evaluate
from tests.differentiate.checks import assert_near, check_orders, random_differentials, results_of
from tests.frontend.function import programs
from tests.frontend.function.programs.registry import PROGRAMS, Program

for _module in pkgutil.iter_modules(programs.__path__, "tests.frontend.function.programs."):
    importlib.import_module(_module.name)


def same_value(actual: Any, expected: Any) -> bool:
    if isinstance(expected, tuple | list):
        return len(actual) == len(expected) and all(map(same_value, actual, expected))
    return math.isclose(actual, expected, rel_tol=1e-12, abs_tol=1e-13)


def prepared(program: Program, arguments: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    call = prepare(PlainFunction(program.function), arguments, {})  # type: ignore[arg-type]
    types = [slot.type for slot in call.specialization.runtime_slots if slot.type is not None]
    return call.specialization, [to_argument(type, value) for type, value in zip(types, call.arguments, strict=True)]


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
def test_the_reference_agrees_with_python(program: Program) -> None:
    for arguments in program.arguments:
        specialization, operands = prepared(program, arguments)
        value = from_result(specialization.result_type, evaluate(specialization.function, *operands))
        assert same_value(value, program.function(*arguments)), (value, program.function(*arguments))


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
def test_native_value_and_gradient(program: Program) -> None:
    """One native function computes the value and the gradient, compared with Python and with the reference."""
    rng = np.random.default_rng(3)
    for arguments in program.arguments[:1]:
        specialization, operands = prepared(program, arguments)
        value_and_gradient = vjp(specialization.function, with_value=True)
        cotangents = random_differentials(specialization.function.result_types, rng)
        value, *gradient = results_of(value_and_gradient, compile_function(value_and_gradient)(*operands, *cotangents))
        assert same_value(from_result(specialization.result_type, value), program.function(*arguments))
        expected = results_of(
            vjp(specialization.function), evaluate(vjp(specialization.function), *operands, *cotangents)
        )
        assert_near(tuple(gradient), expected, 1e-11)


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
def test_all_derivatives_agree_with_differences(program: Program) -> None:
    specialization, operands = prepared(program, program.arguments[0])
    check_orders(specialization.function, operands, order=program.order, tolerance=1e-6)
