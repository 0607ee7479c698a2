"""The op table is complete: every record has the rules that its readers need, without contradictions."""

import pytest

import livegrad.ops  # noqa: F401  (defines the ops)
from livegrad.ir.op import ALL_OPERANDS, Op
from livegrad.ir.types import Tensor, f64, with_scalar
from livegrad.ops.rules import zero_tangent
from livegrad.passes.differentiate import forward, linearize, transpose
from tests.conformance.case import accepts
from tests.conformance.cases import NEVER_RUN
from tests.conformance.cases_elementwise import SHAPED, arity_of, elementwise_ops

# The reference evaluates these itself, because their meaning needs the node's type or the function's domain.
EVALUATED_BY_THE_REFERENCE = {"parameter", "map", "tape_get", "tape_stack"}
# Leaves, derivatives themselves, and what stands between linearisation and transposition.
WITHOUT_DERIVATIVE = {"parameter", "fwd_diff", "bwd_diff", "custom_linear", "recompute_linear"}
OPS = list(Op.table.values())


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_op_can_be_evaluated(op: Op) -> None:
    assert op.evaluate is not None or op.name in EVALUATED_BY_THE_REFERENCE | NEVER_RUN.keys()


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_op_has_a_derivative_or_is_written_out_in_ops_that_have(op: Op) -> None:
    by_rule = op.jvp is not None or op.expand is not None
    assert by_rule or op in forward.RULES or op.name in WITHOUT_DERIVATIVE


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_an_op_that_is_linear_in_an_operand_has_a_transpose(op: Op) -> None:
    assert (op.linear_in == ()) == (op.transpose is None)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_an_op_that_is_constant_where_smooth_has_the_zero_rule(op: Op) -> None:
    if not op.differentiable:
        assert op.jvp is zero_tangent
        assert op.transpose is None


def test_both_modes_know_the_same_control_flow() -> None:
    assert forward.RULES.keys() == linearize.RULES.keys()
    # The linear part of a while loop is a for loop; calls that tell how to differentiate them have none of their own.
    not_linear = {Op.named("while_loop"), Op.named("custom_call"), Op.named("recompute_call")}
    assert linearize.RULES.keys() - transpose.RULES.keys() == not_linear


def test_all_operands_means_any_number() -> None:
    assert 10**6 in ALL_OPERANDS


@pytest.mark.parametrize("op", elementwise_ops(), ids=lambda op: op.name)
def test_an_elementwise_op_takes_every_shape_that_it_takes_scalars_for(op: Op) -> None:
    count = arity_of(op, f64)
    if count is not None:
        for type in SHAPED:
            own = with_scalar(type, f64)
            assert accepts(op, *[own] * count)


@pytest.mark.parametrize("op", elementwise_ops(), ids=lambda op: op.name)
def test_an_elementwise_op_refuses_operands_of_different_shapes(op: Op) -> None:
    if arity_of(op, f64) == 2:
        assert not accepts(op, Tensor(f64, (2,)), Tensor(f64, (3,)))
        assert not accepts(op, Tensor(f64, (1,)), f64)
