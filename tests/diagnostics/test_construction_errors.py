"""Exact messages for expressions that cannot be built: the op, the violated rule, the user's line and a fix."""

import re
from collections.abc import Callable

import pytest

import livegrad.ops  # noqa: F401
from livegrad.diagnostics import LivegradError, TypeRuleError, UsageError
from livegrad.ir.function import make_function, trace
from livegrad.ir.leaves import constant, input_node, parameter
from livegrad.ir.node import Key, Node
from livegrad.ir.types import Struct, Tensor, Vector, bool_, f32, f64, i32, i64, u8
from livegrad.ops.control import call, cond
from livegrad.ops.elementwise import add, neg

X, Y, I = input_node(Key("x"), f32), input_node(Key("y"), f64), input_node(Key("i"), i32)


def message_of(build: Callable[[], object], kind: type[LivegradError]) -> str:
    """The message, with its location, which must be in this file, replaced by `(here)`."""
    with pytest.raises(kind) as caught:
        build()
    return re.sub(r"\(test_construction_errors\.py:\d+:\d+\)", "(here)", str(caught.value))


def test_operands_of_different_types() -> None:
    assert message_of(lambda: X + Y, TypeRuleError) == (
        "`add`: operands of different types (here): found f32, f64; cast one of them: nothing is promoted silently"
    )


def test_operands_of_different_shapes() -> None:
    a, b = input_node(Key(), Tensor(f32, (3,))), input_node(Key(), Tensor(f32, (4,)))
    assert message_of(lambda: a * b, TypeRuleError) == (
        "`mul`: operands of different types (here): found tensor<f32, [3]>, tensor<f32, [4]>; "
        "broadcast one of them to the other's shape"
    )


def test_an_operand_of_the_wrong_kind() -> None:
    assert message_of(lambda: I / I, TypeRuleError) == (
        "`div`: operand of the wrong kind (here): expected float or complex, found i32, i32"
    )


def test_the_location_is_the_users_line_and_column() -> None:
    with pytest.raises(TypeRuleError) as caught:
        _ = X * 2.0 + Y
    where, line = caught.value.where, caught.traceback[0].lineno + 1
    assert str(where) == f"test_construction_errors.py:{line}:13"


def test_too_few_operands() -> None:
    assert message_of(lambda: add(X), TypeRuleError) == ("`add`: wrong number of operands (here): expected 2, found 1")


def test_a_literal_that_the_type_cannot_hold() -> None:
    assert message_of(lambda: I + 0.5, TypeRuleError) == (
        "`add` cannot convert 0.5 to i32 (here); cast the operand, or write a literal that a i32 can hold"
    )
    assert (
        message_of(lambda: input_node(Key(), u8) + 256, TypeRuleError)
        == "256 does not fit u8 (here): expected 0 to 255"
    )


def test_an_operand_that_is_not_a_node() -> None:
    assert message_of(lambda: neg("x"), UsageError) == (
        "`neg` takes nodes and numbers (here): found 'x'; create a constant with constant(value, type)"
    )


def test_a_node_in_an_if() -> None:
    assert message_of(lambda: bool(X > 0.0), UsageError) == (
        "a node cannot be used as a condition: it is computed when the function runs (here); "
        "use select(condition, a, b) or cond(...) instead of `if`"
    )


def test_a_constant_that_is_not_a_scalar() -> None:
    assert message_of(lambda: constant(1.0, Vector(f32, 3)), TypeRuleError) == (  # type: ignore[arg-type]
        "a constant is a scalar (here): found vec<f32, 3>; use splat or broadcast"
    )


def test_leaves_of_the_wrong_kind() -> None:
    assert message_of(lambda: input_node("x", f32), TypeRuleError) == (  # type: ignore[arg-type]
        "`input`: an input needs a key and a type (here): found 'x', f32"
    )
    assert message_of(lambda: parameter(-1, f32), TypeRuleError) == (
        "`parameter`: a parameter needs a position and a type (here): found -1, f32"
    )


def test_a_callee_with_different_parameters() -> None:
    square = trace(lambda a: a * a, f64, name="square")
    assert message_of(lambda: call(X, function=square), TypeRuleError) == (
        "`call`: function `square` has the wrong parameters (here): expected f32, found f64"
    )


def test_branches_of_different_types() -> None:
    flag = input_node(Key(), bool_)
    then = trace(lambda a: a, f32, name="then")
    otherwise = make_function("otherwise", [X], [constant(1, i64)])
    assert message_of(lambda: cond(flag, X, then=then, otherwise=otherwise), TypeRuleError) == (
        "`cond`: the branches return different types (here): found f32, i64"
    )


def test_a_field_that_a_struct_does_not_have() -> None:
    material = Struct("Material", (("albedo", f32), ("layer", i32)))
    assert message_of(lambda: material.field("color"), UsageError) == (
        "struct Material has no field `color`: expected one of albedo, layer"
    )


def test_a_function_that_uses_values_of_an_enclosing_function() -> None:
    def shade(x: Node) -> Node:
        return x * X

    assert message_of(lambda: trace(shade, f32), UsageError) == (
        "function `shade` uses values that are defined outside of it (here); pass them as arguments"
    )


def test_a_parameter_of_another_function_in_a_body() -> None:
    message = message_of(lambda: make_function("f", [], [parameter(0, f32) * 2.0]), LivegradError)
    assert message.startswith("function `f` uses a parameter of another function")
    assert message.endswith("; pass it as an operand and give the function a parameter for it")
