"""Library functions for captured functions, with their implementations for plain Python.

Inside a captured function, the compiler recognises each as an intrinsic. Outside, they accept NumPy values and lazy
tensors, whose last axis (the last two, for matrices) holds the components; the result is then a lazy tensor.
"""

from __future__ import annotations

import builtins
import copy as copying
import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from livegrad.frontend.function.vectors import VectorValue
from livegrad.tensors import arithmetic, linalg, norms, products, transforms
from livegrad.tensors.comparison import less
from livegrad.tensors.creation import ones_like, zeros_like
from livegrad.tensors.handle import Tensor
from livegrad.tensors.selection import where

Item = TypeVar("Item")
_Function = TypeVar("_Function", bound=Callable[..., Any])


def named_intrinsic(name: str) -> Callable[[_Function], _Function]:
    """Marks a Python function as the intrinsic of this name."""

    def mark(function: _Function) -> _Function:
        function.__livegrad_intrinsic__ = name  # type: ignore[attr-defined]
        return function

    return mark


def on_tensors(lazily: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Gives a function an implementation for calls with a lazy tensor among the arguments."""

    def choose(function: _Function) -> _Function:
        signature = inspect.signature(function)

        @wraps(function)
        def dispatch(*values: Any, **keywords: Any) -> Any:
            if keywords:
                values = signature.bind(*values, **keywords).args
            is_lazy = builtins.any(isinstance(value, Tensor) for value in values)
            return lazily(*values) if is_lazy else function(*values)

        return dispatch  # type: ignore[return-value]

    return choose


def _step_of_tensors(edge: Any, x: Any) -> Tensor:
    like = x if isinstance(x, Tensor) else edge
    return where(less(x, edge), zeros_like(like), ones_like(like))


def _vector(value: Any) -> Any:
    array = np.asarray(value)
    return array.view(VectorValue) if array.ndim else array[()]


def _extremum(values: Sequence[Any], is_better: Any, of_numbers: Callable[..., Any]) -> Any:
    """The minimum or maximum of several values, or of one sequence; of equal values, the first."""
    if len(values) == 1:
        return _extremum(tuple(values[0]), is_better, of_numbers)
    best = values[0]
    for value in values[1:]:
        best = np.where(is_better(value, best), value, best)
    return _vector(best) if np.ndim(best) else of_numbers(*values)


@named_intrinsic("max")
def max(*values: Any) -> Any:
    """The largest value, like Python's `max`; vectors are compared component by component.

    >>> float(max(1.0, 3.0))
    3.0
    """
    return _extremum(values, np.greater, builtins.max)


@named_intrinsic("min")
def min(*values: Any) -> Any:
    """The smallest value, like Python's `min`; vectors are compared component by component.

    >>> float(min(1.0, 3.0))
    1.0
    """
    return _extremum(values, np.less, builtins.min)


@named_intrinsic("clamp")
@on_tensors(lambda x, low, high: arithmetic.minimum(arithmetic.maximum(x, low), high))
def clamp(x: Any, low: Any, high: Any) -> Any:
    """Limits a value to a range.

    >>> float(clamp(5.0, 0.0, 1.0))
    1.0
    """
    return _vector(np.minimum(np.maximum(x, low), high))


@named_intrinsic("mix")
def mix(a: Any, b: Any, t: Any) -> Any:
    """Interpolates linearly from a (t = 0) to b (t = 1).

    >>> mix(2.0, 4.0, 0.25)
    2.5
    """
    return a + (b - a) * t


@named_intrinsic("step")
@on_tensors(_step_of_tensors)
def step(edge: Any, x: Any) -> Any:
    """0 below the edge, 1 at the edge and above.

    >>> float(step(0.5, 0.5))
    1.0
    """
    return _vector(np.where(np.less(x, edge), 0.0, 1.0))


@named_intrinsic("smoothstep")
def smoothstep(low: Any, high: Any, x: Any) -> Any:
    """A smooth step from 0 at `low` to 1 at `high`.

    >>> float(smoothstep(0.0, 1.0, 0.5))
    0.5
    """
    t = clamp((x - low) / (high - low), 0.0, 1.0)
    return t * t * (3.0 - 2.0 * t)


@named_intrinsic("select")
@on_tensors(where)
def select(condition: Any, then: Any, otherwise: Any) -> Any:
    """Selects one of two values. Both are computed.

    >>> float(select(True, 1.0, 2.0))
    1.0
    """
    return _vector(np.where(condition, then, otherwise))


@named_intrinsic("dot")
@on_tensors(products.dot)
def dot(a: Any, b: Any) -> Any:
    """The inner product of two vectors. Matrices and tensors follow NumPy's `dot`; `lg.vecdot` works along one axis.

    >>> float(dot([1.0, 2.0], [3.0, 4.0]))
    11.0
    """
    return np.dot(np.asarray(a), np.asarray(b))


@named_intrinsic("cross")
@on_tensors(linalg.cross)
def cross(a: Any, b: Any) -> Any:
    """The cross product of two vectors.

    >>> cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]).tolist()
    [0.0, 0.0, 1.0]
    """
    return _vector(np.cross(np.asarray(a), np.asarray(b)))


@named_intrinsic("length")
@on_tensors(lambda v: norms.vector_norm(v, axis=-1))
def length(v: Any) -> Any:
    """The length of a vector.

    >>> float(length([3.0, 4.0]))
    5.0
    """
    return np.sqrt(np.dot(np.asarray(v), np.asarray(v)))


@named_intrinsic("normalize")
@on_tensors(lambda v: v / norms.vector_norm(v, axis=-1, keepdims=True))
def normalize(v: Any) -> Any:
    """Scales a vector to length one.

    >>> normalize([0.0, 2.0]).tolist()
    [0.0, 1.0]
    """
    return _vector(np.asarray(v) / length(v))


@named_intrinsic("determinant")
@on_tensors(linalg.det)
def determinant(m: Any) -> Any:
    """The determinant of a small matrix.

    >>> import livegrad as lg
    >>> float(determinant(lg.mat2(2.0, 0.0, 0.0, 3.0)))
    6.0
    """
    return np.linalg.det(np.asarray(m))


@named_intrinsic("inverse")
@on_tensors(linalg.inv)
def inverse(m: Any) -> Any:
    """The inverse of a small matrix.

    >>> import livegrad as lg
    >>> inverse(lg.mat2(2.0, 0.0, 0.0, 4.0)).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return _vector(np.linalg.inv(np.asarray(m)))


@named_intrinsic("transpose")
@on_tensors(products.matrix_transpose)
def transpose(m: Any) -> Any:
    """The transpose of a small matrix."""
    return _vector(np.transpose(np.asarray(m)))


@named_intrinsic("fract")
@on_tensors(lambda x: x - arithmetic.floor(x))
def fract(x: Any) -> Any:
    """The fractional part: x - floor(x).

    >>> float(fract(-0.25))
    0.75
    """
    return _vector(np.asarray(x) - np.floor(x))


@named_intrinsic("sign")
def sign(x: Any) -> Any:
    """-1, 0 or 1."""
    return _vector(np.sign(x))


@named_intrinsic("detach")
@on_tensors(transforms.stop_gradient)
def detach(x: Item) -> Item:
    """Returns the value without its derivative.

    >>> detach(2.0)
    2.0
    """
    return x


@named_intrinsic("copy")
def copy(x: Item) -> Item:
    """Returns an independent copy of a value.

    >>> a = [[1.0, 2.0], [3.0, 4.0]]
    >>> b = copy(a)
    >>> b[0][0] = 5.0
    >>> a
    [[1.0, 2.0], [3.0, 4.0]]
    """
    if isinstance(x, list | tuple):
        return type(x)(map(copy, x))  # type: ignore[return-value]
    return x.copy() if hasattr(x, "copy") else copying.copy(x)  # type: ignore[attr-defined]


@named_intrinsic("unroll")
def unroll(values: Iterable[Item]) -> Iterable[Item]:
    """Iterates over a static number of values; the compiler unrolls the loop.

    >>> list(unroll(range(2)))
    [0, 1]
    """
    return values


@named_intrinsic("parallel")
def parallel(start: int, stop: int | None = None) -> range:
    """The indices of a loop whose iterations are independent and may run in any order.

    Two iterations must not write the same element of an array; `a[k] += x` adds in the order of the iterations. The
    compiler rejects loops that provably break this rule, and `f.debug(...)` finds the others at run time.

    >>> list(parallel(3)), list(parallel(1, 3))
    ([0, 1, 2], [1, 2])
    """
    return range(start) if stop is None else range(start, stop)


@named_intrinsic("bounded")
def bounded(condition: Any, limit: int) -> Any:
    """`while bounded(condition, limit)`: a loop condition with a maximum number of iterations.

    Exceeding the limit is an error. The limit also bounds what reverse mode stores.

    >>> bounded(1.0 < 2.0, 100)
    True
    """
    return condition
