"""The parameters of the two floating-point formats of math functions, and exact constants rounded to them.

In: an element name ("f32", "f64"). Out: the format's parameters and rounded constants.
"""

import struct
from dataclasses import dataclass
from fractions import Fraction

from livegrad.ir.types import Scalar, f32, f64, i32, i64

# More than fifty digits each: enough to be split over three float64 values.
PI = Fraction("3.14159265358979323846264338327950288419716939937510582097494459230781640629")
LN_2 = Fraction("0.693147180559945309417232121458176568075500134360255254120680009493393622")
LN_10 = Fraction("2.302585092994045684017991454684364207601101488628772976033327900967572610")


@dataclass(frozen=True, slots=True)
class Element:
    """An IEEE 754 binary format."""

    type: Scalar
    integer: Scalar  # of the same width
    mantissa_bits: int  # stored bits, without the implicit leading one

    @property
    def name(self) -> str:
        """The name in symbols: "f32"."""
        return self.type.name

    @property
    def width(self) -> int:
        return self.type.bits

    @property
    def bias(self) -> int:
        return (1 << (self.width - self.mantissa_bits - 2)) - 1

    @property
    def sign_bit(self) -> int:
        return 1 << (self.width - 1)

    @property
    def infinity_bits(self) -> int:
        return (2 * self.bias + 1) << self.mantissa_bits

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def rounding_magic(self) -> float:
        """Adding this number leaves an integer in the low mantissa bits, for magnitudes below 2^(mantissa_bits-1)."""
        return 1.5 * 2.0**self.mantissa_bits

    def round(self, value: Fraction | float) -> float:
        rounded = float(value)
        return struct.unpack("<f", struct.pack("<f", rounded))[0] if self.name == "f32" else rounded

    def split(self, value: Fraction, parts: int) -> tuple[float, ...]:
        """An unevaluated sum of numbers of this format: each is the rounded remainder of ``value`` and those before."""
        pieces: list[float] = []
        for _ in range(parts):
            piece = self.round(value)
            pieces.append(piece)
            value -= Fraction(piece)
        return tuple(pieces)

    def bits_of(self, value: float) -> int:
        layout = ("<f", "<I") if self.name == "f32" else ("<d", "<Q")
        return struct.unpack(layout[1], struct.pack(layout[0], value))[0]


F32 = Element(f32, i32, 23)
F64 = Element(f64, i64, 52)
ELEMENTS = {element.name: element for element in (F32, F64)}
