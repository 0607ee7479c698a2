"""Optimizers over pytrees: pure functions from parameters, gradients and state to new parameters and state.

They work inside `jit` and are differentiable; `minimize` runs one with a compiled step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.types import Scalar
from livegrad.tensors import creation
from livegrad.tensors.data_types import astype
from livegrad.tensors.dtypes import DEFAULT_FLOAT
from livegrad.tensors.handle import Tensor
from livegrad.tensors.jit import jit
from livegrad.tensors.optimizer_checks import (
    require_arguments,
    require_count,
    require_decays,
    require_optimizer,
    require_same_shapes,
    require_settings,
)
from livegrad.tensors.pytrees import flatten, unflatten
from livegrad.tensors.transcendental import expm1, sqrt
from livegrad.tensors.transforms import value_and_grad
from livegrad.tensors.tree_functions import tree_map

__all__ = ["LBFGS", "SGD", "Adam", "Minimum", "Optimizer", "minimize"]

Tree = Any


def __dir__() -> list[str]:
    """Lists the public names only, for tab completion."""
    return __all__


class Optimizer(Protocol):
    """The interface of optimizers: an initial state and one step.

    >>> import livegrad as lg
    >>> optimizer: Optimizer = lg.optim.SGD(0.5)
    >>> x = lg.asarray([4.0])
    >>> optimizer.update(x, 2.0 * x, optimizer.init(x))[0]
    Tensor([0.], dtype=float32)
    """

    def init(self, parameters: Tree) -> Tree:
        """Returns the state before the first step."""
        ...

    def update(self, parameters: Tree, gradients: Tree, state: Tree) -> tuple[Tree, Tree]:
        """Returns (new parameters, new state) after one step along the negative gradients."""
        ...


@dataclass(frozen=True)
class SGD:
    """Gradient descent with optional momentum and weight decay.

    >>> import livegrad as lg
    >>> optimizer, x = lg.optim.SGD(0.25), lg.asarray([4.0])
    >>> optimizer.update(x, 2.0 * x, optimizer.init(x))[0]
    Tensor([2.], dtype=float32)
    """

    learning_rate: float = 0.01
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        require_settings(learning_rate=self.learning_rate, weight_decay=self.weight_decay)
        require_decays(momentum=self.momentum)

    def init(self, parameters: Tree) -> Tree:
        return None if not self.momentum else tree_map(creation.zeros_like, parameters)

    def update(self, parameters: Tree, gradients: Tree, state: Tree) -> tuple[Tree, Tree]:
        require_same_shapes(parameters, gradients)
        if self.weight_decay:
            gradients = tree_map(lambda g, p: g + self.weight_decay * p, gradients, parameters)
        if not self.momentum:
            return tree_map(lambda p, g: p - self.learning_rate * g, parameters, gradients), state
        velocity = tree_map(lambda v, g: self.momentum * v + g, state, gradients)
        if self.nesterov:
            gradients = tree_map(lambda g, v: g + self.momentum * v, gradients, velocity)
        else:
            gradients = velocity
        return tree_map(lambda p, g: p - self.learning_rate * g, parameters, gradients), velocity


@dataclass(frozen=True)
class Adam:
    """Adam with optional decoupled weight decay (AdamW).

    >>> import livegrad as lg
    >>> optimizer, x = lg.optim.Adam(0.5), lg.asarray([4.0])
    >>> optimizer.update(x, 2.0 * x, optimizer.init(x))[0]
    Tensor([3.5], dtype=float32)
    """

    learning_rate: float = 0.001
    decay: float = 0.9
    square_decay: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        require_settings(learning_rate=self.learning_rate, epsilon=self.epsilon, weight_decay=self.weight_decay)
        require_decays(decay=self.decay, square_decay=self.square_decay)

    def init(self, parameters: Tree) -> Tree:
        zeros = tree_map(lambda p: creation.zeros_like(p, dtype=_averaging_type(p)), parameters)
        return {"step": creation.asarray(0), "mean": zeros, "square": zeros}

    def update(self, parameters: Tree, gradients: Tree, state: Tree) -> tuple[Tree, Tree]:
        require_same_shapes(parameters, gradients)
        gradients = tree_map(lambda g: astype(g, _averaging_type(g)), gradients)
        step = state["step"] + 1
        mean = tree_map(lambda m, g: self.decay * m + (1.0 - self.decay) * g, state["mean"], gradients)
        square = tree_map(
            lambda s, g: self.square_decay * s + (1.0 - self.square_decay) * g * g, state["square"], gradients
        )

        def move(p: Tensor, m: Tensor, s: Tensor) -> Tensor:
            count = astype(step, m.dtype)
            # Bias correction: both averages start at zero.
            m = m / _bias_correction(self.decay, count)
            s = s / _bias_correction(self.square_decay, count)
            return astype(p - self.learning_rate * (m / (sqrt(s) + self.epsilon) + self.weight_decay * p), p.dtype)

        return tree_map(move, parameters, mean, square), {"step": step, "mean": mean, "square": square}


def _averaging_type(x: Any) -> Scalar:
    """Returns the type of averages: float32 for 16-bit floats, where epsilon rounds to zero and squares underflow."""
    dtype = x.dtype if isinstance(x, Tensor) else DEFAULT_FLOAT
    return DEFAULT_FLOAT if dtype.kind == "float" and dtype.bits == 16 else dtype


def _bias_correction(decay: Any, count: Tensor) -> Tensor | float:
    """Computes 1 - decay**count without cancellation for decays near one."""
    if isinstance(decay, Tensor):
        return 1.0 - decay**count
    return 1.0 if decay == 0.0 else -expm1(count * math.log(decay))


def _as_float_tensor(leaf: Any) -> Tensor:
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


def minimize(
    loss: Callable[..., Any],
    parameters: Tree,
    optimizer: Optimizer | LBFGS | None = None,
    *,
    steps: int | None = None,
    arguments: tuple[Any, ...] = (),
    progress: Callable[[int, float], None] | None = None,
) -> Minimum:
    """Minimises `loss(parameters, *arguments)` with an optimizer (by default Adam). Each step is one compiled function.

    The default is 100 steps. `LBFGS` stops when it has converged, after at most its own `steps`.

    >>> import livegrad as lg
    >>> found = lg.optim.minimize(lambda x: lg.sum((x - 3.0) ** 2), lg.zeros(2), lg.optim.SGD(0.25), steps=20)
    >>> round(float(found.parameters[0]), 4)
    3.0
    """
    require_arguments(arguments)
    if isinstance(optimizer, LBFGS):
        descent = optimizer if steps is None else replace(optimizer, steps=steps)
        return descent.minimize(loss, parameters, arguments, progress=progress)
    selected: Optimizer = Adam() if optimizer is None else require_optimizer(optimizer)
    parameters = tree_map(_as_float_tensor, parameters)
    steps = 100 if steps is None else steps
    require_count(steps)

    @jit
    def step(current: Tree, state: Tree, *arguments: Any) -> tuple[Any, Tree, Tree]:
        value, gradients = value_and_grad(loss)(current, *arguments)
        return value, *selected.update(current, gradients, state)

    state, losses = selected.init(parameters), []
    for index in range(steps):
        value, parameters, state = step(parameters, state, *arguments)
        losses.append(float(value))
        if progress is not None:
            progress(index, losses[-1])
    return Minimum(parameters, losses, False)


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
        leaves, structure = flatten(tree_map(_as_float_tensor, parameters))
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
