"""Interoperability with NumPy, DLPack, the array interface, the buffer protocol and einops.

A mixin of `Tensor`. It reads values through `numpy()`, which computes them if necessary.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.bfloat16 import BFLOAT16, readable
from livegrad.ir.types import bf16
from livegrad.tensors.deferred import compute_now
from livegrad.tensors.errors import ExportError

Array = np.ndarray[Any, Any]
_DLPACK_CPU = 1
_DLPACK_GPU = (2, 0)


class _WritableView:
    """Presents read-only memory as writeable, for consumers that refuse a copy and know no read-only flag."""

    def __init__(self, array: Array) -> None:
        self.array = array  # keeps the memory alive
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


class Interop:
    """The protocols through which other libraries read a tensor without a copy."""

    __slots__ = ()

    _deferred: Any  # defined by `Tensor`

    def numpy(self) -> Array:
        raise NotImplementedError

    def _value(self) -> Array:
        raise NotImplementedError

    def _stored_value(self) -> Any:
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Implements `np.asarray(tensor)`: a read-only view of the value, or a copy if requested or necessary.

        >>> import livegrad as lg, numpy as np
        >>> x = lg.asarray([1.0, 2.0])
        >>> np.shares_memory(np.asarray(x), np.asarray(x)), np.array(x).flags.writeable
        (True, True)
        """
        value = self.numpy()
        if dtype is not None and np.dtype(dtype) != value.dtype:
            if copy is False:
                raise ExportError(
                    "another element type needs a copy",
                    where=caller_origin(),
                    found=f"{value.dtype} to {np.dtype(dtype)}",
                )
            return value.astype(dtype)
        return value.copy() if copy else value

    @property
    def __numpy_dtype__(self: Any) -> np.dtype[Any]:
        """The type that NumPy reads, which `np.result_type(tensor)` and `np.dtype(tensor)` return.

        >>> import livegrad as lg, numpy as np
        >>> np.result_type(lg.ones(2), np.float64)
        dtype('float64')
        """
        return readable(np.empty(0, self.dtype.dtype)).dtype

    @property
    def __array_struct__(self) -> Any:
        """The array interface as a C structure, which NumPy tries first."""
        deferred = self._deferred
        if deferred is not None and deferred[1] is None and deferred[0].type.element is not bf16:
            value = compute_now(deferred[0])  # already read-only
            if value is not None:
                return value.__array_struct__
        value = self._value()
        if value.dtype.kind == "V":
            raise AttributeError("bfloat16 has no array interface")  # NumPy then calls `__array__`
        if value.flags.writeable:  # external memory
            value = value.view()
            value.setflags(write=False)
        return value.__array_struct__

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Address, type and shape of the value, which must not be written to. NumPy has no bfloat16.

        The memory lives as long as the tensor; NumPy keeps the tensor alive while it uses the memory.
        """
        value = self._value()
        if value.dtype == BFLOAT16:
            raise AttributeError("bfloat16 has no array interface")  # NumPy then calls `__array__`
        return self.numpy().__array_interface__

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Returns the value as a DLPack capsule; without a copy it must not be written to.

        DLPack before version 1 has no read-only flag: such consumers get a copy, unless they pass `copy=False`.

        >>> import livegrad as lg, numpy as np
        >>> np.from_dlpack(lg.arange(3))
        array([0, 1, 2])
        """
        device_value = self._stored_value() if self.__dlpack_device__()[0] != _DLPACK_CPU else None
        if device_value is not None and dl_device is None and not copy:
            return device_value.__dlpack__(stream=stream)
        if device_value is None and stream is not None:
            raise ExportError("CPU memory has no stream", where=caller_origin(), found=repr(stream))
        if dl_device is not None and tuple(dl_device) != (_DLPACK_CPU, 0):
            raise ExportError(
                "the tensor is on another device",
                where=caller_origin(),
                expected=f"{(_DLPACK_CPU, 0)}, the CPU",
                found=repr(tuple(dl_device)),
            )
        value = self.numpy()
        if self._value().dtype == BFLOAT16:
            raise ExportError("NumPy cannot export bfloat16", where=caller_origin(), help="cast to float32 first")
        supports_read_only = max_version is not None and max_version[0] >= 1
        if copy is None and not supports_read_only:
            copy = True
        if not supports_read_only and not copy:
            value = np.asarray(_WritableView(value))
        return value.__dlpack__(max_version=max_version, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns (device type, device index): the CPU, or the GPU where the tensor is computed."""
        return _DLPACK_GPU if self.device == "cuda" else (_DLPACK_CPU, 0)  # type: ignore[attr-defined]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Address, type and shape of a value on a GPU, which must not be written to."""
        if self.device != "cuda":  # type: ignore[attr-defined]
            raise AttributeError("the tensor is not on a GPU")
        return self._stored_value().__cuda_array_interface__

    def __buffer__(self, flags: int) -> memoryview:
        """Returns the value's memory, read-only. Python calls this since 3.12; before, use `memoryview(x.numpy())`."""
        return memoryview(self.numpy())  # type: ignore[arg-type]


def register_with_einops() -> None:
    """Makes `einops.rearrange` and related functions accept tensors. `einops.array_api` needs no registration.

    >>> import livegrad as lg
    >>> register_with_einops()
    >>> import einops
    >>> einops.rearrange(lg.arange(6), "(rows columns) -> columns rows", rows=2)
    Tensor([[0, 3],
            [1, 4],
            [2, 5]], dtype=int64)
    """
    try:
        base = importlib.import_module("einops._backends").AbstractBackend
    except ModuleNotFoundError:
        raise UsageError("einops is not installed", where=caller_origin(), help="pip install einops") from None
    _einops_backend(base)


@functools.cache
def _einops_backend(base: type) -> type:
    """Creates the backend class. einops searches the subclasses of its base class for imported frameworks.

    A class holds its subclasses weakly, so the cache keeps this one alive.
    """
    return type("LivegradBackend", (_EinopsBackend, base), {"framework_name": "livegrad"})


class _EinopsBackend:
    """The backend interface of einops, implemented with the Array API."""

    def __init__(self) -> None:
        self.namespace: Any = sys.modules["livegrad"]

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, Interop)

    def from_numpy(self, x: Any) -> Any:
        return self.namespace.asarray(x)

    def to_numpy(self, x: Any) -> Array:
        return x.numpy()

    def arange(self, start: int, stop: int) -> Any:
        return self.namespace.arange(start, stop)

    def reshape(self, x: Any, shape: Any) -> Any:
        return self.namespace.reshape(x, tuple(shape))

    def transpose(self, x: Any, axes: Any) -> Any:
        return self.namespace.permute_dims(x, tuple(axes))

    def reduce(self, x: Any, operation: str, axes: Any) -> Any:
        return getattr(self.namespace, operation)(x, axis=tuple(axes))

    def stack_on_zeroth_dimension(self, tensors: list[Any]) -> Any:
        return self.namespace.stack(tensors, axis=0)

    def add_axis(self, x: Any, new_position: int) -> Any:
        return self.namespace.expand_dims(x, axis=new_position)

    def tile(self, x: Any, repeats: Any) -> Any:
        return self.namespace.tile(x, tuple(repeats))

    def concat(self, tensors: list[Any], axis: int) -> Any:
        return self.namespace.concat(tensors, axis=axis)

    def is_float_type(self, x: Any) -> bool:
        return x.dtype.kind == "float"

    def einsum(self, pattern: str, *x: Any) -> Any:
        return self.namespace.einsum(pattern, *x)
