"""Threads that edit, step and read one live engine: every reading is whole, and that of a frame there was.

`run_one(seed)` gives each editing thread a lane of blocks of its own. A thread numbers its edits, and the lane computes
arrays that say which edits they are made from: what is read is checked against that, whoever steps and reads when.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import cycle
from operator import attrgetter
from typing import Any

import numpy as np

import livegrad as lg
from tests.live.guarded_description import guarded_descriptions

SHORT = 6
_LANES, _EDITS, _SIZE = 3, 12, 257
_LONG = 60.0  # seconds: only a deadlock takes as long
_BODIES: list[tuple[Callable[..., Any], int]] = [
    (lambda x, y, gain=1.0: x + y * gain, 0),
    (lambda x, y, gain=1.0: y * gain + x + 1000.0, 1000),
    (lambda x, y, gain=1.0: x - 0.0 + y * gain + 2000.0, 2000),
]


def run_one(seed: int, *, backend: str = "cpu", reuse_memory: bool = False) -> Mapping[str, int]:
    """One run of all threads; raises AssertionError at a reading that no frame has computed."""
    with guarded_descriptions():
        roaming = _Roaming()
        engine = lg.Engine(backend, reuse_memory=reuse_memory)
        counts = _Run(engine, seed, roaming).run()  # threads that wait for each other keep the engine from being closed
    engine.close()
    return counts


class _Roaming:
    """A composite that all threads put into the engine, edit and take out, each in its own way.

    It is made before the engine: whoever takes locks in the order in which they were made takes its lock first.
    """

    def __init__(self) -> None:
        self.composite = lg.Composite("roaming")
        self.double = self.composite.graph.add(lg.block(lambda x: x * 2.0, name="double"))
        self.composite.expose(self.double["result"])
        self.give(0.0)

    def give(self, value: float) -> None:
        """Another number."""
        self.composite.graph.set(self.double["x"], np.full(_SIZE, value))

    def move(self, engine: lg.Engine, chance: random.Random) -> None:
        """Puts it there or takes it away; another thread may have done so."""
        with contextlib.suppress(lg.UsageError):
            (engine.add if chance.random() < 0.6 else engine.remove)(self.composite)


class _Lane:
    """Blocks that one thread edits. Edit n leaves x + y·gain = n in every element, and the body adds thousands."""

    def __init__(self, engine: lg.Engine, name: str, chance: random.Random, roaming: _Roaming) -> None:
        self.engine, self.name, self.chance, self.roaming = engine, name, chance, roaming
        self.number = 0  # of the last edit
        self.thousands = {0: 0}  # by edit, of the body it left
        self.body = engine.add(lg.block(_BODIES[0][0], name=name))
        self.counts: Counter[str] = Counter()
        self._gain, self._y = 1.0, 0.0
        self._give("x", 0.0)
        self._give("y", 0.0)
        self.gate = self._add_gate()

    def _add_gate(self) -> lg.If:
        """A region behind the lane, which hands its values on."""
        inside = lg.Composite(f"{self.name} inside")
        same = inside.graph.add(lg.block(lambda x: x * 1.0, name="same"))
        inside.expose(same["x"]), inside.expose(same["result"])
        gate = self.engine.add(lg.If(f"{self.name} gate", inside))
        self.engine.set(gate["condition"], True)
        self.engine.connect(self.body, gate["x"])
        return gate

    def _give(self, pin: str, value: float) -> None:
        self.engine.set(self.body[pin], np.full(_SIZE, value))

    def edit(self) -> None:
        """The next edit; some are made of several calls, which no frame may see some of."""
        number = self.number + 1
        kind = self.chance.choice(("x", "y and x", "gain and x", "code", "bind", "block", "inside", "parameter"))
        thousands = self.thousands[self.number]
        body, own = self.chance.choice(_BODIES)
        if kind == "code":
            thousands = own
        self.thousands[number] = thousands  # before the edit: a frame may take it at once
        self.number = number
        if self.chance.random() < 0.3:
            self.roaming.move(self.engine, self.chance)
        with self.engine.edits():
            if self.chance.random() < 0.3:
                self.roaming.give(float(number))
            if self.chance.random() < 0.2:
                self.roaming.move(self.engine, self.chance)
            if kind == "code":
                lg.live.edit(self.engine, self.body, body)
            elif kind == "y and x":
                self._y = float(self.chance.randint(-9, 9))
                self._give("y", self._y)
            elif kind in ("gain and x", "parameter"):
                self._gain = float(self.chance.randint(-9, 9))
                self.engine.set(self.body["gain"], self._gain)
            elif kind == "block":
                self._replace_block(self.engine.graph, self.body)
            elif kind == "inside":
                inside = self.gate.bodies["then"].graph
                self._replace_block(inside, inside.blocks["same"])
            x = np.full(_SIZE, number - self._y * self._gain)
            if kind == "bind":
                self.engine.bind(self.body["x"], lg.live.ExternalBuffer(x, version=0))
            else:
                self.engine.set(self.body["x"], x)
        self.counts[f"{kind}|thread"] += 1

    def _replace_block(self, graph: Any, source: lg.live.Block) -> None:
        """Adds or removes a block behind one of a graph: other threads read while the plan is built anew."""
        name = f"{self.name}+"
        known = graph.blocks.get(name)
        if known is not None:
            graph.remove(known)
            return
        behind = graph.add(lg.block(lambda x: x + 1.0, name=name))
        graph.connect(source, behind["x"])

    def number_of(self, value: np.ndarray[Any, Any]) -> int:
        """Which edit a reading is made from."""
        first = value[0]
        assert value.shape == (_SIZE,), f"{self.name}: read an array of shape {value.shape}"
        assert np.all(value == first), f"{self.name}: a torn reading: {np.unique(value)}"
        number, thousands = int(first) % 1000, int(first) // 1000 * 1000
        known = self.thousands.get(number)
        assert known == thousands, f"{self.name}: read {first}, which no edit leaves"
        return number


class _Run:
    """The threads of one run, and what went wrong in them."""

    def __init__(self, engine: lg.Engine, seed: int, roaming: _Roaming) -> None:
        self.engine, self.roaming = engine, roaming
        self.lanes = [_Lane(engine, f"lane{n}", random.Random(seed * 100 + n), roaming) for n in range(_LANES)]
        clock = engine.add(lg.State("clock", np.zeros(_SIZE)))
        tick = engine.add(lg.block(lambda x: x + 1.0, name="tick"))
        engine.connect(clock, tick["x"])
        engine.connect(tick, clock["next"])
        self.clock = clock
        engine.step()
        self.errors: list[BaseException] = []
        self.left = 0  # editors at work
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    def run(self) -> Mapping[str, int]:
        """Starts all threads, waits for them, and looks at the last frame."""
        work = [(self._edit, lane) for lane in self.lanes] + [(self._step, None), (self._read, None)] * 2
        threads = [threading.Thread(target=self._guard, args=own, daemon=True) for own in work]
        self.left = len(self.lanes)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_LONG)
        assert not any(thread.is_alive() for thread in threads), "threads wait for each other"
        if self.errors:
            raise AssertionError(str(self.errors[0])) from self.errors[0]
        frame = self.engine.step()
        assert frame.ok, frame.problems
        for lane in self.lanes:
            for block in (lane.body, lane.gate):
                found = lane.number_of(self.engine.read(block))
                assert found == lane.number, f"{block.name}: edit {lane.number} was made, {found} was read"
            self.counts.update(lane.counts)
        self._compare_roaming()
        return {**self.counts, "edits": _LANES * _EDITS}

    def _compare_roaming(self) -> None:
        if self.engine.graph.blocks.get("roaming") is None:
            self.engine.add(self.roaming.composite)
        self.roaming.give(7.0)
        self.engine.step()
        found = self.engine.read(self.roaming.composite)
        assert np.all(found == 14.0), f"the composite has {found[0]}, right 14.0"

    def _guard(self, work: Callable[[Any], None], lane: Any) -> None:
        try:
            work(lane)
        except BaseException as error:
            self.errors.append(error)
        finally:
            if lane is not None:
                with self._lock:
                    self.left -= 1

    def _edit(self, lane: _Lane) -> None:
        for _ in range(_EDITS):
            lane.edit()
            if lane.chance.random() < 0.3:
                self.engine.step()

    def _step(self, _: Any) -> None:
        while self.left and not self.errors:
            frame = self.engine.step()
            assert frame.ok, frame.problems
            self.counts["frames"] += 1

    def _read(self, _: Any) -> None:
        seen = dict.fromkeys(self.lanes, -1)
        time = -1.0
        for behind in cycle((attrgetter("body"), attrgetter("gate"))):
            if not self.left or self.errors:
                break
            for lane in self.lanes:
                found = lane.number_of(self.engine.read(behind(lane)))
                assert found >= seen[lane], f"{lane.name}: {found} was read after {seen[lane]}"
                seen[lane] = found
            now = self.engine.read(self.clock)
            assert np.all(now == now[0]), "a torn state"
            assert now[0] >= time, f"the state went back from {time} to {now[0]}"
            time = now[0]
            self.counts["readings"] += _LANES + 1
