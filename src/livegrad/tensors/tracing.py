"""Traces Python functions on tensors to closed functions of the value IR.

Transforms, `jit` and control flow call a function once with placeholders and take the resulting graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.function import captured_values, make_function
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
    """What a call built: a function of the inputs and of the values it took from around it, and how results nest."""

    function: Function
    captures: tuple[Node, ...]
    structure: Structure


def name_of(function: Callable[..., Any]) -> str:
    """What to call a function in messages and in the IR."""
    return getattr(function, "__name__", type(function).__name__)


def require_callable(function: Any, user: str) -> None:
    """Refuses what is no function: the result of one, most often."""
    if not callable(function):
        raise UsageError(
            f"`{user}` takes a function",
            where=caller_origin(),
            found=type(function).__name__,
            help="pass the function itself, not its result",
        )


def placeholders(types: Sequence[Type]) -> tuple[Node, ...]:
    """Inputs without a value, for a function to be traced with."""
    return tuple(input_node(Key(f"argument{index}"), type) for index, type in enumerate(types))


def trace_call(call: Callable[..., Any], types: Sequence[Type], name: str) -> Traced:
    """Calls `call` with placeholder tensors of these types."""
    inputs = placeholders(types)
    return close(name, inputs, call(*map(wrap, inputs)))


@dataclass(frozen=True)
class Arguments:
    """A nest of arguments taken apart: the nodes that a traced function has parameters for, and all leaves.

    Leaves that are not tensors are handed on to the function as they are.
    """

    nodes: tuple[Node, ...]
    leaves: tuple[Any, ...]
    is_static: tuple[bool, ...]
    structure: Structure

    def filled(self, tensors: Iterable[Tensor]) -> Any:
        """The nest with these tensors in place of those that have parameters."""
        remaining = iter(tensors)
        pairs = zip(self.leaves, self.is_static, strict=True)
        return unflatten(self.structure, [leaf if stays else next(remaining) for leaf, stays in pairs])


def flatten_arguments(tree: Any, user: str, may_be_static: Sequence[bool] | None = None) -> Arguments:
    """The arguments of a function that is to be traced; `may_hand_on` says of each leaf whether it may be no tensor."""
    leaves, structure = flatten(tree)
    allowed = may_be_static or [True] * len(leaves)
    stays = tuple(may and is_static_leaf(leaf) for may, leaf in zip(allowed, leaves, strict=True))
    nodes = tuple(node_of(leaf, user) for leaf, is_static in zip(leaves, stays, strict=True) if not is_static)
    return Arguments(nodes, tuple(leaves), stays, structure)


def is_static_leaf(leaf: Any) -> bool:
    """Whether a function that is traced gets an argument as it is: a Python number, which takes the type of the tensor
    beside it there too, text, a truth value, or an object that holds no array.
    """
    if isinstance(leaf, Tensor):
        return are_weak_numbers(leaf)
    return not (
        isinstance(leaf, Node | np.ndarray | np.generic) or hasattr(leaf, "__array__") or hasattr(leaf, "__dlpack__")
    )


def convert_leaves(leaves: Sequence[Any], user: str, beside: Any = ()) -> list[Node]:
    """Leaves as nodes. Python floats take the type of the tensors of floats among them and in the nest beside them, if
    that is one type.
    """
    if not any(map(is_weak_float, leaves)):
        return [node_of(leaf, user) for leaf in leaves]
    element = common_float_type((leaves, beside)) or DEFAULT_FLOAT
    return [convert_number(leaf, element) if is_weak_float(leaf) else node_of(leaf, user) for leaf in leaves]  # type: ignore[misc]


def common_float_type(tree: Any) -> Scalar | None:
    """The one type of floats that the tensors of a nest have; None if there is none, or several."""
    tensors = [leaf for leaf in flatten(tree)[0] if isinstance(leaf, Tensor) and not are_weak_numbers(leaf)]
    wanted = {tensor.dtype.real for tensor in tensors if tensor.dtype.kind in ("float", "complex")}
    return wanted.pop() if len(wanted) == 1 else None


def is_weak_float(leaf: Any) -> bool:
    """Whether a leaf is a float without a type of its own."""
    return leaf.__class__ is float or (
        isinstance(leaf, Tensor) and are_weak_numbers(leaf) and leaf.dtype.kind == "float"
    )


def convert_like(leaf: Any, type: Type, user: str) -> Node:
    """A leaf as a node; a number without a type of its own in the type that is wanted, if it is one of numbers."""
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
    """The function from inputs to a nest of tensors; captures are what can be passed to it, if there is a limit."""
    leaves, structure = flatten(result)
    results = tuple(result_node(leaf, name) for leaf in leaves)
    captures = captured_values(inputs, results, can_be_passed)
    return Traced(make_function(name, (*inputs, *captures), results), captures, structure)


def result_node(leaf: Any, name: str) -> Node:
    """A leaf of what a traced function returned, as a node."""
    if isinstance(leaf, Tensor | bool | int | float | complex) or hasattr(leaf, "__array__"):
        return node_of(leaf, name)
    raise UsageError(
        f"`{name}` must return tensors", where=caller_origin(), found=type(leaf).__name__, help="or pytrees of them"
    )
