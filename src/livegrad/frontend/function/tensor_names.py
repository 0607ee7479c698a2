"""Registers the tensor functions that captured code may call, such as `lg.sin`, and their meaning there.

Imported last by the package, when the compiler knows all other names.
"""

from livegrad.frontend.function.intrinsics import register_tensor_functions
from livegrad.tensors import namespace, trailing

register_tensor_functions(namespace, namespace.__all__)
register_tensor_functions(trailing, ["transpose"])
