"""Slopes, pulls and fits of one session: keeps what pages have chosen, and computes beside the running graph.

Only the engine thread calls a `Tuner`. One worker computes: a pull first, then slopes, then a fit. `update` takes what
is ready and begins what is next; `session.py` calls it before each frame.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from livegrad.diagnostics import LivegradError, UsageError
from livegrad.live.compile.graph_compiler import Compilation
from livegrad.live.engine import Engine
from livegrad.live.frame import EngineError
from livegrad.live.graph.block import Pin
from livegrad.live.graph.edges import Edge
from livegrad.tools.studio.edits import Edits, MessageError
from livegrad.tools.studio.frames import describe_error
from livegrad.tools.studio.gestures import Gestures
from livegrad.tools.studio.page import Page
from livegrad.tools.studio.scenes import PartField
from livegrad.tools.studio.tuning.animations import Animations, parse_animation
from livegrad.tools.studio.tuning.comparison import Comparison
from livegrad.tools.studio.tuning.fitting import Fitting
from livegrad.tools.studio.tuning.measures import Measure, measure_of
from livegrad.tools.studio.tuning.solving import Descent, Sliders, Values, pull_toward, set_slider
from livegrad.tools.studio.tuning.targets import Target, parse_numbers, parse_point, parse_target
from livegrad.tools.studio.values import Json, plain

_SHARE_OF_FIT = 5.0  # seconds for a fit, for one of slopes
_NOTHING: Json = {"value": None, "slopes": {}, "wires": {}}


@dataclass
class Pull:
    """A value that somebody drags: the sliders as they were when it began, and where it shall go next."""

    page: Page
    sliders: Sliders
    to: list[float] | None = None
    is_ending: bool = False
    last: list[float] | None = None  # where it went


class Tuner:
    """What pages have chosen in one session. `version` grows with each change of what they show."""

    def __init__(
        self, engine: Engine, edits: Edits, gestures: Gestures, field: PartField | None, wake: Callable[[], None]
    ) -> None:
        self.version = 0
        self.target: Target | None = None
        self._engine, self._edits, self._gestures, self._field = engine, edits, gestures, field
        self._wake = wake
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="livegrad studio tuning")
        self._measure: tuple[Target, tuple[int, int, Compilation | None], Measure] | None = None
        self._awaits_plan = False
        self._structure = 0  # counts edits after which a measure must be made again
        self._pinned: set[Pin] = set()
        self._shown, self._problem = _NOTHING, None
        self._pull: Pull | None = None
        self.fitting = Fitting(engine)
        self._comparison, self.animations = Comparison(engine), Animations(engine)
        self._running: tuple[Future[Any], Callable[[Any], None], int] | None = None
        self._needs_slopes = False
        self._edition = 0  # of the graph and its values; errors of older ones are forgotten
        self._slopes_due = 0.0

    def close(self) -> None:
        """Ends a fit, and computes nothing more."""
        self.fitting.stop()
        self._worker.shutdown(wait=False, cancel_futures=True)

    # --- what happens ---

    def follow_edits(self, kinds: set[str], values: Sequence[str]) -> None:
        """The graph was edited. Edits of kinds that are not `values` change what outputs depend on."""
        self.version += "preset" in kinds
        if not kinds <= set(values):
            self._structure += 1
            self._awaits_plan = True
        self.follow_frame()

    def follow_frame(self, *, is_updating: bool = True) -> None:
        """Values may have changed, and a new plan may run."""
        if self._awaits_plan and not is_updating:
            self._awaits_plan = False
            self._structure += 1  # what was upstream before this frame may be that of the old plan
        self._edition += 1
        self._needs_slopes = self.target is not None

    def follow_travel(self) -> None:
        """An edit is about to be undone or redone: what moves sliders ends."""
        self.fitting.stop()
        self._pull = None
        self.version += 1

    # --- messages ---

    def choose(self, page: Page, message: Json) -> None:
        """Chooses an output, an element of it, or a point of the surface; None: nothing."""
        of = message.get("of")
        target = None if of is None else parse_target(of, self._edits)
        if target is not None and target.point is not None and self._field is None:
            raise MessageError("there is no surface here")
        self._finish_pull()
        self.fitting.stop()
        self._set_target(target)

    def _set_target(self, target: Target | None) -> None:
        self.target = target
        self._shown, self._problem = _NOTHING, None
        self.fitting.forget()
        self.version += 1
        self.follow_frame()

    def pin(self, page: Page, message: Json) -> None:
        """Keeps a slider where it is while others follow, or frees it."""
        pin = self._edits.pin(message.get("pin"), "input")
        (self._pinned.add if message.get("pinned") is True else self._pinned.discard)(pin)
        self.version += 1

    def pull(self, page: Page, message: Json) -> None:
        """Begins, moves, commits or cancels a pull."""
        match message.get("do"):
            case "begin":
                self._begin_pull(page)
            case "move":
                pull = self._require_pull(page)
                pull.to = parse_numbers(message.get("to"))
            case "commit":
                self._require_pull(page).is_ending = True
                self._finish_if_idle()
            case "cancel":
                self._require_pull(page)
                self._pull = None
                self._gestures.end(page, cancel=True)
                self.version += 1
            case what:
                raise MessageError("not a pull", found=repr(what)[:60])

    def _begin_pull(self, page: Page) -> None:
        target = self._require_target()
        self._finish_pull()
        self.fitting.stop()
        sliders = self._free_sliders()
        self._gestures.begin(page, f"pull {target.label}"[:100])
        self._pull = Pull(page, sliders)
        self.version += 1

    def _free_sliders(self) -> Sliders:
        return Sliders(self._engine, (pin for pin in self._require_measure().sliders if pin not in self._pinned))

    def _require_pull(self, page: Page) -> Pull:
        if self._pull is None or self._pull.page is not page:
            raise MessageError("nothing is pulled")
        return self._pull

    def _require_target(self) -> Target:
        if self.target is None:
            raise MessageError("no output is chosen")
        return self.target

    def _require_measure(self) -> Measure:
        """The measure of the target, made again after edits of the graph."""
        # An edit that waits for a frame changes what is upstream only then.
        runtime = self._engine._runtime
        versions = self._structure, runtime.debug_version, runtime.compilation
        target, known = self._require_target(), self._measure
        if known is not None and known[0] == target and known[1][:2] == versions[:2] and known[1][2] is versions[2]:
            return known[2]
        measure = measure_of(self._engine, self._field, target)
        self._measure = target, versions, measure
        return measure

    def _finish_pull(self) -> None:
        """Ends a pull at once, where it is."""
        pull, self._pull = self._pull, None
        if pull is not None:
            self._gestures.end(pull.page)

    def _finish_if_idle(self) -> None:
        """Ends a pull whose last movement has been made."""
        pull = self._pull
        if pull is not None and pull.is_ending and pull.to is None and self._running is None:
            self._finish_pull()
            self.version += 1
            if self.target is not None and self.target.point is not None and pull.last is not None:
                self._set_target(Target(point=parse_point(pull.last)))  # the point has moved

    def leave(self, page: Page) -> None:
        """A page has gone."""
        if self._pull is not None and self._pull.page is page:
            self._finish_pull()
            self.version += 1

    def fit(self, page: Page, message: Json) -> None:
        """Starts, pauses, continues or stops a fit, or undoes what it did so far."""
        match message.get("do"):
            case "start":
                target = self._require_target()
                self._finish_pull()
                if target.pin is None:
                    raise MessageError("only an output can be fitted", help="pull the surface")
                self.fitting.start(self._require_measure(), self._free_sliders(), target.label, message.get("goal"))
            case "pause":
                self.fitting.pause()
            case "continue":
                self.fitting.resume(self._require_measure, self._free_sliders)
            case "stop":
                self.fitting.stop()
            case "cancel":
                self.fitting.cancel()
            case what:
                raise MessageError("not a fit", found=repr(what)[:60])
        self.version += 1

    def preset(self, page: Page, message: Json) -> None:
        """Saves, applies or removes a preset."""
        name, presets = message.get("name"), self._engine.presets
        if not isinstance(name, str):
            raise MessageError("not a name", found=repr(name)[:60])
        match message.get("do"):
            case "save":
                presets.save(name)
            case "apply":
                presets.apply(name)
            case "remove":
                presets.remove(name)
            case what:
                raise MessageError("not a preset", found=repr(what)[:60])

    def compare(self, page: Page, message: Json) -> None:
        """Shows one of the two settings that are compared, or compares nothing."""
        self._gestures.end()
        self._comparison.choose(message.get("slot"))
        self.version += 1

    def animate(self, page: Page, message: Json) -> None:
        """Animates a slider, or leaves it where it is."""
        pin, animation = self._edits.pin(message.get("pin"), "input"), message.get("animation")
        self.animations.put(pin, None if animation is None else parse_animation(animation))
        self.version += 1

    # --- work ---

    def update(self) -> None:
        """Takes what is ready, and begins what is next."""
        if self._running is not None and self._running[0].done():
            future, take, edition = self._running
            self._running = None
            self._take(future, take, edition)
        if self._running is None:
            self._begin_next()
        self._finish_if_idle()

    def seconds_until_due(self) -> float | None:
        """How long until slopes may be computed again; None: not before something happens."""
        return max(0.0, self._slopes_due - perf_counter()) if self._needs_slopes and self._running is None else None

    def _take(self, future: Future[Any], take: Callable[[Any], None], edition: int) -> None:
        try:
            take(future.result())
        except LivegradError as error:
            if edition == self._edition:  # otherwise it is computed again
                self._note_problem(error)
        except Exception as error:
            traceback.print_exc()  # a bug of ours must not end the engine thread
            self._note_problem(UsageError(f"{type(error).__name__}: {error}"))

    def _note_problem(self, error: LivegradError) -> None:
        inner = error.problems[0].error if isinstance(error, EngineError) and error.problems else error
        self._problem = describe_error(inner)
        self._shown = _NOTHING
        self.fitting.pause()
        self.version += 1

    def _begin_next(self) -> None:
        pull = self._pull
        if pull is not None and pull.to is not None:
            to, pull.to = pull.to, None
            pull.last = to
            self._submit(lambda: pull_toward(self._require_measure(), pull.sliders, to), lambda v: self._moved(pull, v))
        elif self._needs_slopes and self._slopes_due <= perf_counter():
            self._needs_slopes = False
            self._submit(self._compute_slopes, self._show)
        elif self.fitting.is_running:
            self._submit(self.fitting.run_batch, self._fitted)

    def _submit(self, compute: Callable[[], Any], take: Callable[[Any], None]) -> None:
        future = self._worker.submit(compute)
        self._running = future, take, self._edition
        future.add_done_callback(lambda _: self._wake())

    def _moved(self, pull: Pull, values: Values) -> None:
        """Sets what a pull has found, unless it has ended."""
        if self._pull is not pull:
            return
        for pin, value in values.items():
            set_slider(pin, value)

    def _fitted(self, batch: tuple[Descent, Values]) -> None:
        self.fitting.take(*batch)
        self._needs_slopes = True
        self.version += 1

    def _compute_slopes(self) -> tuple[Target, Json, float]:
        started = perf_counter()
        target, measure = self._require_target(), self._require_measure()
        values = measure.value({})
        gradient = measure.gradient(np.full(len(values), 1.0 / len(values)), {})
        shown: Json = {
            "value": plain(values if len(values) > 1 else values[0]),
            "slopes": {self._key(pin): plain(np.asarray(gradient[pin], np.float64)) for pin in measure.sliders},
            "wires": {self._key(pin): plain(self._influence(pin, gradient[pin])) for pin in measure.wires},
        }
        return target, shown, perf_counter() - started

    def _show(self, computed: tuple[Target, Json, float]) -> None:
        target, shown, seconds = computed
        # At most half of a core, and less beside a fit, which needs the same worker.
        self._slopes_due = perf_counter() + (_SHARE_OF_FIT * seconds if self.fitting.is_running else seconds)
        if target is self.target:
            self._shown, self._problem = shown, None
            self.version += 1

    def _influence(self, pin: Pin, gradient: Any) -> float:
        """How far the output moves if each number on a wire changes by its own size, at random."""
        source = None if pin.block.home is None else pin.block.home.source_of(pin)
        value = self._engine.peek(source.source) if isinstance(source, Edge) else None
        if value is None or value.shape != np.shape(gradient):
            return 0.0
        return float(np.linalg.norm(np.multiply(gradient, value, dtype=np.float64)))

    def _key(self, pin: Pin) -> str:
        return f"{self._edits.describer.id_of(pin.block)}.{pin.name}"

    # --- for pages ---

    def news(self, page: Page) -> Json:
        """What has changed since the page last saw it."""
        if page.tuning_version == self.version:
            return {}
        page.tuning_version = self.version
        return {"tuning": self.describe()}

    def describe(self) -> Json:
        """What pages show."""
        target = self.target
        return {
            "target": None if target is None else target.to_json(self._edits.describer) | {"label": target.label},
            **self._shown,
            "problem": self._problem,
            "pinned": sorted(self._key(pin) for pin in self._pinned if pin.block.home is not None),
            "pulling": self._pull is not None,
            "fit": self.fitting.describe(),
            "presets": list(self._engine.presets),
            "compared": self._comparison.active,
            "animations": self.animations.describe(self._key),
        }
