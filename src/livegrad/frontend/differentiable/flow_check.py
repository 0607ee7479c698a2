"""The derivative data-flow check: no derivative is lost unless the program says so.

Each value of a differentiable function may produce a derivative (it comes from a parameter) and may be expected to (it
reaches the result, or a parameter of a differentiable function). A call or field that is expected to pass on a
derivative that it gets, and does not, is an error. So is a `no_diff` field that is read where a derivative is expected,
if what was stored there had one.
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
    """The flows that a derivative is expected to come through."""
    expectant = set(graph.expected)
    pending = list(expectant)
    while pending:
        flow = pending.pop()
        before = flow.inputs if flow.kind in _PASSING else []
        if flow.kind == "read_field":
            stored = _stored_in_field(flow)
            before = [*stored, *(source for field in stored for source in field.inputs)]
        fresh = [source for source in before if source not in expectant]
        expectant.update(fresh)
        pending += fresh
    return expectant


def _stored_in_field(read: Flow) -> list[Flow]:
    """The flows that may have been stored in the `no_diff` field that is read."""
    seen: set[Flow] = set()
    pending = list(read.inputs)
    while pending:
        flow = pending.pop()
        if flow not in seen:
            seen.add(flow)
            pending += flow.inputs if flow.kind in _PASSING else []
    return [flow for flow in seen if flow.kind == "field" and flow.label == read.label]


def check_derivative_flow(context: Context) -> None:
    """Raises the first problem, in the order of the source."""
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
    """The path of the derivative from a parameter to where it is lost, one entry per line."""
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
