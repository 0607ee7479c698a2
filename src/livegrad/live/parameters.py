"""Lists the inputs of a graph that a panel can set, as plain data: `Engine.parameters`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypedDict

import numpy as np

from livegrad.ir.types import scalar_of_dtype
from livegrad.live.compile.flatten import find_keys
from livegrad.live.graph.block import Pin
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.control import Control, ControlKind
from livegrad.live.graph.keys import pin_key
from livegrad.live.graph.sources import Setting, scalar_of_number

_MAX_NUMBERS = 64  # larger arrays are listed without their values


class PinParameter(TypedDict):
    """An input that has no connection, and how to show it. Everything is plain data, ready for JSON.

    `value` and `default` are numbers or nested lists. They are None if there is none, or if it is an array of more than
    64 numbers. `kind` is that of the control, or `number` or `array`.

    >>> import livegrad as lg
    >>> engine = lg.Engine()
    >>> double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    >>> shown: PinParameter = engine.parameters()[double["x"]]
    >>> shown["key"], shown["type"], shown["value"]
    ('double.x', 'f64', 4.0)
    """

    key: str  # the path of the block and the name of the pin, as in plans
    name: str
    label: str
    group: str  # "": the name of the block
    kind: ControlKind | str
    low: float | None
    high: float | None
    step: float | None
    unit: str
    choices: list[list[Any]]
    suffixes: list[str]
    type: str | None  # of an element
    shape: list[int] | None
    value: Any
    default: Any


def list_parameters(graph: Graph) -> dict[Pin, PinParameter]:
    """The inputs without a connection, in the order of the graph, each with a description."""
    return {pin: _describe_pin(graph, pin) for pin in _free_inputs(graph)}


def _free_inputs(graph: Graph) -> Iterator[Pin]:
    """The inputs that a program can set: those inside a composite, unless an exposed pin decides about them."""
    exposed = _exposed_pins(graph)
    visited = {graph}
    worklist = [(exposed, iter(graph.blocks.values()))]
    while worklist:
        exposed, blocks = worklist[-1]
        block = next(blocks, None)
        if block is None:
            worklist.pop()
            continue
        yield from (pin for pin in block.inputs.values() if _is_free(pin, exposed))
        inside = [inner for _, inner in block.inner_graphs() if inner not in visited]
        visited.update(inside)
        worklist += [(_exposed_pins(inner), iter(inner.blocks.values())) for inner in reversed(inside)]


def _exposed_pins(graph: Graph) -> set[Pin]:
    """The inputs of a graph that the composites around it expose."""
    composites = (getattr(user, "bodies", {}).get(label, user) for user, label in graph.uses)
    return {pin for composite in composites for pins in composite.inner_inputs.values() for pin in pins}


def _is_free(pin: Pin, exposed: set[Pin]) -> bool:
    assert pin.block.home is not None
    source = pin.block.home.sources.get(pin)
    if source is not None:  # inside a composite, it takes precedence over an exposed pin
        return isinstance(source, Setting)
    inner = pin.block.pins_behind(pin.name)
    return pin not in exposed and (not inner or any(map(_is_fed_from_outside, inner)))


def _is_fed_from_outside(pin: Pin) -> bool:
    return pin.block.home is None or pin not in pin.block.home.sources


def _describe_pin(graph: Graph, pin: Pin) -> PinParameter:
    control = pin.control or Control()
    setting, default = _current_value(pin), pin.block.default_of(pin.name)
    value = default if setting is None else setting.value
    element, shape = _type_of(value)
    keys = find_keys(graph, pin.block) or [pin.block.name]
    return PinParameter(
        key=pin_key(keys[0], pin.name),
        name=pin.name,
        label=control.label or pin.name,
        group=control.group or pin.block.name,
        kind="array" if control.kind == "number" and shape else control.kind,
        low=control.low,
        high=control.high,
        step=control.step,
        unit=control.unit,
        choices=[list(pair) for pair in control.choices],
        suffixes=list(control.suffixes),
        type=element,
        shape=shape,
        value=_plain(value),
        default=_plain(default),
    )


def _current_value(pin: Pin) -> Setting | None:
    """The value of an input: its own, or that of the first inner pin that it would feed."""
    worklist = [pin]
    for inner in worklist:
        source = None if inner.block.home is None else inner.block.home.source_of(inner)
        if isinstance(source, Setting) and (inner is pin or _is_fed_from_outside(inner)):
            return source
        worklist += filter(_is_fed_from_outside, inner.block.pins_behind(inner.name))
    return None


def _type_of(value: Any) -> tuple[str | None, list[int] | None]:
    if value is None:
        return None, None
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
        return str(scalar_of_number(value)), []
    array = np.asarray(value)
    return str(scalar_of_dtype(array.dtype)), list(array.shape)


def _plain(value: Any) -> Any:
    """A value as numbers and lists; a complex number as its two parts."""
    if value is None or np.size(value) > _MAX_NUMBERS:
        return None
    array = np.asarray(value)
    if array.dtype.kind == "c":
        array = np.stack([np.real(array), np.imag(array)], -1)
    return array.astype(np.float64).tolist() if array.dtype.name == "bfloat16" else array.tolist()
