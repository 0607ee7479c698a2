"""The scheduler: lowers tensor functions to plans. Decides materialisation, fusion, order, buffers and loops.

`plan_passes.py` has the passes, which work on a `Draft` (`draft.py`) and make a `Plan` (`plan.py`) of kernels
(`kernel.py`); their algorithms are in modules of their own, such as `materialise.py`, `fuse.py` and `allocate.py`,
their verifiers in `verify_draft.py`. `target.py` says what a device can do. Loop passes are in the package `loops`.
"""
