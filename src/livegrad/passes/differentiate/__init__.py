"""Automatic differentiation of value IR: forward mode, and reverse mode as the transpose of the linearised program.

`lower.py` is the pass. `forward.py` has forward mode; reverse mode is `linearize.py` followed by `transpose.py`
(`reverse.py`), over the interpreter in `propagate.py`. `choose_residuals.py`, `by_point.py`, `sink_broadcasts.py`,
`recompute.py` and `budget.py` decide what is stored. `custom.py` has the rules of custom derivatives.
"""

from livegrad.passes.differentiate import custom, recompute

__all__ = ["custom", "recompute"]  # imported because they add their rules to the tables of both modes
