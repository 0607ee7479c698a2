"""Errors of invalid graphs name the node, the feature and the path."""

import re
from typing import Any

import pytest

from livegrad.contexts import ContextError, ContextGraph, context_node, register_feature
from livegrad.diagnostics import UsageError


def raises(message: str) -> Any:
    return pytest.raises(ContextError, match=message)


def test_an_extract_without_a_source_names_node_feature_and_path():
    graph = ContextGraph()
    graph.node("leaf", lambda ctx: ctx.index, extract="index")
    graph.node("middle", lambda ctx, leaf: leaf, plain="leaf")
    graph.node("top", lambda ctx, middle: middle(ctx), scoped="middle")
    with pytest.raises(ContextError) as caught:
        graph.compile("top", root="footprint")
    message = str(caught.value)
    assert re.sub(r"\(test_validation.py:[0-9:]+\)", "(here)", message) == (
        "node `leaf` extracts `index`, which nothing above it provides (here): expected a node on the path that "
        "injects `index`, or a root context that has it, found the path `top` → `middle` → `leaf`; "
        'compile with root=["index"], inject it, or declare it optional'
    )


def test_every_path_needs_a_source():
    graph = ContextGraph()
    graph.node("leaf", lambda ctx: ctx.index, extract="index")
    graph.node("loop", lambda ctx, leaf: leaf(ctx.inject(index=0)), scoped="leaf", inject="index")
    graph.node("bypass", lambda ctx, leaf: leaf, plain="leaf")
    graph.node("top", lambda ctx, a, b: (a, b), plain=["loop", "bypass"])
    with raises("found the path `top` → `bypass` → `leaf`"):
        graph.compile("top")


def test_a_missing_level_is_named_like_in_the_declaration():
    graph = ContextGraph()
    graph.node("leaf", lambda ctx: ctx["index@1"], extract="index@1")
    graph.node("loop", lambda ctx, leaf: leaf(ctx.inject(index=0)), scoped="leaf", inject="index")
    with raises("`leaf` extracts `index@1`.*`loop` → `leaf`"):
        graph.compile("loop")


def test_plain_inputs_do_not_see_what_their_node_injects():
    graph = ContextGraph()
    graph.node("leaf", lambda ctx: ctx.index, extract="index")
    graph.node("other", lambda ctx: 1)
    graph.node(
        "loop", lambda ctx, leaf, other: other(ctx.inject(index=0)), plain="leaf", scoped="other", inject="index"
    )
    with raises("`leaf` extracts `index`"):
        graph.compile("loop")


def test_a_modifier_does_not_provide_a_feature():
    graph = ContextGraph()
    graph.node("leaf", lambda ctx: ctx.footprint, extract="footprint")
    graph.modifier("larger", "leaf", footprint=lambda value: value + 1)
    with raises("`leaf` extracts `footprint`.*`larger` → `leaf`"):
        graph.compile("larger")


def test_cycles_are_shown():
    graph = ContextGraph()
    graph.node("a", lambda ctx, b: b, plain="b")
    graph.node("b", lambda ctx, c: c, scoped="c")
    graph.node("c", lambda ctx, a: a, plain="a")
    with raises("needs its own result.*`a` → `b` → `c` → `a`"):
        graph.compile("a")


def test_duplicate_names_are_errors():
    graph = ContextGraph()
    graph.node("a", lambda ctx: 1)
    with raises("node `a` already exists"):
        graph.node("a", lambda ctx: 2)
    with raises("node `a` already exists"):
        graph.value("a", 2)


def test_unknown_inputs_and_outputs_are_named():
    graph = ContextGraph()
    graph.node("a", lambda ctx, b: b, plain="b")
    with raises("no node `b`, which is an input of `a`"):
        graph.compile("a")
    with raises("no node `z`"):
        graph.compile("z")


def test_injecting_needs_a_scoped_input():
    graph = ContextGraph()
    with raises("`a` has no scoped input to receive `index`"):
        graph.node("a", lambda ctx: 1, inject="index")
    with raises("`a` has no scoped input to receive `x`"):
        graph.node("a", lambda ctx, b: 1, scoped="b", inject={"x": "index"})


@pytest.mark.parametrize("text", ["colour", "footprint@1", "index@x"])
def test_invalid_features_cannot_be_declared(text: str):
    with pytest.raises(UsageError, match=text.partition("@")[0]):
        ContextGraph().node("a", lambda ctx: 1, extract=text)


def test_applications_register_features_of_their_own():
    register_feature("wind")
    register_feature("wind")
    with pytest.raises(UsageError, match="`wind` is registered differently"):
        register_feature("wind", stack=True)
    graph = ContextGraph()
    graph.node("kite", lambda ctx: ctx.wind, extract="wind")
    assert graph.compile("kite", root="wind").evaluate(wind=3) == 3


def test_a_missing_root_feature_is_named():
    graph = ContextGraph()
    graph.node("a", lambda ctx: ctx.footprint, extract="footprint")
    with raises("the context has no `footprint`, which `a` needs"):
        graph.compile("a", root="footprint").evaluate(real_time=1.0)


def test_inputs_by_name_must_match_parameters():
    @context_node
    def scale(ctx: Any, value: float, factor: float) -> float:
        return value * factor

    graph = ContextGraph()
    graph.value("x", 2.0)
    with raises("do not match the parameters of `scale`.*no `factor`"):
        graph.node("a", scale, value="x")
    with raises("`other` as well"):
        graph.node("a", scale, value="x", factor="x", other="x")
    graph.node("a", scale, plain=["x", "x"])
    assert graph.compile("a").evaluate() == 4.0


def test_a_node_that_evaluates_its_own_program_is_an_error():
    graph = ContextGraph()
    graph.node("a", lambda ctx: program.evaluate())
    program = graph.compile("a")
    with pytest.raises(RecursionError, match="`a` needs its own result"):
        program.evaluate()


def test_an_error_in_a_node_function_names_the_node():
    graph = ContextGraph()
    graph.node("bad", lambda ctx: 1 / 0)
    graph.node("top", lambda ctx, bad: bad, plain="bad")
    program = graph.compile("top")
    with pytest.raises(ZeroDivisionError) as caught:
        program.evaluate()
    assert caught.value.__notes__ == ["in node `bad` of `top`"]
    graph.replace("bad", lambda ctx: 5)
    assert program.evaluate() == 5


def test_a_function_that_does_not_take_its_inputs_is_an_error():
    graph = ContextGraph()
    graph.value("x", 2.0)
    with raises(r"node `a` cannot be called with a context and 1 inputs \(test_validation.py"):
        graph.node("a", lambda ctx: 1.0, plain="x")
    graph.node("a", lambda ctx, x, scale=3.0: x * scale, plain="x")
    program = graph.compile("a")
    with raises("cannot be called with a context and 1 inputs"):
        graph.replace("a", lambda ctx: 1.0)
    assert program.evaluate() == 6.0


def test_nodes_inputs_and_features_are_named_by_text():
    graph: Any = ContextGraph()
    with raises("a node needs a name"):
        graph.node(3, lambda ctx: 1.0)
    with raises("pass inputs and features by keyword.*found 3"):
        graph.node("a", lambda ctx, x: x, plain=3)
    with raises("pass inputs and features by keyword.*found 3"):
        graph.node("a", lambda ctx: 1.0, extract=["index", 3])


def test_an_iterator_is_not_a_valid_result():
    graph = ContextGraph()
    graph.node("squares", lambda ctx: (number * number for number in range(3)))
    with raises("node `squares` returns an iterator"):
        graph.compile("squares").evaluate()
    graph.replace("squares", lambda ctx: [number * number for number in range(3)])
    assert graph.compile("squares").evaluate() == [0, 1, 4]


def test_errors_of_a_call_name_the_line():
    graph = ContextGraph()
    graph.node("a", lambda ctx: ctx.footprint, extract="footprint")
    program = graph.compile("a", root="footprint")
    for call in (
        lambda: program.evaluate(),
        lambda: program.evaluate(footprint=[1.0]),
        lambda: program.why("b"),
        lambda: graph.compile("b"),
    ):
        with raises(r"\(test_validation.py:\d+"):
            call()
