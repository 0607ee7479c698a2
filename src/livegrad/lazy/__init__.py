"""Lazy values: nodes whose results are computed when they are first read, and then cached.

`execution.py` finds what is missing and runs it as one function. `compiled_graphs.py` reuses code for graphs that
differ only in their data. `lazy_values.py` holds results, `holders.py` knows who wants them, and `eviction.py` keeps
them within a budget. `truncate_history.py` frees the graphs that loops would grow.
"""
