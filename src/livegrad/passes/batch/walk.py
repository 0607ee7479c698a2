"""The interpreter of the batch pass: applies the batch rule of each op to operands that are batched or shared.

The package fills `RULES` from its other modules. An op that is not elementwise needs a rule there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from livegrad.diagnostics import UsageError
from livegrad.ir.dimension import Size
from livegrad.ir.leaves import input_op, parameter_op
from livegrad.ir.node import Function, Node, make_node
from livegrad.ir.op import Op
from livegrad.ir.propagate_lines import cached_derivation
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Array, Struct, Tensor, Tuple, Type, bool_, holds_tensor, scalar_of, shape_of
from livegrad.ir.walk import nodes_of, reachable_functions, rebuild
from livegrad.ops.aggregate import get, make, set_
from livegrad.ops.control import parameters_of
from livegrad.ops.maps import map_
from livegrad.ops.movement import broadcast
from livegrad.ops.tape import tape_add, tape_get, tape_set
from livegrad.passes.batch.member_loop import run_as_member_loop
from livegrad.passes.batch.points import run_by_point
from livegrad.passes.batch.values import SharedTapeError, batched_type, has_leaves, holds_tensors, spread
from livegrad.passes.differentiate.tangents import result_nodes
from livegrad.passes.functions import uses_any
from livegrad.passes.regions import BRANCHES, LOOPS, region_of

_AGGREGATES = Struct | Tuple | Array


@dataclass(frozen=True)
class Operand:
    """A value in a batched function: batched (one value for each member), or shared by all members."""

    value: Node
    batched: bool


@dataclass(frozen=True)
class Parts:
    """An aggregate whose parts are batched or shared independently of each other."""

    type: Type  # of the aggregate in the original function
    parts: tuple[OperandTree, ...]


OperandTree = Operand | Parts


@dataclass(frozen=True)
class Context:
    """The context of a batch rule: the number of members, and which of them are active.

    Members outside of `mask` must not write to tapes; no other rule needs the mask. With `every_tape`, all tapes among
    the results are batched, including those that are the same for all members. `forbid_member_loop` excludes loops over
    members.
    """

    size: Size
    mask: Node | None = None
    every_tape: bool = False
    forbid_member_loop: bool = False

    def batch(self, operand: Operand) -> Node:
        """The operand as a batched node: repeats a shared value."""
        return operand.value if operand.batched else spread(operand.value, self.size)


# (node, operands, context) → the node's batched value, whole or in parts. At least one operand is batched.
BatchRule = Callable[[Node, Sequence[Operand], Context], Node | OperandTree]
RULES: dict[Op, BatchRule] = {}  # an extension point


@cached_derivation(1024)
def batch_function(
    function: Function, flags: tuple[bool, ...], size: Size, masked: bool = False, wanted: tuple[bool, ...] = ()
) -> tuple[Function, tuple[bool, ...]]:
    """The function with the flagged parameters batched, and a flag for each result; all `wanted` results are batched.

    A masked function takes a mask as last parameter; members outside of it do not write to tapes.
    """
    types = [
        batched_type(type, size) if flag else type for type, flag in zip(function.parameter_types, flags, strict=True)
    ]
    parameters = parameters_of([*types, *([Tensor(bool_, (size,))] if masked else [])])
    context = Context(size, parameters[-1] if masked else None)
    arguments = [Operand(*pair) for pair in zip(parameters, flags, strict=False)]
    results = batch_values(function, arguments, context, wanted)
    batched = Function(f"{function.name}.batch", parameters, tuple(result.value for result in results))
    return batched, tuple(result.batched for result in results)


def with_batched_results(
    function: Function, flags: tuple[bool, ...], size: Size, wanted: Sequence[bool], masked: bool = False
) -> Function:
    """The function of `batch_function`, with all wanted results batched."""
    return batch_function(function, flags, size, masked, tuple(wanted))[0]


@lru_cache(maxsize=1024)
def writes_tapes(function: Function) -> bool:
    """Whether the function writes to tapes, so that inactive members must be masked."""
    return uses_any([function], {tape_set, tape_add})


# --- interpretation --------------------------------------------------------------------------------------------------


def batch_values(
    function: Function, arguments: Sequence[Operand], context: Context, wanted: Sequence[bool] = ()
) -> list[Operand]:
    """The results for these arguments, each batched or shared; all `wanted` results are batched."""
    operands = [
        Operand(argument.value, argument.batched and has_leaves(parameter.type))
        for parameter, argument in zip(function.parameters, arguments, strict=True)
    ]
    if _can_run_as_map(function, operands):
        return _batch_wanted(_build_map(function, operands), wanted, context)
    by_member = _run_members(function, operands, context)
    if by_member is not None:
        return _batch_wanted(by_member, wanted, context)
    return _run_nodes(function, operands, context, wanted)


def _run_nodes(
    function: Function, arguments: Sequence[Operand], context: Context, wanted: Sequence[bool] = ()
) -> list[Operand]:
    """Batches a function node by node, over tensors of the whole batch."""
    writers: set[Node] = set()  # of tapes that must be batched although all members write the same
    while True:
        values: dict[Node, OperandTree] = dict(zip(function.parameters, arguments, strict=True))
        try:
            for node in nodes_of(function):
                if node not in values:
                    with originating_from(node.origins):
                        operands = [values[operand] for operand in node.operands]
                        values[node] = _batch_node(node, operands, context, node in writers)
            return _batch_wanted([_join_parts(values[result], context) for result in function.results], wanted, context)
        except SharedTapeError as error:
            writer = _writer_of(error.value, values)
            if writer is None or writer in writers:
                raise
            writers.add(writer)


def _batch_wanted(results: Sequence[Operand], wanted: Sequence[bool], context: Context) -> list[Operand]:
    if not wanted:
        return list(results)
    pairs = zip(results, wanted, strict=True)
    return [Operand(context.batch(result), True) if want else result for result, want in pairs]


def _writer_of(tape: Node, values: Mapping[Node, OperandTree]) -> Node | None:
    """The node that writes a tape; None if the tape is a parameter."""
    original: dict[Node, Node] = {}
    for node, item in values.items():
        for value in _leaf_values(item):
            original.setdefault(value, node)  # later nodes only forward it
    while tape not in original and tape.op is get:
        tape = tape.operands[0]
    writer = original.get(tape)
    while writer is not None and writer.op in (get, tape_get):
        writer = writer.operands[0]
    return None if writer is None or writer.op in (parameter_op, input_op) else writer


def _leaf_values(value: OperandTree) -> list[Node]:
    return [value.value] if isinstance(value, Operand) else [v for part in value.parts for v in _leaf_values(part)]


def _batch_node(node: Node, operands: Sequence[OperandTree], context: Context, force: bool) -> OperandTree:
    """Batches a node. If all its operands are shared, it stays shared unless `force` is set."""
    first = operands[0] if operands else None
    if node.op is get and isinstance(first, Parts):
        return first.parts[node.attribute("index")]
    if node.op is make and isinstance(node.type, _AGGREGATES) and operands:
        return Parts(node.type, tuple(operands))
    whole_operands = [_join_parts(operand, context) for operand in operands]
    if not force and not any(operand.batched for operand in whole_operands):
        return Operand(rebuild(node, tuple(operand.value for operand in whole_operands)), False)
    if node.op in (get, set_) and isinstance(node.operands[0].type, _AGGREGATES):
        return Operand(make_node(node.op, tuple(map(context.batch, whole_operands)), node.attributes), True)
    if node.op.elementwise:
        return Operand(_batch_elementwise(node, whole_operands, context), True)
    if not holds_tensors(node.type):
        parameters = parameters_of([operand.type for operand in node.operands])
        single = Function(node.op.name, parameters, (make_node(node.op, parameters, node.attributes),))
        if _can_run_as_map(single, whole_operands):
            return _build_map(single, whole_operands)[0]
    by_member = _run_node_by_member(node, whole_operands, context)
    if by_member is not None:
        return by_member
    rule = RULES.get(node.op)
    if rule is None:
        raise UsageError(
            f"`{node.op.name}` has no rule for batches",
            where=node.origin,
            help="add one to livegrad.passes.batch.RULES, or do not batch this op",
        )
    result = rule(node, whole_operands, replace(context, every_tape=True) if force else context)
    return Operand(result, True) if isinstance(result, Node) else result


def _join_parts(value: OperandTree, context: Context) -> Operand:
    """A value as one node; if some parts are batched, the shared ones become batched too."""
    if isinstance(value, Operand):
        return value
    parts = [_join_parts(part, context) for part in value.parts]
    if not any(part.batched for part in parts):
        return Operand(make(*(part.value for part in parts), type=value.type), False)
    return Operand(make(*map(context.batch, parts), type=batched_type(value.type, context.size)), True)


def _batch_elementwise(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    """The same op over tensors; an operand with one value for each member is broadcast over the other axes."""
    values = [context.batch(operand) for operand in operands]
    if scalar_of(node.type) is None:
        return make_node(node.op, tuple(values), node.attributes)
    shape = max((shape_of(value.type) for value in values), key=len)
    aligned = [
        value if len(shape_of(value.type)) == len(shape) else broadcast(value, shape=shape, axes=(0,))
        for value in values
    ]
    return make_node(node.op, tuple(aligned), node.attributes)


# --- maps and loops over members -------------------------------------------------------------------------------------


def _can_run_as_map(function: Function, arguments: Sequence[Operand]) -> bool:
    """Whether a map can run the function for each member: it may only read tensors, which must be shared."""
    if not any(argument.batched for argument in arguments):
        return False
    for type, argument in zip(function.parameter_types, arguments, strict=True):
        shared_tensor = not argument.batched and isinstance(type, Tensor)
        if holds_tensors(type) and not shared_tensor:
            return False
    return not any(map(holds_tensors, function.result_types)) and _only_reads_tensors(function)


@lru_cache(maxsize=4096)
def _only_reads_tensors(function: Function) -> bool:
    return not any(
        node.op in (map_, input_op) or (holds_tensor(node.type) and node.op is not parameter_op)
        for inner in reachable_functions([function])
        for node in nodes_of(inner)
    )


def _build_map(function: Function, arguments: Sequence[Operand]) -> list[Operand]:
    value = map_(
        *(argument.value for argument in arguments),
        function=function,
        lifted=tuple(argument.batched for argument in arguments),
        summed=(False,) * len(function.results),
    )
    nodes = result_nodes(value, len(function.results))
    return [Operand(node, has_leaves(type)) for node, type in zip(nodes, function.result_types, strict=True)]


def _run_members(function: Function, arguments: Sequence[Operand], context: Context) -> list[Operand] | None:
    """Runs a function member by member, as a loop or as a map; returns None if neither is possible."""
    if not any(argument.batched for argument in arguments):
        return None
    if context.mask is None and not context.forbid_member_loop:
        results = run_as_member_loop(
            function,
            nodes_in(arguments),
            flags_of(arguments),
            context.size,
            lambda: _batch_as_one_program(function, flags_of(arguments), context.size),
        )
        if results is not None:
            return [Operand(node, True) for node in results]
    by_point = run_by_point(function, nodes_in(arguments), flags_of(arguments), context.size)
    return None if by_point is None else [Operand(*result) for result in by_point]


def _batch_as_one_program(function: Function, flags: tuple[bool, ...], size: Size) -> Function:
    """The batched function without a loop over members: a map, or ops over tensors. All results are batched."""
    context = Context(size, forbid_member_loop=True)
    inputs = zip(function.parameter_types, flags, strict=True)
    parameters = parameters_of([batched_type(type, size) if flag else type for type, flag in inputs])
    arguments = [Operand(*pair) for pair in zip(parameters, flags, strict=True)]
    by_member = _run_members(function, arguments, context)
    results = _run_nodes(function, arguments, context) if by_member is None else by_member
    return Function(f"{function.name}.batch", parameters, tuple(map(context.batch, results)))


def _run_node_by_member(node: Node, operands: Sequence[Operand], context: Context) -> OperandTree | None:
    """Runs a loop or branch member by member; returns None for other nodes, or if that is not possible."""
    if node.op not in LOOPS and node.op not in BRANCHES:
        return None
    parameters = parameters_of([operand.type for operand in node.operands])
    region = region_of(make_node(node.op, parameters, node.attributes))
    assert region is not None
    results = _run_members(Function(node.op.name, parameters, tuple(region.members)), operands, context)
    if results is None:
        return None
    return Parts(node.type, tuple(results)) if region.packed else results[0]


def flags_of(operands: Sequence[Operand]) -> tuple[bool, ...]:
    return tuple(operand.batched for operand in operands)


def nodes_in(operands: Sequence[Operand]) -> list[Node]:
    return [operand.value for operand in operands]
