"""Fusion: groups of materialised values that share a kernel.

Roots over the same iteration space form a group, and a group becomes a kernel. See `roots`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from math import prod

from livegrad.ir.leaves import parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Tensor
from livegrad.ir.walk import nodes_of, toposort
from livegrad.ops.control import map_domain
from livegrad.ops.movement import broadcast, permute, sizes, slice_
from livegrad.ops.reduction import arg_reduce, reduce
from livegrad.schedule.loops.cost_model import FEW_ROWS, FOLDED_LANES, LONG_COLUMNS, LONG_ROW
from livegrad.schedule.materialise import GroupKind, Roots, map_result, root_kind
from livegrad.schedule.space import Space, space_over

# A value that several kernels need is computed again in each when it costs less than this, and stored otherwise.
CHEAP_AGAIN = 6.0
# A value that is spread over this many points at least is stored first, if computing it at each costs more than a step.
OFTEN, WORTH_A_KERNEL = 4, 20_000.0
# What overlapping slices would compute again, operations and loads of a point, from which on it is stored. A Gaussian
# along rows and columns of 200 × 200 takes 85 µs with 6 × 20 of them and 26 stored; the sums of life have 2 × 5.
SLICED_AGAIN = 24.0
# Roots join a group while the kernel stays below this many nodes: code should compile in about a second.
MOST_JOINED = 4000


@dataclass(eq=False)
class Group:
    """Roots that are computed by one step."""

    kind: GroupKind
    space: Space
    roots: list[Node] = field(default_factory=list)
    needs: set[Group] = field(default_factory=set)
    leaves: set[Node] = field(default_factory=set)
    below: dict[Node, list[Node]] = field(default_factory=dict)  # the dependencies of each root, down to other roots
    size: int = 0  # nodes in the expressions of the roots
    number: int = 0  # in the order in which groups were begun

    @property
    def shape(self) -> tuple[int, ...]:
        return self.space.shape

    @property
    def axes(self) -> tuple[int, ...] | None:
        """The reduced ones; None while no root needs an inner dimension."""
        return self.space.axes

    @property
    def domain(self) -> tuple[int, ...]:
        return self.space.domain

    @property
    def inner(self) -> tuple[int, ...]:
        return self.space.inner

    @property
    def split(self) -> bool:
        if any(root.op is arg_reduce for root in self.roots):
            return False  # partial results of chunks would have to keep values beside their indices
        return is_split(self.space)

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


def is_split(space: Space) -> bool:
    """Whether rows are so few and long that several threads share each."""
    return bool(space.axes) and prod(space.domain) < FEW_ROWS and prod(space.inner) >= LONG_ROW


def has_long_columns(space: Space) -> bool:
    """Whether what a group of lanes folds down columns is more than a cache keeps for the next sweep.

    >>> [has_long_columns(space_over(shape, (0,))) for shape in ((2048, 2048), (100, 2048), (2048, 4))]
    [True, False, False]
    """
    if not space.axes or not space.domain or len(space.shape) - 1 in space.axes:
        return False
    return prod(space.inner) * min(space.domain[-1], FOLDED_LANES) > LONG_COLUMNS


# Whether a root can be computed inside a group: every value of the group that it uses is there by then.
Aligned = Callable[[Node, Group], bool]


def space_of(node: Node) -> Space:
    """The iteration space of a root: the shape it runs over, and the axes that it reduces."""
    if node.op is reduce:
        return space_over(sizes(node.operands[0]), node.attribute("axes") or None)
    if node.op is arg_reduce:
        return space_over(sizes(node.operands[0]), (node.attribute("axis"),))
    mapped = map_result(node)
    if mapped is not None and root_kind(node) == "fused":
        source, number = mapped
        domain = map_domain_sizes(source)
        summed = source.attribute("summed")[number]
        return space_over(domain, tuple(range(len(domain))) if summed and domain else None)
    return space_over(sizes(node), None)


def map_domain_sizes(node: Node) -> tuple[int, ...]:
    types = [operand.type for operand in node.operands]
    return map_domain(types, node.attribute("function"), node.attribute("lifted"))  # type: ignore[return-value]


def is_reducing(node: Node) -> bool:
    """Whether a root folds over the inner dimensions of its group."""
    mapped = map_result(node)
    if mapped is not None and root_kind(node) == "fused":
        return mapped[0].attribute("summed")[mapped[1]]
    return node.op in (reduce, arg_reduce)


def group_roots(
    roots: Roots, aligned: Aligned, cut_columns: bool = True, apart: Set[Node] = frozenset()
) -> list[Group]:
    """Returns groups in a valid order. A reduction of long columns that will be split is a group of its own.

    Users of a root in `apart` are not in its group, and read it from memory.
    """
    grouping = _Grouping(roots, aligned, cut_columns, apart)
    for root, kind in roots.items():
        grouping.add(root, kind)
    return _in_order(grouping.groups)


@dataclass(slots=True)
class _Grouping:
    """The groups so far, with indices to find those that share reads with another root."""

    roots: Roots
    aligned: Aligned
    cut_columns: bool
    apart: Set[Node]
    groups: list[Group] = field(default_factory=list)
    group_of: dict[Node, Group] = field(default_factory=dict)
    # Fused groups by what they read, and their shape.
    readers: dict[tuple[Node, tuple[int, ...]], list[Group]] = field(default_factory=dict)
    # What roots that are numbers are computed from, by the last group that does it.
    computed: dict[Node, Group] = field(default_factory=dict)
    # The groups of loops that write in place.
    loops: dict[Node, Group] = field(default_factory=dict)

    def add(self, root: Node, kind: GroupKind) -> None:
        joins, group = self._joined(root, kind)
        if group is None:
            group = Group(kind, joins.space, number=len(self.groups))
            self.groups.append(group)
            if kind == "loop":
                self.loops[root.operands[0]] = group
        elif group.axes is None and joins.space.axes is not None:
            group.space = joins.space
        group.roots.append(root)
        group.needs |= joins.needs - {group}
        if kind == "fused":
            for leaf in joins.leaves - group.leaves:
                self.readers.setdefault((leaf, group.shape), []).append(group)
        group.leaves |= joins.leaves
        group.below[root] = joins.below
        group.size += len(joins.below)
        self.group_of[root] = group
        if _is_number(root, kind):
            self.computed |= {node: group for node in joins.below if node.operands and node not in self.roots}

    def _joined(self, root: Node, kind: GroupKind) -> tuple[Joining, Group | None]:
        """A root with its dependencies, and the group that it joins."""
        if _is_number(root, kind):
            # Down to what the numbers before it share: a list of n results is walked once, not n times.
            joins = self._joining(root, kind, lambda node: node in self.roots or node in self.computed)
            group = joins.group_among(joins.shares) if len(joins.shares) == 1 else None
            if group is not None:
                return joins, group
        joins = self._joining(root, kind, self.roots.__contains__)
        if kind == "loop":
            return joins, self.loops.get(root.operands[0])
        if kind != "fused":
            return joins, None
        alike = [other for leaf in joins.leaves for other in self.readers.get((leaf, joins.space.shape), ())]
        return joins, joins.group_among({*alike, *joins.needs, *joins.shares})

    def _joining(self, root: Node, kind: GroupKind, stop: Callable[[Node], bool]) -> Joining:
        roots, computed = self.roots, self.computed
        below = toposort(root.operands, stop=stop)
        needs = {self.group_of[node] for node in below if node in roots}
        leaves = {n for n in below if n in roots or (n.op is parameter_op and isinstance(n.type, Tensor))}
        shares = {computed[node] for node in below if node in computed} if _is_number(root, kind) else set[Group]()
        reducing = kind == "fused" and is_reducing(root)
        space, closed = space_of(root), {self.group_of[node] for node in leaves & self.apart}
        return Joining(root, space, reducing, needs, leaves, shares, below, closed, self.aligned, self.cut_columns)


def _is_number(root: Node, kind: GroupKind) -> bool:
    """Whether a root is a number or small vector: memory shares tensors between kernels, not what these have in common
    (the loop whose results they are, an array, a tuple)."""
    return kind == "fused" and not isinstance(root.type, Tensor)


@dataclass(slots=True)
class Joining:
    """A root to be grouped: its dependencies, the tensors it reads, and the nodes of its expression."""

    root: Node
    space: Space
    reducing: bool
    needs: set[Group]
    leaves: set[Node]
    shares: set[Group]  # groups that compute a part of it, where it is a number
    below: list[Node]
    closed: set[Group]  # groups whose results it must read from memory
    aligned: Aligned
    cut_columns: bool

    def group_among(self, groups: Iterable[Group]) -> Group | None:
        """The latest group that can take a root: one that shares a read with it, or that it depends on."""
        for group in sorted({*groups} - self.closed, key=_number, reverse=True):
            if group.kind != "fused" or group.size + len(self.below) > MOST_JOINED or not self._fits(group):
                continue
            ends_in_circle = any(other is not group and other.depends_on(group) for other in self.needs)
            if not ends_in_circle and self.aligned(self.root, group):
                return group
        return None

    def _fits(self, group: Group) -> bool:
        shape, axes = self.space.shape, self.space.axes
        depends = group in self.needs
        if depends and self.cut_columns and has_long_columns(group.space):
            return False
        if shape != group.shape and not self.reducing and isinstance(self.root.type, Tensor | Scalar):
            # A value for each row, computed from what the row was reduced to.
            return depends and bool(group.axes) and shape == group.domain and not group.split
        if shape != group.shape or (axes is not None and group.axes is not None and axes != group.axes):
            return False
        if not depends:
            return group in self.shares or (bool(shape) and not self.leaves.isdisjoint(group.leaves))
        becomes = group.space if group.axes is not None else self.space
        return not is_split(becomes) or not any(is_reducing(member) for member in group.roots)


def _number(group: Group) -> int:
    return group.number


def _in_order(groups: list[Group]) -> list[Group]:
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
        pending.extend((other, False) for other in sorted(group.needs, key=_number, reverse=True) if other not in done)
    return order


def read_outside(groups: Sequence[Group], roots: Roots) -> set[Node]:
    """The roots that a group other than their own reads."""
    return {
        node
        for group in groups
        for below in group.below.values()
        for node in below
        if node in roots and (group.kind != "fused" or node not in group.below)
    }


def shared_between(groups: Sequence[Group], roots: Roots) -> set[Node]:
    """Nodes that would be computed in several groups and cost too much for that."""
    users: dict[Node, set[int]] = {}
    for group in groups:
        for below in group.below.values():
            for node in below:
                if node not in roots:
                    users.setdefault(node, set()).add(group.number)
    # What is spread is stored as it was before: smaller, and shared by the same groups.
    shared = {
        node
        for node, numbers in users.items()
        if len(numbers) > 1 and isinstance(node.type, Tensor) and node.op is not broadcast
    }
    return {node for node in shared if node.op.cost >= CHEAP_AGAIN or _chain_cost(node, roots) > 3 * CHEAP_AGAIN}


def computed_often(function: Function, roots: Roots) -> set[Node]:
    """Nodes that are spread over many points, or read by windows that overlap: points would compute the same again."""
    repeated = _read_by_windows(function, roots)
    for node in nodes_of(function):
        if node.op is not broadcast:
            continue
        (source,) = node.operands
        if not isinstance(source.type, Tensor) or source.op is parameter_op or source in roots:
            continue
        times, cost = prod(sizes(node)) / max(1, prod(sizes(source))), _chain_cost(source, roots)
        if source.op is permute:
            cost += CHEAP_AGAIN  # neighbours that lie far apart are read one by one
        if times >= OFTEN and cost >= CHEAP_AGAIN and cost * prod(sizes(node)) >= WORTH_A_KERNEL:
            repeated.add(source)
    return repeated


def _read_by_windows(function: Function, roots: Roots) -> set[Node]:
    """Nodes whose elements are in several overlapping slices, as in a filter of another filter's result."""
    windows: dict[Node, list[Node]] = {}
    for node in nodes_of(function):
        if node.op is slice_ and node.operands[0].op is not parameter_op and node.operands[0] not in roots:
            windows.setdefault(node.operands[0], []).append(node)
    windowed: set[Node] = set()
    for source, slices in windows.items():
        size = prod(sizes(source))
        again = sum(prod(sizes(part)) for part in slices) / max(1, size) - 1.0
        if again < 1.0:
            continue
        operations = _chain_cost(source, roots)
        cost = again * (operations + _count_reads(source, roots))
        if operations and cost >= SLICED_AGAIN and cost * size >= WORTH_A_KERNEL:
            windowed.add(source)
    return windowed


def _count_reads(node: Node, roots: Roots) -> int:
    """How many slices an expression reads, each of which is a load."""
    return sum(inner.op is slice_ for inner in toposort([node], stop=roots.__contains__))


def _chain_cost(node: Node, roots: Roots) -> float:
    return sum(inner.op.cost for inner in toposort([node], stop=roots.__contains__) if inner not in roots)
