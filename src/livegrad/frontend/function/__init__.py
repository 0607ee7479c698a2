"""The compiler from typed Python source to IR functions: capture, types, statements and expressions.

`captured.py` describes a function, `function_compiler.py` compiles it, `dispatch.py` runs it on Python values and
`lazy_calls.py` on tensors. Importing the package registers all intrinsics.
"""

from livegrad.frontend.function import array_creation, geometry, printing  # noqa: F401  # they register intrinsics
from livegrad.frontend.function.intrinsics import register_tensor_functions
from livegrad.tensors import namespace, trailing

# Last: a tensor function is registered only if an intrinsic of its name exists.
register_tensor_functions(namespace, namespace.__all__)
register_tensor_functions(trailing, ["transpose"])
