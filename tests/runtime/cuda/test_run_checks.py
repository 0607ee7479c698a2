"""Jitted functions on a device do not wait for their checks: failures are raised when a result is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.diagnostics import KernelCheckError
from livegrad.runtime.cuda.run_checks import _MAX_PENDING
from livegrad.state import fresh_session
from tests.runtime.cuda.simulate import COMPILER, simulated
from tests.runtime.cuda.simulated_driver import SimulatedDriver

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")


@pytest.fixture
def driver() -> Iterator[SimulatedDriver]:
    with fresh_session(), simulated() as simulated_driver:
        yield simulated_driver


def there(*values: int) -> lg.Tensor:
    return lg.asarray(np.array(values, np.int32)).to("cuda").execute()


@lg.jit
def divide(x: lg.Tensor, y: lg.Tensor) -> lg.Tensor:
    return x // y


@lg.jit
def double(x: lg.Tensor) -> lg.Tensor:
    return x * 2


def test_a_call_does_not_wait_and_reading_raises_each_time(driver: SimulatedDriver) -> None:
    x, zero, two = there(8, 6), there(2, 0), there(2, 2)
    divide(x, two).numpy()
    before = driver.count("cuStreamSynchronize")
    wrong, right = divide(x, zero), divide(x, two)
    assert driver.count("cuStreamSynchronize") == before
    np.testing.assert_array_equal(right.numpy(), [4, 3])
    for _ in range(2):
        with pytest.raises(KernelCheckError, match=r"division by zero.*at element 1") as caught:
            wrong.numpy()
        assert "test_run_checks.py" in str(caught.value)
    np.testing.assert_array_equal(divide(x, two).numpy(), [4, 3])


def test_what_is_computed_from_a_wrong_result_raises_too(driver: SimulatedDriver) -> None:
    x, zero = there(8, 6), there(2, 0)
    wrong = divide(x, zero)
    later = double(double(wrong))
    eager = wrong + 1
    for one in (later, eager, later[0:1]):
        with pytest.raises(KernelCheckError, match="division by zero"):
            np.asarray(one)
    np.testing.assert_array_equal(double(x).numpy(), [16, 12])


def test_checks_that_pass_are_forgotten(driver: SimulatedDriver) -> None:
    x, one = there(8, 6), there(1, 1)
    for _ in range(5 * _MAX_PENDING):
        x = divide(x, one)
    array: Any = x._stored_value()
    assert 1 <= len(array.checks) <= _MAX_PENDING + 1
    np.testing.assert_array_equal(x.numpy(), [8, 6])
    assert not array.checks


def test_a_failure_that_nobody_reads_is_raised_by_a_later_call(driver: SimulatedDriver) -> None:
    x, zero, two = there(8, 6), there(2, 0), there(2, 2)
    divide(x, zero)
    for _ in range(_MAX_PENDING - 1):
        divide(x, two)
    with pytest.raises(KernelCheckError, match="division by zero"):
        divide(x, two)
    np.testing.assert_array_equal(divide(x, two).numpy(), [4, 3])


def test_executing_a_tensor_raises_at_once(driver: SimulatedDriver) -> None:
    with pytest.raises(KernelCheckError, match="division by zero"):
        (there(8, 6) // there(2, 0)).execute()


def test_other_libraries_wait_for_the_checks(driver: SimulatedDriver) -> None:
    wrong = divide(there(8, 6), there(2, 0))._stored_value()
    with pytest.raises(KernelCheckError, match="division by zero"):
        _ = wrong.__cuda_array_interface__
