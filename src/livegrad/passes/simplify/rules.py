"""The rewrite rules of the `simplify` pass, by op; the first applicable rule wins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from livegrad import ops
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ops import aggregate, indexing, movement, reduction, tape
from livegrad.ops import control as control_ops
from livegrad.ops.maps import map_
from livegrad.passes.simplify import arithmetic, control, structure
from livegrad.passes.simplify.folding import fold_constants

Rule = Callable[[Node], Node | None]

_REGION_RULES: tuple[Rule, ...] = (
    control.drop_unused_arguments,
    control.move_constants_inside,
    control.merge_equal_arguments,
)
_COMPARISON = (arithmetic.compare_with_same,)
_EXTREMUM = (arithmetic.min_max_of_same,)
_ROUNDING = (arithmetic.round_of_rounding,)

# Ops that commute to the last bit. The first order in a function is used for both, so x * y and y * x become one node.
# (min and max do not commute: min(0.0, -0.0) is its first operand.)
COMMUTATIVE = frozenset((ops.add, ops.mul, ops.bit_and, ops.bit_or, ops.bit_xor, ops.equal, ops.not_equal))

RULES: Mapping[Op, tuple[Rule, ...]] = {
    # arithmetic
    ops.add: (arithmetic.add_zero, arithmetic.add_negated),
    ops.sub: (arithmetic.subtract_zero, arithmetic.subtract_from_zero, arithmetic.subtract_negated),
    ops.mul: (
        arithmetic.multiply_by_one,
        arithmetic.multiply_by_minus_one,
        arithmetic.multiply_negated_operands,
        arithmetic.multiply_by_select_of_one,
    ),
    ops.div: (arithmetic.divide_by_one, arithmetic.divide_by_power_of_two),
    ops.pow: (arithmetic.power_by_small_number,),
    ops.neg: (arithmetic.neg_of_neg,),
    ops.abs: (arithmetic.abs_of_abs,),
    ops.floor_div: (arithmetic.floor_divide_by_one,),
    **dict.fromkeys((ops.floor, ops.ceil, ops.trunc, ops.round), _ROUNDING),
    **dict.fromkeys((ops.min, ops.max, ops.minimum, ops.maximum), _EXTREMUM),
    **dict.fromkeys((ops.equal, ops.not_equal, ops.less, ops.less_equal, ops.greater, ops.greater_equal), _COMPARISON),
    # bits
    ops.bit_not: (arithmetic.not_of_not,),
    ops.bit_and: (arithmetic.bits_with_same, arithmetic.bits_with_identity, arithmetic.bits_with_absorbing),
    ops.bit_or: (
        arithmetic.bits_with_same,
        arithmetic.bits_with_identity,
        arithmetic.bits_with_absorbing,
        arithmetic.merge_with_equality,
    ),
    ops.bit_xor: (arithmetic.bits_with_identity,),
    ops.shift_left: (arithmetic.shift_by_zero,),
    ops.shift_right: (arithmetic.shift_by_zero,),
    # selection, casts, complex parts
    ops.select: (
        arithmetic.select_of_constant,
        arithmetic.select_between_same,
        arithmetic.select_by_negation,
        arithmetic.select_of_booleans,
    ),
    ops.cast: (arithmetic.cast_to_same, arithmetic.cast_of_lossless_cast),
    ops.conj: (arithmetic.conj_of_conj,),
    ops.real: (arithmetic.part_of_complex,),
    ops.imag: (arithmetic.part_of_complex,),
    ops.make_complex: (arithmetic.complex_of_parts,),
    ops.detach: (arithmetic.detach_of_detach,),
    # aggregates
    aggregate.get: (structure.get_of_make, structure.get_of_set, structure.get_of_splat),
    aggregate.make: (structure.make_of_all_members,),
    aggregate.set_: (structure.set_in_make, structure.set_of_set, structure.set_to_same_member),
    aggregate.get_at: (structure.constant_index,),
    aggregate.set_at: (structure.constant_index,),
    # tensors
    movement.broadcast: (
        structure.move_to_same_shape,
        structure.broadcast_of_broadcast,
        structure.broadcast_of_added_dimensions,
    ),
    movement.reshape: (structure.move_to_same_shape, structure.reshape_of_reshape, structure.move_broadcast_scalar),
    movement.permute: (structure.permute_by_identity, structure.permute_of_permute, structure.move_broadcast_scalar),
    movement.slice_: (structure.slice_of_everything, structure.slice_of_slice, structure.move_broadcast_scalar),
    movement.flip: (structure.flip_no_axes, structure.flip_of_flip, structure.move_broadcast_scalar),
    movement.pad: (structure.pad_by_zero,),
    movement.concatenate: (structure.concatenate_single,),
    reduction.reduce: (structure.reduce_over_no_axes,),
    indexing.lookup: (structure.lookup_in_broadcast_scalar,),
    indexing.scatter_add: (arithmetic.scatter_zeros,),
    # tapes
    tape.tape_get: (structure.read_after_write, structure.read_empty_tape, structure.read_row_of_indices),
    tape.tape_set: (structure.overwrite_row,),
    tape.tape_sum: (structure.add_empty_tape,),
    # control
    control_ops.cond: (
        control.branch_on_constant,
        control.merge_equal_branches,
        control.branch_on_not,
        control.forward_unchanged_results,
        *_REGION_RULES,
    ),
    control_ops.switch: (control.branch_on_constant, *_REGION_RULES),
    control_ops.for_loop: (
        control.loop_without_iterations,
        control.loop_of_one_iteration,
        control.capture_invariant_values,
        control.sink_broadcasts,
        *_REGION_RULES,
    ),
    control_ops.while_loop: (
        control.while_of_false,
        control.capture_invariant_values,
        control.sink_broadcasts,
        *_REGION_RULES,
    ),
    map_: _REGION_RULES,
}


@cache
def rules_for(op: Op) -> tuple[Rule, ...]:
    """The rules of an op, in order; for elementwise ops, constant folding comes first."""
    op_rules = RULES.get(op, ())
    return (fold_constants, *op_rules, structure.sink_added_dimensions) if op.elementwise else op_rules
