"""Assignment at computed indices: which of several writers comes last. NumPy runs it on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.dimension import Size
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor, Type, i64, shape_of
from livegrad.ops.indexing import require_indices
from livegrad.ops.rules import zero_tangent


def _last_writer_type(*indices: Type, shape: tuple[Size, ...]) -> Type:
    if not indices or len(indices) != len(shape):
        raise TypeRuleError(f"a tensor of shape {shape} takes {len(shape)} indices", found=str(len(indices)))
    for index in indices:
        if not isinstance(index, Tensor) or index.element is not i64 or index.shape != shape_of(indices[0]):
            raise TypeRuleError("indices are tensors of i64 of one shape", found=str(index))
    return Tensor(i64, shape)


def _evaluate_last_writer(*indices: Any, shape: tuple[int, ...]) -> Any:
    require_indices(shape, indices)
    writers = np.full(shape, -1, np.int64)
    # NumPy assigns in order: the last of several assignments to one place stands.
    writers[tuple(np.ravel(index) for index in indices)] = np.arange(np.size(indices[0]))
    return writers


# For assignments at computed indices: the number of the last assignment to each element, -1 where there is none.
last_writer = Op(
    "last_writer",
    type_of=_last_writer_type,
    evaluate=_evaluate_last_writer,
    jvp=zero_tangent,
    checked=True,
    differentiable=False,
    cost=8.0,
)
