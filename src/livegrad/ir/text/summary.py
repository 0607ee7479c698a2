"""Summarises a function in a few lines: counts, depth and signature."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from livegrad.ir.leaves import input_op
from livegrad.ir.node import Function, Node
from livegrad.ir.text.printing import used_functions
from livegrad.ir.walk import reachable_functions, toposort

_MAX_LISTED = 8


def summarize(function: Function) -> str:
    """Describes a function and the functions it uses: nodes, depth, ops, inputs and results.

    >>> from livegrad.ir.leaves import parameter
    >>> from livegrad.ir.types import f32
    >>> print(summarize(Function("same", (parameter(0, f32),), (parameter(0, f32),))))
    function same
      nodes: 1, depth 1
      ops: parameter 1
      parameters: f32
      results: f32
    """
    order = toposort(function.results)
    counts = Counter(node.op.name for node in order).most_common()
    lines = [
        f"function {function.name}",
        f"  nodes: {len(order):,}, depth {_depth(order):,}",
        f"  ops: {_join_first([f'{name} {count:,}' for name, count in counts])}",
        f"  parameters: {_join_first([str(type) for type in function.parameter_types])}",
    ]
    if keyed := [_input_text(node) for node in order if node.op is input_op]:
        lines.append(f"  inputs: {_join_first(keyed)}")
    lines.append(f"  results: {_join_first([str(type) for type in function.result_types])}")
    if nested := reachable_functions(used_functions(order)):
        shown = [f"{inner.name} ({len(toposort(inner.results)):,} nodes)" for inner in nested[:_MAX_LISTED]]
        lines.append(f"  nested functions: {_join_first(shown, len(nested))}")
    return "\n".join(lines)


def _depth(order: Sequence[Node]) -> int:
    """The number of nodes on the longest path from a result to a leaf."""
    depths: dict[Node, int] = {}
    for node in order:
        depths[node] = 1 + max([depths[operand] for operand in node.operands], default=0)
    return max(depths.values(), default=0)


def _input_text(node: Node) -> str:
    return f"{node.attribute('key').name or 'unnamed'}: {node.type}"


def _join_first(texts: Sequence[str], count: int | None = None) -> str:
    """The first few of `count` items, and how many more there are."""
    count = len(texts) if count is None else count
    shown = list(texts[:_MAX_LISTED])
    if count > len(shown):
        shown.append(f"and {count - len(shown):,} more")
    return ", ".join(shown) if shown else "none"
