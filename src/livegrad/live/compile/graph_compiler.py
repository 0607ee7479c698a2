"""The graph compiler: turns a description into a plan, in phases that can be called and printed separately.

    flatten_graph     dissolves composites                                             (flatten.py)
    validate          checks that inputs have sources and that blocks are allowed      (here)
    sort_nodes        sorts all nodes topologically, with levels; reports cycles       (topological_sort.py)
    propagate_shapes  specialises bodies, and infers every type and shape              (propagate.py)
    wire              creates steps with operands, buffers, and initial contents       (wire.py)
    share_memory      assigns shared memory slots to buffers                           (share_memory.py)

A phase reports all its problems, each at its pin. `Applier` calls `compile_graph` for the first plan, and `replan` for
edits.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from livegrad.live.compile.flatten import MAX_NESTED, flatten_graph
from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.network import Network, NetworkNode, OutputRef, with_inner_nodes
from livegrad.live.compile.propagate import PreviousShapes, Shapes, propagate_shapes
from livegrad.live.compile.share_memory import share_memory
from livegrad.live.compile.topological_sort import sort_nodes
from livegrad.live.compile.wire import PreviousWiring, wire
from livegrad.live.graph.append_buffer import AppendBuffer
from livegrad.live.graph.block import State
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.problems import GraphError, PinError, Problem, make_problem
from livegrad.live.graph.regions import Region


@dataclass
class Compilation:
    """The result of compiling: the plan or problems, and the intermediate results for the next edit."""

    network: Network
    order: list[tuple[str, int]] = field(default_factory=list)
    shapes: Shapes = field(default_factory=lambda: Shapes())
    plan: LivePlan | None = None
    problems: list[Problem] = field(default_factory=list)
    same: set[str] = field(default_factory=set)  # steps that equal those of the previous compilation


def compile_graph(
    graph: Graph, reuse_memory: bool = False, kept: frozenset[str] = frozenset(), previous: Compilation | None = None
) -> Compilation:
    """Compiles a graph to a plan, or lists all problems; unchanged parts are reused from a previous compilation."""
    compilation = Compilation(flatten_graph(graph, None if previous is None else previous.network))
    network, problems = compilation.network, compilation.problems
    problems += validate(network)
    compilation.order, cycles = sort_nodes(network)
    problems += cycles
    broken = {problem.node for problem in problems}
    previous_shapes = None if previous is None else PreviousShapes(previous.network.nodes, previous.shapes)
    compilation.shapes, type_problems = propagate_shapes(network, compilation.order, broken, previous_shapes)
    problems += type_problems
    if not problems:
        previous_wiring = None
        if previous is not None and previous.plan is not None:
            previous_wiring = PreviousWiring(previous.network, previous.shapes, previous.plan, compilation.same)
        plan = wire(network, compilation.order, compilation.shapes, previous_wiring)
        compilation.plan = share_memory(plan, kept) if reuse_memory else plan
    return compilation


# --- validation ------------------------------------------------------------------------------------------------------


def validate(network: Network, nodes: Iterable[NetworkNode] | None = None) -> list[Problem]:
    """Reports unconnected inputs and misplaced blocks, among some nodes or all."""
    problems = []
    checked = {node.key: node for node in (network.all_nodes() if nodes is None else with_inner_nodes(nodes))}
    all_nodes = ChainMap(checked, network.nodes)  # type: ignore[arg-type]
    for node in checked.values():
        for name, ref in node.feeds.items():
            if ref is None:
                help = f"connect or set `{node.block.name}.{name}`"
                what = node.missing.get(name, "this input is not connected")
                problems.append(make_problem(node, name, GraphError(what, help=help)))
        if isinstance(node.block, AppendBuffer):
            problems += _validate_writers(node, all_nodes)
        problems += _validate_bodies(node)
        for body in node.bodies:
            for inner in body.nodes.values():
                if isinstance(inner.block, State):
                    help = "carry the value through the loop, or move the state out of the region"
                    problems.append(make_problem(inner, None, GraphError("a region cannot contain a state", help=help)))
    return problems


def _validate_bodies(node: NetworkNode) -> list[Problem]:
    """Reports bodies with different outputs, and outputs that no longer exist."""
    problems = []
    if isinstance(node.block, Region) and not node.bodies:
        help = "use lg.cond, lg.fori_loop or lg.while_loop inside a block instead of the inner regions"
        error = GraphError("regions are nested too deeply", expected=f"at most {MAX_NESTED} levels", help=help)
        problems.append(make_problem(node, None, error))
    names = [{*body.outputs, *body.missing} for body in node.bodies]
    if any(outputs != names[0] for outputs in names):
        found = " and ".join(", ".join(sorted(outputs)) or "nothing" for outputs in names)
        problems.append(make_problem(node, None, GraphError("the bodies must expose the same outputs", found=found)))
    for body in node.bodies:
        problems += [make_problem(node, name, GraphError(what)) for name, what in body.missing.items()]
    return problems


def _validate_writers(node: NetworkNode, nodes: Mapping[str, NetworkNode]) -> list[Problem]:
    """Reports inputs of an append buffer that are not the rows of an append block."""
    problems = []
    for name, ref in node.feeds.items():
        source = nodes.get(ref.node) if isinstance(ref, OutputRef) else None
        fits = source is not None and source.block.appends and isinstance(ref, OutputRef) and ref.pin == "values"
        if ref is not None and not fits:
            found = f"`{ref.key}`, a buffer or a value"
            error = PinError(name, "the `values` of an append block", found)
            problems.append(make_problem(node, name, error))
    return problems
