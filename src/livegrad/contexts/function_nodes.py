"""Converts livegrad functions to nodes, whose needs are the features that their code reads.

`ContextGraph.node` calls `as_kernel`. Evaluation calls a `Kernel` like any node function; `compose` inlines it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from livegrad.contexts.guard import NodeContext
from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node, input_op
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import Type
from livegrad.ir.walk import toposort
from livegrad.ops.context import FeatureLevel, feature_leaves, feature_of
from livegrad.ops.maps import map_over
from livegrad.runtime.cpu import compile_function


@dataclass(frozen=True)
class Kernel:
    """A function of features, then of plain inputs. Kernels with equal code are equal."""

    function: Function
    features: tuple[FeatureLevel, ...] = ()

    @property
    def input_types(self) -> tuple[Type, ...]:
        return self.function.parameter_types[len(self.features) :]

    def mapped(self) -> Kernel:
        """The function at every point of a domain: its inputs become arrays, and all points have the same features.

        >>> from livegrad.ir.types import f32
        >>> context_function(lambda x: x + 1.0, f32).mapped().input_types
        (tensor<f32, [n]>,)
        """
        lifted = (False,) * len(self.features) + (True,) * len(self.input_types)
        return Kernel(map_over(self.function, lifted), self.features)

    def __call__(self, ctx: NodeContext, *inputs: Any) -> Any:
        return compile_function(self.function)(*[ctx[str(feature)] for feature in self.features], *inputs)


def context_function(callable: Callable[..., Any], *types: Type, name: str | None = None) -> Kernel:
    """Traces a function that may read features with `context(...)`, for use as a node.

    >>> from livegrad.ir.types import f32
    >>> from livegrad.ops.context import context
    >>> context_function(lambda x: x * context("animation_time"), f32, name="move").features
    (FeatureLevel(feature='animation_time', level=0),)
    """
    inputs = [input_node(Key(f"argument{index}"), type) for index, type in enumerate(types)]
    returned = callable(*inputs)
    results = tuple(returned) if isinstance(returned, tuple | list) else (returned,)
    label = name or getattr(callable, "__name__", "function")
    for result in results:
        if not isinstance(result, Node):
            raise UsageError(f"function `{label}` must return nodes", where=caller_origin(), found=repr(result))
    leaves = feature_leaves(results)
    _reject_free_leaves(label, results, {*inputs, *leaves})
    return Kernel(make_function(label, [*leaves, *inputs], results), tuple(map(feature_of, leaves)))


def _reject_free_leaves(name: str, results: tuple[Node, ...], allowed: set[Node]) -> None:
    for node in toposort(results):
        if node.op is input_op and node not in allowed:
            raise UsageError(
                f"function `{name}` uses values that are defined outside of it",
                where=node.origin or caller_origin(),
                help="pass them as arguments, or read a feature with context(...)",
            )


@dataclass(frozen=True)
class Modifier:
    """The function of a node that evaluates its scoped input with changed features."""

    changes: tuple[tuple[str, Callable[[Any], Any] | Kernel], ...]

    def __call__(self, ctx: NodeContext, source: Callable[[NodeContext], Any]) -> Any:
        return source(ctx.modify(**{name: self._bind_change(change, ctx) for name, change in self.changes}))

    @staticmethod
    def _bind_change(change: Callable[[Any], Any] | Kernel, ctx: NodeContext) -> Callable[[Any], Any]:
        return partial(change, ctx) if isinstance(change, Kernel) else change

    @property
    def features(self) -> tuple[FeatureLevel, ...]:
        """The features that the changes read."""
        kernels = [change for _, change in self.changes if isinstance(change, Kernel)]
        return tuple(feature for kernel in kernels for feature in kernel.features)


def as_kernel(function: Any) -> Kernel | None:
    """The kernel of a livegrad function, traced or captured from Python source; None for any other callable.

    A captured function is specialised to its annotated parameter types.
    """
    if isinstance(function, Kernel):
        return function
    if hasattr(function, "specialization_for"):
        function = function.specialization_for().function
    if not isinstance(function, Function):
        return None
    leaves = feature_leaves(function.results)
    if not leaves:
        return Kernel(function)
    with_features = make_function(function.name, [*leaves, *function.parameters], function.results)
    return Kernel(with_features, tuple(map(feature_of, leaves)))
