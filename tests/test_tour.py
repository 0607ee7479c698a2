"""Read this first: about fifteen short tests, one for each capability, in the order in which users meet them."""

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.compiler import PLAN_PASSES, compile_plan, passes_for
from livegrad.ir.text import summarize
from livegrad.passes.pipeline import PipelineTrace
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.tools.tour import run_tour
from livegrad.tools.tour.page import FILES
from livegrad.tools.tour.script import Scale

VEC3 = lg.ir.Vector(lg.f64, 3)


def test_a_traced_function_is_a_graph_that_prints_and_parses() -> None:
    f = lg.ir.trace(lambda x, y: ops.sin(x) * y + 1.0, lg.f32, lg.f32)
    assert lg.ir.parse_function(lg.ir.print_function(f)) == f
    assert "sin 1" in summarize(f)


def test_the_same_expression_is_the_same_object() -> None:
    x = lg.ir.trace(lambda x: x, lg.f32).parameters[0]
    assert ops.sin(x) + 1.0 is ops.sin(x) + 1.0


def test_native_code_and_the_reference_agree() -> None:
    f = lg.ir.trace(lambda x, y: ops.exp(ops.sin(x) * y), lg.f64, lg.f64)
    assert lg.ir.compile(f)(0.3, 2.0) == pytest.approx(lg.ir.evaluate(f, 0.3, 2.0), rel=1e-14)


def test_forward_and_reverse_mode_agree_with_difference_quotients() -> None:
    f = lg.ir.trace(lambda x: ops.log(1.0 + x * x) * ops.cos(x), lg.f64)
    _, tangent = lg.ir.compile(lg.jvp(f))(0.7, 1.0)
    quotient = (lg.ir.evaluate(f, 0.7 + 1e-6) - lg.ir.evaluate(f, 0.7 - 1e-6)) / 2e-6
    assert tangent == pytest.approx(quotient, rel=1e-8)
    assert lg.ir.compile(lg.vjp(f))(0.7, 1.0) == pytest.approx(tangent, rel=1e-14)


def test_derivatives_nest_to_any_order() -> None:
    def slope(f: lg.ir.Function) -> lg.ir.Function:
        return lg.ir.trace(lambda x: ops.bwd_diff(x, lg.ir.constant(1.0, lg.f64), function=f), lg.f64)

    cube = lg.ir.trace(lambda x: x * x * x, lg.f64)
    assert lg.ir.compile(slope(slope(slope(cube))))(2.0) == pytest.approx(6.0)


def test_a_loop_runs_as_often_as_each_element_needs() -> None:
    """Collatz: lanes of one vector leave the loop at different iterations."""

    def steps(n: lg.ir.Node) -> lg.ir.Node:
        def halve_or_triple(index: lg.ir.Node, n: lg.ir.Node, count: lg.ir.Node) -> tuple[lg.ir.Node, lg.ir.Node]:
            even = ops.equal(n % 2, 0)
            return ops.make_cond(even, lambda n: n // 2, lambda n: 3 * n + 1, n), count + 1

        return ops.make_while_loop(lambda n, count: ops.not_equal(n, 1), halve_or_triple, n, lg.ir.constant(0, lg.i64))[
            1
        ]

    counts = lg.ir.compile(lg.ir.map_over(lg.ir.trace(steps, lg.i64)))(np.arange(1, 30))
    assert counts[26] == 111
    assert counts[15] == 4


def test_reverse_mode_goes_through_loops_of_any_iteration_count() -> None:
    def power(x: lg.ir.Node, n: lg.ir.Node) -> lg.ir.Node:
        return ops.make_for_loop(n, lambda index, product: product * x, lg.ir.constant(1.0, lg.f64))[0]

    slope = lg.ir.compile(lg.ir.map_over(lg.vjp(lg.ir.trace(power, lg.f64, lg.i64)), lifted=(True, True, False)))
    x, n = np.linspace(0.5, 1.5, 33), np.arange(33)
    by_x, _ = slope(x, n, 1.0)
    np.testing.assert_allclose(by_x, n * x ** (n - 1.0), rtol=1e-12)


def test_structs_and_vectors_are_differentiable_types() -> None:
    material = lg.ir.Struct("Material", (("albedo", VEC3), ("roughness", lg.f64), ("layer", lg.i32)))

    def shade(m: lg.ir.Node, light: lg.ir.Node) -> lg.ir.Node:
        return ops.dot(ops.get_field(m, "albedo"), light) * ops.get_field(m, "roughness")

    by_material, by_light = lg.ir.compile(lg.vjp(lg.ir.trace(shade, material, VEC3)))(
        ([0.1, 0.2, 0.3], 2.0, 7), [1.0, 2.0, 3.0], 1.0
    )
    np.testing.assert_allclose(by_material[0], [2.0, 4.0, 6.0])
    assert len(by_material) == 2, "the layer carries no derivative"
    np.testing.assert_allclose(by_light, [0.2, 0.4, 0.6])


def test_what_all_points_share_gets_the_sum_of_their_gradients() -> None:
    each = lg.ir.trace(lambda x, radius: (x - radius) * (x - radius), lg.f64, lg.f64)
    n = lg.ir.types.Tensor(lg.f64, (lg.ir.Dimension.symbol("n"),))
    loss = lg.ir.trace(lambda xs, radius: ops.make_map(each, xs, radius, summed=(True,)), n, lg.f64)
    _, by_radius = lg.ir.compile(lg.vjp(loss))(np.arange(5.0), 1.0, 1.0)
    assert by_radius == pytest.approx(-2 * (np.arange(5.0) - 1).sum())


def test_a_whole_softmax_is_one_kernel() -> None:
    shape = (8, 37)

    def softmax(x: lg.ir.Node) -> lg.ir.Node:
        weights = ops.exp(x - ops.spread_back(ops.reduce(x, kind="max", axes=(1,)), shape, (1,)))
        return weights / ops.spread_back(ops.reduce(weights, kind="sum", axes=(1,)), shape, (1,))

    compiled = lg.ir.compile(lg.ir.trace(softmax, lg.ir.types.Tensor(lg.f32, shape)))
    assert compiled.schedule().kernels == 1
    np.testing.assert_allclose(compiled(np.ones(shape, np.float32)).sum(1), np.ones(8), rtol=1e-6)


def test_one_compiled_function_serves_all_sizes() -> None:
    f = lg.ir.compile(lg.ir.map_over(lg.ir.trace(lambda x: x + 1.0, lg.f32)))
    assert f(np.zeros(3, np.float32)).shape == (3,)
    assert f(np.zeros(1000, np.float32)).sum() == 1000


def test_every_pass_can_be_looked_at() -> None:
    f = lg.ir.trace(lambda x: ops.bwd_diff(x, x, function=lg.ir.trace(lambda x: x * x, lg.f32)), lg.f32)
    trace = PipelineTrace()
    compile_plan(f, CPU, trace=trace)
    names = [stage.name for stage in trace.stages]
    assert names == ["input", *(step.name for part in passes_for(CPU) for step in part), *(p.name for p in PLAN_PASSES)]
    assert "bwd_diff" in trace.stages[0].text
    assert "bwd_diff" not in trace.stages[1].text


def test_a_mistake_is_reported_where_it_was_made() -> None:
    with pytest.raises(lg.TypeRuleError, match=r"`add`: operands.*test_tour.py:\d+.*f32, f64.*cast one of them"):
        lg.ir.trace(lambda x, y: x + y, lg.f32, lg.f64)


def test_a_bad_index_is_an_error_and_never_a_wrong_value() -> None:
    table, places = lg.ir.types.Tensor(lg.f32, (4,)), lg.ir.types.Tensor(lg.i64, (3,))
    f = lg.ir.compile(lg.ir.trace(lambda t, i: ops.lookup(t, i), table, places))
    with pytest.raises(lg.KernelCheckError, match=r"index out of range for axis 0, at element 2 \(test_tour.py:"):
        f(np.zeros(4, np.float32), np.array([0, 3, 4]))


def test_one_live_graph_is_fitted_drawn_and_edited(tmp_path) -> None:
    """`./run`, at a size for tests: each edit is applied at the cheapest level, and only what it touches runs."""
    made = run_tour(tmp_path, "cpu", lambda what, share: None, Scale((48, 32), fit=3, turn=2, hold=1, feature_size=0.3))
    edits = {entry.edit.split(":")[0]: entry for entry in made.ledger}
    assert {edit: (entry.level, entry.ran) for edit, entry in edits.items() if entry.kept} == {
        "turn the camera alone": ("none", ("lens", "march", "face", "miss", "shade", "finish")),
        "nothing": ("none", ()),
        "set shade.warmth": ("hot", ("shade", "finish")),
        "set march.swell": ("hot", ("march", "face", "miss", "shade", "finish")),
        "edit a kernel": ("code", ("shade", "finish")),
        "add a block": ("cold", ("ink", "finish")),
        "twice the picture": ("warm", ("lens", "march", "face", "miss", "shade", "ink", "finish")),
    }
    assert edits["set shade.warmth"].computed == ()
    assert edits["turn the camera alone"].computed == ("camera",)
    assert made.outcome.losses[-1] < 1e-2 * made.outcome.losses[0]
    assert made.outcome.agreement > 0.99
    assert made.outcome.difference < 1e-6
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, "index.html"}
    assert lg.load_stl(tmp_path / "wheel.stl").is_closed()
