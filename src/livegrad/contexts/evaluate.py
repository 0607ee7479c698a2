"""Demand-driven evaluation of context programs: each result is computed once per set of needed features.

A node is looked up by its needed features. On a miss, its plain inputs are evaluated, and it is looked up by their
values: a change that leaves them equal stops there. Only then does its function run. The walk over plain inputs is
iterative; scoped inputs are called by node functions, and deep nesting continues in a thread with its own stack.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

from livegrad.contexts.cache.disk import DiskCache, NotPlainData, digest, encode
from livegrad.contexts.cache.interned_values import ABSENT, Fact, fact_of_result
from livegrad.contexts.cache.store import MemoStore, Slot
from livegrad.contexts.errors import ContextError
from livegrad.contexts.guard import NodeContext, ScopedInput
from livegrad.contexts.link import Environment, ScopedEdge, Unit
from livegrad.contexts.observe import Observer

_WIDE = 24  # inputs
_DEEPEST = 32  # scoped inputs within scoped inputs on one thread's stack

_active = threading.local()
_no_projection = object()


class _Frame:
    """A node whose plain inputs are being evaluated."""

    __slots__ = ("env", "facts", "unit")

    def __init__(self, unit: Unit, env: Environment) -> None:
        self.unit, self.env = unit, env
        self.facts: list[Fact] = []


class _WideKey:
    """A key of many facts, hashed once: a tuple would be hashed at every use."""

    __slots__ = ("_facts", "_hash")

    def __init__(self, facts: tuple[Environment, Environment]) -> None:
        self._facts, self._hash = facts, hash(facts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _WideKey) and self._facts == other._facts


def _inputs_key(unit: Unit, env: Environment, inputs: Environment) -> Any:
    """What went into a node: the features that it reads itself, and the values of its plain inputs."""
    key = (env if unit.direct is None else unit.direct(env), inputs)
    return key if len(inputs) < _WIDE else _WideKey(key)


class Answer:
    """One question to a scoped input, and what came back."""

    __slots__ = ("fact", "number", "overlay")

    def __init__(self, number: int, overlay: Environment, fact: Fact) -> None:
        self.number, self.overlay, self.fact = number, overlay, fact


class Run:
    """What a node function with scoped inputs asked in one computation, in order, and its result."""

    __slots__ = ("answers", "fact")

    def __init__(self, answers: tuple[Answer, ...], fact: Fact) -> None:
        self.answers, self.fact = answers, fact


class Call:
    """One call of a node function; its scoped inputs ask through here, and what they are told is kept."""

    __slots__ = ("active", "answers", "env", "evaluation", "has_failed", "nested_seconds", "ready", "unit")

    def __init__(self, evaluation: Evaluation, unit: Unit, env: Environment, ready: dict[Any, Fact]) -> None:
        self.evaluation, self.unit, self.env, self.ready = evaluation, unit, env, ready
        self.answers: list[Answer] = []
        self.nested_seconds = 0.0
        self.active = True
        self.has_failed = False

    def ask(self, edge: ScopedEdge, overlay: Environment) -> Fact:
        started = perf_counter()
        env = edge.combine(self.env + overlay)
        fact = self.ready.pop((edge.number, env), None)
        if fact is None:
            try:
                fact = self.evaluation.nested(edge.child, env)
            except BaseException:
                self.has_failed = True  # the function may catch this: then its answers are not all it knows
                raise
        self.answers.append(Answer(edge.number, overlay, fact))
        self.nested_seconds += perf_counter() - started
        return fact


class Evaluation:
    """One pull from the output. Threads that it goes on in take turns: only one of them is ever at work."""

    def __init__(self, store: MemoStore, observer: Observer, disk: DiskCache | None) -> None:
        self._store, self._observer, self._disk = store, observer, disk
        self._depth = 0
        self._outer: Evaluation | None = getattr(_active, "evaluation", None)

    def __enter__(self) -> Evaluation:
        _active.evaluation = self
        return self

    def __exit__(self, *exception: object) -> None:
        _active.evaluation = self._outer

    def _is_mine(self, owner: object) -> bool:
        """Whether this evaluation runs inside a node function of that one."""
        evaluation: Evaluation | None = self
        while evaluation is not None:
            if evaluation is owner:
                return True
            evaluation = evaluation._outer
        return False

    # --- the walk ----------------------------------------------------------------------------------------------------

    def pull(self, unit: Unit, env: Environment) -> Fact:
        """The result of a node for its needed features."""
        stack: list[_Frame] = []
        try:
            fact = self._enter(stack, unit, env)
            while stack:
                frame = stack[-1]
                if fact is not None:
                    frame.facts.append(fact)
                fact = self._gather(stack, frame)
                if fact is not None:
                    stack.pop()
        except BaseException as error:
            for frame in stack:
                self._store.release(frame.unit.table, frame.env)
            if stack and isinstance(error, Exception) and not isinstance(error, ContextError):
                error.add_note(f"in node {' of '.join(f'`{frame.unit.name}`' for frame in reversed(stack[-4:]))}")
            raise
        assert fact is not None
        return fact

    def _enter(self, stack: list[_Frame], unit: Unit, env: Environment) -> Fact | None:
        """The result, if it is there or another thread makes it; else None, and a frame to compute it."""
        slot = unit.slots.get(env)
        if slot is None:
            slot = self._store.claim(unit.table, env, self, self._is_mine)
            if slot is None:
                stack.append(_Frame(unit, env))
                return None
        self._found(slot, unit, env)
        return slot.fact

    def _found(self, slot: Slot, unit: Unit, env: Environment) -> None:
        slot.hits += 1
        slot.used = self._store.tick()
        if self._observer.log is not None:
            self._observer.happened("hit", unit, env)

    def _gather(self, stack: list[_Frame], frame: _Frame) -> Fact | None:
        """Goes on with the plain inputs: the node's result when all are there, None when another frame comes first."""
        env, facts, edges = frame.env, frame.facts, frame.unit.plain
        tick, log, append = self._store.tick, self._observer.log, facts.append
        last: Any = _no_projection
        child_env = env
        for project, slots, child in edges[len(facts) :] if facts else edges:
            if project is not last:  # inputs with one need share their environment
                child_env = env if project is None else project(env)
                last = project
            slot = slots.get(child_env)
            if slot is not None:
                slot.hits += 1
                slot.used = tick()
                if log is not None:
                    self._observer.happened("hit", child, child_env)
                append(slot.fact)
                continue
            fact = self._enter(stack, child, child_env)
            if fact is None:
                return None
            append(fact)
        return self._finish(frame.unit, env, tuple(facts))

    # --- one node ----------------------------------------------------------------------------------------------------

    def _finish(self, unit: Unit, env: Environment, inputs: Environment) -> Fact:
        store = self._store
        if unit.scoped:
            fact = self._finish_scoped(unit, env, inputs)
        elif unit.plain:
            fact = self._finish_plain(unit, env, inputs)
        else:
            fact = self._load_or_compute(unit, env, inputs, {})[0]
        store.put(unit.table, env, fact)
        store.release(unit.table, env)
        return fact

    def _finish_plain(self, unit: Unit, env: Environment, inputs: Environment) -> Fact:
        """By the values that went in, which other threads may be at work on for other features."""
        store, key = self._store, _inputs_key(unit, env, inputs)
        slot = store.claim(unit.by_inputs, key, self, self._is_mine)
        if slot is not None:
            slot.used = store.tick()
            self._reuse(unit, env)
            return slot.fact  # type: ignore[return-value]
        try:
            fact = self._load_or_compute(unit, env, inputs, {})[0]
            store.put(unit.by_inputs, key, fact)
        finally:
            store.release(unit.by_inputs, key)
        return fact

    def _finish_scoped(self, unit: Unit, env: Environment, inputs: Environment) -> Fact:
        store, key = self._store, _inputs_key(unit, env, inputs)
        slot = unit.by_inputs.slots.get(key)
        runs: tuple[Run, ...] = ()
        if slot is not None:
            runs, slot.used = slot.payload, store.tick()
        ready: dict[Any, Fact] = {}
        fact = self._replay(unit, env, runs, ready)
        if fact is not None:
            self._reuse(unit, env)
            return fact
        fact, answers = self._load_or_compute(unit, env, inputs, ready)
        if answers is not None:
            kept = (Run(tuple(answers), fact), *runs)[: store.limits.variants]
            if kept:
                store.put(unit.by_inputs, key, fact, kept)
        return fact

    def _replay(self, unit: Unit, env: Environment, runs: tuple[Run, ...], ready: dict[Any, Fact]) -> Fact | None:
        """The result of an earlier run, if the scoped inputs give here what they gave there.

        A function that was told the same so far asks the same next, so no question is asked that it would not ask.
        The answers are left in `ready` for the function, should it have to run after all. An input that fails is left
        to the function too, which may know what to do.
        """
        step = 0
        while runs:
            if step == len(runs[0].answers):
                return runs[0].fact
            asked = runs[0].answers[step]
            edge = unit.scoped[asked.number]
            child_env = edge.combine(env + asked.overlay)
            try:
                fact = self.nested(edge.child, child_env)
            except Exception:
                return None
            ready[asked.number, child_env] = fact
            runs = tuple([run for run in runs if run.answers[step].fact is fact])
            step += 1
        return None

    def _reuse(self, unit: Unit, env: Environment) -> None:
        self._observer.counted("reused", unit, env)

    def _load_or_compute(
        self, unit: Unit, env: Environment, inputs: Environment, ready: dict[Any, Fact]
    ) -> tuple[Fact, list[Answer] | None]:
        if self._disk is None or not unit.declaration.persist or unit.disk_key is None:
            return self._compute(unit, env, inputs, ready)
        try:
            parts = [b"absent" if fact is ABSENT else encode(fact.value) for fact in env]
        except NotPlainData:
            return self._compute(unit, env, inputs, ready)
        key = digest(unit.disk_key, *parts)
        found = self._disk.load(key)
        if found is not None:
            self._observer.counted("loaded", unit, env)
            return fact_of_result(found[0]), None
        fact, answers = self._compute(unit, env, inputs, ready)
        self._disk.store(key, fact.value)
        return fact, answers

    def _compute(
        self, unit: Unit, env: Environment, inputs: Environment, ready: dict[Any, Fact]
    ) -> tuple[Fact, list[Answer] | None]:
        call = Call(self, unit, env, ready)
        values, scoped = iter(inputs), iter(unit.scoped)
        arguments = [
            ScopedInput(call, next(scoped)) if edge.scoped else next(values).value for edge in unit.declaration.inputs
        ]
        started = perf_counter()
        try:
            result = unit.declaration.function(NodeContext(call), *arguments)
        finally:
            call.active = False
        if isinstance(result, Iterator):
            raise ContextError(
                f"node `{unit.name}` returns an iterator, which can be read only once",
                where=unit.declaration.origin,
                found=type(result).__name__,
                help="return a list or a tuple",
            )
        fact = fact_of_result(result)
        self._observer.computed(unit, env, inputs, call.answers, perf_counter() - started - call.nested_seconds)
        return fact, None if call.has_failed else call.answers

    # --- scoped inputs: evaluation inside a node function ------------------------------------------------------------

    def nested(self, unit: Unit, env: Environment) -> Fact:
        """Like `pull`, from inside a node function; beyond some depth on a new thread, which has a stack of its own."""
        slot = unit.slots.get(env)
        if slot is not None:
            self._found(slot, unit, env)
            return slot.fact
        self._depth += 1
        try:
            if self._depth % _DEEPEST:
                return self.pull(unit, env)
            return _on_new_thread(lambda: self._pull_there(unit, env))
        finally:
            self._depth -= 1

    def _pull_there(self, unit: Unit, env: Environment) -> Fact:
        with self:
            return self.pull(unit, env)


def _on_new_thread(work: Callable[[], Fact]) -> Fact:
    outcome: list[Any] = [None, None]
    surroundings = contextvars.copy_context()

    def run() -> None:
        try:
            outcome[0] = surroundings.run(work)
        except BaseException as error:
            outcome[1] = error

    thread = threading.Thread(target=run, name="livegrad-context")
    thread.start()
    thread.join()
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]
