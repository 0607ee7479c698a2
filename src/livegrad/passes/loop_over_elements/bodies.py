"""Rewrites the functions of a nest so that they compute tensors element by element, in loops that write in place.

In: the body of a loop, or a branch inside. Tensors that need memory of their own are written to scratch tensors. These
are further carried values, which the nest gets from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from livegrad.ir.function import inline, make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Attribute, Function, Key, Node, make_node
from livegrad.ir.op import Op
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Scalar, Tensor, Type, components, i64, inner_types
from livegrad.ir.walk import exchanged_functions, substitute
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.assignment import UPDATES, assign
from livegrad.ops.control import parameters_of, while_loop
from livegrad.ops.elementwise import add
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast, sizes
from livegrad.ops.reduction import arg_reduce
from livegrad.passes.index_maps import Index, build_loop_nest
from livegrad.passes.loop_over_elements.dependence import may_read_behind
from livegrad.passes.loop_over_elements.elements import Elements, NotExpanded, reduces_rows
from livegrad.passes.loop_over_elements.sink import sink_into_regions
from livegrad.passes.loop_over_elements.versions import Versions, branch_destinations, is_array, number_of_elements
from livegrad.passes.regions import BRANCHES, LOOPS, first_argument

_MAX_ATTEMPTS = 40


class Expanded(NamedTuple):
    """A function that computes by element; scratch tensors are further parameters and its last results."""

    function: Function
    scratch: tuple[Tensor, ...]


class _Retry(Exception):
    """The plan changed: what a loop reads and writes overlaps."""


def expand_function(
    function: Function, destinations: Sequence[int | None], at: int, constant_from: int, fresh: Sequence[Tensor] = ()
) -> Expanded:
    """The function element by element.

    `destinations` says for each result in memory which parameter it replaces; positions behind all parameters are those
    of `fresh` tensors. These and the scratch tensors are parameters from position `at` on. Nothing writes the
    parameters from `constant_from` on.
    """
    function = sink_into_regions(function, constant_from)
    versions = Versions(function, destinations)
    for _ in range(_MAX_ATTEMPTS):
        versions.resolve()
        try:
            return _Body(versions, at, fresh).expand()
        except _Retry:
            continue
    raise NotExpanded


@dataclass
class _Storage:
    """Memory for the versions of one tensor, and its last version."""

    last: Node


class _Body:
    """One attempt to write a function by element, by a plan of its versions."""

    def __init__(self, versions: Versions, at: int, fresh: Sequence[Tensor]) -> None:
        self._versions, self._at = versions, at
        function = versions.function
        self._inputs = [input_node(Key("value"), type) for type in function.parameter_types]
        self._fresh = [_Storage(input_node(Key("fresh"), type)) for type in fresh]
        self._fresh_inputs = [storage.last for storage in self._fresh]
        self._scratch: list[_Storage] = []
        self._scratch_inputs: list[Node] = []
        self.memory: dict[Node, Node] = {}
        self.numbers: dict[Node, Node] = {}
        self._storage: dict[Node, _Storage] = {}  # by version
        self._regions: dict[Node, Node] = {}
        self._result_storage: list[_Storage | None] = []
        for parameter, input in zip(function.parameters, self._inputs, strict=True):
            self._result_storage.append(None)
            if is_array(input.type):
                self.memory[parameter] = input
                self._result_storage[-1] = self._storage[input] = _Storage(input)
            else:
                self.numbers[parameter] = lookup(input) if isinstance(input.type, Tensor) else input

    def expand(self) -> Expanded:
        function = self._versions.function
        for node in self._versions.nodes:
            if node not in self.memory and node not in self.numbers:
                with originating_from(node.origins):
                    self._emit(node)
        for number in self._versions.rewritten():
            self._rewrite(number)
        results = [self._result(number) for number in range(len(function.results))]
        inputs = [*self._inputs[: self._at], *self._fresh_inputs, *self._scratch_inputs, *self._inputs[self._at :]]
        ends = [storage.last for storage in self._scratch]
        expanded = make_function(function.name, inputs, [*results, *ends])
        return Expanded(expanded, tuple([node.type for node in self._scratch_inputs]))  # type: ignore[misc]

    # --- results ---

    def _destination(self, number: int) -> _Storage | None:
        position = self._versions.destinations[number]
        if position is None:
            return None
        return (
            self._result_storage[position]
            if position < len(self._result_storage)
            else self._fresh[position - len(self._result_storage)]
        )

    def _rewrite(self, number: int) -> None:
        """Writes a result as a whole over its parameter's last version."""
        result, storage = self._versions.function.results[number], self._destination(number)
        assert storage is not None
        self._write(storage, assign, result, result, None)

    def _result(self, number: int) -> Node:
        result, storage = self._versions.function.results[number], self._destination(number)
        if storage is not None:
            return storage.last
        return self._as_argument(result)

    # --- nodes ---

    def _emit(self, node: Node) -> None:
        if is_array(node.type):
            self._emit_array(node)
        elif node.op in (*LOOPS, *BRANCHES):
            self._emit_region(node)
        elif node.op is get and node.operands[0] in self._regions:
            self._take(node, get(self._regions[node.operands[0]], index=node.attribute("index")))
        elif isinstance(node.type, Tensor):
            self.numbers[node] = self._number(node)
        elif node.op is lookup:
            tensor, *index = node.operands
            element_index = tuple([self.numbers[i] for i in index])
            self.numbers[node] = (
                self.numbers[tensor] if tensor in self.numbers else self._looked_up(node, element_index)
            )
        elif any(isinstance(inner, Tensor) for o in (node, *node.operands) for inner in inner_types(o.type)):
            raise NotExpanded
        else:
            operands = tuple([self._whole(operand) for operand in node.operands])
            self.numbers[node] = make_node(node.op, operands, node.attributes) if operands else node

    def _whole(self, operand: Node) -> Node:
        """A value as an operand: of a loop or branch all its numbers together, as tapes take them, without scratch."""
        if operand in self.numbers or operand not in self._regions:
            return self.numbers[operand]
        region = self._regions[operand]
        return make_tuple(*[get(region, index=index) for index in range(len(components(operand.type)))])

    def _take(self, node: Node, value: Node) -> None:
        self.numbers[node] = lookup(value) if isinstance(value.type, Tensor) else value

    def _looked_up(self, node: Node, index: Index) -> Node:
        elements = Elements(self.memory, self.numbers)
        tensor = node.operands[0]
        return (
            elements.read(node, tensor, index) if tensor in self.memory else elements.lookup_result(node, list(index))
        )

    def _number(self, node: Node) -> Node:
        """A tensor of rank 0, as a scalar."""
        if node.op in UPDATES:
            before, after = (self.numbers[operand] for operand in node.operands)
            return after if node.op is assign else add(before, after)
        return Elements(self.memory, self.numbers).element(node, ())

    def _emit_array(self, node: Node) -> None:
        if node.op in UPDATES:
            base, value, *indices = node.operands
            storage = self._writable(base, (node, 0) in self._versions.copied)
            if not is_array(value.type):
                number = self.numbers[value]
                element_index = [self.numbers[index] for index in indices]
                self._set_version(node, storage, node.op(storage.last, number, *element_index))
            else:
                self._write(storage, node.op, node, value, indices)
                self.memory[node] = storage.last
        elif node.op in BRANCHES:
            self._emit_region(node)
        elif node.op is get:
            if node.operands[0] not in self._regions:
                raise NotExpanded
        elif node in self._versions.stored:
            storage = self._new_storage(node.type)
            if reduces_rows(node):
                self._reduce_rows(node, storage)
            else:
                self._write(storage, assign, node, node, None)
            self.memory[node] = storage.last

    def _reduce_rows(self, node: Node, storage: _Storage) -> None:
        targets = [storage]
        if node.op is arg_reduce:
            element: Scalar = node.operands[0].type.element  # type: ignore[union-attr]
            targets.insert(0, self._new_storage(Tensor(element, sizes(node))))
        elements = Elements(self.memory, self.numbers)
        after = elements.reduced_rows(node, tuple([target.last for target in targets]))
        for target, version in zip(targets, after, strict=True):
            target.last = version
            self._storage[version] = target

    # --- memory ---

    def _new_storage(self, type: Type) -> _Storage:
        assert isinstance(type, Tensor)
        scratch = input_node(Key("scratch"), type)
        self._scratch_inputs.append(scratch)
        self._scratch.append(_Storage(scratch))
        self._storage[scratch] = self._scratch[-1]
        return self._scratch[-1]

    def _set_version(self, node: Node, storage: _Storage, version: Node) -> None:
        storage.last = self.memory[node] = version
        self._storage[version] = storage

    def _writable(self, node: Node, copied: bool) -> _Storage:
        """Where a tensor lies, or a copy of it."""
        version = self.memory[node]
        storage = self._storage[version]
        if not copied:
            if storage.last is not version:
                raise NotExpanded
            return storage
        copy = self._new_storage(node.type)

        def point(index: Index, state: tuple[Node, ...]) -> tuple[Node, ...]:
            return (assign(state[0], lookup(version, *index), *index),)

        copy.last = build_loop_nest(sizes(node), point, (copy.last,))[0]
        self._storage[copy.last] = copy
        return copy

    def _write(self, storage: _Storage, op: Op, writer: Node, value: Node, indices: Sequence[Node] | None) -> None:
        """Writes all elements of a value over the last version of a tensor, at indices or at their own."""
        extents = sizes(value)
        before = storage.last
        variables = tuple([input_node(Key("point"), i64) for _ in extents])
        target = input_node(Key("target"), before.type)
        memory = {node: target if version is before else version for node, version in self.memory.items()}
        elements = Elements(memory, self.numbers)
        if value is writer and value not in memory:
            element = elements.element(value, variables)
        else:
            element = elements.at(writer, value, variables)
        indices_of_element = (
            variables if indices is None else [elements.at(writer, index, variables) for index in indices]
        )
        for read in elements.reads:
            if memory[read.tensor] is target and (
                read.element_index is None
                or may_read_behind(indices_of_element, read.element_index, variables, extents)
            ):
                self._separate(writer, value, indices or (), read.reader)
        written = [element, *indices_of_element]

        def point(index: Index, state: tuple[Node, ...]) -> tuple[Node, ...]:
            replacements = {target: state[0], **dict(zip(variables, index, strict=True))}
            return (op(state[0], *substitute(written, replacements)),)

        storage.last = build_loop_nest(extents, point, (before,))[0]
        self._storage[storage.last] = storage

    def _separate(self, writer: Node, value: Node, indices: Sequence[Node], reader: Node) -> None:
        """Changes the plan so that a reader reads before the writer writes."""
        versions = self._versions
        roots = [root for root in (value, *indices) if reader in versions.tree(root)]
        around = [node for root in roots for node in versions.tree(root) if reader in versions.tree(node)]
        computed = [node for node in around if not versions.in_memory(node)]
        smallest = min(computed, key=number_of_elements, default=None)
        if smallest is not None and number_of_elements(smallest) < number_of_elements(value):
            versions.stored.add(smallest)
        elif computed and roots[0] in computed:
            versions.stored.add(roots[0])
        elif writer.op in UPDATES and (writer, 0) not in versions.copied:
            versions.copied.add((writer, 0))
        else:
            raise NotExpanded
        raise _Retry

    # --- loops and branches inside ---

    def _as_argument(self, node: Node) -> Node:
        if is_array(node.type):
            return self.memory[node]
        number = self.numbers[node]
        return broadcast(number, shape=(), axes=()) if isinstance(node.type, Tensor) else number

    def _emit_region(self, node: Node) -> None:
        if node.op in LOOPS:
            self._loop(node)
        else:
            self._branch(node)

    def _arguments(self, node: Node, written: Sequence[int]) -> tuple[list[Node], dict[int, _Storage]]:
        """The arguments of a loop or branch, and the storage of those that it writes."""
        storage_of: dict[int, _Storage] = {}
        arguments: list[Node] = []
        for number, operand in enumerate(node.operands):
            if number in written and is_array(operand.type):
                storage_of[number] = self._writable(operand, (node, number) in self._versions.copied)
                arguments.append(storage_of[number].last)
            else:
                arguments.append(self._as_argument(operand))
        return arguments, storage_of

    def _loop(self, node: Node) -> None:
        first, carried, body = first_argument(node), node.attribute("carried"), node.attribute("body")
        destinations = [1 + i if is_array(type) else None for i, type in enumerate(body.result_types)]
        expanded = expand_function(body, destinations, at=1 + carried, constant_from=1 + carried)
        arguments, storage_of = self._arguments(node, range(first, first + carried))
        scratch = [self._new_storage(type) for type in expanded.scratch]
        operands = [*arguments[: first + carried], *[extra.last for extra in scratch], *arguments[first + carried :]]
        changes: dict[str, Attribute] = {"body": expanded.function, "carried": carried + len(scratch)}
        if node.op is while_loop:
            condition = expand_condition(node.attribute("condition"))
            changes["condition"] = with_unused_parameters(condition, carried, expanded.scratch)
        attributes = tuple([(name, changes.get(name, value)) for name, value in node.attributes])
        loop = self._regions[node] = make_node(node.op, tuple(operands), attributes)
        for number in range(carried):
            if first + number in storage_of:
                self._set_version(get(node, index=number), storage_of[first + number], get(loop, index=number))
        for number, extra in enumerate(scratch):
            extra.last = get(loop, index=carried + number)
            self._storage[extra.last] = extra

    def _branch(self, node: Node) -> None:
        inner = list(branch_destinations(node))
        types = node.functions[0].result_types
        arguments, storage_of = self._arguments(node, [1 + position for position in inner if position is not None])
        number = len(arguments) - 1
        fresh: list[Tensor] = []
        for result, type in enumerate(types):
            if is_array(type) and inner[result] is None:
                inner[result] = number + len(fresh)
                fresh.append(type)  # type: ignore[arg-type]
        results = [self._new_storage(type) for type in fresh]
        ways = [expand_function(way, inner, at=number, constant_from=number, fresh=fresh) for way in node.functions]
        scratch = [[self._new_storage(type) for type in way.scratch] for way in ways]
        every = [storage for storage_of in scratch for storage in storage_of]
        exchange: dict[Function, Function] = {}
        for way, expanded, mine in zip(node.functions, ways, scratch, strict=True):
            before = sum(len(other) for other in scratch[: scratch.index(mine)])
            exchange[way] = _with_all_scratch(expanded, [p.last.type for p in every], before)
        operands = (*arguments, *[p.last for p in results], *[p.last for p in every])
        branch = make_node(node.op, operands, exchanged_functions(node.attributes, exchange))  # type: ignore[arg-type]
        self._regions[node] = branch
        packed = len(types) + len(every) > 1
        for result, type in enumerate(types):
            value = get(branch, index=result) if packed else branch
            position = inner[result]
            original = get(node, index=result) if len(types) > 1 else node
            if position is not None and is_array(type):
                storage = storage_of[1 + position] if position < number else results[position - number]
                self._set_version(original, storage, value)
            elif len(types) == 1:
                self._take(node, value)
        for offset, storage in enumerate(every):
            storage.last = get(branch, index=len(types) + offset) if packed else branch
            self._storage[storage.last] = storage


def _with_all_scratch(way: Expanded, types: Sequence[Type], before: int) -> Function:
    """A branch that also takes and returns the scratch tensors of the other branches."""
    types_of_way, number = way.function.parameter_types, len(way.scratch)
    plain = len(types_of_way) - number
    parameters = parameters_of([*types_of_way[:plain], *types])
    results = inline(way.function, [*parameters[:plain], *parameters[plain + before : plain + before + number]])
    kept = len(results) - number
    scratch = list(parameters[plain:])
    scratch[before : before + number] = results[kept:]
    return Function(way.function.name, parameters, (*results[:kept], *scratch))


def expand_condition(condition: Function) -> Function:
    """The condition of a loop, element by element; it only reads."""
    expanded = expand_function(condition, [None], at=len(condition.parameters), constant_from=0)
    if expanded.scratch:
        raise NotExpanded
    return expanded.function


def with_unused_parameters(function: Function, at: int, types: Sequence[Type]) -> Function:
    """The function with further parameters from a position on."""
    parameter_types = function.parameter_types
    parameters = parameters_of([*parameter_types[:at], *types, *parameter_types[at:]])
    return Function(function.name, parameters, inline(function, [*parameters[:at], *parameters[at + len(types) :]]))
