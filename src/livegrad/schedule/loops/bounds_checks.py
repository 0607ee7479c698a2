"""The loop pass `eliminate_bounds_checks`: proves from loop indices and constants that indices are in range.

Each read and write by index then says which of its axes need no check (`in_range`). Comparisons that are decided
disappear with the selects that they decide, such as the wrap-around of a negative index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from livegrad.ir.leaves import constant, constant_op
from livegrad.ir.node import Attribute, Function, Node, make_node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Tensor, bool_
from livegrad.ir.walk import exchanged_functions, functions_in, nodes_of, ops_below, rebuild
from livegrad.ops.aggregate import get, make, make_tuple
from livegrad.ops.assignment import indices_of
from livegrad.ops.comparison import equal, greater, greater_equal, less, less_equal, not_equal
from livegrad.ops.control import cond
from livegrad.ops.elementwise import select
from livegrad.ops.indexing import lookup, lookup_or
from livegrad.passes.affine_bounds import Form, any_number, between, form_of, forms_inside, greatest, least
from livegrad.passes.carried_bounds import bounds_of_carried
from livegrad.passes.regions import LOOPS, region_of
from livegrad.passes.unguard_invariants import unguard_invariants
from livegrad.schedule.kernel import Stage
from livegrad.schedule.loops.nest import LoopNest

# A function is analysed for each node that runs it, so programs that share many functions are skipped.
_MOST_NODES = 20_000
_MOST_ROUNDS = 4

Forms = Sequence[Form | None]


def eliminate_bounds_checks(nest: LoopNest) -> LoopNest:
    """Removes the bounds checks of a kernel's loops that cannot fail."""
    stages = nest.kernel.stages
    if not nest.kernel.indexed_buffers or not any(_has_loops(stage.body) for stage in stages):
        return nest
    bodies = [_proven(nest, stage) for stage in stages]
    return nest.with_stages(tuple([replace(s, body=body) for s, body in zip(stages, bodies, strict=True)]))


def _proven(nest: LoopNest, stage: Stage) -> Function:
    """The body of a stage without needless checks.

    Lanes behind the end of the domain have positions, too. Where a body runs functions, a mask keeps them from reading,
    so that only those inside count."""
    sizes = (*nest.dimensions.domain, *nest.dimensions.inner)
    carried = len(stage.body.parameters) - len(stage.sources)
    extents = [sizes[own.number] if own.kind == "index" and not nest.is_split else None for own in stage.sources]
    inside = prove_in_range(stage.body, (*[None] * carried, *extents))
    return inside if nest.lanes == 1 or functions_in(inside) else prove_in_range(stage.body)


def optimise_scalar_loops(nest: LoopNest) -> LoopNest:
    """Has LLVM vectorise, interleave and unroll the loops of a scalar kernel."""
    if nest.lanes > 1 or not any(_has_loops(stage.body) for stage in nest.kernel.stages):
        return nest
    bases = [buffer.base for buffer in nest.step.indexed_buffers]
    return nest.replace(memories=tuple(map(bases.index, bases)))


def _has_loops(function: Function) -> bool:
    return not ops_below(function).isdisjoint(LOOPS)


@lru_cache(maxsize=1024)
def prove_in_range(function: Function, extents: tuple[int | None, ...] = ()) -> Function:
    """The function without bounds checks that cannot fail, after as many rounds as prove something new.

    Of parameters that are positions, the extents say how many there are (None: it is another one). A read that cannot
    fail any more needs no guard, and then more is known about what is computed from it.
    """
    for _ in range(_MOST_ROUNDS):
        forms = [any_number(parameter.type) for parameter in function.parameters]
        for place, extent in enumerate(extents):
            forms[place] = between(0, extent - 1) if type(extent) is int and extent > 0 else forms[place]
        proven = _Proving().function(function, forms)
        function = unguard_invariants(proven)
        if function is proven:
            break
    return function


class _Proving:
    """One run of the pass; counts the nodes that it has seen."""

    def __init__(self) -> None:
        self.nodes = 0
        self.after: dict[Node, Forms] = {}  # what is known of the results of loops

    def function(self, function: Function, arguments: Forms) -> Function:
        """The function, with what these arguments prove."""
        done = {parameter: parameter for parameter in function.parameters}
        forms = dict(zip(function.parameters, arguments, strict=True))
        results = self._results(function, done, forms)
        if results == function.results:
            return function
        changed = Function(function.name, function.parameters, results)
        changed.source_locations.update(function.source_locations)
        return changed

    def _results(self, function: Function, done: dict[Node, Node], forms: dict[Node, Form | None]) -> tuple[Node, ...]:
        """The results over what is done already, whose forms are known."""
        order = nodes_of(function)
        self.nodes += len(order)
        for node in order:
            if node in done:
                continue
            operands = tuple([done[operand] for operand in node.operands])
            with originating_from(node.origins):
                new = done[node] = self._node(node, operands, forms)
            if new not in forms:
                forms[new] = self._form_of(new, forms)
        return tuple([done[result] for result in function.results])

    def _form_of(self, node: Node, forms: dict[Node, Form | None]) -> Form | None:
        if node.op is get and node.operands[0] in self.after:
            return self.after[node.operands[0]][node.attribute("index")]
        return form_of(node, [forms[operand] for operand in node.operands])

    def _node(self, node: Node, operands: tuple[Node, ...], forms: dict[Node, Form | None]) -> Node:
        if node.functions:
            return self._region(node, operands, forms)
        if node.op is get and operands[0].op is make:
            return operands[0].operands[node.attribute("index")]
        rebuilt = rebuild(node, operands)
        if indices_of(rebuilt):
            return _access(rebuilt, [forms[index] for index in indices_of(rebuilt)])
        if node.op is select and operands[0].op is constant_op:
            return operands[1 if operands[0].attribute("value") else 2]
        return _decided(rebuilt, [forms[operand] for operand in operands])

    def _region(self, node: Node, operands: tuple[Node, ...], table: dict[Node, Form | None]) -> Node:
        """A node that runs functions: a loop's index is below its number of iterations."""
        forms = [table[operand] for operand in operands]
        region = region_of(node)
        if region is None or self.nodes > _MOST_NODES:
            return rebuild(node, operands)
        if node.op is cond and operands[0].op is constant_op:
            taken = "then" if operands[0].attribute("value") else "otherwise"
            return self._inlined(node.attribute(taken), operands[1:], table)
        index, arguments = forms_inside(region, forms)
        bounds = bounds_of_carried(node, forms) if node.op in LOOPS else None
        exchange: dict[Function, Function] = {}
        for function, offset in zip(region.functions, region.offsets, strict=True):
            if bounds is not None:
                carried = bounds.inside if function is node.attribute("body") else bounds.before_test
                arguments[: len(carried)] = carried
            exchange[function] = self.function(function, [*[index] * offset, *arguments])
        attributes: Attribute = exchanged_functions(node.attributes, exchange)
        new = node
        if operands != node.operands or attributes is not node.attributes:
            new = make_node(node.op, operands, attributes)
        if bounds is not None:
            self.after[new] = bounds.after
        return new

    def _inlined(self, branch: Function, operands: Sequence[Node], forms: dict[Node, Form | None]) -> Node:
        """What a branch computes that is always taken."""
        results = self._results(branch, dict(zip(branch.parameters, operands, strict=True)), forms)
        return results[0] if len(results) == 1 else make_tuple(*results)


def _access(node: Node, indices: Forms) -> Node:
    """A read or write by index that says which axes need no check."""
    tensor = node.operands[0].type
    assert isinstance(tensor, Tensor)
    before = dict(node.attributes).get("in_range", ())  # proven for other bounds of the loop, which still hold
    inside = [_is_inside(index, tensor.shape[axis]) for axis, index in enumerate(indices)]
    proven = tuple([axis for axis, holds in enumerate(inside) if holds or axis in before])
    if node.op is lookup_or:
        indices_of_access = node.operands[2:]
        return lookup(node.operands[0], *indices_of_access, in_range=proven) if len(proven) == len(indices) else node
    return make_node(node.op, node.operands, (("in_range", proven),)) if proven else node


def _is_inside(index: Form | None, size: object) -> bool:
    return index is not None and isinstance(size, int) and least(index) >= 0 and greatest(index) < size


def _decided(node: Node, operands: Forms) -> Node:
    """The node, or a constant if it is an integer comparison with a provable result."""
    if node.type is not bool_ or len(operands) != 2 or operands[0] is None or operands[1] is None:
        return node
    difference = operands[0].plus(operands[1], -1)
    low, high = least(difference), greatest(difference)
    holds = {
        less: (high < 0, low >= 0), less_equal: (high <= 0, low > 0),
        greater: (low > 0, high <= 0), greater_equal: (low >= 0, high < 0),
        equal: (low == high == 0, low > 0 or high < 0), not_equal: (low > 0 or high < 0, low == high == 0),
    }.get(node.op)  # fmt: skip
    return constant(holds[0], bool_) if holds is not None and any(holds) else node
