"""Tells the compiler which functions on tensors captured code may call, such as `lg.sin`, and what each means there.

Comes last among the parts that the package connects: by then the compiler knows every name.
"""

from livegrad.frontend.function.intrinsics import know_tensor_functions
from livegrad.tensors import namespace, trailing

know_tensor_functions(namespace, namespace.__all__)
know_tensor_functions(trailing, ["transpose"])
