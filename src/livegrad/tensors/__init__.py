"""Lazy tensors: the Array API over the value IR.

`handle.py` has the tensor, `namespace.py` lists all functions, and each kind of function has a module
(`arithmetic.py`, `manipulation.py`, `reductions.py` …), as have the extensions `linalg.py`, `fft.py` and `random.py`.
`tracing.py`, `jit.py`, `transforms.py` and `vmapping.py` are the transforms; `nn` and `optim` are built on them.
`deferred.py` and `repeated_calls.py` make small calls fast.
"""
