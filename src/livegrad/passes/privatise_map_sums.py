"""The `privatise_map_sums` pass: a map that sums tensors filled by loops becomes a loop over private sums.

For the CPU. The gradient of a table that each point reads in a loop is a sum over all points and iterations. Here a few
hundred workers each take every few hundredth point and add to a copy of the tensor of their own: the copies have the
worker as their last dimension, so workers can be the lanes of a kernel and share no element. The number of workers
depends on sizes alone, and so do the bits of the sums.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from math import prod

from livegrad.ir.function import inline, make_function, map_results
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Function, Key, Node, make_node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Scalar, Tensor, Type, i64, shape_of
from livegrad.ir.walk import exchanged_functions, nodes_of, ops_in
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.assignment import assign
from livegrad.ops.comparison import less
from livegrad.ops.control import cond, for_loop, make_for_loop, parameters_of, switch
from livegrad.ops.indexing import lookup, scatter_add
from livegrad.ops.maps import map_, map_domain
from livegrad.ops.movement import reshape
from livegrad.ops.reduction import reduce
from livegrad.ops.rules import zero
from livegrad.ops.tape import unwritten
from livegrad.passes.flatten_signature import get_of_make
from livegrad.passes.scalarise_maps import flatten_map
from livegrad.passes.scalarise_maps.tensor_sums import find_additions
from livegrad.passes.thread_accumulators import accumulates_from_zero, find_threaded_result, start_from_parameter

_WORKERS = (512, 256, 128, 64)
_MIN_POINTS = 8  # for each worker
_MAX_ELEMENTS = 1 << 17  # of all copies of the sums: they should stay in the cache
_PADDING = 16  # unused elements after those of all workers, or elements of a sum would be pages apart, in the same set


def count_workers(points: int, elements: int) -> int:
    """The number of workers for a map over some points whose sums have so many elements; 1 if these are too many.

    >>> count_workers(10_000, 64), count_workers(10_000, 100_000)
    (512, 1)
    """
    fitting = (n for n in _WORKERS if n * _MIN_POINTS <= points and n * elements <= _MAX_ELEMENTS)
    return next(fitting, 1)


class _NotPrivatised(Exception):
    """A point does more with a sum than add to its elements."""


def privatise_map_sums(function: Function) -> Function:
    """Turns the maps of a function that sum tensors filled by loops into loops over private sums."""
    return _rewrite(function) if map_ in ops_in(function) else function


@propagates_lines
def _rewrite(function: Function) -> Function:
    def rule(node: Node) -> Node | None:
        member = get_of_make(node)
        if member is not None or node.op is not map_ or not _sums_tensors(node):
            return member
        return flatten_map(node, _privatise)

    return map_results(function, rule)


def _sums_tensors(node: Node) -> bool:
    function: Function = node.attribute("function")
    return any(
        flag and isinstance(r.type, Tensor) for r, flag in zip(function.results, node.attribute("summed"), strict=True)
    )


def _privatise(node: Node) -> Node | None:
    """A map over scalars as a loop over workers; None if it has another form, or needs none."""
    function: Function = node.attribute("function")
    summed: tuple[bool, ...] = node.attribute("summed")
    tensors = [index for index, result in enumerate(function.results) if isinstance(result.type, Tensor)]
    if all(find_additions(function.results[index]) is not None for index in tensors):
        return None  # additions after the map are cheaper
    lifted_types = zip(function.parameter_types, node.attribute("lifted"), strict=True)
    if not all(isinstance(type, Scalar) for type, flag in lifted_types if flag):
        return None
    if not all(isinstance(result.type, Scalar | Tensor) for result in function.results):
        return None
    if not all(summed[index] and accumulates_from_zero(function, index) for index in tensors):
        return None
    try:
        with originating_from(node.origins):
            return _Workers(node, tensors).build()
    except _NotPrivatised:
        return None


@dataclass
class _Workers:
    """Builds the loop for one map. `tensors` are the results that are sums of tensors."""

    node: Node
    tensors: Sequence[int]
    function: Function = field(init=False)
    points: int = field(init=False)
    workers: int = field(init=False)
    width: int = field(init=False)  # of the dimension for workers

    def __post_init__(self) -> None:
        function: Function = self.node.attribute("function")
        domain = map_domain([o.type for o in self.node.operands], function, self.node.attribute("lifted"))
        self.domain: tuple[int, ...] = domain  # type: ignore[assignment]  # sizes are bound by now
        self.points = prod(self.domain)
        shapes = [shape_of(function.result_types[index]) for index in self.tensors]
        elements = sum(prod([size for size in shape if isinstance(size, int)]) for shape in shapes)
        self.workers = count_workers(self.points, elements)
        self.width = self.workers + _PADDING if self.workers > 1 else 1
        for index in self.tensors:
            function = start_from_parameter(function, index)
        count = len(function.parameters)
        totals = {count - len(self.tensors) + position for position in range(len(self.tensors))}
        self.function = _Widening(self.width).widen(function, frozenset(totals))

    def build(self) -> Node | None:
        """The results of the map, from the loop over workers."""
        operands = [
            reshape(operand, shape=(self.points,)) if flag else operand
            for operand, flag in zip(self.node.operands, self.node.attribute("lifted"), strict=True)
        ]
        types = [self._memory_type(index) for index in range(len(self._summed))]
        starts = [
            zero(type) if index in self.tensors else unwritten(type=type, slot=index)
            for index, type in enumerate(types)
        ]
        inputs = [input_node(Key("worker"), i64)]
        inputs += [input_node(Key(f"carried{index}"), type) for index, type in enumerate(types)]
        inputs += [input_node(Key(f"shared{index}"), operand.type) for index, operand in enumerate(operands)]
        carried, shared = inputs[1 : 1 + len(types)], inputs[1 + len(types) :]
        body = make_function(self.function.name, inputs, self._run_worker(inputs[0], carried, shared))
        more = {"independent": True, "lanes": self.workers} if self.workers > 1 else {}
        loop = for_loop(
            constant(self.workers, i64), *starts, *operands, body=body, carried=len(types), reverse=False, **more
        )
        results = [self._finish(get(loop, index=index), index) for index in range(len(types))]
        return results[0] if len(results) == 1 else make_tuple(*results)

    @property
    def _summed(self) -> tuple[bool, ...]:
        return self.node.attribute("summed")

    def _memory_type(self, index: int) -> Tensor:
        """The tensor that holds a result: a value for each point, or a sum for each worker."""
        type = self.node.attribute("function").result_types[index]
        if index in self.tensors:
            return Tensor(type.element, (*type.shape, self.width))
        return Tensor(type, (self.workers if self._summed[index] else self.points,))

    def _finish(self, value: Node, index: int) -> Node:
        """A result of the map from the memory of all workers or points."""
        if not self._summed[index]:
            return reshape(value, shape=self.domain)
        rank = len(shape_of(value.type))
        if self.workers == 1:
            total = reshape(value, shape=shape_of(value.type)[:-1])
        else:
            total = reduce(value, kind="sum", axes=(rank - 1,))
        return total if index in self.tensors else lookup(total)

    # --- one worker ---

    def _run_worker(self, worker: Node, carried: Sequence[Node], shared: Sequence[Node]) -> list[Node]:
        """Runs every point of a worker; returns the memory after it."""
        scalars = [index for index, flag in enumerate(self._summed) if flag and index not in self.tensors]
        memory = [index for index in range(len(self._summed)) if index not in scalars]
        starts = [carried[index] for index in memory]
        starts += [zero(self.node.attribute("function").result_types[index]) for index in scalars]

        order = [*memory, *scalars]

        def run_round(round_index: Node, *state: Node) -> list[Node]:
            point = round_index * self.workers + worker if self.workers > 1 else round_index
            after = self._run_point(point, worker, dict(zip(order, state, strict=True)), shared)
            return [after[index] for index in order]

        rounds, rest = divmod(self.points, self.workers)
        state: Sequence[Node] = make_for_loop(constant(rounds, i64), run_round, *starts)
        if rest:
            state = self._run_if_inside(constant(rounds * self.workers, i64) + worker, worker, order, state, shared)
        ended = dict(zip(order, state, strict=True))
        sums = {index: assign(carried[index], ended[index], worker, in_range=(0,)) for index in scalars}
        return [sums.get(index, ended[index]) for index in range(len(self._summed))]

    def _run_if_inside(
        self, point: Node, worker: Node, order: Sequence[int], state: Sequence[Node], shared: Sequence[Node]
    ) -> list[Node]:
        """Runs a point if there is one: the last round of some workers is empty."""
        types = [point.type, worker.type, *[node.type for node in (*state, *shared)]]
        fresh = parameters_of(types)
        inside = fresh[2 : 2 + len(state)]
        after = self._run_point(fresh[0], fresh[1], dict(zip(order, inside, strict=True)), fresh[2 + len(state) :])
        then = Function(self.function.name, fresh, tuple([after[index] for index in order]))
        otherwise = Function(self.function.name, fresh, tuple(inside))
        value = cond(less(point, self.points), point, worker, *state, *shared, then=then, otherwise=otherwise)
        return [value] if len(order) == 1 else [get(value, index=position) for position in range(len(order))]

    def _run_point(self, point: Node, worker: Node, values: dict[int, Node], shared: Sequence[Node]) -> dict[int, Node]:
        """The memory and the sums after a point, by result."""
        arguments = [
            lookup(operand, point, in_range=(0,)) if flag else operand
            for operand, flag in zip(shared, self.node.attribute("lifted"), strict=True)
        ]
        results = inline(self.function, [*arguments, *[values[index] for index in self.tensors], worker])
        after: dict[int, Node] = {}
        for index, (result, flag) in enumerate(zip(results, self._summed, strict=True)):
            if index in self.tensors:
                after[index] = result
            elif flag:
                after[index] = values[index] + result
            else:
                after[index] = assign(values[index], result, point, in_range=(0,))
        return after


# --- the sums of a point ---------------------------------------------------------------------------------------------


@dataclass
class _Widening:
    """Gives the sums of a function a last dimension for workers, through its loops and branches."""

    width: int  # the size of that dimension

    def widen(self, function: Function, totals: Set[int]) -> Function:
        """(parameters, worker) → results, where parameters at the indices `totals` are sums of all workers."""
        types = [
            self._widen_type(node.type) if index in totals else node.type
            for index, node in enumerate(function.parameters)
        ]
        fresh = parameters_of([*types, i64])
        values = dict(zip(function.parameters, fresh, strict=False))
        sums = {function.parameters[index] for index in totals}
        packed: dict[Node, Set[int]] = {}  # loops and branches that return sums → which of their results
        for node in nodes_of(function):
            if node in values:
                continue
            with originating_from(node.origins):
                operands = [values[operand] for operand in node.operands]
                at = [position for position, operand in enumerate(node.operands) if operand in sums]
                values[node] = (
                    self._widen_node(node, operands, at, fresh[-1], packed)
                    if at
                    else (make_node(node.op, tuple(operands), node.attributes))
                )
            is_sum = node.op is scatter_add or (node.op is not get and isinstance(node.type, Tensor))
            if (at and is_sum) or (node.op is get and node.attribute("index") in packed.get(node.operands[0], ())):
                sums.add(node)
        return Function(function.name, fresh, tuple([values[result] for result in function.results]))

    def _widen_type(self, type: Type) -> Tensor:
        assert isinstance(type, Tensor)
        return Tensor(type.element, (*type.shape, self.width))

    def _widen_node(
        self, node: Node, operands: list[Node], at: list[int], worker: Node, packed: dict[Node, Set[int]]
    ) -> Node:
        """A node with sums among its operands, at the positions `at`."""
        if node.op is scatter_add and at == [0] and not isinstance(node.operands[1].type, Tensor):
            last = len(node.operands) - 2
            in_range = (*dict(node.attributes).get("in_range", ()), last)
            return scatter_add(*operands, worker, in_range=in_range)
        if node.op not in (for_loop, cond, switch) or any(result is None for result in self._results_of(node, at)):
            raise _NotPrivatised
        first = 0 if node.op is for_loop else 1  # the operand of the first parameter; a body starts with its index
        inner = frozenset([position - first for position in at])
        packed[node] = frozenset([index for index in self._results_of(node, at) if index is not None])
        exchange = {function: self.widen(function, inner) for function in node.functions}
        return make_node(node.op, (*operands, worker), exchanged_functions(node.attributes, exchange))  # type: ignore[arg-type]

    def _results_of(self, node: Node, at: list[int]) -> list[int | None]:
        return [find_threaded_result(node, position) for position in at]
