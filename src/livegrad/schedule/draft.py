"""A plan under construction: the decisions of the plan passes so far.

`livegrad.compiler` creates a draft from a function, runs the plan passes over it, and builds the plan from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from livegrad.ir.leaves import parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar
from livegrad.ops.conversion import complex_parts, from_parts
from livegrad.ops.movement import reshape
from livegrad.schedule.fuse import Group
from livegrad.schedule.materialise import ForcedKinds, Roots
from livegrad.schedule.plan import Buffer, Lifetime, ObjectSlot, Plan, RowChain, Slot, Step, describe_steps, storage
from livegrad.schedule.step_kinds import is_memory_view, is_storable, root_kind
from livegrad.schedule.target import Target
from livegrad.schedule.work import Trials

_VIEWS = (reshape, complex_parts, from_parts)


@dataclass(eq=False)
class Draft:
    """A function for a target, with its materialised values, groups, order, steps and memory."""

    function: Function
    target: Target
    overwrites: Mapping[int, int] = field(
        default_factory=dict
    )  # argument index: the index of a result that may be stored there
    buffers: list[Buffer] = field(default_factory=list)
    stored: dict[Node, Buffer] = field(default_factory=dict)
    copy_reasons: dict[Buffer, str] = field(
        default_factory=dict
    )  # for the target buffer of a write that needs a copy first
    objects: dict[Node, ObjectSlot] = field(default_factory=dict)
    arguments: list[Slot] = field(default_factory=list)
    results: list[Slot] = field(default_factory=list)
    forced: ForcedKinds = field(default_factory=dict)  # how nodes must be computed
    materialised: set[Node] = field(default_factory=set)  # optional materialisation points
    updates: list[Node] = field(default_factory=list)  # writes that update an argument in place
    compared: Set[Node] = frozenset()  # tensors compared with their own extremum
    roots: Roots = field(default_factory=dict)  # everything that is stored, and how it is computed
    groups: list[Group] = field(default_factory=list)
    trials: Trials | None = None
    steps: list[Step] = field(default_factory=list)
    chains: tuple[RowChain, ...] = ()
    arena_offsets: dict[Buffer, int] = field(default_factory=dict)
    arena_bytes: int = 0

    def __post_init__(self) -> None:
        """Assigns slots to arguments and results first, so that results are computed in their final memory."""
        for index, parameter in enumerate(self.function.parameters):
            self.arguments.append(self._make_argument(parameter, index))
        for index, node in enumerate(self.function.results):
            self.results.append(self._make_result(node, index))

    def plan(self) -> Plan:
        """Builds the plan, after all passes have run."""
        return Plan(
            self.function.name,
            tuple(self.steps),
            tuple(self.buffers),
            tuple(self.arguments),
            tuple(self.results),
            self.arena_offsets,
            self.arena_bytes,
            self.function,
            self.chains,
        )

    def __str__(self) -> str:
        lines = [f"plan {self.function.name} for {self.target.name}"]
        if self.steps:
            return "\n".join([*lines, *describe_steps(self.steps, self.chains), *self._memory_lines()]) + "\n"
        if self.groups:
            return "\n".join([*lines, *map(self._group_line, self.groups)]) + "\n"
        lines += [f"  {root.op.name}: {root.type}, {kind}" for root, kind in self.roots.items()]
        return "\n".join(lines) + "\n"

    def _group_line(self, group: Group) -> str:
        roots = ", ".join(map(self._root_text, group.roots))
        if group.kind != "fused":
            return f"  {group.kind}: {roots}"
        domain, inner = ("x".join(map(str, sizes)) for sizes in (group.domain, group.inner))
        return f"  kernel [{domain or '1'}{f' over {inner}' if inner else ''}]: {roots}"

    def _root_text(self, root: Node) -> str:
        slot = self.stored.get(root) or self.objects.get(root)
        return root.op.name if slot is None else f"{root.op.name} in {slot}"

    def _memory_lines(self) -> list[str]:
        if not self.arena_offsets:
            return []
        placed = sorted(self.arena_offsets.items(), key=lambda item: (item[1], item[0].number))
        return ["  memory:", *(f"    {offset}: {buffer}, {buffer.bytes} bytes" for buffer, offset in placed)]

    # --- memory ---

    def new_buffer(self, name: str, element: Scalar, shape: tuple[int, ...], lifetime: Lifetime = "graph") -> Buffer:
        buffer = Buffer(len(self.buffers), name, element, shape, lifetime)
        self.buffers.append(buffer)
        return buffer

    def buffer_for(self, node: Node, name: str, lifetime: Lifetime) -> Buffer:
        element, shape = storage(node.type)
        return self.new_buffer(name, element, shape, lifetime)

    def reuse_argument(self, parameter: Node, result: int) -> bool:
        """Stores a result in the memory of an argument. False if another value has a view of the result's buffer."""
        result_buffer, argument = self.results[result], self.stored[parameter]
        nodes = [node for node, buffer in self.stored.items() if buffer.base is result_buffer]
        if any(self.stored[node] is not result_buffer for node in nodes) or self.results.count(result_buffer) > 1:
            return False
        self.stored |= dict.fromkeys(nodes, argument)
        self.results[result] = argument
        return True

    def slot(self, node: Node) -> Slot:
        return self.objects[node] if node in self.objects else self.stored[node]

    def _make_argument(self, parameter: Node, index: int) -> Slot:
        if not is_storable(parameter.type):
            slot = self.objects[parameter] = ObjectSlot(len(self.objects), f"argument{index}")
            return slot
        buffer = self.stored[parameter] = self.buffer_for(parameter, f"argument{index}", "external")
        return buffer

    def _make_result(self, node: Node, index: int) -> Slot:
        """Creates the slot of a result. A node that is not stored elsewhere is computed in it."""
        if not is_storable(node.type):
            return self.objects.setdefault(node, ObjectSlot(len(self.objects), f"result{index}"))
        buffer = self.buffer_for(node, f"result{index}", "external")
        if node not in self.stored and node.op is not parameter_op:
            self._compute_in(node, buffer)
        return buffer

    def _compute_in(self, node: Node, buffer: Buffer) -> None:
        """Has a node computed in the buffer of a result, or the source of a view, unless that is stored elsewhere."""
        chain = [node]
        while chain[-1].op in _VIEWS and (root_kind(chain[-1]) == "view" or is_memory_view(chain[-1])):
            chain.append(chain[-1].operands[0])
        source = chain[-1]
        kind = "view" if source.op is parameter_op else root_kind(source)
        writes_views = ("host", "scan", "place") if self.target.host_writes_views else ()
        if kind == "view" or (len(chain) > 1 and kind not in (None, "fused", *writes_views)):
            return
        if self.stored.keys().isdisjoint(chain):
            self.stored[node] = buffer
            self.stored |= {other: view_of(buffer, other) for other in chain[1:]}


def view_of(buffer: Buffer, node: Node) -> Buffer:
    """The same bytes with the element type and shape of another node."""
    element, shape = storage(node.type)
    return Buffer(buffer.number, buffer.name, element, shape, buffer.lifetime, buffer.base)
