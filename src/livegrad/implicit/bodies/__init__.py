"""Parts: bodies defined by functions of position. Shapes, evaluation, pruning, rendering and slicing.

`part.py` has `Part`, `shapes.py` primitives and operations on them, `level_sets.py` parts of assemblies.
`rendering.py`, `slicing.py` and `sampled_volume.py` evaluate parts with `point_functions.py`; `pruning.py` and
`masking.py` leave out what cannot contribute. `part_tensors.py` evaluates parts on lazy tensors.
"""
