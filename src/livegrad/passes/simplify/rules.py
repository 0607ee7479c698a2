"""All rules of the `simplify` pass by op; the first applicable rule wins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from livegrad import ops
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ops import aggregate, indexing, movement, reduction, tape
from livegrad.ops import control as control_ops
from livegrad.passes.simplify import arithmetic, control, structure
from livegrad.passes.simplify.folding import fold_constants

Rule = Callable[[Node], Node | None]

_INTO_REGION: tuple[Rule, ...] = (
    control.drop_unused_arguments,
    control.move_constants_inside,
    control.merge_equal_arguments,
)
_COMPARISON = (arithmetic.compare_with_itself,)
_EXTREMUM = (arithmetic.extremum_of_same,)
_ROUNDING = (arithmetic.round_what_is_whole,)

# The order of operands makes no difference here, to the last bit: the order that is met first in a function is kept,
# so that x * y and y * x are one node. (The extrema do not commute: min(0.0, -0.0) is the first.)
COMMUTATIVE = frozenset((ops.add, ops.mul, ops.bit_and, ops.bit_or, ops.bit_xor, ops.equal, ops.not_equal))

RULES: Mapping[Op, tuple[Rule, ...]] = {
    # arithmetic
    ops.add: (arithmetic.add_nothing, arithmetic.add_negated),
    ops.sub: (arithmetic.subtract_nothing, arithmetic.subtract_from_nothing, arithmetic.subtract_negated),
    ops.mul: (
        arithmetic.multiply_by_one,
        arithmetic.multiply_by_minus_one,
        arithmetic.multiply_negated_pair,
        arithmetic.multiply_by_choice_of_one,
    ),
    ops.div: (arithmetic.divide_by_one, arithmetic.divide_by_power_of_two),
    ops.pow: (arithmetic.power_by_small_number,),
    ops.neg: (arithmetic.negate_twice,),
    ops.abs: (arithmetic.magnitude_of_magnitude,),
    ops.floor_div: (arithmetic.floor_divide_by_one,),
    **dict.fromkeys((ops.floor, ops.ceil, ops.trunc, ops.round), _ROUNDING),
    **dict.fromkeys((ops.min, ops.max, ops.minimum, ops.maximum), _EXTREMUM),
    **dict.fromkeys((ops.equal, ops.not_equal, ops.less, ops.less_equal, ops.greater, ops.greater_equal), _COMPARISON),
    # bits
    ops.bit_not: (arithmetic.not_twice,),
    ops.bit_and: (arithmetic.bits_with_same, arithmetic.bits_with_neutral, arithmetic.bits_with_absorbing),
    ops.bit_or: (
        arithmetic.bits_with_same,
        arithmetic.bits_with_neutral,
        arithmetic.bits_with_absorbing,
        arithmetic.merge_with_equality,
    ),
    ops.bit_xor: (arithmetic.bits_with_neutral,),
    ops.shift_left: (arithmetic.shift_by_nothing,),
    ops.shift_right: (arithmetic.shift_by_nothing,),
    # choice, casts, parts
    ops.select: (
        arithmetic.select_of_constant,
        arithmetic.select_between_same,
        arithmetic.select_by_negation,
        arithmetic.select_truth,
    ),
    ops.cast: (arithmetic.cast_to_same, arithmetic.cast_there_and_back),
    ops.conj: (arithmetic.conjugate_twice,),
    ops.real: (arithmetic.part_of_make_complex,),
    ops.imag: (arithmetic.part_of_make_complex,),
    ops.make_complex: (arithmetic.complex_of_parts,),
    ops.detach: (arithmetic.detach_twice,),
    # aggregates
    aggregate.get: (structure.get_of_make, structure.get_of_set, structure.get_of_splat),
    aggregate.make: (structure.make_of_all_members,),
    aggregate.set_: (structure.set_in_make, structure.set_again, structure.set_to_same_member),
    aggregate.get_at: (structure.constant_index,),
    aggregate.set_at: (structure.constant_index,),
    # tensors
    movement.broadcast: (
        structure.move_nothing,
        structure.broadcast_of_broadcast,
        structure.broadcast_without_added_dimensions,
    ),
    movement.reshape: (structure.move_nothing, structure.reshape_of_reshape, structure.move_uniform),
    movement.permute: (structure.permute_nothing, structure.permute_of_permute, structure.move_uniform),
    movement.slice_: (structure.slice_everything, structure.slice_of_slice, structure.move_uniform),
    movement.flip: (structure.flip_nothing, structure.flip_of_flip, structure.move_uniform),
    movement.pad: (structure.pad_nothing,),
    movement.concatenate: (structure.concatenate_one,),
    reduction.reduce: (structure.reduce_over_no_axes,),
    indexing.lookup: (structure.lookup_in_spread_scalar,),
    # tapes
    tape.tape_get: (structure.read_what_was_written, structure.read_empty_tape, structure.read_row_of_indices),
    tape.tape_set: (structure.write_again,),
    tape.tape_sum: (structure.sum_with_empty_tape,),
    # control
    control_ops.cond: (
        control.branch_on_constant,
        control.branches_alike,
        control.branch_on_negation,
        control.forward_unchanged_results,
        *_INTO_REGION,
    ),
    control_ops.switch: (control.branch_on_constant, *_INTO_REGION),
    control_ops.for_loop: (
        control.loop_without_iterations,
        control.loop_of_one_iteration,
        control.capture_invariant_values,
        control.spread_inside,
        *_INTO_REGION,
    ),
    control_ops.while_loop: (
        control.while_never,
        control.capture_invariant_values,
        control.spread_inside,
        *_INTO_REGION,
    ),
    control_ops.map_: _INTO_REGION,
}


@cache
def rules_for(op: Op) -> tuple[Rule, ...]:
    """The rules of an op, in order; elementwise ops are folded before anything else is tried."""
    op_rules = RULES.get(op, ())
    return (fold_constants, *op_rules, structure.compute_before_adding_dimensions) if op.elementwise else op_rules
