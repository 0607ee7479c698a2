"""Tensors on arrays that exist already: leaves, and handles whose leaf is created on demand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from livegrad.diagnostics import caller_origins
from livegrad.ir.source_lines import ambient
from livegrad.ir.types import Tensor as TensorType
from livegrad.lazy.lazy_values import Value, leaf_node
from livegrad.tensors.handle import Tensor, wrap

_new = object.__new__


def wrap_array(array: Value, type: TensorType | None = None, *, external: bool = False) -> Tensor:
    """Creates a tensor on an array without a copy. The array is dense, in native byte order, and never written to."""
    return wrap(leaf_node(array, type, external=external))


def defer_array(array: Value, type: TensorType) -> Tensor:
    """Creates a tensor on an array that nothing else references; its leaf is created on demand."""
    if array.__class__ is not np.ndarray:
        return wrap_array(array, type)
    if not ambient.is_unset:
        array.setflags(write=False)  # type: ignore[union-attr]
        return wrap_array(array, type)
    tensor = _new(Tensor)
    tensor._extra, tensor._deferred = None, (array, type, caller_origins(2))
    return tensor


def defer_arrays(arrays: Sequence[Value], types: Sequence[TensorType]) -> list[Tensor]:
    """Calls `defer_array` for several results of one call, with one lookup of the source location."""
    if not ambient.is_unset:
        return [defer_array(array, type) for array, type in zip(arrays, types, strict=True)]
    origins = caller_origins(2)
    tensors = []
    for array, type in zip(arrays, types, strict=True):
        if array.__class__ is not np.ndarray:
            tensors.append(wrap_array(array, type))
            continue
        tensor = _new(Tensor)
        tensor._extra, tensor._deferred = None, (array, type, origins)
        tensors.append(tensor)
    return tensors
