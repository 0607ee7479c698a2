"""The guarded context: undeclared uses raise an error that names the node."""

from typing import Any

import pytest

from livegrad.contexts import ContextError, ContextGraph, NodeContext


def run(function: Any, root: dict[str, Any] | None = None, below: Any = None, **declared: Any) -> Any:
    graph = ContextGraph()
    if below is not None:
        graph.node("below", below[0], **below[1])
        declared["scoped"] = "below"
    graph.node("painter", function, **declared)
    return graph.compile("painter", root=list(root or {})).evaluate(root)


READS_FOOTPRINT = (lambda ctx: ctx.footprint, {"extract": "footprint"})
READS_INDEX = (lambda ctx: ctx.index, {"extract": "index"})


def test_reading_an_undeclared_feature_names_node_and_feature():
    with pytest.raises(ContextError, match=r"`painter` reads `real_time`.*declare it with extract=\"real_time\""):
        run(lambda ctx: ctx.real_time, {"real_time": 1.0})


def test_reading_an_undeclared_level_raises():
    with pytest.raises(ContextError, match="`painter` reads `index@1`"):
        run(lambda ctx: ctx["index@1"], {"index": 1, "index@1": 2}, extract="index")


def test_reading_an_unknown_feature_raises():
    with pytest.raises(Exception, match="no feature `colour`"):
        run(lambda ctx: ctx.colour)


def test_injecting_an_undeclared_feature_raises():
    with pytest.raises(ContextError, match="`painter` injects `index`, which it does not declare"):
        run(lambda ctx, below: below(ctx.inject(index=1)), below=(lambda ctx: 1, {}))


def test_calling_a_scoped_input_without_its_injection_raises():
    with pytest.raises(ContextError, match="`painter` evaluates its input `below` without injecting `index`"):
        run(lambda ctx, below: below(ctx), below=READS_INDEX, inject="index")


def test_an_injection_that_no_input_reads_is_optional():
    assert run(lambda ctx, below: below(ctx), below=(lambda ctx: "plain", {}), inject="index") == "plain"


def test_one_node_pushes_one_level():
    with pytest.raises(ContextError, match="`painter` pushes two levels of `index`"):
        run(lambda ctx, below: below(ctx.inject(index=1).inject(index=2)), below=READS_INDEX, inject="index")


def test_injecting_a_feature_again_replaces_its_value():
    value = run(
        lambda ctx, below: below(ctx.inject(footprint=1).inject(footprint=2)), below=READS_FOOTPRINT, inject="footprint"
    )
    assert value == 2


def test_injections_can_differ_from_input_to_input():
    graph = ContextGraph()
    graph.node("left", lambda ctx: ctx.index, extract="index")
    graph.node("right", lambda ctx: ctx.footprint, extract="footprint")
    graph.node(
        "both",
        lambda ctx, left, right: (left(ctx.inject(index=4)), right(ctx.inject(footprint=5))),
        scoped=["left", "right"],
        inject={"left": "index", "right": "footprint"},
    )
    assert graph.compile("both").evaluate() == (4, 5)
    graph.replace("both", lambda ctx, left, right: (left(ctx.inject(index=4)), right(ctx.inject(index=5))))
    with pytest.raises(ContextError, match="injects `index` into its input `right`"):
        graph.compile("both").evaluate()


def test_a_context_of_another_node_is_an_error():
    kept: list[NodeContext] = []
    graph = ContextGraph()
    graph.node("keeps", lambda ctx: kept.append(ctx) or 1)
    graph.node("below", lambda ctx: 2)
    graph.node("uses", lambda ctx, first, below: below(kept[0]), plain="keeps", scoped="below")
    with pytest.raises(ContextError, match="`uses` evaluates its input `below` in a context that is not its own"):
        graph.compile("uses").evaluate()


def test_a_scoped_input_cannot_be_called_after_its_node_has_returned():
    later: list[Any] = []
    graph = ContextGraph()
    graph.node("below", lambda ctx: 2)
    graph.node("leaks", lambda ctx, below: later.append((ctx, below)) or 1, scoped="below")
    graph.compile("leaks").evaluate()
    ctx, below = later[0]
    with pytest.raises(ContextError, match="not its own"):
        below(ctx)


def test_extract_all_must_be_declared_and_cannot_be_read():
    with pytest.raises(ContextError, match="`painter` passes its whole context on"):
        run(lambda ctx, below: below(ctx.extract_all()), {"footprint": 1}, below=READS_FOOTPRINT)
    with pytest.raises(ContextError, match="`painter` reads `footprint` from a context that it only passes on"):
        run(lambda ctx: ctx.extract_all().footprint, {"footprint": 1}, extract_all=True)


def test_contexts_can_be_derived_from_extract_all():
    value = run(
        lambda ctx, below: below(ctx.extract_all().inject(index=9)), below=READS_INDEX, inject="index", extract_all=True
    )
    assert value == 9


def test_an_inner_index_leaves_the_outer_one_readable():
    graph = ContextGraph()
    graph.node("cell", lambda ctx: (ctx["index@1"], ctx["index"]), extract=["index", "index@1"])
    graph.node("row", lambda ctx, cell: [cell(ctx.inject(index=i)) for i in (0, 1)], scoped="cell", inject="index")
    graph.node("rows", lambda ctx, row: [row(ctx.inject(index=i)) for i in "ab"], scoped="row", inject="index")
    program = graph.compile("rows")
    assert program.evaluate() == [[("a", 0), ("a", 1)], [("b", 0), ("b", 1)]]
    assert [program.needs(name) for name in ("rows", "row", "cell")] == [(), ("index",), ("index", "index@1")]


def test_a_derived_context_shows_what_was_injected_and_the_level_outside():
    def painter(ctx: NodeContext, below: Any) -> Any:
        inner = ctx.inject(index=7)
        return inner["index"], inner["index@1"], below(inner)

    assert run(painter, {"index": 3}, below=READS_INDEX, extract="index", inject="index") == (7, 3, 7)


def test_absent_optional_features_are_none():
    assert run(lambda ctx: ctx.index, optional="index") is None
    assert run(lambda ctx: ctx.index, {"index": 4}, optional="index") == 4


def test_an_optional_feature_that_the_root_does_not_declare_stays_none_whatever_is_passed():
    graph = ContextGraph()
    graph.node("reads", lambda ctx: ctx.index, optional="index")
    program = graph.compile("reads")
    with program.events() as log:
        assert [program.evaluate(index=value) for value in (1, 2)] == [None, None]
    assert str(log) == "computed reads\nhit reads"


def test_a_modified_feature_that_no_input_needs_is_not_computed():
    calls: list[Any] = []
    value = run(
        lambda ctx, below: (ctx.footprint, below(ctx.modify(footprint=calls.append))),
        {"footprint": 1},
        below=(lambda ctx: "constant", {}),
        modify="footprint",
    )
    assert value == (None, "constant")
    assert calls == []


def test_modifying_a_feature_is_optional():
    assert run(lambda ctx, below: below(ctx), {"footprint": 3}, below=READS_FOOTPRINT, modify="footprint") == 3


def test_modifying_a_stack_pushes_a_level_because_it_is_extract_and_inject():
    value = run(
        lambda ctx, below: below(ctx.modify(index=lambda index: index * 10)),
        {"index": 3},
        below=(lambda ctx: (ctx["index"], ctx["index@1"]), {"extract": ["index", "index@1"]}),
        modify="index",
    )
    assert value == (30, 3)


def test_scoped_inputs_without_injections_are_evaluated_only_when_called():
    graph = ContextGraph()
    for name in ("yes", "no"):
        graph.node(name, lambda ctx, name=name: name)
    graph.node(
        "choose",
        lambda ctx, yes, no: (yes if ctx.footprint else no)(ctx),
        scoped=["yes", "no"],
        extract="footprint",
    )
    program = graph.compile("choose", root="footprint")
    with program.events() as log:
        assert program.evaluate(footprint=True) == "yes"
    assert log.names("computed") == ["yes", "choose"]
