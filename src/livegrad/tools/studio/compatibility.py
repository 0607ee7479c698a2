"""Which connections a graph accepts: pins that would close a cycle or whose type does not fit, with the reason.

In: a pin from which a wire is dragged. Out: the pins that refuse it, and the entries of the catalogue that fit. Types
are tried by specialising bodies, for a limited time: a pin that was not tried is not refused, and the engine reports
what does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from time import perf_counter

import numpy as np

from livegrad.diagnostics import LivegradError
from livegrad.ir.types import Tensor
from livegrad.live.compile.flatten import output_keys
from livegrad.live.compile.propagate import as_tensor, tensor_of
from livegrad.live.engine import Engine
from livegrad.live.graph.block import Block, Pin, State
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.edges import Edge, Source
from livegrad.live.graph.sources import Binding, InputType, Setting, setting_of
from livegrad.tools.studio.catalogue import ENTRIES, make_block
from livegrad.tools.studio.gate import Permission
from livegrad.tools.studio.restructure import home_of

_SECONDS = 0.05  # for trying types


class Fits:
    """Tries connections of one engine. Called with the graph locked."""

    def __init__(self, engine: Engine, permission: Permission, seconds: float = _SECONDS) -> None:
        self._engine, self._permission = engine, permission
        self._end = perf_counter() + seconds

    def of_output(self, source: Pin) -> tuple[dict[Pin, str], list[str]]:
        """The inputs that an output cannot feed, with the reason; and the entries that it can feed."""
        graph = home_of(source.block)
        before = _blocks_before(graph, source.block)
        offered = self._type_of(Edge(source))
        refused: dict[Pin, str] = {}
        for block in graph.blocks.values():
            for pin in block.inputs.values():
                if block in before and not isinstance(block, State):
                    refused[pin] = f"`{block.name}` computes what `{source}` reads: put a state into the cycle"
                elif offered is not None and (reason := self._refusal(pin, offered)) is not None:
                    refused[pin] = reason
        return refused, [name for name, block in self._entries() if self._accepts(block, offered)]

    def of_input(self, target: Pin) -> tuple[dict[Pin, str], list[str]]:
        """The outputs that cannot feed an input, with the reason; and the entries that can feed it."""
        graph = home_of(target.block)
        after = _blocks_after(graph, target.block)
        refused: dict[Pin, str] = {}
        for block in graph.blocks.values():
            for pin in block.outputs.values():
                if block in after and not isinstance(block, State):
                    refused[pin] = f"`{pin}` is computed from `{target.block.name}`: put a state into the cycle"
                    continue
                offered = self._type_of(Edge(pin))
                reason = None if offered is None else self._refusal(target, offered)
                if reason is not None:
                    refused[pin] = reason
        return refused, [name for name, block in self._entries() if self._feeds(block, target)]

    def _entries(self) -> Iterator[tuple[str, Block]]:
        allowed = (name for name, entry in ENTRIES.items() if entry.permission <= self._permission)
        return ((name, _entry_block(name)) for name in allowed)

    def _accepts(self, block: Block, offered: InputType | None) -> bool:
        """Whether the first input of a new block takes a type."""
        first = next(iter(block.inputs.values()), None)
        return first is not None and (offered is None or self._refusal(first, offered) is None)

    def _feeds(self, block: Block, target: Pin) -> bool:
        """Whether the first output of a new block fits an input."""
        result = _result_type(block)
        return bool(block.outputs) and (result is None or self._refusal(target, result) is None)

    def _type_of(self, source: Source | None) -> InputType | None:
        """The type of a source; None if the engine has not computed it."""
        match source:
            case Setting():
                return source.input_type
            case Binding():
                array = source.external.array
                return InputType(tensor_of(array)) if isinstance(array, np.ndarray) else None
            case Edge():
                plan = self._engine.plan
                refs = output_keys(self._engine.graph, source.source)
                spec = None if plan is None or not refs else plan.buffers.get(refs[0].key)
                return None if spec is None else InputType(Tensor(spec.element, spec.shape))
        return None

    def _refusal(self, pin: Pin, offered: InputType) -> str | None:
        """Why an input cannot take a type, or None."""
        block = pin.block
        inner = block.pins_behind(pin.name)
        if inner:
            return next((reason for other in inner if (reason := self._refusal(other, offered)) is not None), None)
        if isinstance(block, State):
            kept = tensor_of(block.initial)
            return None if offered.type == kept else f"`{block.name}` holds {kept}, and this is {offered.type}"
        body = vars(block).get("body")
        if body is None or perf_counter() > self._end:
            return None
        types = [offered if other is pin else self._present_type(other) for other in block.inputs.values()]
        if None in types:
            return None
        try:
            body.specialize(tuple(types))
        except LivegradError as error:
            return error.what
        except Exception as error:  # of the user's function
            return f"{type(error).__name__}: {error}"
        return None

    def _present_type(self, pin: Pin) -> InputType | None:
        """The type that reaches an input now."""
        graph = pin.block.home
        if graph is None:
            return _default_type(pin.block, pin.name)
        source = graph.source_of(pin)
        return None if source is None else self._type_of(source)


def _reachable(start: Block, neighbours: dict[Block, set[Block]]) -> set[Block]:
    """A block and those that it reaches within a frame. States end the search, because they read the last frame."""
    found, worklist = set[Block](), [start]
    while worklist:
        current = worklist.pop()
        if current not in found:
            found.add(current)
            worklist += [] if isinstance(current, State) else neighbours.get(current, ())
    return found


def _blocks_before(graph: Graph, block: Block) -> set[Block]:
    """A block and those from which it is computed."""
    feeding: dict[Block, set[Block]] = {}
    for pin, source in graph.sources.items():
        if isinstance(source, Edge):
            feeding.setdefault(pin.block, set()).add(source.source.block)
    return _reachable(block, feeding)


def _blocks_after(graph: Graph, block: Block) -> set[Block]:
    """A block and those that are computed from it."""
    fed: dict[Block, set[Block]] = {}
    for pin, source in graph.sources.items():
        if isinstance(source, Edge):
            fed.setdefault(source.source.block, set()).add(pin.block)
    return _reachable(block, fed)


@cache
def _entry_block(name: str) -> Block:
    """A block of the catalogue, to try types with. Its code runs as if the block were added."""
    return make_block(ENTRIES[name], name)


def _default_type(block: Block, name: str) -> InputType | None:
    default = block.default_of(name)
    return None if default is None else setting_of(default).input_type


def _result_type(block: Block) -> InputType | None:
    """The type of the result of a new block, if it has defaults for all inputs."""
    if isinstance(block, State):
        return InputType(tensor_of(block.initial))
    types = [_default_type(block, name) for name in block.inputs]
    if any(type is None for type in types):
        return None
    try:
        (result,) = block.body.specialize(tuple(type for type in types if type is not None)).function.result_types
    except (LivegradError, ValueError):
        return None
    return InputType(as_tensor(result))
