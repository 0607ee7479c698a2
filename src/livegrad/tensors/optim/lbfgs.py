"""Limited-memory BFGS over pytrees, and what a minimisation returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.tensors import creation
from livegrad.tensors.handle import Tensor
from livegrad.tensors.jit import jit
from livegrad.tensors.optim.checks import require_arguments, require_count, require_settings
from livegrad.tensors.pytrees import flatten, unflatten
from livegrad.tensors.transforms import value_and_grad
from livegrad.tensors.tree_functions import tree_map

Tree = Any


def as_float_tensor(leaf: Any) -> Tensor:
    """A leaf as a tensor of floats, the only numbers that can be minimised."""
    tensor = leaf if isinstance(leaf, Tensor) else creation.asarray(leaf)
    if tensor.dtype.kind != "float":
        raise UsageError(
            "only floats can be minimised",
            where=caller_origin(),
            found=tensor.dtype.long_name,
            help="pass the others as arguments=(...), or real and imaginary parts",
        )
    return tensor


@dataclass(frozen=True)
class Minimum:
    """The result of a minimisation: the parameters, the loss at each step, and whether it converged.

    >>> import livegrad as lg
    >>> found = lg.optim.minimize(lambda x: (x - 3.0) ** 2, lg.asarray(0.0), lg.optim.SGD(0.5), steps=3)
    >>> found.parameters
    Tensor(3., dtype=float32)
    """

    parameters: Tree
    losses: list[float]
    converged: bool

    def __repr__(self) -> str:
        course = f", loss {self.losses[0]:.3g} → {self.losses[-1]:.3g}" if self.losses else ""
        ended = ", converged" if self.converged else ""
        return f"<minimum after {len(self.losses)} steps{course}{ended}: {self.parameters!r}>"


@dataclass(frozen=True)
class LBFGS:
    """Limited-memory BFGS with a line search, for smooth losses.

    >>> import livegrad as lg
    >>> def rosenbrock(p):
    ...     return (1.0 - p[0]) ** 2 + 100.0 * (p[1] - p[0] ** 2) ** 2
    >>> found = lg.optim.LBFGS().minimize(rosenbrock, lg.asarray([-1.0, 2.0], dtype=lg.float64))
    >>> found.converged, [round(x, 4) for x in found.parameters.tolist()]
    (True, [1.0, 1.0])
    """

    history: int = 10
    steps: int = 200
    tolerance: float = 1e-6
    most_tries: int = 30  # evaluations of the line search per step

    def __post_init__(self) -> None:
        require_settings(tolerance=self.tolerance)
        for count in (self.history, self.steps, self.most_tries):
            require_count(count)

    def minimize(
        self,
        loss: Callable[..., Any],
        parameters: Tree,
        arguments: tuple[Any, ...] = (),
        *,
        progress: Callable[[int, float], None] | None = None,
    ) -> Minimum:
        """Minimises `loss(parameters, *arguments)` until the gradient is small or no step improves the loss."""
        require_arguments(arguments)
        leaves, structure = flatten(tree_map(as_float_tensor, parameters))
        compiled = jit(value_and_grad(loss))

        def evaluate(point: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
            value, gradients = compiled(unflatten(structure, _split(point, leaves)), *arguments)
            return float(value), _join(flatten(gradients)[0])

        point, losses, converged = self._descend(evaluate, _join(leaves), progress)
        return Minimum(unflatten(structure, _split(point, leaves)), losses, converged)

    def _descend(
        self,
        evaluate: Callable[[Any], tuple[float, Any]],
        point: np.ndarray[Any, Any],
        progress: Callable[[int, float], None] | None,
    ) -> tuple[np.ndarray[Any, Any], list[float], bool]:
        value, gradient = evaluate(point)
        losses, pairs = [value], []
        for index in range(self.steps):
            if np.max(np.abs(gradient), initial=0.0) <= self.tolerance:
                return point, losses, True
            direction = -_precondition(gradient, pairs)
            step = self._search(evaluate, point, value, gradient, direction)
            if step is None:
                return point, losses, False
            new_point, value, slope = step
            difference, change = new_point - point, slope - gradient
            if difference @ change > 1e-12 * np.linalg.norm(difference) * np.linalg.norm(change):
                pairs = [*pairs, (difference, change)][-self.history :]
            point, gradient = new_point, slope
            losses.append(value)
            if progress is not None:
                progress(index, value)
        return point, losses, False

    def _search(self, evaluate: Any, point: Any, value: float, gradient: Any, direction: Any) -> Any:
        """Finds a step along the direction that satisfies the Wolfe conditions: sufficient decrease and curvature."""
        slope = float(gradient @ direction)
        if slope >= 0.0:
            direction, slope = -gradient, -float(gradient @ gradient)
        low, high, size, best = 0.0, np.inf, 1.0, None
        for _ in range(self.most_tries):
            new_point = point + size * direction
            new_value, gradient_there = evaluate(new_point)
            if not np.isfinite(new_value) or new_value > value + 1e-4 * size * slope:
                high = size
            else:
                best = (new_point, new_value, gradient_there)
                if gradient_there @ direction >= 0.9 * slope:
                    return best
                low = size
            size = 2.0 * low if np.isinf(high) else (low + high) / 2.0
        return best


def _precondition(gradient: Any, pairs: list[Any]) -> Any:
    """Applies the inverse Hessian estimate to the gradient with the two-loop recursion."""
    result, weights = gradient.copy(), []
    for difference, change in reversed(pairs):
        weight = (difference @ result) / (difference @ change)
        result -= weight * change
        weights.append(weight)
    if pairs:
        difference, change = pairs[-1]
        result *= (difference @ change) / (change @ change)
    else:
        result /= max(1.0, float(np.linalg.norm(gradient)))
    for (difference, change), weight in zip(pairs, reversed(weights), strict=True):
        result += difference * (weight - (change @ result) / (difference @ change))
    return result


def _join(leaves: list[Any]) -> np.ndarray[Any, Any]:
    if not leaves:
        raise UsageError("there is nothing to minimise", where=caller_origin(), help="pass a tensor or a pytree")
    return np.concatenate([np.asarray(leaf.numpy(), np.float64).reshape(-1) for leaf in leaves])


def _split(point: np.ndarray[Any, Any], leaves: list[Any]) -> list[Tensor]:
    parts, start = [], 0
    for leaf in leaves:
        size = int(np.prod(leaf.shape))
        parts.append(creation.asarray(point[start : start + size].reshape(leaf.shape), dtype=leaf.dtype))
        start += size
    return parts
