"""Errors of the tensor namespace that are also the errors Python programs expect: ValueError, IndexError, TypeError."""

from __future__ import annotations

from livegrad.diagnostics import CallError as CallError
from livegrad.diagnostics import NotANumberError as NotANumberError
from livegrad.diagnostics import TypeRuleError, UsageError


class ShapeError(TypeRuleError, ValueError):
    """Shapes that do not fit each other or the operation.

    >>> issubclass(ShapeError, ValueError)
    True
    """

    code = "shape"


class AxisError(UsageError, ValueError, IndexError):
    """An axis that the tensor does not have, or that is named twice.

    >>> issubclass(AxisError, IndexError)
    True
    """

    code = "axis"


class IndexRangeError(UsageError, IndexError):
    """An index that is out of range, or that a tensor of this shape cannot take.

    >>> issubclass(IndexRangeError, IndexError)
    True
    """

    code = "index"


class NumberRangeError(TypeRuleError, OverflowError):
    """A number that the element type cannot hold.

    >>> issubclass(NumberRangeError, OverflowError)
    True
    """

    code = "range"


class DtypeError(TypeRuleError, TypeError):
    """An element type that the operation cannot work with.

    >>> issubclass(DtypeError, TypeError)
    True
    """

    code = "dtype"


class NoDimensionsError(UsageError, TypeError):
    """A tensor without dimensions where a sequence is needed.

    >>> issubclass(NoDimensionsError, TypeError)
    True
    """

    code = "no-dimensions"


class ExportError(UsageError, BufferError, ValueError):
    """Memory that cannot be handed to another library the way it asks for.

    >>> issubclass(ExportError, BufferError)
    True
    """

    code = "export"


class GraphMergeError(UsageError):
    """Graphs that cannot become one.

    >>> GraphMergeError.code
    'graph-merge'
    """

    code = "graph-merge"


class GraphOrderError(UsageError):
    """Nodes that no order of execution can satisfy, because they wait for each other.

    >>> GraphOrderError.code
    'graph-order'
    """

    code = "graph-order"
