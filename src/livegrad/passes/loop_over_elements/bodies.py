"""Expands the functions of a loop nest: tensor ops become loops over elements that write in place.

In: the body of a loop, or a branch inside it. Intermediate tensors that need memory are written to scratch tensors,
which the loop nest carries as additional values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Attribute, Function, Key, Node, make_node
from livegrad.ir.op import Op
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Scalar, Tensor, Type, components, i64, inner_types
from livegrad.ir.walk import exchanged_functions, substitute
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.assignment import UPDATES, assign
from livegrad.ops.control import while_loop
from livegrad.ops.elementwise import add
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast, sizes
from livegrad.ops.reduction import arg_reduce
from livegrad.passes.functions import insert_unused_parameters
from livegrad.passes.index_maps import Index, build_loop_nest
from livegrad.passes.loop_over_elements.dependence import may_read_overwritten
from livegrad.passes.loop_over_elements.elements import Elements, NotExpanded, reduces_rows
from livegrad.passes.loop_over_elements.expanded import Expanded, pass_all_scratch
from livegrad.passes.loop_over_elements.sink import sink_into_regions
from livegrad.passes.loop_over_elements.versions import Versions, branch_destinations, is_array, number_of_elements
from livegrad.passes.regions import BRANCHES, LOOPS, first_argument

_MAX_ATTEMPTS = 40


class _Retry(Exception):
    """The plan of versions changed, because a loop would read elements that it has overwritten."""


def expand_function(
    function: Function,
    destinations: Sequence[int | None],
    scratch_position: int,
    constant_from: int,
    fresh: Sequence[Tensor] = (),
) -> Expanded:
    """Expands a function into loops over elements.

    `destinations` has, for each result in memory, the index of the parameter that it overwrites; indices after the last
    parameter are those of `fresh` tensors. Fresh and scratch tensors become parameters at `scratch_position`. Nothing
    writes the parameters from `constant_from` on.
    """
    function = sink_into_regions(function, constant_from)
    versions = Versions(function, destinations)
    for _ in range(_MAX_ATTEMPTS):
        versions.resolve()
        try:
            return _FunctionExpansion(versions, scratch_position, fresh).expand()
        except _Retry:
            continue
    raise NotExpanded


@dataclass
class _Storage:
    """Memory that holds the versions of one tensor, one after the other; `last` is the current version."""

    last: Node


class _FunctionExpansion:
    """One attempt to expand a function by the current plan of its versions."""

    def __init__(self, versions: Versions, scratch_position: int, fresh: Sequence[Tensor]) -> None:
        self._versions, self._scratch_position = versions, scratch_position
        function = versions.function
        self._inputs = [input_node(Key("value"), type) for type in function.parameter_types]
        self._fresh = [_Storage(input_node(Key("fresh"), type)) for type in fresh]
        self._fresh_inputs = [storage.last for storage in self._fresh]
        self._scratch: list[_Storage] = []
        self._scratch_inputs: list[Node] = []
        self.memory: dict[Node, Node] = {}
        self.scalars: dict[Node, Node] = {}
        self._storage: dict[Node, _Storage] = {}  # by version
        self._regions: dict[Node, Node] = {}
        self._result_storage: list[_Storage | None] = []
        for parameter, input in zip(function.parameters, self._inputs, strict=True):
            self._result_storage.append(None)
            if is_array(input.type):
                self.memory[parameter] = input
                self._result_storage[-1] = self._storage[input] = _Storage(input)
            else:
                self.scalars[parameter] = lookup(input) if isinstance(input.type, Tensor) else input

    def expand(self) -> Expanded:
        function = self._versions.function
        for node in self._versions.nodes:
            if node not in self.memory and node not in self.scalars:
                with originating_from(node.origins):
                    self._emit(node)
        for index in self._versions.results_to_write():
            self._write_result(index)
        results = [self._result(index) for index in range(len(function.results))]
        inputs = [
            *self._inputs[: self._scratch_position],
            *self._fresh_inputs,
            *self._scratch_inputs,
            *self._inputs[self._scratch_position :],
        ]
        final_scratch = [storage.last for storage in self._scratch]
        expanded = make_function(function.name, inputs, [*results, *final_scratch])
        return Expanded(expanded, tuple([node.type for node in self._scratch_inputs]))  # type: ignore[misc]

    # --- results ---

    def _destination(self, index: int) -> _Storage | None:
        position = self._versions.destinations[index]
        if position is None:
            return None
        return (
            self._result_storage[position]
            if position < len(self._result_storage)
            else self._fresh[position - len(self._result_storage)]
        )

    def _write_result(self, index: int) -> None:
        """Writes a whole result over the last version of its parameter."""
        result, storage = self._versions.function.results[index], self._destination(index)
        assert storage is not None
        self._write(storage, assign, result, result, None)

    def _result(self, index: int) -> Node:
        result, storage = self._versions.function.results[index], self._destination(index)
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
            self._set_scalar(node, get(self._regions[node.operands[0]], index=node.attribute("index")))
        elif isinstance(node.type, Tensor):
            self.scalars[node] = self._compute_scalar(node)
        elif node.op is lookup:
            tensor, *index = node.operands
            element_index = tuple([self.scalars[i] for i in index])
            self.scalars[node] = (
                self.scalars[tensor] if tensor in self.scalars else self._lookup_element(node, element_index)
            )
        elif any(isinstance(inner, Tensor) for o in (node, *node.operands) for inner in inner_types(o.type)):
            raise NotExpanded
        else:
            operands = tuple([self._scalar_operand(operand) for operand in node.operands])
            self.scalars[node] = make_node(node.op, operands, node.attributes) if operands else node

    def _scalar_operand(self, operand: Node) -> Node:
        """A scalar operand. A loop or branch with several scalar results becomes a tuple of them, as tapes store it."""
        if operand in self.scalars or operand not in self._regions:
            return self.scalars[operand]
        region = self._regions[operand]
        return make_tuple(*[get(region, index=index) for index in range(len(components(operand.type)))])

    def _set_scalar(self, node: Node, value: Node) -> None:
        self.scalars[node] = lookup(value) if isinstance(value.type, Tensor) else value

    def _lookup_element(self, node: Node, index: Index) -> Node:
        elements = Elements(self.memory, self.scalars)
        tensor = node.operands[0]
        return (
            elements.read(node, tensor, index) if tensor in self.memory else elements.lookup_result(node, list(index))
        )

    def _compute_scalar(self, node: Node) -> Node:
        """The scalar in a tensor of rank 0."""
        if node.op in UPDATES:
            previous, value = (self.scalars[operand] for operand in node.operands)
            return value if node.op is assign else add(previous, value)
        return Elements(self.memory, self.scalars).element(node, ())

    def _emit_array(self, node: Node) -> None:
        if node.op in UPDATES:
            base, value, *indices = node.operands
            storage = self._prepare_write(base, (node, 0) in self._versions.copied)
            if not is_array(value.type):
                scalar = self.scalars[value]
                element_index = [self.scalars[index] for index in indices]
                self._set_version(node, storage, node.op(storage.last, scalar, *element_index))
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
        elements = Elements(self.memory, self.scalars)
        after = elements.reduce_rows_into(node, tuple([target.last for target in targets]))
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

    def _prepare_write(self, node: Node, copied: bool) -> _Storage:
        """The storage of a tensor that is about to be written: its own, or that of a copy."""
        version = self.memory[node]
        storage = self._storage[version]
        if not copied:
            if storage.last is not version:
                raise NotExpanded
            return storage
        copy = self._new_storage(node.type)

        def copy_element(index: Index, state: tuple[Node, ...]) -> tuple[Node, ...]:
            return (assign(state[0], lookup(version, *index), *index),)

        copy.last = build_loop_nest(sizes(node), copy_element, (copy.last,))[0]
        self._storage[copy.last] = copy
        return copy

    def _write(self, storage: _Storage, op: Op, writer: Node, value: Node, indices: Sequence[Node] | None) -> None:
        """Writes all elements of a value over the last version of a tensor, at `indices`; None: at their own."""
        extents = sizes(value)
        before = storage.last
        variables = tuple([input_node(Key("point"), i64) for _ in extents])
        target = input_node(Key("target"), before.type)
        memory = {node: target if version is before else version for node, version in self.memory.items()}
        elements = Elements(memory, self.scalars)
        if value is writer and value not in memory:
            element = elements.element(value, variables)
        else:
            element = elements.operand_element(writer, value, variables)
        indices_of_element = (
            variables if indices is None else [elements.operand_element(writer, index, variables) for index in indices]
        )
        for read in elements.reads:
            if memory[read.tensor] is target and (
                read.element_index is None
                or may_read_overwritten(indices_of_element, read.element_index, variables, extents)
            ):
                self._read_before_write(writer, value, indices or (), read.reader)
        operands = [element, *indices_of_element]

        def write_element(index: Index, state: tuple[Node, ...]) -> tuple[Node, ...]:
            replacements = {target: state[0], **dict(zip(variables, index, strict=True))}
            return (op(state[0], *substitute(operands, replacements)),)

        storage.last = build_loop_nest(extents, write_element, (before,))[0]
        self._storage[storage.last] = storage

    def _read_before_write(self, writer: Node, value: Node, indices: Sequence[Node], reader: Node) -> None:
        """Changes the plan so that `reader` runs before the writer: stores a value on the way, or copies the target."""
        versions = self._versions
        roots = [root for root in (value, *indices) if reader in versions.tree(root)]
        users = [node for root in roots for node in versions.tree(root) if reader in versions.tree(node)]
        computed = [node for node in users if not versions.in_memory(node)]
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
        scalar = self.scalars[node]
        return broadcast(scalar, shape=(), axes=()) if isinstance(node.type, Tensor) else scalar

    def _emit_region(self, node: Node) -> None:
        if node.op in LOOPS:
            self._emit_loop(node)
        else:
            self._emit_branch(node)

    def _expand_operands(self, node: Node, written: Sequence[int]) -> tuple[list[Node], dict[int, _Storage]]:
        """The operands of an expanded loop or branch, and the storage of those that it writes."""
        storage_of: dict[int, _Storage] = {}
        arguments: list[Node] = []
        for position, operand in enumerate(node.operands):
            if position in written and is_array(operand.type):
                storage_of[position] = self._prepare_write(operand, (node, position) in self._versions.copied)
                arguments.append(storage_of[position].last)
            else:
                arguments.append(self._as_argument(operand))
        return arguments, storage_of

    def _emit_loop(self, node: Node) -> None:
        first, carried, body = first_argument(node), node.attribute("carried"), node.attribute("body")
        destinations = [1 + i if is_array(type) else None for i, type in enumerate(body.result_types)]
        expanded = expand_function(body, destinations, scratch_position=1 + carried, constant_from=1 + carried)
        arguments, storage_of = self._expand_operands(node, range(first, first + carried))
        scratch = [self._new_storage(type) for type in expanded.scratch]
        operands = [*arguments[: first + carried], *[extra.last for extra in scratch], *arguments[first + carried :]]
        changes: dict[str, Attribute] = {"body": expanded.function, "carried": carried + len(scratch)}
        if node.op is while_loop:
            condition = expand_condition(node.attribute("condition"))
            changes["condition"] = insert_unused_parameters(condition, carried, expanded.scratch)
        attributes = tuple([(name, changes.get(name, value)) for name, value in node.attributes])
        loop = self._regions[node] = make_node(node.op, tuple(operands), attributes)
        for index in range(carried):
            if first + index in storage_of:
                self._set_version(get(node, index=index), storage_of[first + index], get(loop, index=index))
        for index, extra in enumerate(scratch):
            extra.last = get(loop, index=carried + index)
            self._storage[extra.last] = extra

    def _emit_branch(self, node: Node) -> None:
        inner = list(branch_destinations(node))
        types = node.functions[0].result_types
        arguments, storage_of = self._expand_operands(
            node, [1 + position for position in inner if position is not None]
        )
        count = len(arguments) - 1
        fresh: list[Tensor] = []
        for result, type in enumerate(types):
            if is_array(type) and inner[result] is None:
                inner[result] = count + len(fresh)
                fresh.append(type)  # type: ignore[arg-type]
        results = [self._new_storage(type) for type in fresh]
        expanded_branches = [
            expand_function(function, inner, scratch_position=count, constant_from=count, fresh=fresh)
            for function in node.functions
        ]
        scratch = [[self._new_storage(type) for type in expanded.scratch] for expanded in expanded_branches]
        all_scratch = [storage for branch_scratch in scratch for storage in branch_scratch]
        scratch_types = [storage.last.type for storage in all_scratch]
        exchange: dict[Function, Function] = {}
        offset = 0
        for function, expanded, branch_scratch in zip(node.functions, expanded_branches, scratch, strict=True):
            exchange[function] = pass_all_scratch(expanded, scratch_types, offset)
            offset += len(branch_scratch)
        operands = (*arguments, *[storage.last for storage in results], *[storage.last for storage in all_scratch])
        branch = make_node(node.op, operands, exchanged_functions(node.attributes, exchange))  # type: ignore[arg-type]
        self._regions[node] = branch
        packed = len(types) + len(all_scratch) > 1
        for result, type in enumerate(types):
            value = get(branch, index=result) if packed else branch
            position = inner[result]
            original = get(node, index=result) if len(types) > 1 else node
            if position is not None and is_array(type):
                storage = storage_of[1 + position] if position < count else results[position - count]
                self._set_version(original, storage, value)
            elif len(types) == 1:
                self._set_scalar(node, value)
        for offset, storage in enumerate(all_scratch):
            storage.last = get(branch, index=len(types) + offset) if packed else branch
            self._storage[storage.last] = storage


def expand_condition(condition: Function) -> Function:
    """Expands the condition of a loop, which cannot write scratch tensors."""
    expanded = expand_function(condition, [None], scratch_position=len(condition.parameters), constant_from=0)
    if expanded.scratch:
        raise NotExpanded
    return expanded.function
