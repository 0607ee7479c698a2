"""What the roots of a group compute: scalar expressions at the group's points and rows, and in which sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, scalar_of
from livegrad.ir.walk import toposort
from livegrad.ops.aggregate import members_of
from livegrad.ops.control import component_shape
from livegrad.ops.reduction import arg_reduce, reduce
from livegrad.schedule.expression import Expressions, NotAligned
from livegrad.schedule.fuse import Group, is_reducing, space_of
from livegrad.schedule.plan import Buffer
from livegrad.schedule.roots import map_result
from livegrad.schedule.views import Affine, Index


def dimension_of(group: Group) -> dict[int, int]:
    """The kernel dimension of each axis of the group's shape: kept axes first, then the reduced ones."""
    return {axis: place for place, axis in enumerate((*group.kept_axes, *(group.axes or ())))}


def point_index(group: Group) -> tuple[Index, ...]:
    """The index of the group's own point into a tensor of its whole shape."""
    places = dimension_of(group)
    return tuple(Affine(places[axis], 0, 1) for axis in range(len(group.shape)))


def row_index(group: Group) -> tuple[Index, ...]:
    return tuple(Affine(place, 0, 1) for place in range(len(group.domain)))


def is_row_level(root: Node, group: Group) -> bool:
    """Whether a root of a reducing group is computed once a row."""
    return (
        bool(group.axes) and not is_reducing(root) and space_of(root)[0] == group.domain and group.domain != group.shape
    )


@dataclass
class Work:
    """What a root contributes: scalars to be stored or folded at each point (or row)."""

    root: Node
    values: list[Node]
    reduce: str | None


@dataclass(frozen=True)
class Outside(Mapping[Node, Buffer]):
    """The stored tensors that are not members of a group: looked up, not copied, for a plan may store thousands."""

    stored: Mapping[Node, Buffer]
    members: set[Node]

    def __contains__(self, node: object) -> bool:
        return node not in self.members and node in self.stored

    def __getitem__(self, node: Node) -> Buffer:
        if node in self.members:
            raise KeyError(node)
        return self.stored[node]

    def __iter__(self) -> Iterator[Node]:
        return (node for node in self.stored if node not in self.members)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass
class KernelBuilder:
    """Builds the stages of one group. The trial of a root (`Trials`) uses the same code as the final build."""

    group: Group
    stored: Mapping[Node, Buffer]
    outside: Outside = field(init=False)
    expressions: Expressions = field(init=False)
    rows: list[Scalar] = field(default_factory=list)
    row_slots: dict[Node, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.outside = Outside(self.stored, set(self.group.roots))
        self.expressions = Expressions(self.outside, len(self.group.domain) + len(self.group.inner))

    def phases(self) -> dict[Node, int]:
        """In which sweep each root is computed: after every fold that it reads."""
        members = set(self.group.roots)
        phases: dict[Node, int] = {}
        for root in self.group.roots:
            phase = 0
            for below in self._members_below(root, members):
                row = is_reducing(below) or is_row_level(below, self.group)
                later = row and not is_row_level(root, self.group)
                phase = max(phase, phases[below] + (1 if later else 0))
            phases[root] = phase
        return phases

    def _members_below(self, root: Node, members: set[Node]) -> set[Node]:
        below = toposort(root.operands, stop=lambda node: node in members or node in self.outside)
        return {node for node in below if node in members}

    def work_of(self, root: Node) -> Work:
        """The scalar expressions of a root at the group's point."""
        group, expressions = self.group, self.expressions
        index = row_index(group) if is_row_level(root, group) else point_index(group)
        if root.op in (reduce, arg_reduce):
            return Work(root, [expressions.element(root.operands[0], index)], root.attribute("kind"))
        mapped = map_result(root)
        if mapped is not None:
            source, number = mapped
            shape = component_shape(source.attribute("function").result_types[number])
            if shape or source.attribute("summed")[number]:
                value = expressions.map_results(source, index)[number]
                values = members_of(value) if shape else [value]
                return Work(root, values, "sum" if source.attribute("summed")[number] else None)
        if not isinstance(root.type, Tensor):
            return Work(root, _scalars(expressions.scalar(root)), None)
        return Work(root, [expressions.element(root, index)], None)

    def take(self, root: Node) -> bool:
        """Makes a root a member of the group, if its values can be computed there. Members come before their users."""
        members = self.outside.members
        joins = root not in members
        members.add(root)
        try:
            work = self.work_of(root)
        except NotAligned:
            if joins:
                members.discard(root)
            return False
        if is_reducing(root) or is_row_level(root, self.group):
            self.keep(work)
        self.group.roots.append(root)
        return True

    def keep(self, work: Work) -> None:
        """Makes a root's values available to the rest of the row."""
        slots = []
        for value in work.values:
            slots.append(len(self.rows))
            self.rows.append(_row_type(work, value))
        self.row_slots[work.root] = slots
        if isinstance(work.root.type, Tensor):
            self.expressions.rows[work.root] = (row_index(self.group), slots[0])
        else:
            self.expressions.keep_scalar(work.root, slots, [self.rows[slot] for slot in slots])


def _row_type(work: Work, value: Node) -> Scalar:
    if work.reduce in ("argmax", "argmin"):
        scalar = scalar_of(work.root.type)
    else:
        scalar = scalar_of(value.type)
    assert scalar is not None
    return scalar


def _scalars(value: Node) -> list[Node]:
    return [value] if isinstance(value.type, Scalar) else members_of(value)


@dataclass
class Trials:
    """Whether groups can compute roots with what they have at their points, found out by building.

    What a group has taken so far is kept: the trial of one more root does not begin anew.
    """

    stored: Mapping[Node, Buffer]
    builders: dict[Group, KernelBuilder] = field(default_factory=dict)

    def can_hold(self, root: Node, group: Group) -> bool:
        axes = group.axes if group.axes is not None else space_of(root)[1]
        builder = self.builders.get(group)
        if builder is None or builder.group.axes != axes or builder.group.roots != group.roots:
            builder = self._builder_of(group, axes)
        if builder is None or not builder.take(root):
            return False
        self.builders[group] = builder
        return True

    def _builder_of(self, group: Group, axes: tuple[int, ...] | None) -> KernelBuilder | None:
        """What the group has taken, over these axes; None if it cannot have all of it there."""
        builder = KernelBuilder(Group("fused", group.shape, axes), self.stored)
        return builder if all(map(builder.take, group.roots)) else None
