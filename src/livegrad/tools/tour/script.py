"""Runs the frames of the tour, and records the cost of each edit in a ledger.

`perform` changes parameters, edits the body of a kernel and adds a block while the engine runs. For each edit, it
records the update level, the time of the frame, and the steps that ran.
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
    """One edit in the ledger. `seconds` is the time of the whole frame: planning, compiling, running, reading."""

    edit: str
    level: str
    prepared: int  # functions that were compiled, or bound to other sizes
    seconds: float
    ran: tuple[str, ...]
    kept: tuple[str, ...]
    computed: tuple[str, ...]  # nodes of the view that were computed; the others were cached
    explanation: str


@dataclass(frozen=True)
class Scale:
    """The scale of the tour: the size of the animation in pixels, and the frames of each act."""

    size: tuple[int, int] = (600, 400)
    fit: int = 36
    turn: int = 10
    hold: int = 14
    feature_size: float = 0.06  # of the mesh


@dataclass
class Show:
    """A stage with its view, the recorded frames, and the ledger."""

    stage: Stage
    size: tuple[int, int]
    seconds: float = 0.0  # animation time, which rotates the camera
    clock: float = 0.0  # real time, which nothing reads
    frames: list[Picture] = field(default_factory=list)
    ledger: list[Entry] = field(default_factory=list)
    shots: list[Picture] = field(default_factory=list)  # the picture after each edit in the ledger
    view: Any = field(default_factory=make_view)

    def frame(self, edit: str = "", *, turn: bool = False) -> None:
        """Renders one frame of the animation. An edit with a name is recorded in the ledger."""
        self.frames.append(self.picture(edit, turn=turn))

    def picture(self, edit: str = "", *, turn: bool = False) -> Picture:
        """Renders a picture like `frame`, without adding it to the animation."""
        self.clock += 1.0 / FRAMES_PER_SECOND
        self.seconds += turn / FRAMES_PER_SECOND
        with self.view.events() as log:
            view = self.view.evaluate(animation_time=self.seconds, footprint=self.size, real_time=self.clock)
        self.stage.set_view(view)
        started = time.perf_counter()
        frame = self.stage.engine.step()
        colors = self.stage.colors()
        seconds = time.perf_counter() - started
        width, height = self.size
        picture = np.rint(colors * 255.0).astype(np.uint8).reshape(height, width, 3)
        if edit:
            self.ledger.append(self._entry(edit, frame, seconds, log))
            self.shots.append(picture)
        return picture

    def _entry(self, edit: str, frame: lg.live.Frame, seconds: float, log: Any) -> Entry:
        engine = self.stage.engine
        steps = engine.plan.steps if engine.plan is not None else ()
        kept = tuple(key for key in steps if key not in frame.ran)
        computed = tuple(name for name in log.names("computed") if name != "view")
        level = frame.level.name.lower()
        return Entry(edit, level, frame.prepared, seconds, frame.ran, kept, computed, engine.explain())


def perform(stage: Stage, scale: Scale, progress: Progress) -> tuple[Show, Picture]:
    """Runs all frames; returns the show, and a picture of its end at twice the size."""
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
    show.frame("nothing: only the clock advances")
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
