"""`vmap`, and the Jacobians and Hessians that use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.diagnostics.explain_calls import call_users
from livegrad.ir.dimension import Size
from livegrad.ir.function import inline
from livegrad.ir.node import Function
from livegrad.ir.propagate_lines import cached_derivation
from livegrad.ir.types import Tensor as TensorType
from livegrad.ir.types import shape_of
from livegrad.ops.conversion import make_complex
from livegrad.ops.rules import zero
from livegrad.passes.batch import batch
from livegrad.tensors.declared import convert_declared_numbers
from livegrad.tensors.differentiated_call import Arguments, argument_positions, bind_by_position, require_differentiable
from livegrad.tensors.errors import ShapeError
from livegrad.tensors.grids import eye
from livegrad.tensors.handle import Tensor, node_of, wrap
from livegrad.tensors.holomorphic import check_complex_linear, is_complex, may_conjugate, require_complex
from livegrad.tensors.manipulation import moveaxis, reshape
from livegrad.tensors.pytrees import Structure, dict_keys, flatten, unflatten
from livegrad.tensors.tracing import flatten_arguments, is_weak_float, name_of, require_callable, trace_call
from livegrad.tensors.transforms import dispatch_transform, grad, jvp, vjp
from livegrad.tensors.tree_functions import tree_map

Axes = int | None | Sequence[Any] | dict[str, Any]


def vmap(function: Callable[..., Any], in_axes: Axes = 0, out_axes: Axes = 0) -> Callable[..., Any]:
    """Vectorises a function over a batch.

    `in_axes` is the batch axis of each argument, or None for arguments that all members share; one number applies to
    all arguments. Keyword arguments have the batch in the first axis. `out_axes` is the batch axis of each result.

    >>> import livegrad as lg
    >>> rows = lg.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> lg.vmap(lambda row, scale: lg.sum(row) * scale, in_axes=(0, None))(rows, lg.asarray(10.0))
    Tensor([30., 70.], dtype=float32)
    """
    require_callable(function, "vmap")

    @wraps(function, updated=())
    def mapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = convert_declared_numbers(function, args, kwargs)
        axes = _leaf_axes(in_axes, args, name_of(function)) + [0] * len(flatten(kwargs)[0])
        arguments = flatten_arguments((args, kwargs), name_of(function), [axis is None for axis in axes])
        nodes = arguments.nodes
        axes = [axis for axis, stays in zip(axes, arguments.is_static, strict=True) if not stays]
        batch_axes = [
            None if axis is None else _normalise_axis(axis, node.type, function)
            for axis, node in zip(axes, nodes, strict=True)
        ]
        size = _batch_size([(node.type, position) for node, position in zip(nodes, batch_axes, strict=True)], function)
        types = [_without_axis(node.type, position) for node, position in zip(nodes, batch_axes, strict=True)]

        def call(*tensors: Tensor) -> Any:
            positional, named = arguments.filled(tensors)
            return call_users(function, positional, named)

        traced = trace_call(call, types, name_of(function))
        shared = (None,) * len(traced.captures)
        batched = _batch(traced.function, (*batch_axes, *shared), size)
        results = unflatten(traced.structure, map(wrap, inline(batched, [*nodes, *traced.captures])))
        return _with_batch_at(out_axes, results, name_of(function)) if out_axes != 0 else results

    return mapped


@cached_derivation(256)
def _batch(function: Function, axes: tuple[int | None, ...], size: Size) -> Function:
    return batch(function, axes, size=size)


def _with_batch_at(out_axes: Axes, results: Any, name: str) -> Any:
    """Moves the batch axis of results from the front to the requested position."""
    leaves, structure = flatten(results)
    axes: list[int | None] = []
    _spread_axes(out_axes, results, axes, "out_axes", name)
    moved_leaves = [leaf if axis is None else moveaxis(leaf, 0, axis) for leaf, axis in zip(leaves, axes, strict=True)]
    if None in axes:
        raise UsageError(f"every result of `{name}` needs a batch axis", where=caller_origin(), help="give it an axis")
    return unflatten(structure, moved_leaves)


def _leaf_axes(in_axes: Axes, args: tuple[Any, ...], name: str) -> list[int | None]:
    """Returns one axis per leaf; the axis of a subtree applies to all of its leaves."""
    axes_by_argument = in_axes if isinstance(in_axes, list | tuple) else (in_axes,) * len(args)
    if len(axes_by_argument) != len(args):
        raise UsageError(
            f"`{name}` needs an axis for each of {len(args)} arguments", where=caller_origin(), found=str(in_axes)
        )
    leaf_axes: list[int | None] = []
    for axes, argument in zip(axes_by_argument, args, strict=True):
        _spread_axes(axes, argument, leaf_axes, "in_axes", name)
    return leaf_axes


def _spread_axes(axes: Any, tree: Any, leaf_axes: list[int | None], role: str, name: str) -> None:
    if axes is None or isinstance(axes, int):
        leaf_axes += [axes] * len(flatten(tree)[0])
    elif isinstance(axes, dict) and isinstance(tree, dict) and set(axes) == set(tree):
        for key in dict_keys(tree):
            _spread_axes(axes[key], tree[key], leaf_axes, role, name)
    elif isinstance(axes, list | tuple) and isinstance(tree, list | tuple) and len(axes) == len(tree):
        for inner, part in zip(axes, tree, strict=True):
            _spread_axes(inner, part, leaf_axes, role, name)
    else:
        raise UsageError(
            f"{role} has a different tree structure from the values of `{name}`",
            where=caller_origin(),
            found=repr(axes),
        )


def _normalise_axis(axis: int, type: Any, function: Callable[..., Any]) -> int:
    rank = len(shape_of(type))
    if not -rank <= axis < rank:
        raise ShapeError(f"`{name_of(function)}` has no axis {axis} to map", where=caller_origin(), found=str(type))
    return axis % rank


def _batch_size(types: Sequence[tuple[Any, int | None]], function: Callable[..., Any]) -> Size:
    sizes = {shape_of(type)[axis] for type, axis in types if axis is not None}
    if not sizes:
        raise UsageError(
            f"`{name_of(function)}` has nothing to map over",
            where=caller_origin(),
            help="pass a tensor whose axis in in_axes is not None",
        )
    if len(sizes) != 1:
        found = ", ".join(sorted(map(str, sizes)))
        raise ShapeError(f"`{name_of(function)}` got different batch sizes", where=caller_origin(), found=found)
    return sizes.pop()


def _without_axis(type: Any, axis: int | None) -> Any:
    if axis is None:
        return type
    shape = shape_of(type)
    return TensorType(type.element, (*shape[:axis], *shape[axis + 1 :]))


# --- matrices of derivatives -----------------------------------------------------------------------------------------


def jacfwd(function: Callable[..., Any], argnums: Arguments = 0) -> Callable[..., Any]:
    """Returns the Jacobian in forward mode, column by column. Its shape is that of the result followed by that of the
    argument.

    Functions of complex arguments must be holomorphic.

    >>> import livegrad as lg
    >>> lg.jacfwd(lambda x: x * x)(lg.asarray([1.0, 2.0]))
    Tensor([[2., 0.],
            [0., 4.]], dtype=float32)
    """
    require_callable(function, "jacfwd")

    @wraps(function, updated=())
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        point, of_point = _by_arguments(function, args, kwargs, argnums)
        leaves, structure = flatten(point)
        tensors = [wrap(node_of(leaf, name_of(function))) for leaf in leaves]
        if not tensors:
            what = f"`{name_of(function)}` has nothing to differentiate with respect to"
            raise UsageError(what, where=caller_origin(), expected="a tensor, or a pytree of them", found=shown(point))
        for tensor in tensors:
            require_differentiable(tensor.node, name_of(function))
        # A Python float stays weakly typed inside the function.
        arguments = [leaf if is_weak_float(leaf) else tensor for leaf, tensor in zip(leaves, tensors, strict=True)]

        def of_leaf(position: int) -> Any:
            """Computes the derivative with respect to one leaf, along all of its directions."""
            tensor = tensors[position]

            def along(direction: Tensor) -> Any:
                def evaluate_at(x: Tensor) -> Any:
                    return of_point(unflatten(structure, [*arguments[:position], x, *arguments[position + 1 :]]))

                tangent = jvp(evaluate_at, [arguments[position]], [direction])[1]
                if is_complex(tensor):
                    leaves = flatten(tangent)[0]
                    for leaf in leaves:
                        require_complex(leaf, name_of(function))
                    nonlocal conjugates
                    conjugates = may_conjugate(direction, leaves)
                return tangent

            conjugates, basis = False, _basis(tensor)
            columns = vmap(along, out_axes=-1)(basis)
            if conjugates:
                imaginary = vmap(along, out_axes=-1)(basis * 1j)
                columns = tree_map(lambda c, t: check_complex_linear(c, t * -1j, name_of(function)), columns, imaginary)
            return tree_map(lambda c: reshape(c, (*c.shape[:-1], *tensor.shape)), columns)

        return _transpose_results([of_leaf(position) for position in range(len(tensors))], structure)

    return jacobian


def jacrev(function: Callable[..., Any], argnums: Arguments = 0) -> Callable[..., Any]:
    """Returns the Jacobian in reverse mode, row by row. Its shape is that of the result followed by that of the
    argument.

    Functions with complex arguments and complex results must be holomorphic.

    >>> import livegrad as lg
    >>> lg.jacrev(lambda x: lg.sum(x * x))(lg.asarray([1.0, 2.0]))
    Tensor([2., 4.], dtype=float32)
    """
    require_callable(function, "jacrev")

    @wraps(function, updated=())
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        point, of_point = _by_arguments(function, args, kwargs, argnums)
        of_point.__name__ = name_of(function)
        value, pullback = vjp(of_point, point)
        leaves, structure = flatten(value)
        silent = [wrap(zero(leaf.type)) for leaf in leaves]

        def of_result(position: int) -> Any:
            leaf = leaves[position]

            def pulled(direction: Tensor) -> Any:
                return pullback(unflatten(structure, [*silent[:position], direction, *silent[position + 1 :]]))[0]

            def joined(row: Tensor, imaginary: Tensor) -> Tensor:
                """Joins the cotangents of a real argument, which are real for both pulled-back parts."""
                if is_complex(row):
                    return check_complex_linear(row, imaginary * 1j, name_of(function))
                return wrap(make_complex(row.node, imaginary.node))

            basis = _basis(leaf)
            rows = vmap(pulled)(basis)
            if is_complex(leaf):
                rows = tree_map(joined, rows, vmap(pulled)(basis * -1j))
            return tree_map(lambda r: reshape(r, (*leaf.shape, *r.shape[1:])), rows)

        return unflatten(structure, [of_result(position) for position in range(len(leaves))])

    return jacobian


def hessian(function: Callable[..., Any], argnums: Arguments = 0) -> Callable[..., Any]:
    """Returns the Hessian of a function with one real result.

    >>> import livegrad as lg
    >>> lg.hessian(lambda x: x[0] ** 2 * x[1])(lg.asarray([3.0, 5.0]))
    Tensor([[10.,  6.],
            [ 6.,  0.]], dtype=float32)
    """
    return dispatch_transform(function, "hessian", jacfwd(grad(function, argnums), argnums), argnums=argnums)


def _by_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], argnums: Arguments
) -> tuple[Any, Callable[[Any], Any]]:
    """Returns the arguments at `argnums` as one pytree, and the function of that pytree."""
    args, kwargs = bind_by_position(function, *convert_declared_numbers(function, args, kwargs), argnums)
    positions = argument_positions(argnums, len(args), name_of(function))
    is_single = not isinstance(argnums, Iterable)

    def of_point(point: Any) -> Any:
        replaced = dict(zip(positions, [point] if is_single else point, strict=True))
        return call_users(function, [replaced.get(position, arg) for position, arg in enumerate(args)], kwargs)

    return args[positions[0]] if is_single else tuple(args[position] for position in positions), of_point


def _basis(tensor: Tensor) -> Tensor:
    """Returns one unit direction per element of a tensor."""
    return reshape(eye(tensor.size, dtype=tensor.dtype), (tensor.size, *tensor.shape))


def _transpose_results(parts: list[Any], structure: Structure) -> Any:
    """Converts one pytree of results per leaf of the argument to results whose leaves are pytrees like the argument."""
    if structure is None:
        return parts[0]
    leaves = [flatten(part)[0] for part in parts]
    result_structure = flatten(parts[0])[1]
    rows = [unflatten(structure, [column[row] for column in leaves]) for row in range(len(leaves[0]))]
    return unflatten(result_structure, rows)
