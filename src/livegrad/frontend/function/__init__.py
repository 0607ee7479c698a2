"""Python source as IR functions: capture, types, the compiler of statements and expressions.

`captured.py` describes a function, `function_compiler.py` compiles it, `dispatch.py` runs it on Python values and
`lazy_calls.py` on tensors. Importing the package fills the table of functions that the compiler knows.
"""

from livegrad.frontend.function import array_creation, geometry, printing, tensor_names  # noqa: F401
