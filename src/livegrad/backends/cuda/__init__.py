"""CUDA: plans as one CUDA Graph of kernels compiled by NVRTC. Importing it touches no driver."""

from livegrad.backends.cuda.driver import DeviceError, reason_for_no_cuda
from livegrad.backends.cuda.function import CudaFunction, compile_function, run_function
from livegrad.backends.cuda.memory import DeviceArray

__all__ = ["CudaFunction", "DeviceArray", "DeviceError", "compile_function", "reason_for_no_cuda", "run_function"]
