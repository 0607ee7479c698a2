"""Gradients of loops take bounded memory: the tapes of a few points at a time, or what `remember_at_most` allows."""

import subprocess
import sys

import numpy as np
import pytest

import livegrad as lg
from tests.long_forms import LONG

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process's memory is read from /proc")
POINTS, STEPS = 50_000, 1_000 if LONG else 250
ONE_RESIDUAL = POINTS * STEPS * 8 >> 20  # in MB: a gradient that stores one number per iteration

PROGRAM = """
import re, sys
import numpy as np
import livegrad as lg

@lg.differentiable
def by_range(x: float, n: int) -> float:
    y = x
    for i in range(n):
        y = lg.sin(y) * 1.01 + 0.1 * lg.cos(x * y)
    return y

@lg.differentiable
def by_while(x: float, n: int) -> float:
    y = x
    k = 0
    while lg.bounded(k < n, 1000000):
        y = lg.sin(y) * 1.01 + 0.1 * lg.cos(x * y)
        k += 1
    return y

def step(y, x):
    return lg.sin(y) * 1.01 + 0.1 * lg.cos(x * y)

def until(x, n):
    return lg.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, step(s[1], x)), (lg.asarray(0), x))[1]

def by_sum(x, n):  # the number of iterations depends on the data
    count = lambda s: (s[0] + lg.max(abs(s[1])) * 0 + 1, step(s[1], x))
    return lg.while_loop(lambda s: s[0] < n, count, (0.0 * x[0], x))[1]

def coupled(y, x):  # points depend on each other, so that their tapes cannot be those of a few
    return step(y, x) + lg.max(abs(y)) * 0.0

def by_rows(x, n):  # a scan over rows that returns some
    zeros = lg.zeros((n, 2), dtype=lg.float64)
    last, sums = lg.scan(lambda y, row: (coupled(y, x) + row[0], lg.sum(y) * row), x, zeros)
    return last + lg.sum(sums)

TENSORS = {
    "by_rows": by_rows,
    "by_index": lambda x, n: lg.fori_loop(0, n, lambda i, y: coupled(y, x), x),
    "fori_loop": lambda x, n: lg.fori_loop(0, n, lambda i, y: step(y, x), x),
    "scan": lambda x, n: lg.scan(lambda y, _: (step(y, x), None), x, None, length=n)[0],
    "while_loop": until,
    "by_sum": by_sum,
}
kind, points, steps, limit = sys.argv[1], *map(int, sys.argv[2:])

def gradient(points, steps):
    x = np.linspace(0.1, 1.0, points)
    if kind in ("by_range", "by_while"):
        return lg.grad(globals()[kind])(x, steps)
    name = kind.removeprefix("vmap of ")
    one = lambda x: lg.sum(TENSORS[name](x, steps))
    one = lg.remember_at_most(limit)(one) if limit else one
    derivative = lg.vmap(lg.grad(one)) if name != kind else lg.grad(one)
    return np.asarray(derivative(lg.asarray(x)))

def peak():  # in KB; getrusage would include the peak of the parent process
    with open("/proc/self/status") as status:
        return int(re.search(r"VmHWM:\\s*(\\d+)", status.read())[1])

gradient(10, steps)  # compiles
before = peak()
result = gradient(points, steps)
print((peak() - before) >> 10, float(np.sum(result)))
"""


def run(kind: str, points: int = POINTS, steps: int = STEPS, limit: int = 0) -> tuple[int, float]:
    """Returns the memory that a gradient takes, in MB, and the sum of its elements."""
    words = [sys.executable, "-c", PROGRAM, kind, str(points), str(steps), str(limit)]
    memory, total = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return int(memory), float(total)


@pytest.mark.parametrize(
    "kind",
    ["by_range", "by_while", "fori_loop", "scan", "while_loop", "vmap of fori_loop", "vmap of while_loop"],
)
def test_the_gradient_of_a_long_loop_over_many_points_keeps_the_tape_of_a_few(kind: str) -> None:
    memory, _ = run(kind)
    assert memory < ONE_RESIDUAL / 2


def test_remember_at_most_bounds_the_memory_of_a_loop_over_tensors() -> None:
    steps = 400 if LONG else 100
    memory, total = run("by_sum", 20_000, steps, limit=steps * 50_000)
    without, expected = run("by_sum", 20_000, steps)
    assert memory < without / 3
    assert total == expected


@pytest.mark.parametrize("kind", ["by_rows", "by_index"])
def test_remember_at_most_bounds_the_memory_of_a_counted_loop_and_of_a_scan(kind: str) -> None:
    memory, total = run(kind, 20_000, 400, limit=1 << 20)
    without, expected = run(kind, 20_000, 400)
    assert without > 60
    assert memory < without / 3
    assert total == expected


def test_a_million_iterations_are_remembered_by_their_square_root() -> None:
    memory, total = run("by_index", 2, 1_000_000, limit=1 << 20)
    without, expected = run("by_index", 2, 1_000_000)
    assert without > 15
    assert memory <= 4
    assert total == expected


def test_the_gradient_of_a_typed_loop_over_millions_of_points_keeps_the_tape_of_a_few() -> None:
    memory, _ = run("by_range", 3_000_000, 100)
    assert memory < 100  # the points themselves take 69 MB, what the loops remember would be 2,300 MB


@pytest.mark.parametrize("kind", ["fori_loop", "while_loop", "scan", "scan with outputs", "nested"])
def test_remember_at_most_does_not_change_gradients_of_functions_of_tensors(kind: str) -> None:
    def step(y: lg.Tensor, row: lg.Tensor) -> lg.Tensor:
        return lg.sin(y) * row

    def total(x: lg.Tensor) -> lg.Tensor:
        rows = x.shape[0]
        match kind:
            case "fori_loop":
                last = lg.fori_loop(0, rows, lambda i, y: step(y, x[i]), x[0])
            case "while_loop":
                last = lg.while_loop(
                    lambda s: lg.sum(s[1] ** 2) * 0.0 + s[0] < rows,
                    lambda s: (s[0] + 1, step(s[1], x[s[0]])),
                    (0, x[0]),
                )[1]
            case "scan":
                last = lg.scan(lambda y, row: (step(y, row), None), x[0], x)[0]
            case "scan with outputs":
                last = lg.scan(lambda y, row: (step(y, row), y), x[0], x)[1] * 2.0
            case _:
                inner = lambda y: lg.fori_loop(0, 5, lambda j, z: step(z, x[j]) + 0.5, y)  # noqa: E731
                last = lg.fori_loop(0, rows, lambda i, y: inner(y) * x[i], x[0])
        return lg.sum(last**2)

    x = lg.asarray(np.random.default_rng(0).normal(size=(30, 4)))
    expected = np.asarray(lg.grad(total)(x))
    for bytes in (1, 100, 1000, 10_000):
        found = np.asarray(lg.grad(lg.remember_at_most(bytes)(total))(x))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_remember_at_most_takes_functions_alone() -> None:
    with pytest.raises(lg.LivegradError, match="remember_at_most"):
        lg.remember_at_most(100)(3)  # type: ignore[arg-type]
