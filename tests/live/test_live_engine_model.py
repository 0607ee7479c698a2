"""Random graphs under random edits: the engine's values equal those of a full computation, and it runs exactly the
steps that a simple model of staleness predicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from livegrad.live.blocks import block, edit
from livegrad.live.compile.graph_compiler import compile_graph
from livegrad.live.engine import Engine
from livegrad.live.graph.block import State
from livegrad.live.graph.sources import ExternalBuffer
from livegrad.live.update.diff_plans import diff_plans

# Small integers: every order of operations gives the same bits.
BODIES: list[Any] = [
    (lambda x, y, gain=1.0: x + y * gain),
    (lambda x, y, gain=1.0: x - y + gain),
    (lambda x, y, gain=1.0: y - gain * 2.0),  # does not read x
]
SMALL = st.integers(-3, 3)


@dataclass
class Modelled:
    block: Any
    body: int
    gain: float
    feeds: dict[str, Any] = field(default_factory=dict)  # the name of a block, an array, or an external buffer
    value: Any = None
    seen: Any = None  # its content in the last frame

    def looks(self) -> Any:
        """The content of a step: an edit that is undone before the next frame has no effect."""
        feeds = {}
        for pin, feed in self.feeds.items():
            if isinstance(feed, np.ndarray):
                feeds[pin] = ("array", feed.tobytes())
            elif isinstance(feed, ExternalBuffer):
                feeds[pin] = ("external", id(feed), feed.version)
            else:
                feeds[pin] = ("edge", feed if isinstance(feed, str) else "state")
        return self.body, self.gain, feeds


def arrays(seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed + 10).integers(-2, 3, 3).astype(np.float32)


class LiveEngine(RuleBasedStateMachine):
    reuse_memory = False
    cuts_off = True  # a block runs only if one of its inputs has another value

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine(reuse_memory=self.reuse_memory)
        self.model: dict[str, Modelled] = {}
        self.count = 0
        self.state_value = np.zeros(3, np.float32)
        self.state_moved = self.state_is_new = True  # in the last frame
        self.state: State | None = None
        self.next: str | None = None

    @rule(body=st.sampled_from(range(3)), seeds=st.tuples(SMALL, SMALL), picks=st.tuples(SMALL, SMALL))
    def add(self, body: int, seeds: tuple[int, int], picks: tuple[int, int]) -> None:
        name = f"b{self.count}"
        self.count += 1
        own = Modelled(self.engine.add(block(BODIES[body], name=name)), body, 1.0)
        self.model[name] = own
        for pin, seed, pick in zip("xy", seeds, picks, strict=True):
            earlier = list(self.model)[:-1]
            if earlier and pick >= 0:
                self._connect(name, pin, earlier[pick % len(earlier)])
            else:
                self._set(name, pin, arrays(seed + 3))

    def _connect(self, name: str, pin: str, source: str) -> None:
        self.engine.connect(self.model[source].block, self.model[name].block[pin])
        self.model[name].feeds[pin] = source

    def _set(self, name: str, pin: str, array: np.ndarray[Any, Any]) -> None:
        self.engine.set(self.model[name].block[pin], array)
        self.model[name].feeds[pin] = array

    @precondition(lambda self: self.model)
    @rule(data=st.data(), gain=SMALL)
    def set_a_parameter(self, data: st.DataObject, gain: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        own = self.model[name]
        self.engine.set(own.block["gain"], gain)
        own.gain = float(gain)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), body=st.sampled_from(range(3)))
    def edit_code(self, data: st.DataObject, body: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        edit(self.engine, self.model[name].block, BODIES[body])
        self.model[name].body = body

    @precondition(lambda self: len(self.model) > 1)
    @rule(data=st.data(), seed=SMALL, pin=st.sampled_from("xy"), kind=st.sampled_from(["set", "connect", "bind"]))
    def rewire(self, data: st.DataObject, seed: int, pin: str, kind: str) -> None:
        name = data.draw(st.sampled_from(list(self.model)[1:]))
        if kind == "set":
            self._set(name, pin, arrays(seed))
        elif kind == "bind":
            external = ExternalBuffer(arrays(seed), version=0)
            self.engine.bind(self.model[name].block[pin], external)
            self.model[name].feeds[pin] = external
        else:
            names = list(self.model)
            self._connect(name, pin, data.draw(st.sampled_from(names[: names.index(name)])))

    @precondition(
        lambda self: any(isinstance(f, ExternalBuffer) for o in self.model.values() for f in o.feeds.values())
    )
    @rule(data=st.data(), seed=SMALL)
    def touch(self, data: st.DataObject, seed: int) -> None:
        bound = [(n, p) for n, o in self.model.items() for p, f in o.feeds.items() if isinstance(f, ExternalBuffer)]
        name, pin = data.draw(st.sampled_from(bound))
        external = self.model[name].feeds[pin]
        external.array[...] = arrays(seed)
        external.touch()

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        if name == self.next:
            return
        self.engine.remove(self.model.pop(name).block)
        for other in self.model:
            for pin, feed in self.model[other].feeds.items():
                if isinstance(feed, str) and feed == name:
                    self._set(other, pin, arrays(1))

    @precondition(lambda self: self.model and self.state is None)
    @rule(data=st.data(), pin=st.sampled_from("xy"))
    def add_state(self, data: st.DataObject, pin: str) -> None:
        names = list(self.model)
        self.state = State("memory", np.zeros(3, np.float32))
        self.engine.add(self.state)
        reader = data.draw(st.sampled_from(names))
        self.next = names[-1]
        self.engine.connect(self.state, self.model[reader].block[pin])
        self.engine.connect(self.model[self.next].block, self.state["next"])
        self.model[reader].feeds[pin] = self.state

    @rule()
    def frame(self) -> None:
        expected = self._recompute()
        frame = self.engine.step()
        assert frame.ok, frame.problems
        if not self.reuse_memory:
            assert set(frame.ran) == expected
            assert all(count == 1 for count in frame.calls.values())
        for name, own in self.model.items():
            np.testing.assert_array_equal(self.engine.read(own.block), own.value, err_msg=name)
        if self.state is not None:
            np.testing.assert_array_equal(self.engine.read(self.state), self.state_value)
        if self.model:
            assert self.engine.plan is not None
            wanted = compile_graph(self.engine.graph).plan
            assert wanted is not None
            assert diff_plans(self.engine.plan, wanted) == {}

    def _recompute(self) -> set[str]:
        """Recomputes every value with NumPy, and finds the blocks that read a changed value.

        Without early cutoff, every computed value counts as changed, and so does a state whose next value is computed.
        """
        stale: set[str] = set()
        moved: set[str] = set()
        for name, own in self.model.items():
            feeds = {pin: self._value(feed) for pin, feed in own.feeds.items()}
            before, looks = own.value, own.looks()
            own.value = np.asarray(BODIES[own.body](feeds["x"], feeds["y"], np.float32(own.gain)))
            above = any(isinstance(feed, str) and feed in moved for feed in own.feeds.values())
            state = self.state_moved and any(isinstance(feed, State) for feed in own.feeds.values())
            if looks != own.seen or above or state:
                stale.add(name)
                if not self.cuts_off or before is None or before.tobytes() != own.value.tobytes():
                    moved.add(name)
            own.seen = looks
        if self.next is not None:
            value = self.model[self.next].value.copy()
            differs, computed = value.tobytes() != self.state_value.tobytes(), self.next in stale or self.state_is_new
            self.state_moved, self.state_is_new = differs if self.cuts_off else computed, False
            self.state_value = value
        return stale

    def _value(self, feed: Any) -> Any:
        if isinstance(feed, str):
            return self.model[feed].value
        if isinstance(feed, State):
            return self.state_value
        return feed.array if isinstance(feed, ExternalBuffer) else feed


class LiveEngineThatSharesMemory(LiveEngine):
    reuse_memory = True


_QUICK = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestLiveEngine = LiveEngine.TestCase
TestLiveEngine.settings = _QUICK
TestLiveEngineThatSharesMemory = LiveEngineThatSharesMemory.TestCase
TestLiveEngineThatSharesMemory.settings = _QUICK
