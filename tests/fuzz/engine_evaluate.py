"""The values of a description in one frame, all of them computed anew with NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.fuzz.engine_model import Bound, Branch, Carry, Choice, Given, Instance, Memory, Node, Output, Root, order_of
from tests.fuzz.engine_values import Failure, Val, of_python


@dataclass
class Manner:
    """What an executor does with steps that only branches read.

    `defers`: they run when a branch is taken that reads them, or when they have been read (`asked`).
    `by_branch`: a region fails if the branch fails that it takes; else if any of its branches could.
    `watches`: a step whose results have a NaN fails.
    """

    defers: bool = True
    by_branch: bool = True
    watches: bool = False
    asked: set[Node] = field(default_factory=set)


Causes = set[tuple[str, ...]]  # each of them is what an error says, all of it


class Values:
    """The values of a description in one frame."""

    def __init__(
        self,
        instances: list[Instance],
        types: Mapping[Any, Val],
        memory: Mapping[Memory, np.ndarray],
        time: float | None,
        numbers: Mapping[Root, Given],
        manner: Manner,
    ) -> None:
        self._types, self._time, self._numbers, self._manner = types, time, numbers, manner
        self._own = set(instances)
        self._tried: set[Instance] = set()
        self._last_turn: dict[Instance, bool] | None = None  # in a loop: whether blocks gave a NaN when they last ran
        self.values: dict[Any, Val] = {}  # by Output; what failed is missing
        self.inputs: dict[Instance, dict[str, Val]] = {}  # of blocks as they ran last; of a region what decides
        self.taken: dict[Instance, int | None] = {}  # the body that a branch took
        self.failed: set[Instance] = set()
        self.causes: dict[Instance, Causes | None] = {}  # of failures; None: of a region, whose order is its own
        for one in instances:
            if isinstance(one.node, Memory):
                self.values[Output(one, "value")] = Val(memory.get(one.node, one.node.initial))
        blocks = [one for one in order_of(instances)[0] if not isinstance(one.node, Memory)]
        read = _read_by(instances)
        for one in blocks:
            if not manner.defers or self._is_needed(one, read):
                self._try(one)
        self.needed = set(self._tried)
        self.stops_states = bool(self.failed)
        for one in blocks:  # whoever asks is told what it would have been
            self._try(one)

    def _is_needed(self, one: Instance, read: Mapping[Instance, set[Instance]]) -> bool:
        """Whether a block has a value in every frame, whatever branches are taken."""
        readers = read.get(one, set())
        if not readers or any(isinstance(reader.node, Memory) for reader in readers):
            return True
        borrows = any(isinstance(ref, Root) and isinstance(ref.source, Bound) for ref in one.refs())
        return borrows or one.node in self._manner.asked

    def _try(self, one: Instance) -> None:
        if one in self._tried or isinstance(one.node, Memory):
            return
        self._tried.add(one)
        around, self._last_turn = self._last_turn, None  # a loop may be the first that needs it
        self._try_now(one)
        self._last_turn = around

    def _try_now(self, one: Instance) -> None:
        refs = list(one.feeds.values()) if self._manner.by_branch else list(one.refs())
        for ref in refs:
            self._try_source(ref)
        lost = {ref.instance for ref in refs if isinstance(ref, Output)} & self.failed
        try:
            if lost:
                raise Failure("waits for one that failed")
            sources = (ref.source for ref in one.refs() if isinstance(ref, Root))
            if any(isinstance(source, Bound) and source.is_resized for source in sources):
                raise Failure("was resized")
            self.values |= self._evaluate(one, self.values)
        except Failure as failure:
            self.failed.add(one)
            of_sources = [self.causes[source] for source in lost]
            known = not isinstance(one.node, Choice) and None not in of_sources
            said = tuple(text.replace("{path}", one.path) for text in failure.args)
            own = {said} if not lost else Causes().union(*filter(None, of_sources))
            self.causes[one] = own if known else None

    def _try_source(self, ref: Any) -> None:
        if isinstance(ref, Output) and ref.instance in self._own:
            self._try(ref.instance)

    def _need(self, ref: Any) -> None:
        self._try_source(ref)
        if isinstance(ref, Output) and ref.instance in self.failed:
            raise Failure("waits for one that failed")

    def _evaluate(self, one: Instance, known: Mapping[Any, Val]) -> dict[Any, Val]:
        if isinstance(one.node, Choice):
            return self._evaluate_region(one, one.node, known)
        assert one.body is not None
        with np.errstate(all="ignore"):
            inputs = self.inputs[one] = {pin: self._look(ref, known) for pin, ref in one.feeds.items()}
            made = one.body.apply(inputs, self._time)
        if self._manner.watches:
            self._watch(one, any(bool(np.any(np.isnan(value.array))) for value in made.values()))
        return {Output(one, pin): value for pin, value in made.items()}

    def _watch(self, one: Instance, has_nan: bool) -> None:
        """A NaN is a failure; of what a loop computes, only the last of it is looked at."""
        assert one.body is not None
        if self._last_turn is not None:
            self._last_turn[one] = has_nan
        elif has_nan:
            raise Failure("NaN", one.body.place)

    def _look(self, ref: Any, known: Mapping[Any, Val]) -> Val:
        if not isinstance(ref, Root):
            self._need(ref)
            return known[ref] if ref in known else self.values[ref]
        source = self._numbers.get(ref, ref.source)
        return of_python(source.array.copy() if isinstance(source, Bound) else source.value)

    def _run_body(self, body: Branch, known: Mapping[Any, Val]) -> dict[str, Val]:
        inner = dict(known)
        for one in order_of(body.instances)[0]:
            inner |= self._evaluate(one, inner)
        return {name: inner[ref] for name, ref in body.outputs.items()}

    def _evaluate_region(self, one: Instance, region: Choice, known: Mapping[Any, Val]) -> dict[Any, Val]:
        control = self._look(one.feeds[region.control], known).array
        names = list(one.bodies[0].outputs)
        found = {name: Val(np.zeros_like(self._types[Output(one, name)].array)) for name in names}
        if region.kind in ("if", "if_else", "switch"):
            which = self.taken[one] = _which_body(region.kind, control, len(one.bodies))
            self.inputs[one] = {region.control: Val(control)}
            if which is not None:
                found = self._run_body(one.bodies[which], known)
        else:
            around, self._last_turn = self._last_turn, {}
            try:
                found = self._loop(one, region, control, found, known)
            finally:
                last, self._last_turn = self._last_turn, around
            if around is not None:
                around |= last
            elif any(last.values()):
                raise Failure("NaN")
        return {Output(one, name): value for name, value in found.items()}

    def _loop(
        self, one: Instance, region: Choice, control: Any, found: dict[str, Val], known: Mapping[Any, Val]
    ) -> dict[str, Val]:
        carried = {}
        for name in region.carried:
            dtype = self._types[Carry(id(one), name)].array.dtype
            carried[name] = Val(self._look(one.feeds[name], known).array.astype(dtype))
        for entering, leaving in region.carried.items():
            found[leaving] = carried[entering]
        turn, going = 0, bool(control) if region.kind == "while" else int(control) > 0
        while going:
            inner = {**known, **{Carry(id(one), name): value for name, value in carried.items()}}
            inner[Carry(id(one), "index")] = Val(np.int64(turn))
            found = self._run_body(one.bodies[0], inner)
            carried = {entering: found[leaving] for entering, leaving in region.carried.items()}
            turn += 1
            going = bool(found["condition"].array) if region.kind == "while" else turn < int(control)
        return found


def _read_by(instances: list[Instance]) -> dict[Instance, set[Instance]]:
    """The instances that read each one, in any of their branches."""
    found: dict[Instance, set[Instance]] = {}
    for one in instances:
        for ref in one.refs():
            if isinstance(ref, Output):
                found.setdefault(ref.instance, set()).add(one)
    return found


def _which_body(kind: str, control: Any, count: int) -> int | None:
    if kind == "switch":
        return int(control) if 0 <= int(control) < count else None
    if control:
        return 0
    return 1 if kind == "if_else" else None
