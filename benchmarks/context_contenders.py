"""Contenders of the context suite. Each run returns checked numbers: values, and counts of computed nodes."""

import functools
import math
from collections.abc import Callable
from itertools import count, repeat
from typing import Any

from benchmarks.contenders import Unavailable
from benchmarks.context_document import FAN, FRAMES, ROOT, Item, document, least_work, moments
from benchmarks.problems import Problem, Run
from livegrad.contexts import Context, ContextGraph
from livegrad.contexts.cache.store import MemoStore
from livegrad.contexts.link import link
from livegrad.contexts.node_order import order_nodes
from livegrad.ops.context import parse_feature
from livegrad.passes.nullify_context import nullify_context


def build(items: list[Item], everything: bool = False) -> ContextGraph:
    """The document as a graph. With `everything`, each node declares the whole context, as without analysis."""
    graph = ContextGraph()
    for item in items:
        if item.function is None and not everything:
            graph.value(item.name, item.value)
            continue
        function = item.function or (lambda ctx, value=item.value: value)
        graph.node(
            item.name,
            function,
            plain=item.plain,
            scoped=item.scoped,
            extract=item.extract,
            inject=item.inject,
            modify=item.modify,
            optional=ROOT if everything else (),
        )
    return graph


def last(items: list[Item]) -> str:
    return items[-1].name


# --- frames: 240 changes of one feature -------------------------------------------------------------------------------


def build_frames(problem: Problem, everything: bool = False) -> Run:
    """A run starts with an empty cache and returns each frame's value, with the minimal number of computations."""
    items = document(problem.size)
    frames = FRAMES[problem.kind]
    contexts = [Context(moment) for moment in moments(frames)]
    _, least = least_work(problem.size, frames)

    def run() -> list[float]:
        program = build(items, everything).compile(last(items), root=ROOT)
        values, computed = [], []
        for context in contexts:
            before = computed_by(program)
            values.append(program.evaluate(context))
            computed.append(computed_by(program) - before)
        if not everything and computed != list(least):
            raise Unavailable(f"computed {sum(computed)} nodes where {sum(least)} are enough")
        return values

    return run


def computed_by(program: Any) -> int:
    return sum(unit.table.counts.computed for unit in program.linked.units)


def build_frames_whole(problem: Problem) -> Run:
    """The same document when every node is keyed by the whole context, as before nullification."""
    return build_frames(problem, everything=True)


# --- hits -------------------------------------------------------------------------------------------------------------


def build_hit(problem: Problem) -> Run:
    """Repeated evaluations of a program whose result is cached."""
    graph = ContextGraph()
    graph.node("node", lambda ctx: ctx.animation_time, extract="animation_time")
    program, context = graph.compile("node", root=ROOT), Context(animation_time=0.5)

    def run() -> float:
        evaluate, value = program.evaluate, 0.0
        for _ in repeat(None, problem.size):
            value = evaluate(context)
        return value * 2 * problem.size

    return run


def build_hit_functools(problem: Problem) -> Run:
    @functools.cache
    def node(animation_time: float) -> float:
        return animation_time

    def run() -> float:
        value = 0.0
        for _ in repeat(None, problem.size):
            value = node(0.5)
        return value * 2 * problem.size

    return run


def build_fan(problem: Problem) -> Run:
    """Computes one node whose thousand inputs are cached."""
    graph, numbers = ContextGraph(), count()
    names = [
        graph.node(f"n{i}", lambda ctx, i=i: ctx.animation_time + 0 * i, extract="animation_time") for i in range(FAN)
    ]
    graph.node("sum", lambda ctx, *values: math.fsum(values), plain=names, extract="footprint")
    program, still = graph.compile("sum", root=ROOT), Context(animation_time=0.5)
    return lambda: program.evaluate(still.replace(footprint=next(numbers)))


def build_fan_functools(problem: Problem) -> Run:
    functions = [functools.cache(lambda animation_time, i=i: animation_time + 0 * i) for i in range(FAN)]
    numbers = count()

    @functools.cache
    def total(animation_time: float, footprint: int) -> float:
        return math.fsum([function(animation_time) for function in functions])

    return lambda: total(0.5, next(numbers))


# --- compiling --------------------------------------------------------------------------------------------------------


def build_compile(problem: Problem) -> Run:
    """Compiles declared nodes to a program, without caches."""
    items = document(problem.size)
    nodes, root = build(items).nodes, [parse_feature(name) for name in ROOT]
    return lambda: len(link(nodes, last(items), root, MemoStore()).units)


def build_pass(problem: Problem) -> Run:
    """The analysis alone, as it is run while compiling."""
    items = document(problem.size)
    order = order_nodes(build(items).nodes, last(items))
    root = [parse_feature(name) for name in ROOT]
    return lambda: len(nullify_context(order, root).needs)


def build_ladder(problem: Problem) -> Run:
    """A graph with two paths from each level to the next: an analysis that follows paths takes exponential time."""
    graph = ContextGraph()
    graph.node("level 0", lambda ctx: ctx["animation_time"], extract=["animation_time"])
    for level in range(1, problem.size):
        below = f"level {level - 1}"
        graph.node(f"level {level}", lambda ctx, a, b: a + b, plain=[below, below])
    nodes, root = graph.nodes, [parse_feature(name) for name in ROOT]
    return lambda: len(link(nodes, f"level {problem.size - 1}", root, MemoStore()).units)


BUILDERS: dict[str, dict[str, Callable[[Problem], Run]]] = {
    "livegrad": {
        "context_frames": build_frames,
        "context_whole": build_frames,
        "context_hit": build_hit,
        "context_fan": build_fan,
        "context_compile": build_pass,
        "context_ladder": build_ladder,
    },
    "functools": {"context_hit": build_hit_functools, "context_fan": build_fan_functools},
    "whole context": {"context_whole": build_frames_whole},
    "whole compile": {"context_compile": build_compile},
}
