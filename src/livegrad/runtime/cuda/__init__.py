"""The CUDA backend: runs plans as CUDA Graphs of kernels that NVRTC compiles. Importing it does not start the driver.

Start with `cuda_function.py` (a function, compiled for sizes). `serialised_device_plan.py` turns a plan into launches,
`device_plan.py` runs them, and `libraries/` has the calls of cuBLAS and cuFFT and hand-written kernels.
"""

from livegrad.runtime.cuda.cuda_function import (
    CudaFunction,
    compile_chosen,
    compile_function,
    current_compiler,
    run_function,
    run_ieee,
    set_ieee_division,
)
from livegrad.runtime.cuda.device_memory import DeviceArray, make_room
from livegrad.runtime.cuda.driver import DeviceError, reason_for_no_cuda
from livegrad.runtime.cuda.result_memory import memory_in_use

__all__ = [
    "CudaFunction",
    "DeviceArray",
    "DeviceError",
    "compile_chosen",
    "compile_function",
    "current_compiler",
    "make_room",
    "memory_in_use",
    "reason_for_no_cuda",
    "run_function",
    "run_ieee",
    "set_ieee_division",
]
