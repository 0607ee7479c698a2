"""Loop passes: lower a kernel step to a loop nest with parallel, vectorised, unrolled and tiled loops.

`nest.py` is the loop nest that the passes change, `cost_model.py` has their numbers. For the CPU: `vectorise.py`,
`interchange.py`, `accesses.py` and `split_into_items.py`; for loops of a program `unroll_and_jam.py`,
`skew_and_jam.py`, `split_index_sets.py`, `version_loops.py`, `parallel_loops.py` and `bounds_checks.py`. For CUDA:
`device.py` and `narrow_positions.py`.
"""
