"""Live plans as CUDA Graphs: `CudaExecutor`, which `Engine("cuda")` uses. Importing it does not start the driver."""

from livegrad.live.cuda.cuda_executor import CudaExecutor

__all__ = ["CudaExecutor"]
