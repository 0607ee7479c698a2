"""Executes live plans as CUDA Graphs, for `Engine("cuda")`. Importing it does not start the driver."""

from livegrad.live.cuda.cuda_executor import CudaExecutor

__all__ = ["CudaExecutor"]
