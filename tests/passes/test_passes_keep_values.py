"""Every pass, and the whole pipeline, preserve the values of random programs to the last bit."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from livegrad.compiler import lower_module, passes_for
from livegrad.diagnostics import KernelCheckError
from livegrad.ir.node import Function, Module
from livegrad.ir.text import print_module
from livegrad.ir.verify import verify_module
from livegrad.passes.eliminate_dead_results import eliminate_dead_results
from livegrad.passes.pipeline import Pass
from livegrad.passes.simplify import Simplify
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.reference import evaluate
from livegrad.schedule.target import PORTABLE
from tests.passes.programs import Program, programs, same_bits

PASSES = dict.fromkeys((*passes_for(PORTABLE)[0], *passes_for(CPU)[0]))


def evaluated(function: Function, arguments: tuple[Any, ...]) -> Any:
    """The function's value, or None when a check in it fails."""
    try:
        return evaluate(function, *arguments)
    except KernelCheckError:
        return None


def assert_kept(program: Program, run: Callable[[Module], Module]) -> None:
    after = run(program.module)
    verify_module(after)
    for old, new in zip(program.module.functions, after.functions, strict=True):
        assert (new.name, new.parameter_types, new.result_types) == (old.name, old.parameter_types, old.result_types)
        expected = evaluated(old, program.arguments)
        if expected is not None:  # where a check fails, there is no value to keep
            found = evaluate(new, *program.arguments)
            assert same_bits(expected, found), f"{expected} became {found}\n{print_module(after)}"


@pytest.mark.parametrize("step", PASSES, ids=lambda step: step.name)
@given(program=programs())
def test_a_pass_keeps_every_value(step: Pass, program: Program) -> None:
    assert_kept(program, step.run)


@given(program=programs())
def test_the_pipeline_keeps_every_value(program: Program) -> None:
    assert_kept(program, lower_module)


@given(program=programs())
def test_simplifying_what_is_simple_changes_nothing(program: Program) -> None:
    simple = Simplify(max_rounds=50)(program.module)
    assert Simplify()(simple) == simple


@given(program=programs())
def test_optimizing_outputs_twice_changes_nothing(program: Program) -> None:
    once = eliminate_dead_results(program.module)
    assert eliminate_dead_results(once) == once
