"""Errors of the tensor namespace, which also derive from Python's ValueError, IndexError or TypeError."""

from __future__ import annotations

from livegrad.diagnostics import CallError as CallError
from livegrad.diagnostics import NotANumberError as NotANumberError
from livegrad.diagnostics import TypeRuleError, UsageError


class ShapeError(TypeRuleError, ValueError):
    """Incompatible shapes, or a shape that the operation does not accept.

    >>> issubclass(ShapeError, ValueError)
    True
    """

    code = "shape"


class AxisError(UsageError, ValueError, IndexError):
    """An axis is out of range or repeated.

    >>> issubclass(AxisError, IndexError)
    True
    """

    code = "axis"


class IndexRangeError(UsageError, IndexError):
    """An index is out of range or does not match the shape of the tensor.

    >>> issubclass(IndexRangeError, IndexError)
    True
    """

    code = "index"


class NumberRangeError(TypeRuleError, OverflowError):
    """The element type cannot hold a number.

    >>> issubclass(NumberRangeError, OverflowError)
    True
    """

    code = "range"


class DtypeError(TypeRuleError, TypeError):
    """The operation does not support an element type.

    >>> issubclass(DtypeError, TypeError)
    True
    """

    code = "dtype"


class NoDimensionsError(UsageError, TypeError):
    """A zero-dimensional tensor was used as a sequence.

    >>> issubclass(NoDimensionsError, TypeError)
    True
    """

    code = "no-dimensions"


class ExportError(UsageError, BufferError, ValueError):
    """Memory cannot be exported to another library in the requested way.

    >>> issubclass(ExportError, BufferError)
    True
    """

    code = "export"


class GraphMergeError(UsageError):
    """Graphs cannot be merged.

    >>> GraphMergeError.code
    'graph-merge'
    """

    code = "graph-merge"


class GraphOrderError(UsageError):
    """Nodes have no valid order of execution, because they form a cycle.

    >>> GraphOrderError.code
    'graph-order'
    """

    code = "graph-order"
