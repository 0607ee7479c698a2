"""Simplification leaves fewer nodes, and the same bits for all values."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from livegrad.diagnostics import KernelCheckError, TextOrigin
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant, parameter
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.op import Op
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Scalar, Tape, Tensor, Type, Vector, bool_, f16, f32, f64, i8, i32, i64, u8
from livegrad.ir.walk import toposort
from livegrad.ops.aggregate import get, get_at, make_tuple, splat
from livegrad.ops.control import check, make_cond, make_for_loop, make_switch, make_while_loop
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import floor_div, neg, select
from livegrad.ops.movement import broadcast, slice_
from livegrad.ops.rules import filled
from livegrad.ops.tape import tape_get, tape_new, tape_set
from livegrad.ops.transcendental import pow
from livegrad.passes.bind_sizes import bind_sizes
from livegrad.passes.simplify import Simplify
from livegrad.runtime.reference import evaluate
from tests.passes.programs import same_bits

SPECIAL: dict[Scalar, tuple[Any, ...]] = {
    f16: (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 65504.0, 6e-8, float("inf"), float("-inf"), float("nan")),
    f32: (0.0, -0.0, 1.0, -1.0, 4.0, 2.0**-126, 2.0**127, 1e-45, 0.1, float("inf"), float("-inf"), float("nan")),
    f64: (0.0, -0.0, 1.0, -1.0, 0.5, 2.0**-1022, 2.0**1023, 5e-324, 0.1, float("inf"), float("-inf"), float("nan")),
    i8: (0, 1, -1, 2, 7, 127, -128),
    u8: (0, 1, 2, 128, 255),
    bool_: (False, True),
}
ELEMENTWISE = [op for op in Op.table.values() if op.elementwise]


def simplified(function: Function) -> Function:
    return Simplify()(Module((function,))).functions[0]


def simplify(callable: Callable[..., Any], *types: Type) -> Function:
    return simplified(trace(callable, *types))


def op_names(function: Function) -> list[str]:
    leaves = ("parameter", "constant")
    return [node.op.name for node in toposort(function.results) if node.op.name not in leaves]


def accepts(op: Op, *types: Type) -> bool:
    try:
        op.type_of(*types)
    except Exception:
        return False
    return True


def value_or_failure(function: Function, *arguments: Any) -> Any:
    try:
        return evaluate(function, *arguments)
    except KernelCheckError as error:
        return str(error)


def binary_ops(scalar: Scalar) -> list[Op]:
    return [op for op in ELEMENTWISE if accepts(op, scalar, scalar)]


def assert_same(before: Function, *values: Any) -> None:
    """The function of one parameter (or none) gives the same bits at each value, or fails alike."""
    after = simplified(before)
    for arguments in [(value,) for value in values] if before.parameters else [()]:
        first, second = (value_or_failure(function, *arguments) for function in (before, after))
        assert same_bits(first, second), f"{before} at {arguments}: {first} became {second}"


def assert_all_same(parameters: tuple[Node, ...], results: list[Node], *values: Any) -> Function:
    """As `assert_same`, for many results; those that cannot fail share one function, which is given back simplified."""
    alone = [node for node in results if any(inner.op.checked for inner in toposort([node]))]
    for node in alone:
        assert_same(Function(node.op.name, parameters, (node,)), *values)
    together = tuple(node for node in results if node not in alone)
    before = Function("together", parameters, together)
    after = simplified(before)
    for arguments in [(value,) for value in values] if parameters else [()]:
        pairs = zip(together, evaluate(before, *arguments), evaluate(after, *arguments), strict=True)
        for node, first, second in pairs:
            assert same_bits(first, second), f"{node} at {arguments}: {first} became {second}"
    return after


@pytest.mark.parametrize("scalar", SPECIAL, ids=str)
def test_an_op_with_a_special_constant_keeps_its_bits(scalar: Scalar) -> None:
    x = parameter(0, scalar)
    opposite = ~x if scalar is bool_ else -x
    constants = [constant(value, scalar) for value in SPECIAL[scalar]]
    pairs = [*((x, c) for c in constants), *((c, x) for c in constants), (x, opposite), (opposite, x), (x, x)]
    results = [op(*operands) for op, operands in itertools.product(binary_ops(scalar), pairs)]
    assert_all_same((x,), results, *SPECIAL[scalar])


@pytest.mark.parametrize("scalar", SPECIAL, ids=str)
def test_an_op_of_constants_folds_to_what_the_reference_computes(scalar: Scalar) -> None:
    constants = [constant(value, scalar) for value in SPECIAL[scalar]]
    results = [op(*operands) for op, *operands in itertools.product(binary_ops(scalar), constants, constants)]
    assert op_names(assert_all_same((), results)) == []


@pytest.mark.parametrize("scalar", SPECIAL, ids=str)
def test_an_op_after_an_op_keeps_its_bits(scalar: Scalar) -> None:
    x = parameter(0, scalar)
    unary = [op for op in ELEMENTWISE if accepts(op, scalar)]
    pairs = itertools.product(unary, unary)
    results = [outer(inner(x)) for inner, outer in pairs if accepts(outer, inner(x).type)]
    assert_all_same((x,), results, *SPECIAL[scalar])


@pytest.mark.parametrize("middle", SPECIAL, ids=str)
def test_a_cast_there_and_back_goes_only_when_nothing_is_lost(middle: Scalar) -> None:
    for scalar, values in SPECIAL.items():
        x = parameter(0, scalar)
        assert_same(Function("f", (x,), (cast(cast(x, type=middle), type=scalar),)), *values)


@pytest.mark.parametrize("type", [Tensor(f32, (3,)), Vector(f32, 3)], ids=str)
def test_identities_hold_for_what_is_filled_with_a_number(type: Type) -> None:
    assert op_names(simplify(lambda x: (x * 1.0 - 0.0) / filled(1.0, x.type), type)) == []
    assert op_names(simplify(lambda x: x + 0.0, type))[-1] == "add"


@pytest.mark.parametrize("type", [f32, Tensor(f64, (3,))], ids=str)
def test_small_powers_are_written_out(type: Type) -> None:
    for exponent, expected in ((1.0, []), (2.0, ["mul"]), (-1.0, ["div"]), (0.0, []), (3.0, ["pow"])):
        function = simplify(lambda x, e=exponent: pow(x, filled(e, x.type)), type)
        assert [name for name in op_names(function) if name != "broadcast"] == expected
    values = [0.0, -0.0, 1.5, -2.0, float("inf"), float("-inf"), float("nan")]
    for exponent in (1.0, 2.0, -1.0, 0.0):
        assert_same(trace(lambda x, e=exponent: pow(x, filled(e, x.type)), f64), *map(np.float64, values))


def test_an_op_of_tensors_filled_with_numbers_is_such_a_tensor() -> None:
    type = Tensor(f32, (2, 3))
    function = simplify(lambda x: select(filled(2.0, type) > filled(0.0, type), x, -x), type)
    assert op_names(function) == []
    function = simplify(lambda: filled(2.0, type) * filled(3.0, type))
    assert op_names(function) == ["broadcast"]
    assert_same(trace(lambda: filled(2.0, type) * filled(3.0, type)))


def test_what_is_not_exact_stays() -> None:
    assert op_names(simplify(lambda x: (x + 0.0, x * 0.0, x - x, x / 3.0), f32)) == ["add", "mul", "sub", "div"]


def test_products_in_either_order_are_one() -> None:
    function = simplify(lambda x, y: (x * y, y * x), f32, f32)
    assert function.results[0] is function.results[1]


def test_a_check_that_would_fail_is_left_to_fail() -> None:
    function = simplify(lambda: floor_div(constant(1, i32), constant(0, i32)))
    with pytest.raises(KernelCheckError, match="integer division by zero"):
        evaluate(function)


def test_a_known_index_out_of_range_is_left_to_fail() -> None:
    function = simplify(lambda v: (get_at(v, constant(1, i64)), get_at(v, constant(2, i64))), Vector(f32, 2))
    assert op_names(function) == ["get", "get_at"]


def test_a_switch_out_of_range_is_left_to_fail() -> None:
    function = simplify(lambda x: make_switch(constant(2, i64), [lambda a: a, lambda a: -a], x), f32)
    with pytest.raises(KernelCheckError, match="switch on 2"):
        evaluate(function, 1.0)


def test_a_choice_between_the_same_is_none() -> None:
    assert op_names(simplify(lambda c, x, y: select(~c, select(c, x, x), y), bool_, f32, f32)) == ["select"]


def test_known_branches_are_taken() -> None:
    function = simplify(lambda x: make_cond(constant(True, bool_), lambda a: a * 2.0, lambda a: a, x), f32)
    assert op_names(function) == ["mul"]


def test_a_value_that_the_loop_leaves_alone_is_captured() -> None:
    def f(n: Node, x: Node, y: Node) -> tuple[Node, ...]:
        return make_for_loop(n, lambda i, a, b: (a * b, b), x, y)

    function = simplify(f, i64, f32, f32)
    loop = function.results[0].operands[0]
    assert loop.attribute("carried") == 1
    assert function.results[1] is function.parameters[2]
    assert same_bits(evaluate(function, 3, 2.0, 3.0), (np.float32(54.0), np.float32(3.0)))


def test_a_chain_of_values_that_stay_is_found_in_rounds() -> None:
    def f(n: Node, x: Node) -> Node:
        def outer(i: Node, a: Node) -> Node:
            return make_for_loop(n, lambda j, b, one: (b * one, one), a, filled(1.0, f32))[0]

        return make_for_loop(n, outer, x)[0]

    function = simplify(f, i64, f32)
    assert function.results == (function.parameters[1],)


def test_a_row_that_a_loop_adds_everywhere_is_spread_inside_of_it() -> None:
    table = Tensor(f32, (5, 3))

    def looped(x: Node, row: Node, n: Node) -> Node:
        spread = broadcast(row, shape=(5, 3), axes=(1,))
        return make_for_loop(n, lambda i, a: a * 0.5 + spread, x)[0]

    def handed_on(x: Node, row: Node, n: Node) -> tuple[Node, ...]:
        spread = broadcast(row, shape=(5, 3), axes=(1,))
        return make_for_loop(n, lambda i, a: spread, x)

    types = (table, Tensor(f32, (3,)), i64)
    function = simplify(looped, *types)
    (loop,) = (node for node in toposort(function.results) if node.op.name == "for_loop")
    assert [operand.type for operand in loop.operands] == [i64, table, types[1]]
    values = np.ones((5, 3), np.float32), np.arange(3, dtype=np.float32), 4
    assert same_bits(evaluate(function, *values), evaluate(trace(looped, *types), *values))
    (kept,) = (node for node in toposort(simplify(handed_on, *types).results) if node.op.name == "for_loop")
    assert table in [operand.type for operand in kept.operands[2:]]


def test_a_while_loop_whose_values_stay_is_not_taken_to_end() -> None:
    function = simplify(lambda x: make_while_loop(lambda a: a > 0.0, lambda i, a: a, x, limit=3)[0], f32)
    assert evaluate(function, -1.0) == -1.0
    with pytest.raises(KernelCheckError, match="limit of 3"):
        evaluate(function, 1.0)


def test_a_while_loop_that_never_runs_goes() -> None:
    function = simplify(lambda x: make_while_loop(lambda a: filled(False, bool_), lambda i, a: -a, x)[0], f32)
    assert function.results == function.parameters


def test_a_single_iteration_is_its_body() -> None:
    function = simplify(lambda x: make_for_loop(constant(1, i64), lambda i, a: a * cast(i + 2, type=f32), x)[0], f32)
    assert op_names(function) == ["mul"]
    assert evaluate(function, 3.0) == 6.0


def test_what_was_written_to_a_trace_is_read_without_it() -> None:
    def f(i: Node, x: Node) -> tuple[Node, ...]:
        known = [constant(index, i64) for index in (0, 1)]
        written = tape_set(tape_set(tape_new(type=Tape(f32)), known[0], x), known[1], -x)
        return tape_get(written, known[1]), tape_get(written, known[0]), tape_get(tape_set(written, i, x), i)

    assert op_names(simplify(f, i64, f32)) == ["neg"]


def test_bodies_within_bodies_are_simplified() -> None:
    def f(n: Node, c: Node, x: Node) -> Node:
        def body(i: Node, a: Node) -> Node:
            return make_cond(c, lambda b: neg(neg(b * 1.0)) + b, lambda b: b - 0.0, a)

        return make_for_loop(n, body, x)[0]

    loop = simplify(f, i64, bool_, f32).results[0].operands[0]
    branch = loop.attribute("body").results[0]
    assert op_names(branch.attribute("then")) == ["add"]
    assert op_names(branch.attribute("otherwise")) == []


def test_the_checks_of_a_loop_stay_with_it() -> None:
    def f(n: Node, x: Node) -> Node:
        def body(i: Node, a: Node, b: Node) -> tuple[Node, Node]:
            return check(a, b > 0.0, message="b is gone") * 1.0, b

        return make_for_loop(n, body, x, x)[0]

    with pytest.raises(KernelCheckError, match="b is gone"):
        evaluate(simplify(f, i64, f32), 1, -1.0)


def test_places_in_the_program_are_kept() -> None:
    x = parameter(0, f32)
    with originating_from((TextOrigin("scene.py", 4),)):
        inner = x * 61234.75  # nobody else's: equal nodes that are alive have lines of their own
    with originating_from((TextOrigin("scene.py", 5),)):
        outer = inner - 0.0
    after = simplified(Function("f", (x,), (outer,)))
    assert [str(place) for place in after.origins_of(after.results[0])] == ["scene.py:4", "scene.py:5"]


def test_any_depth_is_simplified() -> None:
    x = parameter(0, f32)
    node = x
    for _ in range(5_000):
        node = neg(neg(node)) * 1.0 + x
    function = simplified(Function("deep", (x,), (node,)))
    assert op_names(function) == ["add"] * 5_000


def test_rounds_are_bounded() -> None:
    def f(n: Node, x: Node) -> Node:
        return make_for_loop(n, lambda i, a, b: (a * b, b), x, filled(1.0, f32))[0]

    function = trace(f, i64, f32)
    once = Simplify(max_rounds=1)(Module((function,))).functions[0]
    assert op_names(once) == ["for_loop", "get"]
    assert op_names(simplified(function)) == []
    assert Simplify(max_rounds=0)(Module((function,))).functions == (function,)


def test_the_pieces_of_a_tuple_are_put_back() -> None:
    pair = make_tuple(parameter(0, f32), parameter(1, f32)).type
    function = simplify(lambda p: make_tuple(get(p, index=0), get(p, index=1)), pair)
    assert function.results == function.parameters
    assert op_names(simplify(lambda p: make_tuple(get(p, index=1), get(p, index=0)), pair))[-1] == "make"


def test_a_spread_scalar_is_spread_once() -> None:
    def f(x: Node) -> tuple[Node, Node]:
        return broadcast(broadcast(x, shape=(3,), axes=()), shape=(2, 3), axes=(1,)), splat(
            x, type=Vector(f32, 2)
        ) * 1.0

    assert op_names(simplify(f, f32)) == ["broadcast", "splat"]


@pytest.mark.parametrize("n", [0, 1])
def test_nothing_is_taken_from_behind_the_last_element_of_a_slice(n: int) -> None:
    """Slices with a step are composed, even if the second is empty and starts after the end of the first."""

    def rest(x: Node, size: Any) -> Node:
        every_third = slice_(x, start=(1,), size=(1,), step=(3,))
        return slice_(every_third, start=(1 - n,), size=(size,), step=(1,))

    function = simplify(lambda x: rest(x, n), Tensor(f32, (3,)))
    assert function.result_types == (Tensor(f32, (n,)),)
    assert op_names(function) == ["slice"]


def test_slices_of_open_size_are_not_joined_where_they_might_begin_behind_the_end() -> None:
    size = Dimension.symbol("n")

    def rest(x: Node, y: Node) -> Node:
        every_third = slice_(x, start=(1,), size=(size,), step=(3,))
        return slice_(every_third, start=(1,), size=(size - 1,), step=(1,))

    function = simplify(rest, Tensor(f32, (size * 3,)), Tensor(f32, (size,)))
    bound = bind_sizes(function, {"n": 1})
    assert evaluate(bound, np.arange(3, dtype=np.float32), np.zeros(1, np.float32)).shape == (0,)
