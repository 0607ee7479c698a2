"""Storage report of reverse mode: every residual of a function's gradient, with its bytes and the reason.

Used to assess `lg.checkpoint` and the byte budget, and printed by tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from livegrad.diagnostics import SourceLocation
from livegrad.ir.dimension import Size, size_product
from livegrad.ir.function import captured_values
from livegrad.ir.leaves import parameter_op
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import distinguish_lines
from livegrad.ir.types import Scalar, Tape, Tensor, Type, components, is_differentiable
from livegrad.ir.walk import nodes_of, reachable_functions, toposort
from livegrad.ops.aggregate import get
from livegrad.ops.control import call, cond, for_loop, switch, while_loop
from livegrad.ops.custom import recompute_call
from livegrad.ops.maps import map_
from livegrad.ops.tape import tape_set
from livegrad.passes.differentiate.linearize import linearize
from livegrad.passes.differentiate.propagate import active_nodes
from livegrad.passes.eliminate_dead_results import eliminate_dead_results
from livegrad.passes.regions import region_of

Kind = Literal["argument", "stored", "traced", "again"]


@dataclass(frozen=True)
class Residual:
    """A residual: a value of the forward pass that a gradient needs.

    `argument`: already available; `stored`: once per run; `traced`: in each iteration of the loop at `loop`; `again`:
    recomputed instead of stored, so `bytes` is 0.
    """

    kind: Kind
    op: str
    type: Type
    bytes: Size
    because: str
    where: SourceLocation | None = None
    loop: SourceLocation | None = None

    def __str__(self) -> str:
        location = "" if self.where is None else f" ({self.where})"
        loop = "the loop" if self.loop is None else f"the loop at {self.loop}"
        size = {
            "argument": "already available",
            "stored": f"{self.bytes} bytes",
            "traced": f"{self.bytes} bytes at each iteration of {loop}",
            "again": "recomputed",
        }[self.kind]
        return f"`{self.op}`{location}: {self.type}, {size}: {self.because}"


@dataclass(frozen=True)
class StorageReport:
    """The residuals that the gradient of a function stores or recomputes."""

    function: str
    values: tuple[Residual, ...]

    def __repr__(self) -> str:
        return f"<residuals of `{self.function}`: {len(self.values)} values, {self.bytes} bytes; print it>"

    @property
    def bytes(self) -> Size:
        """The bytes stored once per run."""
        return _sum_sizes(value.bytes for value in self.values if value.kind == "stored")

    @property
    def bytes_per_iteration(self) -> dict[SourceLocation | None, Size]:
        """The bytes that each loop stores per iteration, by the source location of the loop."""
        loops = dict.fromkeys(value.loop for value in self.values if value.kind == "traced")
        return {
            loop: _sum_sizes(v.bytes for v in self.values if v.kind == "traced" and v.loop is loop) for loop in loops
        }

    def __str__(self) -> str:
        lines = [f"the gradient of `{self.function}` stores {self.bytes} bytes"]
        loops = self.bytes_per_iteration.items()
        lines += [f"and {size} bytes at each iteration of the loop" + (f" at {at}" if at else "") for at, size in loops]
        return "\n".join([*lines, *(f"  {value}" for value in self.values)])


def _sum_sizes(sizes: Iterator[Size]) -> Size:
    total: Size = 0
    for size in sizes:
        total = size + total
    return total


@propagates_lines
def storage_report(function: Function) -> StorageReport:
    """Reports what reverse mode stores for a function, in bytes, and why.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f64
    >>> from livegrad.ops.transcendental import sin
    >>> storage_report(trace(lambda x: sin(x) * x, f64)).bytes
    16
    """
    with distinguish_lines():
        return _build_report(function)


def _build_report(function: Function) -> StorageReport:
    (trimmed,) = eliminate_dead_results(Module((function,))).functions
    linear = linearize(trimmed, tuple(map(is_differentiable, trimmed.parameter_types)))
    tangents = active_nodes(linear.tangents, linear.function.results, linear.flags)
    values: list[Residual] = []
    counted: set[object] = set()  # a value passed to several calls is stored once
    for node in captured_values(linear.tangent_parameters, tangents):
        value = _resolve(node)
        if value not in counted:
            values += _describe_residual(node, _find_reason(node, tangents))
        counted.add(value)
    return StorageReport(function.name, (*values, *_find_recomputed(linear.function)))


def _find_reason(node: Node, tangents: Sequence[Node]) -> str:
    for user in toposort(tangents):
        if node in user.operands:
            derivative = "the derivative" if user.origin is None else f"the derivative at {user.origin}"
            return f"{derivative} needs it"
    return "it is the derivative"


def byte_size(type: Type) -> Size:
    """The size of a value in bytes; for a tape, the size per iteration."""
    match type:
        case Scalar():
            return type.dtype.itemsize
        case Tensor(element=element, shape=shape):
            return size_product(shape) * element.dtype.itemsize
        case Tape(element=element):
            return byte_size(element)
    return _sum_sizes(byte_size(part) for part in components(type))


# --- residuals -------------------------------------------------------------------------------------------------------


def _describe_residual(node: Node, because: str, loop: Node | None = None) -> list[Residual]:
    """The entries for a residual of the linear part; a tape has one for each value written in an iteration."""
    if isinstance(node.type, Tape):
        return [entry for source, within in _find_tape_writes(node) for entry in _describe_taped_values(source, within)]
    source = _find_source(node)
    is_argument = source.op is parameter_op
    if loop is not None:
        name = "carried value" if is_argument else source.op.name
        return [Residual("traced", name, node.type, byte_size(node.type), because, source.origin, loop.origin)]
    if is_argument:
        return [Residual("argument", "argument", node.type, 0, because)]
    return [Residual("stored", source.op.name, node.type, byte_size(node.type), because, source.origin)]


def _describe_taped_values(values: Node, loop: Node) -> list[Residual]:
    because = "it depends on values that the loop carries"
    return [entry for value in values.operands for entry in _describe_residual(value, because, loop)]


def _find_tape_writes(tape: Node) -> Iterator[tuple[Node, Node]]:
    """The values that a loop writes to a tape in each iteration, with the loop."""
    source = _find_source(tape)
    if source.op is not get or source.operands[0].op not in (for_loop, while_loop):
        return
    loop = source.operands[0]
    result = loop.attribute("body").results[source.attribute("index")]
    if result.op is tape_set:
        yield result.operands[2], loop


def _find_source(node: Node) -> Node:
    return _resolve(node)[0]


def _resolve(node: Node) -> tuple[Node, tuple[Node, ...]]:
    """Follows a result of calls and branches to the node that computes it; also returns the calls on the way."""
    callers: list[Node] = []
    while True:
        if node.op is parameter_op and callers:
            source = callers.pop()
            leading = len(source.operands) - len(_called_functions(source)[0].parameters)
            node = source.operands[leading + node.attribute("index")]
            continue
        index, source = (node.attribute("index"), node.operands[0]) if node.op is get else (0, node)
        functions = _called_functions(source)
        if not functions or (node.op is not get and len(functions[0].results) != 1):
            return node, tuple(callers)
        # A branch that computes something represents all branches.
        results = [function.results[index] for function in functions]
        node = max(results, key=lambda result: bool(result.operands))
        callers.append(source)


def _called_functions(node: Node) -> tuple[Function, ...]:
    """The functions that a call or branch may run; empty for other nodes."""
    region = region_of(node) if node.op in (call, cond, switch) else None
    return () if region is None else region.functions


def _find_recomputed(function: Function) -> Iterator[Residual]:
    for inner in reachable_functions([function]):
        for node in nodes_of(inner):
            if node.op is map_:
                because = "a map recomputes the values of each point; mark a value with `kept` to store it"
                yield Residual("again", node.op.name, node.type, 0, because, node.origin)
            elif node.op is recompute_call:
                because = "it is checkpointed: only its arguments are stored"
                yield Residual("again", node.op.name, node.type, 0, because, node.origin)
