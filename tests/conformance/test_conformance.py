"""One suite for every backend: each case's result is the reference's, within the tolerance that the case states.

The cases of one op at one scalar type make one test; its failure lists every case that differs.
"""

from typing import Any

import numpy as np
import pytest

from livegrad.diagnostics import KernelCheckError
from livegrad.ir.function import make_function
from livegrad.ir.line_sites import equal_but_for_lines
from livegrad.ir.node import Module
from livegrad.ir.op import Op
from livegrad.ir.text import parse_function, print_function
from livegrad.ir.types import Scalar, Tensor, Type, Vector, f32, f64, scalar_of
from livegrad.ir.verify import verify_function
from livegrad.ops.maps import make_map
from livegrad.passes.expand import expand_ops
from livegrad.passes.lower_bfloat16 import lower_bfloat16
from livegrad.runtime.reference import evaluate
from tests.conformance.backends import BACKENDS, OTHERS, Backend
from tests.conformance.case import Case, grouped, scalar_name
from tests.conformance.cases import CASES, FAILURES, NEVER_RUN
from tests.conformance.cases_elementwise import elementwise_ops
from tests.conformance.tolerance import Tolerance, differences, misfit
from tests.long_forms import LONG


def is_written_out(case: Case) -> bool:
    """Whether the op's expansion stands for it at this case's type: not where it has a rule of its own."""
    scalar = scalar_of(case.function.parameter_types[0]) if case.function.parameters else None
    own = (case.op.llvm or {}).get(scalar.kind if scalar else "", "expand")
    return case.op.expand is not None and own == "expand"


def complaints(case: Case, actual: Any, expected: Any) -> list[str]:
    wrong = differences(actual, expected, case.function.result_type, case.tolerance, case.arguments())
    return [f"{case.name}: {line}" for line in wrong]


def test_every_op_of_the_table_has_a_case() -> None:
    assert {case.op.name for case in CASES} | NEVER_RUN.keys() == Op.table.keys()


def test_ops_that_are_never_run_have_no_case() -> None:
    assert not {case.op.name for case in CASES} & NEVER_RUN.keys()


# Code for these types is compiled well in every run, that for the others in the long form.
WELL = {"bool", "i32", "f32"}


def quickly_made() -> set[str]:
    """The groups that need no good code: their ops have it in another type."""
    types: dict[str, set[str]] = {}
    for case in CASES:
        types.setdefault(case.op.name, set()).add(scalar_name(case))
    return {f"{op}-{name}" for op, names in types.items() if names & WELL for name in names - WELL}


QUICKLY_MADE = set() if LONG else quickly_made()


def test_every_op_is_compiled_well_in_some_type() -> None:
    well = {case.op.name for case in CASES if f"{case.op.name}-{scalar_name(case)}" not in QUICKLY_MADE}
    assert well == {case.op.name for case in CASES}


@pytest.mark.parametrize("backend", OTHERS, ids=str)
@grouped(CASES, QUICKLY_MADE)
def test_a_backend_agrees_with_the_reference(cases: list[Case], backend: Backend) -> None:
    wrong: list[str] = []
    skipped: list[str] = []
    for case in cases:
        if reason := backend.reason_to_skip(case.function):
            skipped.append(reason)
            continue
        verify_function(case.function)
        actual, expected = (run(case.function, *case.arguments()) for run in (backend.run, evaluate))
        texts = [misfit(values, case.function.result_type) for values in (expected, actual)]
        if any(texts):
            wrong += [f"{case.name}: {text}" for text in texts if text]
        else:
            wrong += complaints(case, actual, expected)
    assert not wrong, "\n".join(wrong)
    if skipped:
        pytest.skip(skipped[0])


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@pytest.mark.parametrize(("case", "arguments", "message"), FAILURES, ids=lambda value: getattr(value, "name", ""))
def test_a_check_that_fails_raises_on_every_backend(
    case: Case, arguments: tuple[Any, ...], message: str, backend: Backend
) -> None:
    if reason := backend.reason_to_skip(case.function):
        pytest.skip(reason)
    with np.errstate(all="ignore"), pytest.raises(KernelCheckError, match=message) as caught:
        backend.run(case.function, *arguments)
    assert caught.value.where is not None
    assert "tests/conformance" in caught.value.where.file


@grouped(filter(is_written_out, CASES))
def test_an_expansion_means_what_the_op_means(cases: list[Case]) -> None:
    wrong: list[str] = []
    for case in cases:
        # In bf16 an op rounds once, so that it is written out in the f32 that it is computed in.
        lowered = lower_bfloat16(Module((case.function,))).functions[0]
        written_out = expand_ops(lowered, lambda node, op=case.op: node.op is op)
        verify_function(written_out, forbidden=[case.op])
        arguments = case.arguments()
        wrong += complaints(case, evaluate(written_out, *arguments), evaluate(case.function, *arguments))
    assert not wrong, "\n".join(wrong)


def is_scalar_float(case: Case) -> bool:
    return case.op in elementwise_ops() and case.function.parameter_types[0] in (f32, f64)


@pytest.mark.parametrize("case", [case for case in CASES if is_scalar_float(case)], ids=str)
def test_a_map_of_a_scalar_op_is_the_op_on_tensors(case: Case) -> None:
    def lifted(type: Type) -> Tensor:
        assert isinstance(type, Scalar)
        return Tensor(type, (11,))

    inputs = [p.op(index=index, type=lifted(p.type)) for index, p in enumerate(case.function.parameters)]
    whole = make_function("whole", inputs, [case.op(*inputs)])
    mapped = make_function("mapped", inputs, [make_map(case.function, *inputs)])
    rng = case.generator()
    columns = [case.draw(rng) for _ in range(11)]
    arguments = tuple(np.array(column) for column in zip(*columns, strict=True))
    actual, expected = evaluate(mapped, *arguments), evaluate(whole, *arguments)
    assert differences(actual, expected, whole.result_type, Tolerance(4.0), arguments) == []


def test_every_case_survives_being_printed_and_parsed() -> None:
    for case in CASES[::7]:
        assert equal_but_for_lines(parse_function(print_function(case.function)), case.function)


def test_a_difference_says_where_it_is() -> None:
    actual, expected = np.array([1, 2, 3], np.float32), np.array([1, 2, 4], np.float32)
    wrong = differences(actual, expected, Vector(f32, 3), Tolerance(), ())
    assert wrong == ["result[2] is np.float32(3.0), expected np.float32(4.0) (1 of 3 differ)"]


EPSILON = float(np.finfo(np.float64).eps)


@pytest.mark.parametrize(
    ("found", "wanted", "ulps", "accepted"),
    [
        (0.0, -0.0, 4.0, False),
        (np.nan, np.nan, 0.0, True),
        (np.inf, 1.0, 4.0, False),
        (1.0, np.nan, 4.0, False),
        (1.0 + 4 * EPSILON, 1.0, 4.0, True),
        (1.0 + 5 * EPSILON, 1.0, 4.0, False),
        (5e-324, 0.0, 4.0, False),
        (1e-323, 5e-324, 1.0, True),
        (np.inf, float(np.finfo(np.float64).max), 4.0, False),
    ],
)
def test_tolerances_reject_results_that_are_too_far(found: float, wanted: float, ulps: float, accepted: bool) -> None:
    assert (differences(np.float64(found), np.float64(wanted), f64, Tolerance(ulps), ()) == []) is accepted
