"""Which tensors are stored, and which work is done together: roots, and groups of roots that share a kernel.

A root is a tensor (or scalar result) that ends up in memory. Every other node is part of the expression of the roots
that need it. Roots over one iteration space form a group; a group becomes a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Literal

from livegrad.ir.leaves import parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Tensor, Trace, Type, inner_types, scalar_of, shape_of
from livegrad.ir.walk import attribute_functions, nodes_of, toposort
from livegrad.ops.control import call, component_shape, cond, for_loop, map_, map_domain, switch, while_loop
from livegrad.ops.indexing import lookup
from livegrad.ops.reduction import arg_reduce, cumulative, recurrence, reduce
from livegrad.schedule.views import squeezed_axes

GroupKind = Literal["fused", "scan", "place", "host", "view"]
CONTROL = (call, cond, switch, for_loop, while_loop)

# A reduction to fewer rows than this, each longer than that, is split over threads in chunks of fixed length.
FEW_ROWS = 64
LONG_ROW = 1 << 16
# A value that several kernels need is computed again in each when it costs less than this, and stored otherwise.
CHEAP_AGAIN = 6.0


def holds_tensor(type: Type) -> bool:
    return any(isinstance(inner, Tensor) for inner in inner_types(type))


def is_object(type: Type) -> bool:
    """Whether no array holds a value of this type and no kernel can have it inside: tensors are among its parts."""
    return not isinstance(type, Tensor) and holds_tensor(type)


def _holds_trace(type: Type) -> bool:
    return any(isinstance(inner, Trace) for inner in inner_types(type))


def has_host_traces(function: Function) -> bool:
    return any(map(_holds_trace, (*function.parameter_types, *function.result_types)))


def _is_complex(node: Node) -> bool:
    scalars = (scalar_of(value.type) for value in (node, *node.operands))
    return any(scalar is not None and scalar.kind == "complex" for scalar in scalars) and node.op is not parameter_op


def sizes(node: Node) -> tuple[int, ...]:
    """A node's shape, in a function whose sizes are all known."""
    return shape_of(node.type)  # type: ignore[return-value]


def map_result(node: Node) -> tuple[Node, int] | None:
    """The map behind a node and which of its results that node is."""
    if node.op is map_:
        return node, 0
    if node.op.name == "get" and node.operands[0].op is map_:
        return node.operands[0], node.attribute("index")
    return None


def root_kind(node: Node, host_traces: bool = False) -> GroupKind | None:
    """How a node must be computed if it cannot be part of another's expression; None if it can.

    `host_traces`: traces come from outside the function or leave it, so no kernel can have them to itself.
    """
    if host_traces and any(_holds_trace(value.type) for value in (node, *node.operands)):
        return "host"
    if node.op in CONTROL:
        return "host" if is_object(node.type) or holds_tensor(node.type) or _does_tensor_work(node) else None
    mapped = map_result(node)
    if mapped is not None:
        return _mapped_kind(*mapped)
    if is_object(node.type) or any(is_object(operand.type) for operand in node.operands) or _is_complex(node):
        return "host"
    if node.op in (reduce, arg_reduce):
        return "fused"
    if node.op in (cumulative, recurrence):
        return "scan"
    if node.op.name in ("concatenate", "pad"):
        return "place"
    if node.op.name == "reshape" and squeezed_axes(sizes(node.operands[0]), sizes(node)) is None:
        return "view"
    if not isinstance(node.type, Tensor) or node.op.elementwise or node.op in (lookup, parameter_op):
        return None
    return None if node.op.name in ("broadcast", "permute", "slice", "flip", "reshape", "iota") else "host"


def _mapped_kind(node: Node, number: int) -> GroupKind | None:
    function: Function = node.attribute("function")
    if any(component_shape(type) is None for type in function.result_types):
        return "host"
    result = function.result_types[number]
    summed = node.attribute("summed")[number]
    if component_shape(result) is None or has_complex(function):
        return "host"
    return "fused" if summed or component_shape(result) else None


@lru_cache(maxsize=4096)
def has_complex(function: Function) -> bool:
    return any(
        isinstance(inner, Scalar) and inner.kind == "complex"
        for node in nodes_of(function)
        for inner in inner_types(node.type)
    )


def _does_tensor_work(node: Node) -> bool:
    """Whether a control op's functions use tensors in any other way than reading them by index."""
    pending = list(attribute_functions(node))
    while pending:
        for inner in nodes_of(pending.pop()):
            if isinstance(inner.type, Tensor) and inner.op is not parameter_op:
                return True
            pending.extend(attribute_functions(inner))
    return False


# --- roots -----------------------------------------------------------------------------------------------------------


def find_roots(function: Function, also: Iterable[Node] = ()) -> list[Node]:
    """The nodes that are stored, in topological order."""
    order = nodes_of(function)
    traces = has_host_traces(function)
    wanted: set[Node] = set(function.results) | set(also)
    for node in order:
        kind = root_kind(node, traces)
        if kind is not None:
            wanted.add(node)
        if kind in ("host", "view"):
            wanted.update(node.operands)
        if node.op is lookup:
            wanted.add(node.operands[0])
        if node.op is map_:
            shared = zip(node.operands, node.attribute("lifted"), strict=True)
            wanted.update(operand for operand, lifted in shared if not lifted and isinstance(operand.type, Tensor))
    return [node for node in order if node in wanted and _is_storable(node)]


def _is_storable(node: Node) -> bool:
    if node.op is map_ and len(node.attribute("function").results) > 1 and root_kind(node) != "host":
        return False  # its results are stored one by one
    return node.op is not parameter_op


def roots_below(node: Node, roots: set[Node]) -> set[Node]:
    """The roots that a node's own expression reads."""
    found: set[Node] = set()
    for inner in toposort(node.operands, stop=roots.__contains__):
        if inner in roots:
            found.add(inner)
    return found


# --- groups ----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Group:
    """Roots that are computed by one step."""

    kind: GroupKind
    shape: tuple[int, ...]
    axes: tuple[int, ...] | None  # the reduced ones; None while no root needs an inner dimension
    roots: list[Node] = field(default_factory=list)
    needs: set[Group] = field(default_factory=set)
    leaves: set[Node] = field(default_factory=set)

    @property
    def kept_axes(self) -> tuple[int, ...]:
        return tuple(axis for axis in range(len(self.shape)) if axis not in (self.axes or ()))

    @property
    def domain(self) -> tuple[int, ...]:
        return tuple(self.shape[axis] for axis in self.kept_axes)

    @property
    def inner(self) -> tuple[int, ...]:
        return tuple(self.shape[axis] for axis in self.axes or ())

    @property
    def split(self) -> bool:
        return bool(self.axes) and prod(self.domain) < FEW_ROWS and prod(self.inner) >= LONG_ROW

    def depends_on(self, other: Group) -> bool:
        pending, seen = [self], set()
        while pending:
            group = pending.pop()
            if group is other:
                return True
            if group not in seen:
                seen.add(group)
                pending.extend(group.needs)
        return False


# Whether a root can be computed inside a group: every value of the group that it uses is there by then.
Aligned = Callable[[Node, Group], bool]


def space_of(node: Node) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """The iteration space of a root: the shape it runs over, and the axes that it reduces."""
    if node.op is reduce:
        return sizes(node.operands[0]), node.attribute("axes") or None
    if node.op is arg_reduce:
        return sizes(node.operands[0]), (node.attribute("axis"),)
    mapped = map_result(node)
    if mapped is not None and root_kind(node) == "fused":
        source, number = mapped
        domain = map_domain_sizes(source)
        summed = source.attribute("summed")[number]
        return domain, tuple(range(len(domain))) if summed and domain else None
    return (sizes(node) if isinstance(node.type, Tensor) else ()), None


def map_domain_sizes(node: Node) -> tuple[int, ...]:
    types = [operand.type for operand in node.operands]
    return map_domain(types, node.attribute("function"), node.attribute("lifted"))  # type: ignore[return-value]


def is_reducing(node: Node) -> bool:
    """Whether a root folds over the inner dimensions of its group."""
    mapped = map_result(node)
    if mapped is not None and root_kind(node) == "fused":
        return mapped[0].attribute("summed")[mapped[1]]
    return node.op in (reduce, arg_reduce)


def group_roots(function: Function, roots: Sequence[Node], aligned: Aligned) -> list[Group]:
    """Groups in an order in which they can run."""
    known = set(roots)
    group_of: dict[Node, Group] = {}
    groups: list[Group] = []
    for root in roots:
        below = roots_below(root, known)
        needs = {group_of[node] for node in below}
        kind = root_kind(root, has_host_traces(function)) or "fused"
        group = _joinable(root, kind, needs, groups, aligned) if kind == "fused" else None
        if group is None:
            shape, axes = space_of(root)
            group = Group(kind, shape, axes)
            groups.append(group)
        elif group.axes is None:
            group.axes = space_of(root)[1]
        group.roots.append(root)
        group.needs |= needs - {group}
        group.leaves |= _leaves_of(root, known)
        group_of[root] = group
    return _in_order(groups)


def _leaves_of(root: Node, roots: set[Node]) -> set[Node]:
    order = toposort(root.operands, stop=roots.__contains__)
    return {node for node in order if node in roots or (node.op is parameter_op and isinstance(node.type, Tensor))}


def _joinable(root: Node, kind: GroupKind, needs: set[Group], groups: list[Group], aligned: Aligned) -> Group | None:
    for group in reversed(groups):
        if group.kind == "fused" and _fits(root, group, needs) and aligned(root, group):
            if all(other is group or not other.depends_on(group) for other in needs):
                return group
    return None


def _fits(root: Node, group: Group, needs: set[Group]) -> bool:
    shape, axes = space_of(root)
    depends = group in needs
    if isinstance(root.type, Tensor | Scalar) and not is_reducing(root) and shape != group.shape:
        # A value for each row, computed from what the row was reduced to.
        return depends and bool(group.axes) and shape == group.domain and not group.split
    if shape != group.shape or (axes is not None and group.axes is not None and axes != group.axes):
        return False
    if not depends:
        return bool(shape) and _shares_input(root, group)
    becomes = Group("fused", shape, group.axes if group.axes is not None else axes)
    return not becomes.split or not any(is_reducing(member) for member in group.roots)


def _shares_input(root: Node, group: Group) -> bool:
    return any(node in group.leaves for node in toposort(root.operands) if isinstance(node.type, Tensor))


def _in_order(groups: list[Group]) -> list[Group]:
    done: set[Group] = set()
    order: list[Group] = []
    pending: list[tuple[Group, bool]] = [(group, False) for group in reversed(groups)]
    while pending:
        group, ready = pending.pop()
        if ready:
            if group not in done:
                done.add(group)
                order.append(group)
            continue
        if group in done:
            continue
        pending.append((group, True))
        pending.extend(
            (other, False) for other in sorted(group.needs, key=groups.index, reverse=True) if other not in done
        )
    return order


def read_outside(groups: Sequence[Group], roots: Sequence[Node]) -> set[Node]:
    """The roots that a group other than their own reads."""
    known = set(roots)
    return {
        below
        for group in groups
        for root in group.roots
        for below in roots_below(root, known)
        if below not in group.roots or group.kind != "fused"
    }


def shared_between(groups: Sequence[Group], roots: Sequence[Node]) -> set[Node]:
    """Nodes that would be computed in several groups and cost too much for that."""
    known = set(roots)
    users: dict[Node, set[int]] = {}
    for number, group in enumerate(groups):
        for root in group.roots:
            for node in toposort(root.operands, stop=known.__contains__):
                if node not in known:
                    users.setdefault(node, set()).add(number)
    shared = {node for node, numbers in users.items() if len(numbers) > 1 and isinstance(node.type, Tensor)}
    return {node for node in shared if node.op.cost >= CHEAP_AGAIN or _chain_cost(node, known) > 3 * CHEAP_AGAIN}


def _chain_cost(node: Node, roots: set[Node]) -> float:
    return sum(inner.op.cost for inner in toposort([node], stop=roots.__contains__) if inner not in roots)
