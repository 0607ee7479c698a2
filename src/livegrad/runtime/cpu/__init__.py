"""The CPU backend: runs plans as native code from LLVM IR with explicit vectors.

Start with `cpu_function.py` (a function, compiled for sizes). `plan_serialiser.py` turns a plan into kernels with
argument slots, `kernel_code.py` and `tiers.py` compile them, and `compiled_plan.py` runs them. `native/` has the JIT,
the linker, the thread pool and the built-ins that Python calls.
"""

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
