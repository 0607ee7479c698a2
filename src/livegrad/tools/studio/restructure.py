"""Changes of several connections at once: groups, bridges, insertion into a wire, sliders for inputs, and layout.

In: blocks and pins of a graph. Out: ordinary edits of the engine, so that one entry of the history undoes them. Called
by `edits.py` with the graph locked.
"""

from __future__ import annotations

import keyword
from collections.abc import Container, Iterable, Mapping, Sequence

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.live.blocks.bodies import block as make_block
from livegrad.live.engine import Engine
from livegrad.live.graph.block import Block, Pin
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.control import Control
from livegrad.live.graph.edges import Edge, Source
from livegrad.live.graph.regions import Region
from livegrad.live.graph.sources import Binding, Setting
from livegrad.tools.studio.catalogue import unused_name
from livegrad.tools.studio.controls import control_of
from livegrad.tools.studio.expressions import FUNCTIONS, make_expression
from livegrad.tools.studio.layout import Position, place_blocks

_RESERVED = {*FUNCTIONS, "pi", "e"}


def home_of(block: Block) -> Graph:
    """The graph that contains a block."""
    if block.home is None:
        raise UsageError(f"`{block.name}` is not in a graph", where=caller_origin())
    return block.home


def feed(graph: Graph, pin: Pin, source: Source) -> None:
    """Gives an input a source, by an ordinary edit."""
    match source:
        case Edge():
            graph.connect(source.source, pin)
        case Binding():
            graph.bind(pin, source.external)
        case Setting():
            graph.restore(pin, source.value)


def readers_of(graph: Graph, block: Block) -> list[tuple[Pin, Pin]]:
    """The inputs that a block feeds, each with the output that feeds it."""
    fed = ((pin, source) for pin, source in graph.sources.items() if isinstance(source, Edge))
    return [(pin, source.source) for pin, source in fed if source.source.block is block]


def dissolve(block: Block) -> None:
    """Removes a block, and connects what fed its first connected input with everything that read its outputs.

    >>> import livegrad as lg
    >>> engine = lg.Engine()
    >>> a, b, c = (engine.add(lg.block(lambda x=1.0: x * 2.0, name=name)) for name in "abc")
    >>> engine.connect(a, b["x"]), engine.connect(b, c["x"]), dissolve(b), str(engine.graph.sources[c["x"]].source)
    (None, None, None, 'a.result')
    """
    graph = home_of(block)
    sources = (graph.sources.get(pin) for pin in block.inputs.values())
    source = next((source for source in sources if isinstance(source, Edge) and source.source.block is not block), None)
    if source is not None:
        for pin, _ in readers_of(graph, block):
            if pin.block is not block:
                graph.connect(source.source, pin)
    graph.remove(block)


def insert(block: Block, target: Pin) -> None:
    """Inserts a block into the wire to an input: its first free input reads the wire, its first output feeds it."""
    graph = home_of(block)
    wire = graph.sources.get(target)
    if target.block.home is not graph or not isinstance(wire, Edge):
        raise UsageError(f"`{target}` is not connected in this graph", where=caller_origin())
    if block in (target.block, wire.source.block):
        raise UsageError(f"`{block.name}` is already at this wire", where=caller_origin())
    free = next((pin for pin in block.inputs.values() if not isinstance(graph.sources.get(pin), Edge)), None)
    if free is None or not block.outputs:
        raise UsageError(f"`{block.name}` has no free input and output", where=caller_origin())
    graph.connect(wire.source, free)
    graph.connect(next(iter(block.outputs.values())), target)


def make_slider(engine: Engine, pin: Pin, position: Position) -> Block:
    """Adds a block with the value of an input, and connects it: the value becomes a slider of its own."""
    graph = home_of(pin.block)
    setting = graph.source_of(pin)
    if not isinstance(setting, Setting):
        raise UsageError(f"`{pin}` has no number", where=caller_origin(), help="disconnect it first")
    described = control_of(pin, setting)
    if described["kind"] == "none":
        raise UsageError(f"`{pin}` takes an array", where=caller_origin(), expected="a number, a vector or a colour")
    name = pin.name if pin.name.isidentifier() and not keyword.iskeyword(pin.name) else "value"
    name = f"{name}_" if name in _RESERVED or name.startswith("__") else name
    slider = make_block(make_expression(name, {name: setting.value}, name), name=unused_name(pin.name, graph.blocks))
    slider.position = position
    graph.add(slider)
    slider[name].control = pin.control or Control(described["low"], described["high"])
    graph.restore(slider[name], setting.value)
    graph.connect(slider, pin)
    return slider


def arrange(graph: Graph, sizes: Mapping[Block, float]) -> None:
    """Places all blocks of a graph in columns. `sizes` has the heights of nodes, as far as the page knows them."""
    blocks = list(graph.blocks.values())
    edges = [(source.source.block, pin.block) for pin, source in graph.sources.items() if isinstance(source, Edge)]
    for block, position in place_blocks(blocks, edges, {}, sizes).items():
        block.position = position


# --- groups ----------------------------------------------------------------------------------------------------------


def group(blocks: Sequence[Block], position: Position, name: str = "group") -> Composite:
    """Moves blocks of one graph into a composite, which takes over their connections.

    >>> import livegrad as lg
    >>> engine = lg.Engine()
    >>> a, b = (engine.add(lg.block(lambda x=1.0: x * 2.0, name=name)) for name in "ab")
    >>> engine.connect(a, b["x"])
    >>> group([b], (0.0, 0.0)), engine.step().ok, float(engine.read(engine.graph.blocks["group"]))
    (<block group(x) -> result>, True, 4.0)
    """
    graph = home_of(blocks[0])
    if any(block.home is not graph for block in blocks):
        raise UsageError("the blocks of a group must be in one graph", where=caller_origin())
    members = set(blocks)
    feeds = {pin: source for pin, source in graph.sources.items() if pin.block in members}
    read = [(pin, output) for block in blocks for pin, output in readers_of(graph, block)]
    readers = [(pin, output) for pin, output in read if pin.block not in members]
    used = {output for _, output in read}
    unread = [pin for block in blocks for pin in block.outputs.values() if pin not in used]  # results of the graph
    outer = [(user, *_exposed(user)) for user, _ in graph.uses if isinstance(user, Composite)]
    composite = Composite(unused_name(name, graph.blocks))
    composite.position = position
    graph.add(composite)  # first, so that the edits inside it are recorded
    for block in blocks:
        graph.remove(block)
    for block in blocks:
        composite.graph.add(block)
    names = _Names(composite)
    for pin, source in feeds.items():
        if isinstance(source, Edge) and source.source.block not in members:
            graph.connect(source.source, names.input(pin, source.source))
        else:
            feed(composite.graph, pin, source)
    for pin, output in readers:
        graph.connect(names.expose(output), pin)
    for pin in unread:
        names.expose(pin)
    for user, inputs, outputs in outer:
        exposed = [pin for pin in _pins_of(blocks) if pin in _pins(inputs, outputs)]
        _reexpose(user, inputs, outputs, {pin: [names.expose(pin)] for pin in exposed})
    return composite


class _Names:
    """Exposes inner pins of a composite, each once, under names that are not taken."""

    def __init__(self, composite: Composite) -> None:
        self._composite = composite
        self._by_source: dict[Pin, Pin] = {}  # inner inputs with one source share a pin
        self._by_pin: dict[Pin, Pin] = {}

    def input(self, pin: Pin, source: Pin) -> Pin:
        if source not in self._by_source:
            self._by_source[source] = self._by_pin[pin] = self._composite.expose(pin, self._unused(pin))
        else:
            self._by_pin[pin] = self._composite.expose(pin, self._by_source[source].name)
        return self._by_source[source]

    def expose(self, pin: Pin) -> Pin:
        if pin not in self._by_pin:
            self._by_pin[pin] = self._composite.expose(pin, self._unused(pin))
        return self._by_pin[pin]

    def _unused(self, pin: Pin) -> str:
        taken: Container[str] = {*self._composite.inputs, *self._composite.outputs}
        return pin.name if pin.name not in taken else unused_name(f"{pin.block.name}_{pin.name}", taken)


def ungroup(engine: Engine, composite: Composite) -> list[Block]:
    """Moves the blocks of a composite into the graph around it, with their connections, and removes the composite."""
    graph, inner = home_of(composite), composite.graph
    if isinstance(composite, Region) or composite.used_by or len(inner.uses) != 1:
        raise UsageError(f"`{composite.name}` is not a plain group", where=caller_origin())
    members = list(inner.blocks.values())
    inside = dict(inner.sources)
    outside = {name: graph.sources.get(pin) for name, pin in composite.inputs.items()}
    behind = {name: list(composite.pins_behind(name)) for name in composite.inputs}
    results = {name: composite.inner_output(name) for name in composite.outputs}
    readers = readers_of(graph, composite)
    outer = [(user, *_exposed(user)) for user, _ in graph.uses if isinstance(user, Composite)]
    positions = _unfolded(composite, members)
    for block in members:
        if block.name in graph.blocks:
            engine.rename(block, unused_name(block.name, {*graph.blocks, *inner.blocks}))
    for block in members:
        inner.remove(block)
    for block in members:
        graph.add(block)
        block.position = positions.get(block)
    for pin, source in inside.items():
        feed(graph, pin, source)
    for name, source in outside.items():
        if source is not None:
            for pin in behind[name]:
                feed(graph, pin, source)
    for pin, output in readers:
        result = results.get(output.name)
        if result is not None:
            graph.connect(result, pin)
    replaced: dict[Pin, Sequence[Pin]] = {composite.inputs[name]: pins for name, pins in behind.items()}
    replaced |= {composite.outputs[name]: [pin] for name, pin in results.items() if pin is not None}
    for user, inputs, outputs in outer:
        _reexpose(user, inputs, outputs, replaced)
    graph.remove(composite)
    return members


def _unfolded(composite: Composite, members: Iterable[Block]) -> dict[Block, Position]:
    """Positions of the blocks of a composite around the place where it was."""
    placed = {block: block.position for block in members if block.position is not None}
    if not placed or composite.position is None:
        return {}
    x, y = (min(position[axis] for position in placed.values()) for axis in (0, 1))
    left, top = composite.position
    return {block: (left + position[0] - x, top + position[1] - y) for block, position in placed.items()}


Inputs = dict[str, list[Pin]]
Outputs = dict[str, Pin]


def _exposed(composite: Composite) -> tuple[Inputs, Outputs]:
    return {name: list(pins) for name, pins in composite.inner_inputs.items()}, dict(composite.inner_outputs)


def _pins(inputs: Inputs, outputs: Outputs) -> set[Pin]:
    return {*(pin for pins in inputs.values() for pin in pins), *outputs.values()}


def _pins_of(blocks: Iterable[Block]) -> list[Pin]:
    return [pin for block in blocks for pin in (*block.inputs.values(), *block.outputs.values())]


def _reexpose(user: Composite, inputs: Inputs, outputs: Outputs, replaced: Mapping[Pin, Sequence[Pin]]) -> None:
    """Exposes other pins under the same names."""
    if not replaced.keys() & _pins(inputs, outputs):
        return
    new_inputs: Inputs = {
        name: list(dict.fromkeys(other for pin in pins for other in replaced.get(pin, (pin,))))
        for name, pins in inputs.items()
    }
    new_outputs = {name: next(iter(replaced.get(pin, (pin,)))) for name, pin in outputs.items()}
    user.restore_exposed(new_inputs, new_outputs)
