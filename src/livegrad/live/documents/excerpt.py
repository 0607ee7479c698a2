"""Excerpts of graphs as text, for copying and pasting: the tables of some blocks and of their functions.

In: blocks of one graph, or text. Out: text in the form of a document; or copies of the blocks in another graph. Reading
a text runs no code; pasting blocks runs the functions that they compute.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from livegrad.diagnostics import LivegradError, UsageError, caller_origin
from livegrad.live.documents.load import DAMAGE_ERRORS, read_functions, set_appearance
from livegrad.live.documents.save import FORMAT, PathDescriber
from livegrad.live.documents.tables import Table, function_line, function_table, graph_lines, graph_tables
from livegrad.live.documents.toml_text import toml_text
from livegrad.live.graph.block import Block
from livegrad.live.graph.block_graph import Graph
from livegrad.live.recording.describe import Line
from livegrad.live.recording.rebuild import BlockReader

_KINDS = ("blocks", "engine")  # an excerpt, or a whole document


def excerpt_text(blocks: Sequence[Block]) -> str:
    """Some blocks of one graph as text, with the connections between them.

    >>> import livegrad as lg
    >>> double = lg.Engine().add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    >>> print(excerpt_text([double]).split("[functions")[0].strip())
    livegrad = 1
    kind = "blocks"
    <BLANKLINE>
    [blocks.double]
    function = "double"
    outputs = ["result"]
    <BLANKLINE>
    [blocks.double.inputs]
    x = {}
    """
    functions: list[Line] = []
    graph = blocks[0].home
    assert graph is not None
    described = PathDescriber(functions.append).inside(graph, blocks)
    return toml_text(
        {
            "livegrad": FORMAT,
            "kind": "blocks",
            "blocks": graph_tables(described),
            "functions": {str(line["function"]): function_table(line) for line in functions},
        }
    )


@dataclass(frozen=True)
class Excerpt:
    """Blocks as text that was read without running code. `functions` has the source of their functions by name."""

    functions: dict[str, str]
    tables: Table

    def paste(self, graph: Graph, rename: Any) -> list[Block]:
        """Adds copies of the blocks to a graph. `rename(name, taken)` returns a name that is not taken.

        It runs the functions of the text.
        """
        reader = BlockReader()
        try:
            for name, table in self.tables.get("functions", {}).items():
                reader.functions.note(function_line(name, table))
            described = graph_lines(self.tables["blocks"])
            taken: set[str] = set(graph.blocks)
            for line in described["blocks"]:
                line["name"] = rename(line["name"], taken)
                taken.add(line["name"])
            reader.fill(graph, described)
            set_appearance(reader, described)
            return [reader.blocks[line["id"]] for line in described["blocks"]]
        except LivegradError:
            raise
        except DAMAGE_ERRORS as error:
            raise _not_blocks(f"{type(error).__name__}: {error}") from error


def read_excerpt(text: str) -> Excerpt:
    """Reads the text of blocks, or of a whole document.

    >>> try:
    ...     read_excerpt("a shopping list")
    ... except UsageError as error:
    ...     error.what
    'the text has no blocks'
    """
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _not_blocks(str(error)) from None
    if not isinstance(tables.get("livegrad"), int) or tables.get("kind") not in _KINDS:
        raise _not_blocks("no version of the format")
    if tables["livegrad"] > FORMAT:
        found = f"format {tables['livegrad']}"
        raise UsageError(
            "the blocks were copied by a newer version of livegrad",
            where=caller_origin(),
            expected=f"format {FORMAT}",
            found=found,
        )
    try:
        functions = read_functions(tables)
        if not graph_lines(tables["blocks"])["blocks"]:
            raise _not_blocks("an empty graph")
    except DAMAGE_ERRORS as error:
        raise _not_blocks(f"{type(error).__name__}: {error}") from error
    return Excerpt(functions, tables)


def _not_blocks(found: str) -> UsageError:
    help = "copy blocks in the Studio, or the text of a saved document"
    return UsageError("the text has no blocks", where=caller_origin(), found=found[:120], help=help)
