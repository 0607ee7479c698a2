"""Which arguments compiled functions accept and reject, and the messages."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops

N, M = lg.ir.Dimension.symbol("n"), lg.ir.Dimension.symbol("m")


pytestmark = pytest.mark.usefixtures("own_session")  # errors name the first of equal functions


def _double(x: lg.ir.Node) -> lg.ir.Node:
    return x + x


def _identity(x: lg.ir.Node) -> lg.ir.Node:
    return x


def _refusal(compiled: Callable[..., Any], *arguments: Any) -> str:
    """The message for arguments that do not fit, without the location of the call."""
    with pytest.raises(lg.UsageError) as raised:
        compiled(*arguments)
    assert raised.value.where is not None
    assert raised.value.where.file == __file__
    return str(raised.value).replace(f" ({raised.value.where})", "")


GRID = np.arange(24, dtype=np.float32).reshape(4, 6)


def _read_only(array: Any) -> Any:
    array = array.copy()
    array.flags.writeable = False
    return array


def _unaligned(array: Any) -> Any:
    return np.ndarray(array.shape, array.dtype, buffer=b"x" + array.tobytes(), offset=1)


FORMS = {
    "as it is": GRID,
    "reversed": GRID[::-1, ::-1],
    "in Fortran order": np.asfortranarray(GRID),
    "transposed": GRID.T,
    "with steps": GRID[::2, 1::3],
    "broadcast": np.broadcast_to(GRID[0], (4, 6)),
    "broadcast from one": np.broadcast_to(np.float32(7), (4, 6)),
    "read-only": _read_only(GRID),
    "not aligned": _unaligned(GRID),
    "empty": GRID[:0],
    "empty the other way": GRID[:, :0],
    "of size one": GRID[:1, :1],
    "a window": np.lib.stride_tricks.sliding_window_view(GRID[0], 3),
    "a list": GRID.tolist(),
    "integers": [[1, 2], [3, 4]],
}


@pytest.mark.parametrize("symbolic", [False, True], ids=["fixed", "symbolic"])
@pytest.mark.parametrize("form", FORMS)
def test_arrays_of_all_forms_are_accepted(form: str, symbolic: bool) -> None:
    argument = FORMS[form]
    array = np.asarray(argument, np.float32)
    shape = (N, M) if symbolic else array.shape
    compiled = lg.ir.compile(lg.ir.trace(_double, lg.ir.types.Tensor(lg.f32, shape)))
    for _ in range(2):
        np.testing.assert_array_equal(compiled(argument), array * 2)


def test_zero_dimensional_arrays_are_accepted_for_scalars_and_tensors() -> None:
    assert lg.ir.compile(lg.ir.trace(_double, lg.f32))(np.array(1.5)) == 3.0
    assert lg.ir.compile(lg.ir.trace(_double, lg.f32))(np.array(1.5, np.float32)[()]) == 3.0
    tensor = lg.ir.compile(lg.ir.trace(_double, lg.ir.types.Tensor(lg.f32, ())))
    assert tensor(np.array(1.5, np.float32)) == 3.0


def test_subclasses_of_arrays_are_accepted_as_their_memory(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "file", np.float32, "w+", shape=(5,))
    mapped[:] = 3
    compiled = lg.ir.compile(lg.ir.trace(_double, lg.ir.types.Tensor(lg.f32, (N,))))
    result = compiled(mapped)
    assert (type(result), result.tolist()) == (np.ndarray, [6.0] * 5)


def test_bits_of_nan_pass_through() -> None:
    bits = np.array([0x7FC12345, 0xFFC54321, 0x7F812345, 0xFF800001], np.uint32)
    compiled = lg.ir.compile(lg.ir.trace(_identity, lg.ir.types.Tensor(lg.f32, (N,))))
    assert compiled(bits.view(np.float32)).view(np.uint32).tolist() == bits.tolist()


def test_truth_values_of_any_byte_are_truth_values() -> None:
    odd = np.array([0, 1, 2, 255, 128], np.uint8).view(np.bool_)
    choose = lg.ir.trace(lambda c: ops.select(c, lg.ir.constant(1.0, lg.f32), lg.ir.constant(0.0, lg.f32)), lg.bool_)
    assert lg.ir.compile(lg.ir.map_over(choose))(odd).tolist() == [0.0, 1.0, 1.0, 1.0, 1.0]


# --- scalars ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "argument", "value"),
    [
        (lg.f32, 1, 1.0),
        (lg.f32, True, 1.0),
        (lg.f32, 2**24 + 1, 2.0**24),
        (lg.f32, np.float64(0.1), np.float32(0.1)),
        (lg.f32, np.int8(-3), -3.0),
        (lg.f32, np.float16(0.5), 0.5),
        (lg.f32, float("inf"), np.inf),
        (lg.f32, 3.4028235e38, np.finfo(np.float32).max),
        (lg.f16, 65504, 65504.0),
        (lg.f64, 10**300, 1e300),
        (lg.i8, -128, -128),
        (lg.i8, np.uint64(127), 127),
        (lg.i32, True, 1),
        (lg.u64, 2**64 - 1, 2**64 - 1),
        (lg.bool_, True, True),
        (lg.bool_, np.bool_(False), False),
        (lg.c64, 2, 2.0),
        (lg.c64, 1.5 - 2j, 1.5 - 2j),
    ],
    ids=repr,
)
def test_numbers_that_fit_are_accepted(type: Any, argument: Any, value: Any) -> None:
    compiled = lg.ir.compile(lg.ir.trace(_identity, type))
    for _ in range(2):
        result = compiled(argument)
        assert result.dtype == type.dtype
        assert result == value


def test_nan_is_accepted_like_any_other_float() -> None:
    compiled = lg.ir.compile(lg.ir.trace(_identity, lg.f32))
    assert np.isnan(compiled(float("nan")))
    assert np.isnan(compiled(np.float32("nan")))


@pytest.mark.parametrize(
    ("type", "argument", "said"),
    [
        (lg.i8, 300, "expected i8, from -128 to 127, found 300"),
        (lg.i8, np.int64(300), "expected i8, from -128 to 127, found 300"),
        (lg.i8, np.array(300), "expected i8, from -128 to 127, found 300"),
        (lg.u32, -1, "expected u32, from 0 to 4294967295, found -1"),
        (lg.u32, np.int64(-1), "expected u32, from 0 to 4294967295, found -1"),
        (lg.u32, np.uint64(2**32), "expected u32, from 0 to 4294967295, found 4294967296"),
        (lg.i64, 10**30, f"expected i64, from {-(2**63)} to {2**63 - 1}, found {10**30}"),
        (lg.i32, float("nan"), "expected i32, found nan"),
        (lg.i32, 3.7, "expected i32, found 3.7"),
        (lg.i32, 3.0, "expected i32, found 3.0"),
        (lg.i32, np.float32(2.0), "expected i32, found np.float32(2.0)"),
        (lg.i32, "3", "expected i32, found '3'"),
        (lg.i32, 1 + 0j, "expected i32, found (1+0j)"),
        (lg.bool_, 1, "expected bool, found 1"),
        (lg.bool_, "False", "expected bool, found 'False'"),
        (lg.f32, 1e300, "expected a finite f32, found 1e+300"),
        (lg.f32, np.float64(-1e300), "expected a finite f32, found -1e+300"),
        (lg.f32, 10**400, f"expected f32, found 1{'0' * 56}..."),
        (lg.f16, np.float32(1e6), "expected a finite f16, found 1000000.0"),
        (lg.c64, 1e300, "expected a finite c64, found 1e+300"),
        (lg.f32, None, "expected f32, found None"),
        (lg.f32, "3", "expected f32, found '3'"),
        (lg.f32, b"3", "expected f32, found b'3'"),
        (lg.f32, 1 + 2j, "expected f32, found (1+2j)"),
        (lg.f32, [1.0], "expected f32, found shape (1,)"),
        (lg.f32, np.array([1.0]), "expected f32, found shape (1,)"),
        (lg.f32, np.datetime64("2020-01-01"), "expected f32, found np.datetime64('2020-01-01')"),
        (lg.f32, {}, "expected f32, found {}"),
    ],
    ids=repr,
)
def test_numbers_that_do_not_fit_are_rejected(type: Any, argument: Any, said: str) -> None:
    compiled = lg.ir.compile(lg.ir.trace(_identity, type))
    for _ in range(2):
        assert _refusal(compiled, argument) == f"argument 0 of `_identity` does not fit: {said}"


# --- arrays ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "argument", "said"),
    [
        (lg.ir.types.Tensor(lg.i32, (2,)), [1.5, 2.5], "expected i32, found an array of float64"),
        (
            lg.ir.types.Tensor(lg.i32, (2,)),
            [1, 2**40],
            "expected i32, from -2147483648 to 2147483647, found 1099511627776",
        ),
        (lg.ir.types.Tensor(lg.i32, (2,)), [float("nan"), 1], "expected i32, found an array of float64"),
        (lg.ir.types.Tensor(lg.i32, (2,)), ["1", "2"], "expected tensor<i32, [2]>, found ['1', '2']"),
        (lg.ir.types.Tensor(lg.i32, (2,)), [1, None], "expected tensor<i32, [2]>, found [1, None]"),
        (lg.ir.types.Tensor(lg.i32, (2,)), [[1, 2]], "expected tensor<i32, [2]>, found shape (1, 2)"),
        (lg.ir.types.Tensor(lg.i32, (2,)), 3, "expected tensor<i32, [2]>, found shape ()"),
        (
            lg.ir.types.Tensor(lg.i32, (2,)),
            np.zeros(2),
            "expected tensor<i32, [2]>, found an array of float64; convert it with .astype('int32')",
        ),
        (
            lg.ir.types.Tensor(lg.i32, (2,)),
            np.zeros(2, ">i4"),
            "expected tensor<i32, [2]>, found an array of >i4; convert it with .astype('int32')",
        ),
        (
            lg.ir.types.Tensor(lg.i32, (2,)),
            np.array([1, 2], object),
            "expected tensor<i32, [2]>, found an array of object; convert it with .astype('int32')",
        ),
        (
            lg.ir.types.Tensor(lg.f32, (N,)),
            np.ma.array(np.ones(2, np.float32), mask=[False, True]),
            "expected tensor<f32, [n]>, found a masked array; give what is masked a value with .filled(value)",
        ),
        (lg.ir.types.Tensor(lg.f32, (2,)), [1e300, 2], "expected a finite f32, found 1e+300"),
        (
            lg.ir.types.Tensor(lg.f32, (3, N)),
            np.ones((4, 2), np.float32),
            "expected tensor<f32, [3, n]> with n = 2, found shape (4, 2)",
        ),
        (lg.ir.types.Tensor(lg.f32, (3, N)), np.ones(3, np.float32), "expected tensor<f32, [3, n]>, found shape (3,)"),
        (lg.ir.Vector(lg.i32, 3), np.array([1.5, 2, 3]), "expected i32, found an array of float64"),
        (lg.ir.Vector(lg.i32, 3), [1, 2], "expected vec<i32, 3>, found shape (2,)"),
        (lg.ir.Vector(lg.u8, 2), [1, -1], "expected u8, from 0 to 255, found -1"),
        (lg.ir.Vector(lg.f32, 2), np.array([1e300, 2]), "expected a finite f32, found 1e+300"),
        (lg.ir.Vector(lg.f32, 3), "abc", "expected vec<f32, 3>, found 'abc'"),
        (lg.ir.Matrix(lg.f32, 2, 2), [1, 2, 3, 4], "expected mat<f32, 2, 2>, found shape (4,)"),
    ],
    ids=lambda value: str(value).replace("\n", " ")[:40],
)
def test_arrays_that_do_not_fit_are_rejected(type: Any, argument: Any, said: str) -> None:
    compiled = lg.ir.compile(lg.ir.trace(_identity, type))
    assert _refusal(compiled, argument) == f"argument 0 of `_identity` does not fit: {said}"


def test_a_ragged_list_is_rejected() -> None:
    compiled = lg.ir.compile(lg.ir.trace(_identity, lg.ir.types.Tensor(lg.f32, (2,))))
    assert _refusal(compiled, [1, [2]]).startswith(
        "argument 0 of `_identity` does not fit: expected tensor<f32, [2]>, "
    )


def test_the_number_of_arguments_is_checked() -> None:
    compiled = lg.ir.compile(lg.ir.trace(_double, lg.f32))
    for _ in range(2):
        assert _refusal(compiled) == "`_double` takes 1 arguments: found 0"
        assert _refusal(compiled, 1.0, 2.0) == "`_double` takes 1 arguments: found 2"
        assert compiled(1.0) == 2.0


def test_errors_name_the_function_that_was_called_and_not_an_equal_one() -> None:
    made = []
    for name in ("first", "second"):
        traced = lg.ir.trace(lambda x: x * 3.625, lg.f32)
        compiled = lg.ir.compile(dataclasses.replace(traced, name=name))
        assert _refusal(compiled, "3") == f"argument 0 of `{name}` does not fit: expected f32, found '3'"
        assert _refusal(compiled) == f"`{name}` takes 1 arguments: found 0"
        assert f"function {name}(" in repr(compiled)
        made.append(compiled)
    assert made[0].plan() is made[1].plan()  # the compiled code is shared


def test_sizes_of_the_same_name_must_be_equal() -> None:
    def add(a: lg.ir.Node, b: lg.ir.Node) -> lg.ir.Node:
        return a + b

    compiled = lg.ir.compile(lg.ir.trace(add, lg.ir.types.Tensor(lg.f32, (N,)), lg.ir.types.Tensor(lg.f32, (N,))))
    three, four = np.ones(3, np.float32), np.ones(4, np.float32)
    for _ in range(2):
        assert _refusal(compiled, three, four) == (
            "argument 1 of `add` does not fit: expected tensor<f32, [n]> with n = 3, found shape (4,)"
        )
        assert compiled(three, three).tolist() == [2.0] * 3
        assert compiled(four, four).tolist() == [2.0] * 4


@pytest.mark.parametrize("order", ["derived first", "derived last"])
def test_sizes_that_follow_from_others_are_checked_before_memory_is_read(order: str) -> None:
    def second_half(a: lg.ir.Node, b: lg.ir.Node) -> lg.ir.Node:
        whole, part = (a, b) if order == "derived first" else (b, a)
        return ops.slice_(whole, start=(N,), size=(N,), step=(1,)) + part

    types = [lg.ir.types.Tensor(lg.f32, (N * 2,)), lg.ir.types.Tensor(lg.f32, (N,))]
    arrays = [lambda k: np.arange(k, dtype=np.float32), lambda k: np.zeros(k, np.float32)]
    if order == "derived last":
        types.reverse()
        arrays.reverse()
    compiled = lg.ir.compile(lg.ir.trace(second_half, *types))

    def call(whole: int, part: int) -> Any:
        sizes = (whole, part) if order == "derived first" else (part, whole)
        return compiled(*(make(size) for make, size in zip(arrays, sizes, strict=True)))

    assert call(6, 3).tolist() == [3.0, 4.0, 5.0]
    for whole in (7, 5, 2, 0):
        with pytest.raises(
            lg.UsageError, match=rf"expected tensor<f32, \[2\*n\]> with n = 3, found shape \({whole},\)"
        ):
            call(whole, 3)


def test_a_size_that_appears_only_in_expressions_is_inferred() -> None:
    compiled = lg.ir.compile(lg.ir.trace(_double, lg.ir.types.Tensor(lg.f32, (N * 2 + 1,))))
    assert compiled(np.ones(7, np.float32)).tolist() == [2.0] * 7
    assert _refusal(compiled, np.ones(6, np.float32)) == (
        "argument 0 of `_double` does not fit: expected a tensor<f32, [2*n + 1]> whose sizes are integers, "
        "found shape (6,)"
    )


def test_a_size_of_zero_is_rejected_for_reductions_without_an_identity() -> None:
    compiled = lg.ir.compile(
        lg.ir.trace(lambda x: ops.reduce(x, kind="max", axes=(0,)), lg.ir.types.Tensor(lg.f32, (N,)))
    )
    assert compiled(np.ones(3, np.float32)) == 1.0
    with pytest.raises(lg.TypeRuleError, match="cannot compute the max of an empty tensor"):
        compiled(np.ones(0, np.float32))


def test_empty_reductions_return_the_identity() -> None:
    def folds(x: lg.ir.Node) -> tuple[lg.ir.Node, ...]:
        return ops.reduce(x, kind="sum", axes=(0,)), ops.reduce(x, kind="prod", axes=(0,))

    compiled = lg.ir.compile(lg.ir.trace(folds, lg.ir.types.Tensor(lg.f32, (N, M))))
    for rows, columns in ((0, 3), (3, 0), (0, 0)):
        total, product = compiled(np.ones((rows, columns), np.float32))
        assert (total.tolist(), product.tolist()) == ([0.0] * columns, [1.0] * columns)


# --- structs ---------------------------------------------------------------------------------------------------------

BALL = lg.ir.Struct("Ball", (("radius", lg.f32), ("centre", lg.ir.Vector(lg.f32, 2))))
GROW = lg.ir.compile(lg.ir.trace(lambda ball, by: ops.get(ball, index=0) * by, BALL, lg.f32, name="grow"))


@pytest.mark.parametrize(
    "ball",
    [(2.0, [1, 2]), [2.0, (1, 2)], {"radius": 2.0, "centre": [1, 2]}, {"centre": [1, 2], "radius": 2.0}],
    ids=str,
)
def test_structs_are_accepted_in_order_or_by_name(ball: Any) -> None:
    assert GROW(ball, 3.0) == 6.0


@pytest.mark.parametrize(
    ("ball", "said"),
    [
        ((2.0,), "argument 0 of `grow` does not fit: expected the 2 members of {}, found 1"),
        ((2.0, [1, 2], 3), "argument 0 of `grow` does not fit: expected the 2 members of {}, found 3"),
        ({"radius": 2.0}, "argument 0 of `grow` does not fit: expected {} with radius, centre, found keys radius"),
        (
            {"radius": 2.0, "center": [1, 2]},
            "argument 0 of `grow` does not fit: expected {} with radius, centre, found keys radius, center",
        ),
        (None, "argument 0 of `grow` does not fit: expected {}, found None"),
        ("ab", "argument 0 of `grow` does not fit: expected {}, found 'ab'"),
        ((2.0, [1]), "member `centre` of argument 0 of `grow` does not fit: expected vec<f32, 2>, found shape (1,)"),
        (("x", [1, 2]), "member `radius` of argument 0 of `grow` does not fit: expected f32, found 'x'"),
    ],
    ids=str,
)
def test_structs_that_do_not_fit_are_rejected(ball: Any, said: str) -> None:
    assert _refusal(GROW, ball, 3.0) == said.format(BALL)


def test_the_number_of_arguments_is_checked_beside_structs() -> None:
    assert _refusal(GROW, (2.0, [1, 2])) == "`grow` takes 2 arguments: found 1"
    assert _refusal(GROW, (2.0, [1, 2]), 1.0, 2.0) == "`grow` takes 2 arguments: found 3"
