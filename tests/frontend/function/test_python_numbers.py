"""The type rule for Python numbers: `float` annotations are float64, other floats are weak and default to float32.

A table of cases: each call path with a Python number, each kind of body, with and without an annotation.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg

# Bodies in which a number meets nothing that has a type; `cond` and loops are in captured functions' language too.
BODIES = {
    "as it is": "x",
    "arithmetic": "x * 2.0 + 1",
    "division": "x / 3",
    "power": "x ** 2",
    "a function": "lg.sin(x)",
    "a choice": "lg.where(x > 0.0, x, 2.0 * x)",
}


def in_engine(f: Any) -> Any:
    engine = lg.Engine()
    block = engine.add(lg.block(f, name="block"))
    engine.set(block["x"], 0.1)
    assert engine.step().ok
    return engine.read(block)


def in_region(f: Any) -> Any:
    engine, inner = lg.Engine(), lg.Composite("inner")
    block = inner.graph.add(lg.block(f, name="block"))
    inner.expose(block["x"])
    inner.expose(block["result"])
    region = engine.add(lg.If("region", inner))
    engine.set(region["condition"], True)
    engine.set(region["x"], 0.1)
    assert engine.step().ok
    return engine.read(region["result"])


def batched(f: Any) -> Any:
    """vmap of a function of a row and the number; the row is boolean, so it does not determine the type."""
    call = lg.run_source(f"def call(row, x{': float' if f.__annotations__ else ''}): return f(x)", {"f": f})["call"]
    return lg.vmap(call, in_axes=(0, None))(lg.asarray([True, False]), 0.1)


def scanned(f: Any) -> Any:
    body = lg.run_source(f"def body(x{': float' if f.__annotations__ else ''}, row): return f(x), None", {"f": f})[
        "body"
    ]
    return lg.scan(body, 0.1, None, length=2)[0]


def looped(f: Any) -> Any:
    body = lg.run_source(f"def body(i, x{': float' if f.__annotations__ else ''}): return f(x)", {"f": f})["body"]
    return lg.fori_loop(0, 2, body, 0.1)


CALL_PATHS: dict[str, Callable[[Any], Any]] = {
    "jit": lambda f: lg.jit(f)(0.1),
    "jit by name": lambda f: lg.jit(f)(x=0.1),
    "engine": in_engine,
    "region": in_region,
    "grad": lambda f: lg.grad(f)(0.1),
    "value of value_and_grad": lambda f: lg.value_and_grad(f)(0.1)[0],
    "jit of grad": lambda f: lg.jit(lg.grad(f))(0.1),
    "jvp": lambda f: lg.jvp(f, (0.1,), (1.0,))[1],
    "vjp": lambda f: lg.vjp(f, 0.1)[0],
    "hessian": lambda f: lg.hessian(f)(0.1),
    "checkpoint": lambda f: lg.checkpoint(f)(0.1),
    "vmap": batched,
    "scan": scanned,
    "fori_loop": looped,
    "cond": lambda f: lg.cond(lg.asarray(True), f, f, 0.1),
}


def function(body: str, annotation: str) -> Any:
    return lg.run_source(f"def f(x{annotation}):\n    return {body}\n", {"lg": lg})["f"]


def type_of(value: Any) -> str:
    return np.asarray(value).dtype.name if not isinstance(value, lg.Tensor) else value.dtype.long_name


@pytest.mark.parametrize("call_path", CALL_PATHS)
def test_a_float_annotation_is_float64_and_an_untyped_float_is_float32(call_path):
    actual = {}
    for name, body in BODIES.items():
        actual[name] = tuple(
            type_of(CALL_PATHS[call_path](function(body, annotation))) for annotation in ("", ": float")
        )
    assert actual == dict.fromkeys(BODIES, ("float32", "float64"))


@pytest.mark.parametrize("call_path", ["jit", "engine", "region", "jit by name"])
def test_captured_functions_follow_the_rule_for_traced_numbers(call_path):
    actual = {}
    for name, body in BODIES.items():
        calls = [CALL_PATHS[call_path](lg.differentiable(function(body, annotation))) for annotation in ("", ": float")]
        actual[name] = tuple(map(type_of, calls))
    assert actual == dict.fromkeys(BODIES, ("float32", "float64"))


def test_a_captured_function_of_python_numbers_returns_python_numbers():
    for body in BODIES.values():
        for annotation in ("", ": float"):
            assert isinstance(lg.function(function(body, annotation))(0.1), float)


@pytest.mark.parametrize("call_path", ["jit", "grad", "engine"])
def test_a_float64_keeps_its_precision(call_path):
    expected = {"jit": 0.1 * 3.0, "grad": 3.0 * 0.1 * 0.1, "engine": 0.1 * 3.0}[call_path]
    body = "x * x * x" if call_path == "grad" else "x * 3.0"
    assert float(CALL_PATHS[call_path](function(body, ": float"))) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_weak_number_takes_the_type_of_the_other_operand_and_a_declared_one_does_not(dtype):
    data = np.array([1.0, 2.0], dtype)

    def weak(x, k):
        return x * k

    def declared(x, k: float):
        return x * k

    def beside(f: Any) -> list[str]:
        engine = lg.Engine()
        block = engine.add(lg.block(f, name="block"))
        engine.set(block["x"], data)
        engine.set(block["k"], 0.1)
        engine.step()
        x = lg.asarray(data)
        return [
            type_of(lg.jit(f)(x, 0.1)),
            type_of(engine.read(block)),
            type_of(lg.vmap(f, in_axes=(0, None))(x, 0.1)),
            type_of(lg.checkpoint(f)(x, 0.1)),
            type_of(lg.cond(lg.asarray(True), f, f, x, 0.1)),
            type_of(lg.grad(lambda x, k: lg.sum(f(x, k)), argnums=1)(x, 0.1)) if f is weak else "float64",
            type_of(lg.jit(lg.function(f))(x, 0.1)),
        ]

    assert beside(weak) == [dtype.__name__] * 7
    assert beside(declared) == ["float64"] * 7


def test_integers_for_a_float_parameter_are_floats():
    f = function("x * 2", ": float")
    assert type_of(lg.jit(f)(3)) == "float64"
    engine = lg.Engine()
    block = engine.add(lg.block(f, name="block"))
    engine.set(block["x"], 3)
    engine.step()
    assert engine.read(block) == 6.0
    assert engine.read(block).dtype == np.float64


def test_editing_what_a_number_pin_computes_does_not_break_a_state():
    engine = lg.Engine()
    block = engine.add(lg.block(lambda x=0.5: x * 2.0, name="block"))
    total = engine.add(lg.State("total", 0.0))
    added = engine.add(lg.block(lambda total, x: total + x, name="added"))
    engine.connect(total, added["total"])
    engine.connect(block, added["x"])
    engine.connect(added, total["next"])
    for body in (lambda x=0.5: x * 2.0, lambda x=0.5: lg.sin(x), lambda x=0.5: x, lambda x=0.5: x / 3):
        lg.live.edit(engine, block, body)
        assert engine.step().ok
        assert engine.read(total).dtype == np.float32
    assert engine.read(total) == pytest.approx(1.5 + np.sin(0.5) + 0.5 / 3, rel=1e-6)


def test_a_call_of_another_function_stays_weak():
    @lg.function
    def half(x):
        return x * 0.5

    @lg.function
    def scaled(x: lg.f32, k):
        return x * half(k)

    assert type(scaled(np.float32(3.0), 0.5)) is np.float32


def test_an_argument_that_is_not_passed_keeps_its_default():
    def f(x, k: float = 0.1):
        return x * k

    assert type_of(lg.jit(f)(lg.ones(2))) == "float32"
    assert type_of(lg.jit(f)(lg.ones(2), 0.1)) == "float64"


DOUBLE = lg.asarray(np.float64(0.1))
DERIVED: dict[str, Callable[[Any], Any]] = {
    "value": lambda f: lg.value_and_grad(f)(0.1)[0],
    "grad": lambda f: lg.grad(f)(0.1),
    "grad of grad": lambda f: lg.grad(lg.grad(f))(0.1),
    "in jit": lambda f: lg.jit(lg.grad(f))(0.1),
    "jvp": lambda f: lg.jvp(f, [0.1], [lg.asarray(1.0)])[1],
    "vjp": lambda f: lg.vjp(f, 0.1)[1](lg.asarray(1.0, dtype=f(lg.asarray(1.0)).dtype))[0],
    "jacfwd": lambda f: lg.jacfwd(f)(0.1),
    "jacrev": lambda f: lg.jacrev(f)(0.1),
    "hessian": lambda f: lg.hessian(f)(0.1),
}


@pytest.mark.parametrize("name", DERIVED)
def test_a_differentiated_weak_float_takes_the_type_of_the_other_operand(name: str) -> None:
    """If 0.1 were rounded to float32 before it is combined with a float64 tensor, the ninth digit would differ."""
    actual = DERIVED[name](lambda x: x**3 * DOUBLE)
    assert actual.dtype == np.float64
    expected = {"value": 0.1**4, "grad of grad": 6 * 0.1**2, "hessian": 6 * 0.1**2}.get(name, 3 * 0.1**3)
    assert float(actual) == pytest.approx(expected, rel=1e-14)
    assert DERIVED[name](lambda x: x**3).dtype == np.float32


@pytest.mark.parametrize("type", [lg.u8, lg.u16, lg.u32, lg.u64], ids=str)
def test_python_ints_take_unsigned_types_too(type: Any) -> None:
    def f(x: type) -> type:  # pyright: ignore[reportInvalidTypeForm]
        y: type = 7  # pyright: ignore[reportInvalidTypeForm]
        return x * 2 + y - 1

    captured = lg.function(f)
    result = captured(5)
    assert result == 16
    assert np.asarray(result).dtype == type.dtype
    assert captured(np.asarray([1, 2], type.dtype)).tolist() == [8, 10]
    with pytest.raises(lg.LivegradError, match=f"expected {type}, from 0 to .*, found -1"):
        captured(-1)


def test_a_number_that_an_unsigned_type_cannot_hold_is_rejected() -> None:
    @lg.function
    def f(x: lg.u8) -> lg.u8:
        return x - 300

    with pytest.raises(lg.LivegradError, match="300 does not fit u8"):
        f(1)
