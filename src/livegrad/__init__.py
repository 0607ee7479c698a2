"""livegrad: live, differentiable compute graphs.

Write a function with `trace`, differentiate it with `jvp` or `vjp`, run it with `compile` (native code) or `evaluate`
(the NumPy reference).
"""

from livegrad import ops
from livegrad.backends.cpu import compile_function as compile
from livegrad.backends.reference import evaluate
from livegrad.diagnostics import (
    CompileError,
    DifferentiationError,
    KernelCheckError,
    LivegradError,
    ParseError,
    TypeRuleError,
    UsageError,
    VerifyError,
)
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.text import parse_function, print_function
from livegrad.ir.types import (
    Array,
    Dimension,
    Matrix,
    Struct,
    Tensor,
    Tuple,
    Vector,
    bool_,
    c64,
    c128,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from livegrad.ops.control import map_over
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp

__version__ = "0.1.0"

__all__ = [
    "Array",
    "CompileError",
    "DifferentiationError",
    "Dimension",
    "Function",
    "KernelCheckError",
    "LivegradError",
    "Matrix",
    "Node",
    "ParseError",
    "Struct",
    "Tensor",
    "Tuple",
    "TypeRuleError",
    "UsageError",
    "Vector",
    "VerifyError",
    "bool_",
    "c64",
    "c128",
    "compile",
    "constant",
    "evaluate",
    "f16",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "jvp",
    "map_over",
    "ops",
    "parse_function",
    "print_function",
    "trace",
    "u8",
    "u16",
    "u32",
    "u64",
    "vjp",
]
