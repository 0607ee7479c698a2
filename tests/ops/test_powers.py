"""Derivatives of powers: a constant exponent has a simple derivative, for which loops store no residual."""

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.ir.function import trace
from livegrad.ir.node import Node
from livegrad.ir.types import f64
from livegrad.ir.walk import nodes_of
from livegrad.passes.differentiate.reverse import vjp

EXPONENTS = [-1.5, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0]


def power(exponent: float) -> lg.ir.Function:
    return trace(lambda x: ops.pow(x, exponent), f64)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("at", [0.7, 2.5])
def test_the_derivative_of_a_power(exponent: float, at: float) -> None:
    gradient = lg.ir.compile(vjp(power(exponent)))(at, 1.0)
    np.testing.assert_allclose(gradient, exponent * at ** (exponent - 1.0), rtol=1e-14)


@pytest.mark.parametrize(("exponent", "slope"), [(0.0, 0.0), (1.0, 1.0), (2.0, 0.0), (3.0, 0.0), (0.5, np.inf)])
def test_the_derivative_at_zero(exponent: float, slope: float) -> None:
    assert lg.ir.compile(vjp(power(exponent)))(0.0, 1.0) == slope


def test_the_derivative_of_a_square_is_a_product() -> None:
    names = {node.op.name for node in nodes_of(vjp(power(2.0)))}
    assert "pow" not in names
    assert "select" not in names


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_a_computed_exponent_has_the_same_derivative(exponent: float) -> None:
    def function(x: Node, y: Node) -> Node:
        return ops.pow(x, y)

    gradient, _ = lg.ir.compile(vjp(trace(function, f64, f64)))(0.7, exponent, 1.0)
    np.testing.assert_allclose(gradient, lg.ir.compile(vjp(power(exponent)))(0.7, 1.0), rtol=1e-14)
