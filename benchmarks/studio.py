"""`./bench studio`: what people feel in the Studio, measured in Chromium: latencies, frames a second, memory, overhead.

Out: a table with limits, and `results/<date>T<time>-studio.json`. The limits are judged by medians, except where a row
says what it judges. Started by `benchmarks/__main__.py`.
"""

from __future__ import annotations

import gc
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

import livegrad as lg
from benchmarks import machine
from benchmarks.record import RESULTS, write_record
from livegrad.live.frame import Frame
from livegrad.tools.studio.open_studio import Studio

FRAME = 1.0 / 60.0
_TIMEOUT = 120_000.0  # milliseconds, of a page that hangs


@dataclass
class Row:
    """What was measured, in one unit, and the limit of one statistic."""

    name: str
    title: str
    unit: str
    samples: list[float]
    limit: float | None = None
    statistic: str = "median"
    more: dict[str, Any] = field(default_factory=dict)
    at_least: bool = False

    @property
    def statistics(self) -> dict[str, float]:
        """The figures of the row."""
        values = np.asarray(self.samples)
        named = {"median": 50.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0, "min": 0.0}
        return {name: float(np.percentile(values, share)) for name, share in named.items()}

    @property
    def is_met(self) -> bool:
        """Whether the limit is kept."""
        value = self.statistics[self.statistic]
        return self.limit is None or (value >= self.limit if self.at_least else value <= self.limit)

    def to_json(self) -> dict[str, Any]:
        """The row for the record."""
        judged = {"limit": self.limit, "judged": self.statistic, "at_least": self.at_least, "met": self.is_met}
        samples = [round(sample, 6) for sample in self.samples[:2000]]
        return {"title": self.title, "unit": self.unit, **self.statistics, **judged, **self.more, "samples": samples}

    def __str__(self) -> str:
        figures = self.statistics
        limit = "" if self.limit is None else f"{'at least' if self.at_least else 'at most'} {self.limit:g}"
        verdict = "" if self.limit is None else "met" if self.is_met else "MISSED"
        shown = "  ".join(f"{name} {figures[name]:.4g}" for name in ("median", "p99.9", "max"))
        return f"{self.name:24} {shown} {self.unit}  ({self.statistic} {limit}) {verdict}  {self.more or ''}"


# --- scenes -----------------------------------------------------------------------------------------------------------


def picture_engine(size: int = 512) -> lg.Engine:
    """A picture of size² that one number changes."""
    engine = lg.Engine()

    def picture(phase: Any = 0.5) -> Any:
        line = lg.linspace(0.0, 9.0, size)
        waves = lg.sin(line[:, None] + 4.0 * phase) * lg.cos(line[None, :])
        return lg.stack([0.5 + 0.5 * waves, 0.5 - 0.3 * waves, 0.4 + 0.2 * waves], axis=-1)

    engine.add(lg.block(picture))
    return engine


def playing_engine(blocks: int = 8) -> lg.Engine:
    """A state that counts, and blocks that read it in chains of ten."""
    engine = lg.Engine()
    count = engine.add(lg.State("count", np.float32(0.0)))
    step = engine.add(lg.block(lambda x, more=1.0: x + more, name="step"))
    engine.connect(count, step["x"])
    engine.connect(step, count["next"])
    before: Any = count
    for index in range(blocks):
        following = engine.add(lg.block(lambda x, gain=1.0: lg.sin(x * gain), name=f"sine{index}"))
        engine.connect(before if index % 10 else count, following["x"])
        following.position = (280.0 * (index % 10), 170.0 * (index // 10))
        before = following
    return engine


def part() -> lg.Part:
    """A part with one number."""
    ball = lg.shapes.sphere(lg.shapes.Parameter("radius", 0.6, lg.Control(0.2, 1.0)))
    return lg.shapes.union(lg.shapes.box((1.6, 1.2, 0.8)), ball).part(((-1, -1, -1), (1, 1, 1)), "ball")


@contextmanager
def opened(browser: Browser, studio: Studio) -> Iterator[Page]:
    """A page of the Studio."""
    page = browser.new_page(viewport={"width": 1600, "height": 900})
    page.set_default_timeout(_TIMEOUT)
    page.goto(studio.url)
    try:
        yield page
    finally:
        page.close()


# --- rows -------------------------------------------------------------------------------------------------------------

# Turns a slider and waits until the canvas has another picture and the browser has drawn it.
_TURN = """async ([slider, canvas, attribute, count]) => {
    const times = [];
    const drawn = () => new Promise((resolve) => {
        const observer = new MutationObserver(() => {
            observer.disconnect();
            resolve();
        });
        observer.observe(canvas, { attributes: true, attributeFilter: [attribute] });
    });
    for (let index = 0; index < count; index++) {
        await new Promise((resolve) => setTimeout(resolve, 200));
        const next = drawn();
        const started = performance.now();
        slider.value = String(Number(slider.min) + (0.1 + 0.8 * ((index * 7) % 11) / 11) * (slider.max - slider.min));
        slider.dispatchEvent(new Event("input", { bubbles: true }));
        await next;
        times.push(performance.now() - started);
    }
    return times;
}"""


def slider_to_frame(browser: Browser, quick: bool) -> Row:
    """From a slider's message to the picture of the server on the screen, beyond the frame of the engine."""
    count = 5 if quick else 60
    engine = picture_engine()
    phase = engine.graph.blocks["picture"]["phase"]
    frames = []
    for index in range(30):
        engine.set(phase, 0.01 * index)
        started = time.perf_counter()
        _ = engine.step().ok
        frames.append(1e3 * (time.perf_counter() - started))
    own = float(np.median(frames))
    with lg.studio(engine, open_browser=False) as studio, opened(browser, studio) as page:
        canvas = page.get_by_label("picture of picture result")
        page.wait_for_function("() => document.querySelector('figure canvas')?.dataset.format === 'rgba'")
        slider = page.get_by_role("slider", name="picture phase")
        arguments = [slider.element_handle(), canvas.element_handle(), "data-frame", count]
        times: list[float] = page.evaluate(_TURN, arguments)
    beyond = [sample - own for sample in times]
    title = "slider to shown picture of 512², beyond the frame of the engine"
    return Row("slider_to_frame", title, "ms", beyond, 25.0, more={"engine_ms": round(own, 3)})


def part_first_picture(browser: Browser, quick: bool) -> Row:
    """From a slider to the first coarse picture of a part, which the browser draws."""
    count = 4 if quick else 40
    with lg.studio(part(), open_browser=False) as studio, opened(browser, studio) as page:
        page.wait_for_function("() => document.querySelector('[data-picture]')?.dataset.picture === 'fine'")
        slider = page.get_by_role("slider", name="distance radius")
        view = page.locator("[data-picture]")
        script = _TURN.replace("setTimeout(resolve, 200)", "setTimeout(resolve, 60)").replace(
            "const next = drawn();",
            "while (canvas.dataset.picture !== 'fine') await new Promise((r) => setTimeout(r, 20));\n"
            "const next = drawn();",
        )
        times = page.evaluate(script, [slider.element_handle(), view.element_handle(), "data-picture", count])
    return Row("part_first_picture", "slider to a coarse picture of a part", "ms", times, 50.0)


def frames_while_dragging(browser: Browser, quick: bool) -> Row:
    """Pictures of 512² that a page shows in a second while a slider moves in every animation frame."""
    with lg.studio(picture_engine(), open_browser=False) as studio, opened(browser, studio) as page:
        page.wait_for_function("() => document.querySelector('figure canvas')?.dataset.format === 'rgba'")
        slider = page.get_by_role("slider", name="picture phase").element_handle()
        canvas = page.get_by_label("picture of picture result").element_handle()
        rates: list[float] = page.evaluate(
            """async ([slider, canvas, seconds]) => {
                let shown = 0, last = "";
                const rates = [];
                let window = performance.now(), count = 0;
                const ends = window + 1000 * seconds;
                while (performance.now() < ends) {
                    slider.value = String(((count++ * 0.013) % 1));
                    slider.dispatchEvent(new Event("input", { bubbles: true }));
                    await new Promise(requestAnimationFrame);
                    if (canvas.dataset.frame !== last) shown++;
                    last = canvas.dataset.frame;
                    if (performance.now() - window >= 1000) {
                        rates.push(1000 * shown / (performance.now() - window));
                        [shown, window] = [0, performance.now()];
                    }
                }
                return rates;
            }""",
            [slider, canvas, 2 if quick else 10],
        )
    return Row("frames_while_dragging", "pictures of 512² while dragging", "frames/s", rates, 30.0, at_least=True)


class _Clock:
    """Notes when frames end."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def edited(self, edit: str, arguments: tuple[Any, ...]) -> None:
        pass

    def frame_ended(self, frame: Frame) -> None:
        self.times.append(time.perf_counter())


def steady_frames(browser: Browser, quick: bool) -> Row:
    """The intervals of a loop of 60 Hz while a page makes 100 edits a minute."""
    seconds = 3.0 if quick else 30.0
    engine, clock = playing_engine(), _Clock()
    stop = engine.listen(clock)
    with lg.studio(engine, open_browser=False) as studio, opened(browser, studio) as page:
        page.get_by_role("button", name="pause").wait_for()
        slider = page.get_by_role("slider", name="step more").element_handle()
        page.wait_for_timeout(1000)
        clock.times.clear()
        edits = """async ([slider, edits]) => {
            for (let index = 0; index < edits; index++) {
                slider.value = String(0.5 + 0.01 * index);
                slider.dispatchEvent(new Event("input", { bubbles: true }));
                slider.dispatchEvent(new Event("change", { bubbles: true }));
                await new Promise((resolve) => setTimeout(resolve, 600));
            }
        }"""
        page.evaluate(edits, [slider, round(seconds / 0.6)])
        intervals = 1e3 * np.diff(clock.times)
    stop()
    title = "interval of frames at 60 Hz under 100 edits a minute"
    more = {"late_over_25ms": int((intervals > 25.0).sum()), "frames": len(intervals)}
    return Row("steady_frames", title, "ms", intervals.tolist(), 1e3 * FRAME * 1.02, more=more)


def thousand_nodes(browser: Browser, quick: bool) -> Row:
    """Animation frames a second of a page with 1,000 nodes whose values change."""
    with lg.studio(playing_engine(1000), open_browser=False) as studio, opened(browser, studio) as page:
        page.locator(".svelte-flow__node").first.wait_for()
        page.wait_for_timeout(3000)
        rates: list[float] = page.evaluate(
            """async (seconds) => {
                const rates = [];
                for (let second = 0; second < seconds; second++) {
                    const started = performance.now();
                    let frames = 0;
                    while (performance.now() - started < 1000) { await new Promise(requestAnimationFrame); frames++; }
                    rates.push(1000 * frames / (performance.now() - started));
                }
                return rates;
            }""",
            2 if quick else 8,
        )
        shown = page.locator(".svelte-flow__node").count()
    more = {"drawn": shown}
    return Row("thousand_nodes", "1,000 nodes with live values", "frames/s", rates, 30.0, more=more, at_least=True)


def _resident() -> float:
    """Megabytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def hour_of_messages(browser: Browser, quick: bool) -> Row:
    """How much the memory grows over an hour's worth of numbers, 60 a second."""
    count = 2_000 if quick else 216_000
    engine = picture_engine(64)
    with lg.studio(engine, open_browser=False) as studio, opened(browser, studio) as page:
        slider = page.get_by_role("slider", name="picture phase").element_handle()
        turn = """async ([slider, count]) => {
            const before = performance.memory?.usedJSHeapSize ?? 0;
            for (let index = 0; index < count; index++) {
                slider.value = String((index * 0.0137) % 1);
                slider.dispatchEvent(new Event("input", { bubbles: true }));
                if (index % 50 === 49) await new Promise(requestAnimationFrame);
            }
            return ((performance.memory?.usedJSHeapSize ?? 0) - before) / 1e6;
        }"""
        page.evaluate(turn, [slider, count // 20])
        page.wait_for_timeout(500)
        gc.collect()
        before = _resident()
        heap = page.evaluate(turn, [slider, count])
        page.wait_for_timeout(500)
        gc.collect()
        grown = _resident() - before
    more = {"messages": count, "page_heap_mb": round(heap, 1)}
    return Row("hour_of_messages", "growth over an hour's worth of numbers", "MB", [grown], 10.0, more=more)


def overhead_of_a_page(browser: Browser, quick: bool) -> Row:
    """How much processor time a frame of the program takes more when a page is attached, in percent of 1/60 s."""
    frames = 30 if quick else 600

    def seconds_of_frames(engine: lg.Engine) -> float:
        started = time.process_time()
        for _ in range(frames):
            due = time.perf_counter() + FRAME
            _ = engine.step().ok
            time.sleep(max(0.0, due - time.perf_counter()))
        return (time.process_time() - started) / frames

    shares = []
    for _ in range(1 if quick else 4):
        engine = playing_engine()
        alone = seconds_of_frames(engine)
        with lg.studio(engine, open_browser=False, drive=False) as studio, opened(browser, studio) as page:
            page.locator(".svelte-flow__node").first.wait_for()
            attached = seconds_of_frames(engine)
        shares.append(100.0 * (attached - alone) / FRAME)
    return Row("overhead_of_a_page", "processor time of a page, of a frame at 60 Hz", "%", shares, 5.0)


ROWS: Sequence[Callable[[Browser, bool], Row]] = (
    slider_to_frame,
    part_first_picture,
    frames_while_dragging,
    steady_frames,
    thousand_nodes,
    hour_of_messages,
    overhead_of_a_page,
)


def main(*, quick: bool, keep: bool, check: bool, names: Sequence[str] = (), results: Path = RESULTS) -> int:
    """Measures, prints, and keeps the results. Returns the exit status: 1 if `check` and a limit is missed."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        sys.exit("./bench studio needs a browser: apt-get install chromium")
    rows: list[Row] = []
    options = ["--no-sandbox", "--enable-unsafe-swiftshader", "--enable-precise-memory-info"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=options)
        for measure in ROWS:
            if not names or measure.__name__ in names:
                rows.append(measure(browser, quick))
                print(rows[-1], flush=True)
        version = browser.version
        browser.close()
    if keep:
        record = {"browser": f"Chromium {version}", "studio": {row.name: row.to_json() for row in rows}}
        path = write_record("studio", machine.describe({}), {}, results, **record)
        print(f"wrote {path.name}")
    return int(check and not all(row.is_met for row in rows))
