"""Bad input is an error that names the user's line, never a silent wrong value."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg

NAN, INF = float("nan"), float("inf")
DEVICES = ["cpu", "reference"]


def matrix() -> lg.Tensor:
    return lg.asarray(np.arange(6.0, dtype=np.float32).reshape(2, 3))


def numbers() -> lg.Tensor:
    return lg.asarray([1, 2, 3])


def freed() -> lg.Tensor:
    x = lg.ones(3)
    x.free()
    return x


def assigned(x: lg.Tensor, key: Any, value: Any) -> lg.Tensor:
    x[key] = value
    return x.execute()


def refuses(action: Callable[[], Any], *kinds: type[BaseException], match: str | None = None) -> lg.LivegradError:
    """Returns the error, which must be a livegrad error of these kinds with a line of this file."""
    with pytest.raises(lg.LivegradError, match=match) as caught:
        action()
    for kind in kinds:
        assert isinstance(caught.value, kind)
    assert caught.value.where is not None
    assert "test_bad_input.py" in str(caught.value)
    return caught.value


# --- indices ---------------------------------------------------------------------------------------------------------

INDEX_ERRORS = {
    "too large": lambda: matrix()[2],
    "too small": lambda: matrix()[-3],
    "too large behind": lambda: matrix()[0, 3],
    "beyond 64 bits": lambda: matrix()[10**30],
    "too many": lambda: matrix()[0, 0, 0],
    "two ellipses": lambda: matrix()[..., ...],
    "a step of zero": lambda: matrix()[::0],
    "a slice by floats": lambda: matrix()[0.5:1],  # type: ignore[misc]
    "in a list": lambda: matrix()[[0, 7]],
    "a mask of another shape": lambda: matrix()[lg.asarray([True, False, True])],
    "assigned": lambda: assigned(matrix(), 5, 1.0),
    "a mask assigned": lambda: assigned(matrix(), lg.asarray([True, False, True]), 1.0),
}


@pytest.mark.parametrize("action", INDEX_ERRORS.values(), ids=INDEX_ERRORS)
def test_an_impossible_index_raises_immediately(action):
    refuses(action, IndexError)


@pytest.mark.parametrize("index", [1.0, "a", lg.asarray([1.0]), lg.asarray(1.0), object()])
def test_an_index_of_the_wrong_kind_raises_immediately(index):
    refuses(lambda: matrix()[index], TypeError)


COMPUTED_INDEX_ERRORS = {
    "read": lambda x, i: x[i],
    "read from the end": lambda x, i: x[i - 12],
    "behind a slice": lambda x, i: x[:, i],
    "take": lambda x, i: lg.take(x, i, axis=1),
    "take_along_axis": lambda x, i: lg.take_along_axis(x, i[None, :] + lg.zeros((2, 1), dtype=lg.int64), axis=1),
    "assigned": lambda x, i: assigned(x, i, 1.0),
    "behind a gradient": lambda x, i: lg.grad(lambda x: lg.sum(x[i] * x[i]))(x),
    "behind vmap": lambda x, i: lg.vmap(lambda j: x[j])(i),
    "behind jit": lambda x, i: lg.jit(lambda x, i: x[i])(x, i),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("read", COMPUTED_INDEX_ERRORS.values(), ids=COMPUTED_INDEX_ERRORS)
def test_a_computed_index_out_of_range_raises_when_it_is_computed(read, device):
    index = lg.asarray([0, 1]) * 5
    refuses(lambda: read(matrix().to(device), index).execute(), match="out of range")


# --- axes ------------------------------------------------------------------------------------------------------------

AXIS_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda x, a: lg.sum(x, axis=a),
    "max": lambda x, a: lg.max(x, axis=a),
    "argmax": lambda x, a: lg.argmax(x, axis=a),
    "sort": lambda x, a: lg.sort(x, axis=a),
    "cumulative_sum": lambda x, a: lg.cumulative_sum(x, axis=a),
    "softmax": lambda x, a: lg.softmax(x, axis=a),
    "concat": lambda x, a: lg.concat([x, x], axis=a),
    "flip": lambda x, a: lg.flip(x, axis=a),
    "roll": lambda x, a: lg.roll(x, 1, axis=a),
    "moveaxis": lambda x, a: lg.moveaxis(x, 0, a),
    "unstack": lambda x, a: lg.unstack(x, axis=a),
    "repeat": lambda x, a: lg.repeat(x, 2, axis=a),
    "take": lambda x, a: lg.take(x, lg.asarray([0]), axis=a),
    "vector_norm": lambda x, a: lg.linalg.vector_norm(x, axis=a),
    "fft": lambda x, a: lg.fft.fft(x, axis=a),
}


@pytest.mark.parametrize("function", AXIS_FUNCTIONS.values(), ids=AXIS_FUNCTIONS)
@pytest.mark.parametrize("axis", [2, -3, 1.0, "a", True])
def test_a_missing_axis_raises(function, axis):
    assert refuses(lambda: function(matrix(), axis), IndexError, ValueError).code == "axis"


@pytest.mark.parametrize(
    "action",
    [
        lambda: lg.sum(matrix(), axis=(0, 0)),
        lambda: lg.sum(matrix(), axis=(0, -2)),
        lambda: lg.permute_dims(matrix(), (0, 0)),
        lambda: lg.permute_dims(matrix(), (0,)),
        lambda: lg.expand_dims(matrix(), axis=5),
        lambda: lg.transpose(matrix(), (0, 0)),
        lambda: lg.transpose(matrix(), (0, 1, 2)),
    ],
)
def test_repeated_or_missing_axes_raise(action):
    refuses(action, lg.AxisError)


# --- element types ---------------------------------------------------------------------------------------------------

TYPE_ERRORS = {
    "and of floats": lambda: matrix() & matrix(),
    "or of a float": lambda: matrix() | 1,
    "not of a float": lambda: ~matrix(),
    "shift of a float": lambda: matrix() << 1,
    "no such name": lambda: lg.zeros(3, dtype="float33"),
    "no such name in a sum": lambda: lg.sum(matrix(), dtype="float33"),  # type: ignore[arg-type]
    "an object": lambda: lg.zeros(3, dtype=object),
    "text": lambda: lg.asarray(["a"]),
    "nothing": lambda: lg.asarray([None]),
    "a date": lambda: lg.asarray(np.datetime64("2020")),
    "a long double": lambda: lg.asarray(np.longdouble(1)),
    "minus of truth values": lambda: lg.asarray([True]) - lg.asarray([True]),
    "negative of truth values": lambda: -lg.asarray([True]),
    "a type for both": lambda: lg.asarray([1], dtype=lg.uint64) + lg.asarray([1]),
    "order of complex numbers": lambda: lg.asarray([1j]) < 1.0,
    "complex to real": lambda: lg.astype(lg.asarray([1j]), lg.float32),
    "assigned": lambda: assigned(numbers(), 0, lg.asarray(1.5)),
    "a fraction assigned": lambda: assigned(numbers(), 0, 1.5),
    "a complex number assigned": lambda: assigned(matrix(), 0, 1j),
    "filled": lambda: numbers().fill(1.5),
    "filled with text": lambda: numbers().fill("a"),  # type: ignore[arg-type]
    "float of a complex number": lambda: float(lg.asarray(1j)),
    "int of a complex number": lambda: int(lg.asarray(1j)),
    "a branch by a float": lambda: lg.switch(lg.asarray(0.5), [lambda x: x], matrix()),
    "a count by a float": lambda: lg.fori_loop(0, 2.5, lambda i, x: x, matrix()),
    "a gradient by integers": lambda: lg.grad(lg.sum)(numbers()),
    "a variable of integers": lambda: numbers().requires_grad_(),
}


@pytest.mark.parametrize("action", TYPE_ERRORS.values(), ids=TYPE_ERRORS)
def test_a_wrong_element_type_raises(action):
    refuses(action)


@pytest.mark.parametrize("other", ["a", [1, 2, 3], None, object()])
def test_python_rejects_operands_that_are_not_numbers(other):
    """Operators return NotImplemented for unsupported operands, so Python raises the error."""
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = matrix() + other
    x = matrix()
    with pytest.raises(TypeError, match="unsupported operand"):
        x += other


RANGE_ERRORS = {
    "beside int8": lambda: lg.asarray([1], dtype=lg.int8) + 300,
    "beside uint8": lambda: lg.asarray([1], dtype=lg.uint8) + (-1),
    "beside float16": lambda: lg.ones(2, dtype=lg.float16) * 1e6,
    "beside float32": lambda: matrix() * 1e50,
    "assigned": lambda: assigned(lg.asarray([1], dtype=lg.int8), 0, 300),
    "data beyond int64": lambda: lg.asarray(2**70),
    "data beyond int8": lambda: lg.asarray([300], dtype=lg.int8),
    "filled": lambda: lg.zeros(1, dtype=lg.int8).execute().fill(300),
}


@pytest.mark.parametrize("action", RANGE_ERRORS.values(), ids=RANGE_ERRORS)
def test_a_number_out_of_range_of_the_type_raises(action):
    refuses(action)


def test_an_array_with_masked_elements_raises():
    refuses(lambda: lg.asarray(np.ma.masked_array([1, 2], [False, True])), match="masked")
    refuses(lambda: lg.asarray(np.ma.masked_array([1, 2], [False, True]), copy=False), match="masked")
    assert lg.asarray(np.ma.masked_array([1, 2], [False, False])).tolist() == [1, 2]


# --- shapes ----------------------------------------------------------------------------------------------------------

MISMATCHES = {
    "add": (lambda a, b: a + b, (2, 3), (2,)),
    "matmul": (lambda a, b: a @ b, (2, 3), (2, 3)),
    "matmul of stacks": (lambda a, b: a @ b, (2, 4, 3), (3, 3, 4)),
    "vecdot": (lg.vecdot, (2, 3), (2,)),
    "tensordot": (lambda a, b: lg.tensordot(a, b, axes=1), (2, 3), (2, 3)),
    "einsum": (lambda a, b: lg.einsum("ij,jk->ik", a, b), (2, 3), (2, 3)),
    "where": (lambda a, b: lg.where(a > 0, a, b), (2, 3), (2,)),
    "clip": (lg.clip, (2, 3), (2,)),
    "concat": (lambda a, b: lg.concat([a, b]), (2, 3), (3, 2)),
    "stack": (lambda a, b: lg.stack([a, b]), (2, 3), (3, 2)),
    "broadcast_to": (lambda a, b: lg.broadcast_to(a, b.shape), (2, 3), (3, 3)),
    "reshape": (lambda a, b: lg.reshape(a, b.shape), (2, 3), (4, 2)),
    "solve": (lambda a, b: lg.linalg.solve(a, b), (3, 3), (2,)),
    "outer": (lg.linalg.outer, (3, 3), (3,)),
    "cross": (lg.linalg.cross, (3,), (2,)),
    "assignment": (lambda a, b: assigned(a, ..., b), (2, 3), (2,)),
    "in place": (lambda a, b: a.__iadd__(b), (3,), (2, 3)),
    "cond": (lambda a, b: lg.cond(lg.asarray(True), lambda: a, lambda: b), (3,), (2,)),
    "while_loop": (lambda a, b: lg.while_loop(lambda s: lg.sum(s) < 3.0, lambda s: b, a), (3,), (2,)),
    "scan": (lambda a, b: lg.scan(lambda s, x: (s, x), lg.asarray(0.0), (a, b)), (3,), (4,)),
    "vmap": (lambda a, b: lg.vmap(lambda a, b: a + b)(a, b), (2,), (3,)),
    "jvp": (lambda a, b: lg.jvp(lg.sin, (a,), (b,)), (3,), (2,)),
    "vjp": (lambda a, b: lg.vjp(lg.sin, a)[1](b), (3,), (2,)),
}


@pytest.mark.parametrize("case", MISMATCHES.values(), ids=MISMATCHES)
def test_shapes_that_do_not_fit_are_named_together_with_the_line(case):
    combine, first, second = case
    message = str(refuses(lambda: combine(lg.ones(first), lg.ones(second))))
    for shape in (first, second):
        sizes = ", ".join(map(str, shape))
        assert f"({sizes}" in message or f"[{sizes}]" in message or (len(shape) == 1 and sizes in message), message


SIZE_ERRORS = {
    "nan": lambda: lg.reshape(matrix(), (NAN,)),
    "infinite": lambda: lg.reshape(matrix(), (INF,)),
    "negative": lambda: lg.reshape(matrix(), (-2, 3)),
    "two unknown": lambda: lg.reshape(matrix(), (-1, -1)),
    "a float": lambda: lg.reshape(matrix(), (2.0, 3)),
    "text": lambda: lg.reshape(matrix(), "ab"),
    "nothing": lambda: lg.reshape(matrix(), None),  # type: ignore[arg-type]
    "unknown beside zero": lambda: lg.reshape(matrix(), (0, -1)),
    "too few to infer": lambda: lg.reshape(matrix(), (5, -1)),
    "overflowing": lambda: lg.reshape(matrix(), (2**62, 2**62)),
    "zeros of negative size": lambda: lg.zeros((-1,)),
    "zeros of nan": lambda: lg.zeros(NAN),
    "zeros beyond addresses": lambda: lg.zeros((2**40, 2**40)),
    "zeros of a truth value": lambda: lg.zeros((True,)),
    "eye": lambda: lg.eye(-1),
    "tile": lambda: lg.tile(matrix(), (-1,)),
    "repeat": lambda: lg.repeat(matrix(), -1),
    "repeat by a tensor": lambda: lg.repeat(numbers(), lg.asarray([1, -1, 1])),
    "arange of nan": lambda: lg.arange(NAN),
    "arange to infinity": lambda: lg.arange(INF),
    "arange by zero": lambda: lg.arange(0, 5, 0),
    "linspace": lambda: lg.linspace(0.0, 1.0, -1),
    "random": lambda: lg.random.normal(lg.random.key(0), (-1,)),
    "ragged": lambda: lg.asarray([[1], [1, 2]]),
    "nothing to join": lambda: lg.concat([]),
    "the maximum of an empty tensor": lambda: lg.max(lg.zeros((0,))),
    "a mask of numbers": lambda: lg.reduce_sum(matrix(), (2, 0)),
    "a mask too long": lambda: lg.reduce_sum(matrix(), (1, 0, 1)),
    "a mask that is none": lambda: lg.reduce_sum(matrix(), 3),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("action", SIZE_ERRORS.values(), ids=SIZE_ERRORS)
def test_impossible_sizes_raise(action):
    refuses(action)


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("value", "dtype"),
    [(NAN, lg.int32), (INF, lg.int64), (-INF, lg.uint8), (1e20, lg.int64), (300.0, lg.int8), (-1.0, lg.uint8)],
)
def test_casting_a_float_out_of_the_integer_range_raises(value, dtype, device):
    x = lg.asarray([1.0, value], dtype=lg.float64).to(device)
    refuses(lambda: lg.astype(x, dtype).execute(), lg.KernelCheckError, match=f"does not fit {dtype}")
    refuses(lambda: lg.jit(lambda x: lg.astype(x, dtype))(x).execute(), lg.KernelCheckError)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_nan_and_infinity_do_not_become_integers_by_any_other_way(value):
    refuses(lambda: lg.asarray([value], dtype=lg.int32))
    refuses(lambda: lg.full(3, value, dtype=lg.int32))
    refuses(lambda: assigned(numbers(), 0, value))
    refuses(lambda: assigned(numbers(), 0, np.float32(value)))
    refuses(lambda: numbers().fill(value))
    refuses(lambda: int(lg.asarray(value)), ValueError, OverflowError)
    refuses(lambda: (numbers() + lg.astype(lg.asarray(value), lg.int64)).execute())


DIVISIONS = {
    "by a tensor": lambda a: a // lg.asarray([1, 0, 1]),
    "by a number": lambda a: a // 0,
    "remainder by a tensor": lambda a: a % lg.asarray([1, 0, 1]),
    "remainder by a number": lambda a: lg.remainder(a, 0),
    "of unsigned": lambda a: lg.astype(a, lg.uint8) // lg.asarray([0, 1, 1], dtype=lg.uint8),
    "to a negative power": lambda a: a ** lg.asarray([-1, 1, 1]),
    "behind jit": lambda a: lg.jit(lambda a, b: a // b)(a, lg.asarray([1, 0, 1])),
    "behind vmap": lambda a: lg.vmap(lambda a, b: a // b)(a, lg.asarray([1, 0, 1])),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("divide", DIVISIONS.values(), ids=DIVISIONS)
def test_integer_division_by_zero_raises(divide, device):
    refuses(lambda: divide(numbers().to(device)).execute(), lg.KernelCheckError)


def test_floats_divided_by_zero_follow_ieee():
    np.testing.assert_array_equal((numbers() / 0).numpy(), [INF, INF, INF])
    np.testing.assert_array_equal((lg.asarray([0.0, -1.0]) / 0.0).numpy(), [NAN, -INF])


def test_integers_wrap_as_documented():
    assert lg.astype(lg.asarray([300]), lg.int8).tolist() == [44]
    assert (lg.asarray([-(2**63)]) // -1).tolist() == [-(2**63)]
    assert (lg.asarray([127], dtype=lg.int8) + lg.asarray([1], dtype=lg.int8)).tolist() == [-128]


def test_a_failed_check_leaves_no_value_behind():
    bad = numbers() // lg.asarray([1, 0, 1])
    for _ in range(2):
        refuses(bad.execute, lg.KernelCheckError)
    assert not bad.is_computed
    refuses(lambda: (bad * 0).numpy(), lg.KernelCheckError)


# --- one value where one is needed -----------------------------------------------------------------------------------

ONE_VALUE = {
    "item": lambda: matrix().item(),
    "float": lambda: float(matrix()),
    "int": lambda: int(matrix()),
    "bool": lambda: bool(matrix()),
    "index by a float": lambda: [1, 2][lg.asarray(1.0)],
    "length": lambda: len(lg.asarray(1.0)),
    "iteration": lambda: list(lg.asarray(1.0)),
    "backward": lambda: (matrix() * 2.0).backward(),
    "a gradient of many": lambda: lg.grad(lambda x: x)(matrix()),
    "a branch by many": lambda: lg.cond(matrix() > 0, lambda: 1.0, lambda: 2.0),
    "a truth value while tracing": lambda: lg.jit(lambda x: x if lg.sum(x) > 0 else -x)(matrix()),
}


@pytest.mark.parametrize("action", ONE_VALUE.values(), ids=ONE_VALUE)
def test_several_values_raise_where_one_is_needed(action):
    refuses(action)


# --- memory ----------------------------------------------------------------------------------------------------------

FREED: dict[str, Callable[[lg.Tensor], Any]] = {
    "add": lambda x: x + 1.0,
    "add to": lambda x: lg.ones(3) + x,
    "function": lg.sum,
    "shape": lambda x: x.shape,
    "read": lambda x: x.numpy(),
    "index": lambda x: x[0],
    "as an index": lambda x: lg.ones(3)[x],
    "assign": lambda x: assigned(x, 0, 1.0),
    "fill": lambda x: x.fill(1.0),
    "execute": lambda x: x.execute(),
    "jit": lg.jit(lambda x: x * 2.0),
    "gradient": lg.grad(lg.sum),
    "graph": lambda x: x.graph.nodes,
    "asarray": lg.asarray,
    "in a list": lambda x: lg.asarray([x]),
    "compare": lambda x: x == x,
    "length": len,
    "truth": bool,
    "free twice and use": lambda x: (x.free(), x.execute()),
}


@pytest.mark.parametrize("use", FREED.values(), ids=FREED)
def test_using_a_freed_tensor_raises(use):
    refuses(lambda: use(freed()), lg.UsageError, match="freed")


def test_freeing_a_tensor_keeps_tensors_computed_from_it():
    x = lg.asarray([1.0, 2.0])
    y = x * 3.0
    x.free()
    assert y.tolist() == [3.0, 6.0]


def test_shared_memory_cannot_go_away_while_a_tensor_reads_it():
    memory = mmap.mmap(-1, 4096)
    x = lg.asarray(np.frombuffer(memory, np.float32, 4), copy=False)
    y = x + 1.0
    with pytest.raises(BufferError):
        memory.close()
    assert y.tolist() == [1.0] * 4
    x.free()
    refuses(lambda: x + 1.0, match="freed")


UPDATES = {
    "another shape": lambda: lg.ones(3).__iadd__(lg.ones((2, 3))),  # type: ignore[attr-defined]
    "another type": lambda: numbers().__iadd__(lg.ones(3)),  # type: ignore[attr-defined]
    "a float into integers": lambda: numbers().__iadd__(1.5),  # type: ignore[attr-defined]
    "a quotient into integers": lambda: numbers().__itruediv__(2),  # type: ignore[attr-defined]
    "a product of another shape": lambda: lg.ones((2, 3)).__imatmul__(lg.ones((3, 4))),  # type: ignore[attr-defined]
    "fill of a computed tensor": lambda: (matrix() + 1.0).fill(1.0),
    "fill of shared memory": lambda: lg.asarray(np.ones(3, np.float32), copy=False).fill(1.0),
    "random integers": lambda: numbers().fill_random(),
    "a gradient for a tensor that is not a variable": lambda: setattr(matrix(), "grad", matrix()),
}


@pytest.mark.parametrize("action", UPDATES.values(), ids=UPDATES)
def test_an_invalid_update_raises(action):
    refuses(action)


def test_a_rejected_update_changes_nothing():
    x = numbers()
    refuses(lambda: x.__itruediv__(2))  # type: ignore[attr-defined]
    refuses(lambda: assigned(x, 0, 1.5))
    refuses(lambda: assigned(x, 7, 1))
    assert x.tolist() == [1, 2, 3]
    assert x.dtype is lg.int64


# --- things of the wrong kind ----------------------------------------------------------------------------------------

WRONG_KINDS: dict[str, Callable[[], Any]] = {
    "nothing to join": lambda: lg.concat(5),  # type: ignore[arg-type]
    "a shift by half": lambda: lg.roll(matrix(), 1.5),  # type: ignore[arg-type]
    "argnums by name": lambda: lg.grad(lg.sum, argnums="x")(matrix()),  # type: ignore[arg-type]
    "arguments that are no sequence": lambda: lg.jvp(lg.sin, matrix(), matrix()),  # type: ignore[call-overload]
    "not a block": lambda: lg.Engine().add(5),  # type: ignore[type-var]
    "no pin": lambda: lg.Engine().read("a"),  # type: ignore[arg-type]
    "no block to edit": lambda: lg.live.edit(lg.Engine(), 5, lambda x: x),  # type: ignore[arg-type]
    "no function of the IR": lambda: lg.ir.compile(lambda x: x),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", WRONG_KINDS)
def test_an_argument_of_the_wrong_kind_raises_at_the_call(case):
    refuses(WRONG_KINDS[case], lg.UsageError)


def test_argnums_may_be_a_number_of_numpy():
    assert lg.grad(lambda x, y: lg.sum(x * y), argnums=np.int64(1))(matrix(), matrix()).shape == (2, 3)  # type: ignore[call-overload]
