"""Lazy evaluation: computes nodes when their values are first read, and caches the results.

`execution.py` collects the nodes without values and runs them as one function. `compiled_graphs.py` reuses code for
graphs that differ only in their data. `lazy_values.py` stores results, `holders.py` tracks the tensors that hold nodes,
and `eviction.py` enforces a memory budget. `truncate_history.py` frees the graphs that loops would otherwise grow.
"""
