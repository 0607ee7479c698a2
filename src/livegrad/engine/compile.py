"""The graph compiler: a description becomes a plan, in phases that can each be called and shown.

    flatten_graph     composites dissolve                                              (engine.flatten)
    validate          every input is fed, every block may stand where it does          (here)
    sort_nodes        one order over all steps, with levels; cycles are reported       (engine.sort)
    propagate_shapes  bodies are specialised; every type and shape is known            (engine.propagate)
    wire              operands, buffers, initial contents                              (engine.wire)
    share_memory      which buffers may share bytes                                    (engine.share)

All problems of a phase are found, each at its pin. `Engine` calls `compile_graph` when the structure has changed and
`replan` when single blocks have.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from livegrad.engine.flatten import Network, flatten_graph
from livegrad.engine.graph import Graph, State
from livegrad.engine.live_plan import LivePlan
from livegrad.engine.problems import GraphError, Problem, problem
from livegrad.engine.propagate import Shapes, propagate_shapes
from livegrad.engine.share import share_memory
from livegrad.engine.sort import sort_nodes
from livegrad.engine.wire import wire


@dataclass
class Compilation:
    """What compiling found out: the plan, or what is wrong; and the intermediate results, for the next edit."""

    network: Network
    order: list[tuple[str, int]] = field(default_factory=list)
    shapes: Shapes = field(default_factory=lambda: Shapes())
    plan: LivePlan | None = None
    problems: list[Problem] = field(default_factory=list)


def compile_graph(graph: Graph, reuse_memory: bool = False, kept: frozenset[str] = frozenset()) -> Compilation:
    """The plan of a graph, or everything that is wrong with it."""
    compilation = Compilation(flatten_graph(graph))
    network, problems = compilation.network, compilation.problems
    problems += validate(network)
    compilation.order, cycles = sort_nodes(network)
    problems += cycles
    broken = {problem.node for problem in problems}
    compilation.shapes, more = propagate_shapes(network, compilation.order, broken)
    problems += more
    if not problems:
        plan = wire(network, compilation.order, compilation.shapes)
        compilation.plan = share_memory(plan, kept) if reuse_memory else plan
    return compilation


# --- validation ------------------------------------------------------------------------------------------------------


def validate(network: Network) -> list[Problem]:
    """Inputs that nothing feeds, and blocks that stand where they cannot."""
    problems = []
    for node in network.all_nodes():
        for name, ref in node.feeds.items():
            if ref is None:
                help = f"connect or set `{node.block.name}.{name}`"
                problems.append(problem(node, name, GraphError("nothing feeds this input", help=help)))
        for body in node.bodies:
            for inner in body.nodes.values():
                if isinstance(inner.block, State):
                    help = "carry the value through the loop, or put the state outside"
                    problems.append(problem(inner, None, GraphError("a state cannot live in a region", help=help)))
    return problems
