"""`minimize`: runs an optimizer with one compiled function for each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from livegrad.tensors.jit import jit
from livegrad.tensors.optim.checks import require_arguments, require_count, require_optimizer
from livegrad.tensors.optim.descent import Adam
from livegrad.tensors.optim.lbfgs import LBFGS, Minimum, as_float_tensor
from livegrad.tensors.optim.optimizer import Optimizer, Tree
from livegrad.tensors.transforms import value_and_grad
from livegrad.tensors.tree_functions import tree_map


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
    parameters = tree_map(as_float_tensor, parameters)
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
