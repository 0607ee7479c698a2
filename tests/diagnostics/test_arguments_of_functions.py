"""Invalid arguments of captured functions, derivatives and types: errors name the caller's line and expectations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg

LOOSE: Any = lg  # without its types: a type checker would find these mistakes first


class Thing:
    """A class that no function accepts."""


@lg.differentiable
def scaled(x: float, n: int) -> float:
    return x * float(n)


@lg.differentiable
def product(x: float, y: lg.f32) -> float:
    return x * y


@lg.differentiable
def element(x: list[float], i: int) -> float:
    return x[i]


@lg.differentiable
def component(v: lg.vec3, i: int) -> lg.f32:
    return v[i]


@lg.differentiable
def total(x: list[float], n: int) -> float:
    result = 0.0
    for i in range(n):
        result += x[i]
    return result


def raised_error(call: Callable[[], Any]) -> lg.LivegradError:
    """The error of an invalid call; its location is in this file."""
    with pytest.raises(lg.LivegradError) as caught:
        call()
    assert "test_arguments_of_functions.py" in str(caught.value.where)
    return caught.value


ARRAYS: dict[str, Any] = {
    "objects": np.array([Thing()]),
    "texts": np.array(["a"]),
    "complex numbers": np.array([1j]),
}
TENSOR = lg.asarray([1.0, 2.0])


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("beside", [1.0, np.ones(2), TENSOR], ids=["number", "array", "tensor"])
def test_an_array_of_another_kind_is_rejected_beside_any_argument(array: str, beside: Any) -> None:
    for call in (
        lambda: product(beside, ARRAYS[array]),
        lambda: lg.grad(product)(beside, ARRAYS[array]),
        lambda: lg.bwd_diff(product)(beside, ARRAYS[array], 1.0),
        lambda: lg.fwd_diff(product)(lg.pair(beside, beside), lg.pair(ARRAYS[array], 1.0)),
    ):
        assert raised_error(call).what in ("an array of the wrong type", "a pair with the wrong differential")


@pytest.mark.parametrize("beside", [1.0, np.ones(2), TENSOR], ids=["number", "array", "tensor"])
def test_floats_are_never_truncated_to_integers(beside: Any) -> None:
    error = raised_error(lambda: scaled(beside, np.array([1.5, 2.5])))
    assert (error.expected, error.found) == ("i64", "float64")


SEEDS: dict[str, Any] = {
    "a class": Thing, "a thing": Thing(), "text": "a", "None": None, "a list": [1.0, 2.0], "1j": 1j,
    "objects": ARRAYS["objects"], "complex numbers": ARRAYS["complex numbers"],
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_a_differential_of_the_result_is_checked_in_lazy_calls(seed: str) -> None:
    for arguments in ((1.0, 2.0), (TENSOR, TENSOR)):
        if seed == "a thing":
            what = raised_error(lambda given=arguments: lg.bwd_diff(product)(*given, SEEDS[seed])).what
            assert "cannot find a type" in what
            continue
        error = raised_error(lambda given=arguments: lg.bwd_diff(product)(*given, SEEDS[seed]))
        assert error.what == "`bwd_diff(product)` takes the differential of the result as its last argument"
        assert error.expected == "float"


def test_numbers_in_lazy_calls_keep_their_value_and_range() -> None:
    assert scaled(TENSOR, 3).tolist() == [3.0, 6.0]
    assert scaled(TENSOR, True).tolist() == [1.0, 2.0]
    raised_error(lambda: scaled(TENSOR, 1.5))
    raised_error(lambda: scaled(TENSOR, 2**70))


# --- classes ---------------------------------------------------------------------------------------------------------


def test_a_class_is_a_struct_or_an_interface() -> None:
    @lg.differentiable
    class Struct:
        a: float

    @lg.interface
    class Interface:
        pass

    assert "found: a struct" in str(raised_error(lambda: lg.interface(Struct)))
    assert "found: an interface" in str(raised_error(lambda: lg.differentiable(Interface)))
    assert Struct(2.0).a == 2.0


def test_decorating_a_class_twice_has_no_effect() -> None:
    @lg.differentiable
    class D:
        d: float

    @lg.differentiable
    @lg.differentiable
    class Own:
        Differential = D
        d: float

    @lg.differentiable
    def squared(own: Own) -> float:
        return own.d * own.d

    assert lg.bwd_diff(squared)(Own(3.0), 1.0)[0].d == 6.0

    @lg.interface
    @lg.interface
    class Shape:
        @lg.differentiable
        def area(self) -> float: ...

    @lg.differentiable
    class Square(Shape):
        side: float

        @lg.differentiable
        def area(self) -> float:
            return self.side * self.side

    @lg.differentiable
    def doubled(shape: Shape) -> float:
        return 2.0 * shape.area()

    assert lg.bwd_diff(doubled)(Square(3.0), 1.0)[0].side == 12.0


def test_an_interface_without_implementing_types_is_named_at_the_call() -> None:
    @lg.interface
    class Lonely:
        pass

    assert raised_error(lambda: element(Lonely(), 0)).code in ("LG403", "LG201", "LG108")


# --- types in brackets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (lambda: LOOSE.vec[3], "for example vec[float, 3], found vec[3]"),
        (lambda: LOOSE.vec[lg.f32], "for example vec[float, 3], found vec[f32]"),
        (lambda: LOOSE.vec[lg.f32, "a"], "found vec[f32, 'a']"),
        (lambda: LOOSE.vec[lg.f32, -1], "found vec[f32, -1]"),
        (lambda: LOOSE.vec[lg.vec3, 3], "takes a type of numbers and a whole number"),
        (lambda: LOOSE.mat[2, 2], "takes a type of numbers and two whole numbers in brackets"),
        (lambda: LOOSE.mat[lg.f32, 2], "for example mat[float, 2, 2], found mat[f32, 2]"),
        (lambda: LOOSE.array[float, 2.5], "for example array[float, 4]"),
        (lambda: LOOSE.array[float, 2, -3], 'for example array[float, "n", 3], found array['),
        (lambda: LOOSE.array[float, "not a name"], "a size for each dimension in brackets"),
        (lambda: LOOSE.array[lg.vec3, "n"], "takes a type of numbers and a size for each dimension"),
        (lambda: LOOSE.tensor[float], "for example tensor[float, 2]"),
        (lambda: LOOSE.tensor[float, 1.5], "takes a type of numbers and a whole number"),
        (lambda: LOOSE.Pair[3], "for example Pair[float]; 3 is not a type that functions support"),
    ],
)
def test_a_type_in_brackets_says_what_it_takes(mistake: Any, said: str) -> None:
    error = raised_error(mistake)
    assert isinstance(error, TypeError)
    assert said in str(error).replace(f" ({error.where})", "")


# --- indices ---------------------------------------------------------------------------------------------------------

OUT_OF_RANGE: dict[str, tuple[Callable[[], Any], str]] = {
    "a list": (lambda: element([1.0, 2.0], 7), "expected 0 to 1, found 7"),
    "from the end": (lambda: element([1.0, 2.0], -3), "expected 0 to 1, found -1 after counting from the end"),
    "a derivative": (lambda: lg.bwd_diff(element)([1.0, 2.0], 7, 1.0), "expected 0 to 1, found 7"),
    "a vector": (lambda: component(lg.vec3(1.0), 3), "expected 0 to 2, found 3"),
    "at many points": (lambda: element([1.0, 2.0], np.array([0, 1, 5])), "expected 0 to 1, found 5"),
    "a loop": (lambda: total([1.0, 2.0], 4), "expected 0 to 1, found 2"),
}


@pytest.mark.parametrize("case", OUT_OF_RANGE)
def test_an_index_out_of_range_is_reported_with_the_valid_range(case: str) -> None:
    call, said = OUT_OF_RANGE[case]
    error = raised_error(call)
    assert isinstance(error, lg.KernelCheckError)
    assert said in str(error)
