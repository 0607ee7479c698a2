"""Context nullification and precise caching: graphs whose nodes declare what they need of their context."""

from livegrad.authoring.context.declare import (
    ContextFunction,
    Extract,
    ExtractAll,
    Inject,
    Modify,
    Optional,
    Scoped,
    context_node,
)
from livegrad.authoring.context.errors import ContextError
from livegrad.authoring.context.graph import ContextGraph
from livegrad.authoring.context.guard import NodeContext
from livegrad.authoring.context.kernel import Kernel, context_function
from livegrad.authoring.context.observe import Change, Event, EventLog, Reason
from livegrad.authoring.context.program import Program
from livegrad.authoring.context.report import CacheReport, NodeReport
from livegrad.authoring.context.tensors import context_tensor, tensor_function
from livegrad.authoring.context.values import Context
from livegrad.engine.cache.disk import DiskCache
from livegrad.engine.cache.store import CacheLimits, Counts
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
