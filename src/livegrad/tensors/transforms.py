"""Differentiates functions on tensors in both modes, to any order, over any pytree of arguments.

A transform traces the function with placeholders, differentiates the graph, and applies the derivative to the
arguments. The results are lazy tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.diagnostics.explain_calls import call_users
from livegrad.ir.function import inline
from livegrad.ir.node import Function
from livegrad.lazy.holders import compute_together
from livegrad.ops.custom import recompute_call
from livegrad.ops.elementwise import detach
from livegrad.ops.rules import filled
from livegrad.passes.differentiate import forward, reverse
from livegrad.passes.differentiate.budget import within_budget
from livegrad.passes.differentiate.lower import with_derivatives_written
from livegrad.passes.differentiate.tangents import result_nodes
from livegrad.tensors.declared import convert_declared_numbers
from livegrad.tensors.differentiated_call import (
    Arguments,
    DifferentiatedCall,
    nodes_like_results,
    push_forward,
    require_loss,
    require_types,
)
from livegrad.tensors.handle import Tensor, node_of, wrap
from livegrad.tensors.pytrees import flatten, unflatten
from livegrad.tensors.tracing import (
    flatten_arguments,
    name_of,
    require_callable,
    trace_call,
)
from livegrad.tensors.tree_functions import tree_map
from livegrad.tensors.weak_types import make_strong

GradientBlock = TypeVar("GradientBlock", covariant=True)


@runtime_checkable
class HasGradient(Protocol[GradientBlock]):
    """A block, a pin or an engine, which can create the block that computes its gradient."""

    def gradient_block(self, *, of: Any, by: Any, name: str) -> GradientBlock: ...
    def frame_gradient(self, *, of: Any, by: Any, frames: int) -> Any: ...


Pins = Sequence[HasGradient[Any] | str] | Mapping[str, HasGradient[Any] | str] | HasGradient[Any] | str


@overload
def grad(function: HasGradient[Any], *, of: HasGradient[Any], by: Pins, frames: int) -> Any: ...
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
    frames: int | None = None,
) -> Any:
    """Returns the gradient of a function with one real result, or a gradient block of a live graph.

    For a function: the gradient with respect to the arguments at `argnums`, which may be pytrees of dicts, lists,
    tuples and data classes. The gradient has the same structure. The function may use Python control flow on values
    (`if x > 0`, masks), because values are available.

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
    >>> gradient = engine.add(lg.grad(of=loss, by=[square["x"], square["gain"]]))
    >>> _ = engine.step()
    >>> engine.read(gradient["x"]).tolist(), float(engine.read(gradient["gain"]))
    ([4.0, 8.0], 5.0)

    With an engine and `frames=n`: how `of` in the n-th frame from now depends on pins, through states. `read()` returns
    the gradients by pin, and nothing in the engine runs or changes.

    >>> float(lg.grad(engine, of=loss, by=[square["gain"]], frames=1).read()[square["gain"]])
    5.0
    """
    if by is not None:
        owner = of if function is None else function
        if not isinstance(owner, HasGradient):
            raise UsageError("a gradient needs an output: pass of=...", where=caller_origin(), found=repr(owner))
        if frames is not None:
            return owner.frame_gradient(of=of, by=by, frames=frames)
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

    return dispatch_transform(function, "grad", gradient, argnums=argnums, has_aux=has_aux)


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
        call = DifferentiatedCall(function, args, kwargs, argnums)
        returned = call.returned
        if has_aux and not (isinstance(returned, tuple) and len(returned) == 2):
            raise UsageError(f"`{call.name}` must return (value, auxiliary)", where=caller_origin())
        value, auxiliary = returned if has_aux else (returned, None)
        loss = call.close(value)
        require_loss(call.name, loss)
        one = filled(1.0, loss.function.result_types[0])
        number, *gradients = call.pull_back(loss, [one], with_value=True)
        result, *gradient_tensors = (wrap(make_strong(node)) for node in (number, *gradients))
        compute_together([result, *gradient_tensors])
        if has_aux:
            return (result, call.at_arguments(auxiliary)), call.like_arguments(gradient_tensors)
        return result, call.like_arguments(gradient_tensors)

    return dispatch_transform(function, "value_and_grad", derived, argnums=argnums, has_aux=has_aux)


def dispatch_transform(
    function: Any, name: str, lazy_transform: Callable[..., Any], **options: Any
) -> Callable[..., Any]:
    """Returns a function's own transform if it defines `__livegrad_transform__`, otherwise the lazy transform.

    Functions compiled from their source also accept plain numbers and structs; they use the lazy transform if tensors
    are among the arguments.
    """
    transform = getattr(function, "__livegrad_transform__", None)
    return lazy_transform if transform is None else transform(name, lazy_transform, **options)


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
    return dispatch_transform(function, "vjp", partial(_vjp, function))(*primals)


def _vjp(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    call = DifferentiatedCall(function, primals, {}, tuple(range(len(primals))))
    traced = call.close(call.returned)

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        cotangent_nodes = nodes_like_results(cotangents, traced, "cotangent")
        return call.like_arguments(wrap(make_strong(node)) for node in call.pull_back(traced, cotangent_nodes))

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
    return dispatch_transform(function, "jvp", partial(_jvp, function))(primals, tangents)


def _jvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    if not (isinstance(primals, Sequence) and isinstance(tangents, Sequence)):
        raise UsageError(
            "`jvp` takes a sequence of arguments and a sequence of tangents",
            where=caller_origin(),
            found=f"{type(primals).__name__} and {type(tangents).__name__}",
            help="write lg.jvp(f, (x,), (dx,))",
        )
    if len(primals) != len(tangents):
        raise UsageError(f"got {len(tangents)} tangents for {len(primals)} primals", where=caller_origin())
    call = DifferentiatedCall(function, tuple(primals), {}, tuple(range(len(primals))))
    traced = call.close(call.returned)
    leaves, structure = flatten(tuple(tangents))
    if structure != call.structure:
        raise UsageError("tangents and primals have different tree structures", where=caller_origin())
    directions = call.directions(leaves)
    require_types(directions, [node.type for node in call.nodes], "tangent")
    derived = push_forward(traced.function, call.active(traced))
    results = [make_strong(node) for node in inline(derived, [*call.nodes, *traced.captures, *directions])]
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
        arguments = flatten_arguments(convert_declared_numbers(function, args, kwargs), name_of(function))

        def call(*tensors: Tensor) -> Any:
            positional, named = arguments.filled(tensors)
            return call_users(function, positional, named)

        traced = trace_call(call, [node.type for node in arguments.nodes], name_of(function))
        value = recompute_call(*arguments.nodes, *traced.captures, function=traced.function)
        return unflatten(traced.structure, map(wrap, result_nodes(value, len(traced.function.results))))

    return recomputed


def limit_residuals(function: Callable[..., Any], bytes: int) -> Callable[..., Any]:
    """Returns a function whose loops each store at most `bytes` bytes of residuals for reverse mode.

    The backward pass recomputes the rest.

    >>> import livegrad as lg
    >>> power = limit_residuals(lambda x: lg.fori_loop(0, 100, lambda i, y: y * x, x), 256)
    >>> lg.grad(lambda x: lg.sum(power(x)))(lg.asarray([1.0]))
    Tensor([101.], dtype=float32)
    """

    @wraps(function, updated=())
    def limited(*args: Any, **kwargs: Any) -> Any:
        leaves = flatten_arguments(convert_declared_numbers(function, args, kwargs), name_of(function))

        def call(*tensors: Tensor) -> Any:
            positional, named = leaves.filled(tensors)
            return call_users(function, positional, named)

        traced = trace_call(call, [node.type for node in leaves.nodes], name_of(function))
        nodes = inline(within_budget(traced.function, bytes), [*leaves.nodes, *traced.captures])
        return unflatten(traced.structure, map(wrap, nodes))

    return limited
