"""Which results are cached and which are recomputed: exact keys, early cut-off, edits, limits."""

import struct
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from livegrad.contexts import CacheLimits, Context, ContextError, ContextGraph
from livegrad.contexts.cache.interned_values import clear_up


def one_node(function: Any = None, feature: str = "footprint", **options: Any) -> tuple[ContextGraph, Any]:
    graph = ContextGraph(**options)
    graph.node("node", function or (lambda ctx: [ctx[feature]]), extract=feature)
    return graph, graph.compile("node", root=[feature])


def computed(program: Any, values: list[Any]) -> int:
    with program.events() as log:
        for value in values:
            program.evaluate(footprint=value)
    return len(log.names("computed"))


# --- keys ------------------------------------------------------------------------------------------------------------

NAN = float("nan")
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]


@pytest.mark.parametrize(
    ("values", "times"),
    [
        ([NAN, float("nan")], 1),
        ([NAN, OTHER_NAN], 2),
        ([0.0, -0.0], 2),
        ([1, True, 1.0, np.float64(1.0), np.float32(1.0)], 5),
        ([(0.0,), (-0.0,), (0.0,)], 2),
        ([0j, complex(0.0, -0.0)], 2),
        (["a", b"a", "a"], 2),
        ([hash("collides"), "collides"], 2),
        ([2**61 - 1, 0, 2 * (2**61 - 1)], 3),  # the same 64-bit hash
        ([np.arange(3), np.arange(3)], 1),
        ([np.arange(3), np.arange(3.0)], 2),
        ([np.zeros((2, 3)), np.zeros((3, 2))], 2),
        ([np.array([0.0]), np.array([-0.0])], 2),
        ([np.array([NAN]), np.array([NAN])], 1),
        ([np.arange(4)[::2], np.array([0, 2])], 1),
        ([frozenset({1.0, 2.0}), frozenset({2.0, 1.0})], 1),
    ],
)
def test_keys_are_equal_if_type_and_bits_are_equal(values: list[Any], times: int):
    assert computed(one_node()[1], values) == times


def test_keys_are_compared_by_equality_and_not_by_hash_alone():
    @dataclass(frozen=True)
    class Same:
        name: str

        def __hash__(self) -> int:
            return 7

    _, program = one_node()
    assert computed(program, [Same("a"), Same("b"), Same("a")]) == 2
    assert program.evaluate(footprint=Same("b")) == [Same("b")]


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, bytearray(b"x"), (1, [2]), np.array([object()])])
def test_an_unhashable_value_is_an_error_that_names_the_feature(value: Any):
    with pytest.raises(ContextError, match="the context has a `footprint` that cannot be compared"):
        one_node()[1].evaluate(footprint=value)


def test_an_unhashable_injection_names_node_and_feature():
    graph = ContextGraph()
    graph.node("below", lambda ctx: 1, extract="footprint")
    graph.node("sets", lambda ctx, below: below(ctx.inject(footprint=[1])), scoped="below", inject="footprint")
    with pytest.raises(ContextError, match="node `sets` injects a `footprint` that cannot be compared"):
        graph.compile("sets").evaluate()


def test_a_feature_that_no_node_needs_may_be_unhashable():
    graph = ContextGraph()
    graph.node("node", lambda ctx: 1)
    assert graph.compile("node", root="footprint").evaluate(footprint=[1]) == 1


def test_an_array_that_was_changed_in_place_is_a_new_value():
    _, program = one_node(lambda ctx: float(ctx.footprint.sum()))
    array = np.zeros(4)
    assert program.evaluate(footprint=array) == 0.0
    array[0] = 5.0
    assert program.evaluate(footprint=array) == 5.0


def test_a_large_array_is_hashed_once(monkeypatch: pytest.MonkeyPatch):
    hashed: list[int] = []
    monkeypatch.setattr(
        "livegrad.contexts.cache.interned_values._hash_array", lambda array: hashed.append(array.nbytes) or 1
    )
    graph = ContextGraph()
    for name in "abc":
        graph.node(name, lambda ctx, name=name: name + str(ctx.footprint.sum()), extract="footprint")
    graph.node("all", lambda ctx, *parts: "".join(parts), plain=["a", "b", "c"])
    program = graph.compile("all", root=["footprint", "real_time"])
    image = np.ones((64, 64))
    moment = Context(footprint=image, real_time=0.0)
    for time in range(5):
        program.evaluate(moment.replace(real_time=float(time)))
    assert hashed == [image.nbytes]
    image.setflags(write=False)
    for _ in range(5):
        program.evaluate(footprint=image)  # read-only: hashed once more, and never again
    assert hashed == [image.nbytes] * 2


def test_array_results_are_read_only():
    buffer = np.zeros(4)
    graph = ContextGraph()
    graph.node("own", lambda ctx: np.zeros(4))
    graph.node("view", lambda ctx: buffer[:2])
    graph.node("both", lambda ctx, own, view: (own, view), plain=["own", "view"])
    program = graph.compile("both")
    own, view = program.evaluate()
    for array in (own, view):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
    buffer[0] = 9.0
    assert program.evaluate()[1][0] == 0.0


def test_readers_of_a_container_get_copies():
    graph = ContextGraph()
    graph.node("list", lambda ctx: ([1, 2], {"a": [3]}))
    graph.node("spoils", lambda ctx, found: (found[0].append(9), found[1]["a"].clear(), "done")[2], plain="list")
    graph.node("reads", lambda ctx, spoiled, found: found, plain=["spoils", "list"])
    program = graph.compile("reads")
    value = program.evaluate()
    assert value == ([1, 2], {"a": [3]})
    value[0].clear()
    assert program.evaluate() == ([1, 2], {"a": [3]})


def test_arrays_in_dataclasses_and_named_tuples_are_read_only():
    @dataclass
    class Image:
        pixels: Any

    class Pair(NamedTuple):
        pixels: Any

    base = np.zeros(4)
    for made in (Image(np.zeros(2)), Pair(np.zeros(2)), Image(base[:2]), Pair(base[:2])):
        graph = ContextGraph()
        graph.node("image", lambda ctx, made=made: made)
        with pytest.raises(ValueError, match="read-only"):
            graph.compile("image").evaluate().pixels[0] = 1.0


# --- early cut-off ---------------------------------------------------------------------------------------------------


def rounded_graph() -> tuple[ContextGraph, Any]:
    graph = ContextGraph()
    graph.node("second", lambda ctx: int(ctx.real_time), extract="real_time")
    graph.node("label", lambda ctx, second: f"{second} s", plain="second")
    graph.node("page", lambda ctx, label: [label], plain="label")
    return graph, graph.compile("page", root="real_time")


def test_an_equal_recomputed_value_stops_propagation():
    _, program = rounded_graph()
    with program.events() as log:
        for time in (1.2, 1.7, 2.1, 1.9):
            program.evaluate(real_time=time)
    assert [str(event) for event in log[3:]] == [
        "computed second [real_time=1.7]",
        "reused label [real_time=1.7]",
        "reused page [real_time=1.7]",
        "computed second [real_time=2.1]",
        "computed label [real_time=2.1]",
        "computed page [real_time=2.1]",
        "computed second [real_time=1.9]",
        "reused label [real_time=1.9]",
        "reused page [real_time=1.9]",
    ]


def test_equal_arrays_stop_propagation():
    graph = ContextGraph()
    graph.node("image", lambda ctx: np.full((8, 8), int(ctx.real_time)), extract="real_time")
    graph.node("sum", lambda ctx, image: int(image.sum()), plain="image")
    program = graph.compile("sum", root="real_time")
    with program.events() as log:
        assert [program.evaluate(real_time=time) for time in (1.1, 1.2)] == [64, 64]
    assert log.names("reused") == ["sum"]


def test_a_loop_is_reused_if_its_body_gives_the_same_answers():
    graph = ContextGraph()
    graph.node("body", lambda ctx: (ctx.index, int(ctx.real_time)), extract=["index", "real_time"])
    graph.node("loop", lambda ctx, body: [body(ctx.inject(index=i)) for i in range(3)], scoped="body", inject="index")
    program = graph.compile("loop", root="real_time")
    with program.events() as log:
        for time in (1.1, 1.2, 2.0, 1.3):
            program.evaluate(real_time=time)
    assert log.names("computed").count("loop") == 2
    assert log.names("computed").count("body") == 12
    assert log.names("reused") == ["loop", "loop"]
    assert log.names("hit") == []  # the function does not repeat the queries of the comparison


def test_a_function_that_catches_the_error_of_its_input_is_never_stale():
    graph = ContextGraph()

    def fails_early(ctx: Any) -> str:
        if ctx.real_time < 1.0:
            raise ValueError("too early")
        return "late"

    def guarded(ctx: Any, body: Any) -> str:
        try:
            return body(ctx)
        except ValueError:
            return "early"

    graph.node("body", fails_early, extract="real_time")
    graph.node("guarded", guarded, scoped="body")
    program = graph.compile("guarded", root="real_time")
    assert [program.evaluate(real_time=time) for time in (0.1, 2.0, 0.2, 3.0)] == ["early", "late", "early", "late"]


def test_results_that_cannot_be_compared_count_as_different():
    class Opaque:
        __hash__ = None  # type: ignore[assignment]

    graph = ContextGraph()
    graph.node("opaque", lambda ctx: Opaque(), extract="real_time")
    graph.node("user", lambda ctx, opaque: type(opaque).__name__, plain="opaque")
    program = graph.compile("user", root="real_time")
    with program.events() as log:
        assert [program.evaluate(real_time=time) for time in (1.0, 2.0, 1.0)] == ["Opaque"] * 3
    assert log.names("computed") == ["opaque", "user"] * 2


# --- edits -----------------------------------------------------------------------------------------------------------


def test_an_edit_with_an_equal_value_stops_at_the_edited_node():
    graph, program = rounded_graph()
    program.evaluate(real_time=1.2)
    graph.replace("second", lambda ctx: round(ctx.real_time))
    with program.events() as log:
        program.evaluate(real_time=1.2)
    assert [str(event) for event in log] == [
        "computed second [real_time=1.2]",
        "reused label [real_time=1.2]",
        "reused page [real_time=1.2]",
    ]


def test_undoing_an_edit_finds_the_old_results():
    graph = ContextGraph()
    graph.value("size", 3)
    graph.node("grid", lambda ctx, size: list(range(size)), plain="size")
    program = graph.compile("grid")
    assert program.evaluate() == [0, 1, 2]
    graph.set("size", 4)
    assert program.evaluate() == [0, 1, 2, 3]
    graph.set("size", 3)
    with program.events() as log:
        assert program.evaluate() == [0, 1, 2]
    assert str(log) == "hit grid"


def test_nodes_of_equal_content_share_their_results():
    graph = ContextGraph()

    def draw(ctx: Any) -> int:
        return ctx.footprint + 1

    for name in ("left", "right"):
        graph.node(name, draw, extract="footprint")
    graph.node("both", lambda ctx, left, right: (left, right), plain=["left", "right"])
    with (program := graph.compile("both", root="footprint")).events() as log:
        assert program.evaluate(footprint=1) == (2, 2)
    assert log.names("computed") == ["left", "both"]


def test_a_removed_node_is_an_error_at_the_next_evaluation():
    graph, program = rounded_graph()
    program.evaluate(real_time=1.0)
    graph.remove("second")
    with pytest.raises(ContextError, match="no node `second`, which is an input of `label`"):
        program.evaluate(real_time=1.0)


def test_a_failed_edit_does_not_change_the_node():
    graph, program = rounded_graph()
    with pytest.raises(ContextError):
        graph.replace("label", lambda ctx: 1, inject="index")
    assert program.evaluate(real_time=3.5) == ["3 s"]


# --- limits ----------------------------------------------------------------------------------------------------------


def test_the_least_recently_used_result_of_a_node_is_evicted_first():
    _, program = one_node(limits=CacheLimits(node_entries=2))
    for value in (1, 2, 1, 3):
        program.evaluate(footprint=value)
    with program.events() as log:
        for value in (1, 3, 2):
            program.evaluate(footprint=value)
    assert [str(event) for event in log] == [
        "hit node [footprint=1]",
        "hit node [footprint=3]",
        "computed node [footprint=2]",
        "evicted node",
    ]
    assert program.report()["node"].entries == 2
    assert program.report()["node"].counts.evicted == 2


def test_entries_are_bounded_over_all_nodes():
    graph = ContextGraph(limits=CacheLimits(entries=5))
    graph.node("a", lambda ctx: ctx.footprint, extract="footprint")
    graph.node("b", lambda ctx, a: -a, plain="a")
    program = graph.compile("b", root="footprint")
    assert [program.evaluate(footprint=value) for value in range(50)] == [-value for value in range(50)]
    assert program.report().entries == 5


@pytest.mark.parametrize("limits", [CacheLimits(bytes=20_000), CacheLimits(node_bytes=20_000)])
def test_bytes_are_bounded(limits: CacheLimits):
    _, program = one_node(lambda ctx: np.full(1000, ctx.footprint), limits=limits)
    for value in range(10):
        assert program.evaluate(footprint=float(value))[0] == value
        assert program.report().bytes <= 20_000
    assert program.report()["node"].entries == 2


def test_a_result_larger_than_the_cache_is_still_returned():
    _, program = one_node(lambda ctx: np.zeros(1000), limits=CacheLimits(bytes=100))
    assert program.evaluate(footprint=1).shape == (1000,)
    assert program.report().entries == 0


def test_a_cache_of_size_zero_gives_correct_values():
    graph, _ = rounded_graph()
    tight = ContextGraph(limits=CacheLimits(entries=0, variants=0))
    tight.nodes.update(graph.nodes)
    program = tight.compile("page", root="real_time")
    assert [program.evaluate(real_time=time) for time in (1.0, 1.5, 2.0)] == [["1 s"], ["1 s"], ["2 s"]]


def test_equal_results_are_stored_once():
    _, program = one_node(lambda ctx: np.zeros(1000))
    for value in range(10):
        program.evaluate(footprint=value)
    assert program.report()["node"].entries == 10
    assert program.report().bytes < 2 * 8112


def test_evicted_arrays_are_freed_at_once():
    made: list[weakref.ref[Any]] = []

    def image(ctx: Any) -> Any:
        array = np.full(1000, ctx.footprint + 0.125)
        made.append(weakref.ref(array))
        return array

    graph, program = one_node(image, limits=CacheLimits(node_entries=2))
    for value in range(10):
        program.evaluate(footprint=float(value))
    assert [number for number, array in enumerate(made) if array() is not None] == [8, 9]
    del graph, program
    clear_up()
    assert not any(array() is not None for array in made)


@dataclass
class Sheet:
    cells: Any


def test_values_from_the_user_stay_writable():
    mine, inside = np.array([1.0, 2.0]), np.array([3.0])
    window, sheet = mine[:1], Sheet(inside)
    graph = ContextGraph()
    graph.value("array", mine)
    graph.value("sheet", sheet)
    graph.node("sum", lambda ctx, array, sheet: float(array.sum() + sheet.cells.sum()), plain=["array", "sheet"])
    program = graph.compile("sum")
    assert program.evaluate() == 6.0
    mine[0], window[0], inside[0] = 10.0, 20.0, 30.0  # all are still writable, and the cache has copies
    assert sheet.cells is inside
    graph.replace("sum", lambda ctx, array, sheet: float(array.sum() * sheet.cells.sum()))
    assert program.evaluate() == 9.0
    graph.set("array", mine)
    assert program.evaluate() == 66.0
