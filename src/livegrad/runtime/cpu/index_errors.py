"""Adds the index that is out of range to an error, because kernels report only the element and the line.

Runs the function again with the reference backend, if that is fast. Called by `compiled_plan.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from livegrad.diagnostics import KernelCheckError, LivegradError
from livegrad.ir.node import Function
from livegrad.ir.types import Matrix, Scalar, Tensor, Vector, shape_of
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.passes.flatten_signature import assemble_value, leaf_types
from livegrad.runtime.reference import evaluate

_MAX_ELEMENTS = 1_000_000
_MAX_ELEMENTS_WITH_LOOPS = 10_000  # for functions with loops, which the reference backend runs point by point
_REPORTED = re.compile(r"index out of range for (axis \d+|\d+ members)")
_FOUND = re.compile(r"index (-?\d+) is out of range for (axis \d+|(\d+) members)(?: of size (\d+))?")


def add_index(error: LivegradError, function: Function | None, arguments: Sequence[Any]) -> None:
    """Adds the index and its valid range to an index error that does not name them."""
    reported = _REPORTED.match(error.what)
    if reported is None or function is None or error.found is not None or not _is_quick(function, arguments):
        return
    supply = iter(arguments)
    try:
        evaluate(function, *[assemble_value(supply, type) for type in function.parameter_types])
    except KernelCheckError as again:
        match = _FOUND.match(again.what)
        if match is not None and match[2] == reported[1] and _is_same_line(again, error):
            index, size = int(match[1]), int(match[3] or match[4])
            error.expected = f"0 to {size - 1}" if size else "no index, because there are no elements"
            error.found = f"{index}" if index >= 0 else f"{index} after counting from the end"
            error.move_to(error.where)


def _is_quick(function: Function, arguments: Sequence[Any]) -> bool:
    leaves = [leaf for type in function.parameter_types for leaf in leaf_types(type)]
    if not all(isinstance(leaf, Tensor | Scalar | Vector | Matrix) for leaf in leaves):
        return False
    longest = max(map(np.size, arguments), default=1)  # a bound for symbolic sizes
    total, functions = 0, reachable_functions([function])
    for node in (node for inner in functions for node in nodes_of(inner)):
        elements = 1
        for size in shape_of(node.type):
            elements *= size if isinstance(size, int) else longest
        total += elements
    return total <= (_MAX_ELEMENTS if len(functions) == 1 else _MAX_ELEMENTS_WITH_LOOPS)


def _is_same_line(first: LivegradError, second: LivegradError) -> bool:
    return str(first.where) == str(second.where)
