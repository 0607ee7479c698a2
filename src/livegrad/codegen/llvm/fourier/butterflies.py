"""FFT butterflies: Fourier transforms of a few complex numbers per lane, as vectors of real and of imaginary parts.

Called by `transform_module.py` for each pass of a transform.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from livegrad.codegen.llvm.values import Value
from livegrad.ir.types import Scalar

RADICES = (8, 4, 2, 3, 5, 7, 11, 13)  # of the supported passes


@dataclass(frozen=True)
class Lanes:
    """The vectors of a processor for one real type."""

    type: Scalar
    vector_bytes: int
    has_fma: bool

    @property
    def bytes(self) -> int:
        return self.type.bits // 8

    @property
    def count(self) -> int:
        return self.vector_bytes // self.bytes

    def multiply_add(self, a: Value, b: Value | float, c: Value) -> Value:
        """a · b + c, rounded once if the processor has fused multiply-add."""
        if not self.has_fma:
            return a * b + c
        return a.wrap(a.builder.intrinsic("fma", a.type, a.register, a.register_of(b), c.register))


@dataclass(frozen=True)
class Complex:
    """One complex number per lane."""

    re: Value
    im: Value

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.re + other.re, self.im + other.im)

    def __sub__(self, other: Complex) -> Complex:
        return Complex(self.re - other.re, self.im - other.im)

    def scale(self, factor: Value | float) -> Complex:
        return Complex(self.re * factor, self.im * factor)


def product(lanes: Lanes, a: Complex, b: Complex) -> Complex:
    return Complex(
        lanes.multiply_add(-a.im, b.im, a.re * b.re),
        lanes.multiply_add(a.im, b.re, a.re * b.im),
    )


def butterfly(lanes: Lanes, values: list[Complex]) -> list[Complex]:
    """The Fourier transform of `len(values)` complex numbers; their count is one of `RADICES`."""
    match len(values):
        case 2:
            a, b = values
            return [a + b, a - b]
        case 4:
            return _four(values)
        case 8:
            return _eight(lanes, values)
    return _odd(lanes, values)


def _four(values: list[Complex]) -> list[Complex]:
    a, b, c, d = values
    even, odd = [a + c, a - c], [b + d, b - d]
    return [even[0] + odd[0], _minus_i(even[1], odd[1]), even[0] - odd[0], _plus_i(even[1], odd[1])]


def _minus_i(a: Complex, b: Complex) -> Complex:
    """a - i b."""
    return Complex(a.re + b.im, a.im - b.re)


def _plus_i(a: Complex, b: Complex) -> Complex:
    """a + i b."""
    return Complex(a.re - b.im, a.im + b.re)


def _eight(lanes: Lanes, values: list[Complex]) -> list[Complex]:
    even, odd = _four(values[0::2]), _four(values[1::2])
    half = math.sqrt(0.5)
    # Odd outputs rotated by 0, 1, 2 and 3 eighths of a turn. The second and the last still lack the factor `half`.
    second = Complex(odd[1].re + odd[1].im, odd[1].im - odd[1].re)
    last = Complex(odd[3].im - odd[3].re, odd[3].re + odd[3].im)  # its imaginary part is negated below
    first = [
        even[0] + odd[0],
        Complex(lanes.multiply_add(second.re, half, even[1].re), lanes.multiply_add(second.im, half, even[1].im)),
        _minus_i(even[2], odd[2]),
        Complex(lanes.multiply_add(last.re, half, even[3].re), lanes.multiply_add(last.im, -half, even[3].im)),
    ]
    rest = [
        even[0] - odd[0],
        Complex(lanes.multiply_add(second.re, -half, even[1].re), lanes.multiply_add(second.im, -half, even[1].im)),
        _plus_i(even[2], odd[2]),
        Complex(lanes.multiply_add(last.re, -half, even[3].re), lanes.multiply_add(last.im, half, even[3].im)),
    ]
    return [*first, *rest]


def _odd(lanes: Lanes, values: list[Complex]) -> list[Complex]:
    """The transform of an odd number of values: values j and r - j have equal cosines and opposite sines."""
    first, radix = values[0], len(values)
    half = radix // 2
    sums = [values[j] + values[radix - j] for j in range(1, half + 1)]
    differences = [values[j] - values[radix - j] for j in range(1, half + 1)]
    total = first
    for pair_sum in sums:
        total = total + pair_sum
    results = [total] + [total] * (radix - 1)
    for k in range(1, half + 1):
        even, rotated = first, None
        for j, (plus, minus) in enumerate(zip(sums, differences, strict=True), 1):
            angle = 2 * math.pi * (j * k % radix) / radix
            cosine, sine = math.cos(angle), math.sin(angle)
            even = Complex(lanes.multiply_add(plus.re, cosine, even.re), lanes.multiply_add(plus.im, cosine, even.im))
            if rotated is None:
                rotated = minus.scale(sine)
            else:
                rotated = Complex(
                    lanes.multiply_add(minus.re, sine, rotated.re), lanes.multiply_add(minus.im, sine, rotated.im)
                )
        assert rotated is not None
        results[k], results[radix - k] = _minus_i(even, rotated), _plus_i(even, rotated)
    return results
