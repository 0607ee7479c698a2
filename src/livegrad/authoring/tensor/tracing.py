"""Python functions on tensors as closed functions of the value IR.

Transforms, `jit` and control flow call a function once with placeholders and take the graph that it built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from livegrad.authoring.tensor.handle import Tensor, node_of, wrap
from livegrad.authoring.tensor.trees import LEAF_CLASSES, Structure, flatten
from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.function import captured_values, make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import Type

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


def placeholders(types: Sequence[Type]) -> tuple[Node, ...]:
    """Inputs without a value, for a function to be traced with."""
    return tuple(input_node(Key(f"argument{index}"), type) for index, type in enumerate(types))


def trace_call(call: Callable[..., Any], types: Sequence[Type], name: str) -> Traced:
    """Calls `call` with placeholder tensors of these types."""
    inputs = placeholders(types)
    return close(name, inputs, call(*map(wrap, inputs)))


def close(name: str, inputs: Sequence[Node], result: Any) -> Traced:
    """The function from inputs to a nest of tensors."""
    leaves, structure = flatten(result)
    results = tuple(result_node(leaf, name) for leaf in leaves)
    captures = captured_values(inputs, results)
    return Traced(make_function(name, (*inputs, *captures), results), captures, structure)


def result_node(leaf: Any, name: str) -> Node:
    """A leaf of what a traced function returned, as a node."""
    if isinstance(leaf, Tensor | bool | int | float | complex) or hasattr(leaf, "__array__"):
        return node_of(leaf, name)
    raise UsageError(
        f"`{name}` must return tensors", where=caller_origin(), found=type(leaf).__name__, help="or nests of them"
    )
