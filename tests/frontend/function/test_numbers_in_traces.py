"""Python numbers that reach a typed function through a trace match its parameters like in a direct call."""

import numpy as np
import pytest

import livegrad as lg


@lg.function
def scaled(v: lg.vec3, by: lg.f32) -> lg.vec3:
    return v * by


@lg.function
def product(x: lg.f32, y: lg.f32) -> lg.f32:
    return x * y


def test_a_number_passed_to_jit_matches_a_parameter_of_any_width():
    result = lg.jit(lambda points, by: scaled(points, by))(lg.ones((4, 3)), 3)
    assert result.dtype is lg.float32
    np.testing.assert_array_equal(result.numpy(), np.full((4, 3), 3.0))


def test_results_computed_only_from_numbers_stay_weak():
    assert lg.jit(lambda x: product(x * 2 + 1, 1.0))(2.0).item() == 5.0


def test_the_number_has_a_gradient():
    assert lg.grad(lambda by: lg.sum(scaled(lg.ones((4, 3)), by)))(3.0).item() == 12.0


def test_a_pin_set_to_a_number_matches():
    engine = lg.Engine()
    block = engine.add(lg.block(product))
    engine.set(block["x"], 2.0)
    engine.set(block["y"], 3)
    engine.step()
    assert engine.read(block) == 6.0


def test_a_tensor_of_another_type_is_still_rejected():
    with pytest.raises(lg.FunctionError, match="`x` expects f32"):
        lg.jit(lambda x: product(x, 1.0))(lg.asarray(2.0, dtype=lg.float64))
