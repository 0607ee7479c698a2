"""Creation functions of the tensor namespace: tensors from data and from numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.ir.bfloat16 import BFLOAT16, narrow, readable
from livegrad.ir.dimension import Dimension, Size
from livegrad.ir.types import Scalar, bf16, f32, is_native, scalar_of, scalar_of_dtype, shape_of
from livegrad.ops.conversion import cast
from livegrad.ops.movement import broadcast_to
from livegrad.runtime.arguments import is_dense
from livegrad.tensors.array_handles import wrap_array
from livegrad.tensors.axes_and_shapes import normalise_shape
from livegrad.tensors.dtypes import (
    DEFAULT_COMPLEX,
    DEFAULT_FLOAT,
    DEFAULT_INTEGER,
    default_type,
    dtype_from,
)
from livegrad.tensors.errors import DtypeError, NumberRangeError, ShapeError
from livegrad.tensors.handle import Tensor, node_of, wrap
from livegrad.tensors.methods import namespace
from livegrad.tensors.number_nodes import Number, number_node
from livegrad.tensors.operands import promote_operands
from livegrad.tensors.placement import place_on
from livegrad.tensors.weak_types import cast_number, give_default_type, is_weak, make_strong

# --- from data -------------------------------------------------------------------------------------------------------


def asarray(obj: Any, /, *, dtype: Any = None, device: str | None = None, copy: bool | None = None) -> Tensor:
    """Creates a tensor from nested lists of numbers, a tensor, or anything that NumPy or DLPack can read.

    Python floats become float32, integers int64, complex numbers complex64. Arrays keep their type, also in lists.
    Lists of tensors are stacked, lazily and with gradients. Data is copied unless `copy=False`, which shares memory or
    raises; results computed from shared memory are recomputed at each read.

    >>> import livegrad as lg
    >>> lg.asarray([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    if obj.__class__ is np.ndarray and dtype is None and device is None and copy is not False and is_native(obj.dtype):
        return wrap_array(np.array(obj, order="C"))  # the usual case
    target_type = None if dtype is None else dtype_from(dtype, "asarray")
    if isinstance(obj, np.ma.MaskedArray) and np.ma.is_masked(obj):
        raise UsageError("a tensor has no masked elements", where=caller_origin(), help="use array.filled(value)")
    if isinstance(obj, Tensor):
        return place_on(_convert_tensor(obj, target_type, copy), device)
    items_with_dtype = list(_items_with_dtype(obj)) if isinstance(obj, list | tuple) else []
    if isinstance(obj, list | tuple) and any(isinstance(item, Tensor) for item in items_with_dtype):
        if copy is False:
            raise UsageError("a list of tensors cannot share memory with the result", where=caller_origin())
        return place_on(_convert_tensor(_stack_lists(obj), target_type, None), device)
    if isinstance(obj, np.ndarray | np.generic):
        array, is_untyped = np.asarray(obj), False
    elif _is_read_by_numpy(obj, copy):
        array, is_untyped = _read_array(obj, target_type), not hasattr(obj, "dtype")
        float_items = [item for item in items_with_dtype if item.dtype.kind in "fc"]
        if float_items and array.dtype.kind in "fc":  # Python's numbers take the type of the arrays beside them
            array, is_untyped = (
                array.astype(np.result_type(*float_items, 0.0 if array.dtype.kind == "f" else 0j)),
                False,
            )
    else:
        return place_on(_convert_tensor(from_dlpack(obj, copy=copy), target_type, copy), device)
    if array.dtype.name == "bfloat16":  # of the package ml_dtypes
        array = array.view(BFLOAT16)
    if target_type is None:
        target_type = _type_of_data(array, is_untyped)
    if copy is False:
        return place_on(_share_memory(array, obj, target_type), device)
    return place_on(wrap_array(convert_copy(array, target_type)), device)


def _is_read_by_numpy(obj: Any, copy: bool | None) -> bool:
    """Whether NumPy rather than DLPack reads an object; NumPy may copy arrays of other libraries."""
    if not hasattr(obj, "__dlpack__") or hasattr(obj, "__array_interface__"):
        return True
    return hasattr(obj, "__array__") and copy is not False


def _convert_tensor(tensor: Tensor, target_type: Scalar | None, copy: bool | None) -> Tensor:
    dtype = tensor.dtype  # a tensor that was freed is refused here
    if is_weak(tensor.node):
        return wrap(
            give_default_type(tensor.node)
            if target_type is None
            else make_strong(cast_number(tensor.node, target_type))
        )
    if target_type is None or target_type is dtype:
        return tensor.__copy__() if copy else tensor
    if copy is False:
        raise UsageError(
            "another element type needs a copy", where=caller_origin(), found=f"{tensor.dtype} to {target_type}"
        )
    if tensor.dtype.kind == "complex" and target_type.kind != "complex":
        raise DtypeError(
            "complex numbers cannot be converted to real numbers", where=caller_origin(), help="take lg.real first"
        )
    return wrap(cast(tensor.node, type=target_type))


def _items_with_dtype(items: Sequence[Any]) -> Iterator[Any]:
    """Yields the items of nested lists that have an element type: tensors, NumPy arrays and NumPy scalars."""
    for item in items:
        if isinstance(item, list | tuple):
            yield from _items_with_dtype(item)
        elif isinstance(item, Tensor | np.ndarray | np.generic):
            yield item


def holds_tensors(value: Any) -> bool:
    """Whether a value is a list that contains tensors, also in nested lists."""
    return isinstance(value, list | tuple) and any(isinstance(item, Tensor) for item in _items_with_dtype(value))


def _stack_lists(items: Sequence[Any]) -> Tensor:
    """Stacks nested lists that contain tensors to one tensor."""
    leaves: list[Any] = []
    shape = _collect(items, leaves)
    nodes = [wrap(node) for node in promote_operands("asarray", *leaves)]
    shapes = {node.shape for node in nodes}
    if len(shapes) != 1:
        raise UsageError(
            "cannot stack tensors of different shapes", where=caller_origin(), found=", ".join(sorted(map(str, shapes)))
        )
    stack, reshaped = namespace().stack, namespace().reshape
    return reshaped(stack(nodes), (*shape, *shapes.pop()))


def _collect(items: Any, leaves: list[Any]) -> tuple[int, ...]:
    """Appends the items of nested lists to `leaves` and returns the shape of the nesting."""
    if not isinstance(items, list | tuple):
        leaves.append(items)
        return ()
    shapes = {_collect(item, leaves) for item in items}
    if len(shapes) != 1:
        raise UsageError(
            "nested lists must have equal lengths", where=caller_origin(), found="lists of different lengths"
        )
    return (len(items), *shapes.pop())


def _read_array(obj: Any, target_type: Scalar | None) -> np.ndarray[Any, Any]:
    try:
        if (
            target_type is not None
            and target_type.kind == "complex"
            and isinstance(obj, list | tuple | complex | float | int)
        ):
            return np.asarray(obj, np.complex128)  # parts keep signed zeros and infinities
        array = np.asarray(obj)
        if array.dtype == object and target_type is not None and target_type.kind == "float" and _holds_integers(array):
            return array.astype(np.float64)  # integers of more than 64 bits
        return array
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:  # PyTorch raises for variables
        raise UsageError(
            "this data is not an array of numbers", where=caller_origin(), found=type(obj).__name__, help=str(error)
        ) from None


def _type_of_data(array: np.ndarray[Any, Any], is_untyped: bool) -> Scalar:
    if is_untyped and array.dtype.kind in "fc":
        return DEFAULT_FLOAT if array.dtype.kind == "f" else DEFAULT_COMPLEX
    if (is_untyped and array.dtype == np.uint64) or _holds_integers(array):
        raise _integer_range_error(array, DEFAULT_INTEGER)
    try:
        return scalar_of_dtype(array.dtype.newbyteorder("="))
    except UsageError:
        raise DtypeError("no dtype for this data", where=caller_origin(), found=str(array.dtype)) from None


def _holds_integers(array: np.ndarray[Any, Any]) -> bool:
    """Whether the elements are Python integers too large for NumPy's types, which makes them objects."""
    return array.dtype == object and all(isinstance(value, int) for value in array.reshape(-1))


def _integer_range_error(integers: np.ndarray[Any, Any], target_type: Scalar) -> NumberRangeError:
    return NumberRangeError(
        f"an integer does not fit {target_type.long_name}",
        where=caller_origin(),
        found=shown(max(integers.reshape(-1).tolist(), key=abs)),
        help="pass dtype=lg.uint64 for up to 2**64 - 1, or dtype=lg.float64 for about the same number",
    )


def _share_memory(array: np.ndarray[Any, Any], obj: Any, target_type: Scalar) -> Tensor:
    owns_memory = isinstance(obj, np.ndarray) or hasattr(obj, "__array_interface__") or isinstance(obj, memoryview)
    if not owns_memory or array.dtype != target_type.dtype or not is_dense(array):
        raise UsageError(
            "this data cannot be shared", where=caller_origin(), expected=f"a dense array of {target_type}"
        )
    return wrap_array(array, external=True)


def convert_copy(array: np.ndarray[Any, Any], target_type: Scalar) -> np.ndarray[Any, Any]:
    """Returns a dense copy in the wanted type; raises for values that an integer type cannot represent.

    Floats are rounded, and overflow to infinity, as in other libraries and in `astype`.
    """
    array = readable(array)
    if target_type is bf16:
        return narrow(convert_copy(array, f32))
    kind = array.dtype.kind
    if target_type.kind in ("signed", "unsigned") and _holds_integers(array):
        raise _integer_range_error(array, target_type)
    if kind not in "buifc" or (kind == "c" and target_type.kind != "complex"):
        raise DtypeError(f"this data cannot become {target_type}", where=caller_origin(), found=str(array.dtype))
    with np.errstate(all="ignore"):
        result = np.array(array, dtype=target_type.dtype, order="C")
    if target_type.kind in ("signed", "unsigned") and array.dtype != target_type.dtype:
        _require_in_range(result != (np.trunc(array) if kind == "f" else array), array, target_type)
    return result


def _require_in_range(wrong: np.ndarray[Any, Any], array: np.ndarray[Any, Any], target_type: Scalar) -> None:
    """Raises if any number does not fit the type."""
    if wrong.any():
        offender = np.asarray(array[wrong]).reshape(-1)[0]
        raise NumberRangeError(f"{offender} is out of the range of {target_type.long_name}", where=caller_origin())


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """Creates a tensor from the array of another library. The memory is shared unless `copy=True`.

    Results computed from shared memory are recomputed at each read, because its owner may write to it.

    >>> import numpy as np
    >>> import livegrad as lg
    >>> lg.from_dlpack(np.arange(3))
    Tensor([0, 1, 2], dtype=int64)
    """
    if isinstance(x, Tensor):
        return place_on(_convert_tensor(x, None, copy), device)
    try:
        array = np.from_dlpack(x, copy=copy)
    except (AttributeError, TypeError, BufferError, RuntimeError) as error:
        raise UsageError(
            "this array cannot be imported", where=caller_origin(), found=type(x).__name__, help=str(error)
        ) from None
    if copy or not is_dense(array):
        if copy is False:
            raise UsageError("this data cannot be shared", where=caller_origin(), expected="a dense array")
        return place_on(wrap_array(np.array(array, order="C")), device)
    return place_on(wrap_array(array, external=True), device)


# --- from a number ---------------------------------------------------------------------------------------------------


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Creates a tensor filled with one number.

    >>> import livegrad as lg
    >>> lg.full((2, 2), 7)
    Tensor([[7, 7],
            [7, 7]], dtype=int64)
    """
    sizes = normalise_shape(shape, "full")
    if isinstance(fill_value, Tensor):
        return place_on(_broadcast_scalar(fill_value, sizes, dtype), device)
    if isinstance(fill_value, np.generic):
        fill_value = fill_value.item()
    if not isinstance(fill_value, Number):
        raise UsageError("`full` takes a number", where=caller_origin(), found=repr(fill_value))
    target_type = default_type(fill_value) if dtype is None else dtype_from(dtype, "full")
    return place_on(
        wrap(make_strong(number_node(_convert_fill_value(fill_value, target_type), target_type, sizes))), device
    )


def _convert_fill_value(value: Number, target_type: Scalar) -> Number:
    """Converts a fill value for the wanted type: floats without a fraction may become integers, as in `asarray`."""
    if target_type.kind in ("signed", "unsigned") and isinstance(value, float) and value.is_integer():
        return int(value)
    return bool(value) if target_type.kind == "bool" and value in (0, 1) else value


_KIND_RANK = {"bool": 0, "signed": 1, "unsigned": 1, "float": 2, "complex": 3}


def _broadcast_scalar(value: Tensor, sizes: tuple[Size, ...], dtype: Any) -> Tensor:
    if value.shape != ():
        raise ShapeError("`full` takes a single number", where=caller_origin(), found=f"shape {value.shape}")
    target_type = None if dtype is None else dtype_from(dtype, "full")
    if target_type is not None and _KIND_RANK[value.dtype.kind] > _KIND_RANK[target_type.kind]:
        raise DtypeError(
            f"`full` cannot convert a {value.dtype.kind} value to {target_type}",
            where=caller_origin(),
            help="cast it first: lg.astype(value, dtype)",
        )
    return wrap(broadcast_to(_convert_tensor(value, target_type, None).node, sizes))


def zeros(shape: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Creates a tensor of zeros, by default float32.

    >>> import livegrad as lg
    >>> lg.zeros(3)
    Tensor([0., 0., 0.], dtype=float32)
    """
    return _constant(shape, 0, dtype, device, "zeros")


def ones(shape: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Creates a tensor of ones, by default float32.

    >>> import livegrad as lg
    >>> lg.ones(3, dtype=lg.int8)
    Tensor([1, 1, 1], dtype=int8)
    """
    return _constant(shape, 1, dtype, device, "ones")


def empty(shape: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Creates a tensor to be filled later, with `fill` or by assignment. It is initialised with zeros.

    >>> import livegrad as lg
    >>> lg.empty((2, 3)).shape
    (2, 3)
    """
    sizes = normalise_shape(shape, "empty")
    if any(isinstance(size, Dimension) for size in sizes):
        return _constant(sizes, 0, dtype, device, "empty")
    target_type = DEFAULT_FLOAT if dtype is None else dtype_from(dtype, "empty")
    return place_on(wrap_array(np.zeros(sizes, target_type.dtype)), device)  # type: ignore[arg-type]


def _constant(shape: Any, value: int, dtype: Any, device: str | None, user: str) -> Tensor:
    target_type = DEFAULT_FLOAT if dtype is None else dtype_from(dtype, user)
    number = bool(value) if target_type.kind == "bool" else value
    return place_on(wrap(make_strong(number_node(number, target_type, normalise_shape(shape, user)))), device)


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Creates a tensor filled with one number, with the shape and type of another tensor.

    >>> import livegrad as lg
    >>> lg.full_like(lg.asarray([1, 2]), 5)
    Tensor([5, 5], dtype=int64)
    """
    node = node_of(x, "full_like")
    return full(shape_of(node.type), fill_value, dtype=scalar_of(node.type) if dtype is None else dtype, device=device)


def zeros_like(x: Any, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Creates a tensor of zeros with the shape and type of another tensor.

    >>> import livegrad as lg
    >>> lg.zeros_like(lg.asarray([1, 2]))
    Tensor([0, 0], dtype=int64)
    """
    return _constant_like(x, 0, dtype, device, "zeros_like")


def ones_like(x: Any, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Creates a tensor of ones with the shape and type of another tensor.

    >>> import livegrad as lg
    >>> lg.ones_like(lg.asarray([1, 2]))
    Tensor([1, 1], dtype=int64)
    """
    return _constant_like(x, 1, dtype, device, "ones_like")


def empty_like(x: Any, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Creates a tensor to be filled later, with the shape and type of another tensor. It is initialised with zeros.

    >>> import livegrad as lg
    >>> lg.empty_like(lg.asarray([1, 2])).dtype == lg.int64
    True
    """
    node = node_of(x, "empty_like")
    return empty(shape_of(node.type), dtype=scalar_of(node.type) if dtype is None else dtype, device=device)


def _constant_like(x: Any, value: int, dtype: Any, device: str | None, user: str) -> Tensor:
    node = node_of(x, user)
    return _constant(shape_of(node.type), value, scalar_of(node.type) if dtype is None else dtype, device, user)
