"""Control flow in a live graph: If, IfElse, Switch, While and For around composites. Regions nest.

Described here, compiled by `engine.compile` into a `RegionStep`. Whatever a body exposes is a pin of the region, beside
the pin that controls it: `condition` (a buffer or a number that is not zero), `index` of a switch, `count` of a loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.engine.graph import Composite, Debug, Graph
from livegrad.engine.live_plan import RegionKind


class Region(Composite):
    """A block that decides whether, which or how often its bodies run."""

    kind: RegionKind
    control_name = "condition"
    index_name: str | None = None

    def __init__(self, name: str, bodies: Mapping[str, Composite], carried: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.debug = Debug()
        self.shapes = {}
        self.bodies = dict(bodies)
        self.carried = dict(carried or {})
        first, *others = self.bodies.values()
        for other in others:
            if set(other.outputs) != set(first.outputs):
                raise UsageError(
                    f"the bodies of `{name}` must expose the same outputs",
                    where=caller_origin(),
                    expected=", ".join(sorted(first.outputs)),
                    found=", ".join(sorted(other.outputs)),
                )
        self._require_carried(first)
        inputs = dict.fromkeys(pin for body in self.bodies.values() for pin in body.inputs)
        inputs.pop(self.index_name or "", None)
        self._make_pins([self.control_name, *inputs], tuple(first.outputs))

    def _require_carried(self, body: Composite) -> None:
        for entering, leaving in self.carried.items():
            if entering not in body.inputs or leaving not in body.outputs:
                raise UsageError(
                    f"`{self.name}` cannot carry `{leaving}` to `{entering}`",
                    where=caller_origin(),
                    expected=f"an input among {', '.join(body.inputs)} and an output among {', '.join(body.outputs)}",
                )

    def _make_pins(self, inputs: Any, outputs: Any) -> None:
        # An output may be called like the control: a loop's condition goes in and comes out. The input keeps the name.
        if self.kind == "while":
            outputs = [name for name in outputs if name != "condition"]
        super()._make_pins(inputs, outputs)

    def inner_graphs(self) -> Iterator[tuple[str, Graph]]:
        for label, body in self.bodies.items():
            yield label, body.graph


class If(Region):
    """Runs its body when `condition` is not zero; otherwise its outputs are zeros."""

    kind = "if"

    def __init__(self, name: str, then: Composite) -> None:
        super().__init__(name, {"then": then})


class IfElse(Region):
    """Runs one of two bodies."""

    kind = "if_else"

    def __init__(self, name: str, then: Composite, otherwise: Composite) -> None:
        super().__init__(name, {"then": then, "else": otherwise})


class Switch(Region):
    """Runs the body with the number `index`; for a number without a body its outputs are zeros."""

    kind = "switch"
    control_name = "index"

    def __init__(self, name: str, *cases: Composite) -> None:
        super().__init__(name, {str(number): case for number, case in enumerate(cases)})


class While(Region):
    """Runs its body while `condition`, one of the body's outputs, is not zero; at first the pin of that name decides.

    `carried` says which output becomes which input of the next iteration.
    """

    kind = "while"

    def __init__(self, name: str, body: Composite, carried: Mapping[str, str]) -> None:
        if "condition" not in body.outputs:
            raise UsageError(f"the body of `{name}` must expose an output `condition`", where=caller_origin())
        super().__init__(name, {"body": body}, carried)


class For(Region):
    """Runs its body `count` times; a body that exposes an input `index` is told which time it is."""

    kind = "for"
    control_name = "count"
    index_name = "index"

    def __init__(self, name: str, body: Composite, carried: Mapping[str, str]) -> None:
        super().__init__(name, {"body": body}, carried)
