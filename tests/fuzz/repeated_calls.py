"""Random calls of the functions that `tensors/repeated_calls.py` memoises, with arguments that are easily confused.

Each program calls a few expressions many times, with other data of the same types each time, so that calls are learned
from some arguments and repeated with others. Arguments are equal expressions, aliases, expressions of one another,
constants, and numbers that Python holds for equal. The oracle is the same program without memoised calls. Values agree
up to rounding: without memoised calls, an op is fused with the constants and transposes that it takes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

import livegrad as lg
from livegrad.state import fresh_session
from livegrad.tensors import repeated_calls
from livegrad.tensors.repeated_calls import RepeatedCalls
from tests.fuzz.repeated_call_texts import TENSORS, random_calls

DTYPES = [lg.float32, lg.float64, lg.int32, lg.int64, lg.bool, lg.complex64, lg.float16, lg.bfloat16, lg.uint8]
SHAPES = [(3,), (3, 3), (2, 3), (), (3,)]
ROUNDS = 4
SHORT = 12
Outcomes = list[tuple[str, Any]]


def run_one(seed: int, calls: int = 8) -> Mapping[str, int]:
    """Runs one program with and without memoised calls; counts how many were repeated."""
    with without_memoised_calls(), fresh_session():
        expected = outcomes_of(seed, calls)
    with fresh_session():
        found = outcomes_of(seed, calls)
        learned = [call is not None for call, _ in repeated_calls._calls.current.calls.values()]
    for (text, value), (_, oracle) in zip(found, expected, strict=True):
        assert _agree(value, oracle), f"seed {seed}: {text}\nmemoised:     {value}\nnot memoised: {oracle}"
    errors = sum(isinstance(value, Exception) for _, value in found)
    return {"calls": len(found), "errors": errors, "learned": sum(learned), "refused": len(learned) - sum(learned)}


@contextmanager
def without_memoised_calls() -> Iterator[None]:
    """Inside, no function call is learned or repeated."""
    find = RepeatedCalls.find
    RepeatedCalls.find = lambda self, args, kwargs: (None, None)  # type: ignore[method-assign]
    try:
        yield
    finally:
        RepeatedCalls.find = find  # type: ignore[method-assign]


def outcomes_of(seed: int, length: int) -> Outcomes:
    """Returns what the calls of a program give, with their text."""
    choose, numbers = random.Random(seed), np.random.default_rng(seed)
    kinds = [(choose.choice(DTYPES), choose.choice(SHAPES)) for _ in range(3)]
    if choose.random() < 0.7:  # of one type, arguments are confused most easily
        kinds = [(kinds[0][0], shape if choose.random() < 0.5 else kinds[0][1]) for _, shape in kinds]
    texts = random_calls(choose, length)
    outcomes: Outcomes = []
    for _ in range(ROUNDS * length):
        text = choose.choice(texts)
        transform = choose.choices(["", "backward", "jit", "grad", "vmap"], [40, 2, 1, 1, 1])[0]
        aliases = [choose.randrange(5) for _ in range(3)]
        read_first = [choose.random() < 0.5 for _ in TENSORS]
        pool = [_random_data(numbers, *kind) for kind in kinds]
        pool += [[pool[0], pool[1], pool[0] * 2.0, pool[1] * 2.0, pool[2]][alias] for alias in aliases]
        for tensor, is_read in zip(pool, read_first, strict=True):
            if is_read:
                tensor.numpy()
        outcomes.append((f"{transform} {text}", _outcome_of(text, transform, pool)))
    return outcomes


def _random_data(numbers: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> lg.Tensor:
    values = numbers.integers(0 if dtype.kind in ("unsigned", "bool") else -3, 4, shape).astype(np.float64)
    if dtype.kind in ("float", "complex"):
        values = values + numbers.choice([0.25, -0.5, 0.0], shape)
    return lg.astype(lg.asarray(values), dtype)


def _outcome_of(text: str, transform: str, pool: list[lg.Tensor]) -> Any:
    def call(*tensors: lg.Tensor) -> Any:
        return eval(text, {"lg": lg, **dict(zip(TENSORS, tensors, strict=True))})

    try:
        if transform == "":
            return _read(call(*pool))
        if transform == "backward":
            return _read(_run_backward(call, pool))
        return _read(_transformed(call, transform, pool))
    except (lg.LivegradError, TypeError, AttributeError) as error:
        return error


def _transformed(call: Any, transform: str, pool: list[lg.Tensor]) -> Any:
    if transform == "jit":
        return lg.jit(call)(*pool)
    if transform == "vmap":
        return lg.vmap(call)(*[lg.stack([x, x]) for x in pool])
    floats = tuple(index for index, x in enumerate(pool) if x.dtype.kind == "float")
    return lg.grad(lambda *tensors: lg.sum(lg.real(call(*tensors))), argnums=floats[:2])(*pool) if floats else None


def _run_backward(call: Any, pool: list[lg.Tensor]) -> Any:
    """The gradients of a call with variables among its tensors."""
    variables = [lg.asarray(x.numpy()).requires_grad_() for x in pool[:2] if x.dtype in (lg.float32, lg.float64)]
    lg.sum(lg.real(call(*variables, *pool[len(variables) :]))).backward()
    return [variable.grad for variable in variables]


def _read(result: Any) -> Any:
    if isinstance(result, lg.Tensor):
        return result.dtype, result.numpy()
    if isinstance(result, list | tuple):
        return [_read(item) for item in result]
    return result


def _agree(value: Any, oracle: Any) -> bool:
    """Whether two outcomes have the same types, shapes and error texts, and the same values up to rounding."""
    if isinstance(value, list) and isinstance(oracle, list):
        return len(value) == len(oracle) and all(map(_agree, value, oracle))
    if isinstance(value, tuple) and isinstance(oracle, tuple):
        (element, array), (_, expected) = value, oracle
        same = element is oracle[0] and array.shape == expected.shape
        return same and _are_close(element, lg.asarray(array), lg.asarray(expected))
    return type(value) is type(oracle) and str(value) == str(oracle)


def _are_close(element: Any, value: lg.Tensor, oracle: lg.Tensor) -> bool:
    exact, kind = value.numpy().tobytes() == oracle.numpy().tobytes(), element.kind
    if exact or kind not in ("float", "complex"):
        return exact
    wide = lg.complex128 if kind == "complex" else lg.float64
    numbers, expected = lg.astype(value, wide).numpy(), lg.astype(oracle, wide).numpy()
    return np.allclose(
        numbers, expected, rtol=16 * lg.finfo(element).eps, atol=16 * lg.finfo(element).eps, equal_nan=True
    )
