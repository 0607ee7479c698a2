"""A derivative that does not exist is an error that names the op, the user's function and line, and a way out."""

from collections.abc import Iterator

import pytest

from livegrad.diagnostics import DifferentiationError
from livegrad.ir.function import trace
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor, Tuple, f64, i64
from livegrad.ops.control import make_cond, make_for_loop
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import detach
from livegrad.ops.maps import make_map
from livegrad.ops.rules import same
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp

HELP = "it has no derivative rule; wrap the value in `detach(...)` if it is meant to be constant"


@pytest.fixture
def opaque() -> Iterator[Op]:
    """An op without a rule, in the table for one test only."""
    op = Op("opaque", type_of=same(1, ("float", "signed")), evaluate=lambda x: x)
    yield op
    del Op.table[op.name]


@pytest.fixture
def crooked() -> Iterator[Op]:
    """An op whose forward rule is a node that cannot be transposed."""
    op = Op("crooked", type_of=same(1, ("float",)), evaluate=lambda x: x, jvp=lambda y, dx: y.op(dx))
    yield op
    del Op.table[op.name]


def place_of(line: int, column: int) -> str:
    return f"test_missing_rules.py:{line}:{column}"


def test_the_error_names_the_op_the_function_and_the_line(opaque: Op) -> None:
    def shade(x: Node) -> Node:
        return x * opaque(x) + 1.0

    function = trace(shade, f64)
    expected = f"cannot differentiate `opaque` in `shade` ({place_of(shade.__code__.co_firstlineno + 1, 20)}); {HELP}"
    for derive in (jvp, vjp):
        with pytest.raises(DifferentiationError) as caught:
            derive(function)
        assert str(caught.value) == expected


@pytest.mark.parametrize("derive", [jvp, vjp])
def test_inside_a_loop_the_error_names_the_loop_body(opaque: Op, derive: object) -> None:
    def step(i: Node, a: Node) -> Node:
        return opaque(a)

    function = trace(lambda n, x: make_for_loop(n, step, x)[0], i64, f64, name="outer")
    expected = f"cannot differentiate `opaque` in `step` ({place_of(step.__code__.co_firstlineno + 1, 16)}); {HELP}"
    with pytest.raises(DifferentiationError) as caught:
        derive(function)  # type: ignore[operator]
    assert str(caught.value) == expected


@pytest.mark.parametrize("derive", [jvp, vjp])
def test_inside_branches_and_maps_the_error_is_raised_too(opaque: Op, derive: object) -> None:
    inner = trace(lambda x: make_cond(x > 0.0, lambda a: opaque(a), lambda a: a, x), f64, name="inner")
    function = trace(lambda x: make_map(inner, x), Tensor(f64, (3,)))
    with pytest.raises(DifferentiationError, match="cannot differentiate `opaque`"):
        derive(function)  # type: ignore[operator]


def test_a_value_without_a_tangent_needs_no_rule(opaque: Op) -> None:
    function = trace(lambda x, n: x * opaque(detach(x)) + cast(opaque(n), type=f64) * x, f64, i64)
    assert "opaque" in Op.table
    assert jvp(function).result_types == (f64, f64)
    assert vjp(function).result_types == (f64, Tuple(()))


def test_a_linear_op_without_a_transpose_is_an_error_in_reverse_mode_only(crooked: Op) -> None:
    def bend(x: Node) -> Node:
        return crooked(x)

    function = trace(bend, f64)
    assert jvp(function).result_types == (f64, f64)
    expected = f"cannot differentiate `crooked` in `bend` ({place_of(bend.__code__.co_firstlineno + 1, 16)}); {HELP}"
    with pytest.raises(DifferentiationError) as caught:
        vjp(function)
    assert str(caught.value) == expected
