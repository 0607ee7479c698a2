"""The verifier accepts what ops create, and finds each way in which a function can violate the IR."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from livegrad.diagnostics import VerifyError
from livegrad.ir import verify
from livegrad.ir.function import make_function, trace
from livegrad.ir.leaves import input_node, parameter
from livegrad.ir.node import Function, Key, Module, Node
from livegrad.ir.op import Op
from livegrad.ir.types import f32, f64, i64
from livegrad.ir.verify import verify_function, verify_module
from livegrad.ops.control import call, make_for_loop
from livegrad.ops.elementwise import add, mul


def forged(node: Node, **changes: Any) -> Node:
    """A node that no op made."""
    copy = object.__new__(Node)
    for name in ("op", "operands", "attributes", "functions", "type", "local_origins", "located"):
        setattr(copy, name, changes.get(name, getattr(node, name)))
    return copy


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions that are looked at, in order."""
    looked_at: list[str] = []
    original = verify._check_structure

    def recording(function: Function, known: Any) -> Any:
        looked_at.append(function.name)
        return original(function, known)

    monkeypatch.setattr(verify, "_check_structure", recording)
    return looked_at


def test_functions_created_by_ops_are_valid() -> None:
    def f(n: Node, x: Node) -> Node:
        return make_for_loop(n, lambda i, a: a * x, x)[0]

    function = trace(f, i64, f32)
    verify_function(function)
    verify_module(Module((function,)))


def test_a_verified_function_is_not_checked_again(checks: list[str]) -> None:
    inner = trace(lambda x: x * 1.25, f32, name="inner")
    outer = trace(lambda x: call(x, function=inner), f32, name="outer")
    verify_function(outer)
    assert checks == ["outer", "inner"]
    verify_function(outer)
    verify_module(Module((outer, inner)))
    assert checks == ["outer", "inner"]


def test_only_a_new_function_is_checked_and_not_the_verified_one_it_uses(checks: list[str]) -> None:
    inner = trace(lambda x: x * 1.5, f32, name="inner")
    verify_function(inner)
    verify_function(trace(lambda x: call(x, function=inner), f32, name="outer"))
    assert checks == ["inner", "outer"]


def test_verified_functions_are_not_kept_alive() -> None:
    function = trace(lambda x: x * 1.75, f32)
    verify_function(function)
    gone = weakref.ref(function)
    del function
    gc.collect()
    assert gone() is None


def test_verifying_adds_no_places_to_nodes() -> None:
    function = trace(lambda x: x * 2.25, f32)
    before = function.results[0].origins
    verify_function(function)
    assert function.results[0].origins == before


def test_a_forged_type_is_found() -> None:
    x = parameter(0, f32)
    with pytest.raises(VerifyError, match=r"`add` does not have the type that its op derives.*expected f32, found f64"):
        verify_function(Function("f", (x,), (forged(x + x, type=f64),)))


def test_a_forged_operand_list_is_found_by_the_type_rule() -> None:
    x = parameter(0, f32)
    with pytest.raises(VerifyError, match="function `f`: `add`: wrong number of operands"):
        verify_function(Function("f", (x,), (forged(x + x, operands=(x,)),)))


def test_a_copied_node_is_found() -> None:
    x = parameter(0, f32)
    with pytest.raises(VerifyError, match="`mul` is not interned"):
        verify_function(Function("f", (x,), (forged(x * x) + x,)))


def test_an_operand_that_is_not_a_node_is_found() -> None:
    x = parameter(0, f32)
    with pytest.raises(VerifyError, match="function `f` has an operand that is not a node"):
        verify_function(Function("f", (x,), (forged(x + x, operands=(x, 1.0)),)))


def test_a_result_that_is_not_a_node_is_found() -> None:
    with pytest.raises(VerifyError, match="function `f` returns something that is not a node"):
        verify_function(Function("f", (), (1.0,)))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [np.float64(1.0), b"bytes", [1], (1, (np.int64(3),)), object()])
def test_an_attribute_outside_the_closed_union_is_found(annotate: Op, value: Any) -> None:
    node = forged(annotate(value=0), attributes=(("value", value),))
    with pytest.raises(VerifyError, match="has an attribute `value` of an unsupported type"):
        verify_function(Function("f", (), (node,)))


def test_unsorted_attributes_are_found(annotate: Op) -> None:
    node = forged(annotate(a=0, b=1), attributes=(("b", 1), ("a", 0)))
    with pytest.raises(VerifyError, match="sort them by name"):
        verify_function(Function("f", (), (node,)))


def test_parameters_out_of_order_are_found() -> None:
    x, y = parameter(0, f32), parameter(1, f32)
    with pytest.raises(VerifyError, match="parameter 0 is not a parameter node of that index"):
        verify_function(Function("f", (y, x), (x,)))


def test_a_parameter_that_is_another_node_is_found() -> None:
    x = input_node(Key("x"), f32)
    with pytest.raises(VerifyError, match="parameter 0 is not a parameter node"):
        verify_function(Function("f", (x,), (x,)))


@pytest.mark.parametrize("stray", [parameter(1, f32), parameter(0, f64)])
def test_a_parameter_of_another_function_is_found(stray: Node) -> None:
    with pytest.raises(VerifyError, match="is not one of the function's parameters"):
        verify_function(Function("f", (parameter(0, f32),), (stray * stray,)))


def test_an_open_function_inside_is_found() -> None:
    x = parameter(0, f32)
    inner = Function("inner", (x,), (x + parameter(1, f32),))
    with pytest.raises(VerifyError, match="function `inner`: `parameter` is not one"):
        verify_function(Function("outer", (x,), (call(x, function=inner),)))


def test_keyed_inputs_need_permission_in_nested_functions_too() -> None:
    inner = make_function("inner", [], [input_node(Key("time"), f32)])
    outer = make_function("outer", [], [call(function=inner)])
    with pytest.raises(VerifyError, match="function `inner`: `input` is an outer value"):
        verify_function(outer)
    verify_function(outer, allow_inputs=True)
    with pytest.raises(VerifyError):
        verify_module(Module((outer,)))


def test_forbidden_ops_are_found_at_any_depth() -> None:
    inner = trace(lambda x: x * x, f32, name="inner")
    outer = trace(lambda x: call(x, function=inner) + x, f32, name="outer")
    verify_function(outer)
    with pytest.raises(VerifyError, match="function `inner`: `mul` still exists"):
        verify_function(outer, forbidden={mul})
    with pytest.raises(VerifyError, match="function `outer`: `add` still exists"):
        verify_module(Module((outer,)), forbidden={add})


def test_a_function_that_does_not_fit_its_call_is_found() -> None:
    x = parameter(0, f32)
    right = trace(lambda a: a * 3.5, f32, name="right")
    wrong = trace(lambda a: a * 3.5, f64, name="wrong")
    node = forged(call(x, function=right), attributes=(("function", wrong),))
    with pytest.raises(VerifyError, match="function `wrong` has the wrong parameters"):
        verify_function(Function("f", (x,), (node,)))


def test_two_functions_of_one_name_in_a_module_are_found() -> None:
    first, second = trace(lambda x: x * x, f32, name="f"), trace(lambda x: x + x, f32, name="f")
    with pytest.raises(VerifyError, match="two functions named `f`"):
        verify_module(Module((first, second)))
