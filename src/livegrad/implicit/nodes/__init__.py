"""Node graphs: immutable assemblies of functions made of nodes, and conversion to and from the value IR.

`node_types.py` is the table of node types, `assembly.py` the immutable set of functions, `builder.py` writes
functions in Python. `checks.py` validates them. `to_ir.py` and `from_ir.py` convert to and from the value IR,
`to_c.py` to C, and `gradient_function.py` and `lower_gradient.py` differentiate.
"""
