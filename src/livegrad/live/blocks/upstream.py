"""Lists what an output of a running graph depends on: inputs with a value, and connected ones.

In: an engine that has stepped, and an output. Out: the pins with respect to which `frame_gradient` can differentiate
it. Called by the Studio, which shows how much each input and each wire matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.types import is_differentiable
from livegrad.live.compile.flatten import PinResolver
from livegrad.live.compile.graph_compiler import Compilation
from livegrad.live.compile.network import Network, inputs_of
from livegrad.live.compile.propagate import input_type_of
from livegrad.live.engine import Engine
from livegrad.live.graph.block import Pin, State
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.edges import Edge
from livegrad.live.graph.sources import Setting


@dataclass(frozen=True)
class Upstream:
    """The real inputs that an output depends on: those with a value, and those that are connected."""

    inputs: tuple[Pin, ...]
    wires: tuple[Pin, ...]


def find_upstream(engine: Engine, of: Pin) -> Upstream:
    """The inputs of blocks outside of regions that an output depends on, in this frame or through states.

    >>> import livegrad as lg
    >>> engine = lg.Engine()
    >>> double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    >>> more = engine.add(lg.block(lambda y, n=3: y + n, name="more"))
    >>> engine.connect(double, more["y"])
    >>> _ = engine.step()
    >>> find_upstream(engine, more["result"])
    Upstream(inputs=(double.x,), wires=(more.y,))
    """
    runtime = engine._runtime
    with runtime.lock, engine.graph.editing():
        compilation = runtime.compilation
        resolver = PinResolver(engine.graph, "")
        output = None if compilation is None else resolver.output(of)
        if compilation is None or output is None or output.node not in compilation.network.nodes:
            help = "connect it, and call engine.step()"
            raise UsageError(f"this engine does not run `{of}`", where=caller_origin(), help=help)
        nodes = _find_ancestors(compilation.network, output.node)
        pins = list(engine.parameters())
        inputs = [pin for pin in pins if isinstance(_source_of(pin), Setting)]
        wires = [pin for pin, source in _connections(engine.graph) if isinstance(source, Edge)]
        return Upstream(
            tuple(pin for pin in inputs if _is_upstream(pin, compilation, resolver, nodes)),
            tuple(pin for pin in wires if _is_upstream(pin, compilation, resolver, nodes)),
        )


def _find_ancestors(network: Network, start: str) -> set[str]:
    """A node and the nodes that it depends on, also through states."""
    ancestors: set[str] = set()
    worklist = [start]
    while worklist:
        node = network.nodes.get(worklist.pop())
        if node is not None and node.key not in ancestors:
            ancestors.add(node.key)
            feeds = node.read_keys if isinstance(node.block, State) else ()
            worklist += [key.rpartition(".")[0] for key in feeds] + [source for _, source in node.dependencies()]
    return ancestors


def _source_of(pin: Pin) -> object:
    return None if pin.block.home is None else pin.block.home.source_of(pin)


def _connections(graph: Graph) -> Iterator[tuple[Pin, object]]:
    """The sources of the inputs of a graph and of the graphs inside its composites."""
    worklist, visited = [graph], {graph}
    while worklist:
        inside = worklist.pop()
        yield from inside.sources.items()
        found = [inner for block in inside.blocks.values() for _, inner in block.inner_graphs() if inner not in visited]
        visited.update(found)
        worklist += found


def _is_upstream(pin: Pin, compilation: Compilation, resolver: PinResolver, nodes: set[str]) -> bool:
    """Whether a pin feeds one of these nodes with real numbers."""
    if isinstance(pin.block, State):
        return False
    places = resolver.inputs(pin) or []
    if not places or any(node not in nodes for node, _ in places):
        return False
    refs = [inputs_of(compilation.network.nodes[node]).get(name) for node, name in places]
    types = {None if ref is None else input_type_of(ref, compilation.shapes).type for ref in refs}
    return len(types) == 1 and all(type is not None and is_differentiable(type) for type in types)
