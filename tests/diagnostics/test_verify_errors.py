"""Exact messages of the verifier for functions that violate a rule of the IR."""

import pytest

import livegrad.ops  # noqa: F401
from livegrad.diagnostics import VerifyError
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node, parameter
from livegrad.ir.node import Function, Key, Module, Node
from livegrad.ir.text import parse_function
from livegrad.ir.types import Type, f32, f64
from livegrad.ir.verify import verify_function, verify_module
from livegrad.ops.elementwise import mul

SHADE = "function @shade(%x: tensor<f64, [4242]>) {\n  %y = mul(%x, %x)\n  return %y\n}"


def message_for(function: Function, **options: object) -> str:
    with pytest.raises(VerifyError) as caught:
        verify_function(function, **options)  # type: ignore[arg-type]
    return str(caught.value)


def with_type(node: Node, type: Type) -> Node:
    copy = object.__new__(Node)
    copy.op, copy.operands, copy.attributes, copy.located = node.op, node.operands, node.attributes, node.located
    copy.local_origins, copy.functions = node.local_origins, node.functions
    copy.type = type
    return copy


def test_a_wrong_type() -> None:
    shade = parse_function(SHADE, file="scene.ir")
    broken = Function("shade", shade.parameters, (with_type(shade.results[0], f64),))
    assert message_for(broken) == (
        "function `shade`: `mul` does not have the type that its op derives (scene.ir:2:3): "
        "expected tensor<f64, [4242]>, found f64; create nodes by calling ops"
    )


def test_a_copied_node() -> None:
    shade = parse_function(SHADE, file="scene.ir")
    broken = Function("shade", shade.parameters, (with_type(shade.results[0], shade.results[0].type),))
    assert message_for(broken) == (
        "function `shade`: `mul` is not interned (scene.ir:2:3); create nodes by calling ops, and do not copy them"
    )


def test_an_op_that_a_pass_should_have_removed() -> None:
    assert message_for(parse_function(SHADE, file="scene.ir"), forbidden={mul}) == (
        "function `shade`: `mul` still exists after the pass that removes it (scene.ir:2:3); "
        "give the pass a rule for this case"
    )


def test_an_outer_value() -> None:
    text = "function @shade() {\n  %0 = input(key=$time, type=f32)\n  return %0\n}"
    assert message_for(parse_function(text, file="scene.ir")) == (
        "function `shade`: `input` is an outer value, but the function must be closed (scene.ir:2:3): "
        "found <key time>; make it a parameter, or verify with allow_inputs=True"
    )


def test_parameters_in_another_order() -> None:
    x, y = parameter(0, f32), parameter(1, f64)
    assert message_for(Function("swapped", (y, x), ())).endswith(
        ": found parameter 1 of type f64; create the function with make_function, which numbers its parameters"
    )


def test_a_parameter_of_another_function() -> None:
    x, stray = parameter(0, f32), parameter(1, f32)
    message = message_for(Function("open", (x,), (x * stray,)))
    assert message.startswith("function `open`: `parameter` is not one of the function's parameters")
    assert message.endswith(
        ": expected an index below 1 with that parameter's type, found index 1 of type f32; "
        "pass the value as an operand and give the function a parameter for it"
    )


def test_two_functions_of_one_name() -> None:
    first = make_function("f", [], [])
    second = make_function("f", [input_node(Key(), f32)], [])
    with pytest.raises(VerifyError) as caught:
        verify_module(Module((first, second)))
    assert str(caught.value) == "a module has two functions named `f`; rename one of them"
