"""One engine in the Studio: follows its edits, steps it, and publishes what pages show.

The engine thread calls it; programs may edit and step the engine at the same time, and the session hears of it as a
listener.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from threading import get_ident
from time import perf_counter
from typing import Any, Literal

import numpy as np

from livegrad.diagnostics import LivegradError, UsageError
from livegrad.live.frame import Frame
from livegrad.live.graph.block import Block, Pin, State
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.composite import Composite
from livegrad.ops.context import parse_feature
from livegrad.tools.studio.clipboard import Clipboard
from livegrad.tools.studio.clock import Clock
from livegrad.tools.studio.describe import Describer, differences
from livegrad.tools.studio.drafts import Draft
from livegrad.tools.studio.edits import Edits
from livegrad.tools.studio.frame_log import FrameLog
from livegrad.tools.studio.frames import describe_error, describe_frame, describe_reason
from livegrad.tools.studio.gestures import Gestures
from livegrad.tools.studio.page import Page
from livegrad.tools.studio.part_view import PartView
from livegrad.tools.studio.recorder import Recorder
from livegrad.tools.studio.scenes import Scene
from livegrad.tools.studio.stopping import Stopper
from livegrad.tools.studio.tuning.tuner import Tuner
from livegrad.tools.studio.values import Json, summarize
from livegrad.tools.studio.views import View, record_point, view_message

_TIME = parse_feature("animation_time")
_VALUE_SHARE = 4.0  # summaries take at most one part in five of the thread
_UPDATE_WAIT = 0.01  # seconds between frames that wait for a plan
_SETTINGS = ("set", "bind")  # edits that change one block
_RUN = ("state", "reset", "feature")  # edits that documents do not contain, or that the clock makes
_APPEARANCE = ("move", "control", "preset")  # edits that compute nothing
_MAX_FRAMES = 1000  # that wait to be noted; after more, all values are looked at


class Session:
    """An engine that pages show. `drives` is False if the program steps the engine itself."""

    def __init__(
        self,
        scene: Scene,
        title: str,
        wake: Callable[[], None],
        clipboard: Clipboard,
        stopper: Stopper,
        *,
        drives: bool = True,
    ) -> None:
        engine = scene.engine
        self.engine, self.title, self.drives = engine, title, drives
        self.clock = Clock()
        self.stopper = stopper
        self.recorder = Recorder()
        self.describer = Describer(engine)
        self.edits = Edits(engine, self.describer, clipboard)
        self.gestures = Gestures(engine)
        self.error: Json | None = None  # why the clock has stopped
        self._wake = wake
        self._thread = get_ident()
        self._edited: deque[tuple[str, tuple[Any, ...]]] = deque()  # edits that pages have not received
        self._frames: deque[Frame] = deque()  # of another thread, each with what it ran
        self._has_missed_frames = False
        self._is_holding = False
        self._held: dict[State, Any] = {}  # the values of states while the clock pauses
        self._needs_frame = True
        self._versions: dict[str, int] = {}  # how often the value of each block may have changed
        self._values_due = self._update_due = 0.0
        self._last_frame = engine.frame
        self.frame_log = FrameLog(engine.frame)
        self.draft = None if scene.path is None else Draft(engine, scene.path)
        self._previous_profiling: Literal["off", "block", "step"] = engine.profiling
        engine.profiling = "block"
        self._described = self._describe()
        self.part_view = None if scene.field is None else PartView(engine, scene.field, wake)
        self.tuner = Tuner(engine, self.edits, self.gestures, scene.field, wake)
        self._follow_part()
        self._stop_listening = engine.listen(self)
        self.clock.play(drives and any(isinstance(block, State) for block in engine.graph.blocks.values()))

    def close(self) -> None:
        """Stops following the engine, which goes on."""
        self.tuner.close()
        self.gestures.end()
        if self.part_view is not None:
            self.part_view.close()
        self._stop_listening()
        self.engine.profiling = self._previous_profiling

    # --- what happens to the engine, from any thread ---

    def edited(self, edit: str, arguments: tuple[Any, ...]) -> None:
        """Called after each edit."""
        if self._is_holding and get_ident() == self._thread:
            return
        self._edited.append((edit, arguments))
        if get_ident() != self._thread:
            self._wake()

    def frame_ended(self, frame: Frame) -> None:
        """Called after each frame."""
        if get_ident() != self._thread:
            self._frames.append(frame)
            if len(self._frames) > _MAX_FRAMES:  # this thread is busy for long
                self._frames.popleft()
                self._has_missed_frames = True
            self._wake()

    # --- frames ---

    def run(self, pages: Iterable[Page]) -> None:
        """Runs a frame if one is due, and publishes."""
        ticks = self.drives and self.clock.take_frame()
        if ticks:
            self.tuner.animations.apply(self.clock.time)
        operations = self._take_edits()
        if operations:
            self._follow_part()
        if self.part_view is not None:
            self.part_view.update()
        self.tuner.update()
        if self.draft is not None:
            self.draft.update()
        for page in pages:
            page.change(operations)
        if self.drives and (ticks or self._needs_frame):
            self._step(pages, keep_states=not ticks)
        while self._frames:
            self._held.clear()
            self._note(self._frames.popleft(), pages)
        if self._has_missed_frames:
            self._has_missed_frames = False
            for block in self.describer.block_by_key.values():
                self._touch(block)

    def seek(self, time: float) -> None:
        """Goes to a time of the clock. A graph with states shows them as they are: frames do not run backwards."""
        self.clock.seek(time)
        self.tuner.animations.apply(self.clock.time)
        self._needs_frame = True

    def seconds_until_due(self, pages: Iterable[Page]) -> float | None:
        """How long the thread may wait for messages."""
        times = [self.clock.seconds_until_due() if self.drives else None, self.tuner.seconds_until_due()]
        times.append(None if self.draft is None else self.draft.seconds_until_due())
        if self._edited or (self._needs_frame and self.drives):
            times.append(max(0.0, self._update_due - perf_counter()) if self._last_frame.updating else 0.0)
        if any(self._has_values_for(page) for page in pages):
            times.append(max(0.0, self._values_due - perf_counter()))
        return min((time for time in times if time is not None), default=None)

    def _take_edits(self) -> list[Json]:
        """The changes of the graph since the last call, as operations for pages."""
        edits = [self._edited.popleft() for _ in range(len(self._edited))]
        if not edits:
            return []
        self._needs_frame |= any(edit not in _APPEARANCE for edit, _ in edits)
        if self.draft is not None and any(edit not in _RUN for edit, _ in edits):
            self.draft.note_edit()
        self.tuner.follow_edits({edit for edit, _ in edits}, values=(*_SETTINGS, *_APPEARANCE))
        for edit, arguments in edits:
            if edit in ("state", "reset"):
                state = arguments[0]
                self._held[state] = arguments[1] if edit == "state" else state.initial
        subjects = [arguments[0] for edit, arguments in edits if edit in _SETTINGS and isinstance(arguments[0], Pin)]
        if len(subjects) < len(edits):
            before, self._described = self._described, self._describe()
            return differences(before, self._described)
        before, changed = self._described, dict[str, Json]()
        with self.turn(), self.engine.graph.editing():
            for block in {pin.block for pin in subjects if pin.block.home is not None}:
                changed[self.describer.id_of(block)] = self.describer.block(block)
        self._described = before | changed
        return differences({id: before.get(id, {}) for id in changed}, changed)

    def turn(self) -> AbstractContextManager[None]:
        """The turn of this thread between frames of a program, which may step without a rest."""
        return nullcontext() if self.drives else self.engine.between_frames()

    def _peek(self, pin: Pin) -> Any:
        with self.turn():
            return self.engine.peek(pin)

    def _follow_part(self) -> None:
        if self.part_view is not None:
            with self.engine.graph.editing():
                self.part_view.follow_edits()

    def _describe(self) -> dict[str, Json]:
        with self.turn(), self.engine.graph.editing():
            return self.describer.describe()

    def _step(self, pages: Iterable[Page], *, keep_states: bool) -> None:
        """Runs one frame. While the clock pauses, an edit shows its result, and states stay where they are."""
        self._needs_frame = False
        if keep_states:
            self._hold_states()
        else:
            self._held.clear()
        try:
            plan = self.engine.plan
            if plan is not None and _TIME in plan.readers:
                self._silently(lambda: self.engine.set_feature("animation_time", self.clock.time))
            with self.stopper.running():
                frame = self.engine.step()
                _ = frame.ok  # waits until the outcome is known
            self._silently(lambda: [self.engine.set(state, value) for state, value in self._held.items()])
        except (LivegradError, KeyboardInterrupt) as raised:
            help = "edit the graph, or step to try again"
            error = raised if isinstance(raised, LivegradError) else UsageError("the frame was stopped", help=help)
            self.clock.play(False)
            self.error = describe_error(error)
            for page in pages:
                page.tell({"type": "stopped", "error": self.error})
            return
        self.error = None
        self._needs_frame |= frame.updating  # the edits are not in this one
        self._update_due = perf_counter() + _UPDATE_WAIT
        self._note(frame, pages)

    def _silently(self, edit: Callable[[], Any]) -> None:
        """Edits of the session itself, which are neither shown nor a reason for another frame."""
        self._is_holding = True
        try:
            with self.engine.history.paused():
                edit()
        finally:
            self._is_holding = False

    def _hold_states(self) -> None:
        """Notes the values of states, which they get again after the frame."""
        states = {block for block in self.describer.block_by_key.values() if isinstance(block, State)}
        self._held = {state: value for state, value in self._held.items() if state in states}
        for state in states - self._held.keys():
            value = self._peek(state["value"])
            if value is not None:
                self._held[state] = value

    def _note(self, frame: Frame, pages: Iterable[Page]) -> None:
        """Notes which values have changed, and what pages must receive."""
        self._last_frame = frame
        self.frame_log.note(frame)
        if self.part_view is not None:
            self.part_view.follow_frame()
        described = describe_frame(frame, self.describer)
        changed: set[Block] = {block for id in described["ran"] if isinstance(block := self.describer.find(id), Block)}
        if changed:
            self.tuner.follow_frame(is_updating=frame.updating)
            changed |= {block for block in self.describer.block_by_key.values() if isinstance(block, State)}
        for block in changed:
            self._touch(block)
        self._record_points(pages, frame.number)
        self.note_recordings()
        for page in pages:
            page.note_frame(described)

    def _touch(self, block: Block) -> None:
        """Notes that a block's value, and those of the composites around it, may have changed."""
        id = self.describer.id_of(block)
        self._versions[id] = self._versions.get(id, 0) + 1
        graph: Graph | None = block.home
        for user, _ in [] if graph is None else graph.uses:
            if isinstance(user, Composite):
                self._touch(user)

    # --- publishing ---

    def snapshot(self) -> Json:
        """Everything that a page needs to begin. The shader of a part follows in an update."""
        view = self.part_view
        part = None if view is None else view.describe(self.describer.id_of(view.block), with_shader=False)
        return {
            "type": "snapshot",
            "title": self.title,
            "graph": self.describer.id_of(self.engine.graph),
            "entries": self._described,
            "frame": self._frame_state(),
            "drives": self.drives,
            "error": self.error,
            "history": self._history(),
            "part": part,
        }

    def _history(self) -> Json:
        """What undo and redo would do, and whether the document is saved."""
        history, draft = self.engine.history, self.draft
        described: Json = {"undo": history.next_undo, "redo": history.next_redo}
        if draft is not None:
            described["document"] = draft.describe()
        return described

    def _frame_state(self) -> Json:
        described = describe_frame(self._last_frame, self.describer) | {"ran": {}}
        return described | self.clock.describe()

    def publish(self, page: Page) -> None:
        """Sends a page what it shows, unless it has not yet seen the last update."""
        for name, view in page.views.items():
            if not view.is_unacknowledged:
                self._send_view(page, name, view)
        if page.is_unacknowledged:
            return
        values = self._values_for(page)
        history = self._history()
        update = page.take_update(values, history, self._part_news(page) | self.tuner.news(page))
        if update is None:
            return
        if "frame" in update:
            update["frame"] |= self.clock.describe()  # now: the page knows of a pause after this frame
        if page.inspected is not None:
            block = self.describer.find(page.inspected)
            if isinstance(block, Block):
                update["reason"] = describe_reason(self._last_frame, block, self.describer)
        page.is_unacknowledged = True
        page.tell(update)

    def _part_news(self, page: Page) -> Json:
        """The shader of the 3D view and its bound, if the page has older ones."""
        view, news = self.part_view, Json()
        if view is not None and view.version != page.part_version:
            news["part"] = view.describe(self.describer.id_of(view.block), with_shader=True)
            page.part_version, page.part_steepness = view.version, 0.0
        if view is not None and view.steepness not in (0.0, page.part_steepness):
            news["steepness"] = page.part_steepness = view.steepness
        return news

    def _has_values_for(self, page: Page) -> bool:
        return not page.is_unacknowledged and next(self._outdated(page), None) is not None

    def _outdated(self, page: Page) -> Iterator[tuple[str, Block, int]]:
        """The blocks whose values may have changed since the page last saw them, with their versions."""
        for id in page.wanted:
            version = self._versions.get(id, 0)
            block = self.describer.find(id)
            if version != page.versions.get(id, -1) and isinstance(block, Block) and block.home is not None:
                yield id, block, version

    def _values_for(self, page: Page) -> Json:
        """Summaries of the values that have changed since the page last saw them."""
        started = perf_counter()
        if started < self._values_due:
            return {}
        values: Json = {}
        for id, block, version in list(self._outdated(page)):
            page.versions[id] = version
            values[id] = {name: self._summary(pin) for name, pin in block.outputs.items()}
        self._values_due = perf_counter() + _VALUE_SHARE * (perf_counter() - started)
        return values

    def _summary(self, pin: Pin) -> Json | None:
        value = self.value_of(pin)
        return None if value is None else summarize(value)

    def value_of(self, pin: Pin) -> Any:
        """The value of an output as pages see it: while the clock pauses, states stay where they are."""
        value = self._held.get(pin.block) if isinstance(pin.block, State) else None
        return self._peek(pin) if value is None else np.asarray(value)

    def _send_view(self, page: Page, name: str, view: View) -> None:
        """Sends a view if the page has an older one. Pictures are JPEG while they change, and exact when they rest."""
        version = self._versions.get(view.block, 0)
        is_moving = self.clock.is_playing or version != view.shown
        if version == view.shown and (view.is_exact or is_moving):
            return
        pins = self._outputs_of(view)
        value = self.value_of(pins[view.output]) if view.output in pins else None
        was_shown = version == view.shown
        view.shown, view.is_exact = version, not is_moving
        if value is None or (was_shown and view.kind != "picture"):
            return
        others: dict[str, Any] = {}
        if view.kind == "mesh":
            others = {output: self._peek(pin) for output, pin in pins.items() if output != view.output}
        message = view_message(name, view, self._last_frame.number, value, others, exact=not is_moving)
        if message is not None:
            view.is_unacknowledged = True
            page.send(message)

    def _outputs_of(self, view: View) -> Mapping[str, Pin]:
        """The outputs of the block that a view shows."""
        block = self.describer.find(view.block)
        return block.outputs if isinstance(block, Block) and block.home is not None else {}

    def _record_points(self, pages: Iterable[Page], frame: int) -> None:
        """Notes the numbers of this frame for plots over time."""
        for view in [view for page in pages for view in page.views.values() if view.kind == "plot"]:
            pin = self._outputs_of(view).get(view.output)
            record_point(view, frame, None if pin is None else self.value_of(pin))

    def note_recordings(self) -> None:
        """Notes the pictures of this frame that pages record."""
        for pin, recording in self.recorder.running:
            if pin.block.home is None:
                self.recorder.forget(pin)
            else:
                recording.add(self._last_frame.number, self.value_of(pin))
