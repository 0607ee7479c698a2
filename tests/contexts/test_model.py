"""Random graphs, contexts and edits: values equal those without caching, with as few computations as possible."""

from collections import Counter
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from livegrad.contexts import CacheLimits, ContextGraph
from tests.contexts.oracle import Document, Edge, Naive, Spec, add_to, needs, text

FLAT = ("footprint", "animation_time")
LEVELS = [("footprint", 0), ("animation_time", 0), ("index", 0), ("index", 1)]
ROOT = [("footprint", 0), ("animation_time", 0), ("index", 0), ("index", 1), ("index", 2)]


@st.composite
def edges(draw: st.DrawFn, below: list[str]) -> tuple[Edge, ...]:
    sources = draw(st.lists(st.sampled_from(below), max_size=2, unique=True)) if below else []
    found = []
    for source in sources:
        if not draw(st.booleans()):
            found.append(Edge(source))
            continue
        written = draw(st.frozensets(st.sampled_from((*FLAT, "index")), max_size=2))
        modified = draw(st.frozensets(st.sampled_from(sorted(written)), max_size=1)) if written else frozenset()
        found.append(Edge(source, True, written - modified, modified))
    return tuple(sorted(found, key=lambda edge: edge.scoped))


@st.composite
def specs(draw: st.DrawFn, name: str, below: list[str], coarse: bool, optional: bool) -> Spec:
    # Tags of different nodes differ, because nodes of equal content share their results.
    extracts = draw(st.frozensets(st.sampled_from(LEVELS), max_size=2))
    read_if_there = draw(st.frozensets(st.sampled_from(LEVELS), max_size=1)) if optional else frozenset()
    return Spec(
        name,
        10 * len(below) + draw(st.integers(0, 3)),
        draw(edges(below)),
        extracts,
        read_if_there - extracts,
        coarse=coarse and draw(st.booleans()),
        asks=draw(st.integers(1, 2)),
    )


@st.composite
def documents(draw: st.DrawFn, coarse: bool, optional: bool = False) -> Document:
    names = [f"n{number}" for number in range(draw(st.integers(1, 5)))]
    return {name: draw(specs(name, names[:place], coarse, optional)) for place, name in enumerate(names)}


@st.composite
def contexts(draw: st.DrawFn) -> dict[tuple[str, int], int]:
    return {level: draw(st.integers(0, 2)) for level in ROOT}


def whole(context: dict[tuple[str, int], int]) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    for (feature, _), value in sorted(context.items()):
        found[feature] = (*found.get(feature, ()), value)
    return found


def build(document: Document, limits: CacheLimits | None = None) -> ContextGraph:
    graph = ContextGraph(limits=limits)
    for spec in document.values():
        add_to(graph, spec)
    return graph


def output_of(document: Document) -> str:
    return list(document)[-1]


@settings(max_examples=50, deadline=None)
@given(documents(coarse=True), st.lists(contexts(), min_size=1, max_size=5))
def test_values_are_those_without_caching_and_nothing_is_computed_twice(document, moments):
    program = build(document).compile(output_of(document), root=map(text, ROOT))
    naive = Naive()
    with program.events() as log:
        for moment in moments:
            given_features = {text(level): value for level, value in moment.items()}
            assert program.evaluate(given_features) == naive.evaluate(document, output_of(document), whole(moment))
    assert Counter(log.names("computed")) == naive.counts()


@settings(max_examples=40, deadline=None)
@given(documents(coarse=False), st.lists(contexts(), min_size=1, max_size=4))
def test_a_node_is_computed_once_per_value_of_its_needs(document, moments):
    program = build(document).compile(output_of(document), root=map(text, ROOT))
    naive = Naive()
    with program.events() as log:
        for moment in moments:
            program.evaluate({text(level): value for level, value in moment.items()})
            naive.evaluate(document, output_of(document), whole(moment))
    computed = [(event.node, tuple(sorted(event.features))) for event in log if event.kind == "computed"]
    expected = {(name, tuple(sorted(p))) for name, found in naive.projections.items() for p in found}
    assert len(computed) == len(set(computed))
    assert set(computed) == expected


@settings(max_examples=50, deadline=None)
@given(documents(coarse=False, optional=True))
def test_needs_are_those_of_the_equation(document):
    program = build(document).compile(output_of(document), root=map(text, ROOT))
    equation = needs(document)
    for unit in program.linked.units:
        assert set(unit.need) == equation[unit.name]
        assert set(unit.required) == needs(document, optional_too=False)[unit.name]


@settings(max_examples=40, deadline=None)
@given(documents(coarse=True, optional=True), st.lists(contexts(), min_size=1, max_size=3), st.data())
def test_absent_optional_features_are_none_and_cost_nothing(document, moments, data):
    required = needs(document, optional_too=False)[output_of(document)]
    provided = sorted(required | data.draw(st.frozensets(st.sampled_from(ROOT[:3]))))
    deepest = max([level for feature, level in provided if feature == "index"], default=-1)
    provided = sorted({*provided, *[("index", level) for level in range(deepest + 1)]})
    program = build(document).compile(output_of(document), root=map(text, provided))
    naive = Naive()
    with program.events() as log:
        for moment in moments:
            there = {level: value for level, value in moment.items() if level in provided}
            value = program.evaluate({text(level): value for level, value in moment.items()})
            assert value == naive.evaluate(document, output_of(document), whole(there))
    assert Counter(log.names("computed")) == naive.counts()


@settings(max_examples=50, deadline=None)
@given(documents(coarse=True), st.data())
def test_edits_keep_every_unaffected_result(document, data):
    graph = build(document)
    program = graph.compile(output_of(document), root=map(text, ROOT))
    naive = Naive()
    with program.events() as log:
        for _ in range(data.draw(st.integers(1, 5))):
            moment = data.draw(contexts())
            value = program.evaluate({text(level): value for level, value in moment.items()})
            assert value == naive.evaluate(document, output_of(document), whole(moment))
            before, document = document, data.draw(edited(document))
            for name in document:
                if document[name] != before[name]:
                    add_to(graph, document[name], edit=True)
    assert Counter(log.names("computed")) == naive.counts()


limits = st.builds(
    CacheLimits,
    entries=st.integers(0, 12),
    bytes=st.integers(0, 2000),
    node_entries=st.integers(0, 4),
    variants=st.integers(0, 2),
)


@settings(max_examples=40, deadline=None)
@given(documents(coarse=True, optional=True), limits, st.lists(contexts(), min_size=1, max_size=5))
def test_values_are_correct_with_any_cache_size(document, limits, moments):
    graph = build(document, limits)
    program = graph.compile(output_of(document), root=map(text, ROOT))
    naive = Naive()
    for moment in moments:
        value = program.evaluate({text(level): value for level, value in moment.items()})
        assert value == naive.evaluate(document, output_of(document), whole(moment))
        assert graph.store.entries <= limits.entries
        assert graph.store.bytes <= limits.bytes


@st.composite
def edited(draw: st.DrawFn, document: Document) -> Document:
    """The document with another function, other inputs or other features somewhere."""
    names = list(document)
    place = draw(st.integers(0, len(names) - 1))
    old = document[names[place]]
    fresh = draw(specs(old.name, names[:place], True, False))
    kind = draw(st.sampled_from(["function", "inputs", "features"]))
    if kind == "function":
        fresh = replace(old, tag=fresh.tag, coarse=fresh.coarse)
    elif kind == "inputs":
        fresh = replace(old, edges=fresh.edges)
    else:
        fresh = replace(old, extracts=fresh.extracts)
    return {**document, old.name: fresh}
