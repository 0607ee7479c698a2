"""Tensors from data, from numbers and from rules. Part of the namespace of tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from livegrad.authoring.tensor.arguments import shape_from
from livegrad.authoring.tensor.constants import Number, number_node
from livegrad.authoring.tensor.devices import placed
from livegrad.authoring.tensor.dtypes import (
    DEFAULT_COMPLEX,
    DEFAULT_FLOAT,
    DEFAULT_INTEGER,
    default_type,
    dtype_from,
)
from livegrad.authoring.tensor.errors import DtypeError, NumberRangeError, ShapeError
from livegrad.authoring.tensor.handle import Tensor, node_of, wrap, wrap_array
from livegrad.authoring.tensor.methods import namespace
from livegrad.authoring.tensor.operands import of_one_type
from livegrad.authoring.tensor.weakness import cast_number, is_weak, settled, typed
from livegrad.backends.arguments import is_dense, scalar_range
from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.bfloat16 import BFLOAT16, narrow, readable
from livegrad.ir.dimension import Dimension, Size
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, bf16, f32, f64, i32, i64, scalar_of, scalar_of_dtype, shape_of
from livegrad.ops.comparison import greater_equal, less_equal
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import select
from livegrad.ops.movement import broadcast_to, index_along, iota, reshape
from livegrad.ops.rules import zero

# --- from data -------------------------------------------------------------------------------------------------------


def asarray(obj: Any, /, *, dtype: Any = None, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor of the given data: nested lists of numbers, a tensor, or anything that NumPy or DLPack can read.

    Python floats become float32, integers int64, complex numbers complex64; arrays keep their type, in lists too. Lists
    of tensors are stacked, lazily and with gradients. Data is copied unless `copy=False`, which shares memory or
    raises: results below such a tensor are computed anew each time.

    >>> import livegrad as lg
    >>> lg.asarray([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    wanted = None if dtype is None else dtype_from(dtype, "asarray")
    if isinstance(obj, np.ma.MaskedArray) and np.ma.is_masked(obj):
        raise UsageError("a tensor has no masked elements", where=caller_origin(), help="use array.filled(value)")
    if isinstance(obj, Tensor):
        return placed(_retyped(obj, wanted, copy), device)
    typed_items = list(_typed_items(obj)) if isinstance(obj, list | tuple) else []
    if isinstance(obj, list | tuple) and any(isinstance(item, Tensor) for item in typed_items):
        if copy is False:
            raise UsageError("a list of tensors cannot be shared", where=caller_origin())
        return placed(_retyped(_stacked(obj), wanted, None), device)
    if isinstance(obj, np.ndarray | np.generic):
        array, plain = np.asarray(obj), False
    elif _is_read_by_numpy(obj, copy):
        array, plain = _read(obj, wanted), not hasattr(obj, "dtype")
        floats = [item for item in typed_items if item.dtype.kind in "fc"]
        if floats and array.dtype.kind in "fc":  # Python's numbers take the type of the arrays beside them
            array, plain = array.astype(np.result_type(*floats, 0.0 if array.dtype.kind == "f" else 0j)), False
    else:
        return placed(_retyped(from_dlpack(obj, copy=copy), wanted, copy), device)
    if array.dtype.name == "bfloat16":  # of the package ml_dtypes
        array = array.view(BFLOAT16)
    if wanted is None:
        wanted = _type_of_data(array, plain)
    if copy is False:
        return placed(_shared(array, obj, wanted), device)
    return placed(wrap_array(_copied(array, wanted)), device)


def _is_read_by_numpy(obj: Any, copy: bool | None) -> bool:
    """Whether NumPy takes an object, rather than DLPack; what it makes of others' arrays may be a copy."""
    if not hasattr(obj, "__dlpack__") or hasattr(obj, "__array_interface__"):
        return True
    return hasattr(obj, "__array__") and copy is not False


def _retyped(tensor: Tensor, wanted: Scalar | None, copy: bool | None) -> Tensor:
    own = tensor.dtype  # a tensor that was freed is refused here
    if is_weak(tensor.node):
        return wrap(settled(tensor.node) if wanted is None else typed(cast_number(tensor.node, wanted)))
    if wanted is None or wanted is own:
        return tensor.__copy__() if copy else tensor
    if copy is False:
        raise UsageError(
            "another element type needs a copy", where=caller_origin(), found=f"{tensor.dtype} to {wanted}"
        )
    if tensor.dtype.kind == "complex" and wanted.kind != "complex":
        raise DtypeError("complex numbers cannot become real ones", where=caller_origin(), help="take lg.real first")
    return wrap(cast(tensor.node, type=wanted))


def _typed_items(items: Sequence[Any]) -> Iterator[Any]:
    """What in nested lists has an element type of its own: tensors, arrays and numbers of NumPy."""
    for item in items:
        if isinstance(item, list | tuple):
            yield from _typed_items(item)
        elif isinstance(item, Tensor | np.ndarray | np.generic):
            yield item


def holds_tensors(value: Any) -> bool:
    """Whether a value is a list, or a nest of lists, with tensors in it."""
    return isinstance(value, list | tuple) and any(isinstance(item, Tensor) for item in _typed_items(value))


def _stacked(items: Sequence[Any]) -> Tensor:
    """Nested lists with tensors in them as one tensor."""
    leaves: list[Any] = []
    shape = _collect(items, leaves)
    nodes = [wrap(node) for node in of_one_type("asarray", *leaves)]
    own = {node.shape for node in nodes}
    if len(own) != 1:
        raise UsageError("not numbers of one shape", where=caller_origin(), found=", ".join(sorted(map(str, own))))
    stack, reshaped = namespace().stack, namespace().reshape
    return reshaped(stack(nodes), (*shape, *own.pop()))


def _collect(items: Any, leaves: list[Any]) -> tuple[int, ...]:
    """The shape of nested lists, whose other items are appended to `leaves`."""
    if not isinstance(items, list | tuple):
        leaves.append(items)
        return ()
    shapes = {_collect(item, leaves) for item in items}
    if len(shapes) != 1:
        raise UsageError("not numbers of one shape", where=caller_origin(), found="lists of different lengths")
    return (len(items), *shapes.pop())


def _read(obj: Any, wanted: Scalar | None) -> np.ndarray[Any, Any]:
    try:
        if wanted is not None and wanted.kind == "complex" and isinstance(obj, list | tuple | complex | float | int):
            return np.asarray(obj, np.complex128)  # parts keep signed zeros and infinities
        return np.asarray(obj)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:  # torch, of a variable
        raise UsageError(
            "not numbers of one shape", where=caller_origin(), found=type(obj).__name__, help=str(error)
        ) from None


def _type_of_data(array: np.ndarray[Any, Any], plain: bool) -> Scalar:
    if plain and array.dtype.kind in "fc":
        return DEFAULT_FLOAT if array.dtype.kind == "f" else DEFAULT_COMPLEX
    if plain and array.dtype == np.uint64:
        raise UsageError(
            f"an integer that no {DEFAULT_INTEGER} holds", where=caller_origin(), help="pass dtype=lg.uint64"
        )
    try:
        return scalar_of_dtype(array.dtype.newbyteorder("="))
    except UsageError:
        raise DtypeError("no dtype for this data", where=caller_origin(), found=str(array.dtype)) from None


def _shared(array: np.ndarray[Any, Any], obj: Any, wanted: Scalar) -> Tensor:
    owned = isinstance(obj, np.ndarray) or hasattr(obj, "__array_interface__") or isinstance(obj, memoryview)
    if not owned or array.dtype != wanted.dtype or not is_dense(array):
        raise UsageError("this data cannot be shared", where=caller_origin(), expected=f"a dense array of {wanted}")
    return wrap_array(array, external=True)


def _copied(array: np.ndarray[Any, Any], wanted: Scalar) -> np.ndarray[Any, Any]:
    """A dense copy of our own, in the type that is wanted; what no integer of it can be is refused.

    Floats are rounded, beyond their range to infinity, as in other libraries and by `astype`.
    """
    array = readable(array)
    if wanted is bf16:
        return narrow(_copied(array, f32))
    kind = array.dtype.kind
    if kind not in "buifc" or (kind == "c" and wanted.kind != "complex"):
        raise DtypeError(f"this data cannot become {wanted}", where=caller_origin(), found=str(array.dtype))
    with np.errstate(all="ignore"):
        made = np.array(array, dtype=wanted.dtype, order="C")
    if wanted.kind in ("signed", "unsigned") and array.dtype != wanted.dtype:
        _require_none(made != (np.trunc(array) if kind == "f" else array), array, wanted)
    return made


def _require_none(wrong: np.ndarray[Any, Any], array: np.ndarray[Any, Any], wanted: Scalar) -> None:
    """Refuses data in which some numbers do not fit."""
    if wrong.any():
        found = np.asarray(array[wrong]).reshape(-1)[0]
        raise NumberRangeError(f"{found} is out of the range of {wanted.long_name}", where=caller_origin())


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor of the data of another library's array, which is shared unless `copy=True`.

    What is computed from shared memory is computed anew each time, because its owner may write to it.

    >>> import numpy as np
    >>> import livegrad as lg
    >>> lg.from_dlpack(np.arange(3))
    Tensor([0, 1, 2], dtype=int64)
    """
    if isinstance(x, Tensor):
        return placed(_retyped(x, None, copy), device)
    try:
        array = np.from_dlpack(x, copy=copy)
    except (AttributeError, TypeError, BufferError, RuntimeError) as error:
        raise UsageError(
            "this array cannot be taken over", where=caller_origin(), found=type(x).__name__, help=str(error)
        ) from None
    if copy or not is_dense(array):
        if copy is False:
            raise UsageError("this data cannot be shared", where=caller_origin(), expected="a dense array")
        return placed(wrap_array(np.array(array, order="C")), device)
    return placed(wrap_array(array, external=True), device)


# --- from a number ---------------------------------------------------------------------------------------------------


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """A tensor with one number everywhere.

    >>> import livegrad as lg
    >>> lg.full((2, 2), 7)
    Tensor([[7, 7],
            [7, 7]], dtype=int64)
    """
    sizes = shape_from(shape, "full")
    if isinstance(fill_value, Tensor):
        return placed(_spread(fill_value, sizes, dtype), device)
    if isinstance(fill_value, np.generic):
        fill_value = fill_value.item()
    if not isinstance(fill_value, Number):
        raise UsageError("`full` takes a number", where=caller_origin(), found=repr(fill_value))
    wanted = default_type(fill_value) if dtype is None else dtype_from(dtype, "full")
    return placed(wrap(typed(number_node(_number_for(fill_value, wanted), wanted, sizes))), device)


def _number_for(value: Number, wanted: Scalar) -> Number:
    """Whole floats may stand for integers, as in asarray."""
    if wanted.kind in ("signed", "unsigned") and isinstance(value, float) and value.is_integer():
        return int(value)
    return bool(value) if wanted.kind == "bool" and value in (0, 1) else value


_RANK = {"bool": 0, "signed": 1, "unsigned": 1, "float": 2, "complex": 3}


def _spread(value: Tensor, sizes: tuple[Size, ...], dtype: Any) -> Tensor:
    if value.shape != ():
        raise ShapeError("`full` takes a single number", where=caller_origin(), found=f"shape {value.shape}")
    wanted = None if dtype is None else dtype_from(dtype, "full")
    if wanted is not None and _RANK[value.dtype.kind] > _RANK[wanted.kind]:
        raise DtypeError(
            f"`full` cannot make a {value.dtype.kind} {wanted}",
            where=caller_origin(),
            help="cast it first: lg.astype(value, dtype)",
        )
    return wrap(broadcast_to(_retyped(value, wanted, None).node, sizes))


def zeros(shape: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Zeros, in float32 unless told otherwise.

    >>> import livegrad as lg
    >>> lg.zeros(3)
    Tensor([0., 0., 0.], dtype=float32)
    """
    return _constant(shape, 0, dtype, device, "zeros")


def ones(shape: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Ones, in float32 unless told otherwise.

    >>> import livegrad as lg
    >>> lg.ones(3, dtype=lg.int8)
    Tensor([1, 1, 1], dtype=int8)
    """
    return _constant(shape, 1, dtype, device, "ones")


def empty(shape: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """A tensor whose elements are yet to be set, with `fill` or by assignment. They are zeros until then.

    >>> import livegrad as lg
    >>> lg.empty((2, 3)).shape
    (2, 3)
    """
    sizes = shape_from(shape, "empty")
    if any(isinstance(size, Dimension) for size in sizes):
        return _constant(sizes, 0, dtype, device, "empty")
    wanted = DEFAULT_FLOAT if dtype is None else dtype_from(dtype, "empty")
    return placed(wrap_array(np.zeros(sizes, wanted.dtype)), device)  # type: ignore[arg-type]


def _constant(shape: Any, value: int, dtype: Any, device: str | None, user: str) -> Tensor:
    wanted = DEFAULT_FLOAT if dtype is None else dtype_from(dtype, user)
    number = bool(value) if wanted.kind == "bool" else value
    return placed(wrap(typed(number_node(number, wanted, shape_from(shape, user)))), device)


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """One number everywhere, in the shape (and type) of another tensor.

    >>> import livegrad as lg
    >>> lg.full_like(lg.asarray([1, 2]), 5)
    Tensor([5, 5], dtype=int64)
    """
    node = node_of(x, "full_like")
    return full(shape_of(node.type), fill_value, dtype=scalar_of(node.type) if dtype is None else dtype, device=device)


def zeros_like(x: Any, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Zeros in the shape (and type) of another tensor.

    >>> import livegrad as lg
    >>> lg.zeros_like(lg.asarray([1, 2]))
    Tensor([0, 0], dtype=int64)
    """
    return _constant_like(x, 0, dtype, device, "zeros_like")


def ones_like(x: Any, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Ones in the shape (and type) of another tensor.

    >>> import livegrad as lg
    >>> lg.ones_like(lg.asarray([1, 2]))
    Tensor([1, 1], dtype=int64)
    """
    return _constant_like(x, 1, dtype, device, "ones_like")


def empty_like(x: Any, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """A tensor in the shape (and type) of another, whose elements are yet to be set. They are zeros.

    >>> import livegrad as lg
    >>> lg.empty_like(lg.asarray([1, 2])).dtype == lg.int64
    True
    """
    node = node_of(x, "empty_like")
    return empty(shape_of(node.type), dtype=scalar_of(node.type) if dtype is None else dtype, device=device)


def _constant_like(x: Any, value: int, dtype: Any, device: str | None, user: str) -> Tensor:
    node = node_of(x, user)
    return _constant(shape_of(node.type), value, scalar_of(node.type) if dtype is None else dtype, device, user)


# --- by a rule -------------------------------------------------------------------------------------------------------


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: str | None = None
) -> Tensor:
    """Numbers from `start` up to, but without, `stop`; with one argument from 0 up to that.

    >>> import livegrad as lg
    >>> lg.arange(2, 8, 2)
    Tensor([2, 4, 6], dtype=int64)
    """
    if stop is None:
        start, stop = 0, start
    bounds: list[Any] = [each.item() if isinstance(each, Tensor | np.generic) else each for each in (start, stop, step)]
    first, last, stride = bounds
    if not all(isinstance(each, int | float) and math.isfinite(each) for each in bounds) or stride == 0:
        expected = "finite numbers and a step that is not 0"
        raise UsageError("`arange` cannot count so", where=caller_origin(), expected=expected, found=str(bounds))
    whole = all(isinstance(each, int) for each in bounds)
    wanted = (DEFAULT_INTEGER if whole else DEFAULT_FLOAT) if dtype is None else dtype_from(dtype, "arange")
    if not whole:
        count = max(0, math.ceil((last - first) / stride))
        return placed(wrap_array(_copied(np.arange(count) * stride + first, wanted)), device)
    numbers = range(first, last, stride)
    if first == 0 and stride == 1 and len(numbers) <= scalar_range(i32)[1] and wanted in (i32, i64, f32, f64):
        return placed(wrap(iota(shape=(len(numbers),), axis=0, type=wanted)), device)
    kind = np.uint64 if numbers and max(numbers[0], numbers[-1]) > scalar_range(i64)[1] else np.int64
    try:
        values = np.arange(first, last, stride, dtype=kind)
    except OverflowError:
        raise NumberRangeError("an integer that no type holds", where=caller_origin(), found=str(bounds)) from None
    return placed(wrap_array(_copied(values, wanted)), device)


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: str | None = None,
    endpoint: bool = True,
) -> Tensor:
    """`num` numbers evenly spread from `start` to `stop`, which is the last of them unless `endpoint=False`.

    >>> import livegrad as lg
    >>> lg.linspace(0, 1, 5)
    Tensor([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    first, last = (each.item() if isinstance(each, Tensor | np.generic) else each for each in (start, stop))
    if isinstance(num, bool) or not isinstance(num, int) or num < 0:
        raise UsageError("not a number of points", where=caller_origin(), expected="num >= 0", found=repr(num))
    default = DEFAULT_COMPLEX if isinstance(first, complex) or isinstance(last, complex) else DEFAULT_FLOAT
    wanted = default if dtype is None else dtype_from(dtype, "linspace")
    with np.errstate(all="ignore"):
        numbers = np.linspace(first, last, num, endpoint=endpoint)
    return placed(wrap_array(_copied(numbers, wanted)), device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: str | None = None
) -> Tensor:
    """Ones on the k-th diagonal, zeros elsewhere.

    >>> import livegrad as lg
    >>> lg.eye(2)
    Tensor([[1., 0.],
            [0., 1.]], dtype=float32)
    """
    shape = shape_from((n_rows, n_rows if n_cols is None else n_cols), "eye")
    wanted = DEFAULT_FLOAT if dtype is None else dtype_from(dtype, "eye")
    on = _column_beyond(shape, k)
    diagonal = greater_equal(on, 0) & less_equal(on, 0)
    return placed(wrap(diagonal if wanted.kind == "bool" else cast(diagonal, type=wanted)), device)


def _column_beyond(shape: tuple[Size, ...], k: int) -> Node:
    """How far each element of a matrix lies to the right of the k-th diagonal."""
    rank = len(shape)
    rows, columns = shape[-2:]
    if isinstance(rows, int) and isinstance(columns, int):
        k = max(-rows, min(k, columns))  # diagonals beyond the corners are all alike
    return index_along(shape, rank - 1) - index_along(shape, rank - 2) - k


def tril(x: Any, /, *, k: int = 0) -> Tensor:
    """The matrix (or each of several) with zeros above the k-th diagonal.

    >>> import livegrad as lg
    >>> lg.tril(lg.ones((2, 2), dtype=lg.int64))
    Tensor([[1, 0],
            [1, 1]], dtype=int64)
    """
    node = _matrices(x, "tril")
    return wrap(select(less_equal(_column_beyond(shape_of(node.type), k), 0), node, zero(node.type)))


def triu(x: Any, /, *, k: int = 0) -> Tensor:
    """The matrix (or each of several) with zeros below the k-th diagonal.

    >>> import livegrad as lg
    >>> lg.triu(lg.ones((2, 2), dtype=lg.int64))
    Tensor([[1, 1],
            [0, 1]], dtype=int64)
    """
    node = _matrices(x, "triu")
    return wrap(select(greater_equal(_column_beyond(shape_of(node.type), k), 0), node, zero(node.type)))


def _matrices(x: Any, user: str) -> Node:
    node = node_of(x, user)
    if len(shape_of(node.type)) < 2:
        raise ShapeError(f"`{user}` takes matrices", where=caller_origin(), found=f"shape {shape_of(node.type)}")
    return node


def meshgrid(*arrays: Any, indexing: str = "xy") -> tuple[Tensor, ...]:
    """The coordinates of a grid from those along each axis; "xy" swaps the first two axes, "ij" does not.

    >>> import livegrad as lg
    >>> x, y = lg.meshgrid(lg.arange(3), lg.arange(2))
    >>> x
    Tensor([[0, 1, 2],
            [0, 1, 2]], dtype=int64)
    """
    if indexing not in ("xy", "ij"):
        raise UsageError(f"`meshgrid` has no indexing {indexing!r}", where=caller_origin(), expected="'xy' or 'ij'")
    nodes = [node_of(each, "meshgrid") for each in arrays]
    if any(len(shape_of(node.type)) > 1 for node in nodes):
        raise ShapeError("`meshgrid` takes sequences", where=caller_origin(), expected="one dimension each")
    if len({node.type.element for node in nodes}) > 1:  # type: ignore[attr-defined]
        raise DtypeError("`meshgrid` takes sequences of one type", where=caller_origin())
    lengths = [(shape_of(node.type) or (1,))[0] for node in nodes]
    order = list(range(len(nodes)))
    if indexing == "xy" and len(nodes) > 1:
        order[0], order[1] = 1, 0
    shape = tuple(lengths[axis] for axis in order)
    return tuple(
        wrap(broadcast_to(reshape(node, shape=tuple(lengths[own] if a == own else 1 for a in order)), shape))
        for own, node in enumerate(nodes)
    )
