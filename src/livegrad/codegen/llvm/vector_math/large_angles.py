"""Payne–Hanek reduction: reduces angles too large for Cody–Waite modulo a quarter or half turn.

In: a reduction, an element and a number of lanes. Out: LLVM IR of helper functions by symbol. ``trigonometry`` calls
them in a rare branch; ``math_functions`` adds the definition of each once.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from string import Template

from livegrad.codegen.llvm.registers import literal_text, llvm_element, llvm_type
from livegrad.codegen.llvm.vector_math.element import F64, PI, Element

# From this magnitude on, angles take the slow path. Below it, three float64 parts of π suffice, and the error of the
# subtracted multiple of the unit is so small that |r| exceeds half of the unit by at most 2 %.
LARGE_ANGLE = 2.0**46

# 2/π·2^1168, as one wide integer constant: the greatest float64 needs the bits of 2/π down to 2^-1162. LLVM compiles
# the shift to a load at a variable offset. Not every JIT can relocate the address of a global table.
_TABLE_FRACTION_BITS = 1168


@dataclass(frozen=True, slots=True)
class AngleReduction:
    """angle = m·unit + offset + r, where the helper returns m and r, and |r| is at most half of the unit."""

    name: str
    quarters_in_unit: int  # 1 or 2
    quarters_in_offset: int

    @property
    def unit(self) -> Fraction:
        return self.quarters_in_unit * PI / 2

    @property
    def units_in_offset(self) -> float:
        return self.quarters_in_offset / self.quarters_in_unit


FOR_SIN = AngleReduction("sin", quarters_in_unit=2, quarters_in_offset=0)
FOR_COS = AngleReduction("cos", quarters_in_unit=2, quarters_in_offset=1)
FOR_TAN = AngleReduction("tan", quarters_in_unit=1, quarters_in_offset=0)

# The product of mantissa and window is taken modulo 4 quarter turns, with this many bits in all. The float nearest to
# a multiple of π/2 leaves 2^-31 (f32) or 2^-62 (f64) of a quarter turn, all of whose bits must be exact.
_PRODUCT_BITS = {"f32": 128, "f64": 192}

# A scalar function: wide integers make it short, and large angles are rare.
_REDUCE_ONE = Template("""\
define internal fastcc { $float, $int } @$name($float %x) noinline nounwind #1 {
  %bits = bitcast $float %x to $int
  %field = lshr $int %bits, $mantissa_bits
  %fraction = and $int %bits, $mantissa_mask
  %mantissa = or $int %fraction, $implicit_one
  ; the window of 2/pi whose product with the mantissa lies below four quarter turns
  %field.32 = $to_i32
  %position = sub i32 $window_origin, %field.32
  %position.wide = zext i32 %position to i$table
  %shifted = lshr i$table $two_over_pi, %position.wide
  %window = trunc i$table %shifted to i$product
  %mantissa.wide = zext $int %mantissa to i$product
  %turns = mul i$product %window, %mantissa.wide
  ; nearest multiple of the unit, and the signed rest
  %offset = sub i$product %turns, $offset
  %raised = add i$product %offset, $half_unit
  %multiple.wide = lshr i$product %raised, $unit_bits
  %whole = shl i$product %multiple.wide, $unit_bits
  %rest = sub i$product %offset, %whole
  %is_negative = icmp slt i$product %rest, 0
  %negated = sub i$product 0, %rest
  %magnitude.raw = select i1 %is_negative, i$product %negated, i$product %rest
  %magnitude = or i$product %magnitude.raw, 1
  %zeros = call i$product @llvm.ctlz.i$product(i$product %magnitude, i1 false)
  %normalised = shl i$product %magnitude, %zeros
  %leading = lshr i$product %normalised, $below_leading
  %leading.64 = trunc i$product %leading to i64
  ; times pi/2, in two parts of float64
  %high.int = and i64 %leading.64, -2048
  %low.int = and i64 %leading.64, 2047
  %high = uitofp i64 %high.int to double
  %low = uitofp i64 %low.int to double
  %product = fmul double %high, $half_pi_high
  %product.negated = fneg double %product
  %error.1 = call double @llvm.fma.f64(double %high, double $half_pi_high, double %product.negated)
  %error.2 = call double @llvm.fma.f64(double %high, double $half_pi_low, double %error.1)
  %error.3 = call double @llvm.fma.f64(double %low, double $half_pi_high, double %error.2)
  %unscaled = fadd double %product, %error.3
  %zeros.64 = trunc i$product %zeros to i64
  %exponent = sub i64 961, %zeros.64
  %scale.bits = shl i64 %exponent, 52
  %scale = bitcast i64 %scale.bits to double
  %angle.magnitude = fmul double %unscaled, %scale
  %angle.negated = fneg double %angle.magnitude
  %angle.64 = select i1 %is_negative, double %angle.negated, double %angle.magnitude
  %angle = $from_double
  ; infinity and NaN give NaN
  %is_finite = icmp ne $int %field, $infinite_field
  %invalid = fsub $float %x, %x
  %result.angle = select i1 %is_finite, $float %angle, $float %invalid
  %multiple = trunc i$product %multiple.wide to $int
  %result.0 = insertvalue { $float, $int } poison, $float %result.angle, 0
  %result.1 = insertvalue { $float, $int } %result.0, $int %multiple, 1
  ret { $float, $int } %result.1
}
""")

_REDUCE_LANES = Template("""\
define internal fastcc { $floats, $ints } @$name($floats %x) noinline nounwind #1 {
entry:
  br label %loop
loop:
  %lane = phi i32 [ 0, %entry ], [ %lane.next, %next ]
  %angles = phi $floats [ zeroinitializer, %entry ], [ %angles.next, %next ]
  %multiples = phi $ints [ zeroinitializer, %entry ], [ %multiples.next, %next ]
  %one = extractelement $floats %x, i32 %lane
  %is_large = fcmp oge $float %one, $large_angle
  br i1 %is_large, label %reduce, label %next
reduce:
  %reduced = call fastcc { $float, $int } @$reduce_one($float %one)
  %angle = extractvalue { $float, $int } %reduced, 0
  %multiple = extractvalue { $float, $int } %reduced, 1
  %angles.set = insertelement $floats %angles, $float %angle, i32 %lane
  %multiples.set = insertelement $ints %multiples, $int %multiple, i32 %lane
  br label %next
next:
  %angles.next = phi $floats [ %angles, %loop ], [ %angles.set, %reduce ]
  %multiples.next = phi $ints [ %multiples, %loop ], [ %multiples.set, %reduce ]
  %lane.next = add i32 %lane, 1
  %more = icmp ult i32 %lane.next, $lanes
  br i1 %more, label %loop, label %done
done:
  %result.0 = insertvalue { $floats, $ints } poison, $floats %angles.next, 0
  %result.1 = insertvalue { $floats, $ints } %result.0, $ints %multiples.next, 1
  ret { $floats, $ints } %result.1
}
""")


def large_angles_name(reduction: AngleReduction, element: Element, lanes: int) -> str:
    """The symbol of the helper that returns (r, m) for magnitudes >= LARGE_ANGLE, and arbitrary values for others."""
    return f"lg_large_angles_for_{reduction.name}_{element.name}x{lanes}"


def large_angles_text(reduction: AngleReduction, element: Element, lanes: int) -> dict[str, str]:
    """Definitions by symbol; several lane counts share the scalar one."""
    one = large_angles_name(reduction, element, 1)
    texts = {one: _reduce_one_text(reduction, element, one)}
    if lanes > 1:
        name = large_angles_name(reduction, element, lanes)
        texts[name] = _REDUCE_LANES.substitute(
            name=name,
            reduce_one=one,
            lanes=lanes,
            float=llvm_element(element.type),
            int=llvm_element(element.integer),
            floats=llvm_type(element.type, lanes),
            ints=llvm_type(element.integer, lanes),
            large_angle=literal_text(LARGE_ANGLE, element.type),
        )
    return texts


def large_angles_declarations(element: Element) -> frozenset[str]:
    product = _PRODUCT_BITS[element.name]
    return frozenset(
        {
            f"declare i{product} @llvm.ctlz.i{product}(i{product}, i1 immarg)",
            "declare double @llvm.fma.f64(double, double, double)",
        }
    )


def _reduce_one_text(reduction: AngleReduction, element: Element, name: str) -> str:
    product = _PRODUCT_BITS[element.name]
    is_f64 = element.name == "f64"
    high, low = F64.split(PI / 2, 2)
    return _REDUCE_ONE.substitute(
        name=name,
        float=llvm_element(element.type),
        int=llvm_element(element.integer),
        mantissa_bits=element.mantissa_bits,
        mantissa_mask=(1 << element.mantissa_bits) - 1,
        implicit_one=1 << element.mantissa_bits,
        infinite_field=2 * element.bias + 1,
        table=_TABLE_FRACTION_BITS,
        two_over_pi=_two_over_pi(),
        product=product,
        offset=reduction.quarters_in_offset << (product - 2),
        unit_bits=product - 3 + reduction.quarters_in_unit,
        half_unit=1 << (product - 4 + reduction.quarters_in_unit),
        below_leading=product - 64,
        # A field e means a mantissa times 2^(e - bias - mantissa_bits).
        window_origin=_TABLE_FRACTION_BITS - (product - 2) + element.bias + element.mantissa_bits,
        # If there is nothing to convert, an instruction that returns its operand.
        to_i32="trunc i64 %field to i32" if is_f64 else "add i32 %field, 0",
        from_double="fadd double %angle.64, -0.0" if is_f64 else "fptrunc double %angle.64 to float",
        half_pi_high=literal_text(high, F64.type),
        half_pi_low=literal_text(low, F64.type),
    )


@cache
def _two_over_pi() -> int:
    guard = 64
    bits = _TABLE_FRACTION_BITS + guard
    return ((2 << (2 * bits)) // _pi_times_power_of_two(bits)) >> guard


def _pi_times_power_of_two(bits: int) -> int:
    """Machin's formula, π = 16·atan(1/5) - 4·atan(1/239), in integers."""
    guard = 32
    one = 1 << (bits + guard)

    def atan_of_inverse(n: int) -> int:
        total = term = one // n
        divisor = 1
        while term:
            term //= -n * n
            divisor += 2
            total += term // divisor
        return total

    return (16 * atan_of_inverse(5) - 4 * atan_of_inverse(239)) >> guard
