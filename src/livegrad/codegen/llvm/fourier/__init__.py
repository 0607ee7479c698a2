"""Fast Fourier transforms as LLVM IR, vectorised across the rows of a batch.

`transform_module.py` emits the passes of a transform (Stockham's algorithm), `butterflies.py` the transforms of a few
numbers in each lane, and `rows.py` moves rows between memory and workspaces.
"""
