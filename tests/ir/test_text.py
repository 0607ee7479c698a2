"""Functions print as readable text that parses to the same objects, for any attributes."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livegrad.diagnostics import LivegradError, TextOrigin, UsageError
from livegrad.ir.function import make_function, trace
from livegrad.ir.leaves import constant, input_node, parameter
from livegrad.ir.node import Function, Key, Module, Node
from livegrad.ir.op import Op
from livegrad.ir.text import (
    key_labels,
    parse_function,
    parse_module,
    parse_type,
    print_function,
    print_module,
    print_type,
    summarize,
)
from livegrad.ir.types import Tensor, Type, f32, i64
from livegrad.ops.control import call, make_cond, make_for_loop
from tests.ir.strategies import attributes, names, types


def smooth(x: Node, y: Node) -> tuple[Node, Node]:
    return x * y + 1.0, -x


def nested_loops(n: Node, x: Node) -> Node:
    def outer(i: Node, a: Node) -> Node:
        def inner(j: Node, b: Node) -> Node:
            return b * a + x

        return make_for_loop(n, inner, a)[0]

    return make_for_loop(n, outer, x)[0]


NESTED_TEXT = """\
function @inner(%p0: i64, %p1: f32, %p2: f32, %p3: f32) -> f32 {
  %0 = mul(%p1, %p2): f32
  %1 = add(%0, %p3): f32
  return %1
}
function @outer(%p0: i64, %p1: f32, %p2: i64, %p3: f32) -> f32 {
  %0 = for_loop(%p2, %p1, %p1, %p3; body=@inner, carried=1, reverse=false): (f32,)
  %1 = get(%0; index=0): f32
  return %1
}
function @nested_loops(%p0: i64, %p1: f32) -> f32 {
  %0 = for_loop(%p0, %p1, %p0, %p1; body=@outer, carried=1, reverse=false): (f32,)
  %1 = get(%0; index=0): f32
  return %1
}
"""


def test_a_function_prints_one_node_a_line() -> None:
    assert print_function(trace(smooth, f32, f32)) == (
        "function @smooth(%p0: f32, %p1: f32) -> (f32, f32) {\n"
        "  %0 = mul(%p0, %p1): f32\n"
        "  %1 = constant(type=f32, value=1.0): f32\n"
        "  %2 = add(%0, %1): f32\n"
        "  %3 = neg(%p0): f32\n"
        "  return %2, %3\n"
        "}\n"
    )


def test_functions_come_before_their_users() -> None:
    function = trace(nested_loops, i64, f32)
    assert print_function(function) == NESTED_TEXT
    assert parse_function(NESTED_TEXT) == function


def test_printing_what_was_parsed_gives_the_same_text() -> None:
    assert print_function(parse_function(NESTED_TEXT)) == NESTED_TEXT


def test_origins_are_comments() -> None:
    function = trace(smooth, f32, f32)
    text = print_function(function, origins=True)
    line = smooth.__code__.co_firstlineno + 1
    assert f"  %0 = mul(%p0, %p1): f32  # test_text.py:{line}:12" in text
    assert parse_function(text) == function


def test_parsed_nodes_know_their_line_in_the_text() -> None:
    text = "function @f(%x: tensor<f32, [3141]>) {\n\n  %y = sin(%x)\n  return %y\n}"
    function = parse_function(text, file="shapes.ir")
    assert function.origins_of(function.results[0]) == (TextOrigin("shapes.ir", 3, 3, "f"),)


def test_types_may_be_left_out_and_space_is_free() -> None:
    text = 'function @"f"(%x: f32,\n %y: f32) { # a comment\n %a.b = add( %x ,%y ) %c = neg(%a.b) return %c, }'
    with pytest.raises(LivegradError):
        parse_function(text)
    x, y = parameter(0, f32), parameter(1, f32)
    assert parse_function(text.replace(", }", "}")) == Function("f", (x, y), (-(x + y),))


def test_two_functions_of_one_name_get_different_names() -> None:
    def f(p: Node, x: Node) -> Node:
        return make_cond(p > 0.0, lambda a: a * a, lambda a: a + a, x)

    function = trace(f, f32, f32)
    text = print_function(function)
    assert 'function @"<lambda>"(' in text
    assert 'function @"<lambda>.1"(' in text
    assert parse_function(text) == function


def test_a_generated_name_never_collides_with_an_existing_one() -> None:
    x = parameter(0, f32)
    bodies = [Function(name, (x,), (x + float(i),)) for i, name in enumerate(["g", "g.1", "g"])]
    node = x
    for body in bodies:
        node = call(node, function=body)
    function = Function("f", (x,), (node,))
    text = print_function(function)
    assert [line.split("(")[0] for line in text.splitlines() if line.startswith("function")][-1] == "function @f"
    assert {"@g(", "@g.1(", "@g.2("} <= {word + "(" for word in text.replace("(", " ").split() if word.startswith("@")}
    assert parse_function(text) == function


def test_a_function_without_parameters_or_results_round_trips() -> None:
    assert print_function(Function("nothing", (), ())) == "function @nothing() -> () {\n  return\n}\n"
    assert parse_function("function @nothing() -> () {\n  return\n}\n") == Function("nothing", (), ())


def test_a_module_keeps_its_functions_in_order() -> None:
    inner = trace(smooth, f32, f32)
    outer = trace(lambda x: call(x, x, function=inner), f32, name="outer")
    for functions in [(inner, outer), (outer, inner), (outer,), ()]:
        module = Module(functions)
        parsed = parse_module(print_module(module))
        assert parsed == module
        assert [function.name for function in parsed.functions] == [function.name for function in functions]


def test_only_a_modules_own_functions_are_exported() -> None:
    outer = trace(lambda x: call(x, x, function=trace(smooth, f32, f32)), f32, name="outer")
    heads = [line.split("(")[0] for line in print_module(Module((outer,))).splitlines() if "function @" in line]
    assert heads == ["function @smooth", "export function @outer"]


def test_one_function_under_two_names_is_exported_under_both() -> None:
    first, second = trace(smooth, f32, f32, name="first"), trace(smooth, f32, f32, name="second")
    module = parse_module(print_module(Module((first, second))))
    assert [function.name for function in module.functions] == ["first", "second"]
    assert module.function("first") == module.function("second")


def test_keys_print_as_labels_and_parse_to_the_given_keys() -> None:
    keys = [Key("time"), Key("time"), Key(""), Key("a b")]
    total = constant(0.0, f32)
    for key in keys:
        total = total + input_node(key, f32)
    function = make_function("f", [], [total])
    text = print_function(function)
    assert all(label in text for label in ("key=$time,", "key=$time.1,", "key=$key,", 'key=$"a b",'))
    assert list(key_labels(function).values()) == keys
    assert parse_function(text, keys=key_labels(function)) == function


def test_a_label_that_is_not_given_stands_for_one_fresh_key() -> None:
    text = "function @f() {\n %0 = input(key=$t, type=f32)\n %1 = input(key=$t, type=f32)\n return %0, %1\n}"
    first, second = parse_function(text), parse_function(text)
    assert first.results[0] is first.results[1]
    assert first != second
    assert first.results[0].attribute("key").name == "t"


@given(value=attributes)
def test_every_attribute_round_trips_exactly(annotate: Op, value: Any) -> None:
    function = Function("f", (), (annotate(value=value),))
    assert parse_function(print_function(function)) == function


def test_an_integer_of_any_length_round_trips(annotate: Op) -> None:
    function = Function("f", (), (annotate(value=(10**5000, -(1 << 70_000))),))
    assert parse_function(print_function(function)) == function


@given(name=names)
def test_every_name_round_trips(name: str) -> None:
    module = Module((Function(name, (), ()),))
    assert parse_module(print_module(module)).functions[0].name == name


@given(type=types)
def test_every_type_round_trips(type: Type) -> None:
    assert parse_type(print_type(type)) is type
    assert "\n" not in print_type(type)


def test_functions_and_keys_in_tuples_round_trip(annotate: Op) -> None:
    body, key = trace(smooth, f32, f32), Key("k")
    function = Function("f", (), (annotate(value=(1, (body, key))),))
    assert parse_function(print_function(function), keys=key_labels(function)) == function


def test_a_sum_of_a_shape_prints_with_symbols() -> None:
    assert str(parse_type("tensor<f32, [n + n, 3 - 1]>")) == "tensor<f32, [2*n, 2]>"
    assert parse_type("tensor<f32, []>") is Tensor(f32, ())


def test_a_value_that_is_no_attribute_cannot_be_printed(annotate: Op) -> None:
    node = annotate(parameter(0, f32), value=1)
    broken = object.__new__(Node)
    broken.op, broken.operands, broken.type, broken.local_origins = node.op, node.operands, node.type, ()
    broken.located, broken.functions = False, ()
    broken.attributes = (("value", b"bytes"),)
    with pytest.raises(UsageError, match="has no text form"):
        print_function(Function("f", (parameter(0, f32),), (broken,)))


PIECES = st.sampled_from(
    [*'%@$(){}[]<>,;:=*+-"\\#\n .', "->", "%0", "%p0", "f32", "1e999", "nan", "@inner", "order @outer"]
)


def is_read_or_refused(parse: Callable[[str], object], text: str) -> bool:
    """Whether a text parses, or is refused with a place; any other exception passes through."""
    try:
        parse(text)
    except LivegradError as error:
        return error.where is not None
    return True


@given(position=st.integers(0, len(NESTED_TEXT)), removed=st.integers(0, 12), pieces=st.lists(PIECES, max_size=3))
def test_changed_text_raises_only_livegrad_errors(position: int, removed: int, pieces: list[str]) -> None:
    text = NESTED_TEXT[:position] + "".join(pieces) + NESTED_TEXT[position + removed :]
    assert all(is_read_or_refused(parse, text) for parse in (parse_function, parse_module))


RICH_TEXT = """\
function @f(%x: tensor<f32, [n, 3]>, %s: struct A{b: (f32, i32), c: array<tape<vec<c64, 3>>, 2>}) {
  %0 = reduce(%x; axes=[1], kind="sum"): tensor<f32, [n]>
  %1 = broadcast(%0; axes=[0], shape=[<n>, 4]): tensor<f32, [n, 4]>
  %2 = constant(type=c64, value=complex(-0.0, inf)): c64
  %3 = input(key=$time, type=f32): f32
  %4 = get(%s; index=0)
  %5 = get(%4; index=1)
  %6 = permute(%1; axes=[1, 0])
  %7 = slice(%6; size=[2, <n>], start=[0, 0], step=[1, 1])
  return %7, %2, %3, %5
}
"""


def test_a_text_with_every_kind_of_attribute_round_trips() -> None:
    function = parse_function(RICH_TEXT)
    assert parse_function(print_function(function), keys=key_labels(function)) == function


@given(data=st.data())
def test_changed_attributes_raise_only_livegrad_errors(data: st.DataObject) -> None:
    words = [*RICH_TEXT.replace("(", " ( ").replace("=", " = ").replace("]", " ] ").split(" ")]
    for _ in range(data.draw(st.integers(1, 3))):
        index = data.draw(st.integers(0, len(words) - 1))
        words[index] = data.draw(
            PIECES | st.sampled_from(words) | st.sampled_from(["-1", "true", "none", "0.5", "[[]]"])
        )
    assert is_read_or_refused(parse_function, " ".join(words))


@given(text=st.lists(PIECES | st.text(max_size=3), max_size=12).map("".join))
def test_any_text_raises_only_livegrad_errors(text: str) -> None:
    assert all(is_read_or_refused(parse, text) for parse in (parse_function, parse_module, parse_type))


@pytest.mark.parametrize("opening", ["[", "(", "tape<", "array<", "struct A{b:"])
def test_unlimited_nesting_is_a_livegrad_error(opening: str) -> None:
    with pytest.raises(LivegradError, match="nested more than 64 deep"):
        parse_function("function @f() { %0 = constant(value=" + opening * 100_000)


def test_a_summary_counts_nodes_ops_and_nested_functions() -> None:
    def f(n: Node, x: Node) -> Node:
        return nested_loops(n, x) + input_node(Key("time"), f32)

    inputs = [input_node(Key("n"), i64), input_node(Key("x"), f32)]
    assert summarize(make_function("f", inputs, [f(*inputs)])) == (
        "function f\n"
        "  nodes: 6, depth 4\n"
        "  ops: parameter 2, for_loop 1, get 1, input 1, add 1\n"
        "  parameters: i64, f32\n"
        "  inputs: time: f32\n"
        "  results: f32\n"
        "  nested functions: inner (5 nodes), outer (5 nodes)"
    )


def test_a_summary_stays_short() -> None:
    parameters = [parameter(index, f32) for index in range(1000)]
    text = summarize(make_function("wide", parameters, parameters))
    assert "parameters: f32, f32, f32, f32, f32, f32, f32, f32, and 992 more" in text
    assert len(text) < 400
