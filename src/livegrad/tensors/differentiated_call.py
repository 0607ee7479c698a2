"""Traces one call of a function with placeholders, and differentiates the resulting graph.

`transforms.py`, `vmapping.py` and `Tensor.backward` use it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from livegrad.compiler import passes_for
from livegrad.diagnostics import DifferentiationError, UsageError, caller_origin
from livegrad.diagnostics.explain_calls import call_users
from livegrad.ir.function import inline
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.propagate_lines import cached_derivation, forget_derivations, propagates_lines
from livegrad.ir.types import Tensor as TensorType
from livegrad.ir.types import bool_, f64, is_differentiable, scalar_of, shape_of
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.conversion import cast
from livegrad.ops.maps import map_
from livegrad.ops.rules import filled, zero
from livegrad.passes.differentiate import forward, reverse
from livegrad.passes.differentiate.by_point import call_by_point, loops_by_point, loops_by_point_with_sums
from livegrad.passes.differentiate.lower import with_derivatives_written
from livegrad.passes.pipeline import run_passes
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.tensors.concrete import bind_placeholders
from livegrad.tensors.declared import convert_declared_numbers
from livegrad.tensors.dtypes import DEFAULT_FLOAT
from livegrad.tensors.handle import Tensor, convert_number, wrap
from livegrad.tensors.operands import require_integer
from livegrad.tensors.pytrees import flatten, unflatten
from livegrad.tensors.tracing import (
    Traced,
    close,
    common_float_type,
    convert_leaves,
    convert_like,
    is_weak_float,
    name_of,
    placeholders,
)
from livegrad.tensors.tree_functions import tree_map
from livegrad.tensors.weak_types import give_default_type, is_weak, make_strong, weak_numbers

Arguments = int | Sequence[int]


class DifferentiatedCall:
    """A call of a function with placeholders for the arguments at `argnums`."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, argnums: Arguments) -> None:
        self.name = name_of(function)
        self.is_single = not isinstance(argnums, Iterable)
        args, kwargs = bind_by_position(function, *convert_declared_numbers(function, args, kwargs), argnums)
        positions = argument_positions(argnums, len(args), self.name)
        leaves, self.structure = flatten(tuple(args[position] for position in positions))
        # Without float tensors among the arguments, a Python float stays weakly typed inside the function.
        has_common_type = common_float_type((args, kwargs)) is not None
        numbers = [
            convert_number(leaf, f64) if not has_common_type and is_weak_float(leaf) else None for leaf in leaves
        ]
        self._weak = [number is not None for number in numbers]
        nodes = zip(convert_leaves(leaves, self.name, (args, kwargs)), numbers, strict=True)
        self.nodes = [node if number is None else number for node, number in nodes]
        for node in self.nodes:
            require_differentiable(node, self.name)
        self.inputs = placeholders([node.type for node in self.nodes])
        arguments = list(args)
        for position, part in zip(positions, unflatten(self.structure, map(wrap, self.inputs)), strict=True):
            arguments[position] = part
        weak = [node for node, flag in zip(self.inputs, self._weak, strict=True) if flag]
        with bind_placeholders(self.inputs, self.nodes), weak_numbers(weak):
            self.returned = tree_map(_to_default_type, call_users(function, arguments, kwargs))

    def close(self, result: Any) -> Traced:
        """Returns a part of the result as a function of the inputs."""
        return close(self.name, self.inputs, result)

    def active(self, traced: Traced) -> tuple[bool, ...]:
        return (True,) * len(self.inputs) + (False,) * len(traced.captures)

    def pull_back(self, traced: Traced, cotangents: Sequence[Node], *, with_value: bool = False) -> list[Node]:
        derived = _pull_back(traced.function, self.active(traced), with_value)
        gradients = list(inline(derived, [*self.nodes, *traced.captures, *cotangents]))
        first = len(gradients) - len(self.nodes)
        element = DEFAULT_FLOAT if f64 not in map(scalar_of, traced.function.result_types) else f64
        input_gradients = [
            cast(n, type=element) if weak else n for n, weak in zip(gradients[first:], self._weak, strict=True)
        ]
        return [*gradients[:first], *input_gradients]

    def directions(self, tangents: Sequence[Any]) -> list[Node]:
        """Converts tangents to nodes of the argument types."""
        nodes = [convert_like(leaf, node.type, "jvp") for leaf, node in zip(tangents, self.nodes, strict=True)]
        pairs = zip(nodes, self._weak, strict=True)
        return [cast(n, type=f64) if weak and _is_float_number(n) else n for n, weak in pairs]

    def like_arguments(self, tensors: Iterable[Tensor]) -> Any:
        parts = unflatten(self.structure, tensors)
        return parts[0] if self.is_single else parts

    def at_arguments(self, result: Any) -> Any:
        """Evaluates a part of the result at the actual arguments."""
        traced = self.close(result)
        results = inline(traced.function, [*self.nodes, *traced.captures])
        return unflatten(traced.structure, (wrap(make_strong(node)) for node in results))


def _to_default_type(leaf: Any) -> Any:
    """Converts a weakly typed result to the default type, which it has outside the function."""
    return wrap(give_default_type(leaf.node)) if isinstance(leaf, Tensor) and is_weak(leaf.node) else leaf


def _is_float_number(node: Node) -> bool:
    scalar = scalar_of(node.type)
    return scalar is not None and scalar.kind == "float" and not shape_of(node.type)


# A transform that is called in a loop differentiates the same graph each time.
@cached_derivation(256)
def _pull_back(function: Function, active: tuple[bool, ...], with_value: bool) -> Function:
    written = with_derivatives_written(function)
    derived = reverse.pull_back(loops_by_point(written), active, with_value=with_value)
    by_point = loops_by_point_with_sums(written)
    if by_point is None:
        return derived
    private = reverse.pull_back(by_point, active, with_value=with_value)
    return call_by_point(derived, private) if _sums_privately(private) else derived


def _sums_privately(function: Function) -> bool:
    """Whether the CPU has code for all maps of a function that sum tensors; others would run on the host."""
    for_all_sizes, bound = passes_for(CPU)
    module = run_passes(Module((function,)), (*for_all_sizes, *bound))
    maps = [node for inner in reachable_functions(module.functions) for node in nodes_of(inner) if node.op is map_]
    return not any(
        flag and isinstance(type, TensorType)
        for node in maps
        for type, flag in zip(node.attribute("function").result_types, node.attribute("summed"), strict=True)
    )


@cached_derivation(256)
@propagates_lines
def push_forward(function: Function, active: tuple[bool, ...]) -> Function:
    """Returns the function (arguments, tangents of active arguments) → (results, a tangent for each result)."""
    derived, flags = forward.push_forward(with_derivatives_written(function), active)
    number = len(function.results)
    remaining = iter(derived.results[number:])
    tangents = [
        next(remaining) if flag else zero(result.type) for flag, result in zip(flags, function.results, strict=True)
    ]
    return Function(derived.name, derived.parameters, (*derived.results[:number], *tangents))


def forget_derivatives() -> None:
    """Clears the cache of derivatives."""
    forget_derivations()


def bind_by_position(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], argnums: Arguments
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Moves keyword arguments to positions, as far as `argnums` refers to them.

    >>> bind_by_position(lambda x, y, z: x, (1.0,), {"z": 3.0, "y": 2.0}, 1)
    ((1.0, 2.0, 3.0), {})
    """
    argnum_list = argnums if isinstance(argnums, Iterable) else (argnums,)
    if not kwargs or all(isinstance(position, int) and position < len(args) for position in argnum_list):
        return args, kwargs
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a callable without a signature
        return args, kwargs
    remaining_kwargs, positional = dict(kwargs), list(args)
    for parameter in list(parameters)[len(args) :]:
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.name not in remaining_kwargs:
            break
        positional.append(remaining_kwargs.pop(parameter.name))
    return tuple(positional), remaining_kwargs


def argument_positions(argnums: Arguments, number: int, name: str) -> tuple[int, ...]:
    """Returns the argument positions, counted from the front; raises for positions that do not exist."""
    argnum_list = argnums if isinstance(argnums, Iterable) and not isinstance(argnums, str) else (argnums,)
    positions = tuple(require_integer(position, name, "argnums") for position in argnum_list)
    for position in positions:
        if not -number <= position < number:
            raise UsageError(
                f"`{name}` was called with {number} positional arguments",
                where=caller_origin(),
                found=f"argnums {argnums}",
                help="argnums counts arguments from 0",
            )
    return tuple(position % number for position in positions)


def require_differentiable(node: Node, name: str) -> None:
    if not is_differentiable(node.type):
        element = scalar_of(node.type)
        raise DifferentiationError(
            f"cannot differentiate `{name}` with respect to {'booleans' if element is bool_ else 'integers'}",
            where=caller_origin(),
            expected="floats",
            found=str(element) if element is None else element.long_name,
            help="write 1.0 for 1, convert it with lg.astype(x, lg.float32), leave it out of argnums, "
            "or make it a lg.static_field() of a data class",
        )


def require_loss(name: str, loss: Traced) -> None:
    types = loss.function.result_types
    if (
        len(types) == 1
        and isinstance(types[0], TensorType)
        and types[0].shape == ()
        and types[0].element.kind == "float"
    ):
        return
    raise DifferentiationError(
        f"the gradient of `{name}` needs one real number",
        where=caller_origin(),
        found=", ".join(map(str, types)) or "nothing",
        help="return lg.sum(...) or another scalar, or use lg.vjp",
    )


def nodes_like_results(tree: Any, traced: Traced, role: str) -> list[Node]:
    leaves, structure = flatten(tree)
    if structure != traced.structure:
        raise UsageError(f"the {role}s and results have different tree structures", where=caller_origin())
    types = traced.function.result_types
    nodes = [convert_like(leaf, type, role) for leaf, type in zip(leaves, types, strict=True)]
    require_types(nodes, types, role)
    return nodes


def require_types(nodes: Sequence[Node], types: Sequence[Any], role: str) -> None:
    for node, type in zip(nodes, types, strict=True):
        if node.type is not type:
            raise UsageError(
                f"a {role} of the wrong type", where=caller_origin(), expected=str(type), found=str(node.type)
            )


def gradient_by_nodes(loss: Tensor, variables: Sequence[Node]) -> list[Node]:
    """Computes the gradient of a graph with respect to nodes inside it, for `backward`."""
    traced = close("loss", variables, loss)
    active = (True,) * len(variables) + (False,) * len(traced.captures)
    derived = _pull_back(traced.function, active, False)
    return list(inline(derived, [*variables, *traced.captures, filled(1.0, loss.type)]))
