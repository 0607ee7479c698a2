"""What type checkers read in place of `__init__.py`: every public name, imported from where it is.

Made from the tables in `public_names.py`; `./test --update-ir tests/test_import.py` writes it again.
"""
# ruff: noqa: I001, RUF022

from livegrad.contexts.cache.disk import (
    DiskCache,
)
from livegrad.contexts.cache.store import (
    CacheLimits,
)
from livegrad.contexts.context_graph import (
    ContextGraph,
)
from livegrad.contexts.context_tensors import (
    context_tensor,
    tensor_function,
)
from livegrad.contexts.context_values import (
    Context,
)
from livegrad.contexts.declare import (
    context_node,
    Extract,
    ExtractAll,
    Inject,
    Modify,
    Scoped,
)
from livegrad.contexts.errors import (
    ContextError,
)
from livegrad.contexts.function_nodes import (
    context_function,
)
from livegrad.contexts.guard import (
    NodeContext,
)
from livegrad.ops.context import (
    context,
    register_feature,
)

__all__ = [
    "DiskCache",
    "CacheLimits",
    "ContextGraph",
    "context_tensor",
    "tensor_function",
    "Context",
    "context_node",
    "Extract",
    "ExtractAll",
    "Inject",
    "Modify",
    "Scoped",
    "ContextError",
    "context_function",
    "NodeContext",
    "context",
    "register_feature",
]
