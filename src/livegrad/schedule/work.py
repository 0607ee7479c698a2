"""Builds the scalar expressions of a group of roots, and assigns each root to a sweep.

`fuse` uses it to try whether a root fits into a group; `kernels` turns the result into stages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, scalar_of
from livegrad.ops.aggregate import members_of
from livegrad.ops.maps import component_shape
from livegrad.ops.reduction import arg_reduce, reduce
from livegrad.schedule.expression import Expressions, Memory, NotAligned
from livegrad.schedule.fuse import Group, is_reducing, space_of
from livegrad.schedule.materialise import Roots
from livegrad.schedule.plan import Buffer, storage
from livegrad.schedule.space import Space
from livegrad.schedule.step_kinds import is_storable, map_result


def is_row_level(root: Node, group: Group) -> bool:
    """Whether a root of a reducing group is computed once per row."""
    space = group.space
    if not space.axes or space.domain == space.shape or is_reducing(root):
        return False
    return space_of(root).shape == space.domain


@dataclass
class Work:
    """The scalars of a root, which are stored or reduced at each point or row."""

    root: Node
    values: list[Node]
    reduce: str | None


@dataclass(slots=True)
class ExternalMemory:
    """The stored tensors outside a group, without copying the table, because a plan may store thousands."""

    stored: Memory
    members: set[Node]

    def get(self, node: Node, /) -> Buffer | None:
        return None if node in self.members else self.stored.get(node)


@dataclass
class KernelBuilder:
    """Builds the expressions of one group. Trials of roots (`Trials`) use the same code as the final build."""

    group: Group
    stored: Memory
    outside: ExternalMemory = field(init=False)
    expressions: Expressions = field(init=False)
    rows: list[Scalar] = field(default_factory=list)
    row_slots: dict[Node, list[int]] = field(default_factory=dict)
    works: dict[Node, Work] = field(default_factory=dict)  # the work of each added root
    has_failed: bool = False  # whether a root could not be added; its expressions may contain unused reads

    def __post_init__(self) -> None:
        self.outside = ExternalMemory(self.stored, set(self.group.roots))
        self.expressions = Expressions(self.outside, len(self.group.domain) + len(self.group.inner))

    def phases(self) -> dict[Node, int]:
        """The sweep that computes each root: after all reductions that the root depends on."""
        phases: dict[Node, int] = {}
        by_row: dict[Node, bool] = {}  # whether a root has one value per row
        for root in self.group.roots:
            phase, row_level = 0, is_row_level(root, self.group)
            for below in self.group.below[root]:
                if below in phases:
                    phase = max(phase, phases[below] + (1 if by_row[below] and not row_level else 0))
            phases[root], by_row[root] = phase, row_level or is_reducing(root)
        return phases

    def build_work(self, root: Node) -> Work:
        """Builds the scalar expressions of a root at the group's point or row."""
        group, expressions = self.group, self.expressions
        index = group.space.row if is_row_level(root, group) else group.space.point
        if root.op in (reduce, arg_reduce):
            return Work(root, [expressions.element(root.operands[0], index)], root.attribute("kind"))
        mapped = map_result(root)
        if mapped is not None:
            source, result = mapped
            shape = component_shape(source.attribute("function").result_types[result])
            if shape or source.attribute("summed")[result]:
                value = expressions.map_results(source, index)[result]
                values = members_of(value) if shape else [value]
                return Work(root, values, "sum" if source.attribute("summed")[result] else None)
        if not isinstance(root.type, Tensor):
            return Work(root, _scalars(expressions.scalar(root)), None)
        return Work(root, [expressions.element(root, index)], None)

    def try_add(self, root: Node) -> bool:
        """Adds a root to the group if its values can be computed there. Roots are added before their users."""
        members = self.outside.members
        is_new = root not in members
        members.add(root)
        try:
            work = self.build_work(root)
        except NotAligned:
            self.has_failed = True
            if is_new:
                members.discard(root)
            return False
        self.works[root] = work
        if is_reducing(root) or is_row_level(root, self.group):
            self.add_row_values(work)
        self.group.roots.append(root)
        return True

    def matches(self, roots: Sequence[Node], space: Space) -> bool:
        """Whether the builder has exactly these roots over this space."""
        return self.group.axes == space.axes and self.group.roots == roots

    def add_row_values(self, work: Work) -> None:
        """Makes a root's values available to later sweeps and stages of the row."""
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
class TrialBuffers:
    """Placeholder buffers for roots during fusion, before memory is assigned; stored values have their real buffers."""

    roots: Roots
    stored: Mapping[Node, Buffer]
    buffers: dict[Node, Buffer] = field(default_factory=dict)
    node_of: dict[Buffer, Node] = field(default_factory=dict)

    def get(self, node: Node, /) -> Buffer | None:
        buffer = self.buffers.get(node)
        if buffer is None and node in self.roots and is_storable(node.type):
            buffer = self.buffers[node] = Buffer(-1, "trial", *storage(node.type), "graph")
            self.node_of[buffer] = node
        return self.stored.get(node) if buffer is None else buffer

    def resolve(self, buffer: Buffer, stored: Mapping[Node, Buffer]) -> Buffer:
        """The real buffer for a placeholder."""
        node = self.node_of.get(buffer)
        return buffer if node is None else stored[node]


@dataclass
class Trials:
    """Decides by trial whether a group can compute a root: builds the root's expressions.

    The builder of each group is kept, so that neither the next trial nor the final build starts from scratch.
    """

    memory: TrialBuffers
    builders: dict[Group, KernelBuilder] = field(default_factory=dict)

    def can_add(self, root: Node, group: Group) -> bool:
        space = group.space if group.axes is not None else space_of(root)
        builder = self.builders.get(group)
        if builder is None or not builder.matches(group.roots, space):
            builder = try_build(group.roots, space, self.memory)
        if builder is None or not builder.try_add(root):
            return False
        self.builders[group] = builder
        return True

    def finish(self, group: Group, stored: Mapping[Node, Buffer]) -> KernelBuilder:
        """The builder of a complete group, with the real buffers of its operands."""
        builder = self.builders.get(group)
        if builder is None or not self._can_reuse(builder, group, stored):
            builder = try_build(group.roots, group.space, stored)
            assert builder is not None
        builder.group = group
        return builder

    def _can_reuse(self, builder: KernelBuilder, group: Group, stored: Mapping[Node, Buffer]) -> bool:
        """Whether a trial builder can be reused for the final build; replaces placeholders by real buffers."""
        if builder.has_failed or not builder.matches(group.roots, group.space):
            return False
        return builder.expressions.replace_buffers(lambda buffer: self.memory.resolve(buffer, stored))


def try_build(roots: Sequence[Node], space: Space, memory: Memory) -> KernelBuilder | None:
    """A builder with these roots over a space; None if it cannot compute all of them."""
    builder = KernelBuilder(Group("fused", space), memory)
    return builder if all(map(builder.try_add, roots)) else None
