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

_MAX_SETS = 256


@dataclass(eq=False)
class StaleSet:
    """Steps to run, in order, with reasons. `steps` is the same object whenever the set is the same."""

    steps: tuple[str, ...]
    reasons: Mapping[str, str]
    debugs: tuple[Debug, ...] = ()
    limited: tuple[str, ...] = ()  # steps whose blocks have counters with limits
    tally: Tally = field(default_factory=Tally)
    inner: Mapping[str, Debug] | None = None  # of blocks inside regions, by key; None: not computed yet
    debug_version: int = -1  # `Runtime.debug_version` when its blocks were last updated

    def drop(self) -> None:
        """Ends the tally and invalidates the set. Blocks keep the tally until they join another one."""
        self.debug_version = -1
        self.tally.is_over = True


class StaleSets:
    """The stale sets of one plan, by the directly affected steps."""

    def __init__(self) -> None:
        self._sets: LruCache[frozenset[str], StaleSet] = LruCache(_MAX_SETS, StaleSet.drop)
        self._connections: Any = None
        self._expected: tuple[Any, frozenset[str], dict[str, str]] | None = None  # for a plan that is about to run

    def expect(self, plan: LivePlan, seeds: Mapping[str, str]) -> tuple[str, ...]:
        """The steps of the first run of a new plan. `get` reuses the result."""
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
        stale = None if plan.slot_of else self._sets.get(key)  # shared memory: depends on what was overwritten
        if stale is None:
            expected, self._expected = self._expected, None
            if expected is not None and expected[0] is plan.connections and expected[1] == key and not plan.slot_of:
                stale = _make_stale_set(expected[2], nodes)
            else:
                stale = _make_stale_set(stale_steps(plan, seeds, contents), nodes)
            if plan.slot_of:
                return stale
            self._sets.keep(key, stale)
        return stale

    def clear(self) -> None:
        """Drops all sets after blocks or connections have changed."""
        for stale in self._sets.values():
            stale.drop()
        self._sets.clear()


def _make_stale_set(reasons: dict[str, str], nodes: Mapping[str, NetworkNode]) -> StaleSet:
    # From the network, because other threads may edit the description while steps run.
    limited = tuple(key for key in reasons if any(limits_of(nodes[key])))
    stale = StaleSet(tuple(reasons), reasons, tuple(nodes[key].block.debug for key in reasons), limited)
    for debug in stale.debugs:
        debug.join(stale.tally)
    return stale
