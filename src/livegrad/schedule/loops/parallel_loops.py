"""Loop parallelisation: runs loops of a scalar kernel on all threads if no two iterations conflict.

Iterations conflict if one writes an element that the other reads or writes. The dependence test compares indices as
affine forms of loop indices. For the loops of `lg.parallel`, the user's promise replaces the proof. Tensors that each
iteration overwrites before it reads them are private to a thread. In a nest, the outermost loop with enough work is
chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from math import ceil
from operator import itemgetter

from livegrad.ir.node import Attribute, Function, Node, make_node
from livegrad.ir.op import Op
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Tensor, holds_tensor
from livegrad.ir.walk import exchanged_functions, nodes_of, ops_below, rebuild
from livegrad.ops.aggregate import get
from livegrad.ops.assignment import UPDATES, assign, indices_of
from livegrad.ops.control import call, for_loop
from livegrad.passes.affine_bounds import Form, Symbol, any_number, depth_of, form_of, forms_inside, greatest, least
from livegrad.passes.in_place_loops import operands_of_results
from livegrad.passes.regions import LOOPS, region_of
from livegrad.schedule.loops.cost_model import (
    FEWEST_ITERATIONS,
    PARALLEL_LOOP_COST,
    PRIVATE_BYTES,
    SHARE_AT_ONCE,
    UNKNOWN_ITERATIONS,
    VECTOR_GAIN,
    byte_size,
    dense_bytes,
)
from livegrad.schedule.loops.local_tensors import ignores_contents
from livegrad.schedule.loops.nest import LoopNest

_MOST_NODES = 20_000  # in all functions, each counted once for each node that runs it


def parallelise_loops(nest: LoopNest) -> LoopNest:
    """Marks the loops of a kernel without lanes that run on threads, and notes for the others why they do not."""
    stages = nest.kernel.stages
    if nest.lanes > 1 or nest.step.domain:
        return nest
    least = nest.target.least_parallel_work
    work = PARALLEL_LOOP_COST if least is None else least
    bases = [buffer.base for buffer in nest.step.indexed_buffers]
    memories, new_stages, notes = tuple(map(bases.index, bases)), [], list[str]()
    for stage in stages:
        reduced = len(stage.body.parameters) - len(stage.sources)  # the running values of reductions come first
        tensors = (*[None] * reduced, *[s.number if s.kind == "indexed" else None for s in stage.sources])
        body, top = _parallelise(stage.body, tensors, memories, nest.kernel.discarded, work)
        new_stages.append(replace(stage, body=body))
        notes += _describe(top, 0)
    return nest.with_stages(tuple(new_stages)).replace(loop_notes=tuple(notes))


@lru_cache(maxsize=1024)
def _parallelise(
    body: Function, tensors: tuple[int | None, ...], memories: tuple[int, ...], discarded: frozenset[int], work: float
) -> tuple[Function, Region]:
    """Marks the parallel loops in the body of a stage, with at least this much work. Returns the region tree too."""
    collector = _AccessCollector()
    top = Region(None, None, Form(1), frozenset())
    if any(op.name.startswith("tape") for op in ops_below(body)):
        return body, top  # only one thread writes a tape
    collector.function(body, [any_number(p.type) for p in body.parameters], list(tensors), top)
    if collector.nodes > _MOST_NODES:
        return body, Region(None, None, Form(1), frozenset())
    chooser = _LoopChooser(memories, discarded, work, top)
    chooser.choose(top, inside_parallel=False)
    return _mark(body, top), top


# --- accesses --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Access:
    """A read or write of an element of an indexed buffer of the kernel."""

    tensor: int
    op: Op
    indices: tuple[Form | None, ...]

    @property
    def writes(self) -> bool:
        return self.op in UPDATES


@dataclass(eq=False)
class Region:
    """An occurrence of a node that runs functions, with its accesses and inner regions.

    `index` is the index of a loop, and `outside` has the symbols that are the same in all its iterations.
    """

    node: Node | None
    index: Symbol | None
    iterations: Form | None
    outside: frozenset[Symbol]
    accesses: list[Access] = field(default_factory=list)
    inside: list[list[Region]] = field(default_factory=list)  # for each function of the node, its regions in order
    carried: tuple[int | None, ...] = ()  # the tensors that a loop carries
    work: float = 0.0  # of one iteration, in additions
    grain: int = 0  # iterations that a thread takes at once; 0: the loop is serial
    is_vector: bool = False  # an innermost loop without conflicts, which LLVM may vectorise
    private: tuple[int, ...] = ()  # the carried tensors that are private to a thread
    why: str = ""  # the reason why it is serial

    def all_accesses(self) -> list[Access]:
        inner = [access for group in self.inside for region in group for access in region.all_accesses()]
        return [*self.accesses, *inner]

    @property
    def count(self) -> float:
        """The estimated number of iterations."""
        if self.node is None or self.node.op not in LOOPS:
            return 1.0
        if self.iterations is None or greatest(self.iterations) >= 1 << 62:
            return UNKNOWN_ITERATIONS
        return max(0.0, (max(0, least(self.iterations)) + greatest(self.iterations)) / 2)


class _AccessCollector:
    """Walks the functions of a kernel in the order in which they run, and collects accesses with their indices."""

    def __init__(self) -> None:
        self.nodes = 0

    def function(
        self, function: Function, arguments: list[Form | None], tensors: list[int | None], outer: Region
    ) -> None:
        """Collects the accesses of a function, given the forms and the tensors of its arguments."""
        forms = dict(zip(function.parameters, arguments, strict=True))
        tensor_of = {node: n for node, n in zip(function.parameters, tensors, strict=True) if n is not None}
        members: dict[Node, list[int | None]] = {}
        regions: list[Region] = []
        outer.inside.append(regions)
        order = nodes_of(function)
        self.nodes += len(order)
        for node in order if self.nodes <= _MOST_NODES else ():
            if node in forms:
                continue
            outer.work += node.op.cost
            if node.functions:
                region = self._visit_region(node, forms, tensor_of)
                regions.append(region)
                outer.work += region.count * region.work
                if holds_tensor(node.type):
                    operands = [None if p is None else node.operands[p] for p in operands_of_results(node)]
                    members[node] = [None if operand is None else tensor_of[operand] for operand in operands]
                    if isinstance(node.type, Tensor):
                        tensor_of[node] = members[node][0]  # type: ignore[assignment]
            elif node.op is get and node.operands[0] in members:
                tensor = members[node.operands[0]][node.attribute("index")]
                if tensor is not None:
                    tensor_of[node] = tensor
            else:
                self._add_access(node, forms, tensor_of, outer)
            forms[node] = form_of(node, [forms[operand] for operand in node.operands])

    def _add_access(
        self, node: Node, forms: dict[Node, Form | None], tensor_of: dict[Node, int], outer: Region
    ) -> None:
        indices = indices_of(node)
        for position, operand in enumerate(node.operands):
            if operand in tensor_of:
                by_index = position == 0 and indices
                index_forms = tuple([forms[index] for index in indices]) if by_index else (None,)
                outer.accesses.append(Access(tensor_of[operand], node.op, index_forms))
        if node.op in UPDATES:
            tensor_of[node] = tensor_of[node.operands[0]]

    def _visit_region(self, node: Node, forms: dict[Node, Form | None], tensor_of: dict[Node, int]) -> Region:
        region = region_of(node)
        assert region is not None
        index, arguments = forms_inside(region, [forms[operand] for operand in node.operands])
        carried = node.attribute("carried") if node.op in LOOPS else 0
        tensors = [tensor_of.get(operand) for operand in region.arguments]
        iterations = forms[node.operands[0]] if node.op is for_loop else None
        symbol = None if index is None else next(iter(index.coefficients), None)
        outside = _symbols([*arguments[carried:], iterations])
        inner = Region(node, symbol, iterations, outside, carried=tuple(tensors[:carried]))
        for function, offset in zip(region.functions, region.offsets, strict=True):
            self.function(function, [*[index] * offset, *arguments], [*[None] * offset, *tensors], inner)
        inner.is_vector = _is_vector(inner)
        has_lanes = dict(node.attributes).get("lanes", 1) > 1
        inner.work /= _vector_gain(node) if inner.is_vector or has_lanes else 1.0
        return inner


def _vector_gain(loop: Node) -> float:
    """The speed-up of vectors, from the largest element that the loop accesses."""
    sizes = [byte_size(operand.type.element) for operand in loop.operands if isinstance(operand.type, Tensor)]
    return VECTOR_GAIN * 8 / max(sizes, default=8)


def _symbols(forms: Sequence[Form | None]) -> frozenset[Symbol]:
    """The symbols of forms, and the symbols of their bounds."""
    symbols: set[Symbol] = set()
    pending = [symbol for form in forms if form is not None for symbol in form.coefficients]
    while pending:
        symbol = pending.pop()
        if symbol not in symbols:
            symbols.add(symbol)
            pending += [inner for form in symbol.at_most for inner in form.coefficients]
    return frozenset(symbols)


# --- the dependence test ---------------------------------------------------------------------------------------------


def meets_another_iteration(first: Access, second: Access, loop: Region) -> bool:
    """Whether two iterations of a loop may access the same element, one by `first` and the other by `second`.

    They do not if the indices of some axis differ, whichever iteration comes first.
    """
    assert loop.index is not None
    assert loop.iterations is not None
    longest = max(1, greatest(loop.iterations) - 1)
    last = loop.iterations.plus(Form(-1))
    remaining = last.plus(Form.of(loop.index), -1)
    distance = Form.of(Symbol(1, longest, loop.index.depth + 1, (remaining,)))
    earlier = Form.of(loop.index)
    later = earlier.plus(distance)
    for first_index, second_index in zip(first.indices, second.indices, strict=False):
        if first_index is None or second_index is None:
            continue
        pairs = ((earlier, later), (later, earlier))
        gaps = [_instantiate(first_index, loop, a).plus(_instantiate(second_index, loop, b), -1) for a, b in pairs]
        if all(least(gap) > 0 or greatest(gap) < 0 for gap in gaps):
            return False
    return True


def _instantiate(form: Form, loop: Region, iteration: Form) -> Form:
    """A form in one iteration of a loop, with fresh symbols for the values that vary between iterations."""
    fresh: dict[Symbol, Form] = {}

    def convert(outer_form: Form) -> Form:
        total = Form(outer_form.constant)
        for symbol, coefficient in outer_form.coefficients.items():
            total = total.plus(rename(symbol), coefficient)
        return total

    def rename(symbol: Symbol) -> Form:
        if symbol is loop.index:
            return iteration
        if symbol in loop.outside:
            return Form.of(symbol)
        if symbol not in fresh:
            at_most = tuple(map(convert, symbol.at_most))
            depth = max([symbol.depth, *[1 + depth_of(bound) for bound in at_most]])
            fresh[symbol] = Form.of(Symbol(symbol.low, symbol.high, depth, at_most))
        return fresh[symbol]

    return convert(form)


def _is_vector(loop: Region) -> bool:
    """Whether a loop is innermost and without conflicts between iterations, so that LLVM can vectorise it."""
    if loop.node is None or loop.node.op is not for_loop or loop.index is None or loop.iterations is None:
        return False
    if None in loop.carried or not ops_below(loop.node.attribute("body")).isdisjoint((*LOOPS, call)):
        return False
    pairs = product([access for access in loop.all_accesses() if access.writes], loop.all_accesses())
    return not any(a.tensor == b.tensor and meets_another_iteration(a, b, loop) for a, b in pairs)


# --- which loops run on threads --------------------------------------------------------------------------------------


class _LoopChooser:
    """Chooses parallel loops from the outside in."""

    def __init__(self, memories: Sequence[int], discarded: frozenset[int], least_work: float, top: Region) -> None:
        self.memories, self.discarded, self.least_work = memories, discarded, least_work
        self.all_accesses = top.all_accesses()

    def choose(self, region: Region, inside_parallel: bool) -> None:
        if region.node is not None and region.node.op in LOOPS:
            region.why = "the loop around it is parallel" if inside_parallel else self._reason_for_serial(region)
            if not region.why:
                region.grain = max(1, ceil(self.least_work * SHARE_AT_ONCE / max(1.0, region.work)))
                inside_parallel = True
        for group in region.inside:
            for inner in group:
                self.choose(inner, inside_parallel)

    def _reason_for_serial(self, loop: Region) -> str:
        assert loop.node is not None
        if loop.node.op is not for_loop:
            return "it may end early"
        if any(tensor is None for tensor in loop.carried):
            return "each iteration needs a value from the previous one"
        if not loop.carried:
            return "it writes nothing"
        fewest = FEWEST_ITERATIONS if self.least_work else 2
        if loop.index is None or loop.iterations is None or greatest(loop.iterations) < fewest:
            return "it has few iterations"
        if loop.count * loop.work < self.least_work:
            return "there is little work"
        return self._find_conflict(loop)

    def _find_conflict(self, loop: Region) -> str:
        """The reason why iterations may conflict; empty if they do not. Sets the private tensors of the loop."""
        accesses, private, size = loop.all_accesses(), list[int](), 0
        is_promised = dict(loop.node.attributes).get("independent", False)  # type: ignore[union-attr]
        written = dict.fromkeys(access.tensor for access in accesses if access.writes)
        for tensor in written:
            if self._is_aliased(tensor, accesses):
                return "it accesses the memory that it writes under another name"
            tensor_accesses = [access for access in accesses if access.tensor == tensor]
            writes = [access for access in tensor_accesses if access.writes]
            # The promise covers the user's arrays, but not sums, which are taken in order.
            if is_promised and tensor not in self.discarded and all(access.op is assign for access in writes):
                continue
            if not any(meets_another_iteration(write, other, loop) for write in writes for other in tensor_accesses):
                continue
            carried_index = loop.carried.index(tensor)
            if not self._is_local(loop, tensor, carried_index):
                return "iterations may access the same element"
            private.append(carried_index)
            size += dense_bytes(loop.node.operands[1 + carried_index].type)  # type: ignore[union-attr]
        if size > PRIVATE_BYTES:
            return "its local arrays are too large for the stack of each thread"
        loop.private = tuple(private)
        return ""

    def _is_aliased(self, tensor: int, accesses: Sequence[Access]) -> bool:
        memory = self.memories[tensor]
        return any(access.tensor != tensor and self.memories[access.tensor] == memory for access in accesses)

    def _is_local(self, loop: Region, tensor: int, carried_index: int) -> bool:
        """Whether a tensor carries no data between iterations, and is not accessed outside the loop."""
        if tensor not in self.discarded:
            return False
        inside = sum(access.tensor == tensor for access in loop.all_accesses())
        if sum(access.tensor == tensor for access in self.all_accesses) != inside:
            return False
        assert loop.node is not None
        return ignores_contents(loop.node.attribute("body"), 1 + carried_index)


# --- the result ------------------------------------------------------------------------------------------------------


def _mark(function: Function, region: Region, group: int = 0) -> Function:
    """Marks the parallel loops of a function, which `region` runs."""
    done = {parameter: parameter for parameter in function.parameters}
    regions = iter(region.inside[group])
    for node in nodes_of(function):
        if node in done:
            continue
        operands = tuple([done[operand] for operand in node.operands])
        with originating_from(node.origins):
            done[node] = _mark_node(node, operands, next(regions)) if node.functions else rebuild(node, operands)
    results = tuple([done[result] for result in function.results])
    if results == function.results:
        return function
    marked = Function(function.name, function.parameters, results)
    marked.source_locations.update(function.source_locations)
    return marked


def _mark_node(node: Node, operands: tuple[Node, ...], region: Region) -> Node:
    inner_region = region_of(node)
    assert inner_region is not None
    replacements = {function: _mark(function, region, group) for group, function in enumerate(inner_region.functions)}
    attributes: Attribute = exchanged_functions(node.attributes, replacements)
    assert isinstance(attributes, tuple)
    if region.grain:
        threading: tuple[tuple[str, Attribute], ...] = (("grain", region.grain), ("private", region.private))
        attributes = tuple(sorted((*attributes, *threading), key=itemgetter(0)))  # type: ignore[misc]
    return make_node(node.op, operands, attributes)  # type: ignore[arg-type]


def _describe(region: Region, depth: int) -> list[str]:
    """A line for each loop, indented by its depth."""
    lines: list[str] = []
    if region.node is not None and region.node.op in LOOPS:
        origin = region.node.origin
        where = "" if origin is None else f" at {origin}"
        parts = [f"parallel, {region.grain} at once" if region.grain else "native"]
        parts += [f"{len(region.private)} private to a thread"] if region.private else []
        parts += ["vector"] if region.is_vector else []
        why = "" if region.grain else f"; one thread, because {region.why}"
        lines.append(f"{'  ' * depth}{region.node.op.name}{where}: {', '.join(parts)}{why}")
        depth += 1
    return [*lines, *[line for group in region.inside for inner in group for line in _describe(inner, depth)]]
