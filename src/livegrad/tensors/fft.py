"""Fourier transforms: the `fft` extension of the Array API. `lg.fft` is this module.

The transforms are linear, so their derivatives are transforms too. They are computed in the precision of the operand.
Complex transforms convert real numbers to complex; real transforms convert integers to float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.dimension import Dimension, Size
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, c128, f64
from livegrad.ops import fourier as ops
from livegrad.ops.movement import concatenate, pad, slice_
from livegrad.ops.rules import zero
from livegrad.tensors.array_handles import wrap_array
from livegrad.tensors.axes_and_shapes import Axes, normalise_axes, normalise_axis, normalise_shape
from livegrad.tensors.dtypes import DEFAULT_COMPLEX, DEFAULT_FLOAT, dtype_from
from livegrad.tensors.errors import DtypeError, ShapeError
from livegrad.tensors.handle import Tensor, node_of, wrap
from livegrad.tensors.operands import as_type, element_of, require_integer, require_real
from livegrad.tensors.placement import place_on
from livegrad.tensors.products import shape_of_node

__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]


def __dir__() -> list[str]:
    """Lists the public names only, for tab completion."""
    return __all__


# --- complex to complex ----------------------------------------------------------------------------------------------


def fft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The discrete Fourier transform along an axis, truncated or zero-padded to length `n`.

    `norm` selects the scaled direction: "backward" scales the inverse by 1/n, "forward" this one, "ortho" both by
    1/sqrt(n).

    >>> import livegrad as lg
    >>> lg.fft.fft(lg.asarray([1.0, 0.0, 0.0, 0.0]))
    Tensor([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
    """
    return _along(x, n, axis, norm, False, "fft")


def ifft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `fft` along an axis.

    >>> import livegrad as lg
    >>> lg.fft.ifft(lg.fft.fft(lg.asarray([1.0, 2.0])))
    Tensor([1.+0.j, 2.+0.j], dtype=complex64)
    """
    return _along(x, n, axis, norm, True, "ifft")


def fftn(x: Any, /, *, s: Sequence[int] | None = None, axes: Axes = None, norm: str = "backward") -> Tensor:
    """The discrete Fourier transform along several axes, or all, truncated or zero-padded to the lengths in `s`.

    >>> import livegrad as lg
    >>> lg.fft.fftn(lg.ones((2, 2)))
    Tensor([[4.+0.j, 0.+0.j],
            [0.+0.j, 0.+0.j]], dtype=complex64)
    """
    return _over(x, s, axes, norm, False, "fftn")


def ifftn(x: Any, /, *, s: Sequence[int] | None = None, axes: Axes = None, norm: str = "backward") -> Tensor:
    """The inverse of `fftn`.

    >>> import livegrad as lg
    >>> lg.fft.ifftn(lg.ones((3, 4), dtype=lg.complex64)).shape
    (3, 4)
    """
    return _over(x, s, axes, norm, True, "ifftn")


def _along(x: Any, n: int | None, axis: int, norm: str, inverse: bool, user: str) -> Tensor:
    node = _complex(x, user)
    position = normalise_axis(axis, len(shape_of_node(node)), user)
    return wrap(
        ops.fft(_with_length(node, position, n, user), axes=(position,), inverse=inverse, norm=_norm(norm, user))
    )


def _over(x: Any, s: Sequence[int] | None, axes: Axes, norm: str, inverse: bool, user: str) -> Tensor:
    node, positions = _with_lengths(_complex(x, user), s, axes, user)
    return wrap(ops.fft(node, axes=positions, inverse=inverse, norm=_norm(norm, user)) if positions else node)


# --- real and half spectra -------------------------------------------------------------------------------------------


def rfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The first half of the Fourier transform of real numbers along an axis, with `n // 2 + 1` entries.

    >>> import livegrad as lg
    >>> lg.fft.rfft(lg.asarray([1.0, 1.0, 1.0, 1.0]))
    Tensor([4.+0.j, 0.+0.j, 0.+0.j], dtype=complex64)
    """
    node = _real(x, "rfft")
    position = normalise_axis(axis, len(shape_of_node(node)), "rfft")
    return wrap(ops.rfft(_with_length(node, position, n, "rfft"), axis=position, norm=_norm(norm, "rfft")))


def irfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `rfft`: `n` real numbers, by default `2 * (m - 1)` for m entries.

    >>> import livegrad as lg
    >>> lg.fft.irfft(lg.asarray([4.0 + 0j, 0j, 0j]))
    Tensor([1., 1., 1., 1.], dtype=float32)
    """
    node, position, size = _half(x, n, axis, "irfft")
    return wrap(ops.irfft(node, axis=position, size=size, norm=_norm(norm, "irfft")))


def rfftn(x: Any, /, *, s: Sequence[int] | None = None, axes: Axes = None, norm: str = "backward") -> Tensor:
    """The Fourier transform of real numbers along several axes: the first half along the last of them.

    >>> import livegrad as lg
    >>> lg.fft.rfftn(lg.ones((4, 6))).shape
    (4, 4)
    """
    node, positions = _with_lengths(_real(x, "rfftn"), s, axes, "rfftn")
    return wrap(ops.rfftn(node, _require_some(positions, "rfftn"), _norm(norm, "rfftn")))


def irfftn(x: Any, /, *, s: Sequence[int] | None = None, axes: Axes = None, norm: str = "backward") -> Tensor:
    """The inverse of `rfftn`; the last length of `s` is the length of the result.

    >>> import livegrad as lg
    >>> lg.fft.irfftn(lg.ones((4, 4), dtype=lg.complex64)).shape
    (4, 6)
    """
    node = _complex(x, "irfftn")
    positions, lengths = _lengths(shape_of_node(node), s, axes, "irfftn")
    last = _require_some(positions, "irfftn")[-1]
    for position, length in zip(positions[:-1], lengths[:-1], strict=True):
        node = _with_length(node, position, length, "irfftn")
    node, _, size = _half(node, lengths[-1], last, "irfftn")
    return wrap(ops.irfftn(node, positions, size, _norm(norm, "irfftn")))


def hfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The real spectrum of a Hermitian signal, given by its first half: `n` numbers, by default `2 * (m - 1)` for m
    entries.

    >>> import livegrad as lg
    >>> lg.fft.hfft(lg.asarray([1 + 0j, 0j, 0j]))
    Tensor([1., 1., 1., 1.], dtype=float32)
    """
    node, position, size = _half(x, n, axis, "hfft")
    return wrap(ops.hfft(node, position, size, _norm(norm, "hfft")))


def ihfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `hfft`: the first half of the hermitian signal that has this real spectrum.

    >>> import livegrad as lg
    >>> lg.fft.ihfft(lg.ones(6)).shape
    (4,)
    """
    node = _real(x, "ihfft")
    position = normalise_axis(axis, len(shape_of_node(node)), "ihfft")
    return wrap(ops.ihfft(_with_length(node, position, n, "ihfft"), position, _norm(norm, "ihfft")))


def _half(x: Any, n: int | None, axis: int, user: str) -> tuple[Node, int, int]:
    """Returns half a spectrum of the length that `n` real numbers need, its axis, and `n`."""
    node = _complex(x, user)
    shape = shape_of_node(node)
    position = normalise_axis(axis, len(shape), user)
    size = 2 * (shape[position] - 1) if n is None else n
    if isinstance(size, Dimension):
        raise UsageError(f"`{user}` needs a length for symbolic sizes", where=caller_origin(), help="pass n=...")
    size = _require_length(size, user)
    return _with_length(node, position, size // 2 + 1, user), position, size


# --- frequencies and shifts ------------------------------------------------------------------------------------------


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Scalar | None = None, device: str | None = None) -> Tensor:
    """The frequency of each entry of a transform of length `n`, for samples that are `d` apart.

    >>> import livegrad as lg
    >>> lg.fft.fftfreq(4)
    Tensor([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32)
    """
    values = np.fft.fftfreq(_require_length(n, "fftfreq"), require_real(d, "fftfreq", "d"))
    return _frequencies(values, dtype, device, "fftfreq")


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Scalar | None = None, device: str | None = None) -> Tensor:
    """The frequency of each entry of a real transform of length `n`, for samples that are `d` apart.

    >>> import livegrad as lg
    >>> lg.fft.rfftfreq(4)
    Tensor([0.  , 0.25, 0.5 ], dtype=float32)
    """
    values = np.fft.rfftfreq(_require_length(n, "rfftfreq"), require_real(d, "rfftfreq", "d"))
    return _frequencies(values, dtype, device, "rfftfreq")


def _frequencies(values: Any, dtype: Scalar | None, device: str | None, user: str) -> Tensor:
    element = DEFAULT_FLOAT if dtype is None else dtype_from(dtype, user)
    if element.kind != "float":
        raise DtypeError(f"`{user}` returns floats", where=caller_origin(), found=str(element))
    return place_on(wrap_array(values.astype(element.dtype)), device)


def fftshift(x: Any, /, *, axes: Axes = None) -> Tensor:
    """Reorders the entries of a transform by frequency, with zero in the middle.

    >>> import livegrad as lg
    >>> lg.fft.fftshift(lg.asarray([0, 1, 2, -2, -1]))
    Tensor([-2, -1,  0,  1,  2], dtype=int64)
    """
    return _shifted(x, axes, "fftshift", lambda size: size - size // 2)


def ifftshift(x: Any, /, *, axes: Axes = None) -> Tensor:
    """The inverse of `fftshift`, with zero first.

    >>> import livegrad as lg
    >>> lg.fft.ifftshift(lg.asarray([-2, -1, 0, 1, 2]))
    Tensor([ 0,  1,  2, -2, -1], dtype=int64)
    """
    return _shifted(x, axes, "ifftshift", lambda size: size // 2)


def _shifted(x: Any, axes: Axes, user: str, first: Any) -> Tensor:
    """Rotates each axis by swapping its two parts; `first` maps a size to the start of the second part."""
    node = node_of(x, user)
    shape = shape_of_node(node)
    for axis in normalise_axes(axes, len(shape), user):
        size = shape[axis]
        if not isinstance(size, int):
            raise UsageError(f"`{user}` needs a static size", where=caller_origin(), found=str(size))
        cut = first(size)
        parts = [_part(node, axis, cut, size - cut), _part(node, axis, 0, cut)]
        node = concatenate(*parts, axis=axis)
    return wrap(node)


# --- lengths and types -----------------------------------------------------------------------------------------------


def _part(node: Node, axis: int, start: int, size: int) -> Node:
    shape = shape_of_node(node)
    return slice_(
        node,
        start=tuple(start if i == axis else 0 for i in range(len(shape))),
        size=tuple(size if i == axis else extent for i, extent in enumerate(shape)),
        step=(1,) * len(shape),
    )


def _with_length(node: Node, axis: int, length: int | None, user: str) -> Node:
    """Truncates or zero-pads a node to a length along an axis."""
    shape = shape_of_node(node)
    size = shape[axis]
    if length is not None:
        length = _require_length(length, user)
    elif size == 0:
        raise ShapeError(f"`{user}` cannot transform an empty axis", where=caller_origin(), found=f"shape {shape}")
    if length is None or length == size:
        return node
    if not isinstance(size, int):
        raise UsageError(f"`{user}` cannot truncate or pad a symbolic size", where=caller_origin(), found=str(size))
    if length < size:
        return _part(node, axis, 0, length)
    nothing = (0,) * len(shape)
    high = tuple(length - size if i == axis else 0 for i in range(len(shape)))
    return pad(node, zero(element_of(node)), low=nothing, high=high, interior=nothing)


def _require_length(length: Any, user: str) -> int:
    number = require_integer(length, user, "the length", minimum=1)
    normalise_shape((number,), user)  # raises if the size exceeds the address space
    return number


def _with_lengths(node: Node, s: Sequence[int] | None, axes: Axes, user: str) -> tuple[Node, tuple[int, ...]]:
    positions, lengths = _lengths(shape_of_node(node), s, axes, user)
    for position, length in zip(positions, lengths, strict=True):
        node = _with_length(node, position, length, user)
    return node, positions


def _lengths(
    shape: tuple[Size, ...], s: Sequence[int] | None, axes: Axes, user: str
) -> tuple[tuple[int, ...], list[int | None]]:
    """Returns the axes of a transform and the length of each; None and -1 keep the length."""
    if s is not None and axes is None:
        raise UsageError(
            f"`{user}` takes lengths only together with their axes", where=caller_origin(), help="pass axes=..."
        )
    positions = normalise_axes(axes, len(shape), user)
    lengths: list[int | None] = (
        [None] * len(positions) if s is None else [None if length == -1 else length for length in s]
    )
    if len(lengths) != len(positions):
        raise UsageError(
            f"`{user}` takes a length for each axis",
            where=caller_origin(),
            found=f"{len(lengths)} for {len(positions)}",
        )
    return positions, lengths


def _require_some(positions: tuple[int, ...], user: str) -> tuple[int, ...]:
    if not positions:
        raise UsageError(f"`{user}` needs at least one axis", where=caller_origin())
    return positions


def _norm(norm: str, user: str) -> str:
    if norm not in ("backward", "ortho", "forward"):
        expected = "'backward', 'ortho' or 'forward'"
        raise UsageError(f"`{user}` has no norm {norm!r}", where=caller_origin(), expected=expected)
    return norm


def _complex(x: Any, user: str) -> Node:
    node = node_of(x, user)
    if element_of(node).kind == "complex":
        return node
    return as_type(node, c128 if element_of(node) is f64 else DEFAULT_COMPLEX)


def _real(x: Any, user: str) -> Node:
    node = node_of(x, user)
    if element_of(node).kind == "complex":
        raise DtypeError(
            f"`{user}` takes real numbers", where=caller_origin(), found=str(element_of(node)), help="use lg.fft.fft"
        )
    return node if element_of(node).kind == "float" else as_type(node, DEFAULT_FLOAT)
