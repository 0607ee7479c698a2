"""Sorts in native code: short rows, and the first few elements of long rows. In: sizes, strides. Out: a launch.

Called by `runtime/cpu/step_calls.py`. NumPy sorts long rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from livegrad.codegen.llvm.matmul.product import Launch, OperandName
from livegrad.codegen.llvm.ordering_module import GUARD, ORDERING_SLOTS, Keys, module_text
from livegrad.ir.dimension import round_up
from livegrad.ir.types import Scalar, f32, f64, i32, i64
from livegrad.runtime.cpu.native.host_target import host_target
from livegrad.runtime.cpu.native.llvm_jit import NativeFunction, compile_library

PREFIX = "ordering_"  # of the names of libraries, one for each element type
ELEMENTS: dict[Scalar, str] = {f32: "float32", f64: "float64", i32: "int32", i64: "int64"}
# Ranking compares each element of a row with all others. NumPy vectorises sorts of values, but not stable sorts of
# positions, so the limit is lower for values.
_MAX_RANKED, _MAX_RANKED_VALUES = 128, 32
# The first 4 elements of 64 rows of 50 float64 take 3.3 µs by insertion into a list (9.9 µs in the worst order), and
# 10.1 µs by ranking.
_MIN_SEARCHED = 24
_MAX_LIST = 32  # positions; an insertion at the front moves all of them
_ITEM_COMPARISONS = 1 << 14  # in a work item


@dataclass(frozen=True)
class Ordering:
    """A sort of all rows of a two-dimensional batch. `source` and `target` are the strides of the outer dimension,
    rows and elements in bytes."""

    element: str
    kernel: str
    length: int
    count: int
    outer: int
    inner: int
    source: tuple[int, int, int]
    target: tuple[int, int, int]
    descending: bool


@lru_cache(maxsize=16)
def keys_of(element: str) -> Keys:
    return Keys({name: scalar for scalar, name in ELEMENTS.items()}[element], host_target().vector_bytes)


@lru_cache(maxsize=16)
def library(name: str, kernel: str) -> NativeFunction:
    """A kernel, compiled or read from the disk cache, and never freed."""
    return compile_library(module_text(keys_of(name.removeprefix(PREFIX)), kernel), kernel, speed=1)


def kernel_for(length: int, count: int, *, wants_values: bool, is_contiguous: bool) -> str | None:
    """The kernel that sorts rows of a length and keeps `count` elements; None if NumPy is faster."""
    if wants_values:
        return "rank_values" if 0 < length <= _MAX_RANKED_VALUES else None
    is_few = 0 < count <= _MAX_LIST and 4 * count < length
    if is_few and is_contiguous and length >= _MIN_SEARCHED:
        return "top_positions"
    return "rank_positions" if 0 < length <= _MAX_RANKED else None


def arrange_ordering(ordering: Ordering) -> tuple[Launch, int]:
    """The launch of a sort, and the bytes of scratch memory of each thread."""
    keys = keys_of(ordering.element)
    rounded = -(-ordering.length // keys.lanes) * keys.vector_bytes
    if ordering.kernel == "top_positions":
        scratch = GUARD + 16 * ordering.count + keys.vector_bytes
    else:
        scratch = 2 * rounded + 8 * ordering.length
    scratch = round_up(scratch, 64)
    sides: dict[str, int | OperandName] = {}
    for name, (outer, row, step) in (("source", ordering.source), ("target", ordering.target)):
        sides |= {f"{name}_outer": outer, f"{name}_row": row, f"{name}_step": step}
    values: dict[str, int | OperandName] = {
        "source": "left", "target": "out", "length": ordering.length, "count": ordering.count, "inner": ordering.inner,
        **sides, "flip": 0 if ordering.descending else -1, "scratch": "scratch", "scratch_bytes": scratch,
    }  # fmt: skip
    work = ordering.length * (max(1, ordering.length // keys.lanes) if ordering.kernel != "top_positions" else 1)
    slots: tuple[int | OperandName, ...] = tuple([values[name] for name in ORDERING_SLOTS])
    return Launch(ordering.kernel, slots, ordering.outer * ordering.inner, max(1, _ITEM_COMPARISONS // work)), scratch
