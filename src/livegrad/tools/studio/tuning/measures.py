"""Differentiates what a page has chosen, with respect to the sliders that it depends on.

In: an engine and a `Target`. Out: a `Measure`: values, exact gradients, and residuals for pulling. Nothing in the
engine runs or changes. The thread of `tuner.py` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from livegrad.diagnostics import UsageError
from livegrad.live.blocks.rollout import FrameGradient, frame_gradient
from livegrad.live.blocks.upstream import find_upstream
from livegrad.live.engine import Engine
from livegrad.live.graph.block import Pin
from livegrad.live.graph.edges import Edge
from livegrad.live.graph.sources import Numbers, Setting
from livegrad.tools.studio.scenes import PartField, part_with_values
from livegrad.tools.studio.tuning.targets import Target

MAX_COMPONENTS = 16  # of an input that pages show as a control
_MAX_WIRES = 1 << 22  # elements on wires; larger graphs show only the slopes of sliders
Changes = Mapping[Pin, Numbers]


class Measure(Protocol):
    """Numbers that depend on sliders. `changes` are differences to the values that the sliders have now."""

    sliders: tuple[Pin, ...]
    wires: tuple[Pin, ...]

    def value(self, changes: Changes) -> Numbers:
        """The chosen numbers, as a vector."""
        ...

    def gradient(self, weights: Numbers, changes: Changes) -> dict[Pin, Numbers]:
        """The gradient of their weighted sum with respect to each slider and each wire."""
        ...

    def toward(self, to: Sequence[float]) -> Measure:
        """The measure that a pull to this value or point makes zero."""
        ...


def measure_of(engine: Engine, field: PartField | None, target: Target) -> Measure:
    """The measure of a target."""
    if target.pin is not None:
        return OutputMeasure(engine, target.pin, target.index, target.frames)
    if field is None or target.point is None:
        raise UsageError("there is no surface here", help="choose an output")
    return SurfaceMeasure(engine, field, target.point)


def value_of(engine: Engine, pin: Pin) -> Numbers | None:
    """The value of an input that has one, if it is small and real."""
    with engine.graph.editing():  # numbers may have been posted
        source = _source_of(pin)
    if not isinstance(source, Setting):
        return None
    array = np.asarray(source.value)
    return array if array.dtype.kind == "f" and 0 < array.size <= MAX_COMPONENTS and array.ndim <= 1 else None


class OutputMeasure:
    """An element or the mean of an output."""

    def __init__(self, engine: Engine, pin: Pin, index: tuple[int, ...] | None, frames: int) -> None:
        upstream = find_upstream(engine, pin)
        self.sliders = tuple(pin for pin in upstream.inputs if value_of(engine, pin) is not None)
        self.wires = upstream.wires if _count_elements(engine, upstream.wires) <= _MAX_WIRES else ()
        if not self.sliders and not self.wires:
            help = "its inputs are whole numbers, memory, or inside regions"
            raise UsageError(f"`{pin}` depends on no number that can move", help=help)
        self._gradient = frame_gradient(engine, of=pin, by=[*self.sliders, *self.wires], frames=frames)
        self._index = index

    def value(self, changes: Changes) -> Numbers:
        return _select(self._gradient.value(changes), self._index)

    def gradient(self, weights: Numbers, changes: Changes) -> dict[Pin, Numbers]:
        seed = np.zeros(self._gradient.shape)
        if self._index is None:
            seed[...] = float(weights[0]) / max(1, seed.size)
        else:
            seed[self._index] = np.reshape(weights, seed[self._index].shape)
        return self._gradient.read(seed, changes)

    def toward(self, to: Sequence[float]) -> Measure:
        return _Difference(self, np.array(to))


def _select(array: Numbers, index: tuple[int, ...] | None) -> Numbers:
    """An element or a row as a vector; without an index, the mean."""
    if index is None:
        return np.asarray([np.mean(array, dtype=np.float64)])
    if len(index) > array.ndim or any(place >= size for place, size in zip(index, array.shape, strict=False)):
        raise UsageError("there is no such element", expected=f"inside {array.shape}", found=str(index))
    return np.asarray(array[index], np.float64).ravel()


def _count_elements(engine: Engine, wires: Sequence[Pin]) -> int:
    sources = {source.source for pin in wires if isinstance(source := _source_of(pin), Edge)}
    values = [engine.peek(source) for source in sources]
    return sum(value.size for value in values if value is not None)


def _source_of(pin: Pin) -> Any:
    return None if pin.block.home is None else pin.block.home.source_of(pin)


class SurfaceMeasure:
    """How far the surface of a part has moved beyond a point, along its normal there."""

    def __init__(self, engine: Engine, field: PartField, point: Sequence[float], slope: float | None = None) -> None:
        self._engine, self._field, self._point = engine, field, point
        block = field.block
        self._direct: dict[str, Pin] = {}
        self._computed: dict[str, FrameGradient] = {}
        self._fixed: dict[str, Any] = {}  # values that no slider moves
        for name in (*field.part.parameter_names, *field.part.table_names):
            self._sort_input(name, block[name])
        self.sliders = tuple(dict.fromkeys([*self._direct.values(), *self._upstream()]))
        self.wires: tuple[Pin, ...] = ()
        if not self.sliders:
            raise UsageError("no slider moves this surface")
        self._known_slope = slope

    @cached_property
    def _slope(self) -> float:
        """The length of the gradient: fixed while the point is pulled, so that the residual's derivative is exact."""
        length = self._known_slope or float(np.linalg.norm(self._part({}).gradient(self._point)))
        return length if length > 1e-12 else 1.0

    def _sort_input(self, name: str, pin: Pin) -> None:
        source = _source_of(pin)
        if isinstance(source, Edge):
            is_parameter = name in self._field.part.parameter_names
            moving = [
                p for p in find_upstream(self._engine, source.source).inputs if value_of(self._engine, p) is not None
            ]
            if is_parameter and moving:
                self._computed[name] = frame_gradient(self._engine, of=source.source, by=moving, frames=1)
            else:
                self._fixed[name] = self._engine.peek(source.source)
        elif value_of(self._engine, pin) is not None:
            self._direct[name] = pin
        elif isinstance(source, Setting):
            self._fixed[name] = source.value

    def _upstream(self) -> list[Pin]:
        return [pin for gradient in self._computed.values() for pin in gradient.by]

    def _part(self, changes: Changes) -> Any:
        """The part with the values that its inputs have after these changes."""
        values = {name: value for name, value in self._fixed.items() if value is not None}
        for name, pin in self._direct.items():
            value = value_of(self._engine, pin)
            if value is not None:
                values[name] = value + changes.get(pin, 0.0)
        for name, gradient in self._computed.items():
            values[name] = gradient.value(_only(changes, gradient))
        return part_with_values(self._field.part, values)

    def value(self, changes: Changes) -> Numbers:
        return np.array([-float(self._part(changes)(self._point)) / self._slope])

    def gradient(self, weights: Numbers, changes: Changes) -> dict[Pin, Numbers]:
        slopes = self._part(changes).parameter_gradient(self._point, -float(weights[0]) / self._slope)
        result: dict[Pin, Numbers] = {pin: np.zeros_like(value_of(self._engine, pin)) for pin in self.sliders}
        for name, pin in self._direct.items():
            result[pin] = result[pin] + np.asarray(slopes[name])
        for name, gradient in self._computed.items():
            for pin, part in gradient.read(np.asarray(slopes[name]), _only(changes, gradient)).items():
                result[pin] = result[pin] + part
        return result

    def toward(self, to: Sequence[float]) -> Measure:
        if len(to) != 3:
            raise UsageError("a surface is pulled to a point", expected="three numbers", found=str(len(to)))
        return SurfaceMeasure(self._engine, self._field, to, self._slope)


def _only(changes: Changes, gradient: FrameGradient) -> dict[Pin, Numbers]:
    return {pin: change for pin, change in changes.items() if pin in gradient.by}


class _Difference:
    """The difference of a measure from what it should be."""

    def __init__(self, measure: Measure, wanted: Numbers) -> None:
        self.sliders, self.wires = measure.sliders, measure.wires
        self._measure, self._wanted = measure, wanted

    def value(self, changes: Changes) -> Numbers:
        values = self._measure.value(changes)
        if len(values) != len(self._wanted):
            raise UsageError("another number of values", expected=str(len(values)), found=str(len(self._wanted)))
        return values - self._wanted

    def gradient(self, weights: Numbers, changes: Changes) -> dict[Pin, Numbers]:
        return self._measure.gradient(weights, changes)

    def toward(self, to: Sequence[float]) -> Measure:
        return _Difference(self._measure, np.array(to))
