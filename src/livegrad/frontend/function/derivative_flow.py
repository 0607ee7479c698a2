"""The derivative flow graph of a function, built next to the IR while the function is compiled.

`compile_values` and the compiler add nodes; `differentiable.flow_check` finds which of them produce and which expect a
derivative.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from livegrad.frontend.function.function_errors import Span


@dataclass(eq=False)
class Flow:
    """One value that could carry a derivative, and the values it was made from.

    The kind is `parameter` (the derivative starts here), `operation` (it passes), `call` (of a function that is not
    differentiable: it stops here unless told), `field` (stored in a field that is not differentiable: likewise),
    `read_field` (read from such a field: no derivative comes along), or `cut` (it was told to stop).
    """

    kind: str
    span: Span
    label: str = ""
    inputs: list[Flow] = field(default_factory=list)


@dataclass
class FlowGraph:
    """All flows of a function, and those that a derivative is expected from."""

    flows: list[Flow] = field(default_factory=list)
    expected: list[Flow] = field(default_factory=list)

    def add(self, kind: str, span: Span, inputs: list[Flow], label: str = "") -> Flow:
        flow = Flow(kind, span, label, inputs)
        self.flows.append(flow)
        return flow
