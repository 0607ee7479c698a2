"""Live plans on the CPU: one native call per step, with early cutoff and on-demand steps.

`cpu_executor.py` is the executor, `cpu_run.py` runs a frame, and `cpu_calls.py` the calls of its steps. `cut_off.py`
stops where a result has not changed, and `on_demand.py` lets steps wait until something reads them.
"""
