"""Fourier transforms in native code. In: lengths, strides and batches. Out: kernel launches with their argument slots.

Called by `runtime/cpu/step_calls.py`. Launches depend only on sizes and strides. A transform that is too long for the
workspace of a thread, or a batch of fewer transforms than lanes, takes two launches: the N = N1 · N2 elements are a
matrix whose columns are transformed and multiplied by twiddle factors, and then its rows (Bailey's four-step
algorithm).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from livegrad.codegen.llvm.fourier.butterflies import RADICES, Lanes
from livegrad.codegen.llvm.fourier.rows import CONTIGUOUS, SIDE_BY_SIDE, SPREAD
from livegrad.codegen.llvm.fourier.transform_module import TRANSFORM_SLOTS, module_text, moves_of, pass_name
from livegrad.codegen.llvm.matmul.product import OperandName
from livegrad.ir.types import f32, f64
from livegrad.runtime.cpu.native.host_target import host_target
from livegrad.runtime.cpu.native.llvm_jit import NativeFunction, compile_library

PREFIX = "fourier_"  # of the names of libraries, one for each precision
_MAX_LENGTH = 2048  # elements, so that the workspace of a vector of rows stays in the L2 cache
_MAX_SINGLE_LENGTH = 8192  # elements, if the length has no suitable factors
_MIN_SPLIT_LENGTH = 64
_ITEM_ELEMENTS = 1 << 15  # in a work item


@lru_cache(maxsize=2)
def lanes_of(element: str) -> Lanes:
    """The vectors of this processor for an element type."""
    host = host_target()
    return Lanes({"float32": f32, "float64": f64}[element], host.vector_bytes, host.has_fma)


@lru_cache(maxsize=16)
def library(name: str, kernel: str) -> NativeFunction:
    """A kernel, compiled or read from the disk cache, and never freed."""
    modules = [_module(name, f"rows_{kind}") for kind in moves_of(kernel)]
    imports = {symbol: address for module in modules for symbol, address in module.addresses.items()}
    return compile_library(_text(name, kernel), kernel, speed=1, imports=imports)


@lru_cache(maxsize=32)
def _module(name: str, module: str) -> NativeFunction:
    kind, _, suffix = module.partition("_")
    if kind == "rows":
        exports = (f"load_{suffix}", f"store_{suffix}")
    else:
        exports = (pass_name(int(suffix), False), pass_name(int(suffix), True))
    return compile_library(_text(name, module), exports[0], speed=1, also_export=exports[1:])


def _text(name: str, module: str) -> str:
    return module_text(lanes_of(name.removeprefix(PREFIX)), module)


# --- factors ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def radices_of(length: int) -> tuple[int, ...] | None:
    """The radices of the passes of a transform; None if the length has a prime factor without a butterfly."""
    twos = (length & -length).bit_length() - 1
    rest, odd = length >> twos, []
    for radix in (r for r in RADICES if r % 2):
        while rest % radix == 0:
            odd.append(radix)
            rest //= radix
    if rest != 1:
        return None
    fours = {0: 0, 1: 2, 2: 1}[twos % 3] if twos > 1 else 0
    even = (8,) * ((twos - 2 * fours) // 3) + (4,) * fours if twos > 1 else (2,) * twos
    return (*even, *odd)


def _balanced_factors(length: int, lanes: int) -> tuple[int, int] | None:
    """The two closest factors of a length whose transforms fit the workspace; None if there are none."""
    pairs = [(first, length // first) for first in range(1, int(length**0.5) + 1) if length % first == 0]
    possible = [pair for pair in pairs if lanes <= pair[1] <= _MAX_LENGTH and pair[0] >= lanes // 2]
    return possible[-1] if possible else None


# --- tables -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def table(name: str, length: int, columns: int) -> np.ndarray[Any, Any]:
    """A table of constants: the passes of a transform with their twiddle factors; or, if `columns` is not 0, the
    twiddle factors between the two steps of a long transform.

    The caller must keep the array alive while kernels have its address.
    """
    lanes = lanes_of(name.removeprefix(PREFIX))
    return _factors_between(length, columns, lanes) if columns else _program(name, length, lanes)


def _program(name: str, length: int, lanes: Lanes) -> np.ndarray[Any, Any]:
    radices = radices_of(length)
    assert radices is not None
    records, factors, offset = [], [], 32 * len(radices)
    size, rest = 1, length
    for radix in radices:
        blocks = rest // radix
        code = _module(name, f"radix_{radix}").addresses[pass_name(radix, blocks == 1)]
        records.append((code, blocks, size, offset))
        turns = np.outer(np.arange(blocks), np.arange(1, radix))
        factors.append(_interleave_parts(_roots(turns, rest), lanes))
        offset += factors[-1].nbytes
        size, rest = size * radix, blocks
    return np.concatenate([part.reshape(-1).view(np.uint8) for part in (np.array(records, np.int64), *factors)])


def _roots(turns: np.ndarray[Any, Any], length: int) -> np.ndarray[Any, Any]:
    """exp(-2πi · turns / length). Splits off exact quarter turns, so that angles stay below π/4, for accuracy."""
    quarters = (4 * (turns % length) + length // 2) // length
    angle = (0.5 * np.pi) * ((4 * (turns % length) - quarters * length) / length)
    return np.exp(-1j * angle) * np.array([1, -1j, -1, 1j])[quarters % 4]


def _interleave_parts(values: np.ndarray[Any, Any], lanes: Lanes) -> np.ndarray[Any, Any]:
    real = np.float32 if lanes.type is f32 else np.float64
    return np.ascontiguousarray(values).reshape(-1).view(np.float64).astype(real)


def _factors_between(length: int, columns: int, lanes: Lanes) -> np.ndarray[Any, Any]:
    """Twiddle factors by group of columns, element and lane, as vectors of real and imaginary parts."""
    rows, width = length // columns, lanes.count
    starts = [max(min(first, columns - width), 0) for first in range(0, columns, width)]
    column = np.minimum(np.add.outer(starts, np.arange(width)), columns - 1)
    factors = _roots(np.arange(rows)[None, :, None] * column[:, None, :], length)
    real = np.float32 if lanes.type is f32 else np.float64
    return np.stack([factors.real, factors.imag], axis=2).astype(real).reshape(-1).view(np.uint8)


# --- launches ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """The layout of the source or target of a transform: the strides of outer groups, rows and elements, and the size
    of an element, all in bytes."""

    outer: int
    row: int
    step: int
    element: int


@dataclass(frozen=True)
class Transform:
    """A transform of all rows of a two-dimensional batch."""

    element: str  # float32 or float64: of the real parts
    kernel: str
    length: int
    outer: int
    inner: int
    source: Side
    target: Side
    inverse: bool
    scale: float


TableSlot = tuple[str, int, int]  # "table", the length, and columns
Slot = int | str | TableSlot  # a string names an operand or the workspace, which have no address yet


@dataclass(frozen=True)
class TransformLaunch:
    """One launch of a kernel."""

    kernel: str
    slots: tuple[Slot, ...]
    total: int
    grain: int


@dataclass(frozen=True)
class TransformLaunches:
    """The launches of a transform in order, and the bytes of workspace and scratch memory that they need."""

    steps: tuple[TransformLaunch, ...]
    workspace: int
    scratch: int


def is_native(transform: Transform) -> bool:
    """Whether native code supports a transform."""
    return radices_of(transform.length) is not None and (
        transform.length <= _MAX_SINGLE_LENGTH or _split_transform(transform) is not None
    )


def arrange_transform(transform: Transform) -> TransformLaunches:
    """The launches that compute a transform."""
    steps = _split_transform(transform)
    if steps is None:
        launch, scratch = _launch(transform, "left", "out", 0)
        return TransformLaunches((launch,), 0, scratch)
    columns, rows = steps
    first, first_scratch = _launch(columns, "left", "workspace", columns.inner)
    second, second_scratch = _launch(rows, "workspace", "out", 0)
    size = transform.length * transform.outer * transform.source.element
    return TransformLaunches((first, second), size, max(first_scratch, second_scratch))


def _split_transform(transform: Transform) -> tuple[Transform, Transform] | None:
    """The transforms of the columns and rows of a long transform; None if it takes a single launch."""
    length, lanes = transform.length, lanes_of(transform.element).count
    few = transform.outer * transform.inner < lanes and length >= _MIN_SPLIT_LENGTH
    if transform.kernel != "transform" or transform.inner > 1 or not (few or length > _MAX_LENGTH):
        return None
    factors = _balanced_factors(length, lanes)
    if factors is None:
        return None
    rows, columns = factors
    source, target, element = transform.source, transform.target, transform.source.element
    between = Side(length * element, element, columns * element, element)
    first = replace(
        transform, length=rows, inner=columns, scale=1.0,
        source=Side(source.outer, source.step, columns * source.step, element), target=between,
    )  # fmt: skip
    second = replace(
        transform, length=columns, inner=rows,
        source=Side(length * element, columns * element, element, element),
        target=Side(target.outer, target.step, rows * target.step, element),
    )  # fmt: skip
    return first, second


def _launch(
    transform: Transform, source: OperandName, target: OperandName, columns: int
) -> tuple[TransformLaunch, int]:
    """A launch, and its scratch bytes for each thread. If `columns` is not 0, it multiplies by twiddle factors."""
    lanes = lanes_of(transform.element)
    radices = radices_of(transform.length)
    assert radices is not None
    width = lanes.count if transform.kernel == "transform" else 2 * lanes.count
    count = transform.outer * transform.inner
    block = transform.inner if transform.inner >= width else count
    groups = -(-block // width)
    half = (transform.length + 2) * 2 * lanes.vector_bytes
    lengths = _lengths(transform)
    sides: dict[str, Slot] = {}
    for name, side, length in (("source", transform.source, lengths[0]), ("target", transform.target, lengths[1])):
        sides |= {f"{name}_outer": side.outer, f"{name}_row": side.row, f"{name}_step": side.step}
        sides[f"{name}_layout"] = _layout(side, length, transform.inner >= width, lanes)
    program: TableSlot = ("table", transform.length, 0)
    between: TableSlot = ("table", transform.length * columns, columns)
    values: dict[str, Slot] = {
        "source": source, "target": target, "program": program, "twiddles": between if columns else 0,
        "passes": len(radices), "length": transform.length,
        "count": count, "inner": transform.inner, "block": block, "groups": groups, **sides,
        "first": lanes.vector_bytes if transform.inverse else 0, "has_twiddles": int(columns > 0),
        "scale": struct.unpack("<q", struct.pack("<d", transform.scale))[0],
        "scratch": "scratch", "scratch_bytes": 2 * half, "half": half,
    }  # fmt: skip
    grain = max(1, _ITEM_ELEMENTS // (transform.length * width))
    slots: tuple[Slot, ...] = tuple([values[name] for name in TRANSFORM_SLOTS])
    return TransformLaunch(transform.kernel, slots, groups * (count // block), grain), 2 * half


def _lengths(transform: Transform) -> tuple[int, int]:
    """The elements of a row in memory, before and after the transform."""
    half = transform.length // 2 + 1
    kinds = {"transform_real": (transform.length, half), "invert_real": (half, transform.length)}
    return kinds.get(transform.kernel, (transform.length, transform.length))


def _layout(side: Side, length: int, is_inner: bool, lanes: Lanes) -> int:
    if is_inner and side.row == side.element:
        return SIDE_BY_SIDE
    square = lanes.vector_bytes // side.element  # elements that a vector holds
    return CONTIGUOUS if side.step == side.element and length >= square else SPREAD
