"""Reports what reverse mode stores: every residual of a function's gradient, with bytes and reasons.

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
from livegrad.ops.control import call, cond, for_loop, map_, switch, while_loop
from livegrad.ops.custom import recompute_call
from livegrad.ops.tape import tape_set
from livegrad.passes.differentiate.linearize import linearize
from livegrad.passes.differentiate.propagate import active_nodes
from livegrad.passes.eliminate_dead_results import eliminate_dead_results
from livegrad.passes.regions import region_of

Kind = Literal["argument", "stored", "traced", "again"]


@dataclass(frozen=True)
class Remembered:
    """A residual: a value of the forward pass that a gradient needs.

    `argument`: available anyway; `stored`: once a run; `traced`: in each iteration of the loop at `loop`; `again`: not
    stored but recomputed, so `bytes` is 0.
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
            "argument": "there anyway",
            "stored": f"{self.bytes} bytes",
            "traced": f"{self.bytes} bytes at each iteration of {loop}",
            "again": "computed again",
        }[self.kind]
        return f"`{self.op}`{location}: {self.type}, {size}: {self.because}"


@dataclass(frozen=True)
class StorageReport:
    """A report of what the gradient of a function stores."""

    function: str
    values: tuple[Remembered, ...]

    def __repr__(self) -> str:
        return f"<residuals of `{self.function}`: {len(self.values)} values, {self.bytes} bytes; print it>"

    @property
    def bytes(self) -> Size:
        """The bytes stored once per run."""
        return _total(value.bytes for value in self.values if value.kind == "stored")

    @property
    def bytes_per_iteration(self) -> dict[SourceLocation | None, Size]:
        """The bytes that each loop stores per iteration, by the source location of the loop."""
        loops = dict.fromkeys(value.loop for value in self.values if value.kind == "traced")
        return {loop: _total(v.bytes for v in self.values if v.kind == "traced" and v.loop is loop) for loop in loops}

    def __str__(self) -> str:
        lines = [f"the gradient of `{self.function}` stores {self.bytes} bytes"]
        loops = self.bytes_per_iteration.items()
        lines += [f"and {size} bytes at each iteration of the loop" + (f" at {at}" if at else "") for at, size in loops]
        return "\n".join([*lines, *(f"  {value}" for value in self.values)])


def _total(sizes: Iterator[Size]) -> Size:
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
        return _report(function)


def _report(function: Function) -> StorageReport:
    (trimmed,) = eliminate_dead_results(Module((function,))).functions
    linear = linearize(trimmed, tuple(map(is_differentiable, trimmed.parameter_types)))
    tangents = active_nodes(linear.tangents, linear.function.results, linear.flags)
    values: list[Remembered] = []
    counted: set[object] = set()  # once calls are flattened, what several of them were handed is one value
    for node in captured_values(linear.tangent_parameters, tangents):
        value = _resolved(node)
        if value not in counted:
            values += _remembered(node, _reason(node, tangents))
        counted.add(value)
    return StorageReport(function.name, (*values, *_computed_again(linear.function)))


def _reason(node: Node, tangents: Sequence[Node]) -> str:
    for user in toposort(tangents):
        if node in user.operands:
            what = "the derivative" if user.origin is None else f"the derivative at {user.origin}"
            return f"{what} needs it"
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
    return _total(byte_size(part) for part in components(type))


# --- one value -------------------------------------------------------------------------------------------------------


def _remembered(node: Node, because: str, loop: Node | None = None) -> list[Remembered]:
    """What a residual of the linear part stands for: for a tape, all that is written into it at an iteration."""
    if isinstance(node.type, Tape):
        return [entry for source, within in _written(node) for entry in _traced(source, within)]
    source = _inside(node)
    is_argument = source.op is parameter_op
    if loop is not None:
        name = "carried value" if is_argument else source.op.name
        return [Remembered("traced", name, node.type, byte_size(node.type), because, source.origin, loop.origin)]
    if is_argument:
        return [Remembered("argument", "argument", node.type, 0, because)]
    return [Remembered("stored", source.op.name, node.type, byte_size(node.type), because, source.origin)]


def _traced(values: Node, loop: Node) -> list[Remembered]:
    because = "it depends on what the loop carries from iteration to iteration"
    return [entry for value in values.operands for entry in _remembered(value, because, loop)]


def _written(tape: Node) -> Iterator[tuple[Node, Node]]:
    """The values that a loop writes into a tape at each iteration, with the loop."""
    source = _inside(tape)
    if source.op is not get or source.operands[0].op not in (for_loop, while_loop):
        return
    loop = source.operands[0]
    result = loop.attribute("body").results[source.attribute("index")]
    if result.op is tape_set:
        yield result.operands[2], loop


def _inside(node: Node) -> Node:
    return _resolved(node)[0]


def _resolved(node: Node) -> tuple[Node, tuple[Node, ...]]:
    """What a result of calls and branches is: a value of a callee, with its callers, or what a callee was handed."""
    callers: list[Node] = []
    while True:
        if node.op is parameter_op and callers:
            source = callers.pop()
            leading = len(source.operands) - len(_functions(source)[0].parameters)
            node = source.operands[leading + node.attribute("index")]
            continue
        number, source = (node.attribute("index"), node.operands[0]) if node.op is get else (0, node)
        functions = _functions(source)
        if not functions or (node.op is not get and len(functions[0].results) != 1):
            return node, tuple(callers)
        # Of several branches, one that computes something represents all.
        results = [function.results[number] for function in functions]
        node = max(results, key=lambda result: bool(result.operands))
        callers.append(source)


def _functions(node: Node) -> tuple[Function, ...]:
    """What a call or branch may run."""
    region = region_of(node) if node.op in (call, cond, switch) else None
    return () if region is None else region.functions


def _computed_again(function: Function) -> Iterator[Remembered]:
    for inner in reachable_functions([function]):
        for node in nodes_of(inner):
            if node.op is map_:
                because = "a map computes the values of each point again; mark a value with `kept` to store it"
                yield Remembered("again", node.op.name, node.type, 0, because, node.origin)
            elif node.op is recompute_call:
                because = "the program asks for it; only its arguments are stored"
                yield Remembered("again", node.op.name, node.type, 0, because, node.origin)
