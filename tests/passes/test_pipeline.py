"""The pass manager verifies and traces the output of each pass, and errors name the pass."""

import ast
from pathlib import Path

import pytest

import livegrad
from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.compiler import (
    LOOP_PASSES,
    OPTIONAL,
    PLAN_PASSES,
    VALUE_PASSES,
    Compilation,
    compile_plan,
    lower,
    lower_module,
    passes_for,
)
from livegrad.diagnostics import DifferentiationError, UsageError, VerifyError
from livegrad.ir.function import trace
from livegrad.ir.leaves import input_node, parameter
from livegrad.ir.node import Function, Key, Module, Node
from livegrad.ir.source_lines import ambient
from livegrad.ir.text import parse_module
from livegrad.ir.types import Tensor, f32, f64, i64
from livegrad.ops.aggregate import get
from livegrad.ops.control import call, make_for_loop
from livegrad.ops.custom import custom_call, recompute_call
from livegrad.ops.differential import bwd_diff, fwd_diff
from livegrad.ops.members import members_call
from livegrad.ops.order import kept
from livegrad.ops.reduction import reduce
from livegrad.ops.transcendental import sin
from livegrad.passes.pipeline import Pass, PipelineTrace, run_passes
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.reference import evaluate
from livegrad.schedule import plan_passes
from livegrad.schedule.target import PORTABLE, REFERENCE, SOURCE, Target


@pytest.fixture
def module() -> Module:
    square = trace(lambda x: x * x, f32, name="square")
    return Module((trace(lambda x: get(fwd_diff(x, x, function=square), index=1), f32, name="main"),))


def names(target: Target) -> list[str]:
    return [step.name for part in passes_for(target) for step in part]


def test_passes_come_in_this_order() -> None:
    first = [
        "differentiate",
        "run_members_together",
        "eliminate_dead_results",
        "inline_calls",
        "lower_bfloat16",
        "simplify",
    ]
    bound = ["bind_sizes", "flatten_signature"]
    last = ["lower_windows", "scalarise_maps", "push_transpose_through_matmul", "share_row_reductions"]
    cuda = ["expand_unsupported", "unguard_invariants", "transform_last_axes", "split_complex"]
    cuda += ["reduce_integer_matmuls", "thread_accumulators", "merge_updates"]
    cuda += ["simplify_tapes", "sum_products_after_loops", "unroll_short_axes", "unroll_small_solves"]
    assert names(CUDA) == [*first, *bound, *cuda, *last]
    first = ["differentiate", "run_members_in_turn", *first[1:3], "inline_small_calls", *first[4:]]
    loops = ["thread_accumulators", "merge_updates", "simplify_tapes", "restore_overwritten_tensors"]
    loops += ["sum_products_after_loops", "lower_tapes"]
    loops += ["interchange_point_loops", "loop_over_elements", "scalarise_loops", "interchange_elementwise_loops"]
    products = ["widen_half_matmuls", "unfold_convolutions", "reduce_integer_matmuls"]
    cpu = ["unguard_invariants", "expand_prime_transforms", "split_complex", *products, *loops]
    cpu += ["unroll_small_matmuls", "unroll_short_axes", "unroll_small_solves", "select_by_insertion"]
    cpu += ["split_stacks", "split_at_concatenations", "privatise_map_sums"]
    assert names(CPU) == [*first, *bound, *cpu, *last]
    assert [step.name for step in PLAN_PASSES] == [
        *("materialise", "fuse", "order_for_memory", "assign_buffers", "write_in_place", "build_steps"),
        *("access_tapes_by_row", "plan_loop_bodies", "store_loop_results", "tile_row_chains", "allocate"),
    ]


def test_passes_are_for_targets_that_there_are() -> None:
    known = {target.name for target in (CPU, CUDA, PORTABLE, SOURCE, REFERENCE)}
    assert set().union(*(step.targets or () for step in VALUE_PASSES)) <= known
    assert set(LOOP_PASSES) <= known
    assert names(SOURCE)[:4] == ["differentiate", "run_members_together", "eliminate_dead_results", "bind_sizes"]
    assert names(REFERENCE)[:2] == ["differentiate", "bind_sizes"]


def test_a_target_leaves_out_optimisations_by_name() -> None:
    assert set(names(CPU)) - set(names(CPU.without("thread_accumulators"))) == {"thread_accumulators"}
    for name in OPTIONAL:
        assert CPU.uses(name)
        assert not CPU.without(name).uses(name)


def test_an_optimisation_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no optimisation `fusion`: expected one of fuse, "):
        lower(trace(lambda x: x * x, f32), CPU.without("fusion"))


def test_an_error_within_a_plan_pass_names_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_passes, "group_roots", lambda *_: [])
    with pytest.raises(VerifyError, match="not every stored value of `<lambda>` is in a group") as caught:
        compile_plan(trace(lambda x: x * x, f32), CPU)
    assert caught.value.__notes__ == ["in pass `fuse`"]


def test_steps_come_before_the_plan_is_done() -> None:
    rows = Tensor(f32, (64, 100))
    function = trace(lambda x: (sin(x), reduce(x, kind="sum", axes=(0,)), reduce(x, kind="max", axes=(1,))), rows)
    compilation = Compilation(lower(function, CPU), CPU)
    steps = iter(compilation)
    first = next(steps)
    assert ambient.table is None  # whoever takes a step works outside of the passes
    assert [first, *steps] == list(compilation.plan.steps)
    assert len(compilation.plan.steps) > 1


def test_derivatives_and_calls_are_gone_after_lowering() -> None:
    removed = frozenset().union(*(step.removes for step in passes_for(PORTABLE)[0]))
    assert removed == {fwd_diff, bwd_diff, custom_call, recompute_call, members_call, kept, call}


def test_a_trace_has_the_text_after_each_pass(module: Module) -> None:
    stages = PipelineTrace()
    result = lower_module(module, trace=stages)
    assert [stage.name for stage in stages.stages] == ["input", *(step.name for step in passes_for(PORTABLE)[0])]
    assert parse_module(stages.stages[0].text) == module
    assert parse_module(stages.stages[-1].text) == result
    assert str(stages).startswith(f"# after input\n{stages.stages[0].text}")


def test_a_pass_that_leaves_what_it_removes_is_named(module: Module) -> None:
    with pytest.raises(VerifyError, match=r"after pass `nothing`: .*`fwd_diff` still exists"):
        run_passes(module, [Pass(lambda module: module, "nothing", removes=frozenset({fwd_diff}))])


def test_a_pass_that_brings_back_what_another_removed_is_named(module: Module) -> None:
    passes = (*passes_for(PORTABLE)[0], Pass(lambda _: module, "undo"))
    with pytest.raises(VerifyError, match="after pass `undo`"):
        run_passes(module, passes)


def test_a_pass_that_changes_a_signature_is_named(module: Module) -> None:
    with pytest.raises(VerifyError, match="pass `lose` changed the module's functions"):
        run_passes(module, [Pass(lambda _: Module(()), "lose")])


def test_a_pass_that_makes_broken_ir_is_named(module: Module) -> None:
    x, other = parameter(0, f32), parameter(1, f32)
    broken = Module((Function("main", (x,), (x + other,)),))
    with pytest.raises(VerifyError, match=r"after pass `break`.*not one of the function's parameters"):
        run_passes(module, [Pass(lambda _: broken, "break")])


def test_an_error_within_a_pass_keeps_its_message_and_names_the_pass(module: Module) -> None:
    def fail(_: Module) -> Module:
        raise DifferentiationError("cannot differentiate `x`")

    with pytest.raises(DifferentiationError) as caught:
        run_passes(module, [Pass(fail, "differentiate")])
    assert str(caught.value) == "cannot differentiate `x`"
    assert caught.value.__notes__ == ["in pass `differentiate`"]


def test_a_broken_module_is_refused_before_the_first_pass() -> None:
    with pytest.raises(VerifyError, match="not one of the function's parameters"):
        run_passes(Module((Function("main", (), (parameter(0, f32),)),)), [])


def test_inputs_by_key_pass_through() -> None:
    key = Key("time")
    module = Module((Function("main", (), (input_node(key, f32) * 1.0,)),))
    assert lower_module(module).functions[0].results == (input_node(key, f32),)


def test_the_whole_pipeline_gives_the_gradient_of_a_loop() -> None:
    def power(n: Node, x: Node) -> Node:
        return make_for_loop(n, lambda i, a: a * x, x)[0]

    function = trace(power, i64, f64)
    one = trace(lambda n, x: get(bwd_diff(n, x, x * 0.0 + 1.0, function=function), index=1), i64, f64, name="slope")
    after = lower(one)
    assert evaluate(after, 3, 2.0) == pytest.approx(4 * 2.0**3)


REWRITES = {"map_results", "rewrite", "rewrite_all", "rewrite_functions", "rewrite_to_fixpoint"}
BUILDERS = {
    "schedule.loop_rows": "the plan pass `access_tapes_by_row`",
    "lazy.truncate_history": "pending graphs continue from the leaf that replaces a computed value",
    "frontend.differentiable.custom_derivatives": "a custom derivative is unpacked where its function is captured",
    "frontend.differentiable.custom_sums": "a custom sum is written into a function when its derivative is captured",
}


def test_no_module_rewrites_ir_outside_of_the_passes() -> None:
    package = Path(livegrad.__file__).parent
    found = set()
    for path in package.rglob("*.py"):
        module = ".".join(path.relative_to(package).with_suffix("").parts)
        if module.startswith(("passes.", "schedule.loops.", "ir.")):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and REWRITES & {name.name for name in node.names}:
                found.add(module)
    assert found == set(BUILDERS), "make it a pass, or say why it builds a function and rewrites none"
