"""How each node is computed: inside another's expression, by a kernel of its own, in place, as a view, or on the host.

`materialise.py` decides by these kinds which values are stored.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Literal

from livegrad.ir.leaves import parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Matrix, Scalar, Tensor, Type, Vector, bf16, holds_tensor, inner_types
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.aggregate import get, make
from livegrad.ops.assignment import UPDATES
from livegrad.ops.control import call, cond, for_loop, switch, while_loop
from livegrad.ops.conversion import complex_parts, from_parts
from livegrad.ops.host import host_call
from livegrad.ops.index_motion import Box
from livegrad.ops.indexing import lookup, lookup_or, scatter_add
from livegrad.ops.maps import component_shape, map_
from livegrad.ops.movement import concatenate, pad, reshape, sizes, squeezed_axes
from livegrad.ops.order import after
from livegrad.ops.reduction import arg_reduce, cumulative, recurrence, reduce
from livegrad.ops.sorting import searchsorted
from livegrad.passes.regions import LOOPS
from livegrad.schedule.indexed_writes import as_element_select, assigned_box, is_uniform

GroupKind = Literal["fused", "scan", "place", "write", "loop", "host", "view"]
CONTROL = (call, cond, switch, for_loop, while_loop)
READS = (lookup, lookup_or, searchsorted)  # these read a stored tensor
MOVES = ("broadcast", "permute", "slice", "flip", "reshape", "iota", "unwritten")
_SMALL_PART = 4  # writes to parts this many times smaller than the tensor are done in place
_SMALL_TENSOR = 256  # elements; a kernel over all of them costs no more than over a part


def materialised_kind(node: Node) -> GroupKind:
    if not is_storable(node.type):
        return "host"
    if node.op in (pad, concatenate) or _is_box_fill(node):
        return "place"
    return "view" if is_memory_view(node) else "fused"


def _is_box_fill(node: Node) -> bool:
    """Whether a stored assignment to a box overwrites the box in place, instead of selecting at each element.

    A box that cannot be selected must be. In a large tensor, so is a dense box, and a box in a value that is copied.
    """
    box = assigned_box(node)
    if box is None or not _can_select(node, box):
        return box is not None
    base = node.operands[0]
    return prod(sizes(node)) > _SMALL_TENSOR and (
        box.is_dense or (base.op is not parameter_op and root_kind(base) is not None)
    )


def _can_select(node: Node, box: Box) -> bool:
    """Whether an expression can select between the old and the new value at each element."""
    return box.is_dense or is_uniform(node.operands[1])


def is_memory_view(node: Node) -> bool:
    """Whether a node is a reshape of a value that is stored anyway, and therefore a view of its memory.

    So a vector is multiplied with a matrix without a copy of the vector or of the product.
    """
    if node.op is not reshape or not isinstance(node.type, Tensor):
        return False
    (source,) = node.operands
    if source.op is parameter_op:
        return isinstance(source.type, Tensor)
    return is_storable(source.type) and (root_kind(source) not in (None, "write") or is_memory_view(source))


def root_kind(node: Node) -> GroupKind | None:
    """How a node must be computed if it cannot be part of another's expression; None if it can."""
    if node.op is after:
        # The same memory at a later step.
        return "view" if is_storable(node.type) else "host"
    if node.op in (complex_parts, from_parts):
        return "view"
    if node.op is host_call or uses_complex(node):
        return "host"
    if node.op in CONTROL:
        return "host" if holds_tensor(node.type) or any(map(does_tensor_work, node.functions)) else None
    mapped = map_result(node)
    if mapped is not None:
        return _map_kind(*mapped)
    if node.op is map_:
        return None if _is_native_map(node) else "host"
    if not isinstance(node.type, Tensor) and holds_tensor(node.type) and node.op is not make:
        return "host"
    return _tensor_kind(node)


def _tensor_kind(node: Node) -> GroupKind | None:
    if node.op.elementwise:
        return None
    if node.op in (reduce, arg_reduce):
        return "fused"
    if node.op in (cumulative, recurrence):
        return "scan"
    if node.op is concatenate or (node.op is pad and any(node.attribute("interior"))):
        return "place"
    if node.op is reshape and squeezed_axes(sizes(node.operands[0]), sizes(node)) is None:
        return "view"
    if node.op in UPDATES:
        return _write_kind(node)
    if not isinstance(node.type, Tensor) or node.op in (*READS, pad, parameter_op):
        return None
    return None if node.op.name in MOVES else "host"


def _write_kind(node: Node) -> GroupKind | None:
    if node.op is scatter_add and isinstance(node.type, Tensor) and node.type.element is bf16:
        return "host"
    box = assigned_box(node)
    if box is None:
        return "write" if as_element_select(node) is None or _is_small_write_in_memory(node) else None
    if not _can_select(node, box):
        return "place"
    if prod(sizes(node)) <= _SMALL_TENSOR:
        return None
    # A chain of in-place writes costs less than nested selects at each element, and so does a small write.
    base, updates = node.operands[:2]
    prefers_select = is_uniform(updates) or 2 * prod(box.size) > prod(sizes(node))
    return None if prefers_select and assigned_box(base) is None else "place"


def _is_small_write_in_memory(node: Node) -> bool:
    """Whether a write changes few elements of a stored tensor, so that selects would read and write far more."""
    base, updates = node.operands[:2]
    total = prod(sizes(node))
    if total <= _SMALL_TENSOR or _SMALL_PART * prod(sizes(updates)) > total:
        return False
    is_loop = base.op is get and base.operands[0].op in LOOPS
    return is_loop or (base.op in UPDATES and _write_kind(base) == "write")


def _map_kind(node: Node, number: int) -> GroupKind | None:
    if not _is_native_map(node):
        return "host"
    result = node.attribute("function").result_types[number]
    return "fused" if node.attribute("summed")[number] or component_shape(result) else None


def map_result(node: Node) -> tuple[Node, int] | None:
    """The map that computes a node, and the index of the result. None for a map with several results itself."""
    if node.op is map_:
        return (node, 0) if len(node.attribute("function").results) == 1 else None
    if node.op.name == "get" and node.operands[0].op is map_:
        source = node.operands[0]
        return (source, node.attribute("index")) if len(source.attribute("function").results) > 1 else None
    return None


def _is_native_map(node: Node) -> bool:
    function: Function = node.attribute("function")
    scalars = all(component_shape(type) is not None for type in function.result_types)
    return scalars and not does_tensor_work(function) and not has_complex(function)


# --- types -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def is_storable(type: Type) -> bool:
    """Whether a buffer can hold a value of this type. Other values pass between host steps as objects."""
    return isinstance(type, Scalar | Vector | Matrix | Tensor)


def _holds_complex(type: Type) -> bool:
    element = type.element if isinstance(type, Tensor) else type
    return element.kind == "complex" if isinstance(element, Scalar) else _has_complex_member(type)


@lru_cache(maxsize=4096)
def _has_complex_member(type: Type) -> bool:
    return any(isinstance(inner, Scalar) and inner.kind == "complex" for inner in inner_types(type))


def uses_complex(node: Node) -> bool:
    """Whether a node has a complex operand or result, or computes with complex numbers. NumPy runs such nodes."""
    for value in (node, *node.operands):
        if _holds_complex(value.type):
            return node.op is not parameter_op
    return any(map(has_complex, node.functions))


@lru_cache(maxsize=4096)
def has_complex(function: Function) -> bool:
    return any(_holds_complex(node.type) for inner in reachable_functions([function]) for node in nodes_of(inner))


@lru_cache(maxsize=4096)
def does_tensor_work(function: Function) -> bool:
    """Whether a function must run on the host: it has host calls, or computes tensors instead of only indexing them."""
    return any(
        node.op in (map_, host_call) or (isinstance(node.type, Tensor) and node.op is not parameter_op)
        for inner in reachable_functions([function])
        for node in nodes_of(inner)
    )
