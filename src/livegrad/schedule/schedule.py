"""The scheduler: from a function over tensors of known sizes to a plan."""

from __future__ import annotations

from dataclasses import dataclass, field

from livegrad.diagnostics import CompileError
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node, parameter_op
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import Matrix, Scalar, Tensor, Type, Vector
from livegrad.schedule.accumulating import accumulates, memory_below
from livegrad.schedule.allocate import allocate
from livegrad.schedule.fuse import Group, computed_often, group_roots, read_outside, shared_between
from livegrad.schedule.kernels import NewBuffer, build_steps
from livegrad.schedule.maps import prepare_maps
from livegrad.schedule.order import in_memory_order
from livegrad.schedule.plan import Buffer, HostStep, Lifetime, ObjectSlot, Plan, Slot, Step
from livegrad.schedule.roots import Roots, find_roots, is_storable, long_chain_cuts, seen_operand
from livegrad.schedule.shared_sweeps import share_sweeps
from livegrad.schedule.signature import flatten_signature
from livegrad.schedule.special import build_copy, build_placements, build_scan
from livegrad.schedule.thread_totals import thread_totals
from livegrad.schedule.turned_products import turn_products
from livegrad.schedule.verify import verify_plan
from livegrad.schedule.work import Trials

_ROUNDS = 4


def schedule(function: Function, cut_columns: bool = True) -> Plan:
    """The plan of a function: its parameters and results, taken apart into scalars and tensors, are its buffers.

    Folds of long columns are cut into chunks, for threads that take a group of columns each; unless a backend has its
    threads share columns.
    """
    prepared = share_sweeps(turn_products(prepare_maps(thread_totals(flatten_signature(function)))))
    plan = _Scheduler(prepared, cut_columns).plan()
    verify_plan(plan)
    return plan


@dataclass
class _Scheduler:
    function: Function
    cut_columns: bool
    buffers: list[Buffer] = field(default_factory=list)
    stored: dict[Node, Buffer] = field(default_factory=dict)
    objects: dict[Node, ObjectSlot] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    wanted: set[Node] = field(default_factory=set)

    def new_buffer(self, name: str, element: Scalar, shape: tuple[int, ...], lifetime: Lifetime = "graph") -> Buffer:
        buffer = Buffer(len(self.buffers), name, element, shape, lifetime)
        self.buffers.append(buffer)
        return buffer

    def plan(self) -> Plan:
        function = self.function
        arguments = [self._argument(p, i) for i, p in enumerate(function.parameters)]
        results = self._result_slots()
        groups, roots = self._groups()
        views = [root for group in groups if group.kind == "view" for root in group.roots]
        for root in roots:
            if not is_storable(root.type):
                self.objects.setdefault(root, ObjectSlot(len(self.objects), root.op.name))
            elif root not in self.stored and root not in views:
                self.stored[root] = self._buffer_for(root, root.op.name, "graph")
        self.wanted = read_outside(groups, roots) | set(function.results)
        for group in in_memory_order(groups, roots, function.results):
            self._add_group(group)
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
            if node not in self.stored and node.op is not parameter_op and not _is_view(node):
                self.stored[node] = buffer
        return results

    def _copy_results(self, results: list[Slot]) -> None:
        """Results that live elsewhere: arguments handed back, views, and nodes returned twice."""
        for node, slot in zip(self.function.results, results, strict=True):
            if isinstance(slot, Buffer) and self.stored[node] is not slot:
                self.steps.append(_copy_step(self.stored[node], slot, self.new_buffer))

    def _groups(self) -> tuple[list[Group], Roots]:
        """Groups of roots; a dear value that several groups need becomes a root, and they are formed anew."""
        also = long_chain_cuts(self.function)
        also |= computed_often(self.function, find_roots(self.function, also))
        for _ in range(_ROUNDS):
            roots, groups = self._grouped(also)
            more = shared_between(groups, roots) - also
            if not more:
                return groups, roots
            also |= more
        roots, groups = self._grouped(also)
        return groups, roots

    def _grouped(self, also: set[Node]) -> tuple[Roots, list[Group]]:
        roots = find_roots(self.function, also)
        stand_in = {root: self._stand_in(root) for root in roots if is_storable(root.type)}
        stand_in |= {p: self.stored[p] for p in self.function.parameters if p in self.stored}
        return roots, group_roots(roots, Trials(stand_in).can_hold)

    def _stand_in(self, root: Node) -> Buffer:
        element, shape = storage(root.type)
        return Buffer(-1, "trial", element, shape, "graph")

    # --- steps ---

    def _add_group(self, group: Group) -> None:
        match group.kind:
            case "fused":
                self.steps += build_steps(group, self.stored, self.new_buffer, self.wanted, self.cut_columns)
            case "scan":
                self.steps += [build_scan(root, self.stored, self.new_buffer) for root in group.roots]
            case "place":
                self.steps += [s for root in group.roots for s in build_placements(root, self.stored, self.new_buffer)]
            case "view":
                for root in group.roots:
                    self._add_view(root)
            case "host":
                self.steps += [self._host_step(root) for root in group.roots]

    def _add_view(self, root: Node) -> None:
        """A reshape of stored memory, or the same after other steps: the same bytes under another shape or name."""
        source = self.stored[root.operands[0]]
        element, shape = storage(root.type)
        self.stored[root] = Buffer(source.number, source.name, element, shape, source.lifetime, source.base)

    def _host_step(self, root: Node) -> HostStep:
        if accumulates(root):
            operands = memory_below(root)
        else:
            operands = list(dict.fromkeys(o if o in self.stored else seen_operand(root, o) for o in root.operands))
        function = make_function(root.op.name, operands, [root])
        return HostStep(root.op, function, tuple(map(self._slot, operands)), self._slot(root), root.origin)

    def _slot(self, node: Node) -> Slot:
        return self.objects[node] if node in self.objects else self.stored[node]


def _is_view(node: Node) -> bool:
    return node.op.name in ("reshape", "after")


def storage(type: Type) -> tuple[Scalar, tuple[int, ...]]:
    """The element and shape of the memory for a value."""
    match type:
        case Scalar():
            return type, ()
        case Vector(element=element, size=size):
            return element, (size,)
        case Matrix(element=element, rows=rows, columns=columns):
            return element, (rows, columns)
        case Tensor(element=element, shape=shape):
            return element, shape  # type: ignore[return-value]
    raise CompileError(f"no memory holds a {type}")


def _copy_step(source: Buffer, target: Buffer, new_buffer: NewBuffer) -> Step:
    node = input_node(Key("source"), Tensor(source.element, source.shape))
    return build_copy(node, target, {node: source}, new_buffer)
