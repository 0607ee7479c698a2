"""Batches a function as a loop over members: for divergent loops that write arrays by index.

As one program over the batch, every iteration would copy the arrays of all members until the last of them is done; with
scalars in registers, every access by index would be a chain of selects. A loop over members is one native loop on the
CPU, with its arrays in memory, and threads share it. Other targets run the batch as one program (`ops.members`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from livegrad.ir.dimension import Size
from livegrad.ir.function import inline
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.propagate_lines import cached_derivation
from livegrad.ir.types import Scalar, Tape, Tensor, Type, i64, inner_types
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.aggregate import get
from livegrad.ops.assignment import assign
from livegrad.ops.control import for_loop, parameters_of, while_loop
from livegrad.ops.failing import constant_integer
from livegrad.ops.indexing import lookup
from livegrad.ops.members import members_call
from livegrad.ops.movement import broadcast, iota
from livegrad.ops.tape import unwritten
from livegrad.passes.batch.points import number_of_elements
from livegrad.passes.batch.values import batched_type
from livegrad.passes.differentiate.tangents import result_nodes
from livegrad.passes.expand import expand_ops
from livegrad.passes.functions import rewrite_functions, uses_any
from livegrad.passes.inline_calls import inline_calls
from livegrad.passes.loop_over_elements import runs_by_elements
from livegrad.passes.regions import LOOPS
from livegrad.passes.run_members import run_members_in_turn
from livegrad.passes.simplify import Simplify

# Elements of an array that lanes can keep in registers and select from. The limit is lower for divergent loops, where
# lanes also wait for the slowest one.
_MAX_IN_DIVERGENT_LANES = 8
_MAX_IN_LANES = 32


def run_as_member_loop(
    function: Function, values: Sequence[Node], flags: Sequence[bool], size: Size, batch_as_one: Callable[[], Function]
) -> list[Node] | None:
    """Runs a function for a batch as a loop over its members; returns None if one kernel could not run that loop.

    `flags` says which values are batched; all members share the others. `batch_as_one` returns the function for all
    members as one program, with all results batched.
    """
    if (
        not any(flags)
        or not _diverges_with_arrays(function)
        or not all(map(_is_tensor_or_scalar, function.result_types))
    ):
        return None
    if not isinstance(size, int) or not all(
        _is_tensor_or_scalar(type) for type, flag in zip(function.parameter_types, flags, strict=True) if flag
    ):
        return None
    in_turn = _loop_over_members(function, tuple(flags), size)
    if in_turn is None:
        return None
    return result_nodes(members_call(*values, function=batch_as_one(), in_turn=in_turn), len(function.results))


@lru_cache(maxsize=1024)
def _diverges_with_arrays(function: Function) -> bool:
    """Whether loops may diverge and carry arrays, written by index, that are too large for the registers of lanes."""
    functions = reachable_functions([function])
    if any(
        isinstance(inner, Tape)
        for inner_function in functions
        for type in inner_function.result_types
        for inner in inner_types(type)
    ):
        return False
    loops = [node for inner_function in functions for node in nodes_of(inner_function) if node.op in LOOPS]
    divergent = [loop for loop in loops if loop.op is while_loop or constant_integer(loop.operands[0]) is None]
    if not divergent or not uses_any(functions, {assign}):
        return False
    return _carried_elements(divergent) > _MAX_IN_DIVERGENT_LANES or _carried_elements(loops) > _MAX_IN_LANES


def _carried_elements(loops: Sequence[Node]) -> int:
    """The number of elements of the largest array that one of these loops carries."""
    types = {type for loop in loops for type in loop.attribute("body").result_types if isinstance(type, Tensor)}
    return max([number_of_elements(type) for type in types], default=0)


def _is_tensor_or_scalar(type: Type) -> bool:
    return isinstance(type, Scalar | Tensor)


@cached_derivation(256)
def _loop_over_members(function: Function, flags: tuple[bool, ...], size: int) -> Function | None:
    """The batched function as a loop over its members; None if one kernel cannot run it."""
    types = [
        batched_type(type, size) if flag else type for type, flag in zip(function.parameter_types, flags, strict=True)
    ]
    results = [unwritten(type=batched_type(type, size), slot=slot) for slot, type in enumerate(function.result_types)]
    parameters = parameters_of([i64, *(result.type for result in results), *types])
    index, state, captured = parameters[0], parameters[1 : 1 + len(results)], parameters[1 + len(results) :]
    inputs = zip(captured, function.parameter_types, flags, strict=True)
    final_values = inline(
        _with_inner_loops(function),
        [_read_member(value, type, index) if flag else value for value, type, flag in inputs],
    )
    rows = [_write_member(batch, value, index) for batch, value in zip(state, final_values, strict=True)]
    body = Function(function.name, parameters, tuple(rows))
    outer = parameters_of(types)
    loop = for_loop(
        constant(size, i64), *results, *outer, body=body, carried=len(results), reverse=False, independent=True
    )
    members = tuple([get(loop, index=position) for position in range(len(results))])
    whole = Function(f"{function.name}.members", outer, members)
    (simple,) = Simplify()(inline_calls(Module((whole,)))).functions
    loops = [node for node in nodes_of(simple) if node.op in LOOPS]
    return simple if loops and all(map(runs_by_elements, loops)) else None


def _with_inner_loops(function: Function) -> Function:
    """Turns nested batches into loops over their members too, with `unwritten` results expanded."""
    module = run_members_in_turn(Module((function,)))
    return rewrite_functions(module, lambda inner: expand_ops(inner, lambda node: node.op is unwritten)).functions[0]


# --- rows ------------------------------------------------------------------------------------------------------------


def _indices(type: Type, index: Node) -> list[Node]:
    """The indices of the elements of a member's value in the batched tensor."""
    if not isinstance(type, Tensor):
        return [index]
    along = [iota(shape=type.shape, axis=axis, type=i64) for axis in range(type.rank)]
    return [broadcast(index, shape=type.shape, axes=()), *along]


def _read_member(batch: Node, type: Type, index: Node) -> Node:
    """The value of a member, of the given type."""
    return lookup(batch, *_indices(type, index))


def _write_member(batch: Node, value: Node, index: Node) -> Node:
    return assign(batch, value, *_indices(value.type, index))
