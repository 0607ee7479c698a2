"""The programs of the eager suite, in operators that all libraries have. In: a kind and vectors. Out: a run."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
NUMBERS = (1.25, -0.5, 3.0)


def node(x: Any, y: Any, maximum: Callable[[Any, Any], Any], steps: int) -> Any:
    return x + y


def element(x: Any, y: Any, maximum: Callable[[Any, Any], Any], steps: int) -> Any:
    return float(x[1])


def array(x: Any, y: Any, maximum: Callable[[Any, Any], Any], steps: int) -> Any:
    return np.asarray(x + y)


def total(x: Any, y: Any, maximum: Callable[[Any, Any], Any], steps: int) -> Any:
    return float((x + y).sum())


def loop(x: Any, y: Any, maximum: Callable[[Any, Any], Any], steps: int) -> Any:
    """Eight operations and five reads a time."""
    found = 0.0
    for _ in range(steps // 8):
        x = x * 0.5 + y
        found += float(x[0])
        larger = maximum(x, y)
        found += float(np.asarray(larger)[1])
        rest = x - larger
        found += float(rest.sum())
        found += float(np.asarray(-rest)[2])
        found += float((rest * rest).sum())
    return found


def chain(x: Any, y: Any, maximum: Callable[[Any, Any], Any], steps: int) -> Any:
    """Four operations a time, with a number that changes; the result is read at the end."""
    for step in range(steps // 4):
        x = x * (1.0 / (step + 2)) + y
        x = maximum(x, y) - 0.5
    return float(x[0])


def newton(x: Any, y: Any, maximum: Callable[[Any, Any], Any], steps: int) -> Any:
    """The cube roots of three numbers; each step reads how far it went."""
    root = y
    for _ in range(steps // 8):
        move = (root * root * root - y) / (root * root * 3.0)
        root = root - move
        if float((move * move).sum()) < 1e-20:
            break
    return float(root.sum())


def scalars(a: Any, b: Any, c: Any) -> Any:
    """What is compiled for `eager_scalars`."""
    return a * b + c


PROGRAMS: dict[str, Callable[..., Any]] = {
    "eager_node": node,
    "eager_element": element,
    "eager_array": array,
    "eager_sum": total,
    "eager_loop": loop,
    "eager_chain": chain,
    "eager_newton": newton,
}
KINDS = (*PROGRAMS, "eager_scalars")


def inputs() -> tuple[Array, Array]:
    return np.array([0.25, 1.5, -2.0], np.float32), np.array([4.0, -1.0, 0.5], np.float32)


def run_of(kind: str, steps: int, x: Any, y: Any, maximum: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    """A run of a program on a library's vectors, which were computed before."""
    program = PROGRAMS[kind]
    return lambda: program(x, y, maximum, steps)


def expected(kind: str, steps: int) -> Any:
    """What a run gives, in float64."""
    if kind == "eager_scalars":
        return np.float64(scalars(*NUMBERS))
    x, y = (vector.astype(np.float64) for vector in inputs())
    return PROGRAMS[kind](x, y, np.maximum, steps)
