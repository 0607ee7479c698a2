"""Lazy tensors as functions of features, for nodes of context graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from livegrad.contexts.function_nodes import Kernel, context_function
from livegrad.ir.node import Node
from livegrad.ir.types import Type
from livegrad.ops.context import context
from livegrad.tensors.handle import Tensor, wrap


def context_tensor(feature: str, type: Type | None = None) -> Tensor:
    """Returns a feature as a zero-dimensional tensor, for functions written with tensors.

    >>> context_tensor("animation_time").shape
    ()
    """
    return wrap(context(feature, type))


def tensor_function(callable: Callable[..., Any], *types: Type, name: str | None = None) -> Kernel:
    """Like `context_function`, for a function of tensors. It may use all tensor functions.

    >>> from livegrad.ir.types import Tensor as TensorType, f32
    >>> row = TensorType(f32, (4,))
    >>> tensor_function(lambda x: x * context_tensor("animation_time") + 1.0, row, name="move").function.result_type
    tensor<f32, [4]>
    """

    def on_nodes(*nodes: Node) -> tuple[Node, ...]:
        returned = callable(*map(wrap, nodes))
        results = returned if isinstance(returned, tuple | list) else (returned,)
        return tuple([result.node if isinstance(result, Tensor) else result for result in results])

    return context_function(on_nodes, *types, name=name or getattr(callable, "__name__", "function"))
