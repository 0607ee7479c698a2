"""Derivatives of functions on tensors: both modes, any order, over any pytree of arguments.

A transform calls the function once with placeholders, differentiates the graph, and applies the derivative to the
arguments. The results are lazy tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

from livegrad.diagnostics import DifferentiationError, UsageError, caller_origin
from livegrad.diagnostics.explain_calls import call_users
from livegrad.ir.function import inline
from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import cached_derivation, forget_derivations, propagates_lines
from livegrad.ir.types import Tensor as TensorType
from livegrad.ir.types import bool_, f64, is_differentiable, scalar_of, shape_of
from livegrad.lazy.holders import compute_together
from livegrad.ops.conversion import cast
from livegrad.ops.custom import recompute_call
from livegrad.ops.elementwise import detach
from livegrad.ops.rules import filled, zero
from livegrad.passes.differentiate import forward, reverse
from livegrad.passes.differentiate.budget import within_budget
from livegrad.passes.differentiate.by_point import loops_by_point
from livegrad.passes.differentiate.lower import with_derivatives_written
from livegrad.passes.differentiate.tangents import result_nodes
from livegrad.tensors.concrete import standing_for
from livegrad.tensors.declared import declared_numbers
from livegrad.tensors.dtypes import DEFAULT_FLOAT
from livegrad.tensors.handle import Tensor, node_of, number_as, wrap
from livegrad.tensors.operands import whole_number
from livegrad.tensors.pytrees import flatten, tree_map, unflatten
from livegrad.tensors.tracing import (
    Traced,
    close,
    float_beside,
    is_weak_float,
    name_of,
    node_like,
    placeholders,
    require_callable,
    take_apart,
    trace_call,
    typed_nodes,
)
from livegrad.tensors.weak_types import give_default_type, is_weak, typed, weak_numbers

Arguments = int | Sequence[int]
GradientBlock = TypeVar("GradientBlock", covariant=True)


@runtime_checkable
class HasGradient(Protocol[GradientBlock]):
    """A block, a pin or an engine: `grad` asks it for the block that computes its gradient."""

    def gradient_block(self, *, of: Any, by: Any, name: str) -> GradientBlock: ...


Pins = Sequence[HasGradient[Any] | str] | Mapping[str, HasGradient[Any] | str] | HasGradient[Any] | str


@overload
def grad(
    function: HasGradient[GradientBlock], *, of: HasGradient[Any] | str | None = None, by: Pins, name: str = ...
) -> GradientBlock: ...
@overload
def grad(*, of: HasGradient[GradientBlock], by: Pins, name: str = ...) -> GradientBlock: ...
@overload
def grad(function: Callable[..., Any], argnums: Arguments = 0, *, has_aux: bool = False) -> Callable[..., Any]: ...
def grad(
    function: Any = None,
    argnums: Arguments = 0,
    *,
    has_aux: bool = False,
    of: HasGradient[Any] | str | None = None,
    by: Pins | None = None,
    name: str = "gradient",
) -> Any:
    """Returns the gradient of a function with one real result, or a gradient block of a live graph.

    For a function: the gradient with respect to the arguments at `argnums`, which may be pytrees of dicts, lists,
    tuples and data classes. The gradient has the same structure. The function may use Python control flow on values
    (`if x > 0`, masks), because values are known.

    >>> import livegrad as lg
    >>> lg.grad(lambda x: lg.sum(x**3))(lg.asarray([1.0, 2.0]))
    Tensor([ 3., 12.], dtype=float32)

    For a live graph: a block with an output for each pin of `by`. `of` must be one real number, unless the pin `seed`,
    the cotangent of `of` (1 by default), is fed with a tensor of the same shape.

    >>> engine = lg.Engine()
    >>> square = engine.add(lg.block(lambda x, gain=2.0: gain * x * x, name="square"))
    >>> loss = engine.add(lg.block(lambda x: lg.sum(x), name="loss"))
    >>> engine.connect(square, loss["x"])
    >>> engine.set(square["x"], [1.0, 2.0])
    >>> slope = engine.add(lg.grad(of=loss, by=[square["x"], square["gain"]]))
    >>> _ = engine.step()
    >>> engine.read(slope["x"]).tolist(), float(engine.read(slope["gain"]))
    ([4.0, 8.0], 5.0)
    """
    if by is not None:
        owner = of if function is None else function
        if not isinstance(owner, HasGradient):
            raise UsageError("a gradient needs an output: pass of=...", where=caller_origin(), found=repr(owner))
        return owner.gradient_block(of=of, by=by, name=name)
    if of is not None:
        help = "write lg.grad(of=output, by=[block['pin']])"
        raise UsageError(
            "`grad` of an output needs `by`: the pins to differentiate with respect to",
            where=caller_origin(),
            help=help,
        )
    with_value = value_and_grad(function, argnums, has_aux=has_aux)

    @wraps(function, updated=())
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, gradients = with_value(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return of_captured(function, "grad", gradient, argnums=argnums, has_aux=has_aux)


def value_and_grad(
    function: Callable[..., Any], argnums: Arguments = 0, *, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """Returns a function that computes the value and the gradient. With `has_aux`, `function` returns (value, auxiliary
    data).

    >>> import livegrad as lg
    >>> lg.value_and_grad(lambda x: x * x)(lg.asarray(3.0))
    (Tensor(9., dtype=float32), Tensor(6., dtype=float32))
    """
    require_callable(function, "grad")

    @wraps(function, updated=())
    def derived(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        call = _Call(function, args, kwargs, argnums)
        returned = call.returned
        if has_aux and not (isinstance(returned, tuple) and len(returned) == 2):
            raise UsageError(f"`{call.name}` must return (value, auxiliary)", where=caller_origin())
        value, auxiliary = returned if has_aux else (returned, None)
        loss = call.close(value)
        _require_loss(call.name, loss)
        one = filled(1.0, loss.function.result_types[0])
        number, *gradients = call.pull_back(loss, [one], with_value=True)
        result, *slopes = (wrap(typed(node)) for node in (number, *gradients))
        compute_together([result, *slopes])
        if has_aux:
            return (result, call.at_arguments(auxiliary)), call.like_arguments(slopes)
        return result, call.like_arguments(slopes)

    return of_captured(function, "value_and_grad", derived, argnums=argnums, has_aux=has_aux)


def of_captured(function: Any, name: str, lazily: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """A transform by a function's own `__livegrad_transform__`, if it has one: functions that are compiled from their
    source take plain numbers and structs too, and go the way of tensors where tensors are among the arguments.
    """
    transform = getattr(function, "__livegrad_transform__", None)
    return lazily if transform is None else transform(name, lazily, **options)


@overload
def vjp(function: Function, /) -> Function: ...
@overload
def vjp(function: Callable[..., Any], /, *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]: ...
def vjp(function: Any, /, *primals: Any) -> Any:
    """Returns the value at `primals` and the pullback, which maps cotangents of the results to cotangents of the
    arguments.

    With only a `Function` of the IR, returns its derivative as a `Function`: (arguments, cotangents) → cotangents.

    >>> import livegrad as lg
    >>> value, pullback = lg.vjp(lambda x, y: x * y, lg.asarray(2.0), lg.asarray(3.0))
    >>> pullback(lg.asarray(1.0))
    (Tensor(3., dtype=float32), Tensor(2., dtype=float32))
    """
    if isinstance(function, Function):
        return reverse.vjp(with_derivatives_written(function))
    require_callable(function, "vjp")
    return of_captured(function, "vjp", partial(_vjp, function))(*primals)


def _vjp(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    call = _Call(function, primals, {}, tuple(range(len(primals))))
    traced = call.close(call.returned)

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        cotangent_nodes = _matching(cotangents, traced, "cotangent")
        return call.like_arguments(wrap(typed(node)) for node in call.pull_back(traced, cotangent_nodes))

    return call.at_arguments(call.returned), pullback


@overload
def jvp(function: Function, /) -> Function: ...
@overload
def jvp(function: Callable[..., Any], /, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]: ...
def jvp(function: Any, /, primals: Any = None, tangents: Any = None) -> Any:
    """Returns the value at `primals` and its derivative in the direction `tangents`.

    With only a `Function` of the IR, returns its derivative as a `Function`: (arguments, tangents) → (results,
    tangents).

    >>> import livegrad as lg
    >>> lg.jvp(lambda x: x * x, [lg.asarray(3.0)], [lg.asarray(1.0)])
    (Tensor(9., dtype=float32), Tensor(6., dtype=float32))
    """
    if isinstance(function, Function):
        return forward.jvp(with_derivatives_written(function))
    require_callable(function, "jvp")
    return of_captured(function, "jvp", partial(_jvp, function))(primals, tangents)


def _jvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    if not (isinstance(primals, Sequence) and isinstance(tangents, Sequence)):
        raise UsageError(
            "`jvp` takes a sequence of arguments and one of tangents",
            where=caller_origin(),
            found=f"{type(primals).__name__} and {type(tangents).__name__}",
            help="write lg.jvp(f, (x,), (dx,))",
        )
    if len(primals) != len(tangents):
        raise UsageError(f"got {len(tangents)} tangents for {len(primals)} primals", where=caller_origin())
    call = _Call(function, tuple(primals), {}, tuple(range(len(primals))))
    traced = call.close(call.returned)
    leaves, structure = flatten(tuple(tangents))
    if structure != call.structure:
        raise UsageError("tangents and primals have different tree structures", where=caller_origin())
    directions = call.directions(leaves)
    _require_types(directions, [node.type for node in call.nodes], "tangent")
    derived = _push_forward(traced.function, call.active(traced))
    results = [typed(node) for node in inline(derived, [*call.nodes, *traced.captures, *directions])]
    number = len(traced.function.results)
    value, tangent = (unflatten(traced.structure, map(wrap, part)) for part in (results[:number], results[number:]))
    return value, tangent


def stop_gradient(tree: Any) -> Any:
    """Returns the same values with all derivatives zero.

    >>> import livegrad as lg
    >>> lg.grad(lambda x: x * lg.stop_gradient(x))(lg.asarray(3.0))
    Tensor(3., dtype=float32)
    """
    return tree_map(lambda leaf: wrap(detach(node_of(leaf, "stop_gradient"))), tree)


def checkpoint(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function for which reverse mode stores only the arguments, and recomputes the rest in the backward
    pass.

    >>> import livegrad as lg
    >>> layer = lg.checkpoint(lambda x: lg.tanh(lg.sin(x)))
    >>> lg.grad(lambda x: lg.sum(layer(x)))(lg.asarray([0.0]))
    Tensor([1.], dtype=float32)
    """
    require_callable(function, "checkpoint")

    @wraps(function, updated=())
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        arguments = take_apart(declared_numbers(function, args, kwargs), name_of(function))

        def call(*tensors: Tensor) -> Any:
            positional, named = arguments.filled(tensors)
            return call_users(function, positional, named)

        traced = trace_call(call, [node.type for node in arguments.nodes], name_of(function))
        value = recompute_call(*arguments.nodes, *traced.captures, function=traced.function)
        return unflatten(traced.structure, map(wrap, result_nodes(value, len(traced.function.results))))

    return recomputed


def limit_residuals(function: Callable[..., Any], bytes: int) -> Callable[..., Any]:
    """A function of tensors whose loops store at most so many bytes each for reverse mode, and recompute the rest.

    >>> import livegrad as lg
    >>> power = limit_residuals(lambda x: lg.fori_loop(0, 100, lambda i, y: y * x, x), 256)
    >>> lg.grad(lambda x: lg.sum(power(x)))(lg.asarray([1.0]))
    Tensor([101.], dtype=float32)
    """

    @wraps(function, updated=())
    def limited(*args: Any, **kwargs: Any) -> Any:
        leaves = take_apart(declared_numbers(function, args, kwargs), name_of(function))

        def call(*tensors: Tensor) -> Any:
            positional, named = leaves.filled(tensors)
            return call_users(function, positional, named)

        traced = trace_call(call, [node.type for node in leaves.nodes], name_of(function))
        nodes = inline(within_budget(traced.function, bytes), [*leaves.nodes, *traced.captures])
        return unflatten(traced.structure, map(wrap, nodes))

    return limited


# --- one call under differentiation ----------------------------------------------------------------------------------


class _Call:
    """A call of a function with placeholders in place of the arguments that it is differentiated by."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, argnums: Arguments) -> None:
        self.name = name_of(function)
        self.single = not isinstance(argnums, Iterable)
        args, kwargs = by_position(function, *declared_numbers(function, args, kwargs), argnums)
        positions = argument_positions(argnums, len(args), self.name)
        leaves, self.structure = flatten(tuple(args[position] for position in positions))
        # A Python float takes the type of what it meets inside, if no tensor among the arguments decides.
        decided = float_beside((args, kwargs)) is not None
        numbers = [number_as(leaf, f64) if not decided and is_weak_float(leaf) else None for leaf in leaves]
        self._weak = [number is not None for number in numbers]
        nodes = zip(typed_nodes(leaves, self.name, (args, kwargs)), numbers, strict=True)
        self.nodes = [node if number is None else number for node, number in nodes]
        for node in self.nodes:
            require_differentiable(node, self.name)
        self.inputs = placeholders([node.type for node in self.nodes])
        arguments = list(args)
        for position, part in zip(positions, unflatten(self.structure, map(wrap, self.inputs)), strict=True):
            arguments[position] = part
        weak = [node for node, flag in zip(self.inputs, self._weak, strict=True) if flag]
        with standing_for(self.inputs, self.nodes), weak_numbers(weak):
            self.returned = tree_map(_with_default_type, call_users(function, arguments, kwargs))

    def close(self, result: Any) -> Traced:
        """A part of what was returned as a function of the inputs."""
        return close(self.name, self.inputs, result)

    def active(self, traced: Traced) -> tuple[bool, ...]:
        return (True,) * len(self.inputs) + (False,) * len(traced.captures)

    def pull_back(self, traced: Traced, cotangents: Sequence[Node], *, with_value: bool = False) -> list[Node]:
        derived = _pull_back(traced.function, self.active(traced), with_value)
        gradients = list(inline(derived, [*self.nodes, *traced.captures, *cotangents]))
        first = len(gradients) - len(self.nodes)
        element = DEFAULT_FLOAT if f64 not in map(scalar_of, traced.function.result_types) else f64
        slopes = [cast(n, type=element) if weak else n for n, weak in zip(gradients[first:], self._weak, strict=True)]
        return [*gradients[:first], *slopes]

    def directions(self, tangents: Sequence[Any]) -> list[Node]:
        """Tangents as nodes of the types of the arguments."""
        nodes = [node_like(leaf, node.type, "jvp") for leaf, node in zip(tangents, self.nodes, strict=True)]
        pairs = zip(nodes, self._weak, strict=True)
        return [cast(n, type=f64) if weak and _is_float_number(n) else n for n, weak in pairs]

    def like_arguments(self, tensors: Iterable[Tensor]) -> Any:
        parts = unflatten(self.structure, tensors)
        return parts[0] if self.single else parts

    def at_arguments(self, result: Any) -> Any:
        """A part of what was returned, at the arguments themselves."""
        traced = self.close(result)
        results = inline(traced.function, [*self.nodes, *traced.captures])
        return unflatten(traced.structure, (wrap(typed(node)) for node in results))


def _with_default_type(leaf: Any) -> Any:
    """A weakly typed number in the default type, as outside of the function that returned it."""
    return wrap(give_default_type(leaf.node)) if isinstance(leaf, Tensor) and is_weak(leaf.node) else leaf


def _is_float_number(node: Node) -> bool:
    scalar = scalar_of(node.type)
    return scalar is not None and scalar.kind == "float" and not shape_of(node.type)


# Differentiation is repeated for the same graph whenever a transform is called in a loop.
@cached_derivation(256)
def _pull_back(function: Function, active: tuple[bool, ...], with_value: bool) -> Function:
    written = loops_by_point(with_derivatives_written(function))
    return reverse.pull_back(written, active, with_value=with_value)


@cached_derivation(256)
@propagates_lines
def _push_forward(function: Function, active: tuple[bool, ...]) -> Function:
    """(arguments, tangents of the active ones) → (results, a tangent for each)."""
    derived, flags = forward.push_forward(with_derivatives_written(function), active)
    number = len(function.results)
    supply = iter(derived.results[number:])
    tangents = [
        next(supply) if flag else zero(result.type) for flag, result in zip(flags, function.results, strict=True)
    ]
    return Function(derived.name, derived.parameters, (*derived.results[:number], *tangents))


def forget_derivatives() -> None:
    """Drops the derivatives that are kept for the next call, and their parts."""
    forget_derivations()


def by_position(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], argnums: Arguments
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call whose named arguments that `argnums` counts are passed by position.

    >>> by_position(lambda x, y, z: x, (1.0,), {"z": 3.0, "y": 2.0}, 1)
    ((1.0, 2.0, 3.0), {})
    """
    listed = argnums if isinstance(argnums, Iterable) else (argnums,)
    if not kwargs or all(isinstance(position, int) and position < len(args) for position in listed):
        return args, kwargs
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a callable without a signature
        return args, kwargs
    rest, moved = dict(kwargs), list(args)
    for parameter in list(parameters)[len(args) :]:
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.name not in rest:
            break
        moved.append(rest.pop(parameter.name))
    return tuple(moved), rest


def argument_positions(argnums: Arguments, number: int, name: str) -> tuple[int, ...]:
    """The positions of arguments, counted from the front; one that there is not is refused."""
    listed = argnums if isinstance(argnums, Iterable) and not isinstance(argnums, str) else (argnums,)
    positions = tuple(whole_number(position, name, "argnums") for position in listed)
    for position in positions:
        if not -number <= position < number:
            raise UsageError(
                f"`{name}` was called with {number} positional arguments",
                where=caller_origin(),
                found=f"argnums {argnums}",
                help="argnums counts the arguments from 0",
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
            help="write 1.0 for 1, convert it with lg.astype(x, lg.float32), or leave it out of argnums",
        )


def _require_loss(name: str, loss: Traced) -> None:
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


def _matching(tree: Any, traced: Traced, role: str) -> list[Node]:
    leaves, structure = flatten(tree)
    if structure != traced.structure:
        raise UsageError(f"the {role}s and results have different tree structures", where=caller_origin())
    types = traced.function.result_types
    nodes = [node_like(leaf, type, role) for leaf, type in zip(leaves, types, strict=True)]
    _require_types(nodes, types, role)
    return nodes


def _require_types(nodes: Sequence[Node], types: Sequence[Any], role: str) -> None:
    for node, type in zip(nodes, types, strict=True):
        if node.type is not type:
            raise UsageError(
                f"a {role} of the wrong type", where=caller_origin(), expected=str(type), found=str(node.type)
            )


def gradient_by_nodes(loss: Tensor, variables: Sequence[Node]) -> list[Node]:
    """The gradient of a computed graph with respect to nodes inside it: what `backward` uses."""
    traced = close("loss", variables, loss)
    active = (True,) * len(variables) + (False,) * len(traced.captures)
    derived = _pull_back(traced.function, active, False)
    return list(inline(derived, [*variables, *traced.captures, filled(1.0, loss.type)]))
