"""livegrad's own contenders, one builder for each kind of problem.

A builder prepares everything that is not measured and returns a zero-argument callable that performs one run and
returns its result as an array, which is checked against the expected values. It raises `Unavailable` when it cannot."""

from collections.abc import Callable

from benchmarks.problems import Problem, Run


class Unavailable(Exception):
    """Why a contender cannot be measured here; the table prints the reason."""


def build_sdf(problem: Problem) -> Run:
    """The function `program(problem)` over `inputs(problem)`, with `parameters(problem)` given at run time.

    Compiled beforehand; a run evaluates all points into a buffer that is reused and returns that buffer."""
    raise Unavailable("not available yet")


def build_softmax(problem: Problem) -> Run:
    """Softmax over each row of `inputs(problem)[0]`; a run returns a fresh or reused array of the same shape."""
    raise Unavailable("not available yet")


def build_sum_of_squares(problem: Problem) -> Run:
    """sum((a - b)²) of the two arrays of `inputs(problem)`; a run returns the scalar."""
    raise Unavailable("not available yet")


def build_first_call(problem: Problem) -> Run:
    """Each run traces, compiles and runs a function not seen before: `program(problem, seed)` with seed 1, 2, 3, …

    Nothing may come from a cache, neither in memory nor on disk. A run returns the values at `inputs(problem)`."""
    raise Unavailable("not available yet")


def build_warm_cache(problem: Problem) -> Run:
    """Each run loads the compiled `program(problem)` from the disk cache, which was filled beforehand, and runs it.

    The in-memory cache is dropped before each run. A run returns the values at `inputs(problem)`."""
    raise Unavailable("not available yet")


def build_call_overhead(problem: Problem) -> Run:
    """a * b + a over two short arrays, already compiled: one call from Python, returning the result."""
    raise Unavailable("not available yet")


def build_prospero(problem: Problem) -> Run:
    """Each run compiles `program(problem)` anew, evaluates it at `inputs(problem)` and returns the pixels."""
    raise Unavailable("not available yet")


BUILDERS: dict[str, Callable[[Problem], Run]] = {
    "sdf_algebraic": build_sdf,
    "sdf_transcendental": build_sdf,
    "softmax": build_softmax,
    "sum_of_squares": build_sum_of_squares,
    "first_call": build_first_call,
    "warm_cache": build_warm_cache,
    "call_overhead": build_call_overhead,
    "prospero": build_prospero,
}
