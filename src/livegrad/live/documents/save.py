"""Saves a live engine as a TOML file that people can read, compare and edit."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Hashable
from itertools import count
from typing import TYPE_CHECKING, Any

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.live.documents.readable_values import to_readable
from livegrad.live.documents.tables import Table, escape, function_table, graph_tables, pin_text
from livegrad.live.documents.toml_text import toml_text
from livegrad.live.graph.block import Block, Pin
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.control import control_table
from livegrad.live.graph.edges import Source
from livegrad.live.graph.regions import Region
from livegrad.live.graph.sources import Binding
from livegrad.live.presets import is_in_graph
from livegrad.live.recording.describe import Describer, Line, is_among
from livegrad.live.recording.exact_values import NotRecordable, encode_value
from livegrad.live.recording.function_text import FunctionWriter
from livegrad.runtime.atomic_files import write_atomically

if TYPE_CHECKING:
    from livegrad.live.engine import Engine

FORMAT = 1
_NOT_IN_NAMES = re.compile(r"\W+")


def save_engine(engine: Engine, path: str | os.PathLike[str]) -> None:
    """Writes an engine's graph to a file; `Engine.save` is the public form."""
    if not isinstance(path, str | os.PathLike):
        raise UsageError("not a path", where=caller_origin(), found=shown(path, 40), help='write save("scene.toml")')
    with engine.graph.editing():
        text = toml_text(engine_tables(engine))
    write_atomically(path, text.encode())


def engine_tables(engine: Engine) -> Table:
    """The document of an engine as tables."""
    functions: list[Line] = []
    describer = PathDescriber(functions.append)
    described = describer.inside(engine.graph)
    presets = _preset_tables(engine, describer)
    features = {str(feature): to_readable(encode_value(value)) for feature, value in engine.features.items()}
    return {
        "livegrad": FORMAT,
        "kind": "engine",
        "backend": engine.executor.name,
        "reuse_memory": engine.reuse_memory,
        **({"features": features} if features else {}),
        **({"presets": presets} if presets else {}),
        "blocks": graph_tables(described),
        "functions": {str(line["function"]): function_table(line) for line in functions},
    }


def _preset_tables(engine: Engine, describer: Describer) -> Table:
    """The values of the presets, by name and pin. Those of removed blocks are left out."""
    tables: Table = {}
    for name, values in engine.presets.saved.items():
        present = {pin: value for pin, value in values.items() if is_in_graph(engine.graph, pin)}
        tables[name] = {
            pin_text(describer.pin(pin)): to_readable(encode_value(value)) for pin, value in present.items()
        }
    return tables


class _NamedFunctions(FunctionWriter):
    """Identifies functions by their names, and lambdas by the block that computes them."""

    block_name = ""

    def new_id(self, target: Any) -> Hashable:
        name = getattr(target, "__name__", "<lambda>")
        name = _NOT_IN_NAMES.sub("_", self.block_name if name == "<lambda>" else name) or "function"
        used = set(self.ids.values())
        candidates = (name if suffix == 1 else f"{name}_{suffix}" for suffix in count(1))
        return next(candidate for candidate in candidates if candidate not in used)


class PathDescriber(Describer):
    """Identifies blocks by their paths, and omits memory of other programs."""

    def __init__(self, write: Callable[[Line], None]) -> None:
        self._named_functions = _NamedFunctions(write)
        super().__init__(write, self._named_functions)
        self._path: list[str] = []
        self._used_paths: set[str] = set()

    def block(self, block: Block) -> Line:
        if isinstance(block, Region) and len({frozenset(body.outputs) for body in block.bodies.values()}) > 1:
            raise NotRecordable(
                f"the bodies of `{block.name}` expose different outputs", help="expose the same outputs in each of them"
            )
        self._path.append(escape(block.name))
        self._named_functions.block_name = block.name
        try:
            line = {**super().block(block), "name": block.name}
        finally:
            self._path.pop()
        if block.position is not None:
            line["at"] = list(block.position)
        own = {name: pin.own_control for name, pin in block.inputs.items()}
        controls = {name: control_table(control) for name, control in own.items() if control is not None}
        return {**line, "controls": controls} if controls else line

    def inside(self, graph: Graph, only: Collection[Block] | None = None) -> Line:
        """Sorts sources in the order of pins, so that the order of edits does not matter."""
        line = super().inside(graph, only)
        pins = (pin for block in graph.blocks.values() for pin in block.inputs.values())
        connected = [pin for pin in pins if pin in graph.sources and is_among(only, pin, graph.sources[pin])]
        return {**line, "sources": [[*self.pin(pin), self.source(graph.sources[pin])] for pin in connected]}

    def dormant(self, graph: Graph) -> list[list[Any]]:
        """A document contains only existing pins, so there are no dormant sources."""
        return []

    def new_id(self, block: Block) -> Hashable:
        path = "/".join(self._path)
        while path in self._used_paths:  # the bodies of a region may have equal names
            path += "'"
        self._used_paths.add(path)
        return path

    def pin(self, pin: Pin) -> list[Any]:
        if not pin.block.has(pin):
            raise NotRecordable(
                f"`{pin}` no longer exists, but a composite exposes it or a gradient uses it",
                help=f"give `{pin.block.name}` a pin `{pin.name}` again, hide the exposed pin with `hide`, or remove "
                "the gradient",
            )
        return super().pin(pin)

    def source(self, source: Source) -> Line:
        if isinstance(source, Binding):
            array = source.external.array
            return {"bound": {"dtype": array.dtype.name, "shape": list(array.shape)}}
        return super().source(source)
