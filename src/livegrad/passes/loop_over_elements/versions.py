"""Plans which tensors of a body lie in memory, and which versions of them are overwritten in place.

In: a function of a nest and the parameters that its results are to be versions of. `bodies` emits what is planned here.
A version may be overwritten if whatever reads it can run before: other readers read a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, Type
from livegrad.ir.walk import nodes_of
from livegrad.ops.aggregate import get
from livegrad.ops.assignment import UPDATES
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast, sizes, slice_
from livegrad.ops.reduction import arg_reduce, reduce
from livegrad.passes.loop_over_elements.elements import NotExpanded, reduces_rows
from livegrad.passes.regions import BRANCHES, LOOPS, first_argument

_MAX_NODES = 1500
_COSTLY = 8.0  # an op that is worth so many additions is not computed twice
_FEW_USES = 1.25  # of each element, on average: it may be computed again for some of them


def is_array(type: Type) -> bool:
    """Whether a type is that of a tensor with dimensions, which lies in memory or is computed element by element."""
    return isinstance(type, Tensor) and bool(type.shape)


def source_of(node: Node) -> Node:
    """The parameter, or other node, that a tensor is a version of by updates, loops and branches."""
    while (base := base_of(node)) is not None:
        node = base
    return node


def base_of(node: Node) -> Node | None:
    """The tensor of which a node is the next version; None for other nodes."""
    if node.op in UPDATES:
        return node.operands[0]
    source, result_index = (node.operands[0], node.attribute("index")) if node.op is get else (node, 0)
    if source.op in LOOPS:
        return source.operands[first_argument(source) + result_index]
    if source.op in BRANCHES:
        position = branch_destinations(source)[result_index]
        return None if position is None else source.operands[1 + position]
    return None


def branch_destinations(node: Node) -> tuple[int | None, ...]:
    """For each result of a branch, the argument of which every branch returns a version; None for others."""
    functions = node.functions
    destinations: list[int | None] = []
    for number, type in enumerate(functions[0].result_types):
        sources = [(function, source_of(function.results[number])) for function in functions]
        positions = {function.parameters.index(source) for function, source in sources if source in function.parameters}
        is_version = is_array(type) and len(positions) == 1
        position = positions.pop() if is_version else None
        destinations.append(None if position in destinations else position)
    return tuple(destinations)


@dataclass
class Versions:
    """What is known about one function while it is planned.

    `stored` are computed tensors that get memory; `copied` are writes, as a node and the operand that it writes, that
    start from a copy.
    """

    function: Function
    destinations: Sequence[int | None]  # for each result, the parameter whose memory it goes to
    stored: set[Node] = field(default_factory=set)
    copied: set[tuple[Node, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        if len(self.nodes) > _MAX_NODES:
            raise NotExpanded
        self.stored |= set(self._always_stored())
        self._settled = set(self.stored)  # what stays in memory

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        return nodes_of(self.function)

    # --- memory ---

    def in_memory(self, node: Node) -> bool:
        return is_array(node.type) and (self._has_version(node) or node in self.stored)

    def _has_version(self, node: Node) -> bool:
        source = node.operands[0] if node.op is get else node
        return node in self._parameters or source.op in (*UPDATES, *LOOPS, *BRANCHES)

    @cached_property
    def _parameters(self) -> frozenset[Node]:
        return frozenset(self.function.parameters)

    def _always_stored(self) -> Iterator[Node]:
        """Computed tensors that something needs in memory, or that cost too much to be computed again."""
        stored, uses = set[Node](), dict.fromkeys(self.nodes, 0.0)  # how often an element would be computed, on average
        for result in self.function.results:
            uses[result] += 1.0
        needed = {o for node in self.nodes for o in node.operands if node.functions} | {
            node.operands[0] for node in self.nodes if node.op in UPDATES
        }
        for node in reversed(self.nodes):
            in_memory = not is_array(node.type) or self._has_version(node)
            if not in_memory:
                costly = node.op in (reduce, arg_reduce) or (node.op.elementwise and node.op.cost >= _COSTLY)
                in_memory = node in needed or reduces_rows(node) or (costly and uses[node] > _FEW_USES)
                if in_memory:
                    stored.add(node)
            for operand in dict.fromkeys(node.operands):
                uses[operand] += (1.0 if in_memory else uses[node]) * _share_read(node, operand)
        yield from [node for node in self.nodes if node in stored]

    def writes(self, node: Node) -> list[tuple[int, Node]]:
        """The operands that a node overwrites, with their positions."""
        if node.op in UPDATES and is_array(node.type):
            positions = [0]
        elif node.op in LOOPS:
            first = first_argument(node)
            positions = [first + i for i in range(node.attribute("carried"))]
        elif node.op in BRANCHES:
            positions = [1 + position for position in branch_destinations(node) if position is not None]
        else:
            return []
        operands = [(number, node.operands[number]) for number in positions]
        return [(number, operand) for number, operand in operands if is_array(operand.type)]

    def overwriting_nodes(self) -> dict[Node, tuple[Node, int]]:
        """For each tensor that is overwritten, the node that does it and as which operand."""
        writers: dict[Node, tuple[Node, int]] = {}
        for node in self.nodes:
            for position, operand in self.writes(node):
                if (node, position) not in self.copied:
                    if operand in writers or node.operands.count(operand) > 1:
                        self.copied.add((node, position))
                    else:
                        writers[operand] = (node, position)
        return writers

    # --- who reads what, and when ---

    @cached_property
    def _ancestors(self) -> dict[Node, int]:
        """For each node the nodes that it needs, as bits."""
        ancestors: dict[Node, int] = {}
        for number, node in enumerate(self.nodes):
            ancestors[node] = 1 << number
            for operand in node.operands:
                ancestors[node] |= ancestors[operand]
        return ancestors

    def needs(self, node: Node, other: Node) -> bool:
        # A parameter that nothing reads is the destination of a result all the same; it needs nothing.
        return bool(self._ancestors.get(node, 0) & (1 << self._numbers[other]))

    @cached_property
    def _numbers(self) -> dict[Node, int]:
        return {node: number for number, node in enumerate(self.nodes)}

    def tree(self, root: Node) -> list[Node]:
        """The tensors that are computed for an element of this one, and those in memory that are read; root last."""
        versions: dict[Node, None] = {}
        pending = [root]
        while pending:
            node = pending.pop()
            if node in versions:
                continue
            versions[node] = None
            if is_array(node.type) and not self.in_memory(node):
                pending += [operand for operand in node.operands if is_array(operand.type)]
        return list(versions)

    def points(self) -> Iterator[tuple[Node, list[Node]]]:
        """The nodes that something is computed for at once, and the tensors that are read for it."""
        for node in self.nodes:
            if node in self._parameters:
                continue
            written = [position for position, _ in self.writes(node)]
            others = [o for position, o in enumerate(node.operands) if position not in written and is_array(o.type)]
            if others and (written or node in self.stored or not is_array(node.type) or node.functions):
                yield node, others

    # --- conflicts ---

    def resolve(self) -> None:
        """Stores and copies tensors until no read follows the write that overwrites its version."""
        for _ in range(len(self.nodes)):
            if not self._resolve_one():
                self._drop_needless()
                return
        raise NotExpanded

    def _drop_needless(self) -> None:
        """Computes tensors where they are read that were stored for writes which start from a copy by now."""
        for node in [node for node in self.nodes if node in self.stored and node not in self._settled]:
            self._settled.add(node)  # if it is stored again, it is needed
            stored, copied = set(self.stored), set(self.copied)
            self.stored.remove(node)
            if self._resolve_one():
                self.stored, self.copied = stored, copied

    def _resolve_one(self) -> bool:
        writers = self.overwriting_nodes()
        for point, roots in self.points():
            for root in roots:
                for read in self.tree(root):
                    if read not in writers or not self.in_memory(read):
                        continue
                    writer, position = writers[read]
                    if (writer is not point and self.needs(point, writer)) or (writer is point and point.functions):
                        self._separate(root, read, writer, position)
                        return True
        return self._resolve_results(writers)

    def _separate(self, root: Node, read: Node, writer: Node, position: int) -> None:
        """Stores the part of an expression that reads a tensor before it is overwritten, or copies the tensor."""
        for node in self.tree(root):
            if not self.in_memory(node) and not self.needs(node, writer) and read in self.tree(node):
                self.stored.add(node)
                return
        self.copied.add((writer, position))

    def last_version(self, parameter: Node, writers: dict[Node, tuple[Node, int]]) -> Node:
        node = parameter
        while node in writers:
            writer, position = writers[node]
            after = self._version_after(writer, position)
            if after is None:
                raise NotExpanded
            node = after
        return node

    def _version_after(self, writer: Node, position: int) -> Node | None:
        if writer.op in UPDATES:
            return writer
        number = position - first_argument(writer)
        if writer.op in BRANCHES:
            number = branch_destinations(writer).index(number)
            if not isinstance(writer.type, Tensor):
                return get(writer, index=number) if get(writer, index=number) in self._numbers else None
            return writer
        after = get(writer, index=number)
        return after if after in self._numbers else None

    def rewritten(self) -> list[int]:
        """The results that are written as a whole because they are not versions of their parameter, in order."""
        writers = self.overwriting_nodes()
        positions: list[int] = []
        for number, position in enumerate(self.destinations):
            if position is not None:
                is_fresh = position >= len(self.function.parameters)
                result = self.function.results[number]
                if is_fresh or self.last_version(self.function.parameters[position], writers) is not result:
                    positions.append(number)
        return positions

    def _resolve_results(self, writers: dict[Node, tuple[Node, int]]) -> bool:
        results, rewritten = self.function.results, self.rewritten()
        for result in results:
            if result in writers:
                self.copied.add(writers[result])
                return True
        last = {n: self._destination(n, writers) for n in rewritten}
        for number in rewritten:
            for read in self.tree(results[number]):
                if read in writers and self.in_memory(read):
                    writer, position = writers[read]
                    target = last[number]
                    if self.needs(results[number], writer) or (target is not None and self.needs(target, writer)):
                        self._separate(results[number], read, writer, position)
                        return True
        before = {n: {m for m in rewritten if m != n and last[m] in self.tree(results[n])} for n in rewritten}
        for number in rewritten:
            if number in _reachable(number, before):
                if self.in_memory(results[number]):
                    raise NotExpanded
                self.stored.add(results[number])
                return True
        return False

    def _destination(self, number: int, writers: dict[Node, tuple[Node, int]]) -> Node | None:
        position = self.destinations[number]
        assert position is not None
        if position >= len(self.function.parameters):
            return None
        return self.last_version(self.function.parameters[position], writers)


def _share_read(reader: Node, operand: Node) -> float:
    """How many elements of an operand a reader needs, as a share of all: one that it needs twice counts twice."""
    if reader.op in (broadcast, slice_) or (reader.op is lookup and reader.operands[0] is operand):
        return number_of_elements(reader) / max(1, number_of_elements(operand))
    return 1.0


def _reachable(start: int, edges: dict[int, set[int]]) -> set[int]:
    reached: set[int] = set()
    pending = list(edges[start])
    while pending:
        number = pending.pop()
        if number not in reached:
            reached.add(number)
            pending += edges[number]
    return reached


def number_of_elements(node: Node) -> int:
    return prod(sizes(node)) if isinstance(node.type, Tensor) else 1
