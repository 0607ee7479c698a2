"""The loop pass `parallelise_loops`: runs loops of a scalar kernel on all threads where no iteration meets another.

An iteration meets another one if it writes an element that the other one reads or writes. Indices are compared as
affine forms of loop indices. The loops of `lg.parallel` come with the user's promise, which stands in for the proof.
Tensors that each iteration fills before it reads them are private to a thread. Of a nest, the outermost loop with
enough work is chosen.
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

_MOST_NODES = 20_000  # of all functions, each counted once for each node that runs it


def parallelise_loops(nest: LoopNest) -> LoopNest:
    """Says which loops of a kernel without lanes run on threads, and for all others why not."""
    stages = nest.kernel.stages
    if nest.lanes > 1 or nest.step.domain or not any(for_loop in ops_below(stage.body) for stage in stages):
        return nest
    least = nest.target.least_parallel_work
    work = PARALLEL_LOOP_COST if least is None else least
    bases = [buffer.base for buffer in nest.step.indexed_buffers]
    memories, changed, notes = tuple(map(bases.index, bases)), [], list[str]()
    for stage in stages:
        reduced = len(stage.body.parameters) - len(stage.sources)  # values so far come first, where a stage reduces
        tensors = (*[None] * reduced, *[s.number if s.kind == "indexed" else None for s in stage.sources])
        body, top = _parallelise(stage.body, tensors, memories, nest.kernel.discarded, work)
        changed.append(replace(stage, body=body))
        notes += _describe(top, 0)
    return nest.with_stages(tuple(changed)).replace(loop_notes=tuple(notes))


@lru_cache(maxsize=1024)
def _parallelise(
    body: Function, tensors: tuple[int | None, ...], memories: tuple[int, ...], discarded: frozenset[int], work: float
) -> tuple[Function, Region]:
    """The body of a stage with its parallel loops marked, which do so much work at least, and what it runs."""
    walk = _Walk()
    top = Region(None, None, Form(1), frozenset())
    if any(op.name.startswith("tape") for op in ops_below(body)):
        return body, top  # a tape is written by one thread
    walk.function(body, [any_number(p.type) for p in body.parameters], list(tensors), top)
    if walk.nodes > _MOST_NODES:
        return body, Region(None, None, Form(1), frozenset())
    choice = _Choice(memories, discarded, work, top)
    choice.choose(top, parallel_around=False)
    return _mark(body, top), top


# --- what a kernel reads and writes ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Access:
    """A read or write of one element: of which tensor of the kernel, and where."""

    tensor: int
    op: Op
    indices: tuple[Form | None, ...]

    @property
    def writes(self) -> bool:
        return self.op in UPDATES


@dataclass(eq=False)
class Region:
    """A node that runs functions, as it occurs in a kernel: its accesses, and the regions inside it.

    `index` is the index of a loop, and `outside` has the symbols that are the same in all its iterations."""

    node: Node | None
    index: Symbol | None
    iterations: Form | None
    outside: frozenset[Symbol]
    accesses: list[Access] = field(default_factory=list)
    inside: list[list[Region]] = field(default_factory=list)  # for each function of the node, its regions in order
    carried: tuple[int | None, ...] = ()  # the tensors that a loop carries
    work: float = 0.0  # of one iteration, in additions
    grain: int = 0  # iterations that a thread takes at once; 0: the loop is serial
    is_vector: bool = False  # LLVM may vectorise it: an innermost loop of which no two iterations meet
    private: tuple[int, ...] = ()  # carried values of which each thread has its own
    why: str = ""  # it is serial

    def all_accesses(self) -> list[Access]:
        inner = [access for group in self.inside for region in group for access in region.all_accesses()]
        return [*self.accesses, *inner]

    @property
    def count(self) -> float:
        """How many iterations there are, roughly."""
        if self.node is None or self.node.op not in LOOPS:
            return 1.0
        if self.iterations is None or greatest(self.iterations) >= 1 << 62:
            return UNKNOWN_ITERATIONS
        return max(0.0, (max(0, least(self.iterations)) + greatest(self.iterations)) / 2)


class _Walk:
    """Goes through a kernel as it runs, and notes accesses with their indices."""

    def __init__(self) -> None:
        self.nodes = 0

    def function(
        self, function: Function, arguments: list[Form | None], tensors: list[int | None], around: Region
    ) -> None:
        forms = dict(zip(function.parameters, arguments, strict=True))
        numbers = {node: n for node, n in zip(function.parameters, tensors, strict=True) if n is not None}
        members: dict[Node, list[int | None]] = {}
        regions: list[Region] = []
        around.inside.append(regions)
        order = nodes_of(function)
        self.nodes += len(order)
        for node in order if self.nodes <= _MOST_NODES else ():
            if node in forms:
                continue
            around.work += node.op.cost
            if node.functions:
                region = self._region(node, forms, numbers)
                regions.append(region)
                around.work += region.count * region.work
                if holds_tensor(node.type):
                    taken = [None if p is None else node.operands[p] for p in operands_of_results(node)]
                    members[node] = [None if operand is None else numbers[operand] for operand in taken]
                    if isinstance(node.type, Tensor):
                        numbers[node] = members[node][0]  # type: ignore[assignment]
            elif node.op is get and node.operands[0] in members:
                number = members[node.operands[0]][node.attribute("index")]
                if number is not None:
                    numbers[node] = number
            else:
                self._access(node, forms, numbers, around)
            forms[node] = form_of(node, [forms[operand] for operand in node.operands])

    def _access(self, node: Node, forms: dict[Node, Form | None], numbers: dict[Node, int], around: Region) -> None:
        indices = indices_of(node)
        for position, operand in enumerate(node.operands):
            if operand in numbers:
                by_index = position == 0 and indices
                where = tuple([forms[index] for index in indices]) if by_index else (None,)
                around.accesses.append(Access(numbers[operand], node.op, where))
        if node.op in UPDATES:
            numbers[node] = numbers[node.operands[0]]

    def _region(self, node: Node, forms: dict[Node, Form | None], numbers: dict[Node, int]) -> Region:
        region = region_of(node)
        assert region is not None
        index, arguments = forms_inside(region, [forms[operand] for operand in node.operands])
        carried = node.attribute("carried") if node.op in LOOPS else 0
        tensors = [numbers.get(operand) for operand in region.arguments]
        iterations = forms[node.operands[0]] if node.op is for_loop else None
        symbol = None if index is None else next(iter(index.coefficients), None)
        outside = _symbols([*arguments[carried:], iterations])
        inner = Region(node, symbol, iterations, outside, carried=tuple(tensors[:carried]))
        for function, offset in zip(region.functions, region.offsets, strict=True):
            self.function(function, [*[index] * offset, *arguments], [*[None] * offset, *tensors], inner)
        inner.is_vector = _is_vector(inner)
        in_lanes = dict(node.attributes).get("lanes", 1) > 1
        inner.work /= _vector_gain(node) if inner.is_vector or in_lanes else 1.0
        return inner


def _vector_gain(loop: Node) -> float:
    """How many times faster vectors are, by the largest element that the loop reads or writes."""
    sizes = [byte_size(operand.type.element) for operand in loop.operands if isinstance(operand.type, Tensor)]
    return VECTOR_GAIN * 8 / max(sizes, default=8)


def _symbols(forms: Sequence[Form | None]) -> frozenset[Symbol]:
    """The symbols of forms, and those that bound them."""
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
    """Whether two iterations of a loop may access one element, one of them by `first` and the other by `second`.

    They do not if the indices of some axis differ, whichever iteration comes first.
    """
    assert loop.index is not None
    assert loop.iterations is not None
    longest = max(1, greatest(loop.iterations) - 1)
    last = loop.iterations.plus(Form(-1))
    behind = last.plus(Form.of(loop.index), -1)
    distance = Form.of(Symbol(1, longest, loop.index.depth + 1, (behind,)))
    earlier = Form.of(loop.index)
    later = earlier.plus(distance)
    for one, other in zip(first.indices, second.indices, strict=False):
        if one is None or other is None:
            continue
        pairs = ((earlier, later), (later, earlier))
        gaps = [_inside(one, loop, a).plus(_inside(other, loop, b), -1) for a, b in pairs]
        if all(least(gap) > 0 or greatest(gap) < 0 for gap in gaps):
            return False
    return True


def _inside(form: Form, loop: Region, iteration: Form) -> Form:
    """A form in one iteration: what the iteration computes has symbols of its own."""
    fresh: dict[Symbol, Form] = {}

    def convert(outer_form: Form) -> Form:
        total = Form(outer_form.constant)
        for symbol, coefficient in outer_form.coefficients.items():
            total = total.plus(renamed(symbol), coefficient)
        return total

    def renamed(symbol: Symbol) -> Form:
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
    """Whether a loop is an innermost one of which no two iterations meet, so that LLVM vectorises it."""
    if loop.node is None or loop.node.op is not for_loop or loop.index is None or loop.iterations is None:
        return False
    if None in loop.carried or not ops_below(loop.node.attribute("body")).isdisjoint((*LOOPS, call)):
        return False
    pairs = product([access for access in loop.all_accesses() if access.writes], loop.all_accesses())
    return not any(a.tensor == b.tensor and meets_another_iteration(a, b, loop) for a, b in pairs)


# --- which loops run on threads --------------------------------------------------------------------------------------


class _Choice:
    """Chooses loops from the outside in."""

    def __init__(self, memories: Sequence[int], discarded: frozenset[int], least_work: float, top: Region) -> None:
        self.memories, self.discarded, self.least_work = memories, discarded, least_work
        self.every = top.all_accesses()

    def choose(self, region: Region, parallel_around: bool) -> None:
        if region.node is not None and region.node.op in LOOPS:
            region.why = "the loop around it is parallel" if parallel_around else self._why_serial(region)
            if not region.why:
                region.grain = max(1, ceil(self.least_work * SHARE_AT_ONCE / max(1.0, region.work)))
                parallel_around = True
        for group in region.inside:
            for inner in group:
                self.choose(inner, parallel_around)

    def _why_serial(self, loop: Region) -> str:
        assert loop.node is not None
        if loop.node.op is not for_loop:
            return "it may end early"
        if any(number is None for number in loop.carried):
            return "an iteration needs a number from the one before"
        if not loop.carried:
            return "it writes nothing"
        fewest = FEWEST_ITERATIONS if self.least_work else 2
        if loop.index is None or loop.iterations is None or greatest(loop.iterations) < fewest:
            return "it has few iterations"
        if loop.count * loop.work < self.least_work:
            return "there is little work"
        return self._conflict(loop)

    def _conflict(self, loop: Region) -> str:
        """Why iterations may meet; finds which tensors are private to a thread."""
        accesses, private, size = loop.all_accesses(), list[int](), 0
        promised = dict(loop.node.attributes).get("independent", False)  # type: ignore[union-attr]
        written = dict.fromkeys(access.tensor for access in accesses if access.writes)
        for tensor in written:
            if self._is_aliased(tensor, accesses):
                return "it reads memory that it writes by another name"
            tensor_accesses = [access for access in accesses if access.tensor == tensor]
            writes = [access for access in tensor_accesses if access.writes]
            # The promise is about the user's arrays, and not about sums, which are taken in order.
            if promised and tensor not in self.discarded and all(access.op is assign for access in writes):
                continue
            if not any(meets_another_iteration(write, other, loop) for write in writes for other in tensor_accesses):
                continue
            carried_number = loop.carried.index(tensor)
            if not self._is_local(loop, tensor, carried_number):
                return "iterations may access the same element"
            private.append(carried_number)
            size += dense_bytes(loop.node.operands[1 + carried_number].type)  # type: ignore[union-attr]
        if size > PRIVATE_BYTES:
            return "its local arrays are too large for each thread to have its own"
        loop.private = tuple(private)
        return ""

    def _is_aliased(self, tensor: int, accesses: Sequence[Access]) -> bool:
        memory = self.memories[tensor]
        return any(access.tensor != tensor and self.memories[access.tensor] == memory for access in accesses)

    def _is_local(self, loop: Region, tensor: int, carried_number: int) -> bool:
        """Whether a tensor holds nothing between iterations: nothing else in the kernel, or after it, accesses it."""
        if tensor not in self.discarded:
            return False
        inside = sum(access.tensor == tensor for access in loop.all_accesses())
        if sum(access.tensor == tensor for access in self.every) != inside:
            return False
        assert loop.node is not None
        return ignores_contents(loop.node.attribute("body"), 1 + carried_number)


# --- the result ------------------------------------------------------------------------------------------------------


def _mark(function: Function, region: Region, group: int = 0) -> Function:
    """The function with its parallel loops marked; `region` runs it."""
    done = {parameter: parameter for parameter in function.parameters}
    regions = iter(region.inside[group])
    for node in nodes_of(function):
        if node in done:
            continue
        operands = tuple([done[operand] for operand in node.operands])
        with originating_from(node.origins):
            done[node] = _marked(node, operands, next(regions)) if node.functions else rebuild(node, operands)
    results = tuple([done[result] for result in function.results])
    if results == function.results:
        return function
    changed = Function(function.name, function.parameters, results)
    changed.source_locations.update(function.source_locations)
    return changed


def _marked(node: Node, operands: tuple[Node, ...], region: Region) -> Node:
    inner_region = region_of(node)
    assert inner_region is not None
    exchange = {function: _mark(function, region, number) for number, function in enumerate(inner_region.functions)}
    attributes: Attribute = exchanged_functions(node.attributes, exchange)
    assert isinstance(attributes, tuple)
    if region.grain:
        chosen: tuple[tuple[str, Attribute], ...] = (("grain", region.grain), ("private", region.private))
        attributes = tuple(sorted((*attributes, *chosen), key=itemgetter(0)))  # type: ignore[misc]
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
