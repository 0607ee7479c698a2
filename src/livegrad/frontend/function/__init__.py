"""Python source as IR functions: capture, types, the compiler of statements and expressions.

Importing the package connects its parts: captured functions compile themselves and run when they are called.
"""

from livegrad.frontend.function import (  # noqa: F401
    dispatch,
    function_compiler,
    geometry,
    lazy_calls,
    printing,
    python_fallback,
    tensor_names,
)
