"""Passes for scalar loops. Bounds-check elimination proves that indices are in range, from affine bounds of loop
indices and constants; `optimise_scalar_loops` hands loops to LLVM's vectoriser.

The `in_range` attribute of reads and writes by index names the axes that need no check. Comparisons with a provable
result are folded, together with the selects that use them, such as the wrap-around of a negative index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from livegrad.ir.leaves import constant, constant_op
from livegrad.ir.node import Attribute, Function, Node, make_node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Tensor, bool_
from livegrad.ir.walk import exchanged_functions, functions_in, nodes_of, rebuild
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

# A function is analysed once for each node that runs it, so programs that share many functions are skipped.
_MOST_NODES = 20_000
_MOST_ROUNDS = 4

Forms = Sequence[Form | None]


def eliminate_bounds_checks(nest: LoopNest) -> LoopNest:
    """Removes bounds checks that cannot fail from kernels with loops."""
    stages = nest.kernel.stages
    if not nest.kernel.indexed_buffers:
        return nest
    bodies = [_prove_stage(nest, stage) for stage in stages]
    return nest.with_stages(tuple([replace(s, body=body) for s, body in zip(stages, bodies, strict=True)]))


def _prove_stage(nest: LoopNest, stage: Stage) -> Function:
    """Removes checks from the body of a stage.

    Lanes beyond the end of the domain have indices too. If a body runs functions, a mask disables these lanes, so that
    only indices inside the domain count.
    """
    sizes = (*nest.dimensions.domain, *nest.dimensions.inner)
    carried = len(stage.body.parameters) - len(stage.sources)
    extents = [
        sizes[source.number] if source.kind == "index" and not nest.is_split else None for source in stage.sources
    ]
    in_domain = prove_in_range(stage.body, (*[None] * carried, *extents))
    return in_domain if nest.lanes == 1 or functions_in(in_domain) else prove_in_range(stage.body)


def optimise_scalar_loops(nest: LoopNest) -> LoopNest:
    """Lets LLVM vectorise, interleave and unroll the loops of a scalar kernel."""
    if nest.lanes > 1:
        return nest
    bases = [buffer.base for buffer in nest.step.indexed_buffers]
    return nest.replace(memories=tuple(map(bases.index, bases)))


@lru_cache(maxsize=1024)
def prove_in_range(function: Function, extents: tuple[int | None, ...] = ()) -> Function:
    """Removes bounds checks that cannot fail, in rounds until nothing new is proved.

    `extents` has the size of the dimension for parameters that are indices, and None for others. A read that cannot
    fail needs no guard, and without the guard the next round can prove more.
    """
    for _ in range(_MOST_ROUNDS):
        forms = [any_number(parameter.type) for parameter in function.parameters]
        for position, extent in enumerate(extents):
            forms[position] = between(0, extent - 1) if type(extent) is int and extent > 0 else forms[position]
        checked = _Prover().function(function, forms)
        function = unguard_invariants(checked)
        if function is checked:
            break
    return function


class _Prover:
    """One round of the pass over a function. Counts the visited nodes."""

    def __init__(self) -> None:
        self.nodes = 0
        self.after: dict[Node, Forms] = {}  # the forms of the results of loops

    def function(self, function: Function, arguments: Forms) -> Function:
        """Removes checks from a function that is called with arguments of these forms."""
        done = {parameter: parameter for parameter in function.parameters}
        forms = dict(zip(function.parameters, arguments, strict=True))
        results = self._visit_results(function, done, forms)
        if results == function.results:
            return function
        rewritten = Function(function.name, function.parameters, results)
        rewritten.source_locations.update(function.source_locations)
        return rewritten

    def _visit_results(
        self, function: Function, done: dict[Node, Node], forms: dict[Node, Form | None]
    ) -> tuple[Node, ...]:
        """Rewrites the results of a function, given the rewritten nodes and their forms."""
        order = nodes_of(function)
        self.nodes += len(order)
        for node in order:
            if node in done:
                continue
            operands = tuple([done[operand] for operand in node.operands])
            with originating_from(node.origins):
                new = done[node] = self._visit_node(node, operands, forms)
            if new not in forms:
                forms[new] = self._find_form(new, forms)
        return tuple([done[result] for result in function.results])

    def _find_form(self, node: Node, forms: dict[Node, Form | None]) -> Form | None:
        if node.op is get and node.operands[0] in self.after:
            return self.after[node.operands[0]][node.attribute("index")]
        return form_of(node, [forms[operand] for operand in node.operands])

    def _visit_node(self, node: Node, operands: tuple[Node, ...], forms: dict[Node, Form | None]) -> Node:
        if node.functions:
            return self._visit_region(node, operands, forms)
        if node.op is get and operands[0].op is make:
            return operands[0].operands[node.attribute("index")]
        rebuilt = rebuild(node, operands)
        if indices_of(rebuilt):
            return _mark_in_range(rebuilt, [forms[index] for index in indices_of(rebuilt)])
        if node.op is select and operands[0].op is constant_op:
            return operands[1 if operands[0].attribute("value") else 2]
        return _fold_comparison(rebuilt, [forms[operand] for operand in operands])

    def _visit_region(self, node: Node, operands: tuple[Node, ...], table: dict[Node, Form | None]) -> Node:
        """Rewrites a node that runs functions. A loop's index is below its number of iterations."""
        forms = [table[operand] for operand in operands]
        region = region_of(node)
        if region is None or self.nodes > _MOST_NODES:
            return rebuild(node, operands)
        if node.op is cond and operands[0].op is constant_op:
            branch = "then" if operands[0].attribute("value") else "otherwise"
            return self._inline_branch(node.attribute(branch), operands[1:], table)
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

    def _inline_branch(self, branch: Function, operands: Sequence[Node], forms: dict[Node, Form | None]) -> Node:
        """Inlines a branch that is always taken."""
        results = self._visit_results(branch, dict(zip(branch.parameters, operands, strict=True)), forms)
        return results[0] if len(results) == 1 else make_tuple(*results)


def _mark_in_range(node: Node, indices: Forms) -> Node:
    """Adds the axes that need no check to a read or write by index."""
    tensor = node.operands[0].type
    assert isinstance(tensor, Tensor)
    before = dict(node.attributes).get("in_range", ())  # earlier proofs remain valid
    inside = [_is_inside(index, tensor.shape[axis]) for axis, index in enumerate(indices)]
    in_range = tuple([axis for axis, is_proved in enumerate(inside) if is_proved or axis in before])
    if node.op is lookup_or:
        indices_of_access = node.operands[2:]
        return (
            lookup(node.operands[0], *indices_of_access, in_range=in_range) if len(in_range) == len(indices) else node
        )
    return make_node(node.op, node.operands, (("in_range", in_range),)) if in_range else node


def _is_inside(index: Form | None, size: object) -> bool:
    return index is not None and isinstance(size, int) and least(index) >= 0 and greatest(index) < size


def _fold_comparison(node: Node, operands: Forms) -> Node:
    """Replaces an integer comparison with a provable result by a constant."""
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
