"""The decorator: features by annotation, inputs by the names of parameters."""

from typing import Annotated, Any

import pytest

from livegrad.contexts import (
    ContextError,
    ContextGraph,
    Extract,
    ExtractAll,
    Inject,
    Modify,
    NodeContext,
    Scoped,
    context_node,
)
from livegrad.contexts.declare import Optional


@context_node
def everything(
    ctx: Annotated[
        NodeContext,
        Extract("footprint", "index@1"),
        Inject("index"),
        Modify("real_time"),
        Optional("position"),
        ExtractAll(),
    ],
    first: int,
    body: Scoped,
    last: int,
) -> Any:
    inner = ctx.inject(index=first).modify(real_time=lambda time: time + last)
    return ctx.footprint, ctx["index@1"], ctx.position, body(inner)


def test_annotations_are_equivalent_to_arguments():
    graph = ContextGraph()
    graph.value("one", 1)
    graph.value("two", 2)
    graph.node("body", lambda ctx: (ctx.index, ctx.real_time), extract=["index", "real_time"])
    graph.node("all", everything, first="one", body="body", last="two")
    declared = graph.nodes["all"]
    assert sorted(map(str, declared.extracts)) == ["footprint", "index@1"]
    assert (declared.injects, declared.modifies) == ({"index"}, {"real_time"})
    assert [(edge.source, edge.scoped) for edge in declared.inputs] == [("one", False), ("body", True), ("two", False)]
    assert declared.extract_all
    program = graph.compile("all", root=["footprint", "index", "index@1", "real_time"])
    value = program.evaluate({"footprint": 5, "index": 6, "index@1": 7, "real_time": 0.5})
    assert value == (5, 7, None, (1, 2.5))


def test_features_can_be_arguments_of_the_decorator():
    @context_node(extract="footprint", inject={"body": "index"})
    def loop(ctx: Any, body: Scoped) -> Any:
        return body(ctx.inject(index=ctx.footprint))

    graph = ContextGraph()
    graph.node("leaf", lambda ctx: ctx.index, extract="index")
    graph.node("loop", loop, body="leaf")
    assert graph.compile("loop", root="footprint").evaluate(footprint=8) == 8


def test_a_decorated_function_is_still_callable():
    @context_node
    def double(ctx: Any, value: int) -> int:
        return value * 2

    assert double(None, 4) == 8


def test_a_node_has_a_fixed_number_of_inputs():
    with pytest.raises(ContextError, match="cannot be a context node"):

        @context_node
        def free(ctx: Any, *values: int) -> int:
            return sum(values)


def test_an_edit_keeps_other_options():
    graph = ContextGraph()
    graph.value("one", 1)
    graph.node("leaf", lambda ctx: ctx.index, extract="index")
    graph.node("loop", lambda ctx, one, leaf: leaf(ctx.inject(index=one)), plain="one", scoped="leaf", inject="index")
    program = graph.compile("loop")
    assert program.evaluate() == 1
    graph.replace("loop", lambda ctx, one, leaf: leaf(ctx.inject(index=one + 1)))
    assert program.evaluate() == 2
    graph.value("ten", 10)
    graph.replace("loop", plain="ten")
    assert program.evaluate() == 11
    graph.replace("leaf", everything_else, extract=["index"])
    assert program.evaluate() == -11


def everything_else(ctx: Any) -> Any:
    return -ctx.index
