"""The interface of optimizers, and what they share: learning rates, weight decay, types of averages."""

from __future__ import annotations

import math
from typing import Any, Protocol

from livegrad.ir.types import Scalar
from livegrad.tensors import creation
from livegrad.tensors.data_types import astype
from livegrad.tensors.dtypes import DEFAULT_FLOAT
from livegrad.tensors.handle import Tensor
from livegrad.tensors.transcendental import expm1
from livegrad.tensors.tree_functions import tree_map, tree_map_with_path

Tree = Any
# A number, a tensor, or a schedule: a function of the number of steps that were made.
Rate = Any
# Which parameters decay: all (None), a pytree of booleans, or a function of the path and the parameter.
Mask = Any


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


def rate_at(rate: Rate, step: Tensor) -> Any:
    """The learning rate of a step; the first step is 0."""
    return rate(step) if callable(rate) else rate


def descend(parameter: Any, rate: Any, direction: Tensor) -> Any:
    """One step. The parameter keeps its type, whatever the types of the rate and of averages."""
    moved = parameter - rate * direction
    return astype(moved, parameter.dtype) if isinstance(parameter, Tensor) else moved


def decays(mask: Mask, parameters: Tree) -> Tree:
    """For each parameter, whether weight decay applies to it."""
    if mask is None:
        return tree_map(lambda _: True, parameters)
    if callable(mask):
        return tree_map_with_path(lambda path, parameter: bool(mask(path, parameter)), parameters)
    return tree_map(lambda _, flag: bool(flag), parameters, mask)


def averaging_type(x: Any) -> Scalar:
    """Returns the type of averages: float32 for 16-bit floats, where epsilon rounds to zero and squares underflow."""
    dtype = x.dtype if isinstance(x, Tensor) else DEFAULT_FLOAT
    return DEFAULT_FLOAT if dtype.kind == "float" and dtype.bits == 16 else dtype


def zeros_of(parameters: Tree) -> Tree:
    """Averages before the first step."""
    return tree_map(lambda p: creation.zeros_like(p, dtype=averaging_type(p)), parameters)


def widened(gradients: Tree) -> Tree:
    """Gradients in the types of their averages."""
    return tree_map(lambda g: astype(g, averaging_type(g)), gradients)


def bias_correction(decay: Any, count: Tensor) -> Tensor | float:
    """Computes 1 - decay**count without cancellation for decays near one."""
    if isinstance(decay, Tensor):
        return 1.0 - decay**count
    return 1.0 if decay == 0.0 else -expm1(count * math.log(decay))
