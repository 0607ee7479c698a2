"""Plans which tensors of a loop body lie in memory, and which versions of them are overwritten in place.

In: a function of a loop nest, and for each result the parameter whose memory it goes to. `bodies` emits the code. A
version may be overwritten if all its readers can run before; otherwise, the writer takes a copy.
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
_COSTLY = 8.0  # ops of this cost (in additions) are not recomputed
_FEW_USES = 1.25  # of each element, on average: up to this, recomputing is cheaper than storing


def is_array(type: Type) -> bool:
    """Whether a type is a tensor of rank 1 or more."""
    return isinstance(type, Tensor) and bool(type.shape)


def source_of(node: Node) -> Node:
    """The node that a tensor is a version of: follows updates, loops and branches back to the first version."""
    while (base := base_of(node)) is not None:
        node = base
    return node


def base_of(node: Node) -> Node | None:
    """The previous version of a tensor; None for a first version."""
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
    """For each result of a branch, the index of the argument that it is a version of in every branch, or None."""
    functions = node.functions
    destinations: list[int | None] = []
    for index, type in enumerate(functions[0].result_types):
        sources = [(function, source_of(function.results[index])) for function in functions]
        positions = {function.parameters.index(source) for function, source in sources if source in function.parameters}
        is_version = is_array(type) and len(positions) == 1
        position = positions.pop() if is_version else None
        destinations.append(None if position in destinations else position)
    return tuple(destinations)


@dataclass
class Versions:
    """The plan of one function.

    `stored` has the computed tensors that get memory. `copied` has the writes that start from a copy: nodes, with the
    position of the operand that they overwrite.
    """

    function: Function
    destinations: Sequence[int | None]  # for each result, the parameter whose memory it goes to
    stored: set[Node] = field(default_factory=set)
    copied: set[tuple[Node, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        if len(self.nodes) > _MAX_NODES:
            raise NotExpanded
        self.stored |= set(self._find_stored())
        self._final = set(self.stored)  # stay in memory

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

    def _find_stored(self) -> Iterator[Node]:
        """Computed tensors that some node needs in memory, or that cost too much to recompute."""
        stored, uses = set[Node](), dict.fromkeys(self.nodes, 0.0)  # the average number of uses of an element
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
                uses[operand] += (1.0 if in_memory else uses[node]) * _read_share(node, operand)
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
        operands = [(position, node.operands[position]) for position in positions]
        return [(position, operand) for position, operand in operands if is_array(operand.type)]

    def overwriting_nodes(self) -> dict[Node, tuple[Node, int]]:
        """For each tensor that is overwritten, the node that overwrites it and the position of the operand."""
        writers: dict[Node, tuple[Node, int]] = {}
        for node in self.nodes:
            for position, operand in self.writes(node):
                if (node, position) not in self.copied:
                    if operand in writers or node.operands.count(operand) > 1:
                        self.copied.add((node, position))
                    else:
                        writers[operand] = (node, position)
        return writers

    # --- dependencies ---

    @cached_property
    def _ancestors(self) -> dict[Node, int]:
        """For each node, itself and the nodes that it depends on, as a bit mask."""
        ancestors: dict[Node, int] = {}
        for index, node in enumerate(self.nodes):
            ancestors[node] = 1 << index
            for operand in node.operands:
                ancestors[node] |= ancestors[operand]
        return ancestors

    def needs(self, node: Node, dependency: Node) -> bool:
        # Unused parameters have no ancestors here, but they can be the destination of a result.
        return bool(self._ancestors.get(node, 0) & (1 << self._indices[dependency]))

    @cached_property
    def _indices(self) -> dict[Node, int]:
        return {node: index for index, node in enumerate(self.nodes)}

    def tree(self, root: Node) -> list[Node]:
        """The tensors that the expression of an element of `root` computes, and those in memory that it reads."""
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

    def emission_points(self) -> Iterator[tuple[Node, list[Node]]]:
        """The nodes at which code is emitted, and the tensors that this code reads."""
        for node in self.nodes:
            if node in self._parameters:
                continue
            written = [position for position, _ in self.writes(node)]
            read = [o for position, o in enumerate(node.operands) if position not in written and is_array(o.type)]
            if read and (written or node in self.stored or not is_array(node.type) or node.functions):
                yield node, read

    # --- conflicts ---

    def resolve(self) -> None:
        """Stores and copies tensors until no version is read after it is overwritten."""
        for _ in range(len(self.nodes)):
            if not self._resolve_one():
                self._drop_unneeded()
                return
        raise NotExpanded

    def _drop_unneeded(self) -> None:
        """Drops stored tensors that are no longer needed because later decisions made a write start from a copy."""
        for node in [node for node in self.nodes if node in self.stored and node not in self._final]:
            self._final.add(node)  # if it is stored again, it is needed
            stored, copied = set(self.stored), set(self.copied)
            self.stored.remove(node)
            if self._resolve_one():
                self.stored, self.copied = stored, copied

    def _resolve_one(self) -> bool:
        writers = self.overwriting_nodes()
        for point, roots in self.emission_points():
            for root in roots:
                for read in self.tree(root):
                    if read not in writers or not self.in_memory(read):
                        continue
                    writer, position = writers[read]
                    if (writer is not point and self.needs(point, writer)) or (writer is point and point.functions):
                        self._store_or_copy(root, read, writer, position)
                        return True
        return self._resolve_results(writers)

    def _store_or_copy(self, root: Node, read: Node, writer: Node, position: int) -> None:
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
            next_version = self._next_version(writer, position)
            if next_version is None:
                raise NotExpanded
            node = next_version
        return node

    def _next_version(self, writer: Node, position: int) -> Node | None:
        if writer.op in UPDATES:
            return writer
        index = position - first_argument(writer)
        if writer.op in BRANCHES:
            index = branch_destinations(writer).index(index)
            if not isinstance(writer.type, Tensor):
                return get(writer, index=index) if get(writer, index=index) in self._indices else None
            return writer
        result = get(writer, index=index)
        return result if result in self._indices else None

    def results_to_write(self) -> list[int]:
        """The indices of results that are not the last version of their parameter, and must be written as a whole."""
        writers = self.overwriting_nodes()
        indices: list[int] = []
        for index, position in enumerate(self.destinations):
            if position is not None:
                is_fresh = position >= len(self.function.parameters)
                result = self.function.results[index]
                if is_fresh or self.last_version(self.function.parameters[position], writers) is not result:
                    indices.append(index)
        return indices

    def _resolve_results(self, writers: dict[Node, tuple[Node, int]]) -> bool:
        results, results_to_write = self.function.results, self.results_to_write()
        for result in results:
            if result in writers:
                self.copied.add(writers[result])
                return True
        targets = {index: self._destination(index, writers) for index in results_to_write}
        for index in results_to_write:
            for read in self.tree(results[index]):
                if read in writers and self.in_memory(read):
                    writer, position = writers[read]
                    target = targets[index]
                    if self.needs(results[index], writer) or (target is not None and self.needs(target, writer)):
                        self._store_or_copy(results[index], read, writer, position)
                        return True
        # A result that reads the target of another must be written first; on a cycle, one result is stored.
        before = {
            n: {m for m in results_to_write if m != n and targets[m] in self.tree(results[n])} for n in results_to_write
        }
        for index in results_to_write:
            if index in _reachable(index, before):
                if self.in_memory(results[index]):
                    raise NotExpanded
                self.stored.add(results[index])
                return True
        return False

    def _destination(self, index: int, writers: dict[Node, tuple[Node, int]]) -> Node | None:
        """The version that a result overwrites; None for fresh memory."""
        position = self.destinations[index]
        assert position is not None
        if position >= len(self.function.parameters):
            return None
        return self.last_version(self.function.parameters[position], writers)


def _read_share(reader: Node, operand: Node) -> float:
    """The reads of an operand's elements by a reader, divided by the number of its elements."""
    if reader.op in (broadcast, slice_) or (reader.op is lookup and reader.operands[0] is operand):
        return number_of_elements(reader) / max(1, number_of_elements(operand))
    return 1.0


def _reachable(start: int, edges: dict[int, set[int]]) -> set[int]:
    reached: set[int] = set()
    pending = list(edges[start])
    while pending:
        vertex = pending.pop()
        if vertex not in reached:
            reached.add(vertex)
            pending += edges[vertex]
    return reached


def number_of_elements(node: Node) -> int:
    return prod(sizes(node)) if isinstance(node.type, Tensor) else 1
