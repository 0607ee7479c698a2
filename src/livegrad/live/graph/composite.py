"""Composites: graphs of blocks that are used as one block.

The graph compiler dissolves them; `regions.py` derives control flow from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.live.graph.block import Block, Pin
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.journal import StructureChange

if TYPE_CHECKING:
    from livegrad.live.graph.regions import Region


class Composite(Block):
    """A graph of blocks that is used as one block. `expose` makes inner pins accessible; `hide` reverts that.

    >>> from livegrad.live.blocks import block
    >>> both = Composite("both")
    >>> double = both.graph.add(block(lambda x: x * 2.0, name="double"))
    >>> both.expose(double["x"]), both.expose(double["result"], "doubled")
    (both.x, both.doubled)
    """

    def __init__(self, name: str) -> None:
        self.graph = Graph()
        self.inner_inputs: dict[str, list[Pin]] = {}
        self.inner_outputs: dict[str, Pin] = {}
        self.used_by: list[Region] = []  # regions with this composite as a body
        self._set_up(name, (), ())

    if not TYPE_CHECKING:  # a type checker reports unknown attributes itself

        def __getattr__(self, name: str) -> NoReturn:
            what = f"'{type(self).__name__}' object has no attribute '{name}'"
            if name in ("add", "bind", "connect", "disconnect", "remove", "set"):
                what += f"; blocks inside belong to its graph: write composite.graph.{name}(...)"
            raise AttributeError(what, name=name, obj=self)

    def expose(self, pin: Pin, name: str | None = None) -> Pin:
        """Exposes an inner pin as a pin of this block. Several inner inputs may share a name and then receive the same
        value."""
        if not isinstance(pin, Pin):
            raise UsageError("not a pin", where=caller_origin(), found=type(pin).__name__, help='block["name"] is one')
        if name is not None and not isinstance(name, str):
            raise UsageError(
                "the name of a pin must be a string", where=caller_origin(), expected="a str", found=type(name).__name__
            )
        exposed_name = name or pin.name
        with self.graph.editing(), self.graph.journal.notify_observer("expose", None, self, pin, exposed_name):
            return self._expose(pin, exposed_name)

    def _expose(self, pin: Pin, name: str) -> Pin:
        self._require_exposable(pin)
        if pin.direction == "output" and name in self.inner_outputs:
            raise UsageError(f"`{self.name}` has an output `{name}`", where=caller_origin())
        self.graph.journal.write("structure", StructureChange(self.graph, (pin.block,)), f"`{name}` exposed")
        with self._changing_pins():
            if pin.direction == "input":
                self.inner_inputs.setdefault(name, []).append(pin)
            else:
                self.inner_outputs[name] = pin
        return self[name]

    def hide(self, pin: Pin) -> None:
        """Removes an exposed pin from this block; the inverse of `expose`.

        Its connections and value are dormant until a pin is exposed under that name again.

        >>> from livegrad.live.blocks import block
        >>> both = Composite("both")
        >>> double = both.graph.add(block(lambda x: x * 2.0, name="double"))
        >>> both.hide(both.expose(double["x"]))
        >>> both
        <block both() -> nothing>
        """
        if not isinstance(pin, Pin) or pin.block is not self or not self.has(pin):
            found = str(pin) if isinstance(pin, Pin) else type(pin).__name__
            expected = "one of " + (", ".join([*self.inputs, *self.outputs]) or "none")
            what = f"not a pin that `{self.name}` exposes"
            raise UsageError(what, where=caller_origin(), expected=expected, found=found)
        with self.graph.editing(), self.graph.journal.notify_observer("hide", None, pin):
            inner = self.inner_inputs[pin.name] if pin.direction == "input" else [self.inner_outputs[pin.name]]
            blocks = tuple(inner_pin.block for inner_pin in inner)
            self.graph.journal.write("structure", StructureChange(self.graph, blocks), f"`{pin.name}` hidden")
            with self._changing_pins():
                del (self.inner_inputs if pin.direction == "input" else self.inner_outputs)[pin.name]

    def restore_exposed(self, inputs: dict[str, list[Pin]], outputs: dict[str, Pin]) -> None:
        """Exposes these pins, and no others."""
        exposures = {name: list(pins) for name, pins in inputs.items()}, dict(outputs)
        with self.graph.editing(), self.graph.journal.notify_observer("exposures", None, self, *exposures):
            pins = [
                *chain(*inputs.values(), *self.inner_inputs.values()),
                *outputs.values(),
                *self.inner_outputs.values(),
            ]
            blocks = tuple(dict.fromkeys(pin.block for pin in pins))
            self.graph.journal.write("structure", StructureChange(self.graph, blocks), "exposed pins restored")
            with self._changing_pins():
                self.inner_inputs, self.inner_outputs = exposures

    @contextmanager
    def _changing_pins(self) -> Iterator[None]:
        """Updates the pins of this block and of the regions that use it. Undoes the change if one rejects it."""
        previous = {exposed: list(pins) for exposed, pins in self.inner_inputs.items()}, dict(self.inner_outputs)
        yield
        try:
            self._update_pins()
            for region in self.used_by:
                region._require_carried()
        except UsageError:  # a name is taken, or a loop needs the pin
            self.inner_inputs, self.inner_outputs = previous
            self._update_pins()
            raise
        for block in (self, *self.used_by):
            if block.home is not None:
                block.home.follow_pins(block)

    def _require_exposable(self, pin: Pin) -> None:
        where = caller_origin()
        if pin.block.home is not None and pin.block.home is not self.graph:
            help = f"add `{pin.block.name}` to `{self.name}.graph`, or expose it where it is"
            raise UsageError(f"`{pin}` is not in the graph of `{self.name}`", where=where, help=help)
        if (pin.block.inputs if pin.direction == "input" else pin.block.outputs).get(pin.name) is None:
            raise UsageError(f"`{pin.block.name}` no longer has pin `{pin.name}`", where=where)
        for name, pins in self.inner_inputs.items():
            if any(exposed.block is pin.block and exposed.name == pin.name for exposed in pins):
                raise UsageError(f"`{pin}` is already exposed as `{self.name}.{name}`", where=where)

    def _update_pins(self) -> None:
        """Sets the pins of this block, and of the regions that use it, to the exposed pins."""
        for block in (self, *self.used_by):
            block._make_pins(*block._pin_names())

    def _pin_names(self) -> tuple[Sequence[str], Sequence[str]]:
        return tuple(self.inner_inputs), tuple(self.inner_outputs)

    def inner_output(self, name: str) -> Pin | None:
        """Returns the inner pin of an output, or None if it no longer exists."""
        pin = self.inner_outputs.get(name)
        return pin if pin is not None and pin.block.home is self.graph and pin.name in pin.block.outputs else None

    def inner_graphs(self) -> Iterator[tuple[str, Graph]]:
        yield "", self.graph

    def pins_behind(self, name: str) -> Sequence[Pin]:
        inner = (pin.block.inputs.get(pin.name) for pin in self.inner_inputs.get(name, ()))
        return [pin for pin in inner if pin is not None and pin.block.home is self.graph]

    def default_of(self, name: str) -> Any:
        return None
