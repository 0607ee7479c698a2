"""The CPU backend: plans as native code, made of LLVM IR with explicit vectors."""

from livegrad.backends.cpu.derived import DerivedFunction, derived_number
from livegrad.backends.cpu.function import CpuFunction, compile_function, forget_functions, run_function

__all__ = [
    "CpuFunction",
    "DerivedFunction",
    "compile_function",
    "derived_number",
    "forget_functions",
    "run_function",
]
