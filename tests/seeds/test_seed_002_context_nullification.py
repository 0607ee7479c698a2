"""Seed 002, context nullification: each example and each numbered rule, by the events of evaluation."""

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

ROOT = ["footprint", "real_time", "animation_time"]


def moved(footprint: tuple[int, int]) -> tuple[int, int]:
    return footprint[0] + 10, footprint[1]


@context_node
def use_footprint(ctx: Annotated[NodeContext, Extract("footprint")], a: int) -> Any:
    return (a, ctx.footprint)


@context_node
def map_with_index(ctx: Annotated[NodeContext, Inject("index")], collection: list[float], mapper: Scoped) -> list[Any]:
    return [item + mapper(ctx.inject(index=index)) for index, item in enumerate(collection)]


@context_node
def use_index(ctx: Annotated[NodeContext, Extract("index")], value: float) -> float:
    return value * ctx.index


@context_node
def transform(ctx: Annotated[NodeContext, Modify("footprint")], source: Scoped) -> Any:
    return source(ctx.modify(footprint=moved))


@context_node
def pass_through(ctx: Annotated[NodeContext, ExtractAll()], source: Scoped) -> Any:
    return source(ctx.extract_all())


def lines(log: Any) -> list[str]:
    return str(log).split("\n") if log else []


def test_node_that_uses_no_time_is_not_rerun_when_the_time_changes():
    """Seed 002, "Motivation": use_footprint."""
    graph = ContextGraph()
    graph.value("number", 7)
    graph.node("use_footprint", use_footprint, a="number")
    program = graph.compile("use_footprint", root=ROOT)
    with program.events() as log:
        program.evaluate(footprint=(4, 4), real_time=1.0, animation_time=0.0)
        program.evaluate(footprint=(4, 4), real_time=2.0, animation_time=0.5)
        program.evaluate(footprint=(8, 4), real_time=2.0, animation_time=0.5)
    assert lines(log) == [
        "computed number",
        "computed use_footprint [footprint=(4, 4)]",
        "hit use_footprint [footprint=(4, 4)]",
        "hit number",
        "computed use_footprint [footprint=(8, 4)]",
    ]


def test_contexts_are_equal_for_a_node_when_the_features_that_it_uses_are():
    """Seed 002, "Why is Context equality important?": a node that the compiler places zeroes out unused parts."""
    graph = ContextGraph()
    graph.node("use_footprint", lambda ctx: ctx.footprint, extract="footprint")
    program = graph.compile("use_footprint", root=ROOT)
    assert program.nullified(None, "use_footprint") == ("animation_time", "real_time")
    assert "nullify animation_time, real_time" in str(program)
    assert "nullify\\nanimation_time, real_time" in program.to_dot()


def test_extract_all_builds_a_context_from_the_previous_one_and_depends_on_nothing():
    """Seed 002, "Why is Context equality important?": ExtractAll; it is ignored in the analysis."""
    graph = ContextGraph()
    graph.node("time", lambda ctx: ctx.real_time, extract="real_time")
    graph.node("passes", pass_through, source="time")
    program = graph.compile("passes", root=ROOT)
    assert program.needs() == ("real_time",)
    assert program.evaluate(footprint=1, real_time=2.0, animation_time=3.0) == 2.0


def test_map_injects_an_index_that_nodes_below_extract():
    """Seed 002, "Context Feature Injection": map_with_index and use_index."""
    graph = ContextGraph()
    graph.value("collection", [1.0, 2.0, 3.0])
    graph.value("factor", 10.0)
    graph.node("use_index", use_index, value="factor")
    graph.node("map", map_with_index, collection="collection", mapper="use_index")
    program = graph.compile("map", root=ROOT)
    with program.events() as log:
        assert program.evaluate(footprint=1, real_time=1.0, animation_time=1.0) == [1.0, 12.0, 23.0]
        assert program.evaluate(footprint=2, real_time=2.0, animation_time=2.0) == [1.0, 12.0, 23.0]
    assert lines(log) == [
        "computed collection",
        "computed factor",
        "computed use_index [index=0]",
        "hit factor",
        "computed use_index [index=1]",
        "hit factor",
        "computed use_index [index=2]",
        "computed map",
        "hit map",
    ]
    assert program.needs("map") == ()
    assert program.needs("use_index") == ("index",)


def test_extract_then_inject_gives_the_processed_feature_to_the_nodes_below():
    """Seed 002, "Injection Hierarchy and Precedence", extract-then-inject."""
    graph = ContextGraph()
    graph.node("below", lambda ctx: ctx.footprint, extract="footprint")
    graph.node(
        "doubles",
        lambda ctx, below: (ctx.footprint, below(ctx.inject(footprint=ctx.footprint * 2))),
        scoped="below",
        extract="footprint",
        inject="footprint",
    )
    program = graph.compile("doubles", root="footprint")
    assert program.evaluate(footprint=3) == (3, 6)


def test_injected_features_take_precedence_over_those_from_above():
    """Seed 002, "Injection Hierarchy and Precedence", inject-override."""
    graph = ContextGraph()
    graph.node("below", lambda ctx: ctx.footprint, extract="footprint")
    graph.node("sets", lambda ctx, below: below(ctx.inject(footprint="own")), scoped="below", inject="footprint")
    program = graph.compile("sets", root="footprint")
    with program.events() as log:
        assert [program.evaluate(footprint=value) for value in ("first", "second")] == ["own", "own"]
    assert lines(log) == ["computed below [footprint='own']", "computed sets", "hit sets"]
    assert program.needs() == ()


def test_an_injection_reaches_the_whole_subtree_of_the_scoped_input_and_nothing_else():
    """Seed 002, "Injection Hierarchy and Precedence", injection scope; notes: injection is per input edge."""
    graph = ContextGraph()
    graph.node("deep", lambda ctx: ctx.footprint, extract="footprint")
    graph.node("between", lambda ctx, deep: deep, plain="deep")
    graph.node(
        "injects",
        lambda ctx, beside, below: (beside, below(ctx.inject(footprint="inner"))),
        plain="deep",
        scoped="between",
        inject="footprint",
    )
    program = graph.compile("injects", root="footprint")
    with program.events() as log:
        assert program.evaluate(footprint="outer") == ("outer", "inner")
    assert lines(log) == [
        "computed deep [footprint='outer']",
        "computed deep [footprint='inner']",
        "computed between [footprint='inner']",
        "computed injects [footprint='outer']",
    ]


def test_every_extract_is_tracked_back_to_what_provides_it():
    """Seed 002, "Context Nullification Analysis" 1, and "Error Handling": an extract without inject is an error."""
    graph = ContextGraph()
    graph.value("factor", 2.0)
    graph.node("use_index", use_index, value="factor")
    graph.node("around", lambda ctx, inner: inner, plain="use_index")
    with pytest.raises(ContextError, match=r"`use_index` extracts `index`.*`around` → `use_index`"):
        graph.compile("around", root=ROOT)
    graph.value("collection", [1.0])
    graph.node("map", map_with_index, collection="collection", mapper="around")
    assert graph.compile("map").evaluate() == [1.0]


def test_where_branches_meet_each_keeps_only_what_it_needs():
    """Seed 002, "Context Nullification Analysis" 2: branch convergence."""
    graph = ContextGraph()
    graph.node("shape", lambda ctx: ctx.footprint, extract="footprint")
    graph.node("clock", lambda ctx: ctx.real_time, extract="real_time")
    graph.node("meet", lambda ctx, a, b: (a, b), plain=["shape", "clock"])
    program = graph.compile("meet", root=ROOT)
    assert program.nullified("meet", "shape") == ("real_time",)
    assert program.nullified("meet", "clock") == ("footprint",)
    with program.events() as log:
        program.evaluate(footprint=1, real_time=1.0, animation_time=0.0)
        program.evaluate(footprint=1, real_time=2.0, animation_time=0.0)
    assert lines(log)[3:] == [
        "hit shape [footprint=1]",
        "computed clock [real_time=2.0]",
        "computed meet [footprint=1, real_time=2.0]",
    ]


@pytest.mark.parametrize("used", [True, False])
def test_an_injected_feature_that_nobody_reads_is_dropped_at_the_injector(used: bool):
    """Seed 002, "Context Nullification Analysis" 3 and 4: nullification right at the injection point."""
    graph = ContextGraph()
    graph.node("body", lambda ctx: ctx.index if used else "same", extract="index" if used else ())
    graph.node("loop", lambda ctx, body: [body(ctx.inject(index=i)) for i in range(3)], scoped="body", inject="index")
    program = graph.compile("loop")
    (unread,) = [each.unread_injections for each in program.linked.needs.nullifications] or [()]
    assert [str(feature) for feature in unread] == ([] if used else ["index"])
    with program.events() as log:
        program.evaluate()
    assert log.names("computed") == (["body"] * 3 if used else ["body"]) + ["loop"]


def test_modify_is_extract_and_inject():
    """Seed 002, "Context Feature Modification Traits": ModifyFootprint: ExtractFootprint + InjectFootprint."""

    def through(name: str, **declared: Any) -> Any:
        graph = ContextGraph()
        graph.node("below", lambda ctx: ctx.footprint, extract="footprint")
        graph.node(
            name, lambda ctx, below: below(ctx.inject(footprint=moved(ctx.footprint))), scoped="below", **declared
        )
        program = graph.compile(name, root=ROOT)
        return program.needs(), program.evaluate(footprint=(1, 1), real_time=0.0, animation_time=0.0)

    both = through("both", extract="footprint", inject="footprint")
    assert through("modifier", modify="footprint") == both == (("footprint",), (11, 1))


def test_transform_needs_the_footprint_only_if_something_below_does():
    """Seed 002, "Conditional Context Dependencies" and "Optimization Implications" 1 and 2: transform."""
    graph = ContextGraph()
    graph.node("below", lambda ctx: "constant")
    graph.node("transform", transform, source="below")
    program = graph.compile("transform", root=ROOT)
    assert program.needs() == ()
    with program.events() as log:
        for footprint in ((1, 1), (2, 2)):
            program.evaluate(footprint=footprint, real_time=0.0, animation_time=0.0)
        graph.replace("below", lambda ctx: ctx.footprint, extract="footprint")
        assert program.needs() == ("footprint",)
        assert program.evaluate(footprint=(2, 2), real_time=0.0, animation_time=0.0) == (12, 2)
    assert lines(log) == [
        "computed below",
        "computed transform",
        "hit transform",
        "computed below [footprint=(12, 2)]",
        "computed transform [footprint=(2, 2)]",
    ]


@pytest.mark.parametrize(
    ("feature", "needed"), [("real_time", ("real_time",)), ("footprint", ("footprint",))], ids=["time", "footprint"]
)
def test_a_chain_of_modifiers_needs_what_its_last_consumer_extracts(feature: str, needed: tuple[str, ...]):
    """Seed 002, "Optimization Implications" 3 and the drawn example: transform chains."""
    graph = ContextGraph()
    graph.node("consumer", lambda ctx: ctx[feature], extract=feature)
    graph.node("inner", transform, source="consumer")
    graph.node("outer", transform, source="inner")
    graph.node("node_a", lambda ctx, chain: chain, plain="outer")
    program = graph.compile("node_a", root=ROOT)
    assert {program.needs(name) for name in ("node_a", "outer", "inner", "consumer")} == {needed}
    with program.events() as log:
        first = program.evaluate(footprint=(0, 0), real_time=5.0, animation_time=0.0)
        program.evaluate(footprint=(1, 0), real_time=5.0, animation_time=0.0)
    assert first == {"real_time": 5.0, "footprint": (20, 0)}[feature]
    again = log.names("computed")[4:]
    assert again == ([] if feature == "real_time" else ["consumer", "inner", "outer", "node_a"])


def test_the_pass_visits_each_node_once():
    """Seed 002, "Drawbacks": the extra pass is cheap. Paths through this ladder are 2 to the power of 10,000."""
    graph = ContextGraph()
    graph.node("n0", lambda ctx: ctx.footprint, extract="footprint")
    for number in range(1, 10_001):
        graph.node(f"n{number}", lambda ctx, a, b: (a + b) % 7, plain=[f"n{number - 1}"] * 2)
    program = graph.compile("n10000", root=ROOT)
    assert program.needs() == ("footprint",)
    with program.events() as log:
        program.evaluate(footprint=1, real_time=0.0, animation_time=0.0)
    assert len(log.names("computed")) == 10_001
