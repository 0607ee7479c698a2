"""The `eliminate_dead_results` pass: interprocedural dead code elimination of results, carried values and captures.

A result of a called function is live if any caller reads it. A carried value of a loop is live if its final value is
read, if the next value of a live one (or the loop condition) depends on it, or if computing its next value may fail.
Unused parameters and captures are removed too, except those of the module's own functions.

Ops that may fail stay as long as the loop, branch or map that contains them remains: an unread value never removes a
check. Unused code in a callee is removed like other dead code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from livegrad.ir.node import Function, Module, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.walk import nodes_of, reachable_functions, rebuild
from livegrad.ops.aggregate import get
from livegrad.ops.control import call
from livegrad.ops.maps import map_
from livegrad.passes.functions import exchange_attributes, rearrange_signature, rename_function, uses_any
from livegrad.passes.regions import REGIONS, Region, fixed_point, parameter_order, region_member, region_of

# Sets of results, parameters and arguments are bit masks; this one is the set of all.
ALL = -1
Bits = int


@propagates_lines
def eliminate_dead_results(module: Module) -> Module:
    """Removes results, carried values, parameters and captures that nothing uses."""
    if not uses_any(module.functions, REGIONS):
        return module
    order = reachable_functions(module.functions)
    liveness = _Liveness(called={})
    # If one caller reads a result, the callee depends on more of all its callers' values: iterate to a fixed point.
    while True:
        next_liveness = _find_liveness(module, order, liveness.called)
        if next_liveness.called == liveness.called:
            break
        liveness = next_liveness
    builder = _VersionBuilder(next_liveness)
    for function in order:
        for live in next_liveness.versions(function):
            builder.build(function, live)
    versions = builder.versions
    return Module(
        tuple(
            rename_function(versions[function, _all_results(function)], function.name) for function in module.functions
        )
    )


@dataclass(frozen=True)
class _Dependencies:
    """The parameters that each result of a function depends on, and which results may fail.

    As long as the results in `checked` are live, so is everything that may fail.
    """

    needs: tuple[Bits, ...]
    fails: Bits
    checked: Bits

    def needed_by(self, results: Bits) -> Bits:
        return _union(self.needs[index] for index in _indices(results))


@dataclass
class _Liveness:
    """The live results of each function. All callers share one version of a function; each region has its own."""

    called: dict[Function, Bits]  # the union over all callers
    dependencies: dict[Function, _Dependencies] = field(default_factory=dict)
    region_results: dict[Function, set[Bits]] = field(default_factory=dict)  # one set for each loop, branch or map
    complete: set[Function] = field(
        default_factory=set
    )  # entry points, and functions of other ops: all results are live
    needed: dict[tuple[Function, Bits], dict[Node, Bits]] = field(default_factory=dict)  # by version: node → results

    def versions(self, function: Function) -> list[Bits]:
        bits = set(self.region_results.get(function, ()))
        if function in self.called:
            bits.add(self.called[function])
        if function in self.complete:
            bits.add(_all_results(function))
        return sorted(bits)

    def version_for(self, region: Region, position: int, live: Bits) -> tuple[Function, Bits]:
        """The version of a region's function for these live results. The result of a loop condition is always live."""
        function = region.functions[position]
        return function, _all_results(function) if _is_condition(region, position) else live

    def live_results(self, region: Region, read: Bits) -> Bits:
        """The results of a region that are live if these are read."""
        every = (1 << region.number) - 1
        if region.node.op is call:
            return (read | self.called.get(region.functions[0], 0)) & every
        last = len(region.functions) - 1
        live = read & every
        live |= _union(
            self.dependencies[f].checked for i, f in enumerate(region.functions) if i == last or not region.is_loop
        )
        if not region.is_loop:
            return live
        return fixed_point(live, lambda bits: bits | self._needed_arguments(region, bits) & every)

    def _needed_arguments(self, region: Region, live: Bits) -> Bits:
        """The arguments that the live results depend on, or the loop condition."""
        total = 0
        for position, offset in enumerate(region.offsets):
            function, results = self.version_for(region, position, live)
            total |= self.dependencies[function].needed_by(results) >> offset
        return total

    def live_arguments(self, region: Region, live: Bits) -> list[int]:
        needed = self._needed_arguments(region, live) | (live if region.is_loop else 0)
        if region.node.op is map_:
            lifted: tuple[bool, ...] = region.node.attribute("lifted")
            if not any(lifted[index] for index in _indices(needed)):
                needed |= 1 << lifted.index(True)  # a map takes its domain from a lifted argument
        return _indices(needed)

    def used_operands(self, region: Region, live: Bits) -> list[Node]:
        return [*region.leading, *(region.arguments[index] for index in self.live_arguments(region, live))]

    def fails(self, region: Region, live: Bits) -> bool:
        versions = (self.version_for(region, position, live) for position in range(len(region.functions)))
        return region.node.may_fail or any(
            self.dependencies[function].fails & results for function, results in versions
        )


def _is_condition(region: Region, position: int) -> bool:
    return region.is_loop and position != len(region.functions) - 1


def _all_results(function: Function) -> Bits:
    return (1 << len(function.results)) - 1


def _indices(bits: Bits) -> list[int]:
    return [index for index, digit in enumerate(bin(bits)[:1:-1]) if digit == "1"]


def _union(parts: Iterable[Bits]) -> Bits:
    total = 0
    for part in parts:
        total |= part
    return total


def _region_read_by(node: Node) -> Node | None:
    """The region with several results that a `get` reads from; None for other nodes."""
    if node.op is not get:
        return None
    region = region_of(node.operands[0])
    return node.operands[0] if region is not None and region.packed else None


# --- analysis: dependencies from the inside out, then liveness from the outside in -----------------------------------


def _find_liveness(module: Module, order: Sequence[Function], called: dict[Function, Bits]) -> _Liveness:
    liveness = _Liveness(dict(called), complete=set(module.functions))
    for function in order:
        liveness.dependencies[function] = _find_dependencies(function, liveness)
    for function in reversed(order):
        for live in liveness.versions(function):
            liveness.needed[function, live] = _find_needed(function, live, liveness)
    return liveness


def _find_dependencies(function: Function, liveness: _Liveness) -> _Dependencies:
    needs: dict[Node, Bits] = {node: 1 << index for index, node in enumerate(function.parameters)}
    fails: dict[Node, Bits] = {}  # the set of checks that a node depends on
    check_ids: dict[tuple[Node, Bits], int] = {}
    regions: dict[tuple[Node, Bits], tuple[Bits, Bits]] = {}
    for node in nodes_of(function):
        if node in needs:
            continue
        source = _region_read_by(node)
        region = region_of(node if source is None else source)
        if region is None:
            needs[node] = _union(needs[operand] for operand in node.operands)
            failing = _union(fails.get(operand, 0) for operand in node.operands)
            failing |= 1 << check_ids.setdefault((node, ALL), len(check_ids)) if node.may_fail else 0
        else:
            live = liveness.live_results(region, ALL if source is None else 1 << node.attribute("index"))
            # Cached: each of the thousands of results of a derivative asks for the same live set.
            if (region.node, live) not in regions:
                used = liveness.used_operands(region, live)
                checks = _union(fails.get(operand, 0) for operand in used)
                if liveness.fails(region, live):
                    # A region keeps all its checks; a call keeps the checks of its live results.
                    site = region.node, live if region.node.op is call else ALL
                    checks |= 1 << check_ids.setdefault(site, len(check_ids))
                regions[region.node, live] = _union(needs[operand] for operand in used), checks
            needs[node], failing = regions[region.node, live]
        if failing:
            fails[node] = failing
    checks = [fails.get(node, 0) for node in function.results]
    failing_results = _union(1 << index for index, result_checks in enumerate(checks) if result_checks)
    return _Dependencies(tuple(needs[node] for node in function.results), failing_results, _cover_checks(checks))


def _cover_checks(checks: Sequence[Bits]) -> Bits:
    """A small set of results that depends on all checks: a greedy set cover."""
    chosen, covered = 0, 0
    for index in sorted(range(len(checks)), key=lambda index: -checks[index].bit_count()):
        if checks[index] & ~covered:
            chosen |= 1 << index
            covered |= checks[index]
    return chosen


def _find_needed(function: Function, live: Bits, liveness: _Liveness) -> dict[Node, Bits]:
    """The nodes that the live results depend on, with their live results; records those of the functions they run."""
    needed: dict[Node, Bits] = {function.results[index]: ALL for index in _indices(live)}
    for node in reversed(nodes_of(function)):
        if node not in needed:
            continue
        source = _region_read_by(node)
        region = region_of(node)
        if source is not None:
            needed[source] = needed.get(source, 0) | 1 << node.attribute("index")
        elif region is not None:
            needed[node] = liveness.live_results(region, needed[node])
            _record_live_functions(region, needed[node], liveness)
            needed.update(dict.fromkeys(liveness.used_operands(region, needed[node]), ALL))
        else:
            needed.update(dict.fromkeys(node.operands, ALL))
            liveness.complete.update(node.functions)
    return needed


def _record_live_functions(region: Region, live: Bits, liveness: _Liveness) -> None:
    if region.node.op is call:
        liveness.called[region.functions[0]] = live
        return
    for position in range(len(region.functions)):
        function, results = liveness.version_for(region, position, live)
        liveness.region_results.setdefault(function, set()).add(results)


# --- rewriting, innermost functions first ----------------------------------------------------------------------------


class _VersionBuilder:
    """Builds versions of functions that compute only their live results."""

    def __init__(self, liveness: _Liveness) -> None:
        self.liveness = liveness
        self.versions: dict[tuple[Function, Bits], Function] = {}
        self._narrowed: dict[tuple[Function, tuple[int, ...]], Function] = {}

    def build(self, function: Function, live: Bits) -> None:
        """Builds a version with the same parameters; regions that use it drop the unused ones."""
        needed = self.liveness.needed[function, live]
        values: dict[Node, Node] = {}
        for node in nodes_of(function):
            if node in needed:
                with originating_from(node.origins):
                    values[node] = self._rebuild_node(node, needed, values)
        results = tuple(values[function.results[index]] for index in _indices(live))
        self.versions[function, live] = Function(function.name, function.parameters, results)

    def _rebuild_node(self, node: Node, needed: dict[Node, Bits], values: dict[Node, Node]) -> Node:
        source = _region_read_by(node)
        region = region_of(node)
        if source is not None:
            live_before = needed[source] & ((1 << node.attribute("index")) - 1)
            return region_member(values[source], live_before.bit_count())
        if region is not None:
            return self._rebuild_region(region, needed[node], values)
        rebuilt = rebuild(node, tuple([values[operand] for operand in node.operands]))
        inner = {f: self.versions[f, _all_results(f)] for f in node.functions}
        return exchange_attributes(rebuilt, inner) if inner else rebuilt

    def _rebuild_region(self, region: Region, live: Bits, values: dict[Node, Node]) -> Node:
        arguments = self.liveness.live_arguments(region, live)
        functions = []
        for position, offset in enumerate(region.offsets):
            version = self.versions[self.liveness.version_for(region, position, live)]
            functions.append(self._narrow(version, tuple(parameter_order(offset, arguments))))
        # Dead operands have no value here; `rebuild` drops them.
        operands = [values.get(operand, operand) for operand in region.node.operands]
        return region.rebuild(operands, functions, arguments, _indices(live))

    def _narrow(self, function: Function, order: tuple[int, ...]) -> Function:
        narrowed = self._narrowed.get((function, order))
        if narrowed is None:
            narrowed = self._narrowed[function, order] = rearrange_signature(function, order)
        return narrowed
