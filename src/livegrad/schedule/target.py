"""The target: capabilities of a device, as far as passes and the scheduler depend on them.

Backends pass their target to `livegrad.compiler`; `PORTABLE` is for users and file formats that read the IR.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from livegrad.ir.node import Node
from livegrad.schedule.plan import RowChain


@dataclass(frozen=True)
class Target:
    """A device to compile for, and the names of optimisations to skip.

    >>> PORTABLE.without("fuse").skipped
    frozenset({'fuse'})
    """

    name: str
    kernels_write_by_index: bool = False  # kernels scatter and search; otherwise the host does
    selects_parts: bool = False  # kernels select among the parts of a concatenation; elsewhere, domains are split
    splits_long_columns: bool = False  # each thread takes a group of columns; elsewhere, threads share columns
    # Kernels with several sweeps are cut between sweeps if they have at most so many rows of at least so many elements.
    cut_rows: tuple[int, int] | None = None
    host_writes_views: bool = False  # host steps can write part of a buffer; device libraries need a whole buffer
    binds_loop_bodies: bool = False  # binds the plan of a loop body to memory once and runs it in each iteration
    fuses_siblings: bool = False  # merges kernels that write parts of several tensors; not measured on devices
    # The rows of a tile for a chain of steps; returns None if the chain should run step by step.
    rows_of_tile: Callable[[RowChain], int | None] | None = None
    lacks_code: Callable[[Node], bool] | None = None  # whether an op in a kernel must be expanded
    # Whether the library that computes a node reads a permuted operand without a copy; None: always.
    reads_permuted: Callable[[Node, Node], bool] | None = None
    least_parallel_work: float | None = None  # of a loop that threads share, in additions; None: the cost model decides
    skipped: frozenset[str] = frozenset()

    def without(self, *names: str) -> Target:
        """The same device without these optimisations, which change results in rounding at most."""
        return replace(self, skipped=self.skipped.union(names))

    def uses(self, name: str) -> bool:
        """Whether an optimisation is enabled."""
        return name not in self.skipped


PORTABLE = Target("portable")
SOURCE = Target("source")  # readable C
REFERENCE = Target("reference")  # NumPy, node by node
