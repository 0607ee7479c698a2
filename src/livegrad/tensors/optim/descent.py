"""Gradient descent with momentum, and Adam: the optimizers that most programs use."""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.tensors import creation
from livegrad.tensors.data_types import astype
from livegrad.tensors.handle import Tensor
from livegrad.tensors.optim.checks import require_decays, require_pair, require_same_shapes, require_settings
from livegrad.tensors.optim.optimizer import (
    Mask,
    Rate,
    Tree,
    bias_correction,
    decays,
    descend,
    rate_at,
    widened,
    zeros_of,
)
from livegrad.tensors.transcendental import sqrt
from livegrad.tensors.tree_functions import tree_map


@dataclass(frozen=True)
class SGD:
    """Gradient descent with optional momentum and weight decay.

    `learning_rate` is a number, a tensor or a schedule. `weight_decay` is added to the gradients of the parameters that
    `mask` selects.

    >>> import livegrad as lg
    >>> optimizer, x = lg.optim.SGD(0.25), lg.asarray([4.0])
    >>> optimizer.update(x, 2.0 * x, optimizer.init(x))[0]
    Tensor([2.], dtype=float32)
    """

    learning_rate: Rate = 0.01
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    mask: Mask = None

    def __post_init__(self) -> None:
        require_settings(learning_rate=self.learning_rate, weight_decay=self.weight_decay)
        require_decays(momentum=self.momentum)

    def init(self, parameters: Tree) -> Tree:
        velocity = tree_map(creation.zeros_like, parameters) if self.momentum else None
        return {"step": creation.asarray(0), "velocity": velocity}

    def update(self, parameters: Tree, gradients: Tree, state: Tree) -> tuple[Tree, Tree]:
        require_same_shapes(parameters, gradients)
        rate = rate_at(self.learning_rate, state["step"])
        if self.weight_decay:
            chosen = decays(self.mask, parameters)
            gradients = tree_map(
                lambda g, p, flag: g + self.weight_decay * p if flag else g, gradients, parameters, chosen
            )
        velocity = state["velocity"]
        if self.momentum:
            velocity = tree_map(lambda v, g: self.momentum * v + g, velocity, gradients)
            follow = (lambda g, v: g + self.momentum * v) if self.nesterov else (lambda g, v: v)
            gradients = tree_map(follow, gradients, velocity)
        moved = tree_map(lambda p, g: descend(p, rate, g), parameters, gradients)
        return moved, {"step": state["step"] + 1, "velocity": velocity}


@dataclass(frozen=True)
class Adam:
    """Adam. `weight_decay` is decoupled, as in AdamW, and applies to the parameters that `mask` selects.

    `learning_rate` is a number, a tensor or a schedule. `mask` is None for all parameters, a pytree of booleans, or a
    function of the path and the parameter.

    >>> import livegrad as lg
    >>> optimizer, x = lg.optim.Adam(0.5), lg.asarray([4.0])
    >>> optimizer.update(x, 2.0 * x, optimizer.init(x))[0]
    Tensor([3.5], dtype=float32)
    """

    learning_rate: Rate = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    mask: Mask = None

    def __post_init__(self) -> None:
        require_settings(learning_rate=self.learning_rate, eps=self.eps, weight_decay=self.weight_decay)
        require_pair("betas", self.betas)

    def init(self, parameters: Tree) -> Tree:
        zeros = zeros_of(parameters)
        return {"step": creation.asarray(0), "mean": zeros, "square": zeros}

    def update(self, parameters: Tree, gradients: Tree, state: Tree) -> tuple[Tree, Tree]:
        require_same_shapes(parameters, gradients)
        rate, step, (first, second) = rate_at(self.learning_rate, state["step"]), state["step"] + 1, self.betas
        gradients = widened(gradients)
        mean = tree_map(lambda m, g: first * m + (1.0 - first) * g, state["mean"], gradients)
        square = tree_map(lambda s, g: second * s + (1.0 - second) * g * g, state["square"], gradients)

        def move(p: Tensor, m: Tensor, s: Tensor, is_decayed: bool) -> Tensor:
            count = astype(step, m.dtype)
            # Bias correction: both averages start at zero.
            m = m / bias_correction(first, count)
            s = s / bias_correction(second, count)
            direction = m / (sqrt(s) + self.eps)
            return descend(p, rate, direction + self.weight_decay * p if is_decayed else direction)

        moved = tree_map(move, parameters, mean, square, decays(self.mask, parameters))
        return moved, {"step": step, "mean": mean, "square": square}


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay, 0.01 by default.

    >>> import livegrad as lg
    >>> optimizer = lg.optim.AdamW(0.5, weight_decay=0.1, mask=lambda path, p: path[-1] != "bias")
    >>> model = {"bias": lg.asarray(4.0), "weight": lg.asarray(4.0)}
    >>> lg.tree_map(float, optimizer.update(model, model, optimizer.init(model))[0])
    {'bias': 3.5, 'weight': 3.299999952316284}
    """

    weight_decay: float = 0.01
