"""Sorts a network topologically, with levels, and reports cycles. A phase of the graph compiler."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from livegrad.live.compile.network import Network
from livegrad.live.graph.problems import GraphError, Problem, make_problem


def sort_nodes(network: Network) -> tuple[list[tuple[str, int]], list[Problem]]:
    """The nodes in execution order, each with its level: one more than the highest level among its sources."""
    pending: dict[str, int] = {}  # the number of unsorted sources of each node
    dependents: dict[str, list[str]] = {}
    for key, node in network.nodes.items():
        sources = [source for source in node.sources if source in network.nodes]
        pending[key] = len(sources)
        for source in sources:
            dependents.setdefault(source, []).append(key)
    levels = dict.fromkeys((key for key, count in pending.items() if count == 0), 0)
    ready = deque(levels)
    order: list[tuple[str, int]] = []
    while ready:
        key = ready.popleft()
        order.append((key, levels[key]))
        for dependent in dependents.get(key, ()):
            levels[dependent] = max(levels.get(dependent, 0), levels[key] + 1)
            pending[dependent] -= 1
            if pending[dependent] == 0:
                ready.append(dependent)
    unsorted = {key for key, count in pending.items() if count}
    return order, _report_cycles(network, unsorted, dependents)


def _report_cycles(network: Network, unsorted: set[str], dependents: Mapping[str, list[str]]) -> list[Problem]:
    """Reports the nodes on a cycle. Other unsorted nodes depend on a cycle, and are not reported."""
    shrinking = True
    while shrinking:
        ends = {key for key in unsorted if not unsorted.intersection(dependents.get(key, ()))}
        unsorted = unsorted - ends
        shrinking = bool(ends)
    problems = []
    for key in network.nodes:
        if key in unsorted:
            node = network.nodes[key]
            for name, source in node.dependencies():
                if source in unsorted:
                    error = GraphError(
                        "this input is on a cycle", found=f"fed by `{source}`", help="break it with a State"
                    )
                    problems.append(make_problem(node, name if name in node.feeds else None, error))
    return problems
