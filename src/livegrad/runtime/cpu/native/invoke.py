"""Calls kernels from Python with minimal overhead: Python built-ins around native code, and argument blocks.

In: kernel addresses and argument slots. Calls and loops keep `invoker().invoke` and call it for each step. The code of
the built-ins is in `builtins_ir.py`.
"""

from __future__ import annotations

import ctypes
import threading
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from livegrad.runtime.cpu.native.pool import BUILTINS, runtime

_METH_FASTCALL = 0x80
_METH_O = 0x08


@dataclass(frozen=True)
class NativeInvoker:
    """Built-ins of this process. A kernel is `void(i64 begin, i64 end, ptr args, i64 worker)`."""

    invoke: Callable[[int, int, int, int], None]
    """(kernel, total, grain, args): runs the chunks of [0, total). Keeps the GIL if there is only one."""
    invoke_released: Callable[[int, int, int, int], None]
    """The same, but always without the GIL: for a single chunk that may take long."""
    invoke_sequence: Callable[[int, int], None]
    """(address of records, count): runs records of four words (kernel, total, grain, args) in sequence."""
    invoke_interruptible: Callable[[int, int, int, int], bool]
    """Like `invoke_released`, but SIGINT sets the interrupt flag before it raises KeyboardInterrupt. Returns True, with
    partial results, if the flag was set without an exception: on another thread, or if a Python handler did not
    raise."""
    array_address: Callable[[np.ndarray], int]
    """The address of an array's first element."""
    store_words: Callable[..., None]
    """(block address, index, word, ...): writes integers, or the addresses of arrays, to consecutive words."""


class ArgumentBlock:
    """The 64-bit argument slots of a kernel. `ints[i] = value` is the fastest store of one slot (25 ns),
    `invoker().store_words` of several. `grow` moves the block: read `address` again after it."""

    __slots__ = ("_storage", "address", "doubles", "floats", "ints")

    def __init__(self, words: int) -> None:
        self._attach(array("q", bytes(8 * max(words, 1))))

    @classmethod
    def holding(cls, words: Sequence[int]) -> ArgumentBlock:
        """A block of these words."""
        block = cls.__new__(cls)
        block._attach(array("q", words or (0,)))
        return block

    def _attach(self, storage: array[int]) -> None:
        self._storage = storage
        self.address: int = storage.buffer_info()[0]
        view = memoryview(storage).cast("B")
        self.ints: memoryview[int] = view.cast("q")
        self.doubles: memoryview[float] = view.cast("d")
        self.floats: memoryview[float] = view.cast("f")  # word i is floats[2 * i]

    def __len__(self) -> int:
        return len(self._storage)

    def set_int(self, index: int, value: int) -> None:
        self.ints[index] = value

    def set_f64(self, index: int, value: float) -> None:
        self.doubles[index] = value

    def set_f32(self, index: int, value: float) -> None:
        """Stores to the low half of a slot, because kernels load a float from the slot's address."""
        self.floats[2 * index] = value

    def grow(self, words: int) -> None:
        """Extends the block to at least `words` words, with the same content."""
        if words > len(self):
            self._attach(array("q", self._storage.tobytes() + bytes(8 * (words - len(self)))))


class _MethodDefinition(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("address", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("documentation", ctypes.c_char_p)]  # fmt: skip


_definitions: dict[str, _MethodDefinition] = {}  # CPython keeps pointers to them


@lru_cache(maxsize=1)
def invoker() -> NativeInvoker:
    """The built-ins. The first call compiles the run time."""
    builtins = {name: make_builtin(name, runtime().code.addresses[f"py_{name}"]) for name in BUILTINS}
    on_main, off_main = builtins["invoke_interruptible"], builtins["invoke_off_main"]
    main_thread = threading.main_thread().ident

    def invoke_interruptible(kernel: int, total: int, grain: int, args: int) -> bool:
        is_main = threading.get_ident() == main_thread
        return (on_main if is_main else off_main)(kernel, total, grain, args)

    return NativeInvoker(
        invoke=builtins["invoke"],
        invoke_released=builtins["invoke_released"],
        invoke_sequence=builtins["invoke_sequence"],
        invoke_interruptible=invoke_interruptible,
        array_address=_verified(builtins["array_address"]),
        store_words=builtins["store_words"],
    )


def array_address(array: np.ndarray) -> int:
    """The address of an array's first element. Hot code keeps `invoker().array_address` and calls that."""
    return invoker().array_address(array)


_make_function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)


def make_builtin(name: str, address: int, self_object: object = None) -> Callable[..., Any]:
    """Makes a Python built-in from the code at an address, which gets `self_object` as its first argument."""
    definition = _definitions.get(name)
    if definition is None:
        flags = _METH_O if name == "array_address" else _METH_FASTCALL
        definition = _definitions.setdefault(name, _MethodDefinition(name.encode(), address, flags, None))
    return _make_function(ctypes.addressof(definition), self_object, None)


def _verified(address_of: Callable[[np.ndarray], int]) -> Callable[[np.ndarray], int]:
    """Returns `address_of`, or a Python function if this NumPy has the data pointer at another offset."""
    samples = (np.zeros(5), np.zeros((3, 4), np.float32)[1:, ::2], np.zeros(7, np.int8)[3:], np.zeros(0))
    if all(address_of(sample) == sample.ctypes.data for sample in samples):
        return address_of
    return lambda array: array.__array_interface__["data"][0]
