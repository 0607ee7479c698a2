"""A soak of the live engine: random edits of every kind, frame after frame, compared with a fresh engine.

    python -m benchmarks.engine_soak [--frames 100000] [--every 1000] [--seed 0] [--backend cpu] [--seconds 3600]

The soak keeps a description of the graph beside the edited engine. At intervals it builds a fresh engine from the
description, with the current states, and all values of the next frame must be equal, bit by bit. It prints resident
memory, and on a GPU the driver's count; the last line is a record for `benchmarks.soak_record`.
"""

import argparse
import gc
import json
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.soak_graphs import BODIES, Described, DescribedGraph, calls_of, feed, make_blocks, realise, set_number
from livegrad.live.blocks import edit
from livegrad.live.graph.block import State
from livegrad.live.graph.sources import ExternalBuffer
from livegrad.runtime.cuda.result_memory import memory_in_use

SIZES = (3, 5, 8)
MOST_BLOCKS = 14


# --- edits -----------------------------------------------------------------------------------------------------------


class Soak:
    """An engine, its description, and random edits of both."""

    def __init__(self, seed: int, backend: str = "cpu", reuse_memory: bool = False) -> None:
        self.random = random.Random(seed)
        self.backend = backend
        self.description = DescribedGraph()
        self.engine, self.made, self.states = realise(self.description, backend, {}, reuse_memory)
        self.count = 0
        self.edits: Counter[str] = Counter()
        self.levels: Counter[str] = Counter()
        self.kinds = ["mix", "mix", "loop", "gate", "pair", "loss", "call"]
        for kind in self.kinds:
            self.add_block(kind)
        self.add_state()

    def array(self) -> np.ndarray:
        return np.array([self.random.randint(-4, 4) for _ in range(self.description.size)], np.float32)

    def names(self, *kinds: str) -> list[str]:
        return [name for name, block in self.description.blocks.items() if not kinds or block.kind in kinds]

    def sources(self, name: str | None) -> list[str]:
        """Possible sources of a block without a cycle: earlier blocks and states. Append buffers differ in size."""
        order = list(self.description.blocks)
        before = order if name is None else order[: order.index(name)]
        return [source for source in before if self.description.blocks[source].kind not in ("pair", "loss")] + list(
            self.states
        )

    def random_feed(self, name: str | None) -> Any:
        choice = self.random.random()
        sources = self.sources(name)
        if sources and choice < 0.6:
            return self.random.choice(sources)
        if choice < 0.8:
            return ExternalBuffer(self.array(), version=0)
        return self.array()

    def add_block(self, kind: str | None = None) -> None:
        kind = kind or self.random.choice(self.kinds)
        if len(self.description.blocks) >= MOST_BLOCKS:
            return self.remove_block()
        name = f"{kind}{self.count}"
        self.count += 1
        block = Described(kind)
        if kind == "loop":
            block.numbers["count"] = self.random.randint(0, 3)
        elif kind == "gate":
            block.numbers["condition"] = bool(self.random.randint(0, 1))
        elif kind == "call":
            block.numbers["gain"] = np.float32(2)
        block.feeds = {pin: self.random_feed(None) for pin in (("x", "y") if kind in BODIES else ("x",))}
        self.description.blocks[name] = block
        self.made[name] = make_blocks(self.engine, name, block)
        for pin, value in block.numbers.items():
            set_number(self.engine, self.made[name], pin, value)
        for pin, what in block.feeds.items():
            feed(self.engine, self.made, self.states, name, pin, what)
        return None

    def remove_block(self) -> None:
        kept = set(self.description.states.values())
        names = [name for name in self.names() if name not in kept]
        if len(names) < 4:
            return
        name = self.random.choice(names)
        del self.description.blocks[name]
        gone = self.made.pop(name)
        first = gone["in"] if isinstance(gone["in"], list) else [gone["in"]]
        for block in (*first, gone["out"].block, gone.get("also")):
            if block is not None and block.home is not None:
                self.engine.remove(block)
        for other, block in self.description.blocks.items():
            for pin, what in block.feeds.items():
                if what is not None and isinstance(what, str) and what == name:
                    self.rewire(other, pin)

    def rewire(self, name: str | None = None, pin: str | None = None) -> None:
        name = name or self.random.choice(self.names())
        block = self.description.blocks[name]
        pin = pin or self.random.choice(list(block.feeds))
        block.feeds[pin] = self.random_feed(name)
        feed(self.engine, self.made, self.states, name, pin, block.feeds[pin])

    def add_state(self) -> None:
        following = self.names("mix", "loop", "gate", "call")
        if not self.names("mix", "loop", "gate") or len(self.states) >= 3:
            return self.remove_state()
        name = f"state{self.count}"
        self.count += 1
        self.states[name] = self.engine.add(State(name, np.zeros(self.description.size, np.float32)))
        self.description.states[name] = self.random.choice(following)
        self.engine.connect(self.made[self.description.states[name]]["out"], self.states[name]["next"])
        reader = self.random.choice(self.names("mix", "loop", "gate"))
        self.description.blocks[reader].feeds["y"] = name
        feed(self.engine, self.made, self.states, reader, "y", name)
        return None

    def remove_state(self) -> None:
        if not self.states:
            return
        name = self.random.choice(list(self.states))
        self.engine.remove(self.states.pop(name))
        del self.description.states[name]
        for other, block in self.description.blocks.items():
            for pin, what in block.feeds.items():
                if isinstance(what, str) and what == name:
                    self.rewire(other, pin)

    def reset_state(self) -> None:
        if self.states:
            self.engine.reset(self.random.choice(list(self.states.values())))

    def set_a_parameter(self) -> None:
        name = self.random.choice(self.names())
        block = self.description.blocks[name]
        value: Any = float(self.random.randint(-3, 3)) / 2
        pin = {"pair": "limit"}.get(block.kind, "gain")
        if block.kind == "call":
            value = np.float32(value)
        if block.kind == "loop" and self.random.random() < 0.5:
            pin, value = "count", self.random.randint(0, 3)
        if block.kind == "gate" and self.random.random() < 0.5:
            pin, value = "condition", bool(self.random.randint(0, 1))
        block.numbers[pin] = value
        set_number(self.engine, self.made[name], pin, value)

    def change_contents(self) -> None:
        for name, block in self.description.blocks.items():
            for pin, what in block.feeds.items():
                if isinstance(what, ExternalBuffer) and self.random.random() < 0.5:
                    what.array[...] = self.array()
                    what.touch()
                elif isinstance(what, np.ndarray) and self.random.random() < 0.5:
                    block.feeds[pin] = self.array()
                    feed(self.engine, self.made, self.states, name, pin, block.feeds[pin])

    def bind_other_memory(self) -> None:
        for name, block in self.description.blocks.items():
            for pin, what in block.feeds.items():
                if isinstance(what, ExternalBuffer) and self.random.random() < 0.5:
                    block.feeds[pin] = ExternalBuffer(self.array(), version=0)
                    feed(self.engine, self.made, self.states, name, pin, block.feeds[pin])

    def resize(self) -> None:
        """Resizes everything at once. States are recreated, because they keep their sizes."""
        while self.states:
            self.remove_state()
        self.description.size = self.random.choice(SIZES)
        for name, block in self.description.blocks.items():
            for pin, what in block.feeds.items():
                if not isinstance(what, str):
                    block.feeds[pin] = self.array()
                    feed(self.engine, self.made, self.states, name, pin, block.feeds[pin])

    def edit_code(self) -> None:
        if not self.names("mix", "loop", "gate", "call"):
            return self.add_block("mix")
        name = self.random.choice(self.names("mix", "loop", "gate", "call"))
        block = self.description.blocks[name]
        bodies = calls_of(self.engine) if block.kind == "call" else BODIES[block.kind]
        block.body = self.random.randrange(len(bodies))
        edit(self.engine, self.made[name]["inner"], bodies[block.body])
        return None

    def fail(self) -> None:
        """An invalid edit: the frame reports it, the running graph continues, and the next edit reverts it."""
        if not self.names("mix"):
            return self.add_block("mix")
        name = self.random.choice(self.names("mix"))
        inner = self.made[name]["inner"]
        before = self.description.blocks[name].body
        edit(self.engine, inner, lambda x, y, gain=1.0: x.no_such_thing())
        if self.engine.step().ok:
            raise AssertionError("an invalid edit was accepted")
        edit(self.engine, inner, BODIES["mix"][before])
        return None

    def move_time(self) -> None:
        self.description.time = float(self.random.randint(0, 5))
        self.engine.set_feature("animation_time", self.description.time)

    def toggle_profiling(self) -> None:
        self.engine.profiling = "off" if self.engine.profiling == "block" else "block"

    def edit(self) -> None:
        """One random edit; cheap edits are more frequent."""
        choices = {
            self.set_a_parameter: 60, self.change_contents: 8, self.move_time: 8, self.bind_other_memory: 4,
            self.edit_code: 6, self.rewire: 4, self.add_block: 3, self.remove_block: 2, self.add_state: 1,
            self.reset_state: 1, self.resize: 0.5, self.fail: 0.5, self.toggle_profiling: 0.5,
        }  # fmt: skip
        action = self.random.choices(list(choices), list(choices.values()))[0]
        self.edits[action.__name__] += 1
        action()

    # --- frames ---

    def frame(self) -> None:
        """Some edits, one frame."""
        for _ in range(self.random.choice((0, 1, 1, 1, 2, 3))):
            self.edit()
        frame = self.engine.step()
        if not frame.ok:
            raise AssertionError(self.engine.explain())
        self.levels[frame.level.name] += 1

    def compare(self, backend: str | None = None) -> int:
        """Compares one frame with that of a fresh engine, bit by bit; returns the number of compared values.

        Values of another backend may differ by rounding.
        """
        rounding = 0.0 if backend in (None, self.backend) else 1e-5
        self.engine.step()  # applies pending edits to new states
        states = {name: self.engine.read(state) for name, state in self.states.items()}
        fresh, fresh_blocks, fresh_states = realise(self.description, backend or self.backend, states)
        for engine in (self.engine, fresh):
            if not engine.step().ok:
                raise AssertionError(engine.explain())
        compared = 0
        pairs = [
            (self.made[name][part], fresh_blocks[name][part])
            for name in fresh_blocks
            for part in ("out", "in", "also")
            if part in fresh_blocks[name]
        ]
        for edited, other in pairs:
            for here, there in zip(outputs_of(edited), outputs_of(other), strict=True):
                same(self.engine.read(here), fresh.read(there), rounding, str(here))
                compared += 1
        for name, state in self.states.items():
            same(self.engine.read(state), fresh.read(fresh_states[name]), rounding, name)
        fresh.close()
        return compared


def same(here: np.ndarray, there: np.ndarray, rounding: float, what: str) -> None:
    """Raises if two values differ."""
    if rounding:
        np.testing.assert_allclose(here, there, rtol=rounding, atol=rounding, err_msg=what)
    else:
        np.testing.assert_array_equal(here, there, err_msg=what)


def outputs_of(part: Any) -> list[Any]:
    """All outputs of a block, of several, or of the block of a pin."""
    blocks = part if isinstance(part, list) else [getattr(part, "block", part)]
    return [pin for block in blocks for pin in block.outputs.values()]


def resident_bytes() -> int:
    """The resident memory of this process, or its peak if the system does not report the current value."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Random edits of a live engine, compared with fresh ones.")
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--every", type=int, default=1_000, help="frames between comparisons")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="stop after the first comparison from then on"
    )
    options = parser.parse_args(arguments)
    soak, start = Soak(options.seed, options.backend), time.perf_counter()
    record: dict[str, Any] = {"seed": options.seed, "frames": 0, "compared": 0, "resident_mib": [], "device_mib": []}
    while record["frames"] < options.frames and time.perf_counter() - start < options.seconds:
        for _ in range(options.every):
            soak.frame()
        record["frames"] += options.every
        record["compared"] += soak.compare()
        gc.collect()
        record["resident_mib"].append(round(resident_bytes() / 2**20, 2))
        if options.backend == "cuda":
            record["device_mib"].append(round(memory_in_use()[0] / 2**20, 3))
        shown = ", ".join(f"{record[name][-1]:.1f} MiB" for name in ("resident_mib", "device_mib") if record[name])
        seconds = time.perf_counter() - start
        print(f"frame {record['frames']:7,}  {seconds:7.1f} s  {shown}  {record['compared']:7,} equal", flush=True)
    soak.engine.close()
    print(json.dumps(record | {"seconds": time.perf_counter() - start, "levels": soak.levels, "edits": soak.edits}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
