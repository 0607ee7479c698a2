"""The target: device capabilities that passes and the scheduler use.

Backends pass theirs to `livegrad.compiler`; `PORTABLE` is for users and formats that read the IR.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from livegrad.ir.node import Node
from livegrad.schedule.plan import RowChain


@dataclass(frozen=True)
class Target:
    """A device to compile for, and the optimisations to leave out, by name.

    >>> PORTABLE.without("fuse").skipped
    frozenset({'fuse'})
    """

    name: str
    kernels_write_by_index: bool = False  # kernels scatter and search; otherwise the host does both
    splits_long_columns: bool = False  # threads take a group of columns each; elsewhere they share columns
    host_writes_views: bool = False  # host steps write to part of a buffer; libraries of devices need a whole one
    binds_loop_bodies: bool = False  # binds the plan of a loop body to memory once, and runs it in each iteration
    fuses_siblings: bool = False  # joins kernels that write parts of several tensors; not measured on devices
    # Rows of a tile for steps that work row by row; None where the chain is better run step by step.
    rows_of_tile: Callable[[RowChain], int | None] | None = None
    lacks_code: Callable[[Node], bool] | None = None  # whether an op in a kernel must be expanded
    # Whether the library that computes a node reads this operand, a permutation, where its source lies; None: always.
    reads_permuted: Callable[[Node, Node], bool] | None = None
    least_parallel_work: float | None = None  # of a loop that threads share, in additions; None: by the cost model
    skipped: frozenset[str] = frozenset()

    def without(self, *names: str) -> Target:
        """The same device, without these optimisations: results differ in rounding at most."""
        return replace(self, skipped=self.skipped.union(names))

    def uses(self, name: str) -> bool:
        """Whether an optimisation is in use."""
        return name not in self.skipped


PORTABLE = Target("portable")
SOURCE = Target("source")  # C for people, and for compilers of their own
REFERENCE = Target("reference")  # NumPy, node by node
