"""OpenCL: any function of scalars, vectors and small matrices as readable OpenCL C, and running it over points."""

from livegrad.backends.opencl.run import OpenclFunction, compile_function, reason_for_no_opencl
from livegrad.backends.opencl.source import kernel_source, opencl_source

__all__ = ["OpenclFunction", "compile_function", "kernel_source", "opencl_source", "reason_for_no_opencl"]
