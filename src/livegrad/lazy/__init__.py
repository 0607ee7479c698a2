"""Lazy values: nodes whose results are computed when they are first read, and then cached.

`execution.py` finds what is missing and runs it as one function. `compiled_graphs.py` reuses code for graphs that
differ only in their data. `lazy_values.py` holds results. `truncate_history.py` frees the graphs that loops would grow.
"""
