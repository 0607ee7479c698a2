"""Element types: casts and their errors, promotion, limits, and the namespace's capabilities."""

from itertools import product

import numpy as np
import pytest

import livegrad as lg

NAMES = tuple(lg.__array_namespace_info__().dtypes())


def test_casts_in_range_match_numpy() -> None:
    for source, target in product(NAMES, NAMES):
        x = np.asarray([0, 1, 100]).astype(source)
        tensor = lg.asarray(x)
        if source.startswith("complex") and not target.startswith(("complex", "bool")):
            with pytest.raises(lg.DtypeError, match="complex numbers cannot be converted"):
                lg.astype(tensor, target)
            continue
        found = lg.astype(tensor, getattr(lg, target))
        assert found.dtype == getattr(lg, target)
        np.testing.assert_array_equal(found.numpy(), x.astype(target))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 2.0**31, -(2.0**31) - 1024.0])
def test_floats_that_are_not_integers_raise_when_they_are_computed(value: float) -> None:
    cast = lg.astype(lg.asarray([0.0, value]), lg.int32)
    with pytest.raises(lg.KernelCheckError, match="does not fit i32, at element 1") as caught:
        cast.numpy()
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


def test_a_cast_to_the_same_type_copies_the_handle_unless_copy_is_false() -> None:
    x = lg.ones(2)
    assert lg.astype(x, lg.float32, copy=False) is x
    copy = lg.astype(x, lg.float32)
    x[0] = 5.0
    assert copy.tolist() == [1.0, 1.0]


def test_promotion_is_the_same_in_every_order() -> None:
    for first, second in product(NAMES, NAMES):
        a, b = getattr(lg, first), getattr(lg, second)
        try:
            found = lg.result_type(a, b)
        except lg.DtypeError:
            assert {a.kind, b.kind} == {"signed", "unsigned"}
            assert 64 in (a.bits, b.bits)
            continue
        assert found == lg.result_type(b, a)
        assert found == lg.where(lg.asarray(True), lg.ones(1, dtype=a), lg.ones(1, dtype=b)).dtype
        assert lg.can_cast(a, found)
        assert lg.can_cast(b, found)
    assert lg.result_type(lg.float32, lg.int8, 1.5) == lg.float32
    assert lg.result_type(lg.ones(1, dtype=lg.int8), 1) == lg.int8
    assert lg.result_type(1, 2.0) == lg.float32


def test_types_are_compared_without_surprises() -> None:
    assert lg.float32 is lg.f32
    assert lg.bool is lg.bool_
    assert lg.float32 != lg.float64
    assert lg.int16 != lg.float16 != lg.bfloat16
    assert len({getattr(lg, name) for name in NAMES}) == len(NAMES)


def test_finfo_and_iinfo_match_the_types() -> None:
    for name in ("float16", "float32", "float64"):
        found, expected = lg.finfo(getattr(lg, name)), np.finfo(name)
        assert (found.max, found.eps, found.bits) == (float(expected.max), float(expected.eps), expected.bits)
    assert lg.finfo(lg.complex128).dtype == lg.float64
    assert lg.finfo(lg.ones(1)).bits == 32
    assert (lg.iinfo(lg.uint64).max, lg.iinfo(lg.int16).min) == (2**64 - 1, -(2**15))
    with pytest.raises(lg.DtypeError, match="floating-point"):
        lg.finfo(lg.int8)
    with pytest.raises(lg.DtypeError, match="integer type"):
        lg.iinfo(lg.float32)


def test_kinds_of_types() -> None:
    assert lg.isdtype(lg.int8, "integral")
    assert lg.isdtype(lg.uint8, ("bool", "unsigned integer"))
    assert not lg.isdtype(lg.bool, "numeric")
    assert lg.isdtype(lg.complex64, lg.complex64)
    with pytest.raises(lg.UsageError, match="unknown kind"):
        lg.isdtype(lg.int8, "whole")


@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64"])
def test_a_type_equals_that_of_numpy(name: str) -> None:
    ours, dtype = getattr(lg, name), np.dtype(name)
    assert ours == dtype.type
    assert dtype.type == ours
    assert ours == dtype
    assert dtype == ours
    assert hash(ours) == hash(dtype)
    assert lg.zeros(2, dtype=ours).dtype == name
    assert ours not in (np.int32, "uint8", float, None)
    assert lg.bfloat16 != dtype


def test_the_namespace_tells_of_itself() -> None:
    info = lg.__array_namespace_info__()
    assert lg.__array_api_version__ == "2025.12"
    assert lg.ones(1).__array_namespace__() is lg
    assert info.default_dtypes()["real floating"] == lg.float32
    assert set(info.devices()) >= {"cpu", "reference"}
    assert info.dtypes(kind="signed integer").keys() == {"int8", "int16", "int32", "int64"}
    assert all(info.capabilities()[name] for name in ("boolean indexing", "data-dependent shapes"))
    with pytest.raises(ValueError, match="unsupported version"):
        lg.ones(1).__array_namespace__(api_version="1999.01")


def test_constants() -> None:
    assert (lg.pi, lg.e, lg.newaxis) == (np.pi, np.e, None)
    assert lg.inf > 1e308
    assert lg.nan != lg.nan
