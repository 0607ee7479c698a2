"""The array-library interface of the programs: NumPy here, JAX and PyTorch in `peers`.

A library that has these names can run every program in `programs`."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

State = tuple[Any, ...]


class Arrays(Protocol):
    """Functions on arrays, and control flow over tuples of them; `axis` is always a number."""

    exp: Callable[[Any], Any]
    log: Callable[[Any], Any]
    sqrt: Callable[[Any], Any]
    sin: Callable[[Any], Any]
    cos: Callable[[Any], Any]
    where: Callable[[Any, Any, Any], Any]

    def array(self, values: Any) -> Any: ...
    def sum(self, x: Any, axis: int | None = None) -> Any: ...
    def max(self, x: Any, axis: int) -> Any: ...
    def min(self, x: Any, axis: int) -> Any: ...
    def product(self, x: Any, axis: int) -> Any: ...
    def stack(self, parts: Sequence[Any], axis: int = 0) -> Any: ...
    def concatenate(self, parts: Sequence[Any], axis: int = 0) -> Any: ...
    def swap(self, x: Any) -> Any: ...
    def zeros_like(self, x: Any) -> Any: ...
    def fixed(self, x: Any) -> Any: ...
    def repeat(self, count: int, body: Callable[[Any], Any], start: Any) -> Any: ...
    def loop(self, go_on: Callable[..., Any], body: Callable[..., State], start: State) -> State: ...
    def gradient(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]: ...
    def choose(self, condition: Any, then: Callable[[], State], otherwise: Callable[[], State]) -> State: ...


class NumpyArrays:
    """NumPy on real and complex numbers: a complex step gives derivatives without cancellation."""

    exp, log, sqrt, sin, cos = np.exp, np.log, np.sqrt, np.sin, np.cos
    where: Any = staticmethod(np.where)
    array: Any = staticmethod(np.asarray)
    sum: Any = staticmethod(np.sum)
    max: Any = staticmethod(np.max)
    min: Any = staticmethod(np.min)
    product: Any = staticmethod(np.prod)
    stack: Any = staticmethod(np.stack)
    concatenate: Any = staticmethod(np.concatenate)
    zeros_like: Any = staticmethod(np.zeros_like)

    def swap(self, x: Any) -> Any:
        """Swaps the last two axes."""
        return np.swapaxes(x, -1, -2)

    def fixed(self, x: Any) -> Any:
        """A value without a derivative."""
        return np.real(x)

    def repeat(self, count: int, body: Callable[[Any], Any], start: Any) -> Any:
        for _ in range(count):
            start = body(start)
        return start

    def loop(self, go_on: Callable[..., Any], body: Callable[..., State], start: State) -> State:
        while go_on(*start):
            start = body(*start)
        return start

    def gradient(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Fourth-order differences, which can be nested in a complex step."""

        def at(x: Any) -> Any:
            step = 1e-3
            moves = step * np.eye(len(x))
            near = [function(x + move) - function(x - move) for move in moves]
            far = [function(x + 2 * move) - function(x - 2 * move) for move in moves]
            return np.stack([(8 * a - b) / (12 * step) for a, b in zip(near, far, strict=True)])

        return at

    def choose(self, condition: Any, then: Callable[[], State], otherwise: Callable[[], State]) -> State:
        return then() if condition else otherwise()


NUMPY = NumpyArrays()
