"""Derivative data-flow analysis: rejects functions that lose a derivative without an explicit `no_diff` or `detach`.

A flow produces a derivative if it depends on a parameter, and is expected to have one if the result, or an argument of
a differentiable callee, depends on it. It is an error if a call or field receives a derivative that is expected from
it, but drops it. It is also an error to read a `no_diff` field where a derivative is expected, if the stored value had
one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.derivative_flow import Flow, FlowGraph
from livegrad.frontend.function.function_errors import FunctionError, Span

_PASSING = ("operation", "parameter")


def find_producing(graph: FlowGraph) -> set[Flow]:
    """The flows that a derivative of some parameter reaches."""
    users: dict[Flow, list[Flow]] = {}
    for flow in graph.flows:
        for source in flow.inputs:
            users.setdefault(source, []).append(flow)
    producers = {flow for flow in graph.flows if flow.kind == "parameter"}
    pending = list(producers)
    while pending:
        for user in users.get(pending.pop(), ()):
            if user.kind == "operation" and user not in producers:
                producers.add(user)
                pending.append(user)
    return producers


def find_expecting(graph: FlowGraph) -> set[Flow]:
    """The flows through which a derivative is expected to arrive."""
    expected = set(graph.expected)
    pending = list(expected)
    while pending:
        flow = pending.pop()
        sources = flow.inputs if flow.kind in _PASSING else []
        if flow.kind == "read_field":
            stored = _stored_in_field(flow)
            sources = [*stored, *(source for field in stored for source in field.inputs)]
        new_sources = [source for source in sources if source not in expected]
        expected.update(new_sources)
        pending += new_sources
    return expected


def _stored_in_field(read: Flow) -> list[Flow]:
    """The flows that may have been stored in the `no_diff` field that is read."""
    visited: set[Flow] = set()
    pending = list(read.inputs)
    while pending:
        flow = pending.pop()
        if flow not in visited:
            visited.add(flow)
            pending += flow.inputs if flow.kind in _PASSING else []
    return [flow for flow in visited if flow.kind == "field" and flow.label == read.label]


def check_derivative_flow(context: Context) -> None:
    """Raises the first problem in source order."""
    graph = context.graph
    produces, expects = find_producing(graph), find_expecting(graph)
    problems: list[tuple[Span, FunctionError]] = []
    for flow in graph.flows:
        arriving = [source for source in flow.inputs if source in produces]
        if flow.kind == "call" and flow in expects and arriving:
            problems.append((flow.span, _lost_in_call(graph, flow, arriving, produces)))
        elif flow.kind == "field" and flow in expects and arriving:
            problems.append((flow.span, _lost_in_field(flow, arriving, produces)))
        elif flow.kind == "no_diff" and not arriving and context.complete_signature:
            problems.append((flow.span, _needless_no_diff(flow)))
    if problems:
        raise min(problems, key=lambda problem: (problem[0].line, problem[0].column))[1]


def _lost_in_call(graph: FlowGraph, flow: Flow, arriving: list[Flow], produces: set[Flow]) -> FunctionError:
    return FunctionError(
        "LG301",
        f"the derivative is lost in the call of `{flow.label}`, which is not differentiable",
        flow.span,
        path=_path(arriving, produces),
        help=f"decorate `{flow.label}` with @differentiable, or drop the derivative explicitly: "
        f"no_diff({flow.label}(...))",
    )


def _lost_in_field(flow: Flow, arriving: list[Flow], produces: set[Flow]) -> FunctionError:
    return FunctionError(
        "LG302",
        f"the derivative is lost in the field `{flow.label}`, which is `no_diff`",
        flow.span,
        path=_path(arriving, produces),
        help="drop the derivative explicitly with detach(...), or make the field differentiable",
    )


def _needless_no_diff(flow: Flow) -> FunctionError:
    return FunctionError(
        "LG304",
        "this `no_diff` does nothing: no derivative reaches this call",
        flow.span,
        help="remove it",
    )


def _path(arriving: Iterable[Flow], produces: set[Flow]) -> list[tuple[str, Span]]:
    """The path of the derivative from a parameter to the point of loss, with one entry per source line."""
    before: dict[Flow, Flow | None] = dict.fromkeys(arriving)
    pending = deque(before)
    while pending:
        flow = pending.popleft()
        if flow.kind == "parameter":
            return _steps(flow, before)
        for source in flow.inputs:
            if source in produces and source not in before:
                before[source] = flow
                pending.append(source)
    return []


def _steps(start: Flow, before: dict[Flow, Flow | None]) -> list[tuple[str, Span]]:
    steps = [(f"the derivative of `{start.label}` comes from here", start.span)]
    flow = before[start]
    while flow is not None:
        if flow.span.line != steps[-1][1].line:
            steps.append(("and goes through here", flow.span))
        flow = before[flow]
    return steps
