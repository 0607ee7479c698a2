"""Metadata that only livegrad reads: positions of nodes in a drawing, and the parameters of parts.

3MF has no fields for them; other readers ignore the metadata.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace

from livegrad.implicit.formats.errors import FormatError
from livegrad.implicit.nodes.node_graph import AnyFunction, GraphFunction
from livegrad.implicit.nodes.resources import NamedConstant

POSITIONS = "livegrad:positions"
PARAMETERS = "livegrad:parameters"

Positions = Mapping[str, Mapping[str, tuple[float, float]]]  # by function id, then by node


def positions_text(functions: Mapping[int, AnyFunction]) -> str | None:
    """The positions of all nodes that have one as text, or None."""
    positions = {
        str(function_id): {name: node.position for name, node in function.nodes.items() if node.position is not None}
        for function_id, function in functions.items()
        if isinstance(function, GraphFunction)
    }
    kept = {function_id: nodes for function_id, nodes in positions.items() if nodes}
    return json.dumps(kept) if kept else None


def with_positions(functions: Mapping[int, AnyFunction], text: str, file: str) -> dict[int, AnyFunction]:
    """The functions with the node positions from the text. Nodes that no longer exist are ignored.

    >>> with_positions({}, '{"3": {"sum": [10, 20]}}', "part.3mf")
    {}
    """
    try:
        stated = json.loads(text)
        positions = {
            (int(function_id), name): (float(x), float(y))
            for function_id, nodes in stated.items()
            for name, (x, y) in nodes.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        raise FormatError(f"`{file}` has damaged positions of nodes", found=repr(text[:60])) from None
    placed = dict(functions)
    for (function_id, name), position in positions.items():
        function = placed.get(function_id)
        if isinstance(function, GraphFunction) and name in function.nodes and all(map(math.isfinite, position)):
            placed[function_id] = function.with_node(replace(function.nodes[name], position=position))
    return placed


def parameters_text(parameters: tuple[NamedConstant, ...]) -> str | None:
    """The named constants as text, or None if there are none."""
    return json.dumps(parameters) if parameters else None


def read_parameters(text: str, file: str) -> tuple[NamedConstant, ...]:
    """The named constants from the text.

    >>> read_parameters('[["radius", 2, "r"]]', "part.3mf")
    (('radius', 2, 'r'),)
    """
    try:
        stated = json.loads(text)
        return tuple((str(name), int(function_id), str(node)) for name, function_id, node in stated)
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise FormatError(f"`{file}` has damaged names of parameters", found=repr(text[:60])) from None
