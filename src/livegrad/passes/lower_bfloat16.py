"""The `lower_bfloat16` pass: bfloat16 arithmetic becomes float32 arithmetic between casts.

Afterwards, bf16 values are only moved and cast, so backends only need the two casts. Runs after inlining. The reference
backend uses `computes_bfloat16` to widen and narrow values in the same way.
"""

from __future__ import annotations

from functools import lru_cache

from livegrad.diagnostics import CompileError
from livegrad.ir.function import map_results
from livegrad.ir.node import Function, Module, Node, make_node
from livegrad.ir.op import Op
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.types import Array, Struct, Tape, Tuple, Type, bf16, components, f32, inner_types, scalar_of
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.aggregate import get, make, make_tuple, member
from livegrad.ops.conversion import cast
from livegrad.ops.maps import map_
from livegrad.ops.rules import add_values
from livegrad.ops.tape import tape_add, tape_get, tape_set
from livegrad.passes.functions import rewrite_functions

# These ops move elements without computing with them.
_MOVES = frozenset(
    Op.named(name)
    for name in (
        *("parameter", "input", "make", "get", "set", "splat", "get_at", "set_at", "select", "detach"),
        *("call", "cond", "switch", "for_loop", "while_loop", "map", "check", "after", "kept", "transfer"),
        *("broadcast", "reshape", "permute", "slice", "flip", "concatenate", "lookup", "matrix_transpose"),
        *("custom_call", "custom_linear", "recompute_call", "recompute_linear", "members_call"),
        *("fwd_diff", "bwd_diff"),
        *("tape_new", "tape_set", "tape_get", "tape_stack", "tape_unstack"),
    )
)


@propagates_lines
def lower_bfloat16(module: Module) -> Module:
    """Lowers all bf16 arithmetic in a module to f32."""
    if not any(_uses_bfloat16(function) for function in reachable_functions(module.functions)):
        return module
    return rewrite_functions(module, lambda function: map_results(function, _lower))


def computes_bfloat16(node: Node) -> bool:
    """Whether a node computes with bf16 elements instead of only moving them."""
    return node.op not in _MOVES and (
        _is_bfloat16(node.type) or any(_is_bfloat16(operand.type) for operand in node.operands)
    )


def _uses_bfloat16(function: Function) -> bool:
    return any(map(_is_bfloat16, {node.type for node in nodes_of(function)}))


@lru_cache(maxsize=4096)
def _is_bfloat16(type: Type) -> bool:
    return bf16 in inner_types(type)


def _lower(node: Node) -> Node | None:
    if node.op is map_:
        return _lower_sums(node)
    if not computes_bfloat16(node) or _is_native_cast(node):
        return None
    if node.op is tape_add:
        tape, index, value = node.operands
        return tape_set(tape, index, _add_in_f32(tape_get(tape, index), value))
    if any(isinstance(operand.type, Tape) for operand in node.operands):
        raise CompileError(
            f"`{node.op.name}` cannot accumulate the tape of a loop in bf16",
            where=node.origin,
            help="cast to f32 before the loop",
        )
    operands = tuple(_widen(operand) for operand in node.operands)
    attributes = tuple((name, f32 if value is bf16 else value) for name, value in node.attributes)
    return _narrow(make_node(node.op, operands, attributes), node.type)


def _add_in_f32(first: Node, second: Node) -> Node:
    """The sum of two values; bf16 members are added in f32."""
    if isinstance(first.type, Tuple | Struct | Array):
        indices = range(len(components(first.type)))
        return make(*[_add_in_f32(member(first, index), member(second, index)) for index in indices], type=first.type)
    if scalar_of(first.type) is not bf16:
        return add_values(first, second)
    return cast(add_values(_widen(first), _widen(second)), type=bf16)


def _is_native_cast(node: Node) -> bool:
    """Whether a node is a cast between bf16 and f32, which backends implement."""
    return node.op is cast and {scalar_of(node.type), scalar_of(node.operands[0].type)} == {bf16, f32}


def _widen(node: Node) -> Node:
    return cast(node, type=f32) if scalar_of(node.type) is bf16 else node


def _narrow(computed: Node, original_type: Type) -> Node:
    """Casts a result computed in f32 back to its original type."""
    if computed.type is original_type:
        return computed
    if isinstance(original_type, Tuple):
        return make_tuple(
            *[_narrow(get(computed, index=i), element) for i, element in enumerate(original_type.elements)]
        )
    return cast(computed, type=bf16)


def _lower_sums(node: Node) -> Node | None:
    """Sums the bf16 results of a map over its points in f32."""
    function, summed = node.attribute("function"), node.attribute("summed")
    flags = [flag and scalar_of(type) is bf16 for flag, type in zip(summed, function.result_types, strict=True)]
    if not any(flags):
        return None
    results = tuple(_widen(r) if flag else r for r, flag in zip(function.results, flags, strict=True))
    inner = Function(function.name, function.parameters, results)
    attributes = tuple((name, inner if name == "function" else value) for name, value in node.attributes)
    return _narrow(make_node(map_, node.operands, attributes), node.type)
