"""Tapes with room for all iterations of a loop: their rows are found by the index alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, f64, i64
from livegrad.ops.control import make_cond, make_for_loop
from livegrad.ops.conversion import cast
from livegrad.ops.maps import make_map
from livegrad.ops.rules import filled
from livegrad.ops.transcendental import sin
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import run_function
from livegrad.runtime.reference import evaluate


def logistic(x: Node, n: Node) -> Node:
    return make_for_loop(n, lambda k, y: sin(y) * x + cast(k, type=f64) * y * y * 0.01, x)[0]


def nested(x: Node, n: Node) -> Node:
    """Inner loops of different lengths, whose tapes belong to iterations of the outer one."""
    return make_for_loop(n, lambda k, y: logistic(y * 0.5, k) + x, x)[0]


def in_branches(x: Node, n: Node) -> Node:
    """Loops of the same length in both branches, and one after them."""
    y = make_cond(x > 0.0, logistic, lambda x, n: logistic(x * 2.0, n) * 0.5, x, n)
    return logistic(y * 0.3, n) * y


def one_after_another(x: Node, n: Node) -> Node:
    """Loops whose lengths differ: a tape has room for the iterations of its own loop."""
    return logistic(logistic(x, n) * 0.3, n + 3) + logistic(x, filled(2, i64))


PROGRAMS = {program.__name__: program for program in (logistic, nested, in_branches, one_after_another)}


def mapped(program: Any, points: int, counts: bool) -> Function:
    inner = trace(program, f64, i64, name="point")
    lengths = Tensor(i64, (points,)) if counts else i64
    return trace(lambda xs, n: make_map(inner, xs, n), Tensor(f64, (points,)), lengths, name="mapped")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("length", [0, 1, 7, 40])
def test_a_scalar_loop_has_the_gradient_of_the_reference(name: str, length: int) -> None:
    function = vjp(trace(PROGRAMS[name], f64, i64, name=name))
    arguments = (0.7, length, 1.3)
    np.testing.assert_allclose(run_function(function, *arguments)[0], evaluate(function, *arguments)[0], rtol=1e-12)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("counts", [False, True], ids=["same length", "own lengths"])
def test_lanes_have_the_gradient_of_the_reference(name: str, counts: bool) -> None:
    points = 37
    function = vjp(mapped(PROGRAMS[name], points, counts))
    random = np.random.default_rng(0)
    lengths: Any = random.integers(0, 9, points) if counts else 6
    arguments = (random.normal(size=points), lengths, random.normal(size=points))
    np.testing.assert_allclose(run_function(function, *arguments)[0], evaluate(function, *arguments)[0], rtol=1e-11)


def test_a_loop_that_would_need_too_much_memory_fails_with_a_message() -> None:
    function = vjp(trace(logistic, f64, i64, name="logistic"))
    for length in (1 << 62, 1 << 33):
        with pytest.raises(Exception, match="more than 4 GiB"):
            run_function(function, 0.1, length, 1.0)
