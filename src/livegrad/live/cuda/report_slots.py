"""Where the steps of a plan report in the ledger: status words of checks, run counts of region bodies, and timers."""

from __future__ import annotations

from collections.abc import Sequence

from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.live_steps import LeafStep
from livegrad.live.cuda.bound_step import BoundStep
from livegrad.live.cuda.ledger import Ledger
from livegrad.live.cuda.live_graph import notify
from livegrad.live.cuda.touched_buffers import regions_of


class ReportSlots:
    """The ledger of a plan, and the words in it that belong to each step."""

    def __init__(self, plan: LivePlan, leaves: Sequence[LeafStep]) -> None:
        self._counts: dict[str, int] = {}
        position = 0
        for region in regions_of(plan.steps.values()):
            self._counts[region.key] = position
            position += len(region.bodies)
        self.timers: dict[str, int] = {}  # of steps inside regions
        for leaf in leaves:
            if leaf.key not in plan.steps:
                self.timers[leaf.key] = position
                position += 2
        self._status_ranges: dict[str, tuple[int, int]] = {}  # the first word and the count, by step
        self._status_used = 0
        self._counting_words = position
        # Extra room for later edits with more kernels.
        self.ledger = Ledger(8 * len(leaves) + 64, position)

    def reserve_status(self, bound: BoundStep) -> bool:
        """Reserves the status words of a step. False if they do not fit: the ledger must grow."""
        _, count = self._status_ranges.get(bound.key, (0, 0))
        if count < bound.status_words:
            self._status_ranges[bound.key] = self._status_used, bound.status_words
            self._status_used += bound.status_words
        return self._status_used <= self.ledger.status_words

    def status_address(self, key: str) -> int:
        """The address of the status words of a step. Those of steps that cannot fail are never written."""
        return self.ledger.status_address + 8 * self._status_ranges.get(key, (0, 0))[0]

    def grow(self, bound_steps: Sequence[BoundStep]) -> None:
        """Allocates a larger ledger, and updates launches that write status words."""
        self.ledger = Ledger(2 * self._status_used, self._counting_words)
        for bound in bound_steps:
            if bound.reports_failures:
                notify(bound.move_status(self.status_address(bound.key)))

    def counts_index(self, region: str) -> int:
        """The index of a region's first counting word."""
        return self._counts[region]

    def counts_address(self, region: str) -> int:
        """The address of the run counts of a region's bodies."""
        return self.ledger.counting_address + 8 * self._counts[region]

    def timer_address(self, key: str) -> int:
        """The address of the timer of a step inside a region."""
        return self.ledger.counting_address + 8 * self.timers[key]
