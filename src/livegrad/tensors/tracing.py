"""Traces Python functions on tensors to closed functions of the value IR.

Transforms, `jit` and control flow call a function once with placeholders and use the resulting graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.function import close_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import Scalar, Type
from livegrad.ir.types import Tensor as TensorType
from livegrad.tensors.dtypes import DEFAULT_FLOAT
from livegrad.tensors.handle import Tensor, are_weak_numbers, convert_number, node_of, wrap
from livegrad.tensors.pytrees import LEAF_CLASSES, Structure, flatten, unflatten

LEAF_CLASSES.add(Tensor)


@dataclass(frozen=True)
class Traced:
    """A traced function of inputs and captures, the captured values, and the tree structure of the results."""

    function: Function
    captures: tuple[Node, ...]
    structure: Structure


def name_of(function: Callable[..., Any]) -> str:
    """Returns the name of a function for messages and for the IR."""
    return getattr(function, "__name__", type(function).__name__)


def require_callable(function: Any, user: str) -> None:
    """Raises if an argument is not a function; often it is the result of one."""
    if not callable(function):
        raise UsageError(
            f"`{user}` takes a function",
            where=caller_origin(),
            found=type(function).__name__,
            help="pass the function itself, not its result",
        )


def placeholders(types: Sequence[Type]) -> tuple[Node, ...]:
    """Creates input nodes without values, to trace a function with."""
    return tuple(input_node(Key(f"argument{index}"), type) for index, type in enumerate(types))


def trace_call(call: Callable[..., Any], types: Sequence[Type], name: str) -> Traced:
    """Traces `call` with placeholder tensors of these types."""
    inputs = placeholders(types)
    return close(name, inputs, call(*map(wrap, inputs)))


@dataclass(frozen=True)
class Arguments:
    """Flattened arguments of a traced function: the nodes that become parameters, and all leaves.

    Static leaves, such as Python numbers, are passed to the function unchanged.
    """

    nodes: tuple[Node, ...]
    leaves: tuple[Any, ...]
    is_static: tuple[bool, ...]
    structure: Structure

    def filled(self, tensors: Iterable[Tensor]) -> Any:
        """Rebuilds the arguments with these tensors in place of the leaves that became parameters."""
        remaining = iter(tensors)
        pairs = zip(self.leaves, self.is_static, strict=True)
        return unflatten(self.structure, [leaf if stays else next(remaining) for leaf, stays in pairs])


def flatten_arguments(tree: Any, user: str, may_be_static: Sequence[bool] | None = None) -> Arguments:
    """Flattens the arguments of a function to trace; `may_be_static` says for each leaf whether it may be static."""
    leaves, structure = flatten(tree)
    allowed = may_be_static or [True] * len(leaves)
    stays = tuple(may and is_static_leaf(leaf) for may, leaf in zip(allowed, leaves, strict=True))
    nodes = tuple(node_of(leaf, user) for leaf, is_static in zip(leaves, stays, strict=True) if not is_static)
    return Arguments(nodes, tuple(leaves), stays, structure)


def is_static_leaf(leaf: Any) -> bool:
    """Whether a traced function receives an argument unchanged.

    This holds for Python numbers, which stay weakly typed, for strings and booleans, and for objects without an array.
    """
    if isinstance(leaf, Tensor):
        return are_weak_numbers(leaf)
    return not (
        isinstance(leaf, Node | np.ndarray | np.generic) or hasattr(leaf, "__array__") or hasattr(leaf, "__dlpack__")
    )


def convert_leaves(leaves: Sequence[Any], user: str, beside: Any = ()) -> list[Node]:
    """Converts leaves to nodes. Python floats take the type of the float tensors among `leaves` and in `beside`.

    If these have no common type, Python floats take the default type.
    """
    if not any(map(is_weak_float, leaves)):
        return [node_of(leaf, user) for leaf in leaves]
    element = common_float_type((leaves, beside)) or DEFAULT_FLOAT
    return [convert_number(leaf, element) if is_weak_float(leaf) else node_of(leaf, user) for leaf in leaves]  # type: ignore[misc]


def common_float_type(tree: Any) -> Scalar | None:
    """Returns the float type of the tensors in a pytree; None if there is none, or more than one."""
    tensors = [leaf for leaf in flatten(tree)[0] if isinstance(leaf, Tensor) and not are_weak_numbers(leaf)]
    float_types = {tensor.dtype.real for tensor in tensors if tensor.dtype.kind in ("float", "complex")}
    return float_types.pop() if len(float_types) == 1 else None


def is_weak_float(leaf: Any) -> bool:
    """Whether a leaf is a weakly typed float."""
    return leaf.__class__ is float or (
        isinstance(leaf, Tensor) and are_weak_numbers(leaf) and leaf.dtype.kind == "float"
    )


def convert_like(leaf: Any, type: Type, user: str) -> Node:
    """Converts a leaf to a node; a weakly typed number takes the element type of a zero-dimensional `type`."""
    if isinstance(type, TensorType) and not type.shape and are_weak_numbers(leaf):
        number = (
            convert_number(leaf, type.element)
            if type.element.kind in _CONVERTIBLE_KINDS.get(_number_kind(leaf), ())
            else None
        )
        if number is not None:
            return number
    return node_of(leaf, user)


_CONVERTIBLE_KINDS = {
    "signed": ("signed", "unsigned", "float", "complex"),
    "float": ("float", "complex"),
    "complex": ("complex",),
}


def _number_kind(number: Any) -> str:
    if isinstance(number, Tensor):
        return number.dtype.kind
    return {int: "signed", float: "float", complex: "complex"}.get(number.__class__, "bool")


def close(
    name: str, inputs: Sequence[Node], result: Any, can_be_passed: Callable[[Node], bool] | None = None
) -> Traced:
    """Closes the graph of a result over its inputs; other values that it uses become captures.

    `can_be_passed` restricts what can be a capture; other captured values are recomputed inside.
    """
    leaves, structure = flatten(result)
    results = tuple(result_node(leaf, name) for leaf in leaves)
    return Traced(*close_function(name, inputs, results, can_be_passed), structure)


def result_node(leaf: Any, name: str) -> Node:
    """Converts a leaf of a traced function's result to a node."""
    if isinstance(leaf, Tensor | bool | int | float | complex) or hasattr(leaf, "__array__"):
        return node_of(leaf, name)
    raise UsageError(
        f"`{name}` must return tensors", where=caller_origin(), found=type(leaf).__name__, help="or pytrees of them"
    )
