"""The graph compiler: turns a description into a plan, in phases that can be called and printed separately.

    flatten_graph     composites dissolve                                              (engine.flatten)
    validate          every input is fed, every block may stand where it does          (here)
    sort_nodes        one order over all steps, with levels; cycles are reported       (engine.sort)
    propagate_shapes  bodies are specialised; every type and shape is known            (engine.propagate)
    wire              operands, buffers, initial contents                              (engine.wire)
    share_memory      which buffers may share bytes                                    (engine.share)

A phase reports all its problems, each at its pin. `Applier` calls `compile_graph` for the first plan, and `replan` for
edits.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from livegrad.live.compile.flatten import MOST_NESTED, flatten_graph
from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.network import Network, NetworkNode, OutputRef, with_inner_nodes
from livegrad.live.compile.propagate import Before, Shapes, propagate_shapes
from livegrad.live.compile.share_memory import share_memory
from livegrad.live.compile.topological_sort import sort_nodes
from livegrad.live.compile.wire import KnownWork, wire
from livegrad.live.graph.append_buffer import AppendBuffer
from livegrad.live.graph.block import State
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.problems import GraphError, PinError, Problem, problem
from livegrad.live.graph.regions import Region


@dataclass
class Compilation:
    """The result of compiling: the plan or problems, and the intermediate results for the next edit."""

    network: Network
    order: list[tuple[str, int]] = field(default_factory=list)
    shapes: Shapes = field(default_factory=lambda: Shapes())
    plan: LivePlan | None = None
    problems: list[Problem] = field(default_factory=list)
    same: set[str] = field(default_factory=set)  # steps that are as they were in the compilation before


def compile_graph(
    graph: Graph, reuse_memory: bool = False, kept: frozenset[str] = frozenset(), known: Compilation | None = None
) -> Compilation:
    """Compiles a graph to a plan, or lists all problems; unchanged parts are reused from a previous compilation."""
    compilation = Compilation(flatten_graph(graph, None if known is None else known.network))
    network, problems = compilation.network, compilation.problems
    problems += validate(network)
    compilation.order, cycles = sort_nodes(network)
    problems += cycles
    broken = {problem.node for problem in problems}
    before = None if known is None else Before(known.network.nodes, known.shapes)
    compilation.shapes, more = propagate_shapes(network, compilation.order, broken, before)
    problems += more
    if not problems:
        work = None
        if known is not None and known.plan is not None:
            work = KnownWork(known.network, known.shapes, known.plan, compilation.same)
        plan = wire(network, compilation.order, compilation.shapes, work)
        compilation.plan = share_memory(plan, kept) if reuse_memory else plan
    return compilation


# --- validation ------------------------------------------------------------------------------------------------------


def validate(network: Network, nodes: Iterable[NetworkNode] | None = None) -> list[Problem]:
    """Inputs that nothing feeds, and blocks that stand where they cannot; among some nodes, or (None) all."""
    problems = []
    own = {node.key: node for node in (network.all_nodes() if nodes is None else with_inner_nodes(nodes))}
    known = ChainMap(own, network.nodes)  # type: ignore[arg-type]
    for node in own.values():
        for name, ref in node.feeds.items():
            if ref is None:
                help = f"connect or set `{node.block.name}.{name}`"
                what = node.missing.get(name, "this input is not connected")
                problems.append(problem(node, name, GraphError(what, help=help)))
        if isinstance(node.block, AppendBuffer):
            problems += _validate_writers(node, known)
        problems += _validate_bodies(node)
        for body in node.bodies:
            for inner in body.nodes.values():
                if isinstance(inner.block, State):
                    help = "carry the value through the loop, or put the state outside"
                    problems.append(problem(inner, None, GraphError("a region cannot contain a state", help=help)))
    return problems


def _validate_bodies(node: NetworkNode) -> list[Problem]:
    """Every body has the same outputs, and each of them is there."""
    problems = []
    if isinstance(node.block, Region) and not node.bodies:
        help = "use lg.cond, lg.fori_loop or lg.while_loop inside of a block instead of the inner ones"
        error = GraphError("regions are nested too deeply", expected=f"at most {MOST_NESTED} levels", help=help)
        problems.append(problem(node, None, error))
    names = [{*body.outputs, *body.missing} for body in node.bodies]
    if any(own != names[0] for own in names):
        found = " and ".join(", ".join(sorted(own)) or "nothing" for own in names)
        problems.append(problem(node, None, GraphError("the bodies must expose the same outputs", found=found)))
    for body in node.bodies:
        problems += [problem(node, name, GraphError(what)) for name, what in body.missing.items()]
    return problems


def _validate_writers(node: NetworkNode, known: Mapping[str, NetworkNode]) -> list[Problem]:
    """What an append buffer is fed with is the rows that an append block emits."""
    problems = []
    for name, ref in node.feeds.items():
        source = known.get(ref.node) if isinstance(ref, OutputRef) else None
        fits = source is not None and source.block.appends and isinstance(ref, OutputRef) and ref.pin == "values"
        if ref is not None and not fits:
            found = f"`{ref.key}`, a buffer or a value"
            error = PinError(name, "the `values` of an append block", found)
            problems.append(problem(node, name, error))
    return problems
