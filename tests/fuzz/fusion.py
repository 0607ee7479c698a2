"""Random tensor programs and their derivatives on the CPU, with each optimisation of the schedule and without it.

The oracle is the reference backend, which evaluates node by node with NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import livegrad as lg
from livegrad.compiler import OPTIONAL
from livegrad.diagnostics import KernelCheckError
from livegrad.ir.node import Function
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.plan import Plan
from livegrad.schedule.step_kinds import is_storable
from livegrad.tensors.handle import wrap
from livegrad.tensors.tracing import close, placeholders
from tests.fuzz import (  # noqa: F401  register what programs are made of
    operations,
    operations_folding,
    operations_fusing,
    operations_updates,
)
from tests.fuzz.programs import Livegrad, Program, random_program
from tests.fuzz.reference import Reference, must_fail

SHORT = 4
SIZES = (1, 2, 3, 4, 5, 8, 17)


def run_one(seed: int) -> Mapping[str, int]:
    """Compares one program with all optimisations and without a few; counts which of those changed its plan."""
    program = random_program(seed, SIZES, (3, 7), fusing=True)
    try:
        function, arguments = trace_with_derivatives(program, seed)
        return {**program.counts, **_compare(function, arguments, program, seed)}
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}\n{program}") from None
    except Exception as error:
        error.add_note(f"seed {seed}\n{program}")
        raise


def trace_with_derivatives(program: Program, seed: int) -> tuple[Function, list[Any]]:
    """The program with gradients of a loss, or with tangents, as a function of the IR, and its arguments."""
    body = program.function(Livegrad())
    tensors = [lg.asarray(a) for a in program.arguments]

    def loss(*arguments: Any) -> Any:
        total: Any = lg.sum(arguments[0]) * 0.3
        for number, result in enumerate(body(*arguments)):
            kind = result.dtype.kind
            if kind in ("float", "complex"):
                value = lg.real(result) + lg.imag(result) * 0.7 if kind == "complex" else result
                weights = np.cos(np.arange(value.size) * 1.3 + number).reshape(value.shape)
                total = total + lg.sum(value * weights.astype(program.float_type))
        return total

    gradient: Callable[..., Any] = lg.grad(loss, tuple(range(len(tensors))))

    def everything(*arguments: Any) -> Any:
        values = body(*arguments)
        if seed % 3 == 0:
            return values, list(gradient(*arguments))
        if seed % 3 == 1:
            return list(gradient(*arguments))
        return values, list(lg.jvp(gradient, list(arguments), [a * 0.5 for a in arguments])[1])

    inputs = placeholders([tensor.type for tensor in tensors])
    traced = close("program", inputs, everything(*map(wrap, inputs)), lambda node: is_storable(node.type))
    captured = [np.asarray(wrap(node)) for node in traced.captures]
    return traced.function, [*program.arguments, *captured]


def _compare(function: Function, arguments: list[Any], program: Program, seed: int) -> dict[str, int]:
    try:
        reference = Reference(function, arguments, program.float_type)
    except KernelCheckError:
        return must_fail(lambda: run_function(function, *arguments))
    source = CpuFunction(function)
    plan = source.schedule()
    counts = {program.float_type: 1}
    steady = _run(plan, reference, "with all")
    for name in [OPTIONAL[(seed + k) % len(OPTIONAL)] for k in range(4)]:
        other = source.schedule(target=CPU.without(name))
        if (other.chains, _text(other)) != (plan.chains, _text(plan)):
            steady &= _run(other, reference, f"without {name}")
            counts[f"without {name}"] = 1
    return counts if steady else {**counts, "magnifies rounding": 1}


def _text(plan: Plan) -> str:
    return "\n".join(map(str, plan.steps))


def _run(plan: Plan, reference: Reference, what: str) -> bool:
    compiled = CompiledPlan.from_plan(plan, run_function)
    steady = True
    for run in range(2):  # what a run leaves behind must not show in the next
        found = compiled.run([np.array(a, order="C") for a in reference.arguments])
        steady &= reference.agrees(found, f"{what}, run {run}")
    return steady
