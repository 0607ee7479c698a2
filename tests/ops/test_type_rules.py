"""Operands that an op does not accept are errors at the user's line, with what was expected and found."""

from typing import Any

import pytest

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.function import trace
from livegrad.ir.leaves import parameter
from livegrad.ir.op import Op
from livegrad.ir.types import (
    Array,
    Matrix,
    Struct,
    Tensor,
    Tuple,
    Type,
    Vector,
    bool_,
    c64,
    components,
    f16,
    f32,
    f64,
    i32,
    i64,
    u8,
)
from livegrad.ops.aggregate import get
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp

REFUSED: list[tuple[str, tuple[Type, ...], dict[str, Any], str]] = [
    (
        "add",
        (f32, f64),
        {},
        "`add`: operands of different types ({}): found f32, f64; cast one of them: nothing is promoted silently",
    ),
    (
        "mul",
        (Tensor(f32, (2,)), Tensor(f32, (3,))),
        {},
        "`mul`: operands of different types ({}): found tensor<f32, [2]>, tensor<f32, [3]>; "
        "broadcast one of them to the other's shape",
    ),
    (
        "sqrt",
        (i32,),
        {},
        "`sqrt`: operand of the wrong kind ({}): expected float or complex, found i32",
    ),
    (
        "less",
        (c64, c64),
        {},
        "`less`: operand of the wrong kind ({}): expected signed or unsigned or float, found c64, c64",
    ),
    (
        "dot",
        (Vector(bool_, 3), Vector(bool_, 3)),
        {},
        "`dot`: operand of the wrong kind ({}): expected signed or unsigned or float or complex, "
        "found vec<bool, 3>, vec<bool, 3>",
    ),
    (
        "matrix_multiply",
        (Matrix(bool_, 2, 2), Matrix(bool_, 2, 2)),
        {},
        "`matrix_multiply`: operand of the wrong kind ({}): expected signed or unsigned or float or complex, "
        "found mat<bool, 2, 2>, mat<bool, 2, 2>",
    ),
    (
        "reduce",
        (Tensor(f32, (0, 2)),),
        {"kind": "max", "axes": (0,)},
        "`max`: cannot compute the max of an empty tensor ({}): expected at least one element, found "
        "tensor<f32, [0, 2]>; check the shape first, or add a smallest value with lg.concat",
    ),
    (
        "slice",
        (Tensor(f32, (5,)),),
        {"start": (6,), "size": (0,), "step": (1,)},
        "`slice`: axis 0 has no such slice ({}): found 6:+0:1 of 5",
    ),
    (
        "make_complex",
        (f16, f16),
        {},
        "`make_complex`: no complex type has 16-bit parts ({}): found f16, f16; cast to f32 first",
    ),
    (
        "cast",
        (c64,),
        {"type": f32},
        "`cast`: a c64 cannot be cast to f32 ({}): found c64; take real(x) or imag(x) first",
    ),
    (
        "lookup",
        (Tensor(f32, (5,)), u8),
        {},
        "`lookup`: an index is an i32 or i64, or a tensor of them ({}): found u8",
    ),
    (
        "get_at",
        (Array(f32, 0), i64),
        {},
        "`get_at`: only vectors and arrays take a computed index ({}): found array<f32, 0>, i64",
    ),
]


@pytest.mark.parametrize(("name", "types", "attributes", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_a_refusal_says_what_where_and_what_to_do(
    name: str, types: tuple[Type, ...], attributes: dict[str, Any], message: str
) -> None:
    op = Op.named(name)
    operands = [parameter(index, type) for index, type in enumerate(types)]
    with pytest.raises(TypeRuleError) as caught:
        op(*operands, **attributes)
    line = test_a_refusal_says_what_where_and_what_to_do.__code__.co_firstlineno + 7
    assert str(caught.value) == message.format(f"test_type_rules.py:{line}:9")


def test_the_derivative_ops_have_the_types_that_the_pass_gives() -> None:
    body = Struct("Body", (("mass", f64), ("id", i32)))
    function = trace(lambda b, n, v: (get(b, index=0) * get(v, index=0), n + 1, b), body, i64, Vector(f64, 3))
    for mode, derived in (("fwd_diff", jvp(function)), ("bwd_diff", vjp(function))):
        operands = [parameter(index, type) for index, type in enumerate(derived.parameter_types)]
        type = Op.named(mode)(*operands, function=function).type
        if mode == "fwd_diff":
            assert isinstance(type, Tuple)
            assert derived.result_types == tuple(part for half in type.elements for part in components(half))
        else:
            assert derived.result_type is type


def test_the_wrong_number_of_operands_is_refused() -> None:
    with pytest.raises(TypeRuleError, match="wrong number of operands"):
        Op.named("add")(parameter(0, f32))


def test_an_unknown_attribute_is_refused() -> None:
    with pytest.raises(TypeRuleError, match="`flip` does not accept 1 operands with attributes"):
        Op.named("flip")(parameter(0, Tensor(f32, (2,))), axis=0)
