"""Tensors for other libraries: NumPy, DLPack, the array interface, pickles.

A mixin of `Tensor`: it reads values through `numpy()`, which computes them when they are not known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_DLPACK_CPU = 1


class _Unguarded:
    """Memory without the mark that it is read-only, for those who asked for it as it is and know no such mark."""

    def __init__(self, array: Array) -> None:
        self.array = array  # kept alive by whoever uses the memory
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


class Interop:
    """What lets other libraries read a tensor without a copy."""

    __slots__ = ()

    def numpy(self) -> Array:
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """For `np.asarray(tensor)`: a read-only view of the value, or a copy where one is asked for or needed."""
        value = self.numpy()
        if dtype is not None and np.dtype(dtype) != value.dtype:
            if copy is False:
                raise ValueError(f"a tensor of {value.dtype} cannot be read as {np.dtype(dtype)} without a copy")
            return value.astype(dtype)
        return value.copy() if copy else value

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Address, type and shape of the value, which must not be written to."""
        return self.numpy().__array_interface__

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The value as a DLPack capsule; without a copy it must not be written to.

        Consumers before version 1 cannot be told so: they get a copy, unless they ask for none.
        """
        if stream is not None:
            raise ValueError("memory of the CPU has no stream")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the tensor is on the CPU, not on device {dl_device}")
        value = self.numpy()
        tells_read_only = max_version is not None and max_version[0] >= 1
        if copy or (copy is None and not tells_read_only):
            return value.copy().__dlpack__(max_version=max_version)
        if not tells_read_only:
            value = np.asarray(_Unguarded(value))
        return value.__dlpack__(max_version=max_version, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """(kind of device, its number): the CPU."""
        return _DLPACK_CPU, 0

    def __buffer__(self, flags: int) -> memoryview:
        """The value's memory, read-only (for Python 3.12 and later; before, use `memoryview(np.asarray(tensor))`)."""
        return memoryview(self.numpy())  # type: ignore[arg-type]
