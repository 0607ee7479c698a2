"""The walk of the batch pass: applies the rule of each op to operands that are batched or shared.

`RULES` has those of the other modules, which the package joins; add one for a new op that needs it.
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
from livegrad.ops.control import map_, parameters_of
from livegrad.ops.movement import broadcast
from livegrad.ops.tape import tape_add, tape_get, tape_set
from livegrad.passes.batch.points import run_by_point
from livegrad.passes.batch.turns import run_in_turn
from livegrad.passes.batch.values import SharedTapeError, batched_type, has_leaves, holds_tensors, spread
from livegrad.passes.differentiate.tangents import result_nodes
from livegrad.passes.functions import uses_any
from livegrad.passes.regions import BRANCHES, LOOPS, region_of

_AGGREGATES = Struct | Tuple | Array


@dataclass(frozen=True)
class Operand:
    """A value in a batched function: one for each member of the batch, or one that all share."""

    value: Node
    batched: bool


@dataclass(frozen=True)
class Parts:
    """An aggregate that is known part by part, each of which is batched or shared."""

    type: Type  # what the aggregate is in the function that is batched
    parts: tuple[Known, ...]


Known = Operand | Parts


@dataclass(frozen=True)
class Context:
    """The context of a batch rule: the number of members, and which of them are active.

    Members outside of `mask` must not write to tapes; no other rule needs it. With `every_tape`, all tapes among the
    results are batched, including those that are the same for all members. `is_together` says that the members of
    these nodes must not run in turn.
    """

    size: Size
    mask: Node | None = None
    every_tape: bool = False
    is_together: bool = False

    def batch(self, operand: Operand) -> Node:
        """The operand with a value for each member."""
        return operand.value if operand.batched else spread(operand.value, self.size)


# (node, operands, context) → the node's batched value, whole or in parts. At least one operand is batched.
BatchRule = Callable[[Node, Sequence[Operand], Context], Node | Known]
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
    """`batch_function` with a batch for each wanted result, also where all its members are the same."""
    return batch_function(function, flags, size, masked, tuple(wanted))[0]


@lru_cache(maxsize=1024)
def writes_tapes(function: Function) -> bool:
    """Whether members of a batch that do not count must be kept from writing."""
    return uses_any([function], {tape_set, tape_add})


# --- node by node ----------------------------------------------------------------------------------------------------


def batch_values(
    function: Function, arguments: Sequence[Operand], context: Context, wanted: Sequence[bool] = ()
) -> list[Operand]:
    """The results for these arguments, each batched or shared; all `wanted` results are batched."""
    operands = [
        Operand(argument.value, argument.batched and has_leaves(parameter.type))
        for parameter, argument in zip(function.parameters, arguments, strict=True)
    ]
    if _fits_a_map(function, operands):
        return _batch_requested(_as_map(function, operands), wanted, context)
    alone = _run_alone(function, operands, context)
    if alone is not None:
        return _batch_requested(alone, wanted, context)
    return _run_nodes(function, operands, context, wanted)


def _run_nodes(
    function: Function, arguments: Sequence[Operand], context: Context, wanted: Sequence[bool] = ()
) -> list[Operand]:
    """The results of a function, node by node over the whole batch."""
    writers: set[Node] = set()  # of tapes that each member needs for itself, though all write the same
    while True:
        values: dict[Node, Known] = dict(zip(function.parameters, arguments, strict=True))
        try:
            for node in nodes_of(function):
                if node not in values:
                    with originating_from(node.origins):
                        operands = [values[operand] for operand in node.operands]
                        values[node] = _batch_node(node, operands, context, node in writers)
            return _batch_requested([_whole(values[result], context) for result in function.results], wanted, context)
        except SharedTapeError as error:
            writer = _writer_of(error.value, values)
            if writer is None or writer in writers:
                raise
            writers.add(writer)


def _batch_requested(results: Sequence[Operand], wanted: Sequence[bool], context: Context) -> list[Operand]:
    if not wanted:
        return list(results)
    pairs = zip(results, wanted, strict=True)
    return [Operand(context.batch(result), True) if want else result for result, want in pairs]


def _writer_of(tape: Node, values: Mapping[Node, Known]) -> Node | None:
    """The node that writes a tape; None if the tape is a parameter."""
    original: dict[Node, Node] = {}
    for node, item in values.items():
        for value in _values_in(item):
            original.setdefault(value, node)  # later nodes pass it on
    while tape not in original and tape.op is get:
        tape = tape.operands[0]
    writer = original.get(tape)
    while writer is not None and writer.op in (get, tape_get):
        writer = writer.operands[0]
    return None if writer is None or writer.op in (parameter_op, input_op) else writer


def _values_in(value: Known) -> list[Node]:
    return [value.value] if isinstance(value, Operand) else [v for part in value.parts for v in _values_in(part)]


def _batch_node(node: Node, operands: Sequence[Known], context: Context, anyway: bool) -> Known:
    """Returns the batched form of a node. Shared values stay shared, unless they must be batched."""
    first = operands[0] if operands else None
    if node.op is get and isinstance(first, Parts):
        return first.parts[node.attribute("index")]
    if node.op is make and isinstance(node.type, _AGGREGATES) and operands:
        return Parts(node.type, tuple(operands))
    whole_operands = [_whole(operand, context) for operand in operands]
    if not anyway and not any(operand.batched for operand in whole_operands):
        return Operand(rebuild(node, tuple(operand.value for operand in whole_operands)), False)
    if node.op in (get, set_) and isinstance(node.operands[0].type, _AGGREGATES):
        return Operand(make_node(node.op, tuple(map(context.batch, whole_operands)), node.attributes), True)
    if node.op.elementwise:
        return Operand(_elementwise(node, whole_operands, context), True)
    if not holds_tensors(node.type):
        parameters = parameters_of([operand.type for operand in node.operands])
        single = Function(node.op.name, parameters, (make_node(node.op, parameters, node.attributes),))
        if _fits_a_map(single, whole_operands):
            return _as_map(single, whole_operands)[0]
    alone = _node_alone(node, whole_operands, context)
    if alone is not None:
        return alone
    rule = RULES.get(node.op)
    if rule is None:
        raise UsageError(
            f"`{node.op.name}` has no rule for batches",
            where=node.origin,
            help="add one to livegrad.passes.batch.RULES, or do not batch this op",
        )
    result = rule(node, whole_operands, replace(context, every_tape=True) if anyway else context)
    return Operand(result, True) if isinstance(result, Node) else result


def _whole(value: Known, context: Context) -> Operand:
    """A value as one node; parts that are shared become batched if others are."""
    if isinstance(value, Operand):
        return value
    parts = [_whole(part, context) for part in value.parts]
    if not any(part.batched for part in parts):
        return Operand(make(*(part.value for part in parts), type=value.type), False)
    return Operand(make(*map(context.batch, parts), type=batched_type(value.type, context.size)), True)


def _elementwise(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    """The same op over tensors; a single truth value for a whole tensor is spread over its elements."""
    values = [context.batch(operand) for operand in operands]
    if scalar_of(node.type) is None:
        return make_node(node.op, tuple(values), node.attributes)
    shape = max((shape_of(value.type) for value in values), key=len)
    spread_out = [
        value if len(shape_of(value.type)) == len(shape) else broadcast(value, shape=shape, axes=(0,))
        for value in values
    ]
    return make_node(node.op, tuple(spread_out), node.attributes)


# --- what works on no tensors is a map -------------------------------------------------------------------------------


def _fits_a_map(function: Function, arguments: Sequence[Operand]) -> bool:
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


def _as_map(function: Function, arguments: Sequence[Operand]) -> list[Operand]:
    value = map_(
        *(argument.value for argument in arguments),
        function=function,
        lifted=tuple(argument.batched for argument in arguments),
        summed=(False,) * len(function.results),
    )
    nodes = result_nodes(value, len(function.results))
    return [Operand(node, has_leaves(type)) for node, type in zip(nodes, function.result_types, strict=True)]


def _run_alone(function: Function, arguments: Sequence[Operand], context: Context) -> list[Operand] | None:
    """The results of members that run by themselves, one after the other or each at a point of a map; None if they
    have to run together."""
    if not any(argument.batched for argument in arguments):
        return None
    if context.mask is None and not context.is_together:
        results = run_in_turn(
            function,
            nodes_in(arguments),
            flags_of(arguments),
            context.size,
            lambda: _together(function, flags_of(arguments), context.size),
        )
        if results is not None:
            return [Operand(node, True) for node in results]
    by_point = run_by_point(function, nodes_in(arguments), flags_of(arguments), context.size)
    return None if by_point is None else [Operand(*result) for result in by_point]


def _together(function: Function, flags: tuple[bool, ...], size: Size) -> Function:
    """The function of a whole batch, not in turn: a map, or node by node over tensors. All results are batched."""
    context = Context(size, is_together=True)
    inputs = zip(function.parameter_types, flags, strict=True)
    parameters = parameters_of([batched_type(type, size) if flag else type for type, flag in inputs])
    arguments = [Operand(*pair) for pair in zip(parameters, flags, strict=True)]
    alone = _run_alone(function, arguments, context)
    results = _run_nodes(function, arguments, context) if alone is None else alone
    return Function(f"{function.name}.batch", parameters, tuple(map(context.batch, results)))


def _node_alone(node: Node, operands: Sequence[Operand], context: Context) -> Known | None:
    """A loop or branch whose members run by themselves."""
    if node.op not in LOOPS and node.op not in BRANCHES:
        return None
    parameters = parameters_of([operand.type for operand in node.operands])
    region = region_of(make_node(node.op, parameters, node.attributes))
    assert region is not None
    results = _run_alone(Function(node.op.name, parameters, tuple(region.members)), operands, context)
    if results is None:
        return None
    return Parts(node.type, tuple(results)) if region.packed else results[0]


def flags_of(operands: Sequence[Operand]) -> tuple[bool, ...]:
    return tuple(operand.batched for operand in operands)


def nodes_in(operands: Sequence[Operand]) -> list[Node]:
    return [operand.value for operand in operands]
