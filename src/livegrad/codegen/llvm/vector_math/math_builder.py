"""Building blocks of math functions: bit patterns, error-free sums and products, polynomials, and rare branches.

In: Python expressions over ``Value``s. Out: instructions, emitted by an LLVM builder. Called by the modules of this
package that define functions; ``math_functions`` turns the finished body into a definition.
"""

from collections.abc import Callable, Sequence

from livegrad.codegen.llvm.builder import Builder
from livegrad.codegen.llvm.counted_loops import OpenLoop
from livegrad.codegen.llvm.registers import Register, llvm_type
from livegrad.codegen.llvm.values import Value
from livegrad.codegen.llvm.vector_math.element import ELEMENTS, Element
from livegrad.ir.types import Scalar, bool_, i32

Operand = Value | float
Values = tuple[Value, ...]

REGISTER_BITS = 512  # of an AVX-512 register


class MathBuilder:
    """One function body under construction; `element` is the type of the function's arguments and result."""

    def __init__(self, element: Element, lanes: int, avx512: bool = False) -> None:
        self.builder = Builder(lanes)
        self.element = element
        self.lanes = lanes
        # AVX-512 intrinsics work on whole registers, so other numbers of lanes do not use them.
        self.avx512 = avx512 and lanes % (REGISTER_BITS // element.width) == 0
        self.tables: dict[str, str] = {}  # constants in memory, by symbol

    # Arguments and constants

    def argument(self, name: str) -> Value:
        return self.value(Register(f"%{name}", self.element.type, self.lanes))

    def value(self, register: Register) -> Value:
        return Value(self.builder, register)

    def constant(self, value: float) -> Value:
        return self.value(self.builder.constant(value, self.element.type))

    def integer_constant(self, value: int) -> Value:
        return self.value(self.builder.constant(value, self.element.integer))

    # Instructions

    def intrinsic(self, name: str, x: Value, *others: Operand) -> Value:
        registers = [x.register_of(other) for other in others]
        return self.value(self.builder.intrinsic(name, x.type, x.register, *registers))

    def fma(self, x: Operand, y: Operand, z: Operand) -> Value:
        """x·y + z, rounded once."""
        first = next(value for value in (x, y, z) if isinstance(value, Value))
        registers = [first.register_of(value) for value in (x, y, z)]
        return self.value(self.builder.intrinsic("fma", first.type, *registers))

    def sqrt(self, x: Value) -> Value:
        return self.intrinsic("sqrt", x)

    def abs(self, x: Value) -> Value:
        return self.intrinsic("fabs", x)

    def trunc(self, x: Value) -> Value:
        return self.intrinsic("trunc", x)

    def copy_sign(self, magnitude: Value, sign: Value) -> Value:
        return self.intrinsic("copysign", magnitude, sign)

    def select(self, mask: Value, then: Operand, otherwise: Operand) -> Value:
        if not isinstance(then, Value):
            like = otherwise if isinstance(otherwise, Value) else self.constant(0.0)
            then = self.value(like.register_of(then))
        return mask.select(then, otherwise)

    def at_most(self, x: Value, bound: Operand) -> Value:
        """min(x, bound), or NaN where x is NaN; the comparison and the select compile to one instruction."""
        return self.select(x > bound, bound, x)

    def at_least(self, x: Value, bound: Operand) -> Value:
        return self.select(x < bound, bound, x)

    def convert(self, x: Value, type: Scalar) -> Value:
        """Between float formats, from an integer to a float, or from i64 to i32."""
        if x.is_float:
            return x.convert("fpext" if type.bits > x.type.bits else "fptrunc", type)
        return x.convert("trunc" if type is i32 else "sitofp", type)

    # Bit patterns

    def bits(self, x: Value) -> Value:
        return x.convert("bitcast", ELEMENTS[x.type.name].integer)

    def from_bits(self, bits: Value) -> Value:
        return bits.convert("bitcast", ELEMENTS[f"f{bits.type.bits}"].type)

    def sign_of(self, x: Value) -> Value:
        """The sign bit alone, as an integer."""
        return self.bits(x) & self.element.sign_bit

    def has_sign(self, x: Value) -> Value:
        return self.bits(x) < 0

    def flip_sign(self, x: Value, sign: Value) -> Value:
        """x, negated where the integer ``sign`` has the sign bit; the other bits of ``sign`` must be zero."""
        return self.from_bits(self.bits(x) ^ sign)

    def small_integer_to_float(self, x: Value) -> Value:
        """For magnitudes below 2^22. For float64, it adds the rounding constant, because few CPUs convert i64."""
        if self.element.width == 32:
            return self.convert(x, self.element.type)
        magic = self.element.rounding_magic
        return self.from_bits(x + self.element.bits_of(magic)) - magic

    def nearest_integer(self, x: Value, scale: float) -> tuple[Value, Value]:
        """rint(x·scale) as a float, and as the low bits of an integer, whose upper bits are arbitrary."""
        magic = ELEMENTS[x.type.name].rounding_magic
        shifted = self.fma(x, scale, magic)
        return shifted - magic, self.bits(shifted)

    def nearest_power(self, x: Value, scale: float, exponent_offset: int = 0) -> tuple[Value, Value]:
        """n = rint(x·scale), and 2^(n + exponent_offset), which must be a normal number."""
        # The rounding constant includes the exponent bias, so one shift gives the power of two.
        magic = self.element.rounding_magic + self.element.bias + exponent_offset
        shifted = self.fma(x, scale, magic)
        return shifted - magic, self.from_bits(self.bits(shifted) << self.element.mantissa_bits)

    # Composites

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """The sum of coefficients[i]·x^i, by Horner's rule."""
        result = x.wrap(x.register_of(coefficients[-1]))
        for coefficient in reversed(coefficients[:-1]):
            result = self.fma(result, x, coefficient)
        return result

    def polynomial_in_two_chains(self, x: Value, coefficients: Sequence[float]) -> Value:
        """The same sum, with even and odd terms in separate chains.

        Measured 10 to 20 % faster for log and tan in float64 and pow in float32, where the latency of one long chain
        dominates. If the two sums cancel, as for atan near 1, it is less accurate.
        """
        square = x * x
        return self.fma(self.polynomial(square, coefficients[1::2]), x, self.polynomial(square, coefficients[::2]))

    def two_product(self, x: Value, y: Value) -> tuple[Value, Value]:
        """x·y and its exact rounding error."""
        product = x * y
        return product, self.fma(x, y, -product)

    def fast_two_sum(self, large: Operand, small: Value) -> tuple[Value, Value]:
        """The sum and its exact rounding error, given |large| >= |small|."""
        total = large + small
        return total, small - (total - large)

    def subtract_multiple(self, x: Value, multiple: Value, unit: Sequence[float]) -> Value:
        """x - multiple·unit (Cody–Waite), with the unit in parts, greatest first.

        The fma does not round the product, so the first difference is exact, even with cancellation.
        """
        for part in unit:
            x = self.fma(multiple, -part, x)
        return x

    # Control flow

    def call_helper(self, name: str, argument: Value, results: Sequence[Scalar]) -> Values:
        """Calls a function that returns a structure; ``math_functions`` adds its definition."""
        structure = f"{{ {', '.join([llvm_type(type, self.lanes) for type in results])} }}"
        packed = self.builder.raw(f"call fastcc {structure} @{name}({argument.typed})")
        return tuple(
            self.value(self.builder.make(f"extractvalue {structure} {packed}, {index}", type, self.lanes))
            for index, type in enumerate(results)
        )

    def any_lane(self, mask: Value) -> Value:
        return self.value(self.builder.any_lane(mask.register))

    def any_square_above(self, x: Value, bound: float) -> Value:
        """Whether x² is above the bound or NaN in some lane; may also hold if squares of several lanes add up to it.

        It takes about one instruction per register. Comparing each register takes four, because masks are combined one
        by one.
        """
        builder, in_register = self.builder, REGISTER_BITS // self.element.width
        if self.lanes <= in_register:
            total = builder.apply("fmul", x.type, x.register, x.register)
        else:
            low, high = builder.halves(x.register)
            total = builder.intrinsic("fma", x.type, high, high, builder.apply("fmul", x.type, low, low))
        while total.lanes > in_register:
            total = builder.apply("fadd", x.type, *builder.halves(total))
        above = builder.apply("fcmp uge", bool_, total, builder.constant(bound, x.type))
        return self.value(builder.any_lane(above))

    def when_any(self, mask: Value, usual: Values, replace: Callable[[], Values]) -> Values:
        """``usual``, or the values of ``replace``, emitted in a block that runs only if a lane of the mask is set."""
        return self.when(self.any_lane(mask), usual, replace)

    def when(self, condition: Value, usual: Values, replace: Callable[[], Values]) -> Values:
        """``usual``, or the values of ``replace``, emitted in a block that runs only if the condition holds."""
        builder = self.builder
        rare, done, before = builder.label("rare"), builder.label("done"), builder.block
        builder.branch(condition.register, rare, done)
        builder.begin(rare)
        replaced = replace()
        after = builder.block
        builder.jump(done)
        builder.begin(done)
        return tuple(
            self.value(builder.phi(u.type, self.lanes, [(u.register, before), (r.register, after)]))
            for u, r in zip(usual, replaced, strict=True)
        )

    def repeat_while_any(
        self, state: Value, condition: Callable[[Value], Value], step: Callable[[Value], Value]
    ) -> Value:
        """Applies ``step``, which must not branch, to the lanes where ``condition`` holds, until it holds in none."""
        builder = self.builder
        loop = OpenLoop(builder, [state.register])
        value = self.value(loop.carried[0])
        active = condition(value)
        builder.branch(self.any_lane(active).register, loop.body, loop.done)
        builder.begin(loop.body)
        loop.close([active.select(step(value), value).register])
        return value
