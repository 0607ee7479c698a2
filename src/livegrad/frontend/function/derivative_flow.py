"""The derivative flow graph: which values could carry a derivative, and which values it comes from.

The compiler builds it beside the IR; `differentiable.flow_check` propagates derivatives through it to find lost ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from livegrad.frontend.function.function_errors import Span


@dataclass(eq=False)
class Flow:
    """A value that could carry a derivative, with the flows that it depends on.

    Kinds: `parameter` (a derivative starts here), `operation` (it passes through), `call` (a call of a function that is
    not differentiable loses it), `field` (storing it in a `no_diff` field loses it), `read_field` (a value read from
    such a field has none), `cut` (dropped on purpose), `no_diff` (dropped on purpose, by a `no_diff` that must have
    something to drop).
    """

    kind: str
    span: Span
    label: str = ""
    inputs: list[Flow] = field(default_factory=list)


@dataclass
class FlowGraph:
    """All flows of a function, and those through which a derivative is expected to arrive."""

    flows: list[Flow] = field(default_factory=list)
    expected: list[Flow] = field(default_factory=list)

    def add(self, kind: str, span: Span, inputs: list[Flow], label: str = "") -> Flow:
        flow = Flow(kind, span, label, inputs)
        self.flows.append(flow)
        return flow
