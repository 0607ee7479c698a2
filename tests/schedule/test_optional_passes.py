"""Each optimisation of the scheduler can be disabled: the plan changes, but not the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.compiler import OPTIONAL
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.tensors.tracing import trace_call

GRID = np.sin(np.arange(64.0 * 64.0)).reshape(64, 64)


def written(x: Any) -> Any:
    y = lg.cumulative_sum(lg.reshape(x, (-1,)))
    y[lg.astype(lg.floor(x[:, :9] * 50.0), lg.int64) % 4096] = 0.5
    return y


def overlapping(x: Any) -> Any:
    return lg.grad(lambda p: lg.sum(lg.sin(p[:-3]) * lg.cos(p[3:])))(x)


def recurrence(x: Any) -> Any:
    def body(i: Any, line: Any) -> Any:
        line[i] = lg.sin(line[i - 1]) + 0.5 * line[i]
        return line

    return lg.fori_loop(1, 16, body, x[0, :] + 0.0)


def scaled_rows(x: Any) -> Any:
    def body(i: Any, grid: Any) -> Any:
        grid[i] = grid[i] * 0.5 + grid[i - 1]
        return grid

    return lg.fori_loop(1, x.shape[0], body, x)


def relaxed(x: Any) -> Any:
    def sweep(_: Any, grid: Any) -> Any:
        grid[1:-1, 1:-1] = 0.25 * (grid[2:, 1:-1] + grid[:-2, 1:-1] + grid[1:-1, 2:] + grid[1:-1, :-2])
        return grid

    return lg.fori_loop(0, 3, sweep, x)


def two_fields(x: Any) -> Any:
    a, b = x + 0.0, x * 2.0
    a[1:-1] = x[2:] - x[:-2]
    b[1:-1] = x[2:] + x[:-2]
    return a, b


def filtered_twice(x: Any) -> Any:
    for _ in range(2):
        x = sum((lg.sin(x[i : i - 4, 2:-2] * x[2:-2, i : i - 4]) for i in range(4)), x[2:-2, 2:-2])
    return x


def bubble_up(row: Any) -> Any:
    """The first number of a row moves up until a larger one follows it."""

    def swap(state: Any) -> Any:
        k, row = state
        first = row[k]
        row[k] = row[k + 1]
        row[k + 1] = first
        return k + 1, row

    def goes_on(state: Any) -> Any:
        return (state[0] < 63) & (state[1][lg.minimum(state[0] + 1, 63)] < state[1][state[0]])

    return lg.while_loop(goes_on, swap, (lg.zeros((), dtype=lg.int64), row))[1]


def masked_rows(x: Any) -> Any:
    def row(i: Any, x: Any) -> Any:
        x[i] = lg.where(lg.arange(x.shape[1]) > 3, x[i] * x[i - 1], x[i])
        return x

    return lg.fori_loop(1, x.shape[0], row, x)


def decayed_total(x: Any) -> Any:
    """A scan in a scan, with weights for its results."""

    def row(total: Any, values: Any) -> Any:
        return lg.scan(lambda t, v: (0.9 * t + v, 0.9 * t + v), total, values)

    return lg.sum(lg.scan(row, 0.0, x)[1] * x)


def repeated_product(x: Any) -> Any:
    return lg.sum(lg.fori_loop(0, 4, lambda _, s: lg.sin(x @ s), x[0, :]))


def recalled_rows(x: Any) -> Any:
    def recall(i: Any, rows: Any) -> Any:
        rows[i] = lg.sin(rows @ rows[i])
        return rows

    return lg.sum(lg.fori_loop(0, 64, recall, x))


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "fuse": lambda x: (lg.sin(x), lg.cos(x)),
    "fuse_siblings": two_fields,
    "guard_padded_loads": overlapping,
    "store_repeated": filtered_twice,
    "write_in_place": written,
    "store_loop_results": relaxed,
    "unguard_invariants": lambda x: lg.fori_loop(
        0, lg.astype(x[0, 1] * 5.0, lg.int64), lambda i, s: s * 0.5 + lg.sin(x), x
    ),
    "merge_updates": lg.grad(lambda x: lg.sum(masked_rows(x) ** 2)),
    "simplify_tapes": lg.grad(decayed_total),
    "restore_overwritten_tensors": lg.grad(recalled_rows),
    "privatise_map_sums": lambda x: lg.grad(
        lambda c: lg.sum(lg.fori_loop(0, 16, lambda k, s: s * x + c[k], lg.zeros_like(x)))
    )(x[0, :16]),
    "sum_products_after_loops": lg.grad(repeated_product),
    "lower_tapes": lg.grad(lambda x: recurrence(x)[15]),
    "loop_over_elements": scaled_rows,
    "scalarise_loops": lambda x: recurrence(x),
    "interchange_elementwise_loops": lg.grad(
        lambda x: lg.sum(lg.fori_loop(0, 5, lambda i, s: lg.sin(s) + x, x))  # its tapes are for this pass alone
    ),
    "run_members_in_turn": lg.vmap(bubble_up),
    "interchange_point_loops": lambda x: lg.fori_loop(
        0, 5, lambda i, s: lg.sum(s, axis=0) * 0.1 + lg.sin(s), lg.reshape(x, (2, -1))
    ),
    "unroll_small_matmuls": lambda x: (lambda m: m @ lg.matrix_transpose(m))(lg.reshape(x, (-1, 2, 2))),
    "unroll_short_axes": lambda x: (lambda d: lg.sum(d / (1.0 + lg.sum(d * d, axis=-1, keepdims=True)), axis=1))(
        x[None, :, :3] - x[:, None, :3]
    ),
    "select_by_insertion": lambda x: lg.top_k(lg.astype(100.0 * x, lg.int16), 3)[0],
    "split_stacks": lambda x: (lambda s: s[0] * s[1] + lg.max(s))(lg.stack([lg.sin(x), lg.cos(x)]) * 2.0),
    "split_at_concatenations": lambda x: (
        lg.roll(x, 1, axis=0) + lg.roll(x, -1, axis=0) + lg.roll(x, 1, axis=1) - 3.0 * x
    ),
    "unroll_small_solves": lambda x: lg.linalg.inv(
        lg.reshape(lg.concat([x, x], axis=0)[:64, :4], (64, 2, 2)) + 9.0 * lg.eye(2, dtype=x.dtype)
    ),
    "push_transpose_through_matmul": lambda x: lg.matrix_transpose(x @ lg.matrix_transpose(x)[:, :8]),
    "share_row_reductions": lambda x: (lg.sum(lg.sin(x), axis=1), lg.sum(x * x)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_without_an_optimisation_computes_the_same(name: str) -> None:
    function = trace_call(PROGRAMS[name], [lg.asarray(GRID).type], "program").function
    source = CpuFunction(function)
    usual, other = source.schedule(), source.schedule(target=CPU.without(name))
    assert "\n".join(map(str, usual.steps)) != "\n".join(map(str, other.steps))
    expected = CompiledPlan.from_plan(usual, run_function).run([GRID])
    actual = CompiledPlan.from_plan(other, run_function).run([GRID])
    for own, usually in zip(actual, expected, strict=True):
        np.testing.assert_allclose(own, usually, rtol=1e-12, atol=1e-12)


def test_every_optimisation_has_a_name() -> None:
    scalar_loops = {"eliminate_bounds_checks", "unroll_and_jam", "skew_and_jam", "split_index_sets"}
    scalar_loops |= {"version_loops", "optimise_scalar_loops"}
    in_loops = {"interleave_lanes", "peel_remainders", "share_lockstep", "parallelise_loops"} | scalar_loops
    assert set(PROGRAMS) | {"thread_accumulators", "tile_row_chains"} | in_loops == set(OPTIONAL)
