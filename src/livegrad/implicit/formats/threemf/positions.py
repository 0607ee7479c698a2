"""Node positions in a drawing, stored as metadata of a 3MF file, because the format has no field for them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace

from livegrad.implicit.formats.errors import FormatError
from livegrad.implicit.nodes.node_graph import AnyFunction, GraphFunction

POSITIONS = "livegrad:positions"

Positions = Mapping[str, Mapping[str, tuple[float, float]]]  # by function id, then by node


def positions_text(functions: Mapping[int, AnyFunction]) -> str | None:
    """The positions of all nodes that have one, or None where none has."""
    found = {
        str(number): {name: node.position for name, node in function.nodes.items() if node.position is not None}
        for number, function in functions.items()
        if isinstance(function, GraphFunction)
    }
    kept = {number: nodes for number, nodes in found.items() if nodes}
    return json.dumps(kept) if kept else None


def with_positions(functions: Mapping[int, AnyFunction], text: str, file: str) -> dict[int, AnyFunction]:
    """The functions with their nodes where the text says. Nodes that are gone since are passed over.

    >>> with_positions({}, '{"3": {"sum": [10, 20]}}', "part.3mf")
    {}
    """
    try:
        stated = json.loads(text)
        places = {
            (int(number), name): (float(x), float(y))
            for number, nodes in stated.items()
            for name, (x, y) in nodes.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        raise FormatError(f"`{file}` has damaged positions of nodes", found=repr(text[:60])) from None
    placed = dict(functions)
    for (number, name), place in places.items():
        function = placed.get(number)
        if isinstance(function, GraphFunction) and name in function.nodes and all(map(math.isfinite, place)):
            placed[number] = function.with_node(replace(function.nodes[name], position=place))
    return placed
