"""Joins a loop that writes tapes with the loops that read them into one kernel, whose tapes grow as needed.

Called by `lower_tapes`, for loops without a bound on their iterations: `while` loops, loops that end early, and loops
with a computed count. The joined loops become the body of a loop of one iteration, which writes its tensors in place.
If the readers depend on the writer's tensors, the writer runs twice: once for its tensors, and once for its tapes.
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
    """Joins each loop over tensors that writes tapes of scalars with the readers of these tapes."""
    while (joined := _join_first(function)) is not None:
        function = joined
    return function


def _join_first(function: Function) -> Function | None:
    nodes = nodes_of(function)
    for writer in nodes:
        if not _writes_tapes(writer):
            continue
        readers = _find_readers(writer, nodes)
        if readers is None:
            continue
        joined = _join_loops(function, writer, readers)
        if joined is not None:
            return joined
    return None


def _writes_tapes(node: Node) -> bool:
    """Whether a node is a loop over tensors that starts tapes of scalars."""
    if node.op not in LOOPS or not holds_tensor(node.type):
        return False
    return any(operand.op is tape_new for operand in node.operands) and not any(
        isinstance(type, Tape) and _holds_rows(type) for type in components(node.type)
    )


def _holds_rows(type: Type) -> bool:
    return any(getattr(inner, "shape", ()) for inner in inner_types(type))


def _find_readers(writer: Node, nodes: Sequence[Node]) -> list[Node] | None:
    """The loops that read the tapes of `writer`; None if nothing reads them, or anything other than such loops."""
    tapes = {node for node in nodes if node.op is get and node.operands[0] is writer and isinstance(node.type, Tape)}
    users = [node for node in nodes if not tapes.isdisjoint(node.operands)]
    return users if users and all(user.op in LOOPS and not _returns_tapes(user) for user in users) else None


def _returns_tapes(node: Node) -> bool:
    return any(isinstance(inner, Tape) for inner in inner_types(node.type))


@propagates_lines
def _join_loops(function: Function, writer: Node, readers: Sequence[Node]) -> Function | None:
    """Joins the writer and the readers into one loop; returns None if one kernel cannot run it."""
    inside = _find_inner_nodes(writer, readers)
    needed = set(toposort([o for node in inside for o in node.operands if o not in inside]))
    if not needed.isdisjoint(readers):
        return None  # one reader depends on another
    joined_loop = _JoinedLoop(inside)
    results = joined_loop.build([writer, *[node for node in toposort(readers) if node in readers]])
    if not writes_in_place(_scalarise_joined_loop(joined_loop.loop)):
        return None
    loop_results = _remove_tapes(writer)
    if writer in needed:
        results = {node: value for node, value in results.items() if node.operands[0] is not writer}
        operands = substitute(joined_loop.loop.operands, loop_results)
        loop = make_node(joined_loop.loop.op, operands, joined_loop.loop.attributes)
        results = {node: get(loop, index=value.attribute("index")) for node, value in results.items()} | loop_results
    return scalarise_loops(Function(function.name, function.parameters, substitute(function.results, results)))


def _remove_tapes(writer: Node) -> dict[Node, Node]:
    """The results of the writer except its tapes, from a copy of the loop without tapes."""
    region = region_of(writer)
    assert region is not None
    tapes = {index for index, type in enumerate(components(writer.type)) if isinstance(type, Tape)}
    results = [index for index in range(region.number) if index not in tapes]
    loop = region.narrow([index for index in range(len(region.arguments)) if index not in tapes], results)
    return {get(writer, index=old): get(loop, index=new) for new, old in enumerate(results)}


def _scalarise_joined_loop(loop: Node) -> Node:
    """The joined loop after `scalarise_loops`, as a kernel would run it."""
    inputs = [input_node(Key("operand"), operand.type) for operand in loop.operands]
    function = make_function("joined", inputs, [make_node(loop.op, tuple(inputs), loop.attributes)])
    return next(node for node in nodes_of(scalarise_loops(function)) if node.op is for_loop)


def _find_inner_nodes(writer: Node, readers: Sequence[Node]) -> AbstractSet[Node]:
    """The nodes to compute inside the joined loop: the loops, and scalars that depend on them."""
    inside = {writer, *readers}
    for node in toposort([operand for reader in readers for operand in reader.operands]):
        if node.op not in LOOPS and not inside.isdisjoint(node.operands) and not _holds_rows(node.type):
            inside.add(node)
    return inside | {operand for operand in writer.operands if operand.op is tape_new}


class _JoinedLoop:
    """Builds a loop of one iteration whose body runs several loops."""

    loop: Node

    def __init__(self, inside: AbstractSet[Node]) -> None:
        self._inside = inside
        self._values: dict[Node, Node] = {}  # the nodes inside, over the parameters of the body
        self._starts: list[tuple[Node, Node]] = []  # initial values of the loops, and their parameters
        self._captured: dict[Node, Node] = {}

    def build(self, loops: Sequence[Node]) -> dict[Node, Node]:
        """Builds the joined loop, and maps the results of the original loops to its results."""
        outputs = [output for loop in loops for output in self._add_loop(loop)]
        results = [get(self._values[output.operands[0]], index=output.attribute("index")) for output in outputs]
        parameters = [
            input_node(Key("index"), i64),
            *[start_parameter for _, start_parameter in self._starts],
            *self._captured.values(),
        ]
        body = make_function("joined", parameters, results)
        operands = [*[start for start, _ in self._starts], *self._captured]
        self.loop = for_loop(constant(1, i64), *operands, body=body, carried=len(outputs), reverse=False)
        return {output: get(self.loop, index=index) for index, output in enumerate(outputs)}

    def _add_loop(self, loop: Node) -> list[Node]:
        """Adds a loop to the body; returns its results except for tapes."""
        first, carried = first_argument(loop), loop.attribute("carried")
        operands = list(loop.operands)
        outputs: list[Node] = []
        for index, start in enumerate(loop.operands[first : first + carried]):
            if isinstance(start.type, Tape):
                continue
            parameter = input_node(Key("carried"), start.type)
            outputs.append(get(loop, index=index))
            if start in self._inside:
                self._starts.append((zero(start.type), parameter))
            else:
                self._starts.append((start, parameter))
                self._values[parameter] = operands[first + index] = parameter
        self._values[loop] = make_node(loop.op, tuple(map(self._rewrite_node, operands)), loop.attributes)
        return outputs

    def _rewrite_node(self, node: Node) -> Node:
        """Rewrites a node over the parameters of the body; nodes from outside become captures."""
        if node in self._values or node.op is constant_op:
            return self._values.get(node, node)
        if node not in self._inside:
            return self._captured.setdefault(node, input_node(Key("captured"), node.type))
        self._values[node] = make_node(node.op, tuple(map(self._rewrite_node, node.operands)), node.attributes)
        return self._values[node]
