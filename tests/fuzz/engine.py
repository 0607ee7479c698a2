"""A random editor of the live engine: sessions of random edits and frames, compared with a plain NumPy model.

`run_one(seed)` is one session. After every frame all that can be read, `frame.ok`, the problems and the states are
compared with the model, which computes everything anew and shares no code with the engine.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import livegrad as lg
from livegrad.live.graph import journal
from tests.fuzz.engine_check import ANY, Findings
from tests.fuzz.engine_evaluate import Manner
from tests.fuzz.engine_faults import Fault, call_with_fault
from tests.fuzz.engine_frames import Moment, distinct, next_moments, running_value, unneeded_runs
from tests.fuzz.engine_kept import compare_with_scratch
from tests.fuzz.engine_model import Choice, Given, Group, Leaf, Net, Node, Output
from tests.fuzz.engine_scenes import Scenes
from tests.live.guarded_description import guarded_descriptions

SHORT = 12
EDITS = 40


def run_one(seed: int, *, backend: str = "cpu", reuse_memory: bool = False, edits: int = EDITS) -> Mapping[str, int]:
    """One session; raises AssertionError where the engine differs from the model."""
    try:
        return _run(seed, backend, reuse_memory, edits, None)
    except AssertionError as error:
        # Once more, and this time it is recorded: the file shows the failure without the editor.
        path = Path(tempfile.gettempdir()) / f"livegrad-engine-{backend}-{seed}.jsonl"
        with contextlib.suppress(Exception):
            _run(seed, backend, reuse_memory, edits, path)
        if path.exists():
            error.args = (f"{error}\n  recorded in {path}; `livegrad replay` runs it",)
        raise


def _run(seed: int, backend: str, reuse_memory: bool, edits: int, path: Path | None) -> Mapping[str, int]:
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(random_engine(backend, reuse_memory, seed))
        if path is not None:
            stack.enter_context(lg.live.record(engine, path))
        session = Session(engine, seed)
        if session.watches:
            stack.enter_context(lg.debug_nans())
        try:
            for _ in range(edits):
                session.edit()
                if session.chance.random() < 0.6:
                    session.frame()
            session.share = 1.0
            session.frame()
        except Exception as error:
            lines = "\n  ".join(session.log[-60:])
            text = f"seed {seed} ({backend}, reuse_memory={reuse_memory}): {error}\n  {lines}"
            raise AssertionError(text) from error
        return {**session.counts, "edits": edits, "frames": session.frames}


@contextlib.contextmanager
def random_engine(backend: str, reuse_memory: bool, seed: int) -> Iterator[lg.Engine]:
    with contextlib.ExitStack() as stack:
        if backend == "simulated":
            from tests.runtime.cuda.simulate import simulated

            stack.enter_context(simulated(seed=seed))
            backend = "cuda"
        stack.enter_context(guarded_descriptions())
        engine = lg.Engine(backend, reuse_memory=reuse_memory)
        stack.callback(engine.close)
        yield engine


class Session(Scenes):
    """Edits with frames between them."""

    def __init__(self, engine: lg.Engine, seed: int) -> None:
        super().__init__(engine, random.Random(seed))
        self.moments = [Moment()]  # what the engine may be in: after an exception, the frame was or was not
        self.frames = 0
        self.compared: set[tuple[str, str]] = set()  # blocks that ran with those behind them
        self.owed: set[str] = set()  # blocks that something happened to, and that nobody needed since
        self.look_closer(seed)
        on_cpu = engine.executor.name == "cpu"
        self.manner = Manner(defers=on_cpu and not engine.reuse_memory, by_branch=on_cpu, watches=self.watches)
        self.share = self.chance.choice((1.0, 0.3))  # of what can be read that is read

    def _next(self, moment: Moment) -> tuple[Any, ...]:
        return moment, self.net, self.time, self.resets, self.manner

    def frame(self) -> None:
        """One frame, now and then with an exception in it, and the comparison."""
        # What is posted is seldom waiting, and little is done with it.
        if not self.resizing and self._often(0.3 if self.engine._journal.mailbox else 0.1):
            waits = self.engine._journal.mailbox and self._often(0.5)
            self.interrupted_frame(journal.__file__ if waits else "")
        self.frames += 1
        self.log.append(f"step {self.frames}")
        after = [after for one in self.moments for after in next_moments(*self._next(one))]
        # What was reset counts as changed, whatever it held.
        self.anew |= self.resets.keys()
        self.resets.clear()
        runs = {node: real.debug.runs for node, real in self.real.items() if isinstance(node, Leaf | Choice)}
        frame = self.engine.step()
        findings = after[0].findings
        _compare_problems(frame, findings, self.real)
        if not frame.problems and self.engine.plan is not None and not (self.engine.reuse_memory or self.resizing):
            compare_with_scratch(self.engine)
        self.broken = sorted({node for _, node, _ in findings.required}, key=lambda node: node.name)
        differences = [self._difference(one) for one in after]
        fitting = [one for one, difference in zip(after, differences, strict=True) if difference is None]
        if not fitting:
            raise AssertionError("; or ".join(dict.fromkeys(map(str, differences))))
        if len(self.moments) == 1 and findings.ok and self.moments[0].findings.ok:
            self._compare_runs(frame, self.moments[0], fitting[0])
            if self.engine.executor.name == "cpu":  # elsewhere they are known later
                self._compare_counts(frame, fitting[0], runs)
        else:
            self.compared.clear()
            self.owed |= {*self.net.nodes, *(one.path for one in after[0].inputs)}
        self.moments = distinct(fitting)[:4]
        self.anew.clear()

    def _compare_runs(self, frame: lg.live.Frame, before: Moment, after: Moment) -> None:
        """No block runs that nothing has happened to. Shared memory is made anew when the graph is.

        A result is compared with what it was when it was made for the same reader before.
        """
        unneeded = unneeded_runs(before, after)
        compared: set[tuple[str, str]] = set()
        for one in after.inputs:
            sources = {ref.instance for ref in one.refs() if isinstance(ref, Output)}
            edges = {(source.path, one.path) for source in sources if source.path in frame.ran}
            near = {inner.node for inner in (*one.all_instances(), *sources)}
            excused = not self.anew.isdisjoint(near) or not edges <= self.compared or self.engine.reuse_memory
            excused |= self.engine.executor.name != "cpu"  # results are compared where they lie on the host
            if one.path in unneeded and one.path in frame.ran and not excused and one.path not in self.owed:
                raise AssertionError(f"{one.path} ran, and what it reads is as it was: {self.engine.explain()}")
            deferred = self.manner.defers and not one.inside and one not in after.needed and not after.failed
            if one.path in frame.ran and deferred:
                raise AssertionError(f"{one.path} ran, and nothing needs it: {self.engine.explain()}")
            if one.path in frame.ran:
                self.owed.discard(one.path)
            elif one.path not in unneeded:
                self.owed.add(one.path)
            compared |= edges | {edge for edge in self.compared if edge[1] == one.path and one.path in unneeded}
        self.compared = compared

    def _compare_counts(self, frame: lg.live.Frame, after: Moment, runs: Mapping[Leaf | Choice, int]) -> None:
        """Blocks and regions inside of a branch that was taken have run, and say so."""
        for one, which in after.taken.items():
            if one.inside or one.path not in frame.ran or one in after.failed or which is None:
                continue
            for inner in one.bodies[which].instances:
                if isinstance(inner.node, Leaf | Choice) and self.real[inner.node].debug.runs <= runs[inner.node]:
                    raise AssertionError(f"{inner.path} has run, and is said not to have")

    def _in_place(self, net: Net, node: Node, pin: str, before: Any, value: Any) -> Any:
        """While the graph is wrong: the value that runs, in the place of something else."""
        known = running_value(self.moments[0], (net, node, pin)) if self.broken else None
        if known is None or (isinstance(before, Given) and before.line == known.line):
            return value
        return known.value if Given(value).kind == known.kind else value

    def interrupted_frame(self, within: str = "") -> None:
        error = self.chance.choice((KeyboardInterrupt, Fault))
        at = self.chance.randrange(1, 16) if within else int(2 ** self.chance.uniform(0, 11))
        by_line = self._often(0.5) or within != ""
        self.log.append(f"step with {error.__name__} at {'line' if by_line else 'call'} {at} {Path(within).name}")
        happened = [after for one in self.moments for after in next_moments(*self._next(one))]
        _, raised = call_with_fault(self.engine.step, at, error, by_line, within)
        self.moments = [*self.moments, *happened] if raised else happened
        if not raised:
            self.resets.clear()
        self.counts[f"interrupt|{error.__name__}|{raised}"] += 1

    def _difference(self, moment: Moment) -> str | None:
        """The first thing that is not as in the model; None: nothing."""
        if moment.running is None:
            return None
        for name, node, pin, output in self._readable(moment):
            if self.share < random.Random(f"{self.frames} {name} {pin}").random():
                continue
            self.manner.asked.add(output.instance.node)
            ok = moment.findings.ok
            failed = output.instance in moment.failed
            try:
                got = self.engine.read(self.real[node][pin], running=not ok)
            except lg.LivegradError as error:
                causes = moment.causes.get(output.instance)
                if failed and (causes is None or any(all(text in str(error) for text in cause) for cause in causes)):
                    continue
                return f"{name}.{pin}: cannot be read: {error}; it failed by {causes}"
            if failed:
                return f"{name}.{pin}: {got!r} was read, and it failed"
            want = moment.values[output].array
            if got.dtype != want.dtype or got.shape != want.shape or not np.array_equal(got, want):
                return f"{name}.{pin}: read {got!r}, right {want!r}"
        return None

    def _readable(self, moment: Moment) -> Iterator[tuple[str, Node, str, Output]]:
        """Every output outside of regions, of the description that runs and of the one there is."""
        running = moment.running
        assert running is not None
        uses: Counter[Node] = Counter(one.node for top in running.instances for one in top.all_instances())
        for name, node, pin, output in _outputs(running.scope, self.net):
            # What was exposed since is not there yet; a block at several places has no one value.
            if output in running.types and uses[node] < 2:
                yield name, node, pin, output


def _outputs(scope: Any, net: Net) -> Iterator[tuple[str, Node, str, Output]]:
    for node, made in scope.made.items():
        if net.nodes.get(node.name) is not node:
            continue
        if isinstance(node, Group):
            yield from _outputs(made, node.net)
        for pin in node.outputs:
            found = scope.output(node, pin)
            if isinstance(found, Output) and found.pin in found.instance.node.outputs:
                yield scope.path + node.name, node, pin, found


def _compare_problems(frame: lg.live.Frame, findings: Findings, real: Mapping[Node, object]) -> None:
    reported = {(id(one.block), one.pin): str(one) for one in frame.problems}
    if bool(frame.problems) == findings.ok:
        raise AssertionError(f"problems {list(reported.values())}, right {_shown(findings)}")
    blocks = {block for block, _ in reported}
    for path, node, pin in findings.required:
        own = id(real[node])
        if not ((own, pin) in reported or (pin == ANY and own in blocks)):
            raise AssertionError(f"no problem at {path}.{pin}: {list(reported.values())}, right {_shown(findings)}")
    allowed = {id(real[node]) for _, node, _ in findings.required} | {id(real[node]) for _, node in findings.allowed}
    for (block, _), text in reported.items():
        if block not in allowed:
            raise AssertionError(f"reported {text}, right {_shown(findings)}")


def _shown(findings: Findings) -> list[str]:
    return sorted(f"{path}.{pin}" for path, _, pin in findings.required)
