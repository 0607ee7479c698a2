"""A cache of stale sets: the consequences of a set of stale steps are computed once per set.

In a live graph the same few numbers change repeatedly, so most frames find their set in the cache, whatever its size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from livegrad.ir.lru import LruCache
from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.network import NetworkNode, limits_of
from livegrad.live.graph.block import Debug, Tally
from livegrad.live.stale import Contents, stale_steps

_MOST_SETS = 256


@dataclass(eq=False)
class StaleSet:
    """Steps to run, in order, and why each of them must. `steps` is the same object whenever the set is the same."""

    steps: tuple[str, ...]
    reasons: Mapping[str, str]
    debugs: tuple[Debug, ...] = ()
    limited: tuple[str, ...] = ()  # steps whose blocks have room for so many elements only
    tally: Tally = field(default_factory=Tally)
    inner: Mapping[str, Debug] | None = None  # of blocks inside of regions, by key; None: not looked for yet
    notified: int = -1  # when its blocks were last notified that they run

    def drop(self) -> None:
        """Ends its tally, which its blocks keep until they join another; a holder finds that it has notified nobody."""
        self.notified = -1
        self.tally.is_over = True


class StaleSets:
    """The sets of one plan's connections, by the steps that something changed for."""

    def __init__(self) -> None:
        self._sets: LruCache[frozenset[str], StaleSet] = LruCache(_MOST_SETS, StaleSet.drop)
        self._connections: Any = None
        self._expected: tuple[Any, frozenset[str], dict[str, str]] | None = None  # of a plan that is about to run

    def expect(self, plan: LivePlan, seeds: Mapping[str, str]) -> tuple[str, ...]:
        """The steps that a new plan will run first; what was found out here is not found out again then."""
        reasons = stale_steps(plan, seeds, {})
        self._expected = plan.connections, frozenset(seeds), reasons
        return tuple(reasons)

    def get(
        self, plan: LivePlan, seeds: Mapping[str, str], contents: Contents, nodes: Mapping[str, NetworkNode]
    ) -> StaleSet:
        """The set that follows from these seeds."""
        if self._connections is not plan.connections:
            self.clear()
            self._connections = plan.connections
        key = frozenset(seeds)
        found = None if plan.places else self._sets.get(key)  # shared memory: it depends on what was overwritten
        if found is None:
            expected, self._expected = self._expected, None
            if expected is not None and expected[0] is plan.connections and expected[1] == key and not plan.places:
                found = _make(expected[2], nodes)
            else:
                found = _make(stale_steps(plan, seeds, contents), nodes)
            if plan.places:
                return found
            self._sets.keep(key, found)
        return found

    def clear(self) -> None:
        """Forgets all sets: their blocks, or what is connected to them, have changed."""
        for known in self._sets.values():
            known.drop()
        self._sets.clear()


def _make(reasons: dict[str, str], nodes: Mapping[str, NetworkNode]) -> StaleSet:
    # By the network: other threads edit the description while steps run.
    limited = tuple(key for key in reasons if any(limits_of(nodes[key])))
    made = StaleSet(tuple(reasons), reasons, tuple(nodes[key].block.debug for key in reasons), limited)
    for debug in made.debugs:
        debug.join(made.tally)
    return made
