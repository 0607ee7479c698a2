"""Exact messages for IR text that cannot be parsed."""

import pytest

import livegrad.ops  # noqa: F401  (defines the ops that texts name)
from livegrad.diagnostics import LivegradError, ParseError, TypeRuleError
from livegrad.ir.text import parse_function, parse_module, parse_type

BAD_FUNCTIONS = {
    "": "cannot read the IR (bad.ir:1:1): expected a function, found the end",
    "funktion @f() { return }": (
        "cannot read the IR (bad.ir:1:1): expected `function` or `export function`, found `funktion`"
    ),
    "export @f() { return }": "cannot read the IR (bad.ir:1:8): expected `function`, found `@f`",
    "function f() { return }": "cannot read the IR (bad.ir:1:10): expected `@`, found `f`",
    "function @f(%x f32) { return %x }": "cannot read the IR (bad.ir:1:16): expected `:`, found `f32`",
    "function @f(x: f32) { return %x }": (
        "cannot read the IR (bad.ir:1:13): expected a parameter such as `%x: f32`, found `x`"
    ),
    "function @f(%x: f32, %x: f32) { return %x }": (
        "`%x` is defined twice in `@f` (bad.ir:1:22); use a different name"
    ),
    "function @f(%x: f32) {\n  %y = sin(%x)\n": (
        "cannot read the IR (bad.ir:3:1): expected a value such as `%0 = ...`, or `return`, found the end"
    ),
    "function @f(%x: f32) {\n  %y = sine(%x)\n  return %y\n}": ("no op named `sine` (bad.ir:2:8); did you mean `sin`?"),
    "function @f(%x: f32) {\n  %y = zzzz(%x)\n  return %y\n}": (
        "no op named `zzzz` (bad.ir:2:8); the ops are defined by `import livegrad.ops`"
    ),
    "function @f(%radius: f32) {\n  %y = sin(%radios)\n  return %y\n}": (
        "`%radios` is not defined in `@f` (bad.ir:2:12); did you mean `%radius`?"
    ),
    "function @f(%x: f32) {\n  return %q\n}": (
        "`%q` is not defined in `@f` (bad.ir:2:10); values are defined above their uses"
    ),
    "function @f(%x: f32) {\n  %y = sin(%x): f64\n  return %y\n}": (
        "`sin` has a different type (bad.ir:2:15): expected f32, found f64; correct the type or omit it"
    ),
    "function @f(%x: f32) -> f64 {\n  return %x\n}": (
        "`@f` does not return the type that it declares (bad.ir:1:22): expected f64, found f32; "
        "correct the type or omit it"
    ),
    "function @f(%x: f32) {\n  %y = sin(%x, a=1)\n  return %y\n}": (
        "cannot read the IR (bad.ir:2:16): expected `,`, `;` or `)`, found `a`; "
        "attributes come after the operands and a `;`"
    ),
    "function @f() {\n  %y = constant(value=1.0, value=2.0, type=f32)\n  return %y\n}": (
        "attribute `value` is given twice (bad.ir:2:28); remove one of them"
    ),
    "function @f(%x: f32) {\n  %y = call(%x; function=@g)\n  return %y\n}": "no function `@g` above (bad.ir:2:26)",
    "function @gain(%x: f32) { return %x }\nfunction @f(%x: f32) { %y = call(%x; function=@gian) return %y }": (
        "no function `@gian` above (bad.ir:2:47); did you mean `@gain`?"
    ),
    "function @f() { return }\nfunction @f() { return }": (
        "function `@f` is defined twice (bad.ir:2:10); give one of them another name"
    ),
    "export function @f() { return }\nexport function @g() { return }": (
        "text for one function must export one function (bad.ir:2:32): found @f and @g; use parse_module"
    ),
    "function @f() {\n  %y = parameter(index=0, type=f32)\n  return %y\n}": (
        "a parameter is listed after the function's name (bad.ir:2:8); write (%x: f32) there"
    ),
    'function @"f() { return }': (
        "cannot read the IR (bad.ir:1:11): expected a function's name, found `\"f() { return }`; "
        'a string ends with `"` on its own line'
    ),
    'function @"\\q"() { return }': (
        'a string has no escape `\\q` (bad.ir:1:12): expected \\\\, \\", \\n, \\t, \\r or \\u{...}'
    ),
    "function @f() {\n  %y = constant(type=c64, value=complex(1, 2.0))\n  return %y\n}": (
        "the parts of a complex number are floats (bad.ir:2:41): found 1; write 1.0"
    ),
    "function @f(%x: tensor<f32, [n]>) {\n  %y = reshape(%x; shape=[<3>])\n  return %y\n}": (
        "a size in <> is symbolic (bad.ir:2:27): found 3; write 3 by itself"
    ),
    f"function @f() {{\n  %y = constant(type=f32, value={'9' * 5000})\n  return %y\n}}": (
        "a decimal integer of too many digits (bad.ir:2:33); write it in hexadecimal, 0x..."
    ),
}


@pytest.mark.parametrize("text", BAD_FUNCTIONS)
def test_text_that_is_not_a_function_is_rejected_with_its_location(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_function(text, file="bad.ir")
    assert str(caught.value) == BAD_FUNCTIONS[text]


BAD_TYPES = {
    "f33": (
        "cannot read the IR (<text>:1:1): expected a type, found `f33`; types are bool, i8, i16, i32, i64, "
        "u8, u16, u32, u64, bf16, f16, f32, f64, c64, c128, vec, mat, array, tensor, tape, struct, (tuple, of, types)"
    ),
    "vec<f32, n>": "cannot read the IR (<text>:1:10): expected a number, found `n`",
    "vec<f32, -1>": "a size must be a non-negative integer (<text>:1:10): found -1",
    "vec<(f32,), 3>": "elements of vectors and matrices must be scalars (<text>:1:5): found (f32,)",
    "tensor<f32, [n*]>": "cannot read the IR (<text>:1:16): expected a size: an integer or a name, found `]`",
    "tensor<f32, [0.5]>": "a size must be an integer (<text>:1:14): found 0.5",
    "f32 f32": "cannot read the IR (<text>:1:5): expected the end of the type, found `f32`",
    "struct A{x f32}": "cannot read the IR (<text>:1:12): expected `:`, found `f32`",
}


@pytest.mark.parametrize("text", BAD_TYPES)
def test_text_that_is_not_a_type_is_rejected_with_its_location(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_type(text)
    assert str(caught.value) == BAD_TYPES[text]


def test_an_order_without_a_function_is_rejected() -> None:
    text = "export function @f() { return }\nexport function @g() { return }\norder @g\n"
    with pytest.raises(ParseError) as caught:
        parse_module(text, file="bad.ir")
    assert str(caught.value) == (
        "the order of a module must name its exported functions (bad.ir:3:1): expected @f, @g, found @g"
    )


def test_type_errors_of_ops_are_reported_at_their_line_of_the_text() -> None:
    with pytest.raises(TypeRuleError) as caught:
        parse_function("function @f(%x: f32, %y: f64) {\n  %0 = add(%x, %y)\n  return %0\n}", file="bad.ir")
    assert str(caught.value) == (
        "`add`: operands of different types (bad.ir:2:3): found f32, f64; "
        "cast one of them: nothing is promoted silently"
    )
    assert caught.value.where is not None
    assert caught.value.where.function == "f"


def test_an_attribute_that_an_op_does_not_have_is_reported_at_its_line() -> None:
    with pytest.raises(LivegradError) as caught:
        parse_function("function @f(%x: f32) {\n  %0 = get(%x; axis=1)\n  return %0\n}", file="bad.ir")
    assert str(caught.value).startswith("`get` does not accept 1 operands with attributes {'axis': 1} (bad.ir:2:3)")
