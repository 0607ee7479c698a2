"""A padded source is bounded by its own shape, even if it is a part of a larger buffer."""

from collections.abc import Callable

import numpy as np
import pytest

import livegrad as lg

WEIGHTS = np.array([1.0, 2.0, 3.0])
ZERO = np.zeros(1)


def joined(p: lg.Tensor) -> lg.Tensor:
    return lg.concat([p[:1], p[1:2], p[2:]])


PROGRAMS: dict[str, Callable[[lg.Tensor], lg.Tensor]] = {
    "a stack of elements": lambda p: lg.stack([p[0], p[1], p[2]]),
    "a join of slices": joined,
    "the first part, padded": lambda p: lg.concat([p[:2], ZERO]),
    "the last part, padded": lambda p: lg.concat([ZERO, p[1:]]),
    "a part padded on both sides": lambda p: lg.concat([ZERO, p[1:2], ZERO]),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
@pytest.mark.parametrize("wrap", [lambda f: f, lg.jit], ids=["eager", "jit"])
def test_gradients_stop_where_the_padded_part_ends(
    program: Callable[[lg.Tensor], lg.Tensor], wrap: Callable[..., Callable[[lg.Tensor], lg.Tensor]]
) -> None:
    x = lg.asarray(np.array([0.5, 1.5, 2.5]))
    matrix = np.stack([np.asarray(program(lg.asarray(row))) for row in np.eye(3)])  # the programs are linear
    loss = lambda p: lg.sum(program(p) * lg.asarray(WEIGHTS))  # noqa: E731
    np.testing.assert_array_equal(np.asarray(wrap(lg.grad(loss))(x)), matrix @ WEIGHTS)


def test_features_that_are_joined_before_a_layer_have_the_layers_gradients() -> None:
    layer = np.arange(12.0).reshape(3, 4)
    gradient = lg.grad(lambda p: lg.sum(lg.asarray(layer).mT @ joined(p)))
    np.testing.assert_array_equal(np.asarray(gradient(lg.asarray(np.ones(3)))), layer.sum(1))


def test_batches_of_stacked_elements_have_gradients_of_their_own() -> None:
    gradient = lg.vmap(lg.grad(lambda p: lg.stack([p[0], p[1], p[2]]) @ lg.asarray(WEIGHTS)))
    np.testing.assert_array_equal(np.asarray(gradient(lg.asarray(np.ones((4, 3))))), np.tile(WEIGHTS, (4, 1)))
