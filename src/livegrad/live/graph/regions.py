"""Control flow in a live graph: If, IfElse, Switch, While and For around composites. Regions nest.

Compiled to a `RegionStep`. The pins of a region are those that its bodies expose, plus one control pin: `condition`
(true if not zero), `index` of a switch, or `count` of a loop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.live.compile.live_steps import RegionKind
from livegrad.live.graph.block import Pin
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.composite import Composite


class Region(Composite):
    """A block that decides whether, which or how often its bodies run."""

    kind: RegionKind
    control_name = "condition"
    index_name: str | None = None

    def __init__(self, name: str, bodies: Mapping[str, Composite], carried: Mapping[str, str] | None = None) -> None:
        self.bodies = dict(bodies)
        self.used_by = []
        _require_bodies(name, self.bodies.values())
        if carried is not None and not isinstance(carried, Mapping):
            help = 'map inputs to outputs: carried={"x": "result"}'
            found = shown(carried)
            raise UsageError(
                f"the carried values of `{name}` must be a mapping", where=caller_origin(), found=found, help=help
            )
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
        self._set_up(name, *self._pin_names())
        self._require_carried()
        for body in self.bodies.values():
            if self not in body.used_by:
                body.used_by.append(self)

    def _pin_names(self) -> tuple[Sequence[str], Sequence[str]]:
        """The control pin, and the pins that the bodies expose."""
        inputs = dict.fromkeys(pin for body in self.bodies.values() for pin in body.inputs)
        inputs.pop(self.index_name or "", None)
        outputs = dict.fromkeys(pin for body in self.bodies.values() for pin in body.outputs)
        return [self.control_name, *inputs], tuple(outputs)

    def expose(self, pin: Pin, name: str | None = None) -> Pin:
        """Raises: pins are exposed in the bodies of a region."""
        raise self._exposure_error("expose it in a body")

    def hide(self, pin: Pin) -> None:
        """Raises: pins are hidden in the bodies of a region."""
        raise self._exposure_error("hide it in the bodies")

    def _exposure_error(self, instead: str) -> UsageError:
        bodies = " or ".join(f"`{body.name}`" for body in self.bodies.values())
        return UsageError(f"`{self.name}` is a region", where=caller_origin(), help=f"{instead}: {bodies}")

    def _require_carried(self) -> None:
        """Raises if the body of a loop does not expose the pins that the loop needs."""
        body = next(iter(self.bodies.values()))
        for input_name, output_name in self.carried.items():
            if input_name not in body.inputs or output_name not in body.outputs or input_name == self.index_name:
                raise UsageError(
                    f"`{self.name}` cannot carry `{output_name}` to `{input_name}`",
                    where=caller_origin(),
                    expected="an input and an output that the body exposes: inputs "
                    f"{', '.join(body.inputs) or 'none'}, outputs {', '.join(body.outputs) or 'none'}",
                )

    def _make_pins(self, inputs: Any, outputs: Any) -> None:
        # A while loop has an input and an output `condition`; only the input is a pin of the region.
        if self.kind == "while":
            outputs = [name for name in outputs if name != "condition"]
        super()._make_pins(inputs, outputs)

    def pins_behind(self, name: str) -> Sequence[Pin]:
        return [pin for body in self.bodies.values() for pin in body.pins_behind(name)]

    def inner_graphs(self) -> Iterator[tuple[str, Graph]]:
        for label, body in self.bodies.items():
            yield label, body.graph


def _require_bodies(name: str, bodies: Collection[Any]) -> None:
    if not bodies:
        raise UsageError(f"`{name}` has no body", where=caller_origin(), help="pass a composite for each case")
    for body in bodies:
        if not isinstance(body, Composite) or isinstance(body, Region):
            raise UsageError(
                f"the bodies of `{name}` must be composites",
                where=caller_origin(),
                found=type(body).__name__,
                help="put blocks into one: body = lg.Composite(name); body.graph.add(block); body.expose(pin)",
            )


class If(Region):
    """Runs its body if `condition` is not zero; otherwise its outputs are zeros.

    >>> from livegrad.live.blocks import block
    >>> body = Composite("body")
    >>> double = body.graph.add(block(lambda x: x * 2.0, name="double"))
    >>> body.expose(double["x"]), body.expose(double["result"])
    (body.x, body.result)
    >>> If("maybe", body)
    <block maybe(condition, x) -> result>
    """

    kind = "if"

    def __init__(self, name: str, then: Composite) -> None:
        super().__init__(name, {"then": then})


class IfElse(Region):
    """Runs one of two bodies.

    >>> from livegrad.live.blocks import block
    >>> bodies = [Composite("up"), Composite("down")]
    >>> for body, factor in zip(bodies, (2.0, 0.5)):
    ...     scale = body.graph.add(block(lambda x, factor=factor: x * factor, name="scale"))
    ...     _ = body.expose(scale["x"]), body.expose(scale["result"])
    >>> IfElse("either", *bodies)
    <block either(condition, x) -> result>
    """

    kind = "if_else"

    def __init__(self, name: str, then: Composite, otherwise: Composite) -> None:
        super().__init__(name, {"then": then, "else": otherwise})


class Switch(Region):
    """Runs the body with the given `index`; if there is none, its outputs are zeros.

    >>> from livegrad.live.blocks import block
    >>> bodies = [Composite(name) for name in "abc"]
    >>> for body in bodies:
    ...     _ = body.expose(body.graph.add(block(lambda x: x + 1.0, name="next"))["x"])
    >>> Switch("one_of", *bodies)
    <block one_of(index, x) -> nothing>
    """

    kind = "switch"
    control_name = "index"

    def __init__(self, name: str, *cases: Composite) -> None:
        super().__init__(name, {str(index): case for index, case in enumerate(cases)})


class While(Region):
    """Runs its body while the body's output `condition` is not zero. The pin `condition` decides about the first
    iteration.

    `carried` maps outputs to the inputs of the next iteration.

    >>> from livegrad.live.blocks import block
    >>> body = Composite("body")
    >>> halve = body.graph.add(block(lambda x: (x * 0.5, x > 2.0), name="halve", outputs=("half", "condition")))
    >>> _ = body.expose(halve["x"]), body.expose(halve["half"]), body.expose(halve["condition"])
    >>> While("shrink", body, carried={"x": "half"})
    <block shrink(condition, x) -> half>
    """

    kind = "while"

    def __init__(self, name: str, body: Composite, carried: Mapping[str, str]) -> None:
        super().__init__(name, {"body": body}, carried)

    def _require_carried(self) -> None:
        if "condition" not in self.bodies["body"].outputs:
            raise UsageError(f"the body of `{self.name}` must expose an output `condition`", where=caller_origin())
        super()._require_carried()


class For(Region):
    """Runs its body `count` times. A body that exposes an input `index` receives the iteration index.

    >>> from livegrad.live.blocks import block
    >>> body = Composite("body")
    >>> double = body.graph.add(block(lambda x: x * 2.0, name="double"))
    >>> _ = body.expose(double["x"]), body.expose(double["result"])
    >>> For("often", body, carried={"x": "result"})
    <block often(count, x) -> result>
    """

    kind = "for"
    control_name = "count"
    index_name = "index"

    def __init__(self, name: str, body: Composite, carried: Mapping[str, str]) -> None:
        super().__init__(name, {"body": body}, carried)
