"""The compile-time cost of a first call before code generation, counted in calls of Python functions."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir import propagate_lines
from livegrad.runtime.object_cache import CacheSettings, ObjectCache, set_default_cache
from livegrad.state import fresh_session

PACKAGE = os.path.dirname(lg.__file__) + os.sep
pytestmark = pytest.mark.own_process  # cleaning up after other tests would be counted
BEFORE_CODE = tuple(PACKAGE + folder + os.sep for folder in ("tensors", "frontend", "passes", "schedule", "ops", "ir"))


def calls_before_code(function: Callable[..., Any], *arguments: Any) -> int:
    """Counts calls in the folders before code generation, for a first call without cached results."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(BEFORE_CODE)

    with fresh_session():
        set_default_cache(ObjectCache(CacheSettings(None)))
        gc.collect()  # cleaning up after earlier calls would be counted
        sys.setprofile(note)
        try:
            lg.jit(function)(*arguments)
        finally:
            sys.setprofile(None)
    return count


def chain_of(length: int) -> int:
    """Counts calls for a repeated chain of three elementwise operations: one kernel."""

    def chain(x: Any) -> Any:
        for number in range(length):
            x = lg.sin(x) * 0.5 + (number + 1.0)
        return x

    return calls_before_code(chain, np.ones((4, 8), np.float32))


def gradient_of(layers: int) -> int:
    """Counts calls for the gradient of a network by its weights: three products and two kernels per layer."""

    def loss(x: Any, *weights: Any) -> Any:
        for weight in weights:
            x = lg.relu(x @ weight)
        return lg.sum(x * x)

    arrays = [np.ones((8, 8), np.float32) for _ in range(layers + 1)]
    return calls_before_code(lg.grad(loss, tuple(range(1, layers + 1))), *arrays)


def folds_of(rows: int) -> int:
    """Counts calls for different row reductions of one tensor: one kernel."""

    def folds(x: Any) -> Any:
        return tuple(lg.sum(lg.exp(x * (number + 0.5)), axis=1) for number in range(rows))

    return calls_before_code(folds, np.ones((64, 8), np.float32))


@pytest.mark.parametrize(("work", "size"), [(chain_of, 20), (gradient_of, 4), (folds_of, 8)])
def test_a_function_of_twice_the_size_takes_twice_the_work(work: Callable[[int], int], size: int) -> None:
    work(size)  # imports modules and fills tables
    small, middle, large = work(size), work(2 * size), work(4 * size)
    assert large - middle <= 2.1 * (middle - small)


@pytest.mark.parametrize(
    ("work", "size", "operations", "most"), [(chain_of, 20, 3, 170), (gradient_of, 4, 1, 3600), (folds_of, 8, 3, 260)]
)
def test_an_operation_takes_a_bounded_number_of_calls(
    work: Callable[[int], int], size: int, operations: int, most: int
) -> None:
    work(size), work(2 * size)  # imports modules and fills tables
    assert (work(2 * size) - work(size)) / (size * operations) <= most


def test_cleared_caches_know_no_part_of_a_derivative() -> None:
    with fresh_session():
        lg.jit(lg.grad(lambda x: lg.sum(lg.sin(x) * x)))(np.ones(3, np.float32))
        assert propagate_lines.derivations.current
        lg.clear_caches()
        assert not propagate_lines.derivations.current
