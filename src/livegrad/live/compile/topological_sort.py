"""Topological sort of a network, with levels: `sort_nodes`, a phase of the compiler. Reports cycles."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from livegrad.live.compile.network import Network
from livegrad.live.graph.problems import GraphError, Problem, make_problem


def sort_nodes(network: Network) -> tuple[list[tuple[str, int]], list[Problem]]:
    """The nodes in execution order, each with its level: one more than the highest level among its sources."""
    waiting: dict[str, int] = {}
    followers: dict[str, list[str]] = {}
    for key, node in network.nodes.items():
        sources = [source for source in node.sources if source in network.nodes]
        waiting[key] = len(sources)
        for source in sources:
            followers.setdefault(source, []).append(key)
    levels = dict.fromkeys((key for key, count in waiting.items() if count == 0), 0)
    ready = deque(levels)
    order: list[tuple[str, int]] = []
    while ready:
        key = ready.popleft()
        order.append((key, levels[key]))
        for follower in followers.get(key, ()):
            levels[follower] = max(levels.get(follower, 0), levels[key] + 1)
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.append(follower)
    left = {key for key, count in waiting.items() if count}
    return order, _cycle_problems(network, left, followers)


def _cycle_problems(network: Network, left: set[str], followers: Mapping[str, list[str]]) -> list[Problem]:
    """The nodes left over are on a cycle or depend on one. Reports those on a cycle."""
    shrinking = True
    while shrinking:
        ends = {key for key in left if not left.intersection(followers.get(key, ()))}
        left = left - ends
        shrinking = bool(ends)
    problems = []
    for key in network.nodes:
        if key in left:
            node = network.nodes[key]
            for name, source in node.dependencies():
                if source in left:
                    error = GraphError(
                        "this input is on a cycle", found=f"fed by `{source}`", help="break it with a State"
                    )
                    problems.append(make_problem(node, name if name in node.feeds else None, error))
    return problems
