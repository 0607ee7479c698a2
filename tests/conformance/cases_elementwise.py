"""Cases of the elementwise ops: all scalar types that the type rule accepts, all shapes, special values."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from livegrad.ir.bfloat16 import BFLOAT16, narrow, readable
from livegrad.ir.function import make_function, trace
from livegrad.ir.leaves import constant, constant_op
from livegrad.ir.op import Op
from livegrad.ir.types import Matrix, Scalar, Tensor, Type, Vector, bool_, c128, f16, f32, f64, with_scalar
from livegrad.ir.types.scalars import SCALARS
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import select
from tests.conformance.case import Case, accepts, make_case
from tests.conformance.tolerance import ANY_ZERO, EXACT, Tolerance
from tests.conformance.values import (
    Draw,
    draw_any,
    draw_between,
    draw_bits,
    draw_divisor,
    draw_shift,
    every_combination,
    special_values,
)

SHAPED: tuple[Type, ...] = (
    f32,
    Vector(f32, 3),
    Vector(f32, 4),
    Matrix(f32, 2, 3),
    *(Tensor(f32, shape) for shape in ((), (1,), (37,), (0,), (5, 9), (2, 1, 7), (3, 0, 2))),
)
_POSITIVE = draw_between(0.2, 3.0)
_INSIDE = draw_between(-0.9, 0.9)
# Where an op is defined and smooth; any op that is not here takes `draw_any` for each operand.
DRAWS: dict[str, tuple[Draw, ...]] = {
    "div": (draw_any, draw_divisor),
    "floor_div": (draw_between(-9.0, 9.0), draw_divisor),
    "mod": (draw_between(-9.0, 9.0), draw_divisor),
    "fmod": (draw_between(-9.0, 9.0), draw_divisor),
    "clamp": (draw_any, draw_between(-1.5, -0.3), draw_between(0.3, 1.5)),
    "shift_left": (draw_bits, draw_shift),
    "shift_right": (draw_bits, draw_shift),
    "bit_and": (draw_bits, draw_bits),
    "bit_or": (draw_bits, draw_bits),
    "bit_xor": (draw_bits, draw_bits),
    "bit_not": (draw_bits,),
    "random_bits": (draw_bits, draw_bits),
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10"), (_POSITIVE,)),
    "log1p": (draw_between(-0.8, 3.0),),
    **dict.fromkeys(("asin", "acos", "atanh"), (_INSIDE,)),
    "acosh": (draw_between(1.1, 4.0),),
    "tan": (draw_between(-1.3, 1.3),),
    "pow": (_POSITIVE, draw_between(-2.0, 2.0)),
    "integer_pow": (draw_bits, draw_shift),
}
# The CPU's functions are within 3 ulp of the exact result (docs/vector-math.md), NumPy's within 1 or so.
ULPS: dict[str, float] = dict.fromkeys(
    (
        *(
            "rsqrt",
            "cbrt",
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
        ),
        *("atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "atan2", "hypot", "pow"),
    ),
    4.0,
)
# Which of two equal zeros an extremum gives is nobody's promise.
_EITHER_ZERO = ("minimum", "maximum", "min", "max", "clamp", "greatest", "least")
_OWN_CASES = ("constant", "cast", "select")


def tolerance_of(op: Op, scalar: Scalar) -> Tolerance:
    if scalar.kind == "complex":
        exact = op.name in ("add", "sub", "neg", "conj", "real", "imag", "detach", "equal", "not_equal")
        return EXACT if exact else Tolerance(32.0 if op.name in ULPS or op.name == "sqrt" else 8.0)
    if op.name in _EITHER_ZERO:
        return ANY_ZERO
    if op.name == "floor_div" and scalar is f16:
        return Tolerance(1.0)  # NumPy rounds once, from float32
    if op.name == "logaddexp":
        # A sum of the larger operand and a number up to log(2): rounding is relative to the terms.
        return Tolerance(4.0, lambda a, b: np.maximum(np.abs(a), np.abs(b)))
    return Tolerance(ULPS.get(op.name, 0.0))


def arity_of(op: Op, scalar: Scalar) -> int | None:
    """How many operands of this scalar type the op takes, found by asking its type rule."""
    return next((count for count in (1, 2, 3) if accepts(op, *[scalar] * count)), None)


def elementwise_ops() -> list[Op]:
    return [op for op in Op.table.values() if op.elementwise and op.name not in _OWN_CASES]


def elementwise_cases() -> Iterator[Case]:
    for op in elementwise_ops():
        for scalar in SCALARS.values():
            count = arity_of(op, scalar)
            if count is None:
                continue
            types = [Tensor(scalar, (37,)), scalar]
            if scalar is f32:
                types = list(SHAPED)
            elif not accepts(op, *[f32] * count):
                types += [with_scalar(type, scalar) for type in (Vector(f32, 3), Tensor(f32, (0,)))]
            for type in types:
                yield make_case(
                    op,
                    op,
                    *[type] * count,
                    draws=DRAWS.get(op.name, ()),
                    tolerance=tolerance_of(op, scalar),
                    smooth=op.name != "detach",  # its derivative is not its slope, on purpose
                )
            yield _special_case(op, scalar, count)


def _special_case(op: Op, scalar: Scalar, count: int) -> Case:
    values = [special_values(scalar)] * count
    if count == 3:
        values = [values[0], values[1][::3], values[2][::4]]
    grids = every_combination(values)
    if scalar.kind in ("signed", "unsigned") and op.name in ("floor_div", "mod"):
        grids = tuple(grid[grids[1] != 0] for grid in grids)
    if op.name == "integer_pow":
        grids = tuple(grid[grids[1] >= 0] for grid in grids)
    if scalar.kind == "complex" and op.name == "div":
        grids = tuple(grid[grids[1] != 0] for grid in grids)
    function = trace(op, *[Tensor(scalar, grids[0].shape)] * count, name=op.name)
    return Case(f"{op.name}/{scalar}/special", op, function, lambda rng: grids, tolerance_of(op, scalar), smooth=False)


def select_cases() -> Iterator[Case]:
    for scalar in SCALARS.values():
        for type in SHAPED if scalar is f32 else (Tensor(scalar, (37,)), scalar):
            own = with_scalar(type, scalar)
            yield make_case(select, select, with_scalar(own, bool_), own, own)
        yield make_case(select, select, bool_, Tensor(scalar, (3, 5)), Tensor(scalar, (3, 5)), note="one_condition")
    values = special_values(f32)
    yield Case(
        "select/f32/special",
        select,
        trace(select, *(Tensor(s, values.shape) for s in (bool_, f32, f32)), name="select"),
        lambda rng: (np.arange(values.size) % 3 == 0, values, values[::-1].copy()),
        smooth=False,
    )


def cast_cases() -> Iterator[Case]:
    for source in SCALARS.values():
        for target in SCALARS.values():
            if accepts(cast, source, type=target):
                yield _cast_case(source, target)
    for type in (*SHAPED, Tensor(f64, (5,)), Tensor(c128, (5,))):
        for target in (f64, c128):
            if accepts(cast, type, type=target):
                yield make_case(cast, lambda x, t=target: cast(x, type=t), type, note=f"to_{target}")


def _cast_case(source: Scalar, target: Scalar) -> Case:
    values = special_values(source)
    if source.kind == "float" and target.kind in ("signed", "unsigned"):
        values = _castable(values, target)
    return Case(
        f"cast/{source}_to_{target}",
        cast,
        trace(lambda x: cast(x, type=target), Tensor(source, values.shape), name="cast"),
        lambda rng: (values,),
        ANY_ZERO if source.kind == "complex" else EXACT,
        smooth=False,
    )


def _castable(values: Any, target: Scalar) -> Any:
    """The floats that an integer type can hold, with a few between its bounds."""
    info = np.iinfo(target.dtype)
    more = np.array([-0.9, 0.9, -1.0, -1.5, 100.7, 127.5, 126.9, info.max * 0.9, info.min * 0.9])
    is_short = values.dtype == BFLOAT16
    with np.errstate(over="ignore"):
        between = narrow(more) if is_short else more.astype(values.dtype)
        every = readable(np.concatenate([values, between])).astype(np.float64)
    kept = np.isfinite(every) & (np.trunc(every) >= float(info.min)) & (np.trunc(every) < float(info.max))
    return narrow(every[kept]) if is_short else every[kept].astype(values.dtype)


def constant_cases() -> Iterator[Case]:
    for scalar in SCALARS.values():
        nodes = [constant(value.item(), scalar) for value in readable(special_values(scalar))]
        yield Case(f"constant/{scalar}", constant_op, make_function("constant", (), nodes), lambda rng: ())
    for type in (Tensor(f32, (37,)), Tensor(f64, (7,)), Vector(f64, 3), c128):
        yield make_case(constant_op, lambda x: (x + 0.1, x * 3.0, 1.0 - x), type, note="literals")
