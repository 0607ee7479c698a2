"""The need equation on small graphs, and its cost on large ones."""

from livegrad.ops.context import FeatureLevel, parse_feature
from livegrad.passes.nullify_context import Edge, Use, nullify_context


def features(*names: str) -> frozenset[FeatureLevel]:
    return frozenset(map(parse_feature, names))


def texts(levels: tuple[FeatureLevel, ...]) -> list[str]:
    return [str(level) for level in levels]


def test_injecting_a_stack_takes_level_zero_and_moves_the_others():
    leaf = Use("leaf", extracts=features("index", "index@1", "index@2", "footprint"))
    loop = Use("loop", [Edge("leaf", frozenset({"index"}))])
    found = nullify_context([leaf, loop], features("index", "index@1", "footprint"))
    assert texts(found.needs["loop"]) == ["footprint", "index", "index@1"]
    assert not found.unsourced


def test_two_stacks_are_moved_apart():
    leaf = Use("leaf", extracts=features("index@1", "varargs"))
    loop = Use("loop", [Edge("leaf", frozenset({"index"}))])
    found = nullify_context([leaf, loop], features("index", "varargs"))
    assert texts(found.needs["loop"]) == ["index", "varargs"]


def test_what_a_caller_holds_beyond_the_deepest_level_is_dropped():
    leaf = Use("leaf")
    loop = Use("loop", [Edge("leaf", frozenset({"index"}))], extracts=features("index"))
    found = nullify_context([leaf, loop], features("index"))
    (dropped,) = found.nullifications
    assert (dropped.caller, dropped.source) == ("loop", "leaf")
    assert texts(dropped.dropped) == ["index", "index@1"]
    assert texts(dropped.unread_injections) == ["index"]


def test_an_optional_feature_is_kept_only_where_some_way_brings_it():
    leaf = Use("leaf", optional=features("index"))
    loop = Use("loop", [Edge("leaf", frozenset({"index"}))])
    direct = Use("direct", [Edge("leaf")])
    top = Use("top", [Edge("loop"), Edge("direct")])
    found = nullify_context([leaf, loop, direct, top], ())
    assert {name: texts(need) for name, need in found.needs.items()} == {
        "leaf": ["index"],
        "loop": [],
        "direct": [],
        "top": [],
    }
    alone = nullify_context([leaf, direct], ())
    assert alone.needs["leaf"] == ()


def test_every_missing_feature_is_found_with_a_path():
    leaf = Use("leaf", extracts=features("footprint"))
    other = Use("other", [Edge("leaf")], extracts=features("index"))
    found = nullify_context([leaf, other], ())
    assert [(str(each.feature), each.path) for each in found.unsourced] == [
        ("footprint", ("other", "leaf")),
        ("index", ("other",)),
    ]


def test_each_edge_is_looked_at_a_fixed_number_of_times():
    looks = 0

    class Watched:
        optional: frozenset[FeatureLevel] = frozenset()

        def __init__(self, name: str, edges: list[Edge], extracts: frozenset[FeatureLevel]) -> None:
            self.name, self.extracts, self._edges = name, extracts, edges

        @property
        def inputs(self) -> list[Edge]:
            nonlocal looks
            looks += 1
            return self._edges

    def ladder(levels: int) -> int:
        nonlocal looks
        looks = 0
        uses = [Watched("n0", [], features("footprint"))]
        uses += [Watched(f"n{level}", [Edge(f"n{level - 1}")] * 2, frozenset()) for level in range(1, levels)]
        nullify_context(uses, features("footprint"))
        return looks

    assert ladder(2000) == 2 * ladder(1000)
