"""CUDA: runs plans as CUDA Graphs of kernels compiled by NVRTC. Importing it does not start the driver."""

from livegrad.runtime.cuda.cuda_function import (
    CudaFunction,
    compile_chosen,
    compile_function,
    run_function,
    run_ieee,
    set_ieee_division,
)
from livegrad.runtime.cuda.device_memory import DeviceArray, make_room, memory_in_use
from livegrad.runtime.cuda.driver import DeviceError, reason_for_no_cuda

__all__ = [
    "CudaFunction",
    "DeviceArray",
    "DeviceError",
    "compile_chosen",
    "compile_function",
    "make_room",
    "memory_in_use",
    "reason_for_no_cuda",
    "run_function",
    "run_ieee",
    "set_ieee_division",
]
