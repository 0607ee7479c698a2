"""Evaluates parts on lazy tensors, differentiable with respect to points, parameters and the pixels of images.

`Part.lazy` calls `evaluate_lazily`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from livegrad import ops
from livegrad.diagnostics import caller_origin
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor as TensorType
from livegrad.ir.types import Type, components, i64, scalar_of
from livegrad.ops.maps import make_map
from livegrad.tensors.handle import Tensor, node_of, wrap


def evaluate_lazily(
    function: Function, points: Any, arguments: Sequence[Any], names: Sequence[str], replacements: Mapping[str, Any]
) -> Tensor:
    """The values of a function at points of shape (n, 3), with some arguments replaced by name."""
    unknown = [name for name in replacements if name not in names]
    if unknown:
        raise AssemblyError(
            f"the part has no argument `{unknown[0]}`",
            where=caller_origin(),
            expected="one of " + (", ".join(name for name in names if name) or "none"),
        )
    values = [replacements.get(name, value) for name, value in zip(names, arguments, strict=True)]
    types = function.parameter_types
    position = _to_tensor(points, scalar_of(types[0]), "points")
    if len(position.type.shape) != 2 or position.type.shape[1] != 3:  # type: ignore[attr-defined]
        raise AssemblyError(
            "not points", where=caller_origin(), expected="a tensor of shape (n, 3)", found=str(position.type)
        )
    others = [_to_argument(value, type, name) for value, type, name in zip(values, types[1:], names, strict=True)]
    return wrap(make_map(function, position, *others))


def _to_tensor(value: Any, element: Any, name: str) -> Node:
    if not isinstance(value, Tensor):
        value = np.asarray(value, element.dtype)
    node = node_of(value, name)
    return node if scalar_of(node.type) is element else ops.cast(node, type=element)


def _to_argument(value: Any, type: Type, name: str) -> Node:
    """Converts an argument to the type of its parameter: a tensor, or a scalar, vector or matrix read from a tensor."""
    node = _to_tensor(value, scalar_of(type), name)
    expected_shape = type.shape if isinstance(type, TensorType) else np.shape(value)
    shape = node.type.shape  # type: ignore[attr-defined]
    if isinstance(type, TensorType):
        if shape != expected_shape:
            raise AssemblyError(
                f"`{name}` has the wrong shape", where=caller_origin(), expected=str(expected_shape), found=str(shape)
            )
        return node
    if not components(type):
        return ops.lookup(node)
    flat = node if len(shape) == 1 else ops.reshape(node, shape=(len(components(type)),))
    return ops.make(*[ops.lookup(flat, constant(i, i64)) for i in range(len(components(type)))], type=type)
