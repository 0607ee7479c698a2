"""Emits definitions of math functions by name, as LLVM IR.

In: (function, element, lanes) requests. Out: definitions, and declarations of the intrinsics that they use. Called by
`runtime/cpu/math_library.py`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from livegrad.codegen.llvm.registers import llvm_type
from livegrad.codegen.llvm.values import Value
from livegrad.codegen.llvm.vector_math import (
    error_function,
    exponentials,
    inverse_trigonometry,
    logarithms,
    powers,
    remainder,
    trigonometry,
)
from livegrad.codegen.llvm.vector_math.element import ELEMENTS, Element
from livegrad.codegen.llvm.vector_math.large_angles import (
    FOR_COS,
    FOR_SIN,
    FOR_TAN,
    large_angles_declarations,
    large_angles_text,
)
from livegrad.codegen.llvm.vector_math.math_builder import MathBuilder

_UNARY: Mapping[str, Callable[[MathBuilder, Value], Value]] = {
    "exp": exponentials.exp,
    "exp2": exponentials.exp2,
    "expm1": exponentials.expm1,
    "log": logarithms.log,
    "log2": logarithms.log2,
    "log10": logarithms.log10,
    "log1p": logarithms.log1p,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
    "tan": trigonometry.tan,
    "asin": inverse_trigonometry.asin,
    "acos": inverse_trigonometry.acos,
    "atan": inverse_trigonometry.atan,
    "sinh": exponentials.sinh,
    "cosh": exponentials.cosh,
    "tanh": exponentials.tanh,
    "asinh": logarithms.asinh,
    "acosh": logarithms.acosh,
    "atanh": logarithms.atanh,
    "cbrt": powers.cbrt,
    "erf": error_function.erf,
}
_BINARY: Mapping[str, Callable[[MathBuilder, Value, Value], Value]] = {
    "atan2": inverse_trigonometry.atan2,
    "pow": powers.pow,
    "hypot": powers.hypot,
    "fmod": remainder.fmod,
}

_ANGLE_REDUCTIONS = {reduction.name: reduction for reduction in (FOR_SIN, FOR_COS, FOR_TAN)}

MATH_FUNCTIONS: Mapping[str, int] = MappingProxyType(dict.fromkeys(_UNARY, 1) | dict.fromkeys(_BINARY, 2))
"""Arity by name."""


@dataclass(frozen=True, slots=True)
class MathText:
    definitions: str
    declarations: frozenset[str]  # `declare ...` lines, to be merged with those of the module


def math_function_name(function: str, element: str, lanes: int) -> str:
    """The symbol, without the @."""
    return f"lg_{function}_{element}x{lanes}"


def math_functions(requests: Iterable[tuple[str, str, int]], avx512: bool = False) -> MathText:
    """Definitions of every requested function and, once each, of the helpers that they call.

    The functions are internal, use fastcc and have the attribute group #1, which the caller defines. With `avx512`,
    they use AVX-512 instructions; their results have the same bits.
    """
    texts: dict[str, str] = {}
    declarations: set[str] = set()
    for function, element_name, lanes in sorted(set(requests)):
        math, text = _define(function, _element(element_name), lanes, avx512)
        texts[math_function_name(function, element_name, lanes)] = text
        texts |= math.tables
        declarations |= math.builder.declarations
        if function in _ANGLE_REDUCTIONS:
            texts |= large_angles_text(_ANGLE_REDUCTIONS[function], math.element, lanes)
            declarations |= large_angles_declarations(math.element)
    return MathText("\n".join(texts.values()), frozenset(declarations))


def _element(name: str) -> Element:
    if name not in ELEMENTS:
        raise ValueError(f"math functions exist for the elements {', '.join(ELEMENTS)}; found {name!r}")
    return ELEMENTS[name]


def _define(function: str, element: Element, lanes: int, avx512: bool) -> tuple[MathBuilder, str]:
    math = MathBuilder(element, lanes, avx512)
    if function in _UNARY:
        names, result = ("x",), _UNARY[function](math, math.argument("x"))
    elif function in _BINARY:
        names = ("x", "y")
        result = _BINARY[function](math, math.argument("x"), math.argument("y"))
    else:
        raise ValueError(f"no math function {function!r}; there are {', '.join(MATH_FUNCTIONS)}")
    vector = llvm_type(element.type, lanes)
    header = f"define internal fastcc {vector} @{math_function_name(function, element.name, lanes)}"
    parameters = ", ".join(f"{vector} %{name}" for name in names)
    math.builder.line(f"ret {result.typed}")
    return math, math.builder.function(f"{header}({parameters}) noinline nounwind #1") + "\n"
