"""Messages about tensors: what was wrong, and at which line they were written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import livegrad as lg

X = lg.asarray(np.arange(5.0))

OUT_OF_RANGE: dict[str, tuple[Any, str]] = {
    "an index of a tensor": (lambda i: X[i], "expected 0 to 4, found 7"),
    "from the end": (lambda i: X[-i], "expected 0 to 4, found -2 after counting from the end"),
    "along another axis": (lambda i: lg.take(lg.ones((9, 3)), i, axis=1), "axis 1.*expected 0 to 2, found 7"),
    "in a compiled function": (lambda i: lg.jit(lambda x, i: x[i])(X, i), "expected 0 to 4, found 7"),
    "in a batch": (lambda i: lg.vmap(lambda one: X[one])(i), "expected 0 to 4, found 7"),
    "behind a gradient": (lambda i: lg.grad(lambda x: lg.sum(x[i]))(X), "expected 0 to 4, found 7"),
}


@pytest.mark.parametrize("case", OUT_OF_RANGE)
def test_an_index_out_of_range_is_reported_with_the_valid_range(case: str) -> None:
    run, message = OUT_OF_RANGE[case]
    with pytest.raises(lg.KernelCheckError, match=message) as caught:
        np.asarray(run(lg.asarray([0, 7, 1])))
    assert "test_messages.py" in str(caught.value)


def test_only_repr_of_a_tensor_that_cannot_be_computed_raises() -> None:
    """Notebooks call both representations and show what each raises."""
    wrong = X[lg.asarray([0, 7])]
    with pytest.raises(lg.KernelCheckError):
        repr(wrong)
    for _ in range(2):
        shown = wrong._repr_html_()
        assert "could not be computed" in shown
        assert "was computed" not in shown


def test_a_graph_names_the_line_where_a_constant_is_used() -> None:
    elsewhere = X * 123.25
    here = lg.sin(X) * 123.25
    nodes = here.graph.nodes
    multiplied = str(nodes[-1].origin)
    constants = [node for node in nodes if node.op in ("constant", "broadcast")]
    assert {str(node.origin) for node in constants} == {multiplied}
    later = X * 123.25
    assert {str(node.origin) for node in here.graph.nodes if node.op in ("constant", "broadcast")} == {multiplied}
    assert multiplied in str(here.graph)
    assert elsewhere.shape == later.shape


def sums_of_products(x: lg.Tensor) -> lg.Tensor:
    last, rows = lg.scan(lambda state, row: (state + row * row, state * row), lg.zeros(()), x)
    return lg.sum(rows) + last


WEIGHTS = lg.asarray([0.5, 2.0])  # float32


@pytest.mark.parametrize(
    "function",
    [
        sums_of_products,
        lambda x: lg.sum(lg.fori_loop(0, 3, lambda i, s: s * WEIGHTS + x, lg.ones(2))),
        lambda x: lg.while_loop(lambda s: s < 9.0, lambda s: s * 1.5 + lg.sum(x * x), lg.asarray(1.0)),
        lambda x: lg.sum(lg.cond(x[0] > 0.0, lambda v: v * 2.0, lambda v: lg.zeros(2), x)),
        lambda x: lg.sum(lg.cond(WEIGHTS[0] > 0.0, lambda v: v * 2.0, lambda v: lg.zeros(2), x)),
    ],
)
def test_gradients_of_loops_in_single_precision_are_checked_in_double(function: Any) -> None:
    assert function(lg.asarray([0.75, 1.25])).dtype == np.float32
    lg.check_gradients(function, lg.asarray([0.75, 1.25]))


def test_a_wrong_gradient_of_a_loop_in_single_precision_is_found() -> None:
    @lg.custom_vjp
    def double(x: lg.Tensor) -> lg.Tensor:
        return x * 2.0

    double.defvjp(lambda x: (x * 2.0, ()), lambda kept, ct: (ct * 3.0,))

    def loop(x: lg.Tensor) -> lg.Tensor:
        return lg.scan(lambda state, row: (state + double(row), row), lg.zeros(()), x)[0]

    with pytest.raises(lg.LivegradError):
        lg.check_gradients(loop, lg.asarray([0.75, 1.25]))


def test_an_error_of_a_function_propagates_where_arguments_are_already_float64() -> None:
    with pytest.raises(lg.LivegradError, match="type of the loop's state"):
        lg.check_gradients(sums_of_products, lg.asarray([0.75, 1.25], dtype=lg.float64))
