"""Random tensor programs against JAX: values, both modes of derivatives, second order; eager, compiled, batched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

import jax  # pyright: ignore[reportMissingImports]
import numpy as np

import livegrad as lg
from livegrad.schedule import step_kinds
from tests.fuzz import operations, operations_folding, operations_updates  # noqa: F401  register what programs are made of
from tests.fuzz.jax_oracle import (
    FORWARD,
    GRADIENT,
    ILL_CONDITIONED,
    SECOND_ORDER,
    VALUES,
    Close,
    Expected,
    evaluate_by_jax,
    weighted_loss,
)
from tests.fuzz.programs import Livegrad, Program, random_program

NEEDS = ("jax",)
SHORT = 5
SIZES = (1, 2, 2, 3, 3, 4, 5)
BATCH = 2


def run_one(seed: int, check_rules: bool = False) -> Mapping[str, int]:
    """Compares one program; `check_rules` also compares NumPy's evaluation of what JAX traces with JAX's own."""
    if seed % 100 == 0:
        jax.clear_caches()  # JAX keeps what it traced, a megabyte a program
    program = random_program(seed, SIZES, (4, 10))
    numbers = np.random.default_rng(seed + 1)
    points = [
        [np.asarray(a + numbers.normal(size=a.shape) * 0.3, a.dtype) for a in program.arguments] for _ in range(BATCH)
    ]
    directions = [np.asarray(numbers.normal(size=a.shape), a.dtype) for a in program.arguments]
    # Half of the programs write slices of small tensors as those of large ones are written.
    few = step_kinds._SMALL_TENSOR if seed % 8 < 4 else 0
    try:
        expected = evaluate_by_jax(program, points, directions, numbers, check_rules)
        with mock.patch.object(step_kinds, "_SMALL_TENSOR", few):
            counts = _compare(program, points, directions, expected, seed)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}\n{program}") from None
    except Exception as error:
        error.add_note(f"seed {seed}\n{program}")
        raise
    return {**program.counts, **counts}


def _compare(program: Program, points: Any, directions: Any, expected: Expected, seed: int) -> Mapping[str, int]:
    function = program.function(Livegrad())
    every = tuple(range(len(directions)))

    def inexact(*arguments: Any) -> Any:
        return [r for r in function(*arguments) if r.dtype.kind in ("float", "complex")]

    def loss(*arguments: Any) -> Any:
        return weighted_loss(lg, function(*arguments), expected.weights, program.float_type)

    gradient = lg.grad(loss, every)

    def first_order(*arguments: Any) -> Any:
        return function(*arguments), list(gradient(*arguments))

    def forward(*arguments: Any) -> Any:
        return lg.jvp(inexact, list(arguments), tangents)[1]

    def second_order(*arguments: Any) -> Any:
        return list(lg.jvp(gradient, list(arguments), tangents)[1])

    def everything(*arguments: Any) -> Any:
        return *first_order(*arguments), forward(*arguments), second_order(*arguments)

    tolerance = 2e-3 if program.float_type == "float32" else 1e-8
    arguments = [lg.asarray(a) for a in points[0]]
    tangents = [lg.asarray(d) for d in directions]
    has_float = bool(expected.rows[0][FORWARD])
    close = Close(tolerance, expected)
    close("values", function(*arguments), VALUES)
    mode = ("eager", "jit", "vmap", "jit of vmap")[seed % 4]
    if mode == "eager":
        if has_float:
            close("gradient", list(gradient(*arguments)), GRADIENT)
            close("forward", forward(*arguments), FORWARD)
            close("second order", second_order(*arguments), SECOND_ORDER)
    elif mode == "jit":
        found = lg.jit(everything if has_float else lambda *a: (function(*a),))(*arguments)
        columns = {"values": VALUES, "gradient": GRADIENT, "forward": FORWARD, "second order": SECOND_ORDER}
        for (name, column), own in zip(columns.items(), found, strict=False):
            close(f"{name} under jit", own, column)
    else:
        stacked = [lg.asarray(np.stack(column)) for column in zip(*points, strict=True)]
        over = lg.vmap(first_order if has_float else lambda *a: (function(*a), []))
        found_values, found_slopes = (lg.jit(over) if mode == "jit of vmap" else over)(*stacked)
        for i in range(len(points)):
            close(f"values under {mode}", [v[i] for v in found_values], VALUES, i)
            if has_float:
                close(f"gradient under {mode}", [s[i] for s in found_slopes], GRADIENT, i)
    return {mode: 1, program.float_type: 1, ILL_CONDITIONED: close.ill_conditioned}
