"""Updates of a running plan: what changed, the cheapest correct update level, and the next plan.

`replan.py` plans what edits reach (`reach.py`, `rewire.py`, `reorder.py`), `diff_plans.py` compares the plan with the
running one, and `apply.py` applies the differences. `apply_values.py`, `hot_parameters.py` and `swap_code.py` are
shorter ways for numbers and functions. `background.py` compiles edits ahead.
"""
