"""Cases of calls, branches, loops, maps, checks and tapes, and programs that must end with an error."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from livegrad.ir.function import trace
from livegrad.ir.leaves import constant, input_op, parameter_op
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Array, Scalar, Tape, Tensor, Tuple, Type, Vector, bool_, f32, f64, i32, i64
from livegrad.ir.types.scalars import SCALARS
from livegrad.ops.aggregate import get, get_at, make_tuple, set_, set_at
from livegrad.ops.assignment import assign
from livegrad.ops.control import call, check, make_cond, make_for_loop, make_switch, make_while_loop
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import select
from livegrad.ops.indexing import lookup, scatter_add
from livegrad.ops.maps import make_map, map_
from livegrad.ops.placement import transfer
from livegrad.ops.tape import tape_add, tape_get, tape_new, tape_set, tape_stack, tape_sum, tape_unstack, unwritten
from livegrad.ops.transcendental import exp, sin, sqrt
from livegrad.ops.vector import dot, normalize
from tests.conformance.case import Case, make_case
from tests.conformance.cases_aggregate import MATERIAL
from tests.conformance.cases_tensor import draw_below
from tests.conformance.tolerance import Tolerance
from tests.conformance.values import Draw, draw_any, draw_between

# Ops that no backend sees: passes remove them, or they are no values of a closed function.
NEVER_RUN = {
    input_op.name: "is given from outside; a closed function has parameters instead",
    "fwd_diff": "is removed by the differentiate pass",
    "bwd_diff": "is removed by the differentiate pass",
    "undefined_tangent": "stands for a tangent that does not exist; its only meaning is an error",
    "custom_linear": "stands between linearisation and transposition",
    "recompute_linear": "stands between linearisation and transposition",
    "host_call": "runs a Python callable, which no text can hold; it has tests of its own",
}

_FEW = Tolerance(64.0, lambda *_: 1.0)
_TRIPS: Draw = draw_below(6)


def parameter_cases() -> Iterator[Case]:
    for scalar in SCALARS.values():
        for type in (scalar, Tensor(scalar, (37,)), Tensor(scalar, (0, 2))):
            yield make_case(parameter_op, lambda x: x, type)
    yield make_case(parameter_op, lambda x, y: (y, x, y), f32, Tensor(f32, (3,)), note="swapped_and_repeated")
    yield make_case(parameter_op, lambda x: x, MATERIAL)


def branch_cases() -> Iterator[Case]:
    for scalar in (f32, f64):
        yield make_case(call_op(), _calls, scalar, scalar, tolerance=_FEW)
        yield make_case(call_op(), _calls, Tensor(scalar, (37,)), Tensor(scalar, (37,)), tolerance=_FEW)
        for predicate in (False, True):
            drawn = _always(predicate)
            yield make_case(
                Op.named("cond"), _branches, bool_, scalar, scalar, note=str(predicate), draws=(drawn,), tolerance=_FEW
            )
        for index in (0, 1, 2):
            for selector in (i32, i64):
                yield make_case(
                    Op.named("switch"),
                    _switches,
                    selector,
                    scalar,
                    note=f"{index}",
                    draws=(_always(index),),
                    tolerance=_FEW,
                )


def call_op() -> Op:
    return Op.named("call")


def _always(value: Any) -> Draw:
    return lambda scalar, shape, rng: np.full(shape, value, scalar.dtype)


def _calls(x: Node, y: Node) -> Node:
    inner = trace(lambda a, b: (sin(a) * b, a + b), x.type, y.type, name="inner")
    first = call(x, y, function=inner)
    second = call(get(first, index=0), get(first, index=1), function=inner)
    return get(second, index=0) + get(second, index=1)


def _branches(predicate: Node, x: Node, y: Node) -> Node:
    return make_cond(predicate, lambda a: a * y + sin(a), lambda a: a - exp(y), x)


def _switches(index: Node, x: Node) -> Node:
    return make_switch(index, [lambda a: a * a, lambda a: sin(a), lambda a: x + a * 3.0], x)


# --- loops -----------------------------------------------------------------------------------------------------------


def loop_cases() -> Iterator[Case]:
    for_loop, while_loop = Op.named("for_loop"), Op.named("while_loop")
    for scalar in (f32, f64):
        programs: dict[str, tuple[Any, tuple[Type, ...]]] = {
            "horner": (_horner, (i64, scalar)),
            "reverse": (_counting_down, (i64, scalar)),
            "nested": (_nested, (i64, scalar)),
            "vector": (_vector_carried, (i64, Vector(scalar, 3))),
            "array": (_array_carried, (i64, Array(scalar, 3))),
            "lookup": (_looking_up, (i64, Tensor(scalar, (6,)))),
            "tensor": (_horner, (i64, Tensor(scalar, (2, 3)))),
        }
        for note, (program, types) in programs.items():
            yield make_case(for_loop, program, *types, note=note, draws=(_TRIPS,), tolerance=_FEW)
        yield make_case(for_loop, _horner, i64, scalar, note="no_iterations", draws=(_always(-3),))
        yield make_case(while_loop, _newton, scalar, note="newton", draws=(draw_between(1.0, 3.0),), tolerance=_FEW)
        yield make_case(while_loop, _doubling, scalar, note="limited", draws=(draw_between(1.0, 3.0),))
        yield make_case(while_loop, _stays, scalar, note="no_iterations")
    yield make_case(for_loop, _struct_carried, i64, MATERIAL, note="struct", draws=(_TRIPS,), tolerance=_FEW)
    yield make_case(while_loop, _collatz, i64, note="collatz", draws=(draw_below(30),))


def _horner(n: Node, x: Node) -> Node:
    return make_for_loop(n, lambda i, a: a * x * 0.5 + 1.0, x)[0]


def _counting_down(n: Node, x: Node) -> Node:
    return make_for_loop(n, lambda i, a: a * 0.5 + cast(i, type=x.type) * x, x, reverse=True)[0]


def _nested(n: Node, x: Node) -> Node:
    def outer(i: Node, a: Node) -> Node:
        return make_for_loop(i, lambda j, b: b * 0.25 + sin(a) * x, a)[0]

    return make_for_loop(n, outer, x)[0]


def _vector_carried(n: Node, v: Node) -> Node:
    def step(i: Node, a: Node) -> Node:
        return set_(a * 0.5 + normalize(v), dot(a, v) * 0.1, index=1)

    return make_for_loop(n, step, v)[0]


def _array_carried(n: Node, a: Node) -> Node:
    return make_for_loop(n, lambda i, b: set_at(b, i % 3, get_at(b, (i + 1) % 3) * 0.5 + get_at(b, i % 3)), a)[0]


def _struct_carried(n: Node, m: Node) -> Node:
    def step(i: Node, a: Node) -> Node:
        rough = get(a, index=2) * 0.5 + cast(get(a, index=1), type=f64)
        return set_(set_(a, rough, index=2), get(a, index=1) + 1, index=1)

    return make_for_loop(n, step, m)[0]


def _looking_up(n: Node, table: Node) -> Node:
    first = lookup(table, n - n)
    return make_for_loop(n, lambda i, a: a * 0.5 + lookup(table, i), first)[0]


def _newton(x: Node) -> Node:
    root, _ = make_while_loop(
        lambda r, last: abs(r - last) > 1e-3, lambda i, r, last: ((r + x / r) * 0.5, r), x, x + 1.0
    )
    return root


def _doubling(x: Node) -> Node:
    return make_while_loop(lambda a: a < 100.0, lambda i, a: a + a, x, limit=20)[0]


def _stays(x: Node) -> Node:
    return make_while_loop(lambda a: a > 1000.0, lambda i, a: a * 2.0, x)[0]


def _collatz(n: Node) -> tuple[Node, ...]:
    def step(i: Node, a: Node, steps: Node) -> tuple[Node, Node]:
        return select((a % 2) * 1 > 0, a * 3 + 1, a // 2), steps + 1

    return make_while_loop(lambda a, steps: a > 1, step, n, n - n, limit=1000)


# --- maps ------------------------------------------------------------------------------------------------------------


def map_cases() -> Iterator[Case]:
    for scalar in (f32, f64):
        yield from _float_map_cases(scalar)
    for scalar in SCALARS.values():
        if scalar.kind in ("signed", "unsigned"):
            add = trace(lambda a, b: a * b + a, scalar, scalar, name="add")
            yield make_case(map_, lambda x, y, f=add: make_map(f, x, y), Tensor(scalar, (37,)), scalar, note="integer")


def _float_map_cases(scalar: Scalar) -> Iterator[Case]:
    point, table = Vector(scalar, 3), Tensor(scalar, (5,))
    near = trace(lambda p, c: (dot(p - c, p - c), sqrt(dot(p, p))), point, point, name="near")
    for domain in ((37,), (2, 5), (1,), (0,), (0, 3)):
        yield make_case(
            map_,
            lambda x, c: make_map(near, x, c),
            Tensor(scalar, (*domain, 3)),
            point,
            note="shared",
            tolerance=_FEW,
        )
    wide = trace(lambda x, y: x * y, scalar, scalar, name="wide")
    yield make_case(
        map_,
        lambda x, y: make_map(wide, x, y, summed=(True,)),
        Tensor(scalar, (37,)),
        Tensor(scalar, (37,)),
        note="summed",
        tolerance=Tolerance(16.0, lambda x, y: np.sum(np.abs(x * y))),
    )
    reads = trace(lambda i, t: lookup(t, i) * lookup(t, (i + 1) % 5), i64, table, name="reads")
    yield make_case(
        map_, lambda i, t: make_map(reads, i, t), Tensor(i64, (37,)), table, note="lookup", draws=(draw_below(5),)
    )
    diverging = trace(_diverging, i64, scalar, name="diverging")
    yield make_case(
        map_,
        lambda n, x: make_map(diverging, n, x),
        Tensor(i64, (37,)),
        Tensor(scalar, (37,)),
        note="diverging",
        draws=(draw_below(7), draw_any),
        tolerance=_FEW,
    )
    pair = Tuple((scalar, Vector(scalar, 2)))
    swap = trace(lambda p: make_tuple(get(get(p, index=1), index=0), get(p, index=1) * 2.0), pair, name="swap")
    yield make_case(
        map_, lambda p: make_map(swap, p), Tuple((Tensor(scalar, (7,)), Tensor(scalar, (7, 2)))), note="tuple"
    )


def _diverging(n: Node, x: Node) -> Node:
    """Different iterations and branches at every point."""

    def step(i: Node, a: Node) -> Node:
        return make_cond(a > 0.5, lambda b: b * 0.5 - x, lambda b: sin(b) + 0.25, a)

    looped = make_for_loop(n, step, x)[0]
    halved = make_while_loop(lambda a: abs(a) > 0.3, lambda i, a: a * 0.5, looped)[0]
    return make_switch(n % 3, [lambda a: a, lambda a: a * a + x, lambda a: -a], halved)


# --- checks and traces -----------------------------------------------------------------------------------------------


def check_cases() -> Iterator[Case]:
    for scalar in (f32, f64):
        yield make_case(
            check,
            lambda x: check(sqrt(x), x > 0.0, message="x must be positive"),
            scalar,
            draws=(draw_between(0.5, 2.0),),
        )


def trace_cases() -> Iterator[Case]:
    for scalar in (f32, f64):
        yield make_case(tape_set, _remembers, i64, scalar, note="reversed", draws=(_TRIPS,), tolerance=_FEW)
        yield make_case(tape_set, _overwrites, i64, scalar, note="overwritten", draws=(_TRIPS,), tolerance=_FEW)
        yield make_case(tape_new, _reads_nothing, scalar, note="never_set")
        yield make_case(tape_get, _remembers_pairs, i64, scalar, note="pairs", draws=(_TRIPS,), tolerance=_FEW)
        yield make_case(tape_add, _adds_up, i64, scalar, note="counts", draws=(_TRIPS,), tolerance=_FEW)
        yield make_case(tape_sum, _sums_up, i64, scalar, note="both", draws=(_TRIPS,), tolerance=_FEW)
        row = Tensor(scalar, (3,))
        yield make_case(tape_stack, _stacks, row, note="rows", tolerance=_FEW)
        yield make_case(tape_unstack, _unstacks, Tensor(scalar, (4, 3)), note="rows", tolerance=_FEW)
        yield make_case(unwritten, _fills, row, note="filled", tolerance=_FEW)
        yield make_case(transfer, lambda x: transfer(x * x, device="reference") + x, row, note="amid")


def _remembers(n: Node, x: Node) -> Node:
    """Writes sines on the way up, and reads them on the way down."""

    def up(i: Node, a: Node, kept: Node) -> tuple[Node, Node]:
        return sin(a) + x, tape_set(kept, i, a)

    _, kept = make_for_loop(n, up, x, tape_new(type=Tape(x.type)))
    return make_for_loop(n, lambda i, a: a * 0.5 + tape_get(kept, i), x, reverse=True)[0]


def _overwrites(n: Node, x: Node) -> Node:
    """Only the last value that was set at an index is read, and only it has a derivative."""
    empty = tape_new(type=Tape(x.type))
    kept = make_for_loop(n, lambda i, t: tape_set(tape_set(t, i % 2, x * x), i % 2, sin(x)), empty)[0]
    kept = tape_set(tape_add(kept, n - n, x * x * x), n - n, x + tape_get(kept, n - n + 1))
    return tape_get(kept, n - n) * x + tape_get(kept, n - n + 1)


def _reads_nothing(x: Node) -> Node:
    return tape_get(tape_new(type=Tape(x.type)), constant(3, i64)) + x


def _stacks(x: Node) -> Node:
    """Three rows of four are set: the one that is not is zero."""
    empty = tape_new(type=Tape(x.type))
    kept = make_for_loop(constant(3, i64), lambda i, y, t: (sin(y) * x, tape_set(t, i, y)), x, empty)[1]
    return tape_stack(kept, size=4)


def _fills(x: Node) -> Node:
    """Each element is written before any is read."""
    memory = unwritten(type=x.type, slot=0)
    return make_for_loop(constant(3, i64), lambda i, y: assign(y, sin(lookup(x, i)), i), memory)[0]


def _unstacks(x: Node) -> Node:
    rows = tape_unstack(x)
    first = tape_get(rows, constant(0, i64))
    return make_for_loop(constant(4, i64), lambda i, y: y * tape_get(rows, i) + y, first)[0]


def _remembers_pairs(n: Node, x: Node) -> Node:
    def up(i: Node, a: Node, kept: Node) -> tuple[Node, Node]:
        return a * 0.5, tape_set(kept, i, make_tuple(a, i))

    _, kept = make_for_loop(n, up, x, tape_new(type=Tape(Tuple((x.type, i64)))))

    def down(i: Node, a: Node) -> Node:
        entry = tape_get(kept, i)
        return a + get(entry, index=0) * cast(get(entry, index=1), type=x.type)

    return make_for_loop(n, down, x)[0]


def _adds_up(n: Node, x: Node) -> Node:
    def up(i: Node, kept: Node) -> Node:
        return tape_add(tape_add(kept, i % 2, x), i, x * 0.5)

    kept = make_for_loop(n, up, tape_new(type=Tape(x.type)))[0]
    return make_for_loop(n, lambda i, a: a * 0.5 + tape_get(kept, i), x)[0]


def _sums_up(n: Node, x: Node) -> Node:
    empty = tape_new(type=Tape(x.type))
    first = make_for_loop(n, lambda i, kept: tape_set(kept, i, x), empty)[0]
    second = make_for_loop(n + 2, lambda i, kept: tape_set(kept, i, x * x), empty)[0]
    both = tape_sum(first, second)
    return make_for_loop(n + 3, lambda i, a: a * 0.5 + tape_get(both, i), x)[0]


# --- programs that fail ----------------------------------------------------------------------------------------------


def failing_cases() -> Iterator[tuple[Case, tuple[Any, ...], str]]:
    """A case, arguments at which it must raise `KernelCheckError`, and what the message says."""
    integers, floats = Tensor(i32, (3,)), Tensor(f32, (3,))
    ramp, counts = np.arange(3, dtype=np.float32), np.arange(3, dtype=np.int32)
    yield make_case(Op.named("floor_div"), lambda a, b: a // b, integers, integers), (counts, counts), "by zero"
    yield make_case(Op.named("mod"), lambda a, b: a % b, i64, i64), (3, 0), "division by zero"
    yield make_case(cast, lambda x: cast(x, type=i32), floats), (np.array([1.0, np.nan, 2.0], np.float32),), "i32"
    yield make_case(lookup, lookup, floats, integers), (ramp, counts + 1), "out of range"
    yield make_case(lookup, lookup, floats, i64), (ramp, -1), "out of range"
    yield make_case(scatter_add, scatter_add, floats, f32, i64), (ramp, 1.0, 3), "out of range"
    yield make_case(get_at, get_at, Vector(f32, 3), i32), (ramp, 3), "out of range"
    yield make_case(set_at, set_at, Array(f32, 2), i64, f32), ((1.0, 2.0), -1, 0.0), "out of range"
    yield make_case(Op.named("switch"), _switches, i32, f32), (3, 1.0), "3 branches"
    yield make_case(Op.named("while_loop"), _doubling, f32), (1e-30,), "limit of 20"
    yield make_case(check, lambda x: check(x, x > 0.0, message="x must be positive"), f32), (-1.0,), "must be positive"
    root = trace(lambda x: check(sqrt(x), x >= 0.0, message="no root"), f32, name="root")
    yield make_case(map_, lambda x: make_map(root, x), floats), (ramp - 1,), "no root"
