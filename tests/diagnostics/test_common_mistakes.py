"""Common mistakes of newcomers: the errors name what was probably meant and how to write it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import livegrad as lg

# Of any type, for a type checker would find these mistakes first.
BALL: Any = lg.shapes.sphere(1.0)
PART: Any = BALL.part(((-2, -2, -2), (2, 2, 2)), "ball")
NUMBER: Any = 2.0
ANYTHING: Any = None


def engine_with_a_block() -> tuple[lg.Engine, lg.Block]:
    engine = lg.Engine()
    return engine, engine.add(lg.block(lambda x=1.0: x * 2.0, name="double"))


def set_a_block() -> None:
    engine, double = engine_with_a_block()
    engine.set(double, 2.0)  # type: ignore[arg-type]


def inputs_as_a_dictionary() -> None:
    graph = lg.ContextGraph()
    graph.value("data", 1.0)
    graph.node("page", lambda ctx, rows: rows, plain={"rows": "data"})


@pytest.mark.parametrize(
    ("mistake", "error", "said"),
    [
        (lambda: lg.mesh(BALL), lg.implicit.AssemblyError, "found Shape; `shape.part(bounds)` converts a shape"),
        (lambda: lg.render(BALL), lg.implicit.AssemblyError, "not a part"),
        (lambda: lg.slice(BALL, 0.0), lg.implicit.AssemblyError, "not a part"),
        (
            lambda: lg.save_3mf(PART, "a.3mf"),
            lg.implicit.FormatError,
            "found Part; `lg.implicit.assembly_of_part(part)` creates one",
        ),
        (
            lambda: lg.save_stl(PART, "a.stl"),
            lg.implicit.FormatError,
            "found Part; `lg.mesh(part)` creates one from a part",
        ),
        (
            lambda: BALL.part(NUMBER),
            lg.implicit.AssemblyError,
            "expected ((x0, y0, z0), (x1, y1, z1)), the low corner first",
        ),
        (lambda: BALL.translate(NUMBER), lg.implicit.AssemblyError, "expected three numbers, found 2.0"),
        (lambda: BALL.scale(0), lg.implicit.AssemblyError, "invalid scale"),
        (lambda: lg.shapes.box(NUMBER), lg.implicit.AssemblyError, "expected three numbers, found 2.0"),
        (lambda: BALL - 1.0, lg.implicit.AssemblyError, "expected a Shape, found float"),
        (lambda: BALL | None, lg.implicit.AssemblyError, "expected a Shape, found NoneType"),
        (lambda: lg.array([1.0, 2.0]), TypeError, "lg.asarray(data) creates a tensor"),
        (lambda: lg.vec(1.0, 2.0), TypeError, "`vec` is a family of types, such as vec[float, 3]"),
        (lambda: lg.jit(NUMBER), lg.UsageError, "`jit` takes a function"),
        (set_a_block, lg.UsageError, 'expected a pin: block["name"] with one of x, found the block `double`'),
        (
            inputs_as_a_dictionary,
            lg.contexts.ContextError,
            "plain and scoped inputs must be lists, in the order of the function's parameters",
        ),
        (lambda: lg.save_png([[[0.0]]], "nowhere/a.png"), FileNotFoundError, "the folder to write to does not exist"),
    ],
)
def test_a_mistake_is_reported_with_a_fix(mistake, error, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as caught:
        mistake()
    assert said in str(caught.value)


def test_the_file_and_line_of_the_mistake_are_named():
    with pytest.raises(lg.implicit.AssemblyError, match=r"test_common_mistakes\.py:\d+"):
        lg.mesh(BALL)


def test_a_prompt_completes_the_names_of_a_namespace_and_no_others():
    for namespace in (lg.nn, lg.optim, lg.linalg, lg.fft, lg.random, lg.shapes):
        offered = dir(namespace)
        assert sorted(offered) == sorted(namespace.__all__)
        assert all(hasattr(namespace, name) for name in offered)
        assert not {"np", "math", "annotations", "Any"} & set(offered)


def test_the_result_of_minimize_prints_in_one_line():
    found = lg.optim.minimize(lambda x: (x - 3.0) ** 2, lg.asarray(0.0), lg.optim.SGD(0.5), steps=3)
    assert repr(found) == "<minimum after 3 steps, loss 9 → 0: Tensor(3., dtype=float32)>"


# --- values that are no numbers --------------------------------------------------------------------------------------


def set_a_pin(value: Any) -> None:
    engine, double = engine_with_a_block()
    engine.set(double["x"], value)


def set_a_feature(value: Any, feature: str = "animation_time") -> None:
    lg.Engine().set_feature(feature, value)


def profile_everything() -> None:
    lg.Engine().profiling = "everything"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (lambda: lg.vec3(1.0, "a", 2.0), "invalid components for `vec3`"),
        (lambda: lg.vec3(None), "expected f32, found None"),
        (lambda: lg.vec3(1.0, 2.0), "`vec3` takes 1 or 3 numbers"),
        (lambda: lg.vec2(1e300, 0.0), "found 1e+300"),
        (lambda: lg.vec2([1j, 2.0]), "invalid components for `vec2`"),
        (lambda: lg.ivec2(float("nan"), 1), "expected i32, found nan"),
        (lambda: lg.ivec2([2**40, 1]), "expected i32, found [1099511627776, 1]"),
        (lambda: lg.mat2("a"), "invalid components for `mat2`"),
        (lambda: lg.f32("a"), "not a number of type f32"),
        (lambda: lg.f32(ANYTHING), "not a number of type f32"),
        (lambda: lg.i32(2**40), "not a number of type i32"),
        (lambda: set_a_pin("a"), "not a number or an array of numbers"),
        (lambda: set_a_pin(None), "found None"),
        (lambda: set_a_pin([[1.0], [1.0, 2.0]]), "found [[1.0], [1.0, 2.0]]"),
        (lambda: set_a_pin({"a": 1.0}), "not a number or an array of numbers"),
        (lambda: lg.State("s", "a"), "not a number or an array of numbers"),
        (lambda: set_a_feature("now"), "not a number or an array of numbers"),
        (lambda: set_a_feature(None), "not a number or an array of numbers"),
        (lambda: set_a_feature([1.0, 2.0]), "feature `animation_time`"),
        (lambda: set_a_feature([1.0, 2.0, 3.0], "pointer_position"), "feature `pointer_position`"),
        (profile_everything, "expected off, block or step, found 'everything'"),
        (lambda: lg.block(lambda x, mode="fast": x), "the default of `mode`"),
        (lambda: lg.Engine().reset(lg.State("s", 1.0)), "`s` is not in this engine"),
        (lambda: lg.Engine().reset(1.0), "`reset` takes a state"),  # type: ignore[arg-type]
    ],
)
def test_values_that_are_not_numbers_are_rejected_at_their_line(mistake: Any, said: str):
    with pytest.raises(lg.UsageError) as caught:
        mistake()
    assert said in str(caught.value)
    assert "test_common_mistakes.py" in str(caught.value.where)


def test_a_vector_keeps_values_that_its_type_can_hold():
    assert lg.vec3(lg.vec2(1.0, 2.0), 3).tolist() == [1.0, 2.0, 3.0]
    assert lg.ivec2(1.9, True).tolist() == [1, 1]
    assert lg.vec2(float("inf"), float("-inf")).tolist() == [float("inf"), float("-inf")]
    assert lg.dvec2(1e300, 0.0).tolist() == [1e300, 0.0]


def test_a_component_that_a_vector_does_not_have_cannot_be_set():
    with pytest.raises(AttributeError, match="has no attribute `w`"):
        lg.vec3(1.0).w = 2.0


def test_a_feature_is_checked_against_its_readers():
    engine = lg.Engine()
    read = engine.add(lg.block(lambda k=2.0: lg.contexts.context_tensor("footprint", lg.f32) * k, name="read"))
    engine.set_feature("footprint", 3.0)
    engine.step()
    with pytest.raises(lg.UsageError, match="feature `footprint`"):
        engine.set_feature("footprint", [1.0, 2.0])
    engine.step()
    assert float(engine.read(read)) == 6.0


@pytest.mark.parametrize(
    "transform",
    [
        lg.grad,
        lg.value_and_grad,
        lg.vmap,
        lg.jacrev,
        lg.jacfwd,
        lg.hessian,
        lg.checkpoint,
        lg.custom_vjp,
        lg.custom_jvp,
        lambda f: lg.vjp(f, 1.0),
        lambda f: lg.jvp(f, (1.0,), (1.0,)),
        lambda f: lg.scan(f, 0.0, lg.ones(2)),
        lambda f: lg.fori_loop(0, 2, f, 0.0),
        lambda f: lg.while_loop(lambda x: x < 1.0, f, 0.0),
        lambda f: lg.while_loop(f, lambda x: x + 1.0, 0.0),
        lambda f: lg.cond(True, f, f),
        lambda f: lg.switch(0, [f]),
    ],
)
def test_a_transform_of_a_result_gets_advice_to_pass_the_function(transform):
    with pytest.raises(lg.UsageError, match=r"takes a function.*found Tensor; pass the function itself") as caught:
        transform(lg.asarray(2.0))
    assert "test_common_mistakes.py" in str(caught.value.where)


def test_a_missing_folder_is_named():
    with pytest.raises(FileNotFoundError, match=r"the folder to write to does not exist"):
        lg.save("nowhere/a.npz", lg.ones(2))


@lg.differentiable
class Ray:
    origin: lg.vec3
    length: float


@lg.differentiable
class Beam:
    ray: Ray
    radius: float


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Ray(1, 2), r"field `origin` of Ray takes vec3.*expected Ray\(origin: vec3, length: float\), found 1"),
        (lambda: Ray((1.0, 2.0), 2.0), r"field `origin` of Ray takes vec3.*found shape \(2,\)"),
        (lambda: Ray(np.ones((3, 4)), 2.0), r"field `origin` of Ray takes vec3.*found shape \(3, 4\)"),
        (lambda: Beam(1.0, 2.0), r"field `ray` of Beam takes Ray.*expected Beam\(ray: Ray, radius: float\), found 1.0"),
    ],
)
def test_a_struct_rejects_values_that_a_field_cannot_hold(make: Any, said: str) -> None:
    with pytest.raises(lg.CallError, match=said) as caught:
        make()
    assert "test_common_mistakes.py" in str(caught.value.where)


def test_a_field_may_have_a_vector_for_each_point() -> None:
    assert Ray(np.ones((4, 3)), np.ones(4)).origin.shape == (4, 3)
