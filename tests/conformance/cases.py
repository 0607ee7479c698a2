"""All conformance cases, generated from the op table: every op, at every scalar type that its type rule takes.

`CASES` is what the suites run on each backend; `FAILURES` are programs that must end with an error.
"""

from collections.abc import Iterator

from tests.conformance.case import Case
from tests.conformance.cases_aggregate import computed_index_cases, geometry_cases, member_cases, splat_cases
from tests.conformance.cases_control import (
    NEVER_RUN,
    branch_cases,
    check_cases,
    failing_cases,
    loop_cases,
    map_cases,
    parameter_cases,
    trace_cases,
)
from tests.conformance.cases_custom import custom_cases
from tests.conformance.cases_elementwise import cast_cases, constant_cases, elementwise_cases, select_cases
from tests.conformance.cases_library import (
    convolution_cases,
    decomposition_cases,
    fourier_cases,
    pseudo_inverse_cases,
    searching_cases,
    solving_cases,
    sorting_cases,
    top_cases,
    window_cases,
)
from tests.conformance.cases_tensor import (
    arg_reduce_cases,
    box_cases,
    cumulative_cases,
    indexing_cases,
    iota_cases,
    matmul_cases,
    movement_cases,
    recurrence_cases,
    reduce_cases,
    reduce_special_cases,
)

__all__ = ["CASES", "FAILURES", "NEVER_RUN"]

_SOURCES = (
    elementwise_cases,
    select_cases,
    cast_cases,
    constant_cases,
    member_cases,
    splat_cases,
    computed_index_cases,
    geometry_cases,
    movement_cases,
    iota_cases,
    reduce_cases,
    reduce_special_cases,
    arg_reduce_cases,
    cumulative_cases,
    recurrence_cases,
    box_cases,
    indexing_cases,
    matmul_cases,
    parameter_cases,
    branch_cases,
    loop_cases,
    map_cases,
    check_cases,
    trace_cases,
    custom_cases,
    sorting_cases,
    top_cases,
    searching_cases,
    decomposition_cases,
    solving_cases,
    pseudo_inverse_cases,
    fourier_cases,
    convolution_cases,
    window_cases,
)


def _distinct() -> Iterator[Case]:
    observed: set[str] = set()
    for source in _SOURCES:
        for case in source():
            if case.name not in observed:
                observed.add(case.name)
                yield case


CASES: tuple[Case, ...] = tuple(_distinct())
FAILURES = tuple(failing_cases())
