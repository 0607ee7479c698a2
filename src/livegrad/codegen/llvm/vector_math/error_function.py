"""Emits erf. In: a math builder and the argument. Out: the value of the function. Called by ``math_functions``."""

from livegrad.codegen.llvm.values import Value
from livegrad.codegen.llvm.vector_math import coefficients
from livegrad.codegen.llvm.vector_math.exponentials import exp_of_moderate
from livegrad.codegen.llvm.vector_math.math_builder import MathBuilder

# From here on, erf rounds to 1.
_SATURATION = {"f32": 4.0, "f64": 6.0}
# The centre of the polynomial for the exponent of erfc.
_CENTRE = {"f32": 0.0, "f64": 2.5}


def erf(a: MathBuilder, x: Value) -> Value:
    magnitude = a.at_most(a.abs(x), _SATURATION[a.element.name])
    near_zero = a.polynomial(magnitude * magnitude, coefficients.ERF_SMALL[a.element.name])
    inner = a.fma(magnitude, near_zero, magnitude)
    # erf(x) = 1 - exp(-E(x)): errors of E are scaled by erfc(x), which is small here.
    offset = magnitude - _CENTRE[a.element.name]
    exponent = a.polynomial(offset, coefficients.ERFC_EXPONENT[a.element.name])
    outer = 1.0 - exp_of_moderate(a, -exponent)
    return a.copy_sign(a.select(magnitude < 1.0, inner, outer), x)
