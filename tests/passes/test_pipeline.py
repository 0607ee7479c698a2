"""The runner verifies and traces after each pass, and says which pass went wrong."""

import pytest

from livegrad.backends.reference import evaluate
from livegrad.diagnostics import DifferentiationError, VerifyError
from livegrad.ir.function import trace
from livegrad.ir.leaves import input_node, parameter
from livegrad.ir.node import Function, Key, Module, Node
from livegrad.ir.text import parse_module
from livegrad.ir.types import f32, f64, i64
from livegrad.ops.aggregate import get
from livegrad.ops.control import call, make_for_loop
from livegrad.ops.custom import custom_call, recompute_call
from livegrad.ops.differential import bwd_diff, fwd_diff
from livegrad.ops.order import kept
from livegrad.passes.pipeline import PIPELINE, Pass, PipelineTrace, run_pipeline


@pytest.fixture
def module() -> Module:
    square = trace(lambda x: x * x, f32, name="square")
    return Module((trace(lambda x: get(fwd_diff(x, x, function=square), index=1), f32, name="main"),))


def test_passes_come_in_this_order() -> None:
    assert [step.name for step in PIPELINE] == [
        *("differentiate", "optimize_outputs", "flatten_calls", "lower_bfloat16", "simplify")
    ]
    assert frozenset().union(*(step.removes for step in PIPELINE)) == {
        fwd_diff,
        bwd_diff,
        custom_call,
        recompute_call,
        kept,
        call,
    }


def test_a_trace_has_the_text_after_each_pass(module: Module) -> None:
    stages = PipelineTrace()
    result = run_pipeline(module, trace=stages)
    assert [stage.name for stage in stages.stages] == ["input", *(step.name for step in PIPELINE)]
    assert "fwd_diff" in stages.stages[0].text
    assert parse_module(stages.stages[-1].text) == result
    assert str(stages).startswith("# after input\nfunction @square(")


def test_a_pass_that_leaves_what_it_removes_is_named(module: Module) -> None:
    with pytest.raises(VerifyError, match=r"after pass `nothing`: .*`fwd_diff` is still there"):
        run_pipeline(module, [Pass("nothing", lambda module: module, removes=frozenset({fwd_diff}))])


def test_a_pass_that_brings_back_what_another_removed_is_named(module: Module) -> None:
    passes = (*PIPELINE, Pass("undo", lambda _: module))
    with pytest.raises(VerifyError, match="after pass `undo`"):
        run_pipeline(module, passes)


def test_a_pass_that_changes_a_signature_is_named(module: Module) -> None:
    with pytest.raises(VerifyError, match="pass `lose` changed the module's functions"):
        run_pipeline(module, [Pass("lose", lambda _: Module(()))])


def test_a_pass_that_makes_broken_ir_is_named(module: Module) -> None:
    x, other = parameter(0, f32), parameter(1, f32)
    broken = Module((Function("main", (x,), (x + other,)),))
    with pytest.raises(VerifyError, match=r"after pass `break`.*not one of the function's parameters"):
        run_pipeline(module, [Pass("break", lambda _: broken)])


def test_an_error_within_a_pass_keeps_its_message_and_names_the_pass(module: Module) -> None:
    def fail(_: Module) -> Module:
        raise DifferentiationError("cannot differentiate `x`")

    with pytest.raises(DifferentiationError) as caught:
        run_pipeline(module, [Pass("differentiate", fail)])
    assert str(caught.value) == "cannot differentiate `x`"
    assert caught.value.__notes__ == ["in pass `differentiate`"]


def test_a_broken_module_is_refused_before_the_first_pass() -> None:
    with pytest.raises(VerifyError, match="not one of the function's parameters"):
        run_pipeline(Module((Function("main", (), (parameter(0, f32),)),)), [])


def test_inputs_by_key_pass_through() -> None:
    key = Key("time")
    module = Module((Function("main", (), (input_node(key, f32) * 1.0,)),))
    assert run_pipeline(module).functions[0].results == (input_node(key, f32),)


def test_the_whole_pipeline_gives_the_gradient_of_a_loop() -> None:
    def power(n: Node, x: Node) -> Node:
        return make_for_loop(n, lambda i, a: a * x, x)[0]

    function = trace(power, i64, f64)
    one = trace(lambda n, x: get(bwd_diff(n, x, x * 0.0 + 1.0, function=function), index=1), i64, f64, name="slope")
    (after,) = run_pipeline(Module((one,))).functions
    assert evaluate(after, 3, 2.0) == pytest.approx(4 * 2.0**3)
