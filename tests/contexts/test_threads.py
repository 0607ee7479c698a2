"""Several threads: each result is computed once while other threads wait, without deadlocks."""

import sys
import threading
from collections import Counter
from typing import Any

import pytest

from livegrad.contexts import Context, ContextGraph

THREADS = 8


def in_threads(work: Any) -> list[Any]:
    results: list[Any] = [None] * THREADS
    barrier = threading.Barrier(THREADS)

    def run(number: int) -> None:
        barrier.wait()
        try:
            results[number] = work(number)
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    return results


@pytest.fixture(autouse=True)
def change_threads_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def layered_graph() -> tuple[ContextGraph, list[tuple[str, Any]]]:
    """Layers of shared nodes, plain and scoped, that record each computation."""
    graph, calls = ContextGraph(), []

    def note(name: str, *parts: Any) -> int:
        calls.append((name, parts))
        return hash((name, parts)) % 1000

    graph.node("shape", lambda ctx: note("shape", ctx.footprint), extract="footprint")
    graph.node("clock", lambda ctx: note("clock", int(ctx.real_time)), extract="real_time")
    below = ["shape", "clock"]
    for number in range(6):
        left, right = f"left{number}", f"right{number}"
        graph.node(left, lambda ctx, a, b, name=left: note(name, a, b), plain=below)
        graph.node(
            right,
            lambda ctx, a, body, name=right: note(name, a, *[body(ctx.inject(index=i)) for i in range(2)]),
            plain=below[1],
            scoped=below[0],
            inject="index",
        )
        below = [left, right]
    graph.node("top", lambda ctx, a, b: (a, b), plain=below)
    return graph, calls


def test_each_result_is_computed_once():
    graph, calls = layered_graph()
    program = graph.compile("top", root=["footprint", "real_time"])
    results = in_threads(lambda number: program.evaluate(footprint=1, real_time=2.5))
    assert len(set(results)) == 1
    assert max(Counter(calls).values()) == 1
    assert program.report().computed == len(calls) + 1


def test_threads_with_different_features_get_correct_values():
    graph, calls = layered_graph()
    program = graph.compile("top", root=["footprint", "real_time"])
    contexts = [{"footprint": number % 3, "real_time": float(number % 4)} for number in range(THREADS)]
    results = in_threads(lambda number: [program.evaluate(contexts[(number + k) % THREADS]) for k in range(THREADS)])
    alone, _ = layered_graph()
    expected = [alone.compile("top", root=["footprint", "real_time"]).evaluate(context) for context in contexts]
    for number, found in enumerate(results):
        assert found == [expected[(number + k) % THREADS] for k in range(THREADS)]
    plain = Counter(call for call in calls if not call[0].startswith("right"))
    assert max(plain.values()) == 1


def test_hits_are_counted_exactly():
    graph = ContextGraph()
    graph.node("node", lambda ctx: ctx.footprint, extract="footprint")
    program = graph.compile("node", root="footprint")
    in_threads(lambda number: [program.evaluate(footprint=1) for _ in range(200)])
    counts = program.report()["node"].counts
    assert (counts.computed, counts.hits) == (1, THREADS * 200 - 1)


def test_a_failing_node_fails_in_every_thread_and_can_be_retried():
    graph, attempts = ContextGraph(), []

    def fails(ctx: Any) -> int:
        attempts.append(1)
        if len(attempts) <= THREADS:
            raise ValueError("not yet")
        return 5

    graph.node("fails", fails)
    program = graph.compile("fails")
    results = in_threads(lambda number: program.evaluate())
    assert all(isinstance(result, ValueError) for result in results)
    assert program.evaluate() == 5


def test_edits_during_evaluation_never_mix_versions():
    graph = ContextGraph()
    graph.value("a", 0)
    graph.node("left", lambda ctx, a: a, plain="a")
    graph.node("right", lambda ctx, a: -a, plain="a")
    graph.node("sum", lambda ctx, left, right: left + right, plain=["left", "right"])
    program = graph.compile("sum")

    def work(number: int) -> list[int]:
        if number == 0:
            for value in range(100):
                graph.set("a", value)
        return [program.evaluate() for _ in range(100)]

    assert {value for found in in_threads(work) for value in found} == {0}


def test_threads_share_a_context_between_programs():
    graph = ContextGraph()
    graph.node("a", lambda ctx: ("a", ctx.footprint), extract="footprint")
    graph.node("b", lambda ctx: ("b", ctx.real_time), extract="real_time")
    programs = [graph.compile(name, root=["footprint", "real_time"]) for name in "ab"]
    shared = Context(footprint=1, real_time=1)

    def work(number: int) -> set[tuple[str, int]]:
        return {programs[number % 2].evaluate(shared) for _ in range(300)}

    assert in_threads(work) == [{("a", 1)}, {("b", 1)}] * (THREADS // 2)


def test_scoped_inputs_nest_deeper_than_the_stack_of_a_thread():
    graph = ContextGraph()
    graph.node("leaf", lambda ctx: ctx.footprint, extract="footprint")
    previous = "leaf"
    for number in range(2000):
        previous = graph.modifier(f"m{number}", previous, footprint=lambda value: value + 1)
    program = graph.compile(previous, root="footprint")
    assert program.evaluate(footprint=1) == 2001
    assert program.evaluate(footprint=2) == 2002


def test_plain_inputs_nest_to_any_depth():
    graph = ContextGraph()
    previous = graph.value("leaf", 0)
    for number in range(5000):
        previous = graph.node(f"n{number}", lambda ctx, value: value + 1, plain=previous)
    assert graph.compile(previous).evaluate() == 5000
