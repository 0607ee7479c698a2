"""The op table: importing this package defines every op, and gives each by its name.

Passes and backends look ops up here or in the modules; people write `ops.sqrt(x) + ops.sin(y)`.
"""

from livegrad.ops.aggregate import get, get_at, get_field, make, make_tuple, make_vector, set_, set_at, splat
from livegrad.ops.control import (
    call,
    check,
    cond,
    for_loop,
    make_cond,
    make_for_loop,
    make_map,
    make_switch,
    make_while_loop,
    map_,
    map_over,
    switch,
    while_loop,
)
from livegrad.ops.differential import bwd_diff, fwd_diff
from livegrad.ops.elementwise import (
    abs,
    add,
    bit_and,
    bit_not,
    bit_or,
    bit_xor,
    cast,
    ceil,
    clamp,
    conj,
    copysign,
    detach,
    div,
    equal,
    floor,
    floor_div,
    fmod,
    fract,
    greater,
    greater_equal,
    imag,
    is_finite,
    is_infinite,
    is_nan,
    less,
    less_equal,
    make_complex,
    max,
    maximum,
    min,
    minimum,
    mod,
    mul,
    neg,
    not_equal,
    real,
    round,
    select,
    shift_left,
    shift_right,
    sign,
    sub,
    trunc,
)
from livegrad.ops.indexing import lookup, scatter_add
from livegrad.ops.linalg import broadcast_shapes, matmul
from livegrad.ops.movement import (
    broadcast,
    broadcast_to,
    concatenate,
    flip,
    index_along,
    iota,
    pad,
    permute,
    reshape,
    slice_,
    sum_to,
)
from livegrad.ops.random import random_bits, random_normal, random_uniform
from livegrad.ops.reduction import arg_reduce, cumulative, recurrence, reduce, spread_back
from livegrad.ops.rules import filled, zero
from livegrad.ops.trace import trace_add, trace_get, trace_new, trace_set, trace_sum
from livegrad.ops.transcendental import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cbrt,
    cos,
    cosh,
    erf,
    exp,
    exp2,
    expm1,
    hypot,
    log,
    log1p,
    log2,
    log10,
    pow,
    rsqrt,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)
from livegrad.ops.vector import (
    cross,
    determinant,
    dot,
    identity_matrix,
    inverse,
    length,
    matrix_multiply,
    matrix_transpose,
    matrix_vector,
    normalize,
)

__all__ = [name for name in dir() if not name.startswith("_")]
