"""Joins a loop that writes tapes with the loops that read them: one kernel runs them all, and its tapes grow as needed.

Called by `lower_tapes`, for loops whose number of iterations has no bound: `while` loops, loops that end early, and
loops of a count that is computed. The joined loops are the body of a loop of one iteration, which writes its tensors in
place. If what the readers need is computed from the tensors that the writer leaves, the writer runs twice: once for
those, and once for the tapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, constant_op, input_node
from livegrad.ir.node import Function, Key, Node, make_node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.types import Tape, Type, components, holds_tensor, i64, inner_types
from livegrad.ir.walk import nodes_of, substitute, toposort
from livegrad.ops.aggregate import get
from livegrad.ops.control import for_loop
from livegrad.ops.rules import zero
from livegrad.ops.tape import tape_new
from livegrad.passes.in_place_loops import writes_in_place
from livegrad.passes.regions import LOOPS, first_argument, region_of
from livegrad.passes.scalarise_loops import scalarise_loops


def join_tape_loops(function: Function) -> Function:
    """One kernel for each loop over tensors that writes tapes of numbers, and the readers of those."""
    while (joined := _next_joined(function)) is not None:
        function = joined
    return function


def _next_joined(function: Function) -> Function | None:
    nodes = nodes_of(function)
    for writer in nodes:
        if not _writes_tapes(writer):
            continue
        readers = _readers(writer, nodes)
        if readers is None:
            continue
        joined = _joined(function, writer, readers)
        if joined is not None:
            return joined
    return None


def _writes_tapes(node: Node) -> bool:
    """Whether a node is a loop over tensors that starts tapes of numbers."""
    if node.op not in LOOPS or not holds_tensor(node.type):
        return False
    return any(operand.op is tape_new for operand in node.operands) and not any(
        isinstance(type, Tape) and _holds_rows(type) for type in components(node.type)
    )


def _holds_rows(type: Type) -> bool:
    return any(getattr(inner, "shape", ()) for inner in inner_types(type))


def _readers(writer: Node, nodes: Sequence[Node]) -> list[Node] | None:
    """The loops that read the tapes of another one; None if something else does."""
    taken = {node for node in nodes if node.op is get and node.operands[0] is writer and isinstance(node.type, Tape)}
    users = [node for node in nodes if not taken.isdisjoint(node.operands)]
    return users if users and all(user.op in LOOPS and not _returns_tapes(user) for user in users) else None


def _returns_tapes(node: Node) -> bool:
    return any(isinstance(inner, Tape) for inner in inner_types(node.type))


@propagates_lines
def _joined(function: Function, writer: Node, readers: Sequence[Node]) -> Function | None:
    """The function with the writer and the readers joined into one loop; None if one kernel cannot run it."""
    inside = _computed_inside(writer, readers)
    needed = set(toposort([o for node in inside for o in node.operands if o not in inside]))
    if not needed.isdisjoint(readers):
        return None  # one reader depends on another one
    joined = _Joined(inside)
    results = joined.run([writer, *[node for node in toposort(readers) if node in readers]])
    if not writes_in_place(_scalar_loop(joined.loop)):
        return None
    without = _without_tapes(writer)
    if writer in needed:
        results = {node: value for node, value in results.items() if node.operands[0] is not writer}
        operands = substitute(joined.loop.operands, without)
        loop = make_node(joined.loop.op, operands, joined.loop.attributes)
        results = {node: get(loop, index=value.attribute("index")) for node, value in results.items()} | without
    return scalarise_loops(Function(function.name, function.parameters, substitute(function.results, results)))


def _without_tapes(writer: Node) -> dict[Node, Node]:
    """The results of the writer but its tapes, from a loop without them."""
    region = region_of(writer)
    assert region is not None
    tapes = {index for index, type in enumerate(components(writer.type)) if isinstance(type, Tape)}
    kept = [index for index in range(region.number) if index not in tapes]
    loop = region.narrow([index for index in range(len(region.arguments)) if index not in tapes], kept)
    return {get(writer, index=old): get(loop, index=new) for new, old in enumerate(kept)}


def _scalar_loop(loop: Node) -> Node:
    """The loop over scalars, as the kernel would run it."""
    inputs = [input_node(Key("operand"), operand.type) for operand in loop.operands]
    alone = make_function("joined", inputs, [make_node(loop.op, tuple(inputs), loop.attributes)])
    return next(node for node in nodes_of(scalarise_loops(alone)) if node.op is for_loop)


def _computed_inside(writer: Node, readers: Sequence[Node]) -> AbstractSet[Node]:
    """The loops, and the numbers between them that are computed from what the writer leaves."""
    inside = {writer, *readers}
    for node in toposort([operand for reader in readers for operand in reader.operands]):
        if node.op not in LOOPS and not inside.isdisjoint(node.operands) and not _holds_rows(node.type):
            inside.add(node)
    return inside | {operand for operand in writer.operands if operand.op is tape_new}


class _Joined:
    """A loop of one iteration whose body runs several loops."""

    loop: Node

    def __init__(self, inside: AbstractSet[Node]) -> None:
        self._inside = inside
        self._values: dict[Node, Node] = {}  # the nodes inside, over the parameters of the body
        self._starts: list[tuple[Node, Node]] = []  # initial values of the loops, and their parameters
        self._captured: dict[Node, Node] = {}

    def run(self, loops: Sequence[Node]) -> dict[Node, Node]:
        """Builds the joined loop, and maps the results of the original loops to its results."""
        ends = [end for loop in loops for end in self._add(loop)]
        results = [get(self._values[end.operands[0]], index=end.attribute("index")) for end in ends]
        parameters = [
            input_node(Key("index"), i64),
            *[start_parameter for _, start_parameter in self._starts],
            *self._captured.values(),
        ]
        body = make_function("joined", parameters, results)
        operands = [*[start for start, _ in self._starts], *self._captured]
        self.loop = for_loop(constant(1, i64), *operands, body=body, carried=len(ends), reverse=False)
        return {end: get(self.loop, index=index) for index, end in enumerate(ends)}

    def _add(self, loop: Node) -> list[Node]:
        """Adds a loop to the body; returns its results except for tapes."""
        first, number = first_argument(loop), loop.attribute("carried")
        operands = list(loop.operands)
        ends: list[Node] = []
        for index, start in enumerate(loop.operands[first : first + number]):
            if isinstance(start.type, Tape):
                continue
            parameter = input_node(Key("carried"), start.type)
            ends.append(get(loop, index=index))
            if start in self._inside:
                self._starts.append((zero(start.type), parameter))
            else:
                self._starts.append((start, parameter))
                self._values[parameter] = operands[first + index] = parameter
        self._values[loop] = make_node(loop.op, tuple(map(self._value, operands)), loop.attributes)
        return ends

    def _value(self, node: Node) -> Node:
        """A node over the parameters of the body."""
        if node in self._values or node.op is constant_op:
            return self._values.get(node, node)
        if node not in self._inside:
            return self._captured.setdefault(node, input_node(Key("captured"), node.type))
        self._values[node] = make_node(node.op, tuple(map(self._value, node.operands)), node.attributes)
        return self._values[node]
