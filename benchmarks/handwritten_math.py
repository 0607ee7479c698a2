"""Vector LLVM IR for the handwritten kernels: a small writer and float32 polynomials for exp, log, sin, tanh and pow.

Simple and fast rather than complete: arguments are assumed finite and moderate, and the base of pow positive."""

import struct
from collections.abc import Sequence

FLAGS = "contract nsz"

# Fitted for the smallest relative error over the reduced range, highest power first.
EXP = (1.395171465e-3, 8.369598666e-3, 4.166618732e-2, 0.166665128856, 0.500000010097)
LOG = (
    *(-0.07634028104, 0.12773085559, -0.131656868072, 0.142005959887),
    *(-0.166227141484, 0.200012535553, -0.250008383918, 0.333333316345),
)
SIN = (2.602775124596e-06, -1.98083049271e-04, 8.333049508944e-03, -0.166666589443)
TANH_OVER = (1.3354352e-08, 2.0608852e-05, 3.4955740e-03, 0.13381014, 1.0)
TANH_UNDER = (7.7764294e-07, 3.2856118e-04, 2.5876929e-02, 0.46714329, 1.0)
LOG2_E = 1.4426950408889634


class Writer:
    """Appends instructions on vectors of `lanes` floats; every method returns the name of its result."""

    def __init__(self, lanes: int) -> None:
        self.float = f"<{lanes} x float>"
        self.int = f"<{lanes} x i32>"
        self.bool = f"<{lanes} x i1>"
        self.suffix = f"v{lanes}f32"
        self.lines: list[str] = []
        self.declarations: set[str] = set()

    def emit(self, text: str) -> str:
        name = f"%t{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def literal(self, value: float) -> str:
        rounded = struct.unpack("f", struct.pack("f", value))[0]
        return f"splat (float 0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X})"

    def binary(self, op: str, left: str, right: str) -> str:
        return self.emit(f"{op} {FLAGS} {self.float} {left}, {right}")

    def integer(self, op: str, left: str, right: int | str) -> str:
        operand = f"splat (i32 {right})" if isinstance(right, int) else right
        return self.emit(f"{op} {self.int} {left}, {operand}")

    def intrinsic(self, name: str, *operands: str) -> str:
        full = f"@llvm.{name}.{self.suffix}"
        self.declarations.add(f"declare {self.float} {full}({', '.join([self.float] * len(operands))})")
        return self.emit(f"call {self.float} {full}({', '.join(f'{self.float} {o}' for o in operands)})")

    def select(self, relation: str, left: str, right: str, then: str, otherwise: str) -> str:
        condition = self.emit(f"fcmp {relation} {self.float} {left}, {right}")
        return self.emit(f"select {self.bool} {condition}, {self.float} {then}, {self.float} {otherwise}")

    def smaller(self, left: str, right: str) -> str:
        return self.select("olt", left, right, left, right)

    def larger(self, left: str, right: str) -> str:
        return self.select("ogt", left, right, left, right)

    def bits(self, value: str) -> str:
        return self.emit(f"bitcast {self.float} {value} to {self.int}")

    def from_bits(self, value: str) -> str:
        return self.emit(f"bitcast {self.int} {value} to {self.float}")

    def to_int(self, value: str) -> str:
        return self.emit(f"fptosi {self.float} {value} to {self.int}")

    def to_float(self, value: str) -> str:
        return self.emit(f"sitofp {self.int} {value} to {self.float}")

    def fma(self, a: str, b: str, c: str) -> str:
        return self.intrinsic("fma", a, b, c)

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        total = self.literal(coefficients[0])
        for coefficient in coefficients[1:]:
            total = self.fma(total, x, self.literal(coefficient))
        return total


def exp_of_reduced(w: Writer, r: str, n: str) -> str:
    """2ⁿ·exp(r) for |r| ≤ ln 2 / 2 and n a whole number within the normal exponents."""
    value = w.fma(w.binary("fmul", r, r), w.polynomial(r, EXP), r)
    exponent = w.integer("shl", w.integer("add", w.to_int(n), 127), 23)
    return w.fma(value, w.from_bits(exponent), w.from_bits(exponent))


def exp(w: Writer, x: str) -> str:
    x = w.larger(w.smaller(x, w.literal(88.0)), w.literal(-87.0))
    n = w.intrinsic("rint", w.binary("fmul", x, w.literal(LOG2_E)))
    r = w.fma(n, w.literal(-0.693359375), x)
    return exp_of_reduced(w, w.fma(n, w.literal(2.12194440e-4), r), n)


def split(w: Writer, x: str) -> tuple[str, str]:
    """x = 2ᵉ·(1 + f) with 1 + f between √½ and √2: e and f."""
    shifted = w.integer("sub", w.bits(x), 0x3F3504F3)
    exponent = w.integer("ashr", shifted, 23)
    mantissa = w.integer("sub", w.bits(x), w.integer("shl", exponent, 23))
    return w.to_float(exponent), w.binary("fsub", w.from_bits(mantissa), w.literal(1.0))


def log_of_mantissa(w: Writer, f: str) -> str:
    """log(1 + f) - f."""
    square = w.binary("fmul", f, f)
    return w.binary("fmul", square, w.fma(w.polynomial(f, LOG), f, w.literal(-0.5)))


def log(w: Writer, x: str) -> str:
    e, f = split(w, x)
    tail = w.fma(e, w.literal(-2.12194440e-4), log_of_mantissa(w, f))
    return w.fma(e, w.literal(0.693359375), w.binary("fadd", f, tail))


def sin(w: Writer, x: str) -> str:
    """Reduced by the nearest multiple of π, whose parity is the sign."""
    n = w.intrinsic("rint", w.binary("fmul", x, w.literal(0.3183098861837907)))
    r = w.fma(n, w.literal(-3.140625), x)
    r = w.fma(n, w.literal(-9.67653589793e-4), r)
    square = w.binary("fmul", r, r)
    value = w.fma(w.binary("fmul", square, r), w.polynomial(square, SIN), r)
    return w.from_bits(w.integer("xor", w.bits(value), w.integer("shl", w.to_int(n), 31)))


def tanh(w: Writer, x: str) -> str:
    x = w.larger(w.smaller(x, w.literal(9.0)), w.literal(-9.0))
    square = w.binary("fmul", x, x)
    over = w.binary("fmul", x, w.polynomial(square, TANH_OVER))
    return w.binary("fdiv", over, w.polynomial(square, TANH_UNDER))


def power(w: Writer, x: str, y: str) -> str:
    e, f = split(w, x)
    log2 = w.fma(w.binary("fadd", f, log_of_mantissa(w, f)), w.literal(LOG2_E), e)
    product = w.binary("fmul", y, log2)
    product = w.larger(w.smaller(product, w.literal(127.0)), w.literal(-126.0))
    n = w.intrinsic("rint", product)
    return exp_of_reduced(w, w.binary("fmul", w.binary("fsub", product, n), w.literal(0.6931471805599453)), n)
