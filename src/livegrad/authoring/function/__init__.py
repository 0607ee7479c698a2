"""Python source as IR functions: capture, types, the compiler of statements and expressions.

Importing the package connects its parts: captured functions compile themselves and run when they are called.
"""

from livegrad.authoring.function import compiler, geometry, lazy, plain, printing, running, tensor_names  # noqa: F401
