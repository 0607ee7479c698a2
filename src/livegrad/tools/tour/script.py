"""The script: what happens in each frame, and a ledger of the cost of each edit.

`perform` changes parameters, edits the body of a kernel and adds a block while the engine runs. It records for each
edit the update level, the time of the frame, and which steps ran.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import livegrad as lg
from livegrad.tools.tour import picture
from livegrad.tools.tour.fit import STEPS
from livegrad.tools.tour.stage import Stage
from livegrad.tools.tour.view import make_view

FRAMES_PER_SECOND = 12
Progress = Callable[[str, float], None]
Picture = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Entry:
    """One edit of the ledger. The seconds cover the whole frame: planning, compiling, running, reading."""

    edit: str
    level: str
    prepared: int  # functions that were compiled, or fitted to other sizes
    seconds: float
    ran: tuple[str, ...]
    kept: tuple[str, ...]
    computed: tuple[str, ...]  # nodes of the view that were computed; the others were in its cache
    explanation: str


@dataclass(frozen=True)
class Scale:
    """The scale of the tour: pixels of the animation, and frames of each act."""

    size: tuple[int, int] = (600, 400)
    fit: int = 36
    turn: int = 10
    hold: int = 14
    feature_size: float = 0.06  # of the mesh


@dataclass
class Show:
    """A stage with its view, the frames that were shown, and the ledger."""

    stage: Stage
    size: tuple[int, int]
    seconds: float = 0.0  # animation time, which rotates the camera
    clock: float = 0.0  # real time, which nothing reads
    frames: list[Picture] = field(default_factory=list)
    ledger: list[Entry] = field(default_factory=list)
    shots: list[Picture] = field(default_factory=list)  # what was seen after each edit of the ledger
    view: Any = field(default_factory=make_view)

    def frame(self, edit: str = "", *, turn: bool = False) -> None:
        """Shows one frame. The ledger records an edit with a name."""
        self.frames.append(self.picture(edit, turn=turn))

    def picture(self, edit: str = "", *, turn: bool = False) -> Picture:
        """Like `frame`, for a picture outside of the animation."""
        self.clock += 1.0 / FRAMES_PER_SECOND
        self.seconds += turn / FRAMES_PER_SECOND
        with self.view.events() as log:
            seen = self.view.evaluate(animation_time=self.seconds, footprint=self.size, real_time=self.clock)
        self.stage.look(seen)
        started = time.perf_counter()
        done = self.stage.engine.step()
        colors = self.stage.colors()
        taken = time.perf_counter() - started
        width, height = self.size
        seen_now = np.rint(colors * 255.0).astype(np.uint8).reshape(height, width, 3)
        if edit:
            self.ledger.append(self._entry(edit, done, taken, log))
            self.shots.append(seen_now)
        return seen_now

    def _entry(self, edit: str, done: lg.live.Frame, taken: float, log: Any) -> Entry:
        engine = self.stage.engine
        steps = engine.plan.steps if engine.plan is not None else ()
        kept = tuple(key for key in steps if key not in done.ran)
        computed = tuple(name for name in log.names("computed") if name != "view")
        return Entry(edit, done.level.name.lower(), done.prepared, taken, done.ran, kept, computed, engine.explain())


def perform(stage: Stage, scale: Scale, progress: Progress) -> tuple[Show, Picture]:
    """The whole show, and a picture of its end at twice the size."""
    show = Show(stage, scale.size)
    progress("the first frame", 0.03)
    show.frame("build the graph and show it")
    _fit(show, scale.fit, progress)
    progress("edits while it runs", 0.4)
    _turn_parameters(show, scale.turn)
    lg.live.edit(stage.engine, stage.shade, picture.engraved)
    show.frame("edit a kernel: another body for shade")
    _turn_camera(show, scale.hold)
    progress("edits while it runs", 0.5)
    stage.add_ink()
    show.frame("add a block: ink, between shade and finish")
    _turn_camera(show, scale.hold)
    show.size = (2 * scale.size[0], 2 * scale.size[1])
    return show, show.picture("twice the picture: all sizes change")


def _fit(show: Show, frames: int, progress: Progress) -> None:
    """Increases the number of descent steps, `fit.count`, while the camera rotates."""
    stage = show.stage
    for frame in range(1, frames + 1):
        progress("the fit, while the camera turns", 0.05 + 0.35 * frame / frames)
        steps = max(1, round(STEPS * (frame / frames) ** 2))
        stage.engine.set(stage.fit["count"], steps)
        show.frame(f"set fit.count to {steps}, and the camera" if frame == frames else "", turn=True)


def _turn_parameters(show: Show, frames: int) -> None:
    """Changes hot parameters of blocks, one after the other, with a fixed camera."""
    stage, engine = show.stage, show.stage.engine
    show.frame("turn the camera alone", turn=True)
    show.frame("nothing: only the clock goes on")
    for frame in range(1, frames + 1):
        engine.set(stage.shade["heat"], np.float32(1.0 - frame / frames))
        show.frame()
    for frame in range(1, frames + 1):
        engine.set(stage.shade["warmth"], np.float32(frame / frames))
        show.frame("set shade.warmth" if frame == frames else "")
    for frame in range(1, frames + 1):
        engine.set(stage.march["swell"], np.float32(0.05 * (1.0 - abs(2.0 * frame / frames - 1.0))))
        show.frame("set march.swell" if frame == frames // 2 else "")


def _turn_camera(show: Show, frames: int) -> None:
    for _ in range(frames):
        show.frame(turn=True)
