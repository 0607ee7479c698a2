"""Value passes: transformations from value IR to value IR.

There is a module for each pass of `compiler.VALUE_PASSES`; `pipeline.py` runs and verifies them, `simplify`,
`differentiate`, `loop_over_elements` and `scalar_replacement` are packages. What passes share: `functions.py`,
`regions.py`, `index_maps.py`, `intervals.py`, `affine_bounds.py`. On demand run `batch` (`vmap`), `bound_intervals`,
`mask_choices` and `nullify_context`.
"""
