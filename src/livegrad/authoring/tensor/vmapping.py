"""Functions on single values applied to whole batches, and the matrices of derivatives that are made with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any

from livegrad.authoring.tensor.creation import eye
from livegrad.authoring.tensor.handle import ShapeError, Tensor, node_of, wrap
from livegrad.authoring.tensor.manipulation import moveaxis, reshape
from livegrad.authoring.tensor.tracing import name_of, trace_call
from livegrad.authoring.tensor.transforms import Arguments, grad, jvp, of_captured, vjp
from livegrad.authoring.tensor.trees import Structure, flatten, tree_map, unflatten
from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.function import inline
from livegrad.ir.node import Function
from livegrad.ir.types import Size, shape_of
from livegrad.ir.types import Tensor as TensorType
from livegrad.passes.batch import batch

Axes = int | None | Sequence[Any] | dict[str, Any]


def vmap(function: Callable[..., Any], in_axes: Axes = 0, out_axes: int = 0) -> Callable[..., Any]:
    """The function applied to each member of a batch, as one computation.

    `in_axes` gives the batch axis of each argument, None for one that all members share; one number stands for all.

    >>> import livegrad as lg
    >>> rows = lg.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> lg.vmap(lambda row, scale: lg.sum(row) * scale, in_axes=(0, None))(rows, lg.asarray(10.0))
    Tensor([30., 70.], dtype=float32)
    """

    @wraps(function)
    def mapped(*args: Any) -> Any:
        leaves, structure = flatten(args)
        nodes = [node_of(leaf, name_of(function)) for leaf in leaves]
        axes = _leaf_axes(in_axes, args, structure, name_of(function))
        places = [
            None if axis is None else _place(axis, node.type, function) for axis, node in zip(axes, nodes, strict=True)
        ]
        size = _batch_size([(node.type, place) for node, place in zip(nodes, places, strict=True)], function)
        types = [_without_axis(node.type, place) for node, place in zip(nodes, places, strict=True)]
        traced = trace_call(lambda *tensors: function(*unflatten(structure, tensors)), types, name_of(function))
        shared = (None,) * len(traced.captures)
        batched = _batch(traced.function, (*places, *shared), size)
        results = [wrap(node) for node in inline(batched, [*nodes, *traced.captures])]
        if out_axes:
            results = [moveaxis(result, 0, out_axes) for result in results]
        return unflatten(traced.structure, results)

    return mapped


@lru_cache(maxsize=256)
def _batch(function: Function, axes: tuple[int | None, ...], size: Size) -> Function:
    return batch(function, axes, size=size)


def _leaf_axes(in_axes: Axes, args: tuple[Any, ...], structure: Structure, name: str) -> list[int | None]:
    """An axis for each leaf; an axis that stands for a nest holds for all of its leaves."""
    given = in_axes if isinstance(in_axes, list | tuple) else (in_axes,) * len(args)
    if len(given) != len(args):
        raise UsageError(
            f"`{name}` needs an axis for each of {len(args)} arguments", where=caller_origin(), found=str(in_axes)
        )
    found: list[int | None] = []
    for axes, argument in zip(given, args, strict=True):
        _spread_axes(axes, argument, found, name)
    return found


def _spread_axes(axes: Any, tree: Any, found: list[int | None], name: str) -> None:
    if axes is None or isinstance(axes, int):
        found += [axes] * len(flatten(tree)[0])
    elif isinstance(axes, dict) and isinstance(tree, dict) and set(axes) == set(tree):
        for key, part in tree.items():
            _spread_axes(axes[key], part, found, name)
    elif isinstance(axes, list | tuple) and isinstance(tree, list | tuple) and len(axes) == len(tree):
        for inner, part in zip(axes, tree, strict=True):
            _spread_axes(inner, part, found, name)
    else:
        raise UsageError(f"in_axes does not fit the arguments of `{name}`", where=caller_origin(), found=repr(axes))


def _place(axis: int, type: Any, function: Callable[..., Any]) -> int:
    rank = len(shape_of(type))
    if not -rank <= axis < rank:
        raise ShapeError(f"`{name_of(function)}` has no axis {axis} to map", where=caller_origin(), found=str(type))
    return axis % rank


def _batch_size(places: Sequence[tuple[Any, int | None]], function: Callable[..., Any]) -> Size:
    sizes = {shape_of(type)[place] for type, place in places if place is not None}
    if len(sizes) != 1:
        found = ", ".join(map(str, sorted(map(str, sizes)))) or "none"
        raise ShapeError(f"`{name_of(function)}` is mapped over one batch size", where=caller_origin(), found=found)
    return sizes.pop()


def _without_axis(type: Any, place: int | None) -> Any:
    if place is None:
        return type
    shape = shape_of(type)
    return TensorType(type.element, (*shape[:place], *shape[place + 1 :]))


# --- matrices of derivatives -----------------------------------------------------------------------------------------


def jacfwd(function: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """The Jacobian, column by column in forward mode: results' shapes followed by the argument's.

    >>> import livegrad as lg
    >>> lg.jacfwd(lambda x: x * x)(lg.asarray([1.0, 2.0]))
    Tensor([[2., 0.],
            [0., 4.]], dtype=float32)
    """

    @wraps(function)
    def jacobian(*args: Any) -> Any:
        point = args[argnums]
        leaves, structure = flatten(point)
        tensors = [wrap(node_of(leaf, name_of(function))) for leaf in leaves]

        def of_leaf(position: int) -> Any:
            """The derivative by one leaf, for every direction of it."""
            own = tensors[position]

            def along(direction: Tensor) -> Any:
                def moved(x: Tensor) -> Any:
                    changed = unflatten(structure, [*tensors[:position], x, *tensors[position + 1 :]])
                    return function(*args[:argnums], changed, *args[argnums + 1 :])

                return jvp(moved, [own], [direction])[1]

            columns = vmap(along, out_axes=-1)(_basis(own))
            return tree_map(lambda c: reshape(c, (*c.shape[:-1], *own.shape)), columns)

        return _transposed([of_leaf(position) for position in range(len(tensors))], structure)

    return jacobian


def jacrev(function: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """The Jacobian, row by row in reverse mode: results' shapes followed by the argument's.

    >>> import livegrad as lg
    >>> lg.jacrev(lambda x: lg.sum(x * x))(lg.asarray([1.0, 2.0]))
    Tensor([2., 4.], dtype=float32)
    """

    @wraps(function)
    def jacobian(*args: Any) -> Any:
        def of_argument(x: Any) -> Any:
            return function(*args[:argnums], x, *args[argnums + 1 :])

        value, pullback = vjp(of_argument, args[argnums])
        leaves, structure = flatten(value)

        def of_result(position: int) -> Any:
            own = leaves[position]

            def pulled(direction: Tensor) -> Any:
                cotangents = [zeros if place != position else direction for place, zeros in enumerate(_zeros(leaves))]
                return pullback(unflatten(structure, cotangents))[0]

            rows = vmap(pulled)(_basis(own))
            return tree_map(lambda r: reshape(r, (*own.shape, *r.shape[1:])), rows)

        return unflatten(structure, [of_result(position) for position in range(len(leaves))])

    return jacobian


def hessian(function: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """The matrix of second derivatives of a function that returns one real number.

    >>> import livegrad as lg
    >>> lg.hessian(lambda x: x[0] ** 2 * x[1])(lg.asarray([3.0, 5.0]))
    Tensor([[10.,  6.],
            [ 6.,  0.]], dtype=float32)
    """
    return of_captured(function, "hessian", jacfwd(grad(function, argnums), argnums), argnums=argnums)


def _basis(tensor: Tensor) -> Tensor:
    """One direction for each element of a tensor."""
    return reshape(eye(tensor.size, dtype=tensor.dtype), (tensor.size, *tensor.shape))


def _zeros(leaves: Sequence[Tensor]) -> list[Tensor]:
    return [leaf * 0.0 for leaf in leaves]


def _transposed(parts: list[Any], structure: Structure) -> Any:
    """From one nest of results for each leaf of the argument to results whose leaves nest like the argument."""
    if structure is None:
        return parts[0]
    leaves = [flatten(part)[0] for part in parts]
    result_structure = flatten(parts[0])[1]
    rows = [unflatten(structure, [column[place] for column in leaves]) for place in range(len(leaves[0]))]
    return unflatten(result_structure, rows)


__all__ = ["Arguments", "hessian", "jacfwd", "jacrev", "vmap"]
