"""The graph compiler: flatten, sort, propagate shapes, wire, share memory. It turns a graph into a plan.

`graph_compiler.py` runs the phases `flatten.py`, `topological_sort.py`, `propagate.py`, `wire.py` and
`share_memory.py`; `phases.py` shows them. The result is a `LivePlan` (`live_plan.py`) of steps (`live_steps.py`).
"""
