"""Derived functions: a later process runs what an earlier one compiled, without deriving the function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.digest import function_digest
from livegrad.runtime.cpu import DerivedFunction, derived_number, forget_functions
from livegrad.runtime.cpu.kernel_code import forget_kernels
from livegrad.runtime.cpu.tier_up import background_compiler
from livegrad.runtime.object_cache import CacheSettings, ObjectCache, set_default_cache

POINTS = np.linspace(-2, 2, 512, dtype=np.float32)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, own_session: None) -> ObjectCache:
    cache = ObjectCache(CacheSettings(tmp_path / "cache"))
    set_default_cache(cache)
    return cache


class Deriving:
    """Gradients over all elements, and how often they were derived."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, function: lg.ir.Function) -> lg.ir.Function:
        self.count += 1
        shared = len(function.parameters) - 1
        return lg.ir.map_over(lg.jvp(function), (True, *[False] * shared, True, *[False] * shared))


def square(factor: float = 1.0) -> lg.ir.Function:
    return lg.ir.trace(lambda x: x * x * factor, lg.f32)


def as_in_a_new_process() -> None:
    background_compiler.current.wait()
    forget_functions()
    forget_kernels()


def slopes(source: lg.ir.Function, name: str = "slopes") -> tuple[int, Any]:
    deriving = Deriving()
    actual = DerivedFunction(source, name, deriving)(POINTS, np.ones_like(POINTS))
    return deriving.count, actual


def test_a_second_process_derives_nothing_and_computes_the_same_bits() -> None:
    first, expected = slopes(square())
    as_in_a_new_process()
    again, actual = slopes(square())
    assert (first, again) == (1, 0)
    for result, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(result, other)


def test_another_source_name_or_compiler_has_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    slopes(square())
    as_in_a_new_process()
    assert slopes(square(2.0))[0] == 1
    assert slopes(square(), "bends")[0] == 1
    monkeypatch.setattr("livegrad.runtime.serialised.compiler_stamp", lambda: "another")
    assert slopes(square())[0] == 1


def test_arguments_are_converted_like_those_of_the_derived_function() -> None:
    source = lg.ir.trace(lambda x, k: x * k, lg.f32, lg.f32)
    deriving = Deriving()
    derived = DerivedFunction(source, "slopes", deriving)
    one, zero = np.float32(1.0), np.float32(0.0)
    expected = derived(POINTS, np.float32(3.0), np.ones_like(POINTS), zero)
    as_in_a_new_process()
    for arguments in (
        (POINTS.astype(np.float64), np.float32(3.0), np.ones_like(POINTS), zero),
        (np.repeat(POINTS, 2)[::2], 3.0, np.ones_like(POINTS), 0.0),
        (POINTS.tolist(), np.int64(3), np.ones_like(POINTS), zero),
    ):
        fresh = DerivedFunction(source, "slopes", Deriving())
        try:
            actual = fresh(*arguments)
        except lg.LivegradError as error:
            with pytest.raises(type(error)):
                derived.compiled(*arguments)
        else:
            np.testing.assert_array_equal(actual, expected)
    with pytest.raises(lg.LivegradError):
        DerivedFunction(source, "slopes", Deriving())(POINTS[:3], one, POINTS[:4], one)


def test_code_with_checks_is_derived_again() -> None:
    source = lg.ir.trace(lambda a, b: a // b, lg.i32, lg.i32)
    numbers = np.arange(1, 9, dtype=np.int32)
    for _ in range(2):
        derived = DerivedFunction(source, "all", lambda function: lg.ir.map_over(function))
        np.testing.assert_array_equal(derived(numbers, numbers), 1)
        assert derived.is_derived
        with pytest.raises(lg.LivegradError, match=r"test_derived_functions\.py"):
            derived(numbers, numbers - 1)
        as_in_a_new_process()


def test_without_a_directory_everything_is_derived() -> None:
    set_default_cache(ObjectCache(CacheSettings(None)))
    slopes(square())
    as_in_a_new_process()
    assert slopes(square())[0] == 1
    assert derived_number(square(), "nodes", lambda function: 7) == 7
    assert derived_number(square(), "nodes", lambda function: 8) == 8


def test_a_number_is_derived_once_for_all_processes(cache: ObjectCache) -> None:
    assert derived_number(square(), "nodes", lambda function: 7) == 7
    background_compiler.current.wait()
    assert derived_number(square(), "nodes", lambda function: 8) == 7
    assert derived_number(square(2.0), "nodes", lambda function: 8) == 8


def test_a_nested_function_has_the_same_digest_as_alone() -> None:
    inner = square(3.0)
    outer = lg.ir.trace(lambda x: lg.ops.call(x, function=inner) + 1.0, lg.f32)
    function_digest(outer)
    after = function_digest(inner)
    assert after == function_digest(square(3.0))
    assert after != function_digest(outer)
