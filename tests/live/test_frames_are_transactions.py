"""A frame that ends with an exception is rolled back: the next frame applies its edits and advances its states."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.leaves import parameter
from livegrad.ir.node import Function
from livegrad.ir.propagate_lines import propagating_lines
from livegrad.ir.source_lines import ambient
from livegrad.ir.types import Tensor, f64
from livegrad.ops.context import context
from livegrad.ops.conversion import cast
from livegrad.ops.movement import broadcast_to
from tests.live.interrupts import Interrupted, call_interrupted
from tests.runtime.cuda.simulate import COMPILER, simulated


class Session:
    """A graph with every kind of part, and random edits of it. Sessions with the same seed are equal."""

    def __init__(self, seed: int, executor: str, reuse_memory: bool) -> None:
        self.random = np.random.default_rng(seed)
        self.engine = engine = lg.Engine(executor, reuse_memory=reuse_memory)
        self.gain = engine.add(lg.block(lambda x, gain=1.0: x * gain, name="gain"))
        self.memory = np.arange(3.0)
        self.bound = lg.live.ExternalBuffer(self.memory, version=0)
        engine.bind(self.gain["x"], self.bound)
        # Two states swap their values, and one counts.
        self.left, self.right = (engine.add(lg.State(name, float(number))) for number, name in enumerate(("l", "r")))
        engine.connect(self.left, self.right["next"])
        engine.connect(self.right, self.left["next"])
        self.count = engine.add(lg.State("count", 0.0))
        self.more = engine.add(lg.block(lambda n, by=1.0: n + by, name="more"))
        engine.connect(self.count, self.more["n"])
        engine.connect(self.more, self.count["next"])
        body = lg.Composite("body")
        self.inner = body.graph.add(lg.block(lambda v, scale=2.0: v * scale, name="inner"))
        body.expose(self.inner["v"]), body.expose(self.inner["result"], "w")
        self.body = body
        self.region = engine.add(lg.If("maybe", body))
        engine.connect(self.gain, self.region["v"])
        engine.set(self.region["condition"], 1)
        self.last = engine.add(lg.block(lambda a, l, n: a + l + n, name="last"))
        engine.connect(self.region, self.last["a"])
        engine.connect(self.left, self.last["l"])
        engine.connect(self.more, self.last["n"])
        x = parameter(0, Tensor(f64, (3,)))
        moving = Function("wave", (x,), (x * cast(broadcast_to(context("animation_time"), (3,)), type=f64),))
        self.wave = engine.add(lg.block(moving, inputs=("x",), name="wave"))
        engine.connect(self.gain, self.wave["x"])
        engine.set_feature("animation_time", 0.0)
        self.extra: lg.Block | None = None

    def edit(self) -> None:
        """Makes a few random edits, some of which the compiler rejects."""
        for _ in range(int(self.random.integers(0, 4))):
            edits: list[Callable[[], Any]] = [
                self._turn, self._turn, self._code, self._more, self._inner, self._condition, self._touch, self._reset,
                self._break, self._mend, self._add, self._remove, self._time, self._other_pins, self._bind,
            ]  # fmt: skip
            edits[int(self.random.integers(len(edits)))]()

    def _number(self) -> float:
        return float(self.random.integers(-4, 5))

    def _turn(self) -> None:
        self.engine.set(self.gain["gain"], self._number())

    def _more(self) -> None:
        self.engine.set(self.more["by"], self._number())

    def _inner(self) -> None:
        self.body.graph.set(self.inner["scale"], self._number())

    def _code(self) -> None:
        bodies = (lambda n, by=1.0: n - by * by, lambda n, by=1.0: n + by)
        lg.live.edit(self.engine, self.more, bodies[int(self.random.integers(2))])

    def _condition(self) -> None:
        self.engine.set(self.region["condition"], int(self.random.integers(0, 2)))

    def _touch(self) -> None:
        self.memory[...] = self.random.integers(-4, 5, 3)
        self.bound.touch()

    def _bind(self) -> None:
        if self.random.integers(2):
            self.engine.set(self.gain["x"], self.random.integers(-4, 5, 3).astype(float))
        else:
            self.engine.bind(self.gain["x"], self.bound)

    def _reset(self) -> None:
        self.engine.reset((self.count, self.left)[int(self.random.integers(2))])

    def _break(self) -> None:
        self.engine.set(self.last["l"], np.zeros(5))  # does not fit its other inputs

    def _mend(self) -> None:
        self.engine.connect(self.left, self.last["l"])

    def _add(self) -> None:
        if self.extra is None:
            self.extra = self.engine.add(lg.block(lambda x: x * 3.0, name="extra"))
            self.engine.connect(self.last, self.extra["x"])

    def _remove(self) -> None:
        if self.extra is not None:
            self.engine.remove(self.extra)
            self.extra = None

    def _time(self) -> None:
        self.engine.set_feature("animation_time", self._number())

    def _other_pins(self) -> None:
        if self.random.integers(2):
            lg.live.edit(self.engine, self.gain, lambda x, gain=1.0, bias=2.0: x * gain + bias)
        else:
            lg.live.edit(self.engine, self.gain, lambda x, gain=1.0: x * gain * 2.0)

    def values(self) -> dict[str, Any]:
        """All values, and the problems of the frame."""
        outputs = (self.gain, self.left, self.right, self.count, self.more, self.region, self.last, self.wave)
        read = lambda block: self.engine.read(block, running=True).tolist()  # noqa: E731
        found = {block.name: read(block) for block in outputs}
        return {**found, "problems": [str(problem).split("\n")[0] for problem in self.engine.frame.problems]}


def play(seed: int, executor: str, reuse_memory: bool, frames: int = 12) -> int:
    """Runs a session with interrupted frames beside an undisturbed one. Returns the number of interrupts."""
    plain, broken = (Session(seed, executor, reuse_memory) for _ in range(2))
    chance = np.random.default_rng(seed + 1)
    interrupts = 0
    for number in range(frames):
        if number:
            plain.edit(), broken.edit()
        plain.engine.step()
        broken_frame = broken.engine._runtime.transaction
        # An interrupt after the last line of a frame comes too late: the frame is committed.
        while broken_frame.is_open or broken.engine.frame.number < plain.engine.frame.number:
            try:
                call_interrupted(broken.engine.step, int(chance.geometric(0.002 if chance.random() < 0.6 else 0.0002)))
            except Interrupted:
                interrupts += 1
        assert broken.values() == plain.values(), f"seed {seed}, frame {number}"
    return interrupts


def test_ctrl_c_while_a_block_is_traced_loses_no_edit_and_advances_no_state(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    count = engine.add(lg.State("count", 0.0))
    more = engine.add(lg.block(lambda n, by=1.0: n + by, name="more"))
    engine.connect(count, more["n"])
    engine.connect(more, count["next"])
    assert engine.step().ok
    pressed = [True]

    def slow(x: lg.Tensor) -> lg.Tensor:
        if pressed:
            pressed.clear()
            raise KeyboardInterrupt
        return x * 10.0

    tens = engine.add(lg.block(slow, name="tens"))
    engine.connect(more, tens["x"])
    engine.set(more["by"], 5.0)
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    with pytest.raises(lg.UsageError, match="interrupted"):
        engine.read(more)
    frame = engine.step()
    assert frame.ok
    assert frame.number == 2
    assert (float(engine.read(more)), float(engine.read(tens)), float(engine.read(count))) == (6.0, 60.0, 6.0)


def test_an_unexpected_exception_is_raised_until_its_cause_is_gone(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    double = engine.add(lg.block(lambda x=1.0: x * 2.0, name="double"))
    engine.step()
    engine.set(double["x"], 3.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine._runtime, "run", lambda frame: 1 / 0)
        patch.setattr(engine._runtime, "run_hot_update", lambda frame, parameter: 1 / 0)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                engine.step()
    assert engine.step().ok
    assert float(engine.read(double)) == 6.0


@pytest.mark.parametrize("reuse_memory", [False, True])
def test_frames_interrupted_anywhere_are_completed_by_the_next(executor_name: str, reuse_memory: bool) -> None:
    assert sum(play(seed, executor_name, reuse_memory) for seed in range(6)) > 30


def test_new_code_with_another_default_survives_an_interrupt_anywhere():
    for after in range(1, 120):
        engine = lg.Engine()
        scale = engine.add(lg.block(lambda x=5.0: x * 2.0, name="scale"))
        engine.step()
        lg.live.edit(engine, scale, lambda x=2.0: x * 3.0)
        try:
            call_interrupted(engine.step, after)
        except Interrupted:
            engine.step()
        assert float(engine.read(scale)) == 6.0, after


def test_a_posted_number_survives_an_interrupt_anywhere():
    engine = lg.Engine()
    scale = engine.add(lg.block(lambda x=5.0: x * 2.0, name="scale"))
    engine.set(scale["x"], 0.0)
    engine.step()
    for after in range(1, 60):
        engine.set(scale["x"], float(after))
        try:
            call_interrupted(engine.step, after)
        except Interrupted:
            engine.step()
        assert float(engine.read(scale)) == 2.0 * after


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")
def test_a_loop_accepts_numbers_after_an_interrupt_anywhere():
    body = lg.Composite("body")
    double = body.graph.add(lg.block(lambda x: x * 2.0, name="double"))
    body.expose(double["x"]), body.expose(double["result"])
    with simulated(), contextlib.closing(lg.Engine("cuda")) as engine:
        loop = engine.add(lg.For("loop", body, {"x": "result"}))
        engine.set(loop["x"], 1.0), engine.set(loop["count"], 3)
        engine.step()
        for after in range(5, 400, 25):
            engine.set(loop["x"], float(after))
            with contextlib.suppress(Interrupted):
                call_interrupted(engine.step, after)
            assert engine.step().ok, engine.frame.problems
            for start in (after + 1.0, after + 2.0):
                engine.set(loop["x"], start)
                assert engine.step().ok
                assert float(engine.read(loop["result"])) == start * 8.0, after


EDITS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a number": lambda engine, gain, wave: engine.set(gain["gain"], 3),
    "an array": lambda engine, gain, wave: engine.set(gain["x"], np.full(3, 7.0)),
    "another size": lambda engine, gain, wave: engine.set(gain["x"], np.full(5, 7.0)),
    "memory": lambda engine, gain, wave: engine.bind(gain["x"], np.full(3, 8.0)),
    "code": lambda engine, gain, wave: lg.live.edit(engine, gain, lambda x, gain=1.0: x - gain),
    "a feature": lambda engine, gain, wave: engine.set_feature("animation_time", 5.0),
    "an edge": lambda engine, gain, wave: engine.connect(wave, gain["x"]),
    "a block": lambda engine, gain, wave: engine.add(engine.spare),
    "not a block": lambda engine, gain, wave: engine.remove(gain),
}


@pytest.mark.parametrize("kind", EDITS)
def test_an_interrupted_edit_leaves_a_consistent_graph(kind):
    """After an interrupt anywhere, the plan matches the description, and repeating the edit completes it."""
    interrupts = 0
    while True:
        engine: Any = lg.Engine()
        x = parameter(0, Tensor(f64, (3,)))
        moving = Function("wave", (x,), (x * cast(broadcast_to(context("animation_time"), (3,)), type=f64),))
        wave = engine.add(lg.block(moving, inputs=("x",), name="wave"))
        gain = engine.add(lg.block(lambda x, gain=1.0: x * gain, name="gain"))
        engine.spare = lg.block(lambda x=2.0: x * 4.0, name="spare")
        engine.set_feature("animation_time", 2.0)
        for own in (wave, gain):
            engine.set(own["x"], np.ones(3))
        engine.step()
        try:
            call_interrupted(lambda: EDITS[kind](engine, gain, wave), interrupts + 1)  # noqa: B023 - called at once
        except Interrupted:
            if engine.step().ok or kind != "not a block":  # the block is unconnected, but still in the graph
                require_as_described(engine)
            made = {"a block": "spare" in engine.graph.blocks, "not a block": "gain" not in engine.graph.blocks}
            if not made.get(kind):
                EDITS[kind](engine, gain, wave)
            engine.step()
            require_as_described(engine)
        else:
            break
        interrupts += 1
    assert interrupts > 5


def require_as_described(engine: lg.Engine) -> None:
    """Requires the running values to equal those of the current description, compiled from scratch."""
    assert engine.frame.ok, engine.frame.problems
    values = {name: engine.read(own) for name, own in engine.graph.blocks.items()}
    engine._runtime.compilation = None
    executable, engine._runtime.executable = engine._runtime.executable, None
    engine._runtime.is_quiet = False
    engine.step()
    assert executable is not None
    executable.close()
    for name, own in engine.graph.blocks.items():
        np.testing.assert_array_equal(engine.read(own), values[name], err_msg=name)
    assert values.keys() == engine.plan.steps.keys()  # type: ignore[union-attr]


def test_an_interrupt_while_leaving_a_context_does_not_affect_later_nodes() -> None:
    leave, left = propagating_lines.__exit__, 0

    def interrupted(context: propagating_lines, *exception: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        leave(context, *exception)

    for number in range(1, 1000):
        engine = lg.Engine()
        engine.add(lg.block(lambda x=1, number=number: x * number + 12_345, name="first"))
        left = number
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(propagating_lines, "__exit__", interrupted)
            with contextlib.suppress(KeyboardInterrupt):
                engine.step()
        assert (ambient.origins, ambient.table) == (None, None)
        if left > 0:
            break
    assert left > 0
