"""Further optimizers: RMSprop, Lion, Adafactor with factored averages, and Muon with orthogonalised momentum."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from livegrad.tensors import creation
from livegrad.tensors.arithmetic import maximum, minimum, sign
from livegrad.tensors.data_types import astype, finfo
from livegrad.tensors.handle import Tensor
from livegrad.tensors.optim.checks import (
    require_count,
    require_decays,
    require_pair,
    require_same_shapes,
    require_settings,
)
from livegrad.tensors.optim.descent import AdamW
from livegrad.tensors.optim.optimizer import Mask, Optimizer, Rate, Tree, decays, descend, rate_at, widened, zeros_of
from livegrad.tensors.reductions import mean, sum
from livegrad.tensors.transcendental import sqrt
from livegrad.tensors.tree_functions import tree_map


@dataclass(frozen=True)
class RMSprop:
    """Gradients divided by the root of their averaged squares, with optional momentum, as in PyTorch.

    >>> import livegrad as lg
    >>> optimizer, x = lg.optim.RMSprop(0.1, alpha=0.0), lg.asarray([4.0])
    >>> optimizer.update(x, 2.0 * x, optimizer.init(x))[0]
    Tensor([3.9], dtype=float32)
    """

    learning_rate: Rate = 0.01
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False
    mask: Mask = None

    def __post_init__(self) -> None:
        require_settings(learning_rate=self.learning_rate, eps=self.eps, weight_decay=self.weight_decay)
        require_decays(alpha=self.alpha, momentum=self.momentum)

    def init(self, parameters: Tree) -> Tree:
        zeros = zeros_of(parameters)
        return {
            "step": creation.asarray(0),
            "square": zeros,
            "mean": zeros if self.centered else None,
            "velocity": zeros if self.momentum else None,
        }

    def update(self, parameters: Tree, gradients: Tree, state: Tree) -> tuple[Tree, Tree]:
        require_same_shapes(parameters, gradients)
        rate, chosen = rate_at(self.learning_rate, state["step"]), decays(self.mask, parameters)
        gradients = tree_map(
            lambda g, p, flag: g + self.weight_decay * p if flag and self.weight_decay else g,
            widened(gradients), parameters, chosen,
        )  # fmt: skip
        square = tree_map(lambda s, g: self.alpha * s + (1.0 - self.alpha) * g * g, state["square"], gradients)
        average, velocity, variance = state["mean"], state["velocity"], square
        if self.centered:
            average = tree_map(lambda m, g: self.alpha * m + (1.0 - self.alpha) * g, average, gradients)
            variance = tree_map(lambda s, m: s - m * m, square, average)
        direction = tree_map(lambda g, v: g / (sqrt(v) + self.eps), gradients, variance)
        if self.momentum:
            direction = velocity = tree_map(lambda v, d: self.momentum * v + d, velocity, direction)
        moved = tree_map(lambda p, d: descend(p, rate, d), parameters, direction)
        return moved, {"step": state["step"] + 1, "square": square, "mean": average, "velocity": velocity}


@dataclass(frozen=True)
class Lion:
    """Steps by the sign of an averaged gradient, with decoupled weight decay.

    >>> import livegrad as lg
    >>> optimizer, x = lg.optim.Lion(0.5), lg.asarray([4.0])
    >>> optimizer.update(x, 2.0 * x, optimizer.init(x))[0]
    Tensor([3.5], dtype=float32)
    """

    learning_rate: Rate = 0.0001
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0
    mask: Mask = None

    def __post_init__(self) -> None:
        require_settings(learning_rate=self.learning_rate, weight_decay=self.weight_decay)
        require_pair("betas", self.betas)

    def init(self, parameters: Tree) -> Tree:
        return {"step": creation.asarray(0), "mean": zeros_of(parameters)}

    def update(self, parameters: Tree, gradients: Tree, state: Tree) -> tuple[Tree, Tree]:
        require_same_shapes(parameters, gradients)
        rate, (first, second), gradients = rate_at(self.learning_rate, state["step"]), self.betas, widened(gradients)

        def move(p: Tensor, m: Tensor, g: Tensor, is_decayed: bool) -> Tensor:
            direction = sign(first * m + (1.0 - first) * g)
            return descend(p, rate, direction + self.weight_decay * p if is_decayed else direction)

        moved = tree_map(move, parameters, state["mean"], gradients, decays(self.mask, parameters))
        average = tree_map(lambda m, g: second * m + (1.0 - second) * g, state["mean"], gradients)
        return moved, {"step": state["step"] + 1, "mean": average}


@dataclass(frozen=True)
class Adafactor:
    """Adam's division by averaged squares, of which matrices keep only the means of rows and columns; as in PyTorch.

    >>> import livegrad as lg
    >>> optimizer, x = lg.optim.Adafactor(0.1), lg.ones((3, 2))
    >>> lg.tree_map(lambda value: value.shape, optimizer.init(x)["square"])
    Factors(rows=(3, 1), columns=(1, 2))
    """

    learning_rate: Rate = 0.01
    decay_power: float = -0.8
    eps: float = 0.001  # the least scale of a parameter
    clip_threshold: float = 1.0
    weight_decay: float = 0.0
    mask: Mask = None

    def __post_init__(self) -> None:
        require_settings(
            learning_rate=self.learning_rate, eps=self.eps, weight_decay=self.weight_decay, clip=self.clip_threshold
        )

    def init(self, parameters: Tree) -> Tree:
        return {"step": creation.asarray(0), "square": tree_map(_factors, zeros_of(parameters))}

    def update(self, parameters: Tree, gradients: Tree, state: Tree) -> tuple[Tree, Tree]:
        require_same_shapes(parameters, gradients)
        step, gradients = state["step"] + 1, widened(gradients)
        squares = tree_map(lambda g, s: self._average(g, s, step), gradients, state["square"], is_leaf=_is_factored)
        rate = rate_at(self.learning_rate, state["step"])
        moved = tree_map(
            lambda p, g, s, flag: self._move(p, g, s, flag, rate, step),
            parameters, gradients, squares, decays(self.mask, parameters), is_leaf=_is_factored,
        )  # fmt: skip
        return moved, {"step": step, "square": squares}

    def _average(self, gradient: Tensor, square: Any, step: Tensor) -> Any:
        share = astype(step, gradient.dtype) ** self.decay_power  # of the new square
        if not _is_factored(square):
            return square + share * (gradient * gradient - square)
        rows, columns = (mean(gradient * gradient, axis=axis, keepdims=True) for axis in (-1, -2))
        old = square.rows, square.columns
        return Factors(old[0] + share * (rows - old[0]), old[1] + share * (columns - old[1]))

    def _move(self, p: Tensor, g: Tensor, square: Any, is_decayed: bool, rate: Any, step: Tensor) -> Tensor:
        least = float(finfo(g.dtype).eps)
        if _is_factored(square):
            rows = square.rows
            square = rows * square.columns / maximum(mean(rows, axis=-2, keepdims=True), least)
        direction = g / sqrt(maximum(square, least * least))
        size = maximum(_root_mean_square(p), self.eps) * minimum(rate, 1.0 / sqrt(astype(step, g.dtype)))
        direction = direction / maximum(_root_mean_square(direction) / self.clip_threshold, 1.0)
        shrunk = p * (1.0 - rate * self.weight_decay) if is_decayed and self.weight_decay else p
        return astype(shrunk - size * direction, p.dtype)


@dataclass(frozen=True)
class Factors:
    """The averaged squares of a matrix as a product: the means of its rows, and those of its columns."""

    rows: Tensor
    columns: Tensor


def _factors(zeros: Tensor) -> Any:
    return zeros if len(zeros.shape) < 2 else Factors(zeros[..., :1], zeros[..., :1, :])


def _is_factored(square: Any) -> bool:
    return isinstance(square, Factors)


def _root_mean_square(x: Tensor) -> Tensor:
    return sqrt(mean(x * x))


@dataclass(frozen=True)
class Muon:
    """Momentum of matrices, orthogonalised by a Newton-Schulz iteration. Other parameters use `others`.

    A parameter counts as a matrix if it has two dimensions and `mask` selects it; embeddings and output layers
    usually do better with `others`. A step has the size of one of AdamW.

    >>> import livegrad as lg
    >>> optimizer, model = lg.optim.Muon(0.1), {"w": lg.eye(2), "b": lg.ones(2)}
    >>> moved, state = optimizer.update(model, model, optimizer.init(model))
    >>> moved["w"].shape, moved["b"]
    ((2, 2), Tensor([0.997, 0.997], dtype=float32))
    """

    learning_rate: Rate = 0.02
    momentum: float = 0.95
    nesterov: bool = True
    weight_decay: float = 0.1
    iterations: int = 5
    mask: Mask = None
    others: Optimizer = field(default_factory=lambda: AdamW(0.003, weight_decay=0.0))

    def __post_init__(self) -> None:
        require_settings(learning_rate=self.learning_rate, weight_decay=self.weight_decay)
        require_decays(momentum=self.momentum)
        require_count(self.iterations)

    def init(self, parameters: Tree) -> Tree:
        return {"step": creation.asarray(0), "velocity": zeros_of(parameters), "others": self.others.init(parameters)}

    def update(self, parameters: Tree, gradients: Tree, state: Tree) -> tuple[Tree, Tree]:
        require_same_shapes(parameters, gradients)
        rate = rate_at(self.learning_rate, state["step"])
        velocity = tree_map(lambda v, g: self.momentum * v + g, state["velocity"], widened(gradients))
        follow = (lambda g, v: g + self.momentum * v) if self.nesterov else (lambda g, v: v)
        other, others = self.others.update(parameters, gradients, state["others"])
        chosen = tree_map(lambda p, flag: flag and len(p.shape) == 2, parameters, decays(self.mask, parameters))

        def move(p: Tensor, v: Tensor, by_others: Tensor, is_matrix: bool) -> Tensor:
            if not is_matrix:
                return by_others
            direction = _orthogonalise(v, self.iterations)
            scale = 0.2 * math.sqrt(max(p.shape))  # the size of a typical step of AdamW
            return astype(p * (1.0 - rate * self.weight_decay) - rate * scale * direction, p.dtype)

        directions = tree_map(follow, widened(gradients), velocity)
        moved = tree_map(move, parameters, directions, other, chosen)
        return moved, {"step": state["step"] + 1, "velocity": velocity, "others": others}


def _orthogonalise(matrix: Tensor, iterations: int) -> Tensor:
    """An approximation of U Vᵀ for the matrix U S Vᵀ: singular values move close to one."""
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.mT if is_tall else matrix
    x = x / maximum(sqrt(sum(x * x)), 1e-7)
    for _ in range(iterations):
        product = x @ x.mT
        x = 3.4445 * x + (-4.775 * product + 2.0315 * (product @ product)) @ x
    return x.mT if is_tall else x
