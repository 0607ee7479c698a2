"""What type checkers read in place of `__init__.py`: every public name, imported from where it is.

Made from the tables in `public_names.py`; `./test --update-ir tests/test_import.py` writes it again.
"""
# ruff: noqa: I001, RUF022

from livegrad.ir import (
    types,
)
from livegrad.ir.types import (
    Array,
    Matrix,
    Struct,
    Tuple,
    Vector,
)
from livegrad.ir.dimension import (
    Dimension,
)
from livegrad.ir.node import (
    Function,
    Node,
)
from livegrad.ir.function import (
    trace,
)
from livegrad.ir.leaves import (
    constant,
)
from livegrad.ir.text import (
    parse_function,
    print_function,
)
from livegrad.ops.maps import (
    map_over,
)
from livegrad.runtime.cpu import (
    compile_function as compile,
)
from livegrad.runtime.reference import (
    evaluate,
)

__all__ = [
    "types",
    "Array",
    "Matrix",
    "Struct",
    "Tuple",
    "Vector",
    "Dimension",
    "Function",
    "Node",
    "trace",
    "constant",
    "parse_function",
    "print_function",
    "map_over",
    "compile",
    "evaluate",
]
