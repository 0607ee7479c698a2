"""Every op as C: OpenCL C gives the values of the reference if it can run, and CUDA C compiles."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.codegen.c import CUDA, OPENCL, function_source
from livegrad.diagnostics import CompileError
from livegrad.ir.op import Op
from livegrad.ir.types import Array, Scalar, Struct, Tape, Tensor, Tuple, Type, components, inner_types, scalar_of
from livegrad.runtime.cuda.nvrtc import compile_source, reason_for_no_compiler
from livegrad.runtime.opencl import compile_function
from livegrad.runtime.reference import evaluate
from tests.conformance.case import Case, scalar_name
from tests.conformance.cases import CASES
from tests.conformance.tolerance import differences
from tests.long_forms import LONG

needs_nvrtc = pytest.mark.skipif(reason_for_no_compiler() is not None, reason=str(reason_for_no_compiler()))
SCALARS = ("bool", "i8", "u64", "f32", "f64")  # `test_opencl.py` has integers of all widths
# Ops on tapes, and maps inside functions: only plans run them.
ONLY_IN_PLANS = {"map", "tape_add", "tape_get", "tape_new", "tape_set", "tape_sum"}
DRAWS = 6


def leaves(type: Type) -> list[Type]:
    """The types in which a value is passed to a kernel: scalars, vectors, matrices and tables."""
    if isinstance(type, Tuple | Struct | Array):
        return [leaf for part in components(type) for leaf in leaves(part)]
    return [type]


def assemble(type: Type, given: Iterator[Any]) -> Any:
    if isinstance(type, Tuple | Struct | Array):
        return ops.make(*[assemble(part, given) for part in components(type)], type=type)
    return next(given)


def decompose(type: Type, value: Any, member: Any) -> Iterator[Any]:
    if isinstance(type, Tuple | Struct | Array):
        for index, part in enumerate(components(type)):
            yield from decompose(part, member(value, index), member)
    else:
        yield value


@dataclass(frozen=True)
class Example:
    """A case as a function of scalars, with its arguments by leaf at several points, and the expected results.

    Results are compared in the units of the case: each draw separately, or all special values at once.
    """

    case: Case
    function: lg.ir.Function
    arguments: list[Any]
    results: list[Any]
    result_types: list[Type]
    draws: list[tuple[int | slice, tuple[Any, ...]]]

    @property
    def types(self) -> list[Type]:
        return [leaf for type in self.function.parameter_types for leaf in leaves(type)]

    def mismatches(self, found: Sequence[Any]) -> list[str]:
        """The differences from the expected results, as text."""
        lines: list[str] = []
        for value, expected, type in zip(found, self.results, self.result_types, strict=True):
            for position, arguments in self.draws:
                result = value[position].reshape(expected[position].shape)
                lines += differences(result, expected[position], type, self.case.tolerance, arguments)
        return [f"{self.case.name}: {line}" for line in lines]


def draw_example(case: Case) -> Example:
    """A case with random arguments; all points read the same table."""
    function, generator = case.function, case.generator()
    draws = [case.draw(generator) for _ in range(DRAWS)]
    if any(isinstance(type, Tensor) for type in function.parameter_types):
        draws = draws[:1]

    def columns(types: Sequence[Type], rows: Sequence[Sequence[Any]]) -> list[Any]:
        whole = Tuple(tuple(types))
        flat = [list(decompose(whole, row, lambda value, index: value[index])) for row in rows]
        return [np.stack([np.asarray(leaf) for leaf in column]) for column in zip(*flat, strict=True)]

    values = [evaluate(function, *draw) for draw in draws]
    results = [(value,) if len(function.results) == 1 else value for value in values]
    given, expected = columns(function.parameter_types, draws), columns(function.result_types, results)
    tables = zip(given, (leaf for type in function.parameter_types for leaf in leaves(type)), strict=True)
    arguments = [column[0] if isinstance(type, Tensor) else column for column, type in tables]
    return Example(case, function, arguments, expected, leaves(function.result_type), list(enumerate(draws)))


def special_example(case: Case) -> Example:
    """An elementwise case at special values, one per point."""
    (node,) = case.function.results
    scalars = [scalar for type in case.function.parameter_types if (scalar := scalar_of(type)) is not None]
    function = lg.ir.trace(lambda *given: node.op(*given, **dict(node.attributes)), *scalars, name=node.op.name)
    grids = case.arguments()
    results = [evaluate(case.function, *grids)]
    return Example(case, function, list(grids), results, [node.type], [(slice(len(grids[0])), grids)])


def is_special(case: Case) -> bool:
    return case.op.elementwise and (case.name.endswith("/special") or (case.op.name == "cast" and "_to_" in case.name))


def is_pointwise(case: Case) -> bool:
    """Whether a case uses only types that C has: scalars, aggregates of scalars, and tables to read."""
    function = case.function
    inner = [part for type in (*function.parameter_types, *function.result_types) for part in inner_types(type)]
    results = [part for type in function.result_types for part in inner_types(type)]
    if any(isinstance(type, Tape) for type in inner) or any(isinstance(type, Tensor) for type in results):
        return False
    return all(type.name in OPENCL.scalars for type in inner if isinstance(type, Scalar))


def has_text(function: lg.ir.Function) -> bool:
    try:
        return bool(function_source(function, OPENCL))
    except CompileError:
        return False


@cache
def examples(scalar: str) -> list[Example]:
    """For each op: its special values, the first case on scalars, and the first on aggregates."""
    found: dict[tuple[str, str], Example] = {}
    for case in CASES:
        if scalar_name(case) != scalar:
            continue
        if is_special(case):
            example = special_example(case)
            if is_pointwise(Case(case.name, case.op, example.function, case.draw)):
                found[case.name, "special"] = example
        elif is_pointwise(case) and has_text(case.function):
            shape = "several" if any(map(components, case.function.parameter_types)) else "one"
            if (case.op.name, shape) not in found and not (
                shape == "several" and scalar != "f32" and case.op.elementwise
            ):
                found[case.op.name, shape] = draw_example(case)
    return list(found.values())


@dataclass(frozen=True)
class Combined:
    """Several examples as one function over the same number of points, which is compiled once."""

    examples: list[Example]
    function: lg.ir.Function
    lifted: tuple[bool, ...]
    arguments: list[Any]
    points: int

    def mismatches(self, results: Sequence[Any]) -> list[str]:
        rest = iter(results)
        return [line for example in self.examples for line in example.mismatches([next(rest) for _ in example.results])]


def combine(chosen: list[Example]) -> Combined:
    types = [type for example in chosen for type in example.types]
    lifted = tuple(not isinstance(type, Tensor) for type in types)
    given = [argument for example in chosen for argument in example.arguments]
    points = max(len(argument) for argument, flag in zip(given, lifted, strict=True) if flag)
    arguments = [
        np.ascontiguousarray(np.resize(argument, (points, *argument.shape[1:]))) if flag else argument
        for argument, flag in zip(given, lifted, strict=True)
    ]

    def every(*values: Any) -> Any:
        rest = iter(values)
        for example in chosen:
            operands = [assemble(type, rest) for type in example.function.parameter_types]
            value = ops.call(*operands, function=example.function)
            yield from decompose(example.function.result_type, value, lambda value, index: ops.get(value, index=index))

    function = lg.ir.trace(lambda *values: tuple(every(*values)), *types, name="together")
    return Combined(chosen, function, lifted, arguments, points)


def test_every_scalar_op_has_c_code() -> None:
    with_c = {example.case.op.name for scalar in SCALARS for example in examples(scalar)}
    about_numbers = {case.op.name for case in CASES if is_pointwise(case)}
    assert about_numbers - with_c == ONLY_IN_PLANS
    assert not [name for name, op in Op.table.items() if op.code is not None and name not in with_c]


@pytest.mark.opencl
@pytest.mark.parametrize("scalar", SCALARS if LONG else [scalar for scalar in SCALARS if scalar != "u64"])
def test_opencl_agrees_with_the_reference(scalar: str) -> None:
    combined = combine(examples(scalar))
    mismatches = combined.mismatches(compile_function(combined.function, combined.lifted)(*combined.arguments))
    assert not mismatches, "\n".join(mismatches)


@needs_nvrtc
@pytest.mark.parametrize("scalar", SCALARS)
def test_the_same_functions_compile_as_cuda_c(scalar: str) -> None:
    """NVRTC parses and checks device functions that no kernel calls; `tests/runtime/cuda` runs such code."""
    text = function_source(combine(examples(scalar)).function, CUDA)
    assert compile_source(text, "sm_90", scalar).startswith(b"\x7fELF")
