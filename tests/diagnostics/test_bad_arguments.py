"""Invalid arguments of public functions: livegrad rejects them at the caller's line, before NumPy fails internally."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg

BALL: Any = lg.shapes.sphere(1.0)
PART: Any = BALL.part(((-2, -2, -2), (2, 2, 2)), "ball")
OPEN: Any = lg.shapes.sphere(lg.shapes.Parameter("radius", 1.0)).part(((-2, -2, -2), (2, 2, 2)), "ball")
SINGLE: Any = np.float32
LOOSE: Any = lg  # without its types: a type checker would find these mistakes first


@lg.differentiable
def scaled_length(p: lg.vec3, k: lg.f32) -> lg.f32:
    return lg.length(p) * k


@lg.differentiable
class Drop:
    mass: lg.f32
    at: lg.vec3


DROP: Any = Drop


@lg.differentiable
def weight(drop: Drop, g: lg.f32) -> lg.f32:
    return drop.mass * g + lg.length(drop.at)


@lg.differentiable
def determinant(m: lg.mat2) -> lg.f32:
    return lg.determinant(m)


def raised_error(call: Callable[[], Any]) -> lg.LivegradError:
    """The error of an invalid call; its location is in this file."""
    with pytest.raises(lg.LivegradError) as caught:
        call()
    assert "test_bad_arguments.py" in str(caught.value.where)
    return caught.value


# --- integers of more than 64 bits -----------------------------------------------------------------------------------

HUGE = (2**70, -(2**70), 10**400, -(10**400))


def engine_reading(value: Any, default: Any = 1.0) -> Any:
    engine = lg.Engine()
    double = engine.add(lg.block(lambda x=default: x * 2.0, name="double"))
    engine.set(double["x"], value)
    engine.step()
    return engine.read(double)


@pytest.mark.parametrize("number", HUGE, ids=["2**70", "-2**70", "10**400", "-10**400"])
@pytest.mark.parametrize(
    "use",
    [
        *[lambda n, d=d: lg.ones(2, dtype=d) + n for d in (lg.float32, lg.float64, lg.bfloat16, lg.complex64)],
        *[lambda n, d=d: lg.asarray([n, 1], dtype=d) for d in (lg.float32, lg.float64, lg.bfloat16, lg.complex64)],
        lambda n: n * lg.ones(2),
        lambda n: lg.full(2, n, dtype=lg.float32),
        lambda n: lg.where(lg.asarray([True, True]), n, lg.ones(2)),
        lambda n: lg.maximum(lg.ones(2), n) * 0 + n,
        lambda n: lg.linspace(n, n, 2),
        lambda n: lg.grad(lambda x: lg.sum(x * n))(lg.ones(2)),
        lambda n: lg.jit(lambda x: x + n)(lg.ones(2)),
        lambda n: [lg.ir.constant(n, lg.f32).attribute("value")] * 2,
        lambda n: [engine_reading(n) / 2.0] * 2,
    ],
)
def test_an_integer_is_rounded_to_the_nearest_float_or_rejected(use: Callable[[int], Any], number: int) -> None:
    if abs(number) > 1e300:
        raised_error(lambda: use(number))
    else:
        np.testing.assert_allclose(np.asarray(use(number))[0], float(number), rtol=0.01)


@pytest.mark.parametrize("number", HUGE, ids=["2**70", "-2**70", "10**400", "-10**400"])
@pytest.mark.parametrize(
    "use",
    [
        lambda n: lg.asarray(n),
        lambda n: lg.asarray([n, 1]),
        lambda n: lg.asarray(n, dtype=lg.int32),
        lambda n: lg.asarray([1, 2]) * n,
        lambda n: lg.full(2, n),
        lambda n: lg.arange(n, n + 2),
        lambda n: lg.one_hot(lg.asarray([1]), n),
        lambda n: lg.shapes.sphere(1.0).translate((n, 0, 0)).part(((-n, -1, -1), (n, 1, 1))),
    ],
)
def test_an_integer_that_no_type_holds_is_rejected_at_its_line(use: Callable[[int], Any], number: int) -> None:
    assert len(str(raised_error(lambda: use(number)))) < 600


def test_data_out_of_range_is_an_overflow() -> None:
    for number in (2**63, 2**64, 2**70):
        with pytest.raises(OverflowError, match="an integer does not fit int64"):
            lg.asarray(number)


# --- arrays that do not fit each other, in typed functions -----------------------------------------------------------


def ones(*shape: int) -> Any:
    return np.ones(shape, SINGLE)


DOES_NOT_BROADCAST: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "two arguments": lambda make: scaled_length(make(5, 3), make(4)),
    "the fields of a struct": lambda make: weight(Drop(make(3), make(4, 3)), 1.0),
    "a struct and a number": lambda make: weight(Drop(make(3), make(3, 3)), make(5)),
    "a backward derivative": lambda make: lg.bwd_diff(scaled_length)(make(5, 3), make(4), 1.0),
    "its cotangent": lambda make: lg.bwd_diff(scaled_length)(make(5, 3), make(5), make(4)),
    "a vector of another length": lambda make: scaled_length(make(5, 2), 1.0),
    "a vector of one component": lambda make: scaled_length(make(5, 1), 1.0),
    "a matrix of another size": lambda make: determinant(make(5, 2, 3)),
}


@pytest.mark.parametrize("make", [ones, lambda *shape: lg.ones(shape)], ids=["arrays", "tensors"])
@pytest.mark.parametrize("case", DOES_NOT_BROADCAST)
def test_arrays_that_do_not_match_a_typed_function_are_rejected_with_their_shapes(case: str, make: Any) -> None:
    error = raised_error(lambda: DOES_NOT_BROADCAST[case](make))
    assert isinstance(error, ValueError)
    assert "shape" in str(error)


# --- parts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (lambda: OPEN.parameter_gradient(np.zeros((5, 3)), np.zeros(4)), "each point: shape (5,), found shape (4,)"),
        (lambda: OPEN.parameter_gradient(np.zeros((5, 3)), "a"), "invalid weights"),
        (lambda: OPEN.parameter_gradient(np.zeros((5, 2))), "expected an array of shape (..., 3), found (5, 2)"),
        (lambda: PART.parameter_gradient(np.zeros((5, 2))), "expected an array of shape (..., 3), found (5, 2)"),
        (lambda: OPEN.with_parameters(radius="a"), "invalid value for parameter `radius`"),
        (lambda: OPEN.with_parameters(radius=float("nan")), "expected a finite number, found nan"),
        (lambda: OPEN.with_parameters(radius=[1.0, 2.0]), "expected a finite number, found [1.0, 2.0]"),
        (lambda: LOOSE.slice(PART, "0"), "invalid height"),
        (lambda: LOOSE.slice(PART, None), "expected a finite number, found None"),
        (lambda: LOOSE.slice(BALL, "0"), "not a part"),
        (lambda: BALL.rotate("z", 0.1), "expected three numbers, found 'z'"),
        (lambda: BALL.rotate(0.1, (0, 0, 1)), "expected three numbers, found 0.1"),
        (lambda: BALL.rotate((0, 0, 0), 0.1), "not all of them 0"),
        (lambda: BALL.rotate((0, 0, 1), "a quarter"), "expected a finite number or a Parameter"),
        (lambda: BALL.repeat("xyz"), "not a spacing"),
        (lambda: BALL.repeat((1.0, 2.0)), "expected three numbers, found (1.0, 2.0)"),
        (lambda: LOOSE.shapes.half_space("z"), "not a normal"),
        (lambda: LOOSE.shapes.half_space((0, 0, 0)), "not all of them 0"),
        (lambda: LOOSE.shapes.gyroid(0), "invalid period"),
        (lambda: LOOSE.shapes.union(BALL, BALL, blend=-1.0), "invalid blend"),
        (lambda: BALL.part("everywhere"), "expected ((x0, y0, z0), (x1, y1, z1))"),
        (lambda: BALL.part(((2, 2, 2), (-2, -2, -2))), "the low corner first"),
        (lambda: BALL.part(((0, 0, 0), (1, 1, float("inf")))), "invalid bounds"),
        (lambda: LOOSE.implicit.part_of_function(PART, "ball", ((-2, -2, -2), (2, 2, 2))), "not an assembly"),
        (lambda: LOOSE.parts(PART), "found Part; pass it as the first argument: lg.load_3mf(file) reads an assembly"),
        (lambda: LOOSE.parts(lg.implicit.assembly_of_part(PART), parameters=True), "invalid parameters"),
        (lambda: LOOSE.implicit.to_function(PART, "ball"), "not an assembly"),
        (lambda: LOOSE.implicit.to_cuda(PART, "ball"), "not an assembly"),
        (lambda: LOOSE.implicit.lower_function_gradient(PART), "not an assembly"),
        (lambda: LOOSE.implicit.FunctionBuilder(PART, "f"), "not an assembly"),
        (lambda: LOOSE.render(PART, direction="front"), "not a direction"),
        (lambda: LOOSE.shapes.Parameter("wall thickness", 1.0), "invalid parameter name"),
        (lambda: LOOSE.shapes.Parameter("lambda", 1.0), "invalid parameter name"),
        (lambda: LOOSE.shapes.Parameter("", 1.0), "invalid parameter name"),
        (lambda: LOOSE.shapes.Parameter(1.0, "radius"), "invalid parameter name"),
        (lambda: LOOSE.shapes.Parameter("radius", "a"), "invalid value for parameter `radius`"),
        (lambda: LOOSE.shapes.Parameter("radius", float("inf")), "expected a finite number, found inf"),
    ],
)  # fmt: skip
def test_invalid_arguments_of_shapes_and_parts_are_rejected(mistake: Any, said: str) -> None:
    error = raised_error(mistake)
    assert isinstance(error, lg.implicit.AssemblyError)
    assert said in str(error)


@pytest.mark.parametrize("width", [0, 0.0, lg.shapes.Parameter("width", 0.0)])
def test_a_blend_without_width_is_a_plain_union(width: Any) -> None:
    points = np.random.default_rng(3).normal(size=(40, 3))
    boxes = BALL, lg.shapes.box((1, 2, 1)).translate((0.5, 0, 0))
    bounds = ((-2, -2, -2), (2, 2, 2))
    blended = lg.shapes.union(*boxes, blend=width).part(bounds)(points)
    np.testing.assert_array_equal(blended, lg.shapes.union(*boxes).part(bounds)(points))


# --- optimizers and derivatives --------------------------------------------------------------------------------------


def minimize(*arguments: Any, **named: Any) -> Any:
    return lg.optim.minimize(lambda x, target=1.0: (x - target) ** 2, lg.asarray(0.0), *arguments, **named)


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (lambda: minimize(lg.optim.Adam, steps=3), "found the class Adam; call it to create one: Adam()"),
        (lambda: minimize(lg.optim.LBFGS), "found the class LBFGS"),
        (lambda: minimize("adam"), "not an optimizer"),
        (lambda: minimize(0.1), "such as lg.optim.Adam(), found 0.1"),
        (lambda: minimize(arguments=lg.asarray(3.0)), "found Tensor; write arguments=(x,) for one"),
        (lambda: minimize(arguments=3.0), "write arguments=(x,) for one"),
        (lambda: minimize(lg.optim.LBFGS(), arguments=3.0), "write arguments=(x,) for one"),
        (lambda: LOOSE.grad(lambda x: x * x)(3), "found int64; write 1.0 for 1"),
        (lambda: LOOSE.grad(lambda x: x * x)(lg.asarray(True)), "with respect to booleans"),
        (lambda: LOOSE.hessian(lambda x: x * x)(lg.asarray(3)), "differentiate `<lambda>` with respect to integers"),
        (lambda: LOOSE.jacfwd(lambda x: x * x)(lg.asarray(3)), "differentiate `<lambda>` with respect to integers"),
        (lambda: LOOSE.jacrev(lambda x: x * x)(lg.asarray(3)), "differentiate `<lambda>` with respect to integers"),
        (lambda: LOOSE.grad(lambda x: np.sin(x))(lg.asarray(1.0)), "lg.sin(x), not np.sin(x)"),
        (lambda: LOOSE.jit(lambda x: np.sin(x))(lg.asarray(1.0)), "lg.sin(x), not np.sin(x)"),
        (lambda: LOOSE.grad(lambda x, y: x * y, 1)(lg.asarray(1.0)), "was called with 1 positional arguments"),
        (lambda: LOOSE.bwd_diff(scaled_length)(ones(3), 1.0), "then the differential of its result"),
        (lambda: LOOSE.bwd_diff(scaled_length)(), "then the differential of its result"),
        (lambda: LOOSE.bwd_diff(scaled_length)(ones(3), 1.0, 1.0, 1.0), "then the differential of its result"),
        (lambda: LOOSE.grad(scaled_length, "p")(ones(3), 1.0), "argnums must be positions of arguments"),
        (lambda: LOOSE.max(lg.zeros(0)), "`max`: cannot compute the max of an empty tensor"),
        (lambda: LOOSE.argmin(lg.zeros((2, 0)), axis=1), "`argmin`: cannot compute the argmin of an empty tensor"),
    ],
)  # fmt: skip
def test_invalid_targets_of_differentiation_and_minimisation_are_rejected(mistake: Any, said: str) -> None:
    assert said in str(raised_error(mistake))


@pytest.mark.parametrize(
    "loop",
    [
        lambda body: lg.while_loop(lambda x: lg.sum(x) < 10, body, lg.ones(2)),
        lambda body: lg.fori_loop(0, 3, lambda i, x: body(x), lg.ones(2)),
        lambda body: lg.scan(lambda x, row: (body(x), row), lg.ones(2), lg.ones(3)),
    ],
)
def test_a_loop_whose_body_changes_the_shape_of_its_state_says_so(loop: Any) -> None:
    error = raised_error(lambda: loop(lambda x: lg.concat([x, x])))
    assert "changes the shape of the loop's state" in str(error)
    assert type(error) is lg.UsageError  # a name that people can look up


def test_gradients_take_named_arguments() -> None:
    def f(x: Any, y: Any = 2.0, *, z: Any = 5.0) -> Any:
        return x * x * y + z

    x, y = lg.asarray(3.0), lg.asarray(4.0)
    assert float(lg.grad(f)(x=x)) == 12.0
    assert float(lg.grad(f)(y=y, x=x)) == 24.0
    assert float(lg.grad(f, 1)(x, y=y, z=1.0)) == 9.0
    assert [float(g) for g in lg.grad(f, (0, 1))(x=x, y=y)] == [24.0, 9.0]
    assert float(lg.value_and_grad(f)(x=x)[0]) == 23.0
    assert float(lg.hessian(f)(x=x)) == float(lg.jacfwd(lg.jacrev(f))(x=x)) == 4.0
    with pytest.raises(lg.UsageError, match="called with 1 positional arguments"):
        lg.grad(f, 1)(x, z=y)


def two(x: Any, y: Any) -> Any:
    return lg.sum(x * y)


@pytest.mark.parametrize(
    "transformed",
    [
        lambda x: lg.grad(two)(x), lambda x: lg.jit(two)(x), lambda x: lg.vmap(two)(x), lambda x: lg.checkpoint(two)(x),
        lambda x: lg.jacfwd(two)(x), lambda x: lg.jacrev(two)(x), lambda x: lg.hessian(two)(x),
        lambda x: lg.vjp(two, x),
        lambda x: lg.jvp(two, (x,), (x,)), lambda x: lg.cond(True, two, two, x), lambda x: lg.optim.minimize(two, x),
    ],
)  # fmt: skip
def test_a_missing_argument_of_a_transformed_function_is_reported_at_the_call(transformed: Any) -> None:
    error = raised_error(lambda: transformed(lg.ones(3)))
    assert isinstance(error, TypeError)
    assert "two() missing 1 required positional argument: 'y'" in str(error)


def failing(x: Any) -> Any:
    return x + {}["missing"]


@pytest.mark.parametrize("transform", [lg.grad, lg.jit, lg.vmap, lg.checkpoint, lg.jacrev])
def test_errors_of_a_transformed_function_pass_through(transform: Any) -> None:
    with pytest.raises(KeyError, match="missing"):
        transform(failing)(lg.ones(3))
    with pytest.raises(KeyError, match="missing"):
        lg.tree_map(failing, [lg.ones(3)])


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (lambda: LOOSE.optim.Adam(lr=0.1), "found the argument `lr`; write learning_rate="),
        (lambda: LOOSE.optim.SGD(rate=0.1), "found the argument `rate`; write learning_rate="),
        (lambda: LOOSE.scan(lambda c, x: (c, x), 1.0, lg.ones(3), length=5), "steps as inputs: 3, found length=5"),
        (lambda: LOOSE.scan(lambda c, x: (c, x), 1.0), "cannot tell how many steps to take; pass length="),
        (lambda: LOOSE.grad(of=lg.Composite("c")), "needs `by`: the pins to differentiate with respect to"),
        (lambda: LOOSE.For("f", lg.Composite("c"), {"x": "y"}), "inputs none, outputs none"),
        (lambda: LOOSE.tril(lg.ones((2, 2)), k=None), "`tril` does not accept these arguments"),
        (lambda: LOOSE.State("s"), "expected State(name, initial)"),
        (lambda: LOOSE.zeros(2, 3), "write zeros((2, 3))"),
        (lambda: LOOSE.reshape(lg.ones(6), 2, 3), "write reshape(x, (2, 3))"),
        (lambda: LOOSE.broadcast_to(lg.ones(3), 2, 3), "write broadcast_to(x, (2, 3))"),
        (lambda: LOOSE.Tensor([1.0]), "use lg.asarray(data)"),
        (lambda: DROP(), "Drop needs a value for `mass`: expected Drop(mass: f32, at: vec3)"),
        (lambda: DROP(1.0, lg.vec3(1.0), 2.0), "Drop has 2 fields: expected Drop(mass: f32, at: vec3), found 3 values"),
        (lambda: DROP(1.0, where=2.0), "Drop has no field `where`"),
        (lambda: DROP("heavy", lg.vec3(1.0)), "field `mass` of Drop takes f32"),
        (lambda: DROP(1.0, ["a", "b", "c"]), "field `at` of Drop takes vec3"),
        (lambda: DROP(None, lg.vec3(1.0)), "found None"),
        (lambda: LOOSE.function(3), "3 is not a Python function"),
        (lambda: LOOSE.differentiable(3), "3 is not a Python function or class"),
        (lambda: LOOSE.interface(3), "3 is not a class"),
        (lambda: LOOSE.Engine().remove("double"), "expected a Block, found 'double'"),
        (lambda: LOOSE.Engine().set_feature(3, 1.0), "not the name of a feature"),
    ],
)  # fmt: skip
def test_other_mistakes_are_reported_at_their_line(mistake: Any, said: str) -> None:
    error = raised_error(mistake)
    assert said in str(error).replace(f" ({error.where})", "")


def test_a_composite_says_where_its_blocks_are_added() -> None:
    composite: Any = lg.Composite("c")
    with pytest.raises(AttributeError, match=r"write composite\.graph\.add"):
        composite.add(lg.block(lambda x: x))


def test_names_of_python_types_are_accepted_as_types() -> None:
    for type in (bool, int, float, complex):
        assert lg.zeros(1, dtype=type.__name__).dtype is lg.zeros(1, dtype=type).dtype


def test_a_failed_construction_does_not_lose_the_lines_of_later_errors() -> None:
    with pytest.raises(TypeError):
        LOOSE.implicit.add_ir_function(lg.Assembly(), ["no function"], ["x"], ["y"])
    raised_error(lambda: lg.ones(2, dtype=lg.bool) * lg.ones(2, dtype=lg.bool))
