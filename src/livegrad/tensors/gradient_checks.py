"""Debugging tools: `check_gradients` compares with finite differences, and `debug_nans` locates the first NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from livegrad.diagnostics import DifferentiationError, TypeRuleError, UsageError, caller_origin
from livegrad.ir.function import inline
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, c128, f64
from livegrad.lazy.nan_checks import watching_for_nans
from livegrad.ops.conversion import cast
from livegrad.passes.widen_to_double import double_scalar, widen_to_double
from livegrad.tensors.creation import asarray
from livegrad.tensors.handle import Tensor, wrap
from livegrad.tensors.operands import as_type, element_of
from livegrad.tensors.pytrees import flatten, unflatten
from livegrad.tensors.tracing import name_of, trace_call
from livegrad.tensors.transforms import jvp, vjp
from livegrad.tensors.tree_functions import tree_map


def check_gradients(
    function: Callable[..., Any], *arguments: Any, tolerance: float = 1e-5, step: float = 1e-6, seed: int = 0
) -> None:
    """Compares both modes with central differences in float64, in a random direction; raises if they disagree.

    Arguments are converted to double precision first, so that the check is about the mathematics and not about
    rounding. A function that creates float32 tensors is also evaluated entirely in double precision.

    >>> import livegrad as lg
    >>> lg.check_gradients(lambda x: lg.sum(lg.sin(x) * x), lg.asarray([0.5, 1.5]))
    """
    primals = tree_map(_to_double, arguments)
    generator = np.random.default_rng(seed)
    tangents = tree_map(lambda leaf: _direction(leaf, generator), primals)
    try:
        value, forward = jvp(function, primals, tangents)
    except (UsageError, TypeRuleError):
        if all(leaf.dtype in (f64, c128) for leaf in map(_tensor, flatten(arguments)[0])):
            raise
        # The function has fixed types inside, such as a loop whose state it creates in float32.
        function = _function_in_double(function, arguments)
        value, forward = jvp(function, primals, tangents)
    low = function(*tree_map(lambda p, t: p - step * t, primals, tangents))
    high = function(*tree_map(lambda p, t: p + step * t, primals, tangents))
    numeric = tree_map(lambda a, b: (b - a) / (2.0 * step), low, high)
    _require_close(forward, numeric, tolerance, "forward mode", "central differences")
    cotangents = tree_map(lambda leaf: _direction(leaf, generator), value)
    _, pullback = vjp(function, *primals)
    first = _pair_product(pullback(cotangents), tangents)
    second = _pair_product(cotangents, forward)
    if not np.isclose(first, second, rtol=tolerance, atol=tolerance):
        raise DifferentiationError(
            "reverse and forward mode disagree", where=caller_origin(), expected=f"{second}", found=f"{first}"
        )


def _function_in_double(function: Callable[..., Any], arguments: Any) -> Callable[..., Any]:
    """Traces the function with its original types and converts the trace to double precision."""
    leaves, structure = flatten(tree_map(_tensor, arguments))
    types = [leaf.type for leaf in leaves]
    traced = trace_call(lambda *tensors: function(*unflatten(structure, tensors)), types, name_of(function))
    in_float64 = widen_to_double(traced.function)
    captures = [_captured_in_double(node) for node in traced.captures]

    def computed(*arguments: Any) -> Any:
        nodes = [leaf.node for leaf in flatten(arguments)[0]]
        return unflatten(traced.structure, map(wrap, inline(in_float64, [*nodes, *captures])))

    return computed


def _captured_in_double(node: Node) -> Node:
    if isinstance(node.type, Scalar):  # the condition of a branch or loop
        in_float64 = double_scalar(node.type)
        return node if node.type is in_float64 else cast(node, type=in_float64)
    return as_type(node, double_scalar(element_of(node)))


def _tensor(leaf: Any) -> Tensor:
    return leaf if isinstance(leaf, Tensor) else asarray(leaf)


def _to_double(leaf: Any) -> Tensor:
    tensor = _tensor(leaf)
    if tensor.dtype.kind not in ("float", "complex"):
        raise UsageError(
            "`check_gradients` needs float arguments",
            where=caller_origin(),
            found=str(tensor.dtype),
            help="close over the other arguments",
        )
    return asarray(tensor, dtype=f64 if tensor.dtype.kind == "float" else c128)


def _direction(leaf: Tensor, generator: np.random.Generator) -> Tensor:
    """Draws a random direction of a tensor's shape and type."""
    noise = generator.standard_normal(leaf.shape)
    if leaf.dtype.kind == "complex":
        noise = noise + 1j * generator.standard_normal(leaf.shape)
    return asarray(noise, dtype=leaf.dtype)


def _pair_product(first: Any, second: Any) -> float:
    """Pairs cotangents with tangents: the real part of the sum of products, without a conjugate."""
    pairs = zip(flatten(first)[0], flatten(second)[0], strict=True)
    return float(sum(np.sum(a.numpy() * b.numpy()).real for a, b in pairs))


def _require_close(actual: Any, expected: Any, tolerance: float, name: str, other_name: str) -> None:
    for index, (a, b) in enumerate(zip(flatten(actual)[0], flatten(expected)[0], strict=True)):
        difference = np.abs(a.numpy() - b.numpy())
        limit = tolerance * np.maximum(1.0, np.abs(b.numpy()))
        if not np.all(difference <= limit):
            worst = float(np.max(difference))  # NaN if there is any
            raise DifferentiationError(
                f"{name} and {other_name} disagree in result {index}",
                where=caller_origin(),
                found=f"a difference of {worst:.3g}",
            )


@contextmanager
def debug_nans(*, infinities: bool = False) -> Iterator[None]:
    """A context manager in which the first operation whose result contains a NaN (or optionally an infinity) raises
    with its line.

    Graphs run operation by operation, which is slow. Use it for debugging.

    >>> import livegrad as lg
    >>> with lg.debug_nans():
    ...     try:
    ...         lg.log(lg.asarray([-1.0])).execute()
    ...     except lg.KernelCheckError as error:
    ...         print(error.what)
    `log` produced the first NaN, at index (0,)
    """
    with watching_for_nans(infinities=infinities):
        yield
