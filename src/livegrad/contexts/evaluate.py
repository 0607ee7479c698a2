"""Demand-driven evaluation of context programs: each result is computed once per set of needed features.

A node is looked up by its needed features. On a miss, its plain inputs are evaluated, and it is looked up by their
values: if they did not change, its result is reused. Otherwise its function runs. The walk over plain inputs is
iterative; scoped inputs are called by node functions, and deep nesting continues in a thread with its own stack.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

from livegrad.contexts.cache.disk import DiskCache, NotPlainData, digest, encode
from livegrad.contexts.cache.interned_values import ABSENT, Interned, intern_result
from livegrad.contexts.cache.store import MemoStore, Slot
from livegrad.contexts.errors import ContextError
from livegrad.contexts.guard import NodeContext, ScopedInput
from livegrad.contexts.link import Environment, ScopedEdge, Unit
from livegrad.contexts.observe import Observer

_WIDE = 24  # inputs, from which on keys store their hash
_DEEPEST = 32  # nested scoped inputs on one thread's stack

_active = threading.local()
_no_projection = object()


class _Frame:
    """A node whose plain inputs are being evaluated."""

    __slots__ = ("env", "inputs", "unit")

    def __init__(self, unit: Unit, env: Environment) -> None:
        self.unit, self.env = unit, env
        self.inputs: list[Interned] = []


class _WideKey:
    """A key of many values that stores its hash; a tuple computes its hash at every use."""

    __slots__ = ("_hash", "_values")

    def __init__(self, values: tuple[Environment, Environment]) -> None:
        self._values, self._hash = values, hash(values)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _WideKey) and self._values == other._values


def _inputs_key(unit: Unit, env: Environment, inputs: Environment) -> Any:
    """The direct inputs of a node: the features that its function reads, and the values of its plain inputs."""
    key = (env if unit.direct is None else unit.direct(env), inputs)
    return key if len(inputs) < _WIDE else _WideKey(key)


class Answer:
    """One query of a scoped input, and its result."""

    __slots__ = ("edge_index", "interned", "overlay")

    def __init__(self, edge_index: int, overlay: Environment, interned: Interned) -> None:
        self.edge_index, self.overlay, self.interned = edge_index, overlay, interned


class Run:
    """One computation of a node function with scoped inputs: its queries, in order, and its result."""

    __slots__ = ("answers", "interned")

    def __init__(self, answers: tuple[Answer, ...], interned: Interned) -> None:
        self.answers, self.interned = answers, interned


class Call:
    """One call of a node function, which evaluates its scoped inputs and records the answers."""

    __slots__ = ("active", "answers", "env", "evaluated", "evaluation", "has_failed", "nested_seconds", "unit")

    def __init__(self, evaluation: Evaluation, unit: Unit, env: Environment, evaluated: dict[Any, Interned]) -> None:
        self.evaluation, self.unit, self.env, self.evaluated = evaluation, unit, env, evaluated
        self.answers: list[Answer] = []
        self.nested_seconds = 0.0
        self.active = True
        self.has_failed = False

    def query(self, edge: ScopedEdge, overlay: Environment) -> Interned:
        """Evaluates a scoped input with the features that the node injects or modifies."""
        started = perf_counter()
        env = edge.combine(self.env + overlay)
        interned = self.evaluated.pop((edge.index, env), None)
        if interned is None:
            try:
                interned = self.evaluation.pull_nested(edge.child, env)
            except BaseException:
                self.has_failed = True  # if the function catches it, its result depends on more than the answers
                raise
        self.answers.append(Answer(edge.index, overlay, interned))
        self.nested_seconds += perf_counter() - started
        return interned


class Evaluation:
    """One evaluation of the output. Only one of its threads runs at a time."""

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
        """Whether this evaluation is the owner, or runs inside one of the owner's node functions."""
        evaluation: Evaluation | None = self
        while evaluation is not None:
            if evaluation is owner:
                return True
            evaluation = evaluation._outer
        return False

    # --- the walk ----------------------------------------------------------------------------------------------------

    def pull(self, unit: Unit, env: Environment) -> Interned:
        """The result of a node for its needed features."""
        stack: list[_Frame] = []
        try:
            interned = self._enter(stack, unit, env)
            while stack:
                frame = stack[-1]
                if interned is not None:
                    frame.inputs.append(interned)
                interned = self._gather(stack, frame)
                if interned is not None:
                    stack.pop()
        except BaseException as error:
            for frame in stack:
                self._store.release(frame.unit.table, frame.env)
            if stack and isinstance(error, Exception) and not isinstance(error, ContextError):
                error.add_note(f"in node {' of '.join(f'`{frame.unit.name}`' for frame in reversed(stack[-4:]))}")
            raise
        assert interned is not None
        return interned

    def _enter(self, stack: list[_Frame], unit: Unit, env: Environment) -> Interned | None:
        """The result if it is cached or another thread computes it; otherwise None, with a new frame to compute it."""
        slot = unit.slots.get(env)
        if slot is None:
            slot = self._store.claim(unit.table, env, self, self._is_mine)
            if slot is None:
                stack.append(_Frame(unit, env))
                return None
        self._record_hit(slot, unit, env)
        return slot.interned

    def _record_hit(self, slot: Slot, unit: Unit, env: Environment) -> None:
        slot.hits += 1
        slot.used = self._store.tick()
        if self._observer.log is not None:
            self._observer.record("hit", unit, env)

    def _gather(self, stack: list[_Frame], frame: _Frame) -> Interned | None:
        """Continues to collect the plain inputs of a node.

        Returns the node's result once all are available, or None if another frame must run first.
        """
        env, inputs, edges = frame.env, frame.inputs, frame.unit.plain
        tick, log, append = self._store.tick, self._observer.log, inputs.append
        previous: Any = _no_projection
        child_env = env
        for project, slots, child in edges[len(inputs) :] if inputs else edges:
            if project is not previous:  # inputs with equal needs share their environment
                child_env = env if project is None else project(env)
                previous = project
            slot = slots.get(child_env)
            if slot is not None:
                slot.hits += 1
                slot.used = tick()
                if log is not None:
                    self._observer.record("hit", child, child_env)
                append(slot.interned)
                continue
            interned = self._enter(stack, child, child_env)
            if interned is None:
                return None
            append(interned)
        return self._finish(frame.unit, env, tuple(inputs))

    # --- one node ----------------------------------------------------------------------------------------------------

    def _finish(self, unit: Unit, env: Environment, inputs: Environment) -> Interned:
        store = self._store
        if unit.scoped:
            interned = self._finish_scoped(unit, env, inputs)
        elif unit.plain:
            interned = self._finish_plain(unit, env, inputs)
        else:
            interned = self._load_or_compute(unit, env, inputs, {})[0]
        store.put(unit.table, env, interned)
        store.release(unit.table, env)
        return interned

    def _finish_plain(self, unit: Unit, env: Environment, inputs: Environment) -> Interned:
        """Looks the node up by its direct inputs; another thread may compute the same entry for other features."""
        store, key = self._store, _inputs_key(unit, env, inputs)
        slot = store.claim(unit.by_inputs, key, self, self._is_mine)
        if slot is not None:
            slot.used = store.tick()
            self._record_reuse(unit, env)
            return slot.interned  # type: ignore[return-value]
        try:
            interned = self._load_or_compute(unit, env, inputs, {})[0]
            store.put(unit.by_inputs, key, interned)
        finally:
            store.release(unit.by_inputs, key)
        return interned

    def _finish_scoped(self, unit: Unit, env: Environment, inputs: Environment) -> Interned:
        store, key = self._store, _inputs_key(unit, env, inputs)
        slot = unit.by_inputs.slots.get(key)
        runs: tuple[Run, ...] = ()
        if slot is not None:
            runs, slot.used = slot.payload, store.tick()
        evaluated: dict[Any, Interned] = {}
        interned = self._replay(unit, env, runs, evaluated)
        if interned is not None:
            self._record_reuse(unit, env)
            return interned
        interned, answers = self._load_or_compute(unit, env, inputs, evaluated)
        if answers is not None:
            stored_runs = (Run(tuple(answers), interned), *runs)[: store.limits.variants]
            if stored_runs:
                store.put(unit.by_inputs, key, interned, stored_runs)
        return interned

    def _replay(
        self, unit: Unit, env: Environment, runs: tuple[Run, ...], evaluated: dict[Any, Interned]
    ) -> Interned | None:
        """The result of an earlier run whose scoped inputs still have the same values.

        A function that got the same answers so far makes the same next query, so replay makes no query that the
        function would not make. `evaluated` collects the answers in case the function has to run. If an input fails,
        the function runs, because it may handle the error.
        """
        step = 0
        while runs:
            if step == len(runs[0].answers):
                return runs[0].interned
            request = runs[0].answers[step]
            edge = unit.scoped[request.edge_index]
            child_env = edge.combine(env + request.overlay)
            try:
                interned = self.pull_nested(edge.child, child_env)
            except Exception:
                return None
            evaluated[request.edge_index, child_env] = interned
            runs = tuple([run for run in runs if run.answers[step].interned is interned])
            step += 1
        return None

    def _record_reuse(self, unit: Unit, env: Environment) -> None:
        self._observer.record_counted("reused", unit, env)

    def _load_or_compute(
        self, unit: Unit, env: Environment, inputs: Environment, evaluated: dict[Any, Interned]
    ) -> tuple[Interned, list[Answer] | None]:
        if self._disk is None or not unit.declaration.persist or unit.disk_key is None:
            return self._compute(unit, env, inputs, evaluated)
        try:
            parts = [b"absent" if interned is ABSENT else encode(interned.value) for interned in env]
        except NotPlainData:
            return self._compute(unit, env, inputs, evaluated)
        key = digest(unit.disk_key, *parts)
        stored = self._disk.load(key)
        if stored is not None:
            self._observer.record_counted("loaded", unit, env)
            return intern_result(stored[0]), None
        interned, answers = self._compute(unit, env, inputs, evaluated)
        self._disk.store(key, interned.value)
        return interned, answers

    def _compute(
        self, unit: Unit, env: Environment, inputs: Environment, evaluated: dict[Any, Interned]
    ) -> tuple[Interned, list[Answer] | None]:
        call = Call(self, unit, env, evaluated)
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
        interned = intern_result(result)
        self._observer.record_computation(
            unit, env, inputs, call.answers, perf_counter() - started - call.nested_seconds
        )
        return interned, None if call.has_failed else call.answers

    # --- scoped inputs: evaluation inside a node function ------------------------------------------------------------

    def pull_nested(self, unit: Unit, env: Environment) -> Interned:
        """Like `pull`, from inside a node function. Deep nesting continues on a new thread, with its own stack."""
        slot = unit.slots.get(env)
        if slot is not None:
            self._record_hit(slot, unit, env)
            return slot.interned
        self._depth += 1
        try:
            if self._depth % _DEEPEST:
                return self.pull(unit, env)
            return _run_on_new_thread(lambda: self._pull_on_thread(unit, env))
        finally:
            self._depth -= 1

    def _pull_on_thread(self, unit: Unit, env: Environment) -> Interned:
        with self:
            return self.pull(unit, env)


def _run_on_new_thread(work: Callable[[], Interned]) -> Interned:
    outcome: list[Any] = [None, None]
    context_variables = contextvars.copy_context()

    def run() -> None:
        try:
            outcome[0] = context_variables.run(work)
        except BaseException as error:
            outcome[1] = error

    thread = threading.Thread(target=run, name="livegrad-context")
    thread.start()
    thread.join()
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]
