"""Fusion: groups materialised values (roots) over the same iteration space. Each group becomes a kernel.

`materialise` has the roots; the plan pass `fuse` calls `group_roots`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from math import prod

from livegrad.ir.leaves import parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Tensor
from livegrad.ir.walk import nodes_of, toposort
from livegrad.ops.maps import map_domain
from livegrad.ops.movement import broadcast, permute, sizes, slice_
from livegrad.ops.reduction import arg_reduce, reduce
from livegrad.schedule.loops.cost_model import FEW_ROWS, FOLDED_LANES, LONG_COLUMNS, LONG_ROW
from livegrad.schedule.materialise import Roots
from livegrad.schedule.space import Space, space_over
from livegrad.schedule.step_kinds import GroupKind, map_result, root_kind

# A value that several kernels need is recomputed in each if it costs less than this, and stored otherwise.
CHEAP_TO_RECOMPUTE = 6.0
# A value that is broadcast to at least this many copies is stored, if computing all copies costs more than a step.
MANY_COPIES, WORTH_A_KERNEL = 4, 20_000.0
# A value that overlapping slices read is stored if recomputing it costs this many operations and loads per point. A
# Gaussian along rows and columns of 200 × 200 takes 85 µs if 6 × 20 are recomputed, and 26 µs if stored. The sums of
# the game of life recompute 2 × 5.
EXPENSIVE_SLICES = 24.0
# Roots join a group while its kernel has fewer nodes than this, so that it compiles in about a second.
MAX_GROUP_NODES = 4000


@dataclass(eq=False)
class Group:
    """Roots that one step computes."""

    kind: GroupKind
    space: Space
    roots: list[Node] = field(default_factory=list)
    needs: set[Group] = field(default_factory=set)
    leaves: set[Node] = field(default_factory=set)
    below: dict[Node, list[Node]] = field(default_factory=dict)  # the dependencies of each root, down to other roots
    size: int = 0  # nodes in the expressions of the roots
    number: int = 0  # the index in the order of creation

    @property
    def shape(self) -> tuple[int, ...]:
        return self.space.shape

    @property
    def axes(self) -> tuple[int, ...] | None:
        """The reduced axes; None while no root needs an inner dimension."""
        return self.space.axes

    @property
    def domain(self) -> tuple[int, ...]:
        return self.space.domain

    @property
    def inner(self) -> tuple[int, ...]:
        return self.space.inner

    @property
    def split(self) -> bool:
        """Whether several threads share each row."""
        if any(root.op is arg_reduce for root in self.roots):
            return False  # partial results of chunks would have to store values beside their indices
        return splits_rows(self.space)

    def depends_on(self, other: Group) -> bool:
        pending: list[Group] = [self]
        visited: set[Group] = set()
        while pending:
            group = pending.pop()
            if group is other:
                return True
            if group not in visited:
                visited.add(group)
                pending.extend(group.needs)
        return False


def splits_rows(space: Space) -> bool:
    """Whether rows are so few and so long that several threads share each."""
    return bool(space.axes) and prod(space.domain) < FEW_ROWS and prod(space.inner) >= LONG_ROW


def has_long_columns(space: Space) -> bool:
    """Whether the columns that a group of lanes reduces exceed the cache, so that the next sweep reads memory again.

    >>> [has_long_columns(space_over(shape, (0,))) for shape in ((2048, 2048), (100, 2048), (2048, 4))]
    [True, False, False]
    """
    if not space.axes or not space.domain or len(space.shape) - 1 in space.axes:
        return False
    return prod(space.inner) * min(space.domain[-1], FOLDED_LANES) > LONG_COLUMNS


# Whether a root can be computed in a group: all values of the group that it uses are available at its point.
Aligned = Callable[[Node, Group], bool]


def space_of(node: Node) -> Space:
    """The iteration space of a root: its shape, and the axes that it reduces."""
    if node.op is reduce:
        return space_over(sizes(node.operands[0]), node.attribute("axes") or None)
    if node.op is arg_reduce:
        return space_over(sizes(node.operands[0]), (node.attribute("axis"),))
    mapped = map_result(node)
    if mapped is not None and root_kind(node) == "fused":
        source, result_index = mapped
        domain = map_domain_sizes(source)
        summed = source.attribute("summed")[result_index]
        return space_over(domain, tuple(range(len(domain))) if summed and domain else None)
    return space_over(sizes(node), None)


def map_domain_sizes(node: Node) -> tuple[int, ...]:
    types = [operand.type for operand in node.operands]
    return map_domain(types, node.attribute("function"), node.attribute("lifted"))  # type: ignore[return-value]


def is_reducing(node: Node) -> bool:
    """Whether a root reduces over the inner dimensions of its group."""
    mapped = map_result(node)
    if mapped is not None and root_kind(node) == "fused":
        return mapped[0].attribute("summed")[mapped[1]]
    return node.op in (reduce, arg_reduce)


def group_roots(
    roots: Roots,
    aligned: Aligned,
    cut_columns: bool = True,
    apart: Set[Node] = frozenset(),
    cut_rows: tuple[int, int] | None = None,
) -> list[Group]:
    """Groups roots greedily and returns the groups in a valid order.

    With `cut_columns`, a reduction of long columns has a group of its own. So has one of at most `cut_rows[0]` rows of
    at least `cut_rows[1]` elements. Users of a root in `apart` are not in its group, and read it from memory.
    """
    grouping = _Grouping(roots, aligned, cut_columns, apart, cut_rows)
    for root, kind in roots.items():
        grouping.add(root, kind)
    return _sort_groups(grouping.groups)


@dataclass(slots=True)
class _Grouping:
    """The groups so far, with indices that find the groups that share reads with a root."""

    roots: Roots
    aligned: Aligned
    cut_columns: bool
    apart: Set[Node]
    cut_rows: tuple[int, int] | None
    groups: list[Group] = field(default_factory=list)
    group_of: dict[Node, Group] = field(default_factory=dict)
    # Fused groups by what they read, and their shape.
    readers: dict[tuple[Node, tuple[int, ...]], list[Group]] = field(default_factory=dict)
    # The last group that computes each node below a scalar root.
    scalar_groups: dict[Node, Group] = field(default_factory=dict)
    # The groups of loops that write in place, by loop.
    loops: dict[Node, Group] = field(default_factory=dict)

    def add(self, root: Node, kind: GroupKind) -> None:
        candidate, group = self._find_group(root, kind)
        if group is None:
            group = Group(kind, candidate.space, number=len(self.groups))
            self.groups.append(group)
            if kind == "loop":
                self.loops[root.operands[0]] = group
        elif group.axes is None and candidate.space.axes is not None:
            group.space = candidate.space
        group.roots.append(root)
        group.needs |= candidate.needs - {group}
        if kind == "fused":
            for leaf in candidate.leaves - group.leaves:
                self.readers.setdefault((leaf, group.shape), []).append(group)
        group.leaves |= candidate.leaves
        group.below[root] = candidate.below
        group.size += len(candidate.below)
        self.group_of[root] = group
        if _is_scalar_root(root, kind) and _is_without_reductions(candidate):
            computed = [node for node in candidate.below if node.operands and node not in self.roots]
            self.scalar_groups |= dict.fromkeys(computed, group)

    def _find_group(self, root: Node, kind: GroupKind) -> tuple[Candidate, Group | None]:
        """A root with its dependencies, and the group that it joins, if any."""
        if _is_scalar_root(root, kind):
            # The walk stops at nodes shared with earlier scalars: a list of n results is walked once, not n times.
            candidate = self._make_candidate(root, kind, lambda node: node in self.roots or node in self.scalar_groups)
            may_share = len(candidate.shares) == 1 and _is_without_reductions(candidate)
            group = candidate.find_group(candidate.shares) if may_share else None
            if group is not None:
                return candidate, group
        candidate = self._make_candidate(root, kind, self.roots.__contains__)
        if kind == "loop":
            return candidate, self.loops.get(root.operands[0])
        if kind != "fused":
            return candidate, None
        shape = candidate.space.shape
        sharing_reads = [group for leaf in candidate.leaves for group in self.readers.get((leaf, shape), ())]
        return candidate, candidate.find_group({*sharing_reads, *candidate.needs, *candidate.shares})

    def _make_candidate(self, root: Node, kind: GroupKind, stop: Callable[[Node], bool]) -> Candidate:
        roots, scalar_groups = self.roots, self.scalar_groups
        below = toposort(root.operands, stop=stop)
        needs = {self.group_of[node] for node in below if node in roots}
        leaves = {n for n in below if n in roots or (n.op is parameter_op and isinstance(n.type, Tensor))}
        is_scalar = _is_scalar_root(root, kind)
        shares = {scalar_groups[node] for node in below if node in scalar_groups} if is_scalar else set[Group]()
        reducing = kind == "fused" and is_reducing(root)
        space, closed = space_of(root), {self.group_of[node] for node in leaves & self.apart}
        cuts = self.cut_columns, self.cut_rows
        return Candidate(root, space, reducing, needs, leaves, shares, below, closed, self.aligned, *cuts)


def _is_scalar_root(root: Node, kind: GroupKind) -> bool:
    """Whether a root is a scalar, a small vector, or a tensor of one element that is not a reduction. Such roots may
    share nodes that cannot be stored, such as a loop that returns several results, an array or a tuple."""
    if kind != "fused":
        return False
    return not isinstance(root.type, Tensor) or (not sizes(root) and not is_reducing(root))


def _is_without_reductions(candidate: Candidate) -> bool:
    """Whether a root that is a tensor computes no reduction. The stages of a reduction belong to one root."""
    return not isinstance(candidate.root.type, Tensor) or not any(map(is_reducing, candidate.below))


@dataclass(slots=True)
class Candidate:
    """A root to be grouped: its dependencies, the tensors it reads, and the nodes of its expression."""

    root: Node
    space: Space
    reducing: bool
    needs: set[Group]
    leaves: set[Node]
    shares: set[Group]  # for a scalar root: the groups that compute parts of it
    below: list[Node]
    closed: set[Group]  # groups whose results it must read from memory
    aligned: Aligned
    cut_columns: bool
    cut_rows: tuple[int, int] | None

    def find_group(self, groups: Iterable[Group]) -> Group | None:
        """The latest group that the root can join: one that shares a read with it, or that it depends on."""
        for group in sorted({*groups} - self.closed, key=_creation_order, reverse=True):
            if group.kind != "fused" or group.size + len(self.below) > MAX_GROUP_NODES or not self._fits(group):
                continue
            creates_cycle = any(other is not group and other.depends_on(group) for other in self.needs)
            if not creates_cycle and self.aligned(self.root, group):
                return group
        return None

    def _fits(self, group: Group) -> bool:
        shape, axes = self.space.shape, self.space.axes
        depends = group in self.needs
        if depends and self.cut_columns and has_long_columns(group.space):
            return False
        if shape != group.shape and not self.reducing and isinstance(self.root.type, Tensor | Scalar):
            # A value for each row, computed from reductions of the row.
            return depends and bool(group.axes) and shape == group.domain and not group.split
        if shape != group.shape or (axes is not None and group.axes is not None and axes != group.axes):
            return False
        if not depends:
            return group in self.shares or (bool(shape) and not self.leaves.isdisjoint(group.leaves))
        joint_space = group.space if group.axes is not None else self.space
        is_cut = splits_rows(joint_space) or self._cuts_rows(joint_space)
        return not is_cut or not any(is_reducing(member) for member in group.roots)

    def _cuts_rows(self, space: Space) -> bool:
        """Whether rows are so few and so long that several blocks should share each, which they do in one sweep."""
        if self.cut_rows is None or not space.axes:
            return False
        few, long = self.cut_rows
        return prod(space.domain) <= few and prod(space.inner) >= long


def _creation_order(group: Group) -> int:
    return group.number


def _sort_groups(groups: list[Group]) -> list[Group]:
    """Topological order, with ties in the order of creation."""
    done: set[Group] = set()
    order: list[Group] = []
    pending: list[tuple[Group, bool]] = [(group, False) for group in reversed(groups)]
    while pending:
        group, ready = pending.pop()
        if ready:
            if group not in done:
                done.add(group)
                order.append(group)
            continue
        if group in done:
            continue
        pending.append((group, True))
        pending.extend(
            (other, False) for other in sorted(group.needs, key=_creation_order, reverse=True) if other not in done
        )
    return order


def find_external_reads(groups: Sequence[Group], roots: Roots) -> set[Node]:
    """The roots that are read by a group other than their own."""
    return {
        node
        for group in groups
        for below in group.below.values()
        for node in below
        if node in roots and (group.kind != "fused" or node not in group.below)
    }


def find_shared_expensive(groups: Sequence[Group], roots: Roots) -> set[Node]:
    """Nodes that several groups would compute and that are too expensive to recompute."""
    users: dict[Node, set[int]] = {}
    for group in groups:
        for below in group.below.values():
            for node in below:
                if node not in roots:
                    users.setdefault(node, set()).add(group.number)
    # The operand of a broadcast is stored instead: it is smaller, and the same groups share it.
    shared = {
        node
        for node, groups_of_node in users.items()
        if len(groups_of_node) > 1 and isinstance(node.type, Tensor) and node.op is not broadcast
    }
    return {
        node
        for node in shared
        if node.op.cost >= CHEAP_TO_RECOMPUTE or _chain_cost(node, roots) > 3 * CHEAP_TO_RECOMPUTE
    }


def find_recomputed(function: Function, roots: Roots) -> set[Node]:
    """Nodes that many points would recompute, because they are broadcast or read by overlapping slices."""
    repeated = _find_windowed(function, roots)
    for node in nodes_of(function):
        if node.op is not broadcast:
            continue
        (source,) = node.operands
        if not isinstance(source.type, Tensor) or source.op is parameter_op or source in roots:
            continue
        times, cost = prod(sizes(node)) / max(1, prod(sizes(source))), _chain_cost(source, roots)
        if source.op is permute:
            cost += CHEAP_TO_RECOMPUTE  # elements that are far apart in memory are read one by one
        if times >= MANY_COPIES and cost >= CHEAP_TO_RECOMPUTE and cost * prod(sizes(node)) >= WORTH_A_KERNEL:
            repeated.add(source)
    return repeated


def _find_windowed(function: Function, roots: Roots) -> set[Node]:
    """Nodes that overlapping slices read, as in a filter of another filter's result."""
    windows: dict[Node, list[Node]] = {}
    for node in nodes_of(function):
        if node.op is slice_ and node.operands[0].op is not parameter_op and node.operands[0] not in roots:
            windows.setdefault(node.operands[0], []).append(node)
    windowed: set[Node] = set()
    for source, slices in windows.items():
        size = prod(sizes(source))
        repeats = sum(prod(sizes(part)) for part in slices) / max(1, size) - 1.0
        if repeats < 1.0:
            continue
        operations = _chain_cost(source, roots)
        cost = repeats * (operations + _count_reads(source, roots))
        if operations and cost >= EXPENSIVE_SLICES and cost * size >= WORTH_A_KERNEL:
            windowed.add(source)
    return windowed


def _count_reads(node: Node, roots: Roots) -> int:
    """The number of slices in an expression, each of which is a load."""
    return sum(inner.op is slice_ for inner in toposort([node], stop=roots.__contains__))


def _chain_cost(node: Node, roots: Roots) -> float:
    return sum(inner.op.cost for inner in toposort([node], stop=roots.__contains__) if inner not in roots)
