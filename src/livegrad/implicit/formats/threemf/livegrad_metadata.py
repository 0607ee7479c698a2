"""Metadata that only livegrad reads: the positions of nodes in drawings, and parameters of parts, with controls.

3MF has no elements for these; other readers ignore the metadata.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace

from livegrad.diagnostics import UsageError
from livegrad.implicit.formats.errors import FormatError
from livegrad.implicit.nodes.node_graph import AnyFunction, GraphFunction
from livegrad.implicit.nodes.resources import NamedConstant
from livegrad.live.graph.control import Control, control_table

POSITIONS = "livegrad:positions"
PARAMETERS = "livegrad:parameters"
CONTROLS = "livegrad:controls"

Positions = Mapping[str, Mapping[str, tuple[float, float]]]  # by function id, then by node


def format_positions(functions: Mapping[int, AnyFunction]) -> str | None:
    """Formats the positions of nodes as JSON; None if no node has a position."""
    positions = {
        str(function_id): {name: node.position for name, node in function.nodes.items() if node.position is not None}
        for function_id, function in functions.items()
        if isinstance(function, GraphFunction)
    }
    nonempty = {function_id: nodes for function_id, nodes in positions.items() if nodes}
    return json.dumps(nonempty) if nonempty else None


def apply_positions(functions: Mapping[int, AnyFunction], text: str, file: str) -> dict[int, AnyFunction]:
    """Adds the node positions in `text` to functions. Nodes that do not exist are ignored.

    >>> apply_positions({}, '{"3": {"sum": [10, 20]}}', "part.3mf")
    {}
    """
    try:
        parsed = json.loads(text)
        positions = {
            (int(function_id), name): (float(x), float(y))
            for function_id, nodes in parsed.items()
            for name, (x, y) in nodes.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        raise FormatError(f"`{file}` has invalid node positions", found=repr(text[:60])) from None
    result = dict(functions)
    for (function_id, name), position in positions.items():
        function = result.get(function_id)
        if isinstance(function, GraphFunction) and name in function.nodes and all(map(math.isfinite, position)):
            result[function_id] = function.with_node(replace(function.nodes[name], position=position))
    return result


def format_parameters(parameters: tuple[NamedConstant, ...]) -> str | None:
    """Formats named constants as JSON; None if there are none."""
    return json.dumps(parameters) if parameters else None


def read_parameters(text: str, file: str) -> tuple[NamedConstant, ...]:
    """Parses the named constants in `text`.

    >>> read_parameters('[["radius", 2, "r"]]', "part.3mf")
    (('radius', 2, 'r'),)
    """
    try:
        parsed = json.loads(text)
        return tuple((str(name), int(function_id), str(node)) for name, function_id, node in parsed)
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise FormatError(f"`{file}` has invalid parameter names", found=repr(text[:60])) from None


def format_controls(controls: tuple[tuple[str, Control], ...]) -> str | None:
    """Formats the controls of parameters as JSON; None if there are none."""
    return json.dumps({name: control_table(control) for name, control in controls}) if controls else None


def read_controls(text: str, file: str) -> tuple[tuple[str, Control], ...]:
    """Parses the controls of parameters in `text`.

    >>> read_controls('{"radius": {"low": 0, "high": 5}}', "part.3mf")
    (('radius', Control(low=0, high=5)),)
    """
    try:
        return tuple((name, Control(**table)) for name, table in json.loads(text).items())
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError, UsageError):
        raise FormatError(f"`{file}` has invalid controls of parameters", found=repr(text[:60])) from None
