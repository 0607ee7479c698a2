"""The work of a group: scalar expressions at its points and rows, and the sweep in which each is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, scalar_of
from livegrad.ops.aggregate import members_of
from livegrad.ops.control import component_shape
from livegrad.ops.reduction import arg_reduce, reduce
from livegrad.schedule.expression import Expressions, Memory, NotAligned
from livegrad.schedule.fuse import Group, is_reducing, space_of
from livegrad.schedule.materialise import Roots, is_storable, map_result
from livegrad.schedule.plan import Buffer, storage
from livegrad.schedule.space import Space


def is_row_level(root: Node, group: Group) -> bool:
    """Whether a root of a reducing group is computed once a row."""
    space = group.space
    if not space.axes or space.domain == space.shape or is_reducing(root):
        return False
    return space_of(root).shape == space.domain


@dataclass
class Work:
    """The work of a root: scalars to be stored or reduced at each point or row."""

    root: Node
    values: list[Node]
    reduce: str | None


@dataclass(slots=True)
class Outside:
    """The stored tensors that are not members of a group: looked up, not copied, for a plan may store thousands."""

    stored: Memory
    members: set[Node]

    def get(self, node: Node, /) -> Buffer | None:
        return None if node in self.members else self.stored.get(node)


@dataclass
class KernelBuilder:
    """Builds the stages of one group. The trial of a root (`Trials`) uses the same code as the final build."""

    group: Group
    stored: Memory
    outside: Outside = field(init=False)
    expressions: Expressions = field(init=False)
    rows: list[Scalar] = field(default_factory=list)
    row_slots: dict[Node, list[int]] = field(default_factory=dict)
    works: dict[Node, Work] = field(default_factory=dict)  # of the roots that it has taken
    in_vain: bool = False  # whether its expressions read anything for a root that it could not take

    def __post_init__(self) -> None:
        self.outside = Outside(self.stored, set(self.group.roots))
        self.expressions = Expressions(self.outside, len(self.group.domain) + len(self.group.inner))

    def phases(self) -> dict[Node, int]:
        """In which sweep each root is computed: after every fold that it reads."""
        phases: dict[Node, int] = {}
        by_row: dict[Node, bool] = {}  # whether there is one value of a root for a row
        for root in self.group.roots:
            phase, row_level = 0, is_row_level(root, self.group)
            for below in self.group.below[root]:
                if below in phases:
                    phase = max(phase, phases[below] + (1 if by_row[below] and not row_level else 0))
            phases[root], by_row[root] = phase, row_level or is_reducing(root)
        return phases

    def work_of(self, root: Node) -> Work:
        """The scalar expressions of a root at the group's point."""
        group, expressions = self.group, self.expressions
        index = group.space.row if is_row_level(root, group) else group.space.point
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
            self.in_vain = True
            if joins:
                members.discard(root)
            return False
        self.works[root] = work
        if is_reducing(root) or is_row_level(root, self.group):
            self.keep(work)
        self.group.roots.append(root)
        return True

    def has_kept(self, roots: Sequence[Node], space: Space) -> bool:
        return self.group.axes == space.axes and self.group.roots == roots

    def keep(self, work: Work) -> None:
        """Makes a root's values available to the rest of the row."""
        slots = []
        for value in work.values:
            slots.append(len(self.rows))
            self.rows.append(_row_type(work, value))
        self.row_slots[work.root] = slots
        if isinstance(work.root.type, Tensor):
            self.expressions.rows[work.root] = (self.group.space.row, slots[0])
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
class StandIns:
    """Memory for roots while it is not known which of them need any; what is stored already is where it is."""

    roots: Roots
    stored: Mapping[Node, Buffer]
    buffers: dict[Node, Buffer] = field(default_factory=dict)
    stands_for: dict[Buffer, Node] = field(default_factory=dict)

    def get(self, node: Node, /) -> Buffer | None:
        buffer = self.buffers.get(node)
        if buffer is None and node in self.roots and is_storable(node.type):
            buffer = self.buffers[node] = Buffer(-1, "trial", *storage(node.type), "graph")
            self.stands_for[buffer] = node
        return self.stored.get(node) if buffer is None else buffer

    def real(self, buffer: Buffer, stored: Mapping[Node, Buffer]) -> Buffer:
        """What a buffer stands for, once that is stored."""
        node = self.stands_for.get(buffer)
        return buffer if node is None else stored[node]


@dataclass
class Trials:
    """Whether groups can compute roots with what they have at their points, found out by building.

    What a group has taken so far is kept: the trial of one more root does not begin anew, nor does the final build.
    """

    memory: StandIns
    builders: dict[Group, KernelBuilder] = field(default_factory=dict)

    def can_hold(self, root: Node, group: Group) -> bool:
        space = group.space if group.axes is not None else space_of(root)
        builder = self.builders.get(group)
        if builder is None or not builder.has_kept(group.roots, space):
            builder = builder_of(group.roots, space, self.memory)
        if builder is None or not builder.take(root):
            return False
        self.builders[group] = builder
        return True

    def finished(self, group: Group, stored: Mapping[Node, Buffer]) -> KernelBuilder:
        """The builder of a group that is complete, over the memory that its operands have by now."""
        builder = self.builders.get(group)
        if builder is None or not self._can_stay(builder, group, stored):
            builder = builder_of(group.roots, group.space, stored)
            assert builder is not None
        builder.group = group
        return builder

    def _can_stay(self, builder: KernelBuilder, group: Group, stored: Mapping[Node, Buffer]) -> bool:
        """Whether what was tried is what is wanted, now that it reads what its memory stood for."""
        if builder.in_vain or not builder.has_kept(group.roots, group.space):
            return False
        return builder.expressions.exchange_buffers(lambda buffer: self.memory.real(buffer, stored))


def builder_of(roots: Sequence[Node], space: Space, memory: Memory) -> KernelBuilder | None:
    """A builder that has taken some roots, over such a space; None if it cannot have all of them there."""
    builder = KernelBuilder(Group("fused", space), memory)
    return builder if all(map(builder.take, roots)) else None
