"""`share_lockstep`: lanes that leave a loop at different iterations keep their bits, and share common values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.codegen.llvm.kernel_module import emit_kernel
from livegrad.compiler import lower_loops
from livegrad.runtime.cpu.cpu_function import CpuFunction
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.loops.nest import for_cpu
from livegrad.schedule.plan import KernelStep
from livegrad.schedule.target import Target
from tests.runtime.test_scalar_loops import function_of, run

WITHOUT = CPU.without("share_lockstep")


def matched_letters(lib: Any, text: Any, pattern: Any) -> Any:
    """How many letters of a pattern match at each position of a text."""
    length, number = pattern.shape[0], text.shape[0] - pattern.shape[0]

    def at(start: Any) -> Any:
        def goes_on(k: Any) -> Any:
            safe = lib.minimum(k, length - 1)
            return (k < length) & (text[start + safe] == pattern[safe])

        return lib.while_loop(goes_on, lambda k: k + 1, 0)

    return lib.vmap(at)(lib.arange(number))


def random_search(seed: int) -> Any:
    """Members of a batch that walk along tables for different distances."""
    random = np.random.default_rng(seed)
    form, step, length = seed % 6, int(random.integers(1, 3)), int(random.integers(4, 20))

    def program(lib: Any, lines: Any, table: Any, most: Any) -> Any:
        def walk(line: Any, most: Any) -> Any:
            def goes_on(state: Any) -> Any:
                k, total, _ = state
                at = lib.maximum(lib.minimum(k, length - 1), 0)
                inside = (k >= 0) if form == 1 else (k < length)
                return inside & (total + line[at] < most) & (table[at] > 0.1)

            def advance(state: Any) -> Any:
                k, total, extra = state
                at = lib.maximum(lib.minimum(k, length - 1), 0)
                if form == 2:  # a common value decides inside an iteration
                    total = total + lib.cond(k % 2 == 0, lambda: line[at] * table[at], lambda: 0.25 * table[at])
                elif form == 3:  # an inner loop with equal iterations for all lanes
                    total = total + lib.fori_loop(0, k % 3, lambda j, s: s + 0.1 * table[at] + line[j], 0.0)
                else:
                    total = total + 0.5 * line[at] + table[at]
                extra = extra * 2 + 1 if form == 4 else extra + (line[at] > 0.5)
                return (k - step if form == 1 else k + step), total, extra

            start = length - 1 if form == 1 else 0
            if form == 5:  # lanes start at different positions
                start = lib.astype(line[0] * 3.0, lib.int64)
            k, total, extra = lib.while_loop(goes_on, advance, (start, lib.zeros((), dtype=line.dtype), 0))
            return k, total, extra

        return lib.vmap(walk)(lines, most)

    members = int(random.choice([1, 7, 32, 33, 70]))
    lines, table = random.uniform(size=(members, length)), random.uniform(0.05, 1.0, size=length)
    return program, (lines, table, random.uniform(0.0, 6.0, size=members))


@pytest.mark.parametrize("seed", range(36))
def test_random_searches_keep_their_bits(seed: int) -> None:
    program, arrays = random_search(seed)
    assert run(program, arrays, CPU) == run(program, arrays, WITHOUT)


@pytest.mark.parametrize("size", [17, 100, 1000])
def test_searches_find_what_a_plain_loop_finds(size: int) -> None:
    random = np.random.default_rng(size)
    text, pattern = random.integers(0, 2, size).astype(np.int32), random.integers(0, 2, 6).astype(np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(text, 6)[:-1]
    expected = np.cumprod(windows == pattern, axis=1).sum(axis=1)
    for target in (CPU, WITHOUT):
        np.testing.assert_array_equal(np.frombuffer(run(matched_letters, (text, pattern), target)[0], int), expected)


def module_of(program: Any, arrays: Any, target: Target) -> str:
    plan = CpuFunction(function_of(program, arrays)).schedule(target=target)
    steps = [step for step in plan.steps if isinstance(step, KernelStep)]
    return "\n".join(emit_kernel(lower_loops(for_cpu(step, target, 64))).text for step in steps)


def test_a_uniform_counter_plus_the_lane_index_is_loaded_and_not_gathered() -> None:
    arrays = np.zeros(1012, np.int32), np.zeros(12, np.int32)
    assert "gather" not in module_of(matched_letters, arrays, CPU)
    assert "gather" in module_of(matched_letters, arrays, WITHOUT)


def test_lanes_that_left_do_not_come_back_when_the_condition_would_hold_again() -> None:
    def program(lib: Any, first: Any) -> Any:
        def count(limit: Any) -> Any:
            return lib.while_loop(lambda k: (k < 20) & (k % 5 != limit), lambda k: k + 1, 1)

        return lib.vmap(count)(first)

    expected = [next((k for k in range(1, 20) if k % 5 == limit), 20) for limit in range(8)]
    actual = np.frombuffer(run(program, (np.arange(8),), CPU)[0], np.int64)
    assert actual.tolist() == expected


def test_an_index_out_of_range_is_reported_only_by_lanes_that_are_still_inside() -> None:
    def search(line: Any, most: Any) -> Any:
        return lg.while_loop(lambda k: line[k] < most, lambda k: k + 1, 0)

    line = lg.asarray(np.arange(40.0))
    actual = lg.jit(lambda most: lg.vmap(lambda limit: search(line, limit))(most))
    np.testing.assert_array_equal(np.asarray(actual(lg.asarray(np.arange(39.0)))), np.arange(39))
    with pytest.raises(lg.LivegradError, match="out of range"):
        np.asarray(actual(lg.asarray(np.arange(2.0, 41.0))))
