"""Batching: for every op, the batched function and its derivatives agree with the function applied to each member."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from livegrad.diagnostics import KernelCheckError, UsageError
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.op import Op
from livegrad.ir.types import Array, Struct, Tape, Tensor, Tuple, Type, components, f64, i64
from livegrad.ir.verify import verify_function
from livegrad.ops.aggregate import get
from livegrad.ops.control import check, make_cond, make_for_loop, make_switch, make_while_loop
from livegrad.ops.conversion import cast
from livegrad.ops.differential import bwd_diff
from livegrad.ops.indexing import lookup
from livegrad.ops.maps import make_map
from livegrad.ops.movement import broadcast
from livegrad.ops.reduction import reduce
from livegrad.ops.tape import tape_get, tape_new, tape_set, tape_stack, tape_unstack
from livegrad.ops.transcendental import cos, sin, sqrt
from livegrad.passes.batch import RULES, batch
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import run_function
from livegrad.runtime.reference import evaluate
from tests.conformance.case import Case, grouped
from tests.conformance.cases import CASES, FAILURES
from tests.conformance.test_derivatives import can_be_differenced
from tests.conformance.tolerance import differences
from tests.conformance.values import element_of, plain_shape
from tests.differentiate.checks import assert_near, derived, flat, random_differentials, results_of

SIZE = 3


def sampled(cases: Sequence[Case], step: int) -> list[Case]:
    """Every n-th case of each op, and at least the first."""
    by_op: dict[str, list[Case]] = {}
    for case in cases:
        by_op.setdefault(case.op.name, []).append(case)
    return [case for own in by_op.values() for case in own[::step]]


def stack(values: Sequence[Any], type: Type) -> Any:
    """Several values of one type as a batch."""
    if isinstance(type, Struct | Tuple | Array):
        return tuple(stack([value[index] for value in values], member) for index, member in enumerate(components(type)))
    return np.stack([np.asarray(value, element_of(type).dtype) for value in values])


def member_of(value: Any, index: int) -> Any:
    return tuple(member_of(part, index) for part in value) if isinstance(value, tuple) else value[index]


def drawn(case: Case, size: int = SIZE) -> list[tuple[Any, ...]]:
    rng = case.generator()
    return [case.draw(rng) for _ in range(size)]


def batched_arguments(function: Function, members: Sequence[tuple[Any, ...]], axes: Sequence[int | None]) -> list[Any]:
    columns = zip(*members, strict=True)
    return [
        column[0] if axis is None else stack(column, type)
        for column, type, axis in zip(columns, function.parameter_types, axes, strict=True)
    ]


def with_shared(members: Sequence[tuple[Any, ...]], axes: Sequence[int | None]) -> list[tuple[Any, ...]]:
    return [
        tuple(first if axis is None else own for first, own, axis in zip(members[0], member, axes, strict=True))
        for member in members
    ]


def patterns(number: int) -> list[tuple[int | None, ...]]:
    """Everything batched; and each parameter alone."""
    if number == 0:
        return []
    alone = [tuple(0 if place == index else None for place in range(number)) for index in range(number)]
    return list(dict.fromkeys([(0,) * number, *alone]))


def complaints(case: Case, axes: tuple[int | None, ...], run: Any = evaluate) -> list[str]:
    function = case.function
    members = with_shared(drawn(case), axes)
    made = batch(function, axes, size=SIZE)
    verify_function(made)
    found = run(made, *batched_arguments(function, members, axes))
    wrong: list[str] = []
    for index, arguments in enumerate(members):
        expected = evaluate(function, *arguments)
        lines = differences(member_of(found, index), expected, function.result_type, case.tolerance, arguments)
        wrong += [f"{case.name} {axes} member {index}: {line}" for line in lines]
    return wrong


@grouped(sampled(CASES, 6))
def test_a_batch_gives_what_its_members_give(cases: list[Case]) -> None:
    wrong: list[str] = []
    for case in cases:
        for axes in patterns(len(case.function.parameters)):
            wrong += complaints(case, axes)
    assert not wrong, "\n".join(wrong)


# What takes no tensors is compiled as a map, which has tests enough elsewhere.
NATIVE = [case for case in CASES if "f64[" in case.name or "i64[" in case.name]


@grouped(sampled(NATIVE, 12))
def test_native_code_gives_the_same_batch(cases: list[Case]) -> None:
    wrong: list[str] = []
    for case in cases:
        for axes in patterns(len(case.function.parameters))[:1]:
            wrong += complaints(case, axes, run_function)
    assert not wrong, "\n".join(wrong)


@grouped(sampled(CASES, 25))
def test_a_batch_of_batches_gives_what_its_members_give(cases: list[Case]) -> None:
    """Batches the output of `batch` again, which contains maps of scalar functions."""
    wrong: list[str] = []
    for case in cases:
        number = len(case.function.parameters)
        for inner in patterns(number):
            function = batch(case.function, inner, size=2)
            rng = case.generator()
            members = [
                tuple(batched_arguments(case.function, [case.draw(rng) for _ in range(2)], inner)) for _ in range(SIZE)
            ]
            found = evaluate(batch(function, size=SIZE), *batched_arguments(function, members, (0,) * number))
            for index, arguments in enumerate(members):
                expected = evaluate(function, *arguments)
                lines = differences(
                    member_of(found, index), expected, function.result_type, case.tolerance, case.arguments()
                )
                wrong += [f"{case.name} {inner} member {index}: {line}" for line in lines]
    assert not wrong, "\n".join(wrong)


SMOOTH = [case for case in CASES if can_be_differenced(case)]


@pytest.mark.parametrize("case", sampled(SMOOTH, 12), ids=str)
def test_batches_and_derivatives_can_be_taken_in_any_order(case: Case) -> None:
    function, rng = case.function, case.generator()
    members = drawn(case)
    together = batch(function, size=SIZE)
    stacked = batched_arguments(function, members, (0,) * len(function.parameters))
    tangents = random_differentials(together.parameter_types, rng)
    cotangents = random_differentials(together.result_types, rng)
    for mode, given in ((jvp, tangents), (vjp, cotangents)):
        alone, first = mode(function), mode(together)
        last = batch(alone, size=SIZE)
        assert first.parameter_types == last.parameter_types
        assert first.result_types == last.result_types
        one, other = (results_of(f, evaluate(f, *stacked, *given)) for f in (first, last))
        each = [
            results_of(alone, evaluate(alone, *arguments, *[member_of(value, index) for value in given]))
            for index, arguments in enumerate(members)
        ]
        expected = tuple(
            stack(column, type) for column, type in zip(zip(*each, strict=True), alone.result_types, strict=True)
        )
        assert_near(one, expected, 1e-12)
        assert_near(other, expected, 1e-12)


@pytest.mark.parametrize("case", sampled([case for case in SMOOTH if len(case.function.parameters) > 1], 8), ids=str)
def test_the_gradient_of_a_shared_argument_is_the_sum_of_its_members(case: Case) -> None:
    function, rng = case.function, case.generator()
    axes = (None, *[0] * (len(function.parameters) - 1))
    members = with_shared(drawn(case), axes)
    together = vjp(batch(function, axes, size=SIZE))
    cotangents = random_differentials(batch(function, axes, size=SIZE).result_types, rng)
    found = results_of(together, evaluate(together, *batched_arguments(function, members, axes), *cotangents))
    alone = vjp(function)
    each = [
        results_of(alone, evaluate(alone, *arguments, *[member_of(value, index) for value in cotangents]))
        for index, arguments in enumerate(members)
    ]
    total = np.sum([flat(gradient[0]) for gradient in each], axis=0)
    assert_near(np.asarray(flat(found[0])), np.asarray(total), 1e-12)


# --- programs over tensors, whose members decide each for itself -----------------------------------------------------

ROW = Tensor(f64, (4,))


def total(x: Node) -> Node:
    return lookup(reduce(x, kind="sum", axes=(0,)))


def scaled(x: Node, factor: Node) -> Node:
    return x * broadcast(factor, shape=(4,), axes=())


def branch(x: Node, y: Node) -> Node:
    return make_cond(total(x) > 0.0, lambda a: sqrt(a) * y, lambda a: a * a - y, x)


def choice(x: Node, n: Node) -> Node:
    return make_switch(n % 3, [lambda a: a, lambda a: a * a, lambda a: sin(a) + x], x * 2.0)


def counted(x: Node, n: Node) -> Node:
    return make_for_loop(n % 4, lambda i, a: sin(a) * x + scaled(a, cast(i, type=f64)), x)[0]


def backwards(x: Node, n: Node) -> Node:
    return make_for_loop(n % 4, lambda i, a: sin(a) * x + scaled(a, cast(i, type=f64)), x, reverse=True)[0]


def halving(x: Node, y: Node) -> tuple[Node, ...]:
    return make_while_loop(
        lambda a, n: total(a * a) > 0.3, lambda i, a, n: (a * 0.7 * cos(y), n + i), x, constant(0, i64)
    )


def nested(x: Node, n: Node) -> Node:
    def step(i: Node, a: Node) -> Node:
        return make_cond(
            total(a) > 1.0, lambda b: make_for_loop(n % 3, lambda j, c: sin(c) + x, b)[0], lambda b: b * x, a
        )

    return make_for_loop(n % 2 + 1, step, x)[0]


def looking_up(x: Node, n: Node) -> Node:
    """Scalar loops that read a tensor, which differs between members."""
    return make_for_loop(n % 4, lambda i, a: a * 0.5 + lookup(x, i), lookup(x, n % 4))[0]


def texture(x: Node, places: Node) -> Node:
    """A map that reads a tensor by index; its gradient adds at indices."""
    read = trace(
        lambda i, t: make_cond(i > 1, lambda k: lookup(t, k) * lookup(t, k - 1), lambda k: lookup(t, k), i), i64, ROW
    )
    return make_map(read, places, x)


def shared_scale(x: Node, y: Node) -> tuple[Node, Node]:
    """A map with an argument that all points share, and a result that is summed."""
    scale = trace(lambda a, s: (a * s, sin(a) * s), f64, f64)
    value = make_map(scale, x, total(y), summed=(False, True))
    return get(value, index=0), get(value, index=1)


PROGRAMS: dict[str, tuple[Any, tuple[Type, ...]]] = {
    "branch": (branch, (ROW, ROW)),
    "choice": (choice, (ROW, i64)),
    "counted": (counted, (ROW, i64)),
    "backwards": (backwards, (ROW, i64)),
    "halving": (halving, (ROW, ROW)),
    "nested": (nested, (ROW, i64)),
    "looking_up": (looking_up, (ROW, i64)),
    "texture": (texture, (ROW, Tensor(i64, (5,)))),
    "shared_scale": (shared_scale, (ROW, ROW)),
}


def program_members(types: Sequence[Type], size: int = 5) -> list[tuple[Any, ...]]:
    rng = np.random.default_rng(7)
    signs = [1.0, -1.0, 1.0, -1.0, 1.0][:size]

    def draw(type: Type, sign: float) -> Any:
        if type is i64:
            return rng.integers(0, 12)
        shape = plain_shape(type)
        return rng.integers(0, 4, shape) if type is not ROW else sign * rng.uniform(0.3, 1.2, shape)

    return [tuple(draw(type, sign) for type in types) for sign in signs]


@pytest.mark.parametrize("run", [evaluate, run_function], ids=["reference", "cpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_members_that_decide_for_themselves_give_what_each_gives_alone(name: str, run: Any) -> None:
    callable, types = PROGRAMS[name]
    function = trace(callable, *types)
    for axes in patterns(len(types)):
        members = with_shared(program_members(types), axes)
        made = batch(function, axes, size=5)
        verify_function(made)
        found = run(made, *batched_arguments(function, members, axes))
        expected = stack([evaluate(function, *arguments) for arguments in members], function.result_type)
        assert_near((found,), (expected,), 1e-13)


@pytest.mark.parametrize("order", ["derivative first", "batch first"])
@pytest.mark.parametrize("mode", [jvp, vjp], ids=["jvp", "vjp"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_members_that_decide_for_themselves_have_their_own_derivatives(name: str, mode: Any, order: str) -> None:
    callable, types = PROGRAMS[name]
    function = trace(callable, *types)
    members = program_members(types)
    together = batch(function, size=5)
    rng = np.random.default_rng(2)
    given = random_differentials(together.parameter_types if mode is jvp else together.result_types, rng)
    made = mode(together) if order == "batch first" else batch(mode(function), size=5)
    verify_function(made)
    stacked = batched_arguments(function, members, (0,) * len(types))
    found = results_of(made, evaluate(made, *stacked, *given))
    assert_each_is_alone(mode(function), members, given, found)


def assert_each_is_alone(alone: Function, members: Sequence[tuple[Any, ...]], given: Sequence[Any], found: Any) -> None:
    for index, arguments in enumerate(members):
        expected = evaluate(alone, *arguments, *[member_of(value, index) for value in given])
        assert_near(tuple(member_of(part, index) for part in found), results_of(alone, expected), 1e-12)


@pytest.mark.parametrize("mode", [jvp, vjp], ids=["jvp", "vjp"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_members_that_decide_alike_have_their_own_derivatives(name: str, mode: Any) -> None:
    """Only the first argument is batched, so loops and branches on the second are uniform."""
    callable, types = PROGRAMS[name]
    function = trace(callable, *types)
    members = with_shared(program_members(types), (0, None))
    derivative = mode(function)
    rng = np.random.default_rng(2)
    own = [random_differentials(derivative.parameter_types[2:], rng) for _ in members]
    given = [
        stack(column, type) for column, type in zip(zip(*own, strict=True), derivative.parameter_types[2:], strict=True)
    ]
    made = batch(derivative, (0, None, *[0] * len(given)), size=5)
    stacked = batched_arguments(function, members, (0, None))
    assert_each_is_alone(derivative, members, given, results_of(made, evaluate(made, *stacked, *given)))


@pytest.mark.parametrize("modes", ["f", "r", "fr", "rf", "rr"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_only_differentials_are_batched_as_for_a_jacobian(name: str, modes: str) -> None:
    """The arguments are shared, and so are all values computed from them alone, including tapes of loops."""
    callable, types = PROGRAMS[name]
    function = trace(callable, *types)
    rng = np.random.default_rng(4)
    inner, arguments = derived(function, program_members(types)[0], modes[:-1], rng)
    outer = {"f": jvp, "r": vjp}[modes[-1]](inner)
    own = outer.parameter_types[len(arguments) :]
    given = [random_differentials(own, rng) for _ in range(SIZE)]
    stacked = [stack(column, type) for column, type in zip(zip(*given, strict=True), own, strict=True)]
    made = batch(outer, (*[None] * len(arguments), *[0] * len(own)), size=SIZE)
    found = results_of(made, evaluate(made, *arguments, *stacked))
    for index, differentials in enumerate(given):
        expected = results_of(outer, evaluate(outer, *arguments, *differentials))
        assert_near(tuple(member_of(part, index) for part in found), expected, 1e-12)


def test_a_side_that_no_member_takes_does_not_run() -> None:
    def guarded(x: Node) -> Node:
        return make_cond(
            total(x) > 0.0, lambda a: check(sqrt(a), total(a) > 0.0, message="a root of nothing"), lambda a: a * 2.0, x
        )

    made = batch(trace(guarded, ROW), size=2)
    rows = np.array([[-1.0, -2.0, -3.0, -4.0], [1.0, 2.0, 3.0, 4.0]])
    for run in (evaluate, run_function):
        np.testing.assert_allclose(run(made, rows), [rows[0] * 2.0, np.sqrt(rows[1])], rtol=1e-15)
        np.testing.assert_array_equal(run(made, -np.abs(rows)), -np.abs(rows) * 2.0)


def test_a_side_that_a_member_does_not_take_leaves_no_nan_in_its_gradient() -> None:
    made = vjp(batch(trace(branch, ROW, ROW), size=2))
    rows = np.array([[-1.0, -2.0, -3.0, -4.0], [1.0, 2.0, 3.0, 4.0]])
    by_x, by_y = evaluate(made, rows, rows, np.ones((2, 4)))
    np.testing.assert_allclose(by_x, [rows[0] * 2.0, 0.5 / np.sqrt(rows[1]) * rows[1]], rtol=1e-14)
    np.testing.assert_allclose(by_y, [-np.ones(4), np.sqrt(rows[1])], rtol=1e-14)


@pytest.mark.parametrize(("case", "arguments", "message"), FAILURES, ids=lambda value: getattr(value, "name", ""))
def test_a_check_that_fails_for_one_member_raises(case: Case, arguments: tuple[Any, ...], message: str) -> None:
    made = batch(case.function, size=2)
    columns = batched_arguments(case.function, [arguments, arguments], (0,) * len(arguments))
    with np.errstate(all="ignore"), pytest.raises(KernelCheckError, match=message):
        evaluate(made, *columns)


def test_a_switch_on_a_branch_that_is_not_there_raises() -> None:
    function = trace(lambda x, n: make_switch(n, [lambda a: a, lambda a: a * 2.0], x), ROW, i64)
    with pytest.raises(KernelCheckError, match="there are 2 branches"):
        evaluate(batch(function, size=2), np.ones((2, 4)), np.array([0, 2]))


def test_the_batch_may_be_any_axis_of_an_argument() -> None:
    function = trace(lambda x, y: scaled(x, y) + 1.0, ROW, f64)
    rows, factors = np.arange(12.0).reshape(4, 3), np.array([1.0, 2.0, 3.0])
    for axis in (1, -1):
        made = batch(function, (axis, 0), size=3)
        assert made.parameter_types[0] is Tensor(f64, (4, 3))
        np.testing.assert_array_equal(evaluate(made, rows, factors), rows.T * factors[:, None] + 1.0)


def test_results_that_no_member_changes_are_still_a_batch() -> None:
    function = trace(lambda x, y: (x * y, y), f64, f64)
    made = batch(function, (0, None), size=3)
    assert made.result_types == (Tensor(f64, (3,)), Tensor(f64, (3,)))


def test_a_batch_of_symbolic_size_is_compiled_once() -> None:
    made = batch(trace(branch, ROW, ROW), size=Dimension.symbol("n"))
    rng = np.random.default_rng(0)
    for size in (1, 3, 6):
        rows = rng.uniform(-1.0, 1.0, (size, 4))
        expected = [evaluate(trace(branch, ROW, ROW), row, row) for row in rows]
        np.testing.assert_allclose(run_function(made, rows, rows), expected, rtol=1e-14)


def test_every_op_of_the_table_can_be_batched() -> None:
    """By a rule, elementwise, or as a map if it takes no tensors; the listed ops are exceptions or leaves."""
    without = {name for name, op in Op.table.items() if not op.elementwise and op not in RULES}
    aggregates = {"make", "get", "set", "splat", "get_at", "set_at"}
    geometry = {"dot", "cross", "length", "normalize", "determinant", "inverse"}
    matrices = {"matrix_vector", "matrix_multiply", "matrix_transpose"}
    leaves = {"parameter", "input", "iota", "tape_new", "unwritten"}
    written_out_before = {"fwd_diff", "bwd_diff", "custom_linear", "recompute_linear"}
    assert without == aggregates | geometry | matrices | leaves | written_out_before


def remembered_rows(x: Node, n: Node) -> Node:
    """A loop over a tensor's rows, whose values are stacked again."""
    rows = tape_unstack(x)
    empty = tape_new(type=Tape(ROW))

    def step(i: Node, a: Node, kept: Node) -> tuple[Node, Node]:
        moved = sin(a) + tape_get(rows, i)
        return moved, tape_set(kept, i, moved)

    _, kept = make_for_loop(n, step, broadcast(constant(0.5, f64), shape=(4,), axes=()), empty)
    return tape_stack(kept, size=3)


def test_traces_of_rows_are_stacked_by_member() -> None:
    function = trace(remembered_rows, Tensor(f64, (3, 4)), i64)
    x = np.random.default_rng(0).uniform(-1.0, 1.0, (2, 3, 4))
    for axes, n in (((0, None), 3), ((0, 0), np.array([1, 3]))):
        counts = np.broadcast_to(n, 2)
        expected = [evaluate(function, own, count) for own, count in zip(x, counts, strict=True)]
        np.testing.assert_allclose(evaluate(batch(function, axes, size=2), x, n), expected, rtol=1e-14)
    slopes = np.ones((2, 3, 4))
    alone, together = vjp(function), batch(vjp(function), (0, None, 0), size=2)
    expected = [evaluate(alone, own, 3, slope)[0] for own, slope in zip(x, slopes, strict=True)]
    np.testing.assert_allclose(evaluate(together, x, 3, slopes)[0], expected, rtol=1e-14)
    np.testing.assert_allclose(evaluate(vjp(batch(function, (0, None), size=2)), x, 3, slopes)[0], expected, rtol=1e-14)


def test_an_op_without_a_rule_is_named() -> None:
    opaque = Op("opaque", type_of=lambda type: type)
    try:
        function = trace(lambda x: opaque(x), ROW)
        with pytest.raises(UsageError, match=r"`opaque` has no rule for batches .*test_batch.py"):
            batch(function, size=2)
    finally:
        del Op.table["opaque"]


def test_derivatives_that_a_function_asks_for_are_batched() -> None:
    square = trace(lambda x: sin(x) * x, ROW)
    function = trace(lambda x: bwd_diff(x, x, function=square), ROW)
    rows = np.arange(8.0).reshape(2, 4)
    found = evaluate(batch(function, size=2), rows)
    np.testing.assert_allclose(found, [evaluate(function, row) for row in rows], rtol=1e-14)


def test_arguments_of_a_batch_are_checked() -> None:
    function = trace(lambda x, y: x * y, f64, f64)
    with pytest.raises(UsageError, match="an axis, or None, for each"):
        batch(function, (0,), size=2)
    with pytest.raises(UsageError, match="no argument of"):
        batch(function, None, size=2)
    with pytest.raises(UsageError, match="batch axis 1 is out of range"):
        batch(function, (1, None), size=2)
