"""Context nullification and precise caching: graphs whose nodes declare what they need of their context."""

from livegrad.contexts.cache.disk import DiskCache
from livegrad.contexts.cache.store import CacheLimits, Counts
from livegrad.contexts.context_graph import ContextGraph
from livegrad.contexts.context_program import Program
from livegrad.contexts.context_tensors import context_tensor, tensor_function
from livegrad.contexts.context_values import Context
from livegrad.contexts.declare import (
    ContextFunction,
    Extract,
    ExtractAll,
    Inject,
    Modify,
    Optional,
    Scoped,
    context_node,
)
from livegrad.contexts.errors import ContextError
from livegrad.contexts.function_nodes import Kernel, context_function
from livegrad.contexts.guard import NodeContext
from livegrad.contexts.observe import Change, Event, EventLog, Reason
from livegrad.contexts.report import CacheReport, NodeReport
from livegrad.ops.context import Feature, FeatureLevel, context, register_feature

__all__ = [
    "CacheLimits",
    "CacheReport",
    "Change",
    "Context",
    "ContextError",
    "ContextFunction",
    "ContextGraph",
    "Counts",
    "DiskCache",
    "Event",
    "EventLog",
    "Extract",
    "ExtractAll",
    "Feature",
    "FeatureLevel",
    "Inject",
    "Kernel",
    "Modify",
    "NodeContext",
    "NodeReport",
    "Optional",
    "Program",
    "Reason",
    "Scoped",
    "context",
    "context_function",
    "context_node",
    "context_tensor",
    "register_feature",
    "tensor_function",
]
