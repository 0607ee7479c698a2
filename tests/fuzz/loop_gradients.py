"""Random nests of loops that write arrays, against JAX: values, both modes, and forward and reverse over reverse.

The same program runs eagerly, compiled, batched, and with limits on the bytes that reverse mode stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax  # pyright: ignore[reportMissingImports]
import numpy as np

import livegrad as lg
from tests.fuzz.jax_oracle import (
    FORWARD,
    GRADIENT,
    ILL_CONDITIONED,
    SECOND_ORDER,
    VALUES,
    Close,
    Expected,
    Jax,
    evaluate_by_jax,
    weighted_loss,
)
from tests.fuzz.loop_programs import random_loops
from tests.fuzz.programs import Livegrad, Program

NEEDS = ("jax",)
SHORT = 4
MODES = ("jit", "limited", "jit", "jit of vmap", "eager", "limited to little")
BATCH = 2
TOLERANCE = 1e-8


class LoopsOfLivegrad(Livegrad):
    """livegrad's names; a loop that ends early is a `while_loop`."""

    @staticmethod
    def loop_until(condition: Callable[..., Any], body: Callable[..., Any], state: Any, most: int) -> Any:
        def goes_on(carried: Any) -> Any:
            return lg.logical_and(carried[0] < most, condition(*carried))

        return lg.while_loop(goes_on, lambda c: (c[0] + 1, body(*c)), (lg.asarray(0), state))[1]


class LoopsOfJax(Jax):
    """JAX has no reverse mode of a loop whose length it finds as it runs: all iterations are branches of a scan."""

    @staticmethod
    def loop_until(condition: Callable[..., Any], body: Callable[..., Any], state: Any, most: int) -> Any:
        def step(carried: Any, i: Any) -> Any:
            running, inner = carried
            running = running & condition(i, inner)
            return (running, jax.lax.cond(running, lambda s: body(i, s), lambda s: s, inner)), None

        return jax.lax.scan(step, (jax.numpy.asarray(True), state), jax.numpy.arange(most))[0][1]

    @staticmethod
    def loop_by_count(iterations: Any, body: Callable[..., Any], state: Any, most: int) -> Any:
        return LoopsOfJax.loop_until(lambda i, s: i < iterations, body, state, most)

    loop_by_test = loop_by_count

    @staticmethod
    def update_at(x: Any, key: Any, values: Any, name: str) -> Any:
        """At places that differ, so products have a derivative too."""
        return getattr(x.at[key], name)(values)


def run_one(seed: int) -> Mapping[str, int]:
    """Compares one program."""
    if seed % 100 == 0:
        jax.clear_caches()  # JAX keeps what it traced
    program = random_loops(seed)
    numbers = np.random.default_rng(seed + 1)
    points = [
        [np.asarray(a + numbers.normal(size=a.shape) * 0.3, a.dtype) for a in program.arguments] for _ in range(BATCH)
    ]
    directions = [np.asarray(numbers.normal(size=a.shape), a.dtype) for a in program.arguments]
    try:
        expected = evaluate_by_jax(program, points, directions, numbers, names=LoopsOfJax())
        counts = _compare(program, points, directions, expected, MODES[seed % len(MODES)])
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}\n{program}") from None
    except Exception as error:
        error.add_note(f"seed {seed}\n{program}")
        raise
    return {**program.counts, **counts}


def _compare(program: Program, points: Any, directions: Any, expected: Expected, mode: str) -> Mapping[str, int]:
    function = program.function(LoopsOfLivegrad())
    if mode.startswith("limited"):
        function = lg.remember_at_most(64 if mode == "limited to little" else 2000)(function)
    every = tuple(range(len(directions)))
    tangents = [lg.asarray(d) for d in directions]

    def inexact(*arguments: Any) -> Any:
        return [r for r in function(*arguments) if r.dtype.kind in ("float", "complex")]

    def loss(*arguments: Any) -> Any:
        return weighted_loss(lg, function(*arguments), expected.weights, program.float_type)

    gradient = lg.grad(loss, every)

    def forward_over_reverse(*arguments: Any) -> Any:
        return list(lg.jvp(gradient, list(arguments), tangents)[1])

    def reverse_over_reverse(*arguments: Any) -> Any:
        """The Hessian is symmetric, so this is what JAX's forward mode over reverse mode gives."""

        def along(*moved: Any) -> Any:
            return sum(lg.sum(g * d) for g, d in zip(gradient(*moved), tangents, strict=True))

        return list(lg.grad(along, every)(*arguments))

    functions = {
        "values": (lambda *a: list(function(*a)), VALUES),
        "gradient": (lambda *a: list(gradient(*a)), GRADIENT),
        "forward": (lambda *a: list(lg.jvp(inexact, list(a), tangents)[1]), FORWARD),
        "forward over reverse": (forward_over_reverse, SECOND_ORDER),
        "reverse over reverse": (reverse_over_reverse, SECOND_ORDER),
    }
    close = Close(TOLERANCE, expected)
    for what, (run, column) in functions.items():
        if mode == "jit of vmap":
            found = lg.jit(lg.vmap(run))(*[lg.asarray(np.stack(values)) for values in zip(*points, strict=True)])
            for row in range(BATCH):
                close(f"{what} under {mode}", [f[row] for f in found], column, row)
        else:
            arguments = [lg.asarray(a) for a in points[0]]
            close(f"{what} under {mode}", (run if mode == "eager" else lg.jit(run))(*arguments), column)
    return {mode: 1, ILL_CONDITIONED: close.ill_conditioned}
