"""Random graphs of mixed ops: every backend gives what the reference gives, derivatives included, and the two modes of
differentiation agree."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livegrad.ir.line_sites import equal_but_for_lines
from livegrad.ir.node import Function
from livegrad.ir.text import parse_function, print_function
from livegrad.ir.types import Scalar, f32, f64, i8, i32, i64, u32
from livegrad.ir.verify import verify_function
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.reference import evaluate
from tests.conformance.backends import OTHERS, Backend
from tests.conformance.graphs import float_graph, integer_graph
from tests.differentiate.checks import assert_dual, flat, random_differentials, results_of


def assert_same(backend: Backend, function: Function, arguments: tuple[Any, ...], relative: float) -> None:
    expected, actual = evaluate(function, *arguments), backend.run(function, *arguments)
    pairs = zip(results_of(function, actual), results_of(function, expected), strict=True)
    for found, wanted in pairs:
        if isinstance(wanted, tuple):
            assert found == wanted
            continue
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        scale = relative * (1.0 + np.max(np.abs(wanted), initial=0.0)) if relative else 0.0
        np.testing.assert_allclose(found, wanted, rtol=0, atol=scale)


@pytest.mark.parametrize("backend", OTHERS, ids=str)
@pytest.mark.parametrize("scalar", [i8, u32, i32, i64], ids=str)
@settings(max_examples=25)
@given(data=st.data())
def test_graphs_of_integers_are_the_same_to_the_bit(backend: Backend, scalar: Scalar, data: st.DataObject) -> None:
    graph = integer_graph(data, scalar)
    verify_function(graph.function)
    assert_same(backend, graph.function, graph.arguments, 0.0)


@pytest.mark.parametrize("backend", OTHERS, ids=str)
@pytest.mark.parametrize(("scalar", "relative"), [(f32, 1e-4), (f64, 1e-11)], ids=str)
@settings(max_examples=40)
@given(data=st.data())
def test_graphs_of_floats_are_the_same_to_rounding(
    backend: Backend, scalar: Scalar, relative: float, data: st.DataObject
) -> None:
    graph = float_graph(data, scalar)
    verify_function(graph.function)
    assert_same(backend, graph.function, graph.arguments, relative)


@pytest.mark.parametrize("backend", OTHERS, ids=str)
@settings(max_examples=40)
@given(data=st.data())
def test_derivatives_of_graphs_are_the_same_and_the_modes_agree(backend: Backend, data: st.DataObject) -> None:
    graph = float_graph(data, f64)
    function, arguments = graph.function, graph.arguments
    rng = np.random.default_rng(len(arguments))
    tangents = random_differentials(function.parameter_types, rng)
    cotangents = random_differentials(function.result_types, rng)
    forward, backward = jvp(function), vjp(function)
    verify_function(forward)
    verify_function(backward)
    assert_same(backend, forward, arguments + tangents, 1e-10)
    assert_same(backend, backward, arguments + cotangents, 1e-10)
    duals = results_of(forward, evaluate(forward, *arguments, *tangents))
    gradient = results_of(backward, evaluate(backward, *arguments, *cotangents))
    assert np.all(np.isfinite(flat(gradient)))
    assert_dual(gradient, tangents, cotangents, duals[len(function.results) :])


@settings(max_examples=25)
@given(data=st.data())
def test_graphs_survive_being_printed_and_parsed(data: st.DataObject) -> None:
    function = float_graph(data, f64).function
    assert equal_but_for_lines(parse_function(print_function(function)), function)
