"""The `expand_prime_transforms` pass: a Fourier transform whose length has a large prime factor becomes a convolution.

For the CPU, which has native code for lengths with small prime factors. Bluestein, "A linear filtering approach to the
computation of discrete Fourier transform" (1970): jk = (j² + k² - (k - j)²) / 2, so the transform is a product with a
chirp, a convolution with its conjugate, and another product. The convolution takes transforms of a length with small
factors.
"""

from __future__ import annotations

import math

from livegrad.ir.dimension import Size, round_up
from livegrad.ir.function import map_results
from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Scalar, Tensor, f64, scalar_of, shape_of
from livegrad.ir.walk import ops_in
from livegrad.ops.conversion import cast, conj, make_complex, real
from livegrad.ops.elementwise import minimum, mod, select
from livegrad.ops.fourier import fft, irfft, rfft
from livegrad.ops.movement import broadcast, concatenate, flip, index_along, pad, slice_
from livegrad.ops.rules import filled, zero
from livegrad.ops.transcendental import cos, sin

TRANSFORMS = (fft, rfft, irfft)
_MAX_PRIME = 13  # of lengths with native code
_MIN_LENGTH = 17


def expand_prime_transforms(function: Function) -> Function:
    """Rewrites the transforms whose length has a large prime factor."""
    return function if ops_in(function).isdisjoint(TRANSFORMS) else _rewrite(function)


@propagates_lines
def _rewrite(function: Function) -> Function:
    return map_results(function, _expand)


def _expand(node: Node) -> Node | None:
    if node.op not in TRANSFORMS or not isinstance(node.type, Tensor) or 0 in shape_of(node.type):
        return None
    with originating_from(node.origins):
        if node.op is fft:
            return _expand_complex(node)
        (x,) = node.operands
        axis, norm = node.attribute("axis"), node.attribute("norm")
        length = shape_of(x.type)[axis] if node.op is rfft else node.attribute("size")
        if not has_large_factor(length):
            return None
        if node.op is rfft:
            spectrum = _convolve_with_chirp(make_complex(x, zero(x.type)), axis, False, norm)
            return _part(spectrum, axis, 0, length // 2 + 1)
        return real(_convolve_with_chirp(_full_spectrum(x, axis, length), axis, True, norm))


def has_large_factor(length: Size) -> bool:
    """Whether a length has a prime factor without native code."""
    if not isinstance(length, int) or length < _MIN_LENGTH:
        return False
    return _without_small_factors(length) != 1


def _without_small_factors(length: int) -> int:
    for prime in (2, 3, 5, 7, 11, _MAX_PRIME):
        while length % prime == 0:
            length //= prime
    return length


def _expand_complex(node: Node) -> Node | None:
    """Transforms the axes without native code one by one, after all others."""
    (x,) = node.operands
    axes, inverse, norm = (node.attribute(name) for name in ("axes", "inverse", "norm"))
    large = [axis for axis in axes if has_large_factor(shape_of(x.type)[axis])]
    if not large:
        return None
    others = tuple(axis for axis in axes if axis not in large)
    result = fft(x, axes=others, inverse=inverse, norm=norm) if others else x
    for axis in large:
        result = _convolve_with_chirp(result, axis, inverse, norm)
    return result


def _convolve_with_chirp(x: Node, axis: int, inverse: bool, norm: str) -> Node:
    shape = shape_of(x.type)
    length: int = shape[axis]  # type: ignore[assignment]
    element = scalar_of(x.type)
    assert element is not None
    padded = _fast_length(2 * length - 1)
    along: dict[str, object] = {"axes": (axis,), "norm": "backward"}
    index = index_along((length,), 0)
    chirp = broadcast(_chirp(index, length, element, inverse), shape=shape, axes=(axis,))
    # The conjugate chirp for differences of both signs.
    position = index_along((padded,), 0)
    distance = minimum(position, padded - position)
    filter = conj(_chirp(distance, length, element, inverse))
    filter = select(distance < length, filter, zero(filter.type))
    spectrum = fft(filter, axes=(0,), inverse=False, norm="backward")

    extended = _pad_after(x * chirp, axis, padded - length)
    wide = shape_of(extended.type)
    product = fft(extended, inverse=False, **along) * broadcast(spectrum, shape=wide, axes=(axis,))
    convolved = _part(fft(product, inverse=True, **along), axis, 0, length)
    scale = {
        "ortho": length**-0.5,
        "backward": 1 / length if inverse else 1.0,
        "forward": 1.0 if inverse else 1 / length,
    }
    return convolved * chirp * filled(scale[norm], x.type)


def _chirp(index: Node, length: int, element: Scalar, inverse: bool) -> Node:
    """exp(∓πi index² / length), in double precision; the square is reduced as an integer."""
    angle = cast(mod(index * index, filled(2 * length, index.type)), type=f64) * (
        (1 if inverse else -1) * math.pi / length
    )
    part = element.real
    return make_complex(cast(cos(angle), type=part), cast(sin(angle), type=part))


def _fast_length(least: int) -> int:
    """The smallest length from `least` on whose prime factors are at most 5, and that vectors divide."""
    length = round_up(least, 16)
    while True:
        rest = length
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return length
        length += 16


def _pad_after(x: Node, axis: int, count: int) -> Node:
    rank = len(shape_of(x.type))
    high = tuple(count if index == axis else 0 for index in range(rank))
    element = scalar_of(x.type)
    assert element is not None
    return pad(x, zero(element), low=(0,) * rank, high=high, interior=(0,) * rank)


def _part(x: Node, axis: int, start: int, count: int) -> Node:
    shape = shape_of(x.type)
    starts = tuple(start if index == axis else 0 for index in range(len(shape)))
    sizes = tuple(count if index == axis else size for index, size in enumerate(shape))
    return slice_(x, start=starts, size=sizes, step=(1,) * len(shape))


def _full_spectrum(half: Node, axis: int, length: int) -> Node:
    """The spectrum of real values from its first half: the rest are conjugates, backwards."""
    rest = _part(half, axis, 1, (length - 1) // 2)
    return concatenate(half, flip(conj(rest), axes=(axis,)), axis=axis)
