"""Copying and pasting blocks as readable text, which also goes through the clipboard of the system.

In: blocks, or text from a page. Out: text, or new blocks. Text that this Studio did not write may contain Python, which
runs only when its reader agrees; expressions are checked and need no agreement.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from livegrad.diagnostics import LivegradError
from livegrad.live.documents.excerpt import Excerpt, excerpt_text, read_excerpt
from livegrad.live.graph.block import Block
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.edges import Edge
from livegrad.tools.studio.catalogue import unused_name
from livegrad.tools.studio.expressions import FUNCTIONS, names_in, parse_expression
from livegrad.tools.studio.layout import Position
from livegrad.tools.studio.restructure import home_of

_KEYS = {"name", "text", "names", "defaults", "keyword_defaults"}  # of the table of an expression
_MAX_COPIES = 1000  # whose texts are remembered


class Clipboard:
    """Remembers which texts this Studio has written: their code ran here already."""

    def __init__(self) -> None:
        self._written: dict[bytes, None] = {}

    def copy(self, blocks: Sequence[Block]) -> str:
        """The text of some blocks of one graph."""
        text = excerpt_text(blocks)
        self._written[_digest(text)] = None
        if len(self._written) > _MAX_COPIES:
            self._written.pop(next(iter(self._written)))
        return text

    def has_written(self, text: str) -> bool:
        """Whether this Studio has written a text."""
        return _digest(text) in self._written


def _digest(text: str) -> bytes:
    return sha256(text.replace("\r\n", "\n").strip().encode()).digest()


def python_in(excerpt: Excerpt) -> dict[str, str]:
    """The functions of an excerpt that are Python, and not checked expressions, by name."""
    tables = excerpt.tables.get("functions", {})
    return {name: text for name, text in excerpt.functions.items() if not _is_expression(tables[name])}


def _is_expression(table: dict[str, Any]) -> bool:
    """Whether a function is a lambda that only computes an expression, of its inputs and known functions."""
    try:
        (statement,) = ast.parse(table.get("text", "")).body
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Lambda):
            return False
        tree = parse_expression(ast.unparse(statement.value.body))
    except (LivegradError, SyntaxError, ValueError):
        return False
    arguments = statement.value.args
    names = {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    defaults = [*arguments.defaults, *(default for default in arguments.kw_defaults if default is not None)]
    if not all(isinstance(default, ast.Constant) for default in defaults) or not set(names_in(tree)) <= names:
        return False
    return table.keys() <= _KEYS and all(_is_known(name, entry) for name, entry in table.get("names", {}).items())


def _is_known(name: str, entry: dict[str, Any]) -> bool:
    is_function = name in FUNCTIONS and entry == {"import": f"livegrad:{name}"}
    return is_function or (name in ("pi", "e") and entry.keys() == {"value"})


def paste(excerpt: Excerpt, graph: Graph, at: Position | None) -> list[Block]:
    """Adds the blocks of an excerpt to a graph, the leftmost and topmost at a position."""
    blocks = excerpt.paste(graph, unused_name)
    placed = [block.position for block in blocks if block.position is not None]
    if at is not None and placed:
        left, top = (min(position[axis] for position in placed) for axis in (0, 1))
        for block in blocks:
            if block.position is not None:
                block.position = block.position[0] - left + at[0], block.position[1] - top + at[1]
    return blocks


def duplicate(blocks: Sequence[Block], positions: Sequence[Position]) -> list[Block]:
    """Copies blocks inside their graph. The copies read what the originals read."""
    graph = home_of(blocks[0])
    ordered = [block for block in graph.blocks.values() if block in blocks]
    copies = dict(zip(ordered, read_excerpt(excerpt_text(ordered)).paste(graph, unused_name), strict=True))
    for block, position in zip(blocks, positions, strict=True):
        copies[block].position = position
    for block, copy in copies.items():
        for pin in block.inputs.values():
            source = graph.sources.get(pin)
            if isinstance(source, Edge) and source.source.block not in copies and pin.name in copy.inputs:
                graph.connect(source.source, copy.inputs[pin.name])
    return [copies[block] for block in blocks]
