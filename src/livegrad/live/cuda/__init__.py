"""Executes live plans as CUDA Graphs, for `Engine("cuda")`. Importing it does not start the driver.

`executable.py` holds a plan on the device, `program_builder.py` builds the graphs of a set of steps (`program.py`,
`live_graph.py`), and `program_cache.py` keeps them. `bind_steps.py` and `buffers.py` give steps their memory,
`update_steps.py` changes graphs in place, `reports.py` reads what a run reported in the ledger (`report_slots.py`).
"""

from livegrad.live.cuda.cuda_executor import CudaExecutor

__all__ = ["CudaExecutor"]
