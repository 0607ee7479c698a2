"""Symbolic sizes compute what integers compute, for all sizes that satisfy the guards."""

import math
import random

import pytest

from livegrad.ir.size_guards import SizeGuards
from livegrad.ir.symbolic_size import (
    SymbolicReal,
    SymbolicSize,
    compute_for_sizes,
    hint_of,
    replace_sizes,
    symbolic_within,
)
from livegrad.ir.types import Tensor, f32


def run_program(rng, sizes, decisions):
    """Random integer arithmetic on sizes; what was compared goes to `decisions`."""
    numbers = [*sizes, 3, 1, 64]
    for _ in range(25):
        a, b, c = rng.choice(numbers), rng.choice(numbers), rng.randrange(1, 20)
        b = rng.choice([b, c])
        match rng.choice(["+", "-", "*", "//", "%", "max", "-x", "<", "==", "<= 0.5", "bool", "cost", "floor"]):
            case "+":
                numbers.append(a + b)
            case "-":
                numbers.append(a - b)
            case "*":
                numbers.append(a * (b if len(numbers) < 20 else c))
            case "//":
                numbers.append(a // (b if b != 0 else 1))
            case "%":
                numbers.append(a % (b if b != 0 else 1))
            case "max":
                numbers.append(max(a, b))
            case "-x":
                numbers.append(-a)
            case "<":
                decisions.append(bool(a < b))
            case "==":
                decisions.append(a == b)
            case "<= 0.5":
                decisions.append(a <= c + 0.5)
            case "bool":
                decisions.append(bool(a))
            case "cost":
                decisions.append(bool(a * 0.5 + 3.0 > c / 4))
            case "floor":
                numbers.append(compute_for_sizes(lambda x, y: math.isqrt(abs(x)) + y, a, c))
    return numbers


@pytest.mark.parametrize("seed", range(300))
def test_a_program_decides_and_computes_as_with_integers_for_sizes_that_fit(seed):
    rng = random.Random(seed)
    hints = [rng.randrange(2, 60), rng.randrange(2, 60)]
    guards, decisions = SizeGuards(hints), []
    with guards.recording() as symbols:
        results = run_program(random.Random(seed), symbols, decisions)
    assert guards.fits(hints)
    for _ in range(20):
        sizes = [max(2, hint + rng.randrange(-8, 9)) for hint in hints]
        if not guards.fits(sizes):
            continue
        again: list[bool] = []
        expected = run_program(random.Random(seed), sizes, again)
        assert decisions == again
        values = replace_sizes(tuple(results), lambda size, sizes=sizes: guards.evaluate(sizes, [size.terms])[0])
        assert list(values) == expected


def test_most_sizes_nearby_fit():
    fitting = 0
    for seed in range(100):
        guards = SizeGuards([40, 50])
        with guards.recording() as symbols:
            run_program(random.Random(seed), symbols, [])
        fitting += guards.fits([42, 50])
    assert fitting > 50


def test_a_comparison_bounds_the_sizes():
    guards = SizeGuards([10])
    with guards.recording() as (n,):
        assert n * 4 > 12
        assert not n >= 100
        assert n != 64
    assert [size for size in (3, 4, 64, 99, 100) if guards.fits([size])] == [4, 99]


@pytest.mark.parametrize(
    "use", [lambda n: range(n), lambda n: [0] * n, lambda n: f"{n}", float, int, lambda n: "abc"[n]]
)
def test_a_machine_number_pins_the_size_and_names_the_line(use):
    guards = SizeGuards([2])
    with guards.recording() as (n,):
        use(n)
    assert guards.is_pinned
    assert __file__ in guards.pinned_at[0]
    assert guards.fits([2])
    assert not guards.fits([3])


def test_types_of_symbolic_sizes_differ_from_types_of_integers():
    guards = SizeGuards([10])
    plain = Tensor(f32, (10, 3))
    with guards.recording() as (n,):
        assert Tensor(f32, (n, 3)) is not plain
        assert Tensor(f32, (n + 1, 3)) is Tensor(f32, (1 + n, 3))
    assert not guards.is_pinned


def test_quotients_that_are_exact_stay_polynomials():
    guards = SizeGuards([10, 7])
    with guards.recording() as (n, m):
        assert (64 * n * m // 64).terms == (n * m).terms
        assert (64 * n * m // n).terms == (64 * m).terms
        assert ((n * 6 + 5) // 6).terms == n.terms
        assert n * m - m * n == 0
        assert type(n - n) is int
    assert not guards.is_pinned


def test_costs_are_compared_exactly():
    guards = SizeGuards([10])
    with guards.recording() as (n,):
        cost = 0.1 * n + 1.5
        assert type(cost) is SymbolicReal
        assert isinstance(cost, float)
        assert cost / 2 > 0.7
        assert math.ceil(cost) == 3
    assert guards.fits([9])
    assert not guards.fits([16])


def test_outside_a_recording_sizes_are_their_hints():
    guards = SizeGuards([10])
    (n,) = guards.symbols
    assert n + 1 == 11
    assert not guards.is_pinned
    assert guards.fits([500])
    assert hint_of(n) == 10
    assert symbolic_within([(1, (n,))]) is n
    assert isinstance(n, int)
    assert type(n) is SymbolicSize
