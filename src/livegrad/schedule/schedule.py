"""The scheduler: from a function over tensors of known sizes to a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set
from dataclasses import dataclass, field

from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node, parameter_op
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import Scalar, Tensor
from livegrad.ir.walk import nodes_of
from livegrad.ops.conversion import complex_parts, from_parts
from livegrad.ops.movement import pad, reshape
from livegrad.ops.sorting import top_positions
from livegrad.passes.expand import expand_ops
from livegrad.schedule.accumulating import accumulates, memory_below
from livegrad.schedule.allocate import allocate
from livegrad.schedule.complex_parts import split_complex
from livegrad.schedule.extrema import compared_with_extrema
from livegrad.schedule.fuse import Group, computed_often, group_roots, read_outside, shared_between
from livegrad.schedule.kernels import NewBuffer, build_steps
from livegrad.schedule.maps import prepare_maps
from livegrad.schedule.order import in_memory_order
from livegrad.schedule.plan import Buffer, HostStep, KernelStep, Lifetime, ObjectSlot, Plan, Slot, Step, storage
from livegrad.schedule.point_loops import loops_at_points
from livegrad.schedule.roots import (
    Roots,
    find_roots,
    forced_kinds,
    is_storable,
    long_chain_cuts,
    root_kind,
    seen_operand,
    shows_memory,
)
from livegrad.schedule.seams import split_at_seams
from livegrad.schedule.shared_sweeps import share_sweeps
from livegrad.schedule.shortcuts import ALL, Shortcuts
from livegrad.schedule.signature import flatten_signature
from livegrad.schedule.small_products import write_out_small_products
from livegrad.schedule.special import build_copy, build_placements, build_scan
from livegrad.schedule.thread_totals import thread_totals
from livegrad.schedule.turned_products import turn_products
from livegrad.schedule.verify import verify_plan
from livegrad.schedule.windows import write_out_windows
from livegrad.schedule.work import StandIns, Trials
from livegrad.schedule.write_steps import build_writes, count_chunks

_ROUNDS = 4
_VIEWS = (reshape, complex_parts, from_parts)


def schedule(
    function: Function,
    for_cpu: bool = True,
    begin: Callable[[KernelStep], None] | None = None,
    shortcuts: Shortcuts = ALL,
) -> Plan:
    """The plan of a function: its parameters and results, taken apart into scalars and tensors, are its buffers.

    For the CPU, folds of long columns are cut into chunks, for threads that take a group of columns each (other
    backends have their threads share columns), and kernels write and search by computed index and compute with complex
    numbers. A backend that can `begin` with kernels before there is a whole plan is told each as soon as it is there.
    """
    flat = flatten_signature(function)
    # Devices have sorting of their own, not this.
    real = split_complex(flat) if for_cpu else expand_ops(flat, lambda node: node.op is top_positions)
    for rewrite, wanted in (
        (loops_at_points, for_cpu and shortcuts.point_loops),
        (write_out_small_products, for_cpu and shortcuts.small_products),
        (split_at_seams, for_cpu and shortcuts.seams),
        (write_out_windows, True),
        (thread_totals, shortcuts.thread_totals),
        (prepare_maps, True),
        (turn_products, shortcuts.turned_products),
        (share_sweeps, shortcuts.shared_sweeps),
    ):
        real = rewrite(real) if wanted else real
    plan = _Scheduler(real, for_cpu, begin, shortcuts).plan()
    verify_plan(plan)
    return plan


@dataclass
class _Scheduler:
    function: Function
    for_cpu: bool
    begin: Callable[[KernelStep], None] | None = None
    shortcuts: Shortcuts = ALL
    buffers: list[Buffer] = field(default_factory=list)
    stored: dict[Node, Buffer] = field(default_factory=dict)
    objects: dict[Node, ObjectSlot] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    told: int = 0  # steps of which the backend knows
    wanted: set[Node] = field(default_factory=set)
    trials: Trials = field(init=False)

    def new_buffer(self, name: str, element: Scalar, shape: tuple[int, ...], lifetime: Lifetime = "graph") -> Buffer:
        buffer = Buffer(len(self.buffers), name, element, shape, lifetime)
        self.buffers.append(buffer)
        return buffer

    def plan(self) -> Plan:
        function = self.function
        arguments = [self._argument(p, i) for i, p in enumerate(function.parameters)]
        results = self._result_slots()
        groups, roots = self._groups()
        for root, kind in roots.items():
            if not is_storable(root.type):
                self.objects.setdefault(root, ObjectSlot(len(self.objects), root.op.name))
            elif root not in self.stored and kind != "view":
                self.stored[root] = self._buffer_for(root, root.op.name, "graph")
        if self.shortcuts.writes_in_place:
            self._change_in_place(roots)
        self.wanted = read_outside(groups, roots) | set(function.results)
        for group in in_memory_order(groups, roots, function.results):
            self._add_group(group)
            self._begin_kernels()
        self._copy_results(results)
        inside = [buffer for buffer in self.buffers if buffer.lifetime == "graph"]
        places, size = allocate(self.steps, inside)
        return Plan(
            function.name,
            tuple(self.steps),
            tuple(self.buffers),
            tuple(arguments),
            tuple(results),
            places,
            size,
            function,
        )

    def _begin_kernels(self) -> None:
        """Tells the backend what has come since it was told last."""
        if self.begin is None:
            return
        for step in self.steps[self.told :]:
            if isinstance(step, KernelStep):
                self.begin(step)
        self.told = len(self.steps)

    def _argument(self, parameter: Node, number: int) -> Slot:
        if not is_storable(parameter.type):
            slot = self.objects[parameter] = ObjectSlot(len(self.objects), f"argument{number}")
            return slot
        buffer = self.stored[parameter] = self._buffer_for(parameter, f"argument{number}", "external")
        return buffer

    def _buffer_for(self, node: Node, name: str, lifetime: Lifetime) -> Buffer:
        element, shape = storage(node.type)
        return self.new_buffer(name, element, shape, lifetime)

    def _result_slots(self) -> list[Slot]:
        """One for each result; a node that is returned first from here is written there at once."""
        results: list[Slot] = []
        for number, node in enumerate(self.function.results):
            if not is_storable(node.type):
                results.append(self.objects.setdefault(node, ObjectSlot(len(self.objects), f"result{number}")))
                continue
            buffer = self._buffer_for(node, f"result{number}", "external")
            results.append(buffer)
            if node not in self.stored and node.op is not parameter_op:
                self._write_to(node, buffer)
        return results

    def _write_to(self, node: Node, buffer: Buffer) -> None:
        """Has a node computed where its result belongs; if it is a view, what it shows, unless that lies elsewhere."""
        chain = [node]
        while chain[-1].op in _VIEWS and (root_kind(chain[-1]) == "view" or shows_memory(chain[-1])):
            chain.append(chain[-1].operands[0])
        shown = chain[-1]
        kind = "view" if shown.op is parameter_op else root_kind(shown)
        others = ("host", "scan", "place") if self.for_cpu else ()  # libraries of a device write to whole buffers
        if kind == "view" or (len(chain) > 1 and kind not in (None, "fused", *others)):
            return
        if self.stored.keys().isdisjoint(chain):
            self.stored[node] = buffer
            self.stored |= {other: view_of(buffer, other) for other in chain[1:]}

    def _copy_results(self, results: list[Slot]) -> None:
        """Results that live elsewhere: arguments handed back, views, and nodes returned twice."""
        for node, slot in zip(self.function.results, results, strict=True):
            if isinstance(slot, Buffer) and self.stored[node] is not slot:
                self.steps.append(_copy_step(self.stored[node], slot, self.new_buffer))

    def _groups(self) -> tuple[list[Group], Roots]:
        """Groups of roots; a dear value that several groups need becomes a root, and they are formed anew."""
        forced, compared = forced_kinds(self.function, self.for_cpu), compared_with_extrema(self.function)
        also = long_chain_cuts(self.function) | compared
        if not self.shortcuts.guarded_loads:
            also |= {node for node in nodes_of(self.function) if node.op is pad}
        roots = find_roots(self.function, forced, also)
        more = computed_often(self.function, roots)
        for _ in range(_ROUNDS):
            if more:
                also |= more
                roots = find_roots(self.function, forced, also)
            groups = self._grouped(roots, compared)
            more = shared_between(groups, roots) - also
            if not more:
                return groups, roots
        roots = find_roots(self.function, forced, also | more)
        return self._grouped(roots, compared), roots

    def _grouped(self, roots: Roots, apart: Set[Node]) -> list[Group]:
        self.trials = Trials(StandIns(roots, self.stored))
        can_hold = self.trials.can_hold if self.shortcuts.fusion else lambda *_: False
        return group_roots(roots, can_hold, self.for_cpu, apart)

    def _change_in_place(self, roots: Roots) -> None:
        """What nobody but a write by index uses goes straight to where it is changed."""
        if "write" not in roots.values():
            return
        uses = Counter(operand for node in nodes_of(self.function) for operand in node.operands)
        uses.update(self.function.results)
        for root, kind in reversed(roots.items()):
            base = root.operands[0] if kind == "write" and count_chunks(root) == 1 else None
            if base is not None and uses[base] == 1 and roots.get(base) in ("fused", "scan", "place", "write"):
                self.stored[base] = self.stored[root]

    # --- steps ---

    def _add_group(self, group: Group) -> None:
        match group.kind:
            case "fused":
                builder = self.trials.finished(group, self.stored)
                self.steps += build_steps(builder, self.stored, self.new_buffer, self.wanted, self.for_cpu)
            case "scan":
                self.steps += [build_scan(root, self.stored, self.new_buffer) for root in group.roots]
            case "place":
                self.steps += [s for root in group.roots for s in build_placements(root, self.stored, self.new_buffer)]
            case "write":
                self.steps += [s for root in group.roots for s in build_writes(root, self.stored, self.new_buffer)]
            case "view":
                for root in group.roots:
                    self._add_view(root)
            case "host":
                self.steps += [self._host_step(root) for root in group.roots]

    def _add_view(self, root: Node) -> None:
        """A reshape of stored memory, or the same after other steps: the same bytes under another shape or name."""
        if root not in self.stored:
            self.stored[root] = view_of(self.stored[root.operands[0]], root)

    def _host_step(self, root: Node) -> HostStep:
        if accumulates(root):
            operands = memory_below(root)
        else:
            operands = list(dict.fromkeys(o if o in self.stored else seen_operand(root, o) for o in root.operands))
        function = make_function(root.op.name, operands, [root])
        return HostStep(root.op, function, tuple(map(self._slot, operands)), self._slot(root), root.origin)

    def _slot(self, node: Node) -> Slot:
        return self.objects[node] if node in self.objects else self.stored[node]


def view_of(buffer: Buffer, node: Node) -> Buffer:
    """The same bytes, as another node has them."""
    element, shape = storage(node.type)
    return Buffer(buffer.number, buffer.name, element, shape, buffer.lifetime, buffer.base)


def _copy_step(source: Buffer, target: Buffer, new_buffer: NewBuffer) -> Step:
    node = input_node(Key("source"), Tensor(source.element, source.shape))
    return build_copy(node, target, {node: source}, new_buffer)
