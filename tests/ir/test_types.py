"""Types are interned, survive pickling, and have components and differentials."""

import copy
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given

from livegrad.diagnostics import UsageError
from livegrad.ir.dimension import Dimension
from livegrad.ir.types import (
    UNIT,
    Array,
    Matrix,
    Struct,
    Tape,
    Tensor,
    Tuple,
    Type,
    Vector,
    bool_,
    c64,
    c128,
    components,
    differential_of,
    f32,
    f64,
    i32,
    is_differentiable,
    scalar_of,
    scalar_of_dtype,
    with_scalar,
)
from livegrad.ir.types.scalars import SCALARS
from tests.ir.strategies import types


@given(types)
def test_a_type_pickles_and_copies_to_itself(type: Type) -> None:
    assert pickle.loads(pickle.dumps(type)) is type
    assert copy.deepcopy(type) is type


def test_equal_types_are_one_object() -> None:
    n = Dimension.symbol("n")
    assert Vector(f32, 3) is Vector(f32, 3)
    assert Tensor(f32, (n + 1, 3)) is Tensor(f32, (1 + n, 3))
    assert Struct("A", (("x", f32),)) is Struct("A", (("x", f32),))


def test_types_that_differ_in_any_part_are_different() -> None:
    assert Vector(f32, 3) is not Vector(f64, 3)
    assert Struct("A", (("x", f32),)) is not Struct("B", (("x", f32),))
    assert Struct("A", (("x", f32),)) is not Struct("A", (("y", f32),))
    assert Tensor(f32, ()) is not f32
    assert Tuple((f32,)) is not f32


def test_threads_get_the_same_type() -> None:
    actual: list[Type] = []
    barrier = threading.Barrier(8)

    def make() -> None:
        barrier.wait()
        actual.append(Struct("made by threads", (("x", Vector(f32, 7)),)))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(type is actual[0] for type in actual)


@pytest.mark.parametrize("name", SCALARS)
def test_a_scalar_is_the_scalar_of_its_dtype(name: str) -> None:
    scalar = SCALARS[name]
    assert scalar_of_dtype(scalar.dtype) is scalar
    assert scalar.kind == "bool" or scalar.dtype.itemsize * 8 == scalar.bits


def test_a_dtype_without_a_type_is_refused() -> None:
    with pytest.raises(UsageError, match="no livegrad type"):
        scalar_of_dtype(np.dtype("datetime64[s]"))


def test_complex_parts_are_real() -> None:
    assert c64.real is f32
    assert c128.real is f64
    assert i32.real is i32


def test_a_tensor_needs_a_scalar_element_and_whole_sizes() -> None:
    with pytest.raises(UsageError):
        Tensor(f32, (1.5,))  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        Tensor(Tuple((f32,)), (2,))  # type: ignore[arg-type]


def test_components_of_aggregates() -> None:
    assert components(Matrix(f32, 2, 3)) == (f32,) * 6
    assert components(Struct("A", (("x", f32), ("y", i32)))) == (f32, i32)
    assert components(f32) == ()


def test_the_scalar_of_a_type_can_be_exchanged() -> None:
    assert scalar_of(Tensor(f32, (2, 3))) is f32
    assert scalar_of(Tuple((f32,))) is None
    assert with_scalar(Matrix(f32, 2, 2), bool_) is Matrix(bool_, 2, 2)


def test_fields_without_derivative_leave_a_differential_struct() -> None:
    material = Struct("Material", (("albedo", Vector(f32, 3)), ("layer", i32)))
    assert differential_of(material) is Struct("Material.Differential", (("albedo", Vector(f32, 3)),))


def test_positions_of_a_differential_tuple_keep_their_meaning() -> None:
    assert differential_of(Tuple((i32, f32))) is Tuple((UNIT, f32))
    assert differential_of(Tape(f32)) is Tape(f32)
    assert differential_of(Array(i32, 4)) is UNIT


@given(types)
def test_a_differential_is_its_own_differential(type: Type) -> None:
    differential = differential_of(type)
    assert differential_of(differential) is differential
    assert is_differentiable(type) == (differential is not UNIT)
