"""Ports of nodes: the four port types, references to outputs, and literals of unlinked inputs.

The base of this package: it does not depend on node types.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from livegrad.diagnostics import caller_origin
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.ir.types import Matrix, Scalar, Type, Vector, f32

INPUTS, OUTPUTS = "inputs", "outputs"  # in a reference, the ports of the function itself


class PortType(Enum):
    """The type of a port. There are no implicit conversions.

    >>> PortType.VECTOR.ir_type()
    vec<f32, 3>
    """

    SCALAR = "scalar"
    VECTOR = "vector"
    MATRIX = "matrix"
    RESOURCE = "resourceid"

    @classmethod
    def _missing_(cls, value: object) -> PortType:
        names = ", ".join(repr(type.value) for type in cls)
        raise AssemblyError("unknown port type", where=caller_origin(), expected=names, found=repr(value))

    def ir_type(self, element: Scalar = f32) -> Type:
        """The type of the port's values in the value IR."""
        match self:
            case PortType.SCALAR:
                return element
            case PortType.VECTOR:
                return Vector(element, 3)
            case PortType.MATRIX:
                return Matrix(element, 4, 4)
        raise AssemblyError("a resource id is not a number", help="resource ids must be constant")

    @property
    def size(self) -> int:
        """The number of scalars in a literal of this type."""
        return {"scalar": 1, "vector": 3, "matrix": 16, "resourceid": 1}[self.value]


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to an output of a node, or to an input of the function: `inputs.pos`.

    >>> Reference.parse("inputs.pos")
    Reference(node='inputs', port='pos')
    """

    node: str
    port: str

    @staticmethod
    def parse(text: str) -> Reference:
        """Parses `node.port`."""
        node, dot, port = text.partition(".")
        if not dot or not node or not port or "." in port:
            raise AssemblyError("invalid reference", where=caller_origin(), expected="`node.port`", found=repr(text))
        return Reference(node, port)

    def __str__(self) -> str:
        return f"{self.node}.{self.port}"


Literal = int | float | tuple[float, ...]
Source = Reference | Literal


def type_of_literal(value: Literal) -> PortType:
    """The port type of a literal, by its Python type and length: an integer is a resource id."""
    if isinstance(value, tuple):
        return PortType.VECTOR if len(value) == 3 else PortType.MATRIX
    return PortType.RESOURCE if isinstance(value, int) else PortType.SCALAR


def literal_for(value: Any, type: PortType) -> Literal:
    """Converts a number, vector or matrix to an immutable literal of a port type. All numbers must be finite.

    >>> literal_for([1, 2, 3], PortType.VECTOR)
    (1.0, 2.0, 3.0)
    """
    if type is PortType.RESOURCE:
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < 2**31:
            raise _literal_error(value, type)
        return int(value)
    if isinstance(value, str | bytes | bool):
        raise _literal_error(value, type)
    try:
        numbers = tuple(float(component) for component in np.asarray(value, np.float64).reshape(-1))
    except (TypeError, ValueError):
        raise _literal_error(value, type) from None
    if len(numbers) != type.size or not all(map(math.isfinite, numbers)):
        raise _literal_error(value, type)
    return numbers[0] if type is PortType.SCALAR else numbers


def _literal_error(value: Any, type: PortType) -> AssemblyError:
    expected = {
        PortType.SCALAR: "a finite number",
        PortType.VECTOR: "three finite numbers",
        PortType.MATRIX: "sixteen finite numbers, row by row",
        PortType.RESOURCE: "a resource id below 2**31",
    }[type]
    return AssemblyError(f"not a {type.value}", where=caller_origin(), expected=expected, found=repr(value)[:80])


def source_for(value: Any, type: PortType | None) -> Source:
    """Converts `"node.port"`, a reference or a literal value to the source of an input."""
    if isinstance(value, Reference):
        return value
    if isinstance(value, str):
        return Reference.parse(value)
    if type is None:
        is_sequence = isinstance(value, Sequence | np.ndarray)
        type = (PortType.VECTOR if len(value) == 3 else PortType.MATRIX) if is_sequence else PortType.SCALAR
    return literal_for(value, type)
