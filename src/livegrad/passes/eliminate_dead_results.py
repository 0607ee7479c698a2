"""The `eliminate_dead_results` pass: removes unused results, and what only they needed.

A result of a called function is used if any caller reads it. A carried value of a loop is used if its final value is
read, if the next value of a used one (or the loop condition) depends on it, or if computing its next value may fail.
Unused parameters and captures are removed too, except those of the module's own functions.

Checks: ops that may fail are kept as long as the loop, branch or map that contains them remains; an unread value never
removes a check. Unused code in a callee is removed like other dead code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from livegrad.ir.node import Function, Module, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.walk import nodes_of, reachable_functions, rebuild
from livegrad.ops.aggregate import get
from livegrad.ops.control import call, map_
from livegrad.passes.functions import exchange_attributes, rearranged, renamed, uses_any
from livegrad.passes.regions import REGIONS, Region, fixed_point, parameter_order, region_member, region_of

# Sets of results, parameters and arguments are bits of an integer; this one has them all.
ALL = -1
Bits = int


@propagates_lines
def eliminate_dead_results(module: Module) -> Module:
    """The module without results, carried values, parameters and captures that nothing needs."""
    if not uses_any(module.functions, REGIONS):
        return module
    order = reachable_functions(module.functions)
    liveness = _Liveness(called={})
    # What one caller reads makes the callee need more of the others, who then read more: until all agree.
    while True:
        next_liveness = _find_liveness(module, order, liveness.called)
        if next_liveness.called == liveness.called:
            break
        liveness = next_liveness
    maker = _Maker(next_liveness)
    for function in order:
        for live in next_liveness.versions(function):
            maker.make(function, live)
    versions = maker.versions
    return Module(tuple(renamed(versions[function, _every(function)], function.name) for function in module.functions))


@dataclass(frozen=True)
class _Facts:
    """For each result of a function, the parameters it depends on; and which results may fail.

    As long as those in `checked` are kept, so is everything that may fail."""

    needs: tuple[Bits, ...]
    fails: Bits
    checked: Bits

    def needed_by(self, results: Bits) -> Bits:
        return _union(self.needs[index] for index in _indices(results))


@dataclass
class _Liveness:
    """What is read of each function. Its callers share one version of it; loops, branches and maps have their own."""

    called: dict[Function, Bits]  # by the callers together
    facts: dict[Function, _Facts] = field(default_factory=dict)
    run: dict[Function, set[Bits]] = field(default_factory=dict)  # by each region on its own
    whole: set[Function] = field(default_factory=set)  # entries, and functions whose users are no regions
    needed: dict[tuple[Function, Bits], dict[Node, Bits]] = field(default_factory=dict)  # by version: node → results

    def versions(self, function: Function) -> list[Bits]:
        bits = set(self.run.get(function, ()))
        if function in self.called:
            bits.add(self.called[function])
        if function in self.whole:
            bits.add(_every(function))
        return sorted(bits)

    def version_for(self, region: Region, position: int, kept: Bits) -> tuple[Function, Bits]:
        """The version of a region's function that gives the kept results; a loop's condition gives its only one."""
        function = region.functions[position]
        return function, _every(function) if _is_test(region, position) else kept

    def kept_results(self, region: Region, read: Bits) -> Bits:
        """The results that stay when these are read."""
        every = (1 << region.number) - 1
        if region.node.op is call:
            return (read | self.called.get(region.functions[0], 0)) & every
        last = len(region.functions) - 1
        kept = read & every
        kept |= _union(self.facts[f].checked for i, f in enumerate(region.functions) if i == last or not region.is_loop)
        if not region.is_loop:
            return kept
        return fixed_point(kept, lambda bits: bits | self._needed_arguments(region, bits) & every)

    def _needed_arguments(self, region: Region, kept: Bits) -> Bits:
        """The arguments from which the functions make the kept results; a loop's condition counts always."""
        total = 0
        for position, offset in enumerate(region.offsets):
            function, results = self.version_for(region, position, kept)
            total |= self.facts[function].needed_by(results) >> offset
        return total

    def kept_arguments(self, region: Region, kept: Bits) -> list[int]:
        needed = self._needed_arguments(region, kept) | (kept if region.is_loop else 0)
        if region.node.op is map_:
            lifted: tuple[bool, ...] = region.node.attribute("lifted")
            if not any(lifted[index] for index in _indices(needed)):
                needed |= 1 << lifted.index(True)  # the domain is what some lifted argument spans
        return _indices(needed)

    def used_operands(self, region: Region, kept: Bits) -> list[Node]:
        return [*region.leading, *(region.arguments[index] for index in self.kept_arguments(region, kept))]

    def fails(self, region: Region, kept: Bits) -> bool:
        versions = (self.version_for(region, position, kept) for position in range(len(region.functions)))
        return region.node.may_fail or any(self.facts[function].fails & results for function, results in versions)


def _is_test(region: Region, position: int) -> bool:
    return region.is_loop and position != len(region.functions) - 1


def _every(function: Function) -> Bits:
    return (1 << len(function.results)) - 1


def _indices(bits: Bits) -> list[int]:
    return [index for index, digit in enumerate(bin(bits)[:1:-1]) if digit == "1"]


def _union(parts: Iterable[Bits]) -> Bits:
    total = 0
    for part in parts:
        total |= part
    return total


def _region_read_by(node: Node) -> Node | None:
    """The region of whose several results this node reads one."""
    if node.op is not get:
        return None
    region = region_of(node.operands[0])
    return node.operands[0] if region is not None and region.packed else None


# --- what is needed: facts from the inside out, then demands from the outside in -------------------------------------


def _find_liveness(module: Module, order: Sequence[Function], called: dict[Function, Bits]) -> _Liveness:
    liveness = _Liveness(dict(called), whole=set(module.functions))
    for function in order:
        liveness.facts[function] = _find_facts(function, liveness)
    for function in reversed(order):
        for live in liveness.versions(function):
            liveness.needed[function, live] = _find_needed(function, live, liveness)
    return liveness


def _find_facts(function: Function, liveness: _Liveness) -> _Facts:
    needs: dict[Node, Bits] = {node: 1 << index for index, node in enumerate(function.parameters)}
    fails: dict[Node, Bits] = {}  # which nodes that may fail a node needs, by number
    numbers: dict[tuple[Node, Bits], int] = {}
    regions: dict[tuple[Node, Bits], tuple[Bits, Bits]] = {}
    for node in nodes_of(function):
        if node in needs:
            continue
        source = _region_read_by(node)
        region = region_of(node if source is None else source)
        if region is None:
            needs[node] = _union(needs[operand] for operand in node.operands)
            failing = _union(fails.get(operand, 0) for operand in node.operands)
            failing |= 1 << numbers.setdefault((node, ALL), len(numbers)) if node.may_fail else 0
        else:
            kept = liveness.kept_results(region, ALL if source is None else 1 << node.attribute("index"))
            # A derivative has thousands of uses, and all its results are live for each of them.
            if (region.node, kept) not in regions:
                used = liveness.used_operands(region, kept)
                checks = _union(fails.get(operand, 0) for operand in used)
                if liveness.fails(region, kept):
                    # All checks of a region stay; a call keeps the checks of its live results.
                    site = region.node, kept if region.node.op is call else ALL
                    checks |= 1 << numbers.setdefault(site, len(numbers))
                regions[region.node, kept] = _union(needs[operand] for operand in used), checks
            needs[node], failing = regions[region.node, kept]
        if failing:
            fails[node] = failing
    checks = [fails.get(node, 0) for node in function.results]
    failing_results = _union(1 << index for index, own_checks in enumerate(checks) if own_checks)
    return _Facts(tuple(needs[node] for node in function.results), failing_results, _covering(checks))


def _covering(checks: Sequence[Bits]) -> Bits:
    """A set of results that covers all checks, greedily: those with most checks first."""
    chosen, covered = 0, 0
    for index in sorted(range(len(checks)), key=lambda index: -checks[index].bit_count()):
        if checks[index] & ~covered:
            chosen |= 1 << index
            covered |= checks[index]
    return chosen


def _find_needed(function: Function, live: Bits, liveness: _Liveness) -> dict[Node, Bits]:
    """The nodes that the live results depend on, with their live results; marks the functions they use."""
    needed: dict[Node, Bits] = {function.results[index]: ALL for index in _indices(live)}
    for node in reversed(nodes_of(function)):
        if node not in needed:
            continue
        source = _region_read_by(node)
        region = region_of(node)
        if source is not None:
            needed[source] = needed.get(source, 0) | 1 << node.attribute("index")
        elif region is not None:
            needed[node] = liveness.kept_results(region, needed[node])
            _tell_functions(region, needed[node], liveness)
            needed.update(dict.fromkeys(liveness.used_operands(region, needed[node]), ALL))
        else:
            needed.update(dict.fromkeys(node.operands, ALL))
            liveness.whole.update(node.functions)
    return needed


def _tell_functions(region: Region, kept: Bits, liveness: _Liveness) -> None:
    if region.node.op is call:
        liveness.called[region.functions[0]] = kept
        return
    for position in range(len(region.functions)):
        function, results = liveness.version_for(region, position, kept)
        liveness.run.setdefault(function, set()).add(results)


# --- the functions anew, innermost first -----------------------------------------------------------------------------


class _Maker:
    """Creates versions of functions that have only their live results."""

    def __init__(self, liveness: _Liveness) -> None:
        self.liveness = liveness
        self.versions: dict[tuple[Function, Bits], Function] = {}
        self._narrowed: dict[tuple[Function, tuple[int, ...]], Function] = {}

    def make(self, function: Function, live: Bits) -> None:
        """Creates a version with the same parameters; its callers drop the unused ones."""
        needed = self.liveness.needed[function, live]
        values: dict[Node, Node] = {}
        for node in nodes_of(function):
            if node in needed:
                with originating_from(node.origins):
                    values[node] = self._moved(node, needed, values)
        results = tuple(values[function.results[index]] for index in _indices(live))
        self.versions[function, live] = Function(function.name, function.parameters, results)

    def _moved(self, node: Node, needed: dict[Node, Bits], values: dict[Node, Node]) -> Node:
        source = _region_read_by(node)
        region = region_of(node)
        if source is not None:
            kept_before = needed[source] & ((1 << node.attribute("index")) - 1)
            return region_member(values[source], kept_before.bit_count())
        if region is not None:
            return self._make_region(region, needed[node], values)
        moved = rebuild(node, tuple([values[operand] for operand in node.operands]))
        inner = {f: self.versions[f, _every(f)] for f in node.functions}
        return exchange_attributes(moved, inner) if inner else moved

    def _make_region(self, region: Region, kept: Bits, values: dict[Node, Node]) -> Node:
        arguments = self.liveness.kept_arguments(region, kept)
        functions = []
        for position, offset in enumerate(region.offsets):
            version = self.versions[self.liveness.version_for(region, position, kept)]
            functions.append(self._narrow(version, tuple(parameter_order(offset, arguments))))
        # Operands that nothing needs have no value here, and are left out.
        operands = [values.get(operand, operand) for operand in region.node.operands]
        return region.rebuild(operands, functions, arguments, _indices(kept))

    def _narrow(self, function: Function, order: tuple[int, ...]) -> Function:
        narrowed = self._narrowed.get((function, order))
        if narrowed is None:
            narrowed = self._narrowed[function, order] = rearranged(function, order)
        return narrowed
