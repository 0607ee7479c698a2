"""livegrad: live, differentiable compute graphs.

Tensors are lazy and follow the Array API: `lg.asarray`, `lg.sum`, `x @ y`. Or write a function of the value IR with
`trace`, differentiate it with `jvp` or `vjp`, run it with `compile` (native code) or `evaluate` (the NumPy reference).
"""

from livegrad import ops
from livegrad.authoring.context import (
    CacheLimits,
    Context,
    ContextError,
    ContextGraph,
    DiskCache,
    Extract,
    ExtractAll,
    Inject,
    Modify,
    NodeContext,
    Scoped,
    context,
    context_function,
    context_node,
    context_tensor,
    register_feature,
    tensor_function,
)
from livegrad.authoring.tensor import namespace as _namespace
from livegrad.authoring.tensor import optim
from livegrad.authoring.tensor.checks import check_gradients, debug_nans
from livegrad.authoring.tensor.control import cond, fori_loop, scan, switch, while_loop
from livegrad.authoring.tensor.custom import custom_jvp, custom_vjp
from livegrad.authoring.tensor.errors import (
    AxisError,
    DtypeError,
    GraphMergeError,
    GraphOrderError,
    IndexRangeError,
    NumberRangeError,
    ShapeError,
)
from livegrad.authoring.tensor.execution import clear_caches, execute
from livegrad.authoring.tensor.graph import Graph
from livegrad.authoring.tensor.handle import Tensor
from livegrad.authoring.tensor.jit import jit
from livegrad.authoring.tensor.namespace import *  # noqa: F403 - the namespace lists its names
from livegrad.authoring.tensor.storage import load, save
from livegrad.authoring.tensor.trailing import reduce_sum, transpose
from livegrad.authoring.tensor.transforms import checkpoint, grad, jvp, stop_gradient, value_and_grad, vjp
from livegrad.authoring.tensor.trees import tree_map
from livegrad.authoring.tensor.vmapping import hessian, jacfwd, jacrev, vmap
from livegrad.backends.cpu import compile_function as compile
from livegrad.backends.reference import evaluate
from livegrad.diagnostics import (
    CompileError,
    DifferentiationError,
    KernelCheckError,
    LivegradError,
    ParseError,
    TypeRuleError,
    UsageError,
    VerifyError,
)
from livegrad.engine.values import reset_stats, set_cache_budget, stats
from livegrad.ir import types
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.text import parse_function, print_function
from livegrad.ir.types import (
    Array,
    Dimension,
    Matrix,
    Struct,
    Tuple,
    Vector,
    bool_,
    c64,
    c128,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from livegrad.ops.control import map_over

__version__ = "0.1.0"

__all__ = [
    "Array",
    "AxisError",
    "CacheLimits",
    "CompileError",
    "Context",
    "ContextError",
    "ContextGraph",
    "DifferentiationError",
    "Dimension",
    "DiskCache",
    "DtypeError",
    "Extract",
    "ExtractAll",
    "Function",
    "Graph",
    "GraphMergeError",
    "GraphOrderError",
    "IndexRangeError",
    "Inject",
    "KernelCheckError",
    "LivegradError",
    "Matrix",
    "Modify",
    "Node",
    "NodeContext",
    "NumberRangeError",
    "ParseError",
    "Scoped",
    "ShapeError",
    "Struct",
    "Tensor",
    "Tuple",
    "TypeRuleError",
    "UsageError",
    "Vector",
    "VerifyError",
    "bool_",
    "c64",
    "c128",
    "check_gradients",
    "checkpoint",
    "clear_caches",
    "compile",
    "cond",
    "constant",
    "context",
    "context_function",
    "context_node",
    "context_tensor",
    "custom_jvp",
    "custom_vjp",
    "debug_nans",
    "evaluate",
    "execute",
    "f16",
    "f32",
    "f64",
    "fori_loop",
    "grad",
    "hessian",
    "i8",
    "i16",
    "i32",
    "i64",
    "jacfwd",
    "jacrev",
    "jit",
    "jvp",
    "load",
    "map_over",
    "ops",
    "optim",
    "parse_function",
    "print_function",
    "reduce_sum",
    "register_feature",
    "reset_stats",
    "save",
    "scan",
    "set_cache_budget",
    "stats",
    "stop_gradient",
    "switch",
    "tensor_function",
    "trace",
    "transpose",
    "tree_map",
    "types",
    "u8",
    "u16",
    "u32",
    "u64",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]
__all__ += _namespace.__all__
