"""The shader with which pages draw a part in 3D, kept in agreement with the graph.

In: the block that computes the part's field. Out: the shader as JSON, or why there is none. Pages set the parameters
that are numbers themselves, without asking; another shader is built when something else changes: a table or a wire.
The bound of the gradient, which makes the steps along rays safe, follows all numbers. `session.py` calls it; a thread
of its own builds.
"""

from __future__ import annotations

import operator
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from livegrad.diagnostics import LivegradError, UsageError
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.shaders.steepness import steepness
from livegrad.implicit.shaders.viewport_shader import viewport_shader
from livegrad.ir.types import f32
from livegrad.live.engine import Engine
from livegrad.live.graph.block import Pin
from livegrad.live.graph.edges import Edge, Source
from livegrad.live.graph.sources import Setting
from livegrad.tools.studio.controls import control_of
from livegrad.tools.studio.edits import MessageError
from livegrad.tools.studio.frames import describe_error
from livegrad.tools.studio.scenes import PartField, part_with_values
from livegrad.tools.studio.values import Json

_NOTHING: Json = {"shader": None, "problem": None}
_MAX_SLOPES = 3  # in a shader; pages may show different ones
_MAX_NUMBERS = 16  # of a parameter that pages set themselves


class PartView:
    """The 3D view of one part. `version` grows with each new shader. Only the engine thread calls it."""

    def __init__(self, engine: Engine, field: PartField, wake: Callable[[], None]) -> None:
        self.block = field.block
        self.version = 0
        self.steepness = 0.0  # a bound for the present numbers and those of the sliders
        self._engine, self._part, self._wake = engine, field.part, wake
        self._names = (*field.part.parameter_names, *field.part.table_names)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="livegrad studio shader")
        self._building: Future[Json] | None = None
        self._bounding: Future[float] | None = None
        self._built: Json = _NOTHING
        self._slopes: tuple[str, ...] = ()  # the parameters whose slope the shader can show
        self._sources: list[Any] = []  # what pages cannot set themselves, compared by identity
        self._needs_shader = self._needs_bound = True

    def close(self) -> None:
        """Builds no more shaders."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def follow_edits(self) -> None:
        """Notes whether edits of the graph need another shader."""
        sources = [self._source(name) for name in self._names]
        is_same = len(sources) == len(self._sources) and all(map(operator.is_, sources, self._sources))
        self._needs_shader |= not is_same
        self._needs_bound = True
        self._sources = sources

    @property
    def parameters(self) -> list[str]:
        """The parameters of one number, whose slope the surface can show."""
        types = self._part.function.parameter_types[1:]
        names = self._part.parameter_names
        return [name for name, type in zip(names, types, strict=False) if type is f32]

    def show_slope(self, name: Any) -> None:
        """Builds a shader that can show how far a parameter moves the surface. A few at a time keep it small."""
        if name not in self.parameters:
            expected = ", ".join(self.parameters) or "no parameter"
            raise MessageError("the surface has no such slope", expected=expected, found=repr(name)[:60])
        if name not in self._slopes:
            self._slopes, self._needs_shader = (*self._slopes[1 - _MAX_SLOPES :], name), True

    def follow_frame(self) -> None:
        """Notes that the graph may have computed other parameters."""
        self._needs_bound |= any(isinstance(source, Pin) for source in self._sources)

    def update(self) -> None:
        """Takes what is ready, and begins what is needed next."""
        if self._building is not None and self._building.done():
            self._built, self._building = self._building.result(), None
            self.version += 1
            self.steepness = 0.0
            self._needs_bound = True
        if self._bounding is not None and self._bounding.done():
            bound, self._bounding = self._bounding.result(), None
            shader = self._built["shader"]
            self.steepness = max(bound, 0.0 if shader is None else shader["steepness"])
        if self._building is not None or self._bounding is not None or self.block.home is None:
            return
        if self._needs_shader:
            self._needs_shader = False
            self._building = self._worker.submit(
                _describe_shader, self._part, self._values(), self._ranges(), self._slopes
            )
            self._building.add_done_callback(lambda _: self._wake())
        elif self._needs_bound and self._built["shader"] is not None:
            self._needs_bound = False
            self._bounding = self._worker.submit(_bound, self._part, self._values())
            self._bounding.add_done_callback(lambda _: self._wake())

    def part_now(self) -> Part:
        """The part with the values that its inputs have now."""
        return part_with_values(self._part, self._values())

    def describe(self, block: str, *, with_shader: bool) -> Json:
        """The view for pages, where the block has this id. Without its shader, pages only make room for it."""
        return {"block": block, "parameters": self.parameters, **(self._built if with_shader else _NOTHING)}

    def _input(self, name: str) -> Source | None:
        graph = self.block.home
        return None if graph is None else graph.source_of(self.block[name])

    def _source(self, name: str) -> Any:
        """What feeds an input: the output of a block, or a value that pages cannot set; None: numbers."""
        source = self._input(name)
        if isinstance(source, Edge):
            return source.source
        return None if isinstance(source, Setting) and _is_settable(source.value) else source

    def _ranges(self) -> dict[str, tuple[float, float]]:
        """The ranges of the sliders: while one is turned, nobody waits for the bound of its number."""
        ranges: dict[str, tuple[float, float]] = {}
        for name in self._part.parameter_names:
            source = self._input(name)
            if isinstance(source, Setting) and _is_settable(source.value):
                control = control_of(self.block[name], source)
                ranges[name] = (float(control["low"]), float(control["high"]))
        return ranges

    def _values(self) -> dict[str, Any]:
        """The values that the inputs have now."""
        values: dict[str, Any] = {}
        for name in self._names:
            source = self._input(name)
            value = self._engine.peek(source.source) if isinstance(source, Edge) else None
            value = source.value if isinstance(source, Setting) else value
            if value is not None:
                values[name] = value
        return values


def _is_settable(value: Any) -> bool:
    array = np.asarray(value)
    return array.ndim <= 1 and 0 < array.size <= _MAX_NUMBERS and array.dtype.kind in "biuf"


def _bound(part: Part, values: dict[str, Any]) -> float:
    """A bound of the gradient for these values; 0 if the field has none, such as for numbers that are not finite."""
    try:
        return float(steepness(part_with_values(part, values)))
    except LivegradError:
        return 0.0  # the block itself shows the error
    except Exception:
        traceback.print_exc()  # a bug of ours must not end the engine thread, which takes the result
        return 0.0


def _describe_shader(
    part: Part, values: dict[str, Any], ranges: dict[str, tuple[float, float]], slopes: tuple[str, ...]
) -> Json:
    """The shader of a part with these values, or the problem."""
    try:
        shader = viewport_shader(part_with_values(part, values), slopes=slopes, ranges=ranges)
        return {"shader": shader.to_json(), "problem": None}
    except LivegradError as error:
        return {"shader": None, "problem": describe_error(error)}
    except Exception as error:
        # A bug of ours must not end the engine thread, which takes the result.
        traceback.print_exc()
        return {"shader": None, "problem": describe_error(UsageError(f"{type(error).__name__}: {error}"))}
