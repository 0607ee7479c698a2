"""The CPU backend: runs plans as native code from LLVM IR with explicit vectors."""

from livegrad.runtime.cpu.cpu_function import CpuFunction, compile_function, forget_functions, run_function
from livegrad.runtime.cpu.derived_functions import DerivedFunction, derived_number

__all__ = [
    "CpuFunction",
    "DerivedFunction",
    "compile_function",
    "derived_number",
    "forget_functions",
    "run_function",
]
