"""Frames of the model: the description that runs, the values of states, and what a frame makes of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.fuzz.engine_check import Checker, Findings
from tests.fuzz.engine_evaluate import Causes, Manner, Values
from tests.fuzz.engine_model import Choice, Given, Instance, Memory, Net, Output, Root, instances_of, paths_of


@dataclass
class Running:
    """A description as it was when it last was right."""

    instances: list[Instance]
    scope: Any
    types: dict[Any, Any]
    numbers: dict[Root, Given] = field(default_factory=dict)  # that changed since


@dataclass
class Moment:
    """All that lasts from frame to frame."""

    running: Running | None = None
    memory: dict[Memory, np.ndarray] = field(default_factory=dict)
    waiting: dict[Memory, np.ndarray] = field(default_factory=dict)  # what states were given that do not run yet
    time: float | None = None
    findings: Findings = field(default_factory=Findings)
    values: dict[Any, Any] = field(default_factory=dict)  # by Output
    failed: set[Instance] = field(default_factory=set)
    causes: dict[Instance, Causes | None] = field(default_factory=dict)  # of failures, as far as they are known
    inputs: dict[Instance, dict[str, Any]] = field(default_factory=dict)  # what blocks were computed from
    taken: dict[Instance, int | None] = field(default_factory=dict)  # the bodies that branches took
    needed: set[Instance] = field(default_factory=set)  # by what runs, or whoever reads


_STRICT, _DEFAULTS, _ALL_ALIKE = range(3)  # which numbers reach what runs on, while a description is wrong


def next_moments(
    before: Moment, net: Net, time: float | None, resets: Mapping[Memory, np.ndarray], manner: Manner | None = None
) -> list[Moment]:
    """What one frame may lead to; a description that is right leads to one moment only."""
    after = _next_moment(before, net, time, resets, manner or Manner(), _STRICT)
    if after.findings.ok or after.running is None:
        return [after]
    others = (_next_moment(before, net, time, resets, manner or Manner(), taken) for taken in (_DEFAULTS, _ALL_ALIKE))
    return distinct([after, *others])


def _next_moment(
    before: Moment, net: Net, time: float | None, resets: Mapping[Memory, np.ndarray], manner: Manner, taken: int
) -> Moment:
    """One frame: all of it is computed anew."""
    instances, scope = instances_of(net)
    checked = Checker(instances)
    after = replace(before, memory=dict(before.memory), time=time, findings=checked.findings)
    described = {one.node for one in instances}
    after.waiting = {node: value for node, value in {**before.waiting, **resets}.items() if node in described}
    if checked.findings.ok:
        after.running = Running(instances, scope, checked.types)
        own = {one.node for one in instances if isinstance(one.node, Memory)}
        after.memory = {node: value for node, value in after.memory.items() if node in own}
    elif after.running is None:
        after.values = {}
        return after
    else:
        after.running = replace(after.running, numbers=_numbers_taken(after.running, net, taken))
    running = after.running
    for one in running.instances:
        if isinstance(one.node, Memory):
            after.memory.setdefault(one.node, one.node.initial)
            if one.node in after.waiting:
                after.memory[one.node] = after.waiting.pop(one.node)
    made = Values(running.instances, running.types, after.memory, time, running.numbers, manner)
    after.values, after.failed, after.inputs, after.taken = made.values, made.failed, made.inputs, made.taken
    after.needed, after.causes = made.needed, made.causes
    if not made.stops_states:
        _advance(after, running)
    return after


def _advance(after: Moment, running: Running) -> None:
    states = [one for one in running.instances if isinstance(one.node, Memory)]
    following = {one.node: after.values[one.feeds["next"]].array for one in states}
    after.memory.update(following)  # type: ignore[arg-type]
    after.values = dict(after.values)
    for one in states:
        after.values[Output(one, "value")] = type(after.values[Output(one, "value")])(following[one.node])


def _numbers_taken(running: Running, top: Net, which: int) -> dict[Root, Given]:
    """A description that is wrong does not run, but numbers that changed reach the one that runs on.

    They reach blocks that are where they were. A number that took the place of something else is no change of a number;
    with `_ALL_ALIKE` it is taken for one. So it is with one in the place of a default, in a graph that is used several
    times: elsewhere it may have taken the place of something else. With `_DEFAULTS`, those alone are taken for changes.
    """
    taken = {}
    wanted = set(paths_of(top))
    uses = Counter(node for _, node in wanted)
    for outermost in running.instances:
        for one in outermost.all_instances():
            for ref in one.feeds.values():
                if isinstance(ref, Root) and isinstance(ref.source, Given):
                    net, node, name = ref.place
                    now = net.sources.get((node, name)) if (ref.path, node) in wanted else None
                    known = running.numbers.get(ref, ref.source)
                    fits = isinstance(now, Given) and now.kind == ref.source.kind
                    alike = fits and now.line == known.line and (now.line != (node, name) or uses[node] == 1 or which)  # type: ignore[union-attr]
                    taken[ref] = now if alike or (fits and which == _ALL_ALIKE) else known  # type: ignore[assignment]
    return taken


def distinct(moments: list[Moment]) -> list[Moment]:
    """Moments that what follows may tell apart."""
    return list({_lasting(one): one for one in reversed(moments)}.values())[::-1]


def _lasting(moment: Moment) -> Any:
    """What of a moment matters later: values of states, and what runs on while the description is wrong."""
    states = [
        frozenset((node, value.tobytes()) for node, value in own.items()) for own in (moment.memory, moment.waiting)
    ]
    running = moment.running
    if moment.findings.ok or running is None:
        return *states, None
    return *states, id(running.instances), frozenset((ref, id(given)) for ref, given in running.numbers.items())


def running_value(moment: Moment, place: tuple[Net, Any, str]) -> Given | None:
    """What was given to a pin in the description that runs."""
    if moment.running is None:
        return None
    for top in moment.running.instances:
        for one in top.all_instances():
            for ref in one.feeds.values():
                if isinstance(ref, Root) and ref.place == place and isinstance(ref.source, Given):
                    return moment.running.numbers.get(ref, ref.source)
    return None


def unneeded_runs(before: Moment, after: Moment) -> set[str]:
    """Blocks that nothing has happened to: the same function of the same values, fed by the same. They need not run."""
    if before.running is None or after.running is None or before.failed or after.failed or before.time != after.time:
        return set()
    known = {one.path: one for one in before.running.instances}
    return {
        one.path
        for one in after.running.instances
        if not isinstance(one.node, Memory) and one.path in known and _is_same(known[one.path], one, before, after)
    }


def _is_same(old: Instance, new: Instance, before: Moment, after: Moment) -> bool:
    if not _is_fed_the_same(old, new):
        return False
    if isinstance(new.node, Choice):
        if new not in after.taken or before.taken.get(old, -1) != after.taken[new]:
            return False  # a loop, or another body; the values that only the other bodies read do not matter
        if _types_read(old, before) != _types_read(new, after):
            return False  # the code of all bodies is that of one region
        which = after.taken[new]
        pairs = [] if which is None else zip(old.bodies[which].instances, new.bodies[which].instances, strict=True)
        if not all(_is_same(one, other, before, after) for one, other in pairs):
            return False
    values = before.inputs[old], after.inputs[new]
    types = ({pin: value.type for pin, value in own.items()} for own in values)
    bits = ({pin: value.array.tobytes() for pin, value in own.items()} for own in values)
    return len({str(own) for own in types}) == 1 and len({str(own) for own in bits}) == 1


def _types_read(one: Instance, moment: Moment) -> list[Any]:
    """The types of all outputs that a block and its bodies read."""
    assert moment.running is not None
    known = [moment.running.types.get(ref) for ref in one.refs() if isinstance(ref, Output)]
    return [value and value.type for value in known]


def _is_fed_the_same(old: Instance, new: Instance) -> bool:
    """The same block, with the same inside, fed by the same; the values may differ."""
    if old.node is not new.node or old.body is not new.body or old.feeds.keys() != new.feeds.keys():
        return False
    if not all(_is_same_feed(old.feeds[pin], new.feeds[pin]) for pin in new.feeds):
        return False
    return all(
        len(mine.instances) == len(others.instances)
        and mine.outputs.keys() == others.outputs.keys()
        and all(_is_same_feed(mine.outputs[name], others.outputs[name]) for name in mine.outputs)
        and all(map(_is_fed_the_same, mine.instances, others.instances))
        for mine, others in zip(old.bodies, new.bodies, strict=True)
    )


def _is_same_feed(old: Any, new: Any) -> bool:
    if isinstance(old, Root) and isinstance(new, Root):
        # Memory of others may have been touched, whatever is in it.
        both = isinstance(old.source, Given) and isinstance(new.source, Given)
        return both and (old.source is new.source or old.source.line == new.source.line)
    if not isinstance(old, Output) or not isinstance(new, Output) or old.instance.node is not new.instance.node:
        return False
    return (old.instance.path, old.pin) == (new.instance.path, new.pin)
