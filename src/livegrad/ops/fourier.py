"""Fourier transforms as linear ops, in the precision of the operand.

`fft` maps complex to complex over any axes, `rfft` real values to a half spectrum, and `irfft` a half spectrum to real
values. All transforms of the Array API are composed of these (`rfftn`, `irfftn`, `hfft`, `ihfft` below).
"""

from __future__ import annotations

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.dimension import Size
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor, Type, c64, c128, f32, f64, shape_of
from livegrad.ops.comparison import equal
from livegrad.ops.conversion import conj
from livegrad.ops.elementwise import select
from livegrad.ops.movement import index_along, require_tensor
from livegrad.ops.rules import filled

# The inverse ("backward") or forward ("forward") transform is scaled by 1/n, or both by 1/sqrt(n) ("ortho").
# Transposing reverses the direction but keeps the scale, and so swaps the names of the norms.
_TRANSPOSED_NORM = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def _require_norm(norm: str) -> None:
    if norm not in _TRANSPOSED_NORM:
        raise TypeRuleError(f"no norm `{norm}`", expected=" or ".join(_TRANSPOSED_NORM))


def _require_lengths(tensor: Tensor, axes: tuple[int, ...]) -> None:
    if len(set(axes)) != len(axes) or any(not 0 <= axis < tensor.rank for axis in axes):
        raise TypeRuleError("axes must be different dimensions", found=f"{axes} for {tensor}")
    if any(tensor.shape[axis] == 0 for axis in axes):
        raise TypeRuleError("cannot transform an empty axis", found=str(tensor))


def _fft_type(x: Type, *, axes: tuple[int, ...], inverse: bool, norm: str) -> Type:
    tensor = require_tensor(x)
    _require_norm(norm)
    _require_lengths(tensor, axes)
    if tensor.element not in (c64, c128):
        raise TypeRuleError("fft takes complex numbers", help="cast to a complex type, or use rfft")
    return tensor


# The matrix of a Fourier transform is symmetric: it is its own transpose.
fft = Op(
    "fft",
    type_of=_fft_type,
    evaluate=lambda x, *, axes, inverse, norm: (np.fft.ifftn if inverse else np.fft.fftn)(x, axes=axes, norm=norm),
    jvp=lambda y, dx: None if dx is None else fft(dx, **dict(y.attributes)),
    transpose=lambda y, ct, linear: (fft(ct, **dict(y.attributes)),),
    linear_in=(0,),
    cost=30.0,
)


def _require_static_length(size: Size) -> int:
    if not isinstance(size, int):
        raise TypeRuleError(
            f"the length {size} must be an integer", help="half of a symbolic length is not a symbolic size"
        )
    return size


def _with_length(tensor: Tensor, axis: int, size: int) -> tuple[Size, ...]:
    return (*tensor.shape[:axis], size, *tensor.shape[axis + 1 :])


def _rfft_type(x: Type, *, axis: int, norm: str) -> Type:
    tensor = require_tensor(x)
    _require_norm(norm)
    _require_lengths(tensor, (axis,))
    if tensor.element not in (f32, f64):
        raise TypeRuleError("rfft takes f32 or f64", help="cast first, or use fft for complex numbers")
    length = _require_static_length(tensor.shape[axis])
    return Tensor(c64 if tensor.element is f32 else c128, _with_length(tensor, axis, length // 2 + 1))


def _irfft_type(x: Type, *, axis: int, size: int, norm: str) -> Type:
    tensor = require_tensor(x)
    _require_norm(norm)
    _require_lengths(tensor, (axis,))
    if tensor.element not in (c64, c128):
        raise TypeRuleError("irfft takes complex numbers", help="cast to a complex type")
    if size < 1 or tensor.shape[axis] != size // 2 + 1:
        raise TypeRuleError(
            f"{size} values have half a spectrum of {size // 2 + 1}",
            found=str(tensor.shape[axis]),
            help="slice or pad the spectrum first",
        )
    return Tensor(f32 if tensor.element is c64 else f64, _with_length(tensor, axis, size))


def _scale_paired(spectrum: Node, axis: int, length: int, factor: float) -> Node:
    """Scales the entries of a half spectrum that also represent their conjugates."""
    frequency = index_along(shape_of(spectrum.type), axis)
    single = equal(frequency, 0)
    if length % 2 == 0:
        single = single | equal(frequency, length // 2)
    return select(single, filled(1.0, spectrum.type), filled(factor, spectrum.type)) * spectrum


def _rfft_transpose(y: Node, ct: Node, linear: bool) -> tuple[Node | None, ...]:
    axis, norm = y.attribute("axis"), y.attribute("norm")
    length = _require_static_length(shape_of(y.operands[0].type)[axis])
    spectrum = _scale_paired(conj(ct), axis, length, 0.5)
    return (irfft(spectrum, axis=axis, size=length, norm=_TRANSPOSED_NORM[norm]),)


def _irfft_transpose(y: Node, ct: Node, linear: bool) -> tuple[Node | None, ...]:
    axis, norm = y.attribute("axis"), y.attribute("norm")
    spectrum = conj(rfft(ct, axis=axis, norm=_TRANSPOSED_NORM[norm]))
    return (_scale_paired(spectrum, axis, y.attribute("size"), 2.0),)


rfft = Op(
    "rfft",
    type_of=_rfft_type,
    evaluate=lambda x, *, axis, norm: np.fft.rfft(x, axis=axis, norm=norm),
    jvp=lambda y, dx: None if dx is None else rfft(dx, **dict(y.attributes)),
    transpose=_rfft_transpose,
    linear_in=(0,),
    cost=20.0,
)
# The imaginary parts of the first entry, and of the last one of an even length, are not read.
irfft = Op(
    "irfft",
    type_of=_irfft_type,
    evaluate=lambda x, *, axis, size, norm: np.fft.irfft(x, size, axis=axis, norm=norm),
    jvp=lambda y, dx: None if dx is None else irfft(dx, **dict(y.attributes)),
    transpose=_irfft_transpose,
    linear_in=(0,),
    cost=20.0,
)


def rfftn(x: Node, axes: tuple[int, ...], norm: str = "backward") -> Node:
    """The Fourier transform of real values over several axes; the last axis has half a spectrum.

    >>> from livegrad.ir.leaves import parameter
    >>> rfftn(parameter(0, Tensor(f32, (4, 6))), (0, 1)).type
    tensor<c64, [4, 4]>
    """
    *others, last = axes
    spectrum = rfft(x, axis=last, norm=norm)
    return fft(spectrum, axes=tuple(others), inverse=False, norm=norm) if others else spectrum


def irfftn(x: Node, axes: tuple[int, ...], size: int, norm: str = "backward") -> Node:
    """Real values from half a spectrum over several axes; `size` is the extent of the last axis.

    >>> from livegrad.ir.leaves import parameter
    >>> irfftn(parameter(0, Tensor(c64, (4, 4))), (0, 1), 6).type
    tensor<f32, [4, 6]>
    """
    *others, last = axes
    spectrum = fft(x, axes=tuple(others), inverse=True, norm=norm) if others else x
    return irfft(spectrum, axis=last, size=size, norm=norm)


def hfft(x: Node, axis: int, size: int, norm: str = "backward") -> Node:
    """The real spectrum of a hermitian signal, of which `x` is the first half.

    >>> from livegrad.ir.leaves import parameter
    >>> hfft(parameter(0, Tensor(c64, (4,))), 0, 6).type
    tensor<f32, [6]>
    """
    return irfft(conj(x), axis=axis, size=size, norm=_TRANSPOSED_NORM[norm])


def ihfft(x: Node, axis: int, norm: str = "backward") -> Node:
    """The first half of a hermitian signal from its real spectrum: the inverse of `hfft`.

    >>> from livegrad.ir.leaves import parameter
    >>> ihfft(parameter(0, Tensor(f32, (6,))), 0).type
    tensor<c64, [4]>
    """
    return conj(rfft(x, axis=axis, norm=_TRANSPOSED_NORM[norm]))
