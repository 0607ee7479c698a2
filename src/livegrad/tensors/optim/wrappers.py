"""What is put around an optimizer: clipped gradients, sums of several gradients, averages of the parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.tensors import creation
from livegrad.tensors.arithmetic import clip, minimum
from livegrad.tensors.control_flow import cond
from livegrad.tensors.data_types import astype
from livegrad.tensors.handle import Tensor
from livegrad.tensors.optim.checks import require_count, require_decays, require_optimizer, require_settings
from livegrad.tensors.optim.optimizer import Optimizer, Tree, zeros_of
from livegrad.tensors.reductions import sum
from livegrad.tensors.transcendental import sqrt
from livegrad.tensors.tree_functions import tree_leaves, tree_map


class Transformation(Protocol):
    """Changes gradients before an optimizer takes them."""

    def transform(self, gradients: Tree) -> Tree:
        """Returns the changed gradients."""
        ...


def global_norm(tree: Tree) -> Tensor:
    """The Euclidean norm of all leaves together.

    >>> import livegrad as lg
    >>> lg.optim.global_norm({"a": lg.asarray([3.0]), "b": lg.asarray(4.0)})
    Tensor(5., dtype=float32)
    """
    total: Any = 0.0
    for leaf in tree_leaves(tree):
        total = total + sum(creation.asarray(leaf) ** 2)
    return sqrt(creation.asarray(total))


@dataclass(frozen=True)
class ClipByGlobalNorm:
    """Scales all gradients down together if their norm is above `largest`."""

    largest: float

    def __post_init__(self) -> None:
        require_settings(largest=self.largest)

    def transform(self, gradients: Tree) -> Tree:
        # Not largest / norm: a norm of zero, which has no gradient to scale, would give NaN.
        norm = global_norm(gradients)
        factor = minimum(self.largest / (norm + 1e-12 * (norm == 0.0)), 1.0)
        return tree_map(lambda g: g * astype(factor, g.dtype), gradients)


@dataclass(frozen=True)
class ClipByValue:
    """Clips each element of the gradients to the range from `-largest` to `largest`."""

    largest: float

    def __post_init__(self) -> None:
        require_settings(largest=self.largest)

    def transform(self, gradients: Tree) -> Tree:
        return tree_map(lambda g: clip(g, -self.largest, self.largest), gradients)


def clip_by_global_norm(largest: float) -> ClipByGlobalNorm:
    """Scales all gradients down together if their norm is above `largest`; for `chain`.

    >>> import livegrad as lg
    >>> lg.optim.clip_by_global_norm(1.0).transform({"a": lg.asarray([3.0]), "b": lg.asarray([4.0])})
    {'a': Tensor([0.6], dtype=float32), 'b': Tensor([0.8], dtype=float32)}
    """
    return ClipByGlobalNorm(largest)


def clip_by_value(largest: float) -> ClipByValue:
    """Clips each element of the gradients to the range from `-largest` to `largest`; for `chain`.

    >>> import livegrad as lg
    >>> lg.optim.clip_by_value(1.0).transform(lg.asarray([3.0, -0.5]))
    Tensor([ 1. , -0.5], dtype=float32)
    """
    return ClipByValue(largest)


@dataclass(frozen=True)
class Chain:
    """An optimizer that changes the gradients first; `chain` creates it."""

    transformations: tuple[Transformation, ...]
    optimizer: Optimizer

    def init(self, parameters: Tree) -> Tree:
        return self.optimizer.init(parameters)

    def update(self, parameters: Tree, gradients: Tree, state: Tree) -> tuple[Tree, Tree]:
        for transformation in self.transformations:
            gradients = transformation.transform(gradients)
        return self.optimizer.update(parameters, gradients, state)


def chain(*parts: Any) -> Chain:
    """An optimizer, which comes last, after transformations of the gradients.

    >>> import livegrad as lg
    >>> optimizer, x = lg.optim.chain(lg.optim.clip_by_global_norm(1.0), lg.optim.SGD(0.5)), lg.asarray([3.0, 4.0])
    >>> optimizer.update(x, x, optimizer.init(x))[0]
    Tensor([2.7, 3.6], dtype=float32)
    """
    if not parts:
        raise UsageError("`chain` needs an optimizer", where=caller_origin(), help="it comes last")
    *transformations, optimizer = parts
    for part in transformations:
        if not callable(getattr(part, "transform", None)):
            raise UsageError(
                "only the last part of a chain is an optimizer",
                where=caller_origin(),
                expected="transformations of gradients, such as lg.optim.clip_by_global_norm(1.0)",
                found=shown(part),
            )
    return Chain(tuple(transformations), require_optimizer(optimizer))


@dataclass(frozen=True)
class Accumulate:
    """An optimizer that steps once for several gradients; `accumulate` creates it."""

    optimizer: Optimizer
    every: int

    def init(self, parameters: Tree) -> Tree:
        return {
            "count": creation.asarray(0),
            "sum": zeros_of(parameters),
            "optimizer": self.optimizer.init(parameters),
        }

    def update(self, parameters: Tree, gradients: Tree, state: Tree) -> tuple[Tree, Tree]:
        total = tree_map(lambda s, g: s + g, state["sum"], gradients)
        count = state["count"] + 1

        def step(parameters: Tree, total: Tree, inner: Tree) -> tuple[Tree, Tree, Tree]:
            mean = tree_map(lambda s, p: astype(s / self.every, p.dtype), total, parameters)
            return (*self.optimizer.update(parameters, mean, inner), tree_map(creation.zeros_like, total))

        def wait(parameters: Tree, total: Tree, inner: Tree) -> tuple[Tree, Tree, Tree]:
            return parameters, inner, total

        moved, inner, total = cond(count >= self.every, step, wait, parameters, total, state["optimizer"])
        return moved, {"count": count % self.every, "sum": total, "optimizer": inner}


def accumulate(optimizer: Optimizer, every: int) -> Accumulate:
    """An optimizer that collects `every` gradients and makes one step with their mean.

    >>> import livegrad as lg
    >>> optimizer, x = lg.optim.accumulate(lg.optim.SGD(0.5), every=2), lg.asarray(4.0)
    >>> state = optimizer.init(x)
    >>> x, state = optimizer.update(x, lg.asarray(1.0), state)
    >>> optimizer.update(x, lg.asarray(3.0), state)[0]
    Tensor(3., dtype=float32)
    """
    require_count(every)
    if every < 1:
        raise UsageError("`every` cannot be 0", where=caller_origin(), expected="at least 1")
    return Accumulate(require_optimizer(optimizer), every)


@dataclass(frozen=True)
class Average:
    """An optimizer whose state also has an average of the parameters; `average` creates it."""

    optimizer: Optimizer
    decay: float

    def init(self, parameters: Tree) -> Tree:
        return {"average": parameters, "optimizer": self.optimizer.init(parameters)}

    def update(self, parameters: Tree, gradients: Tree, state: Tree) -> tuple[Tree, Tree]:
        moved, inner = self.optimizer.update(parameters, gradients, state["optimizer"])
        averaged = tree_map(lambda a, p: a + (1.0 - self.decay) * (p - a), state["average"], moved)
        return moved, {"average": averaged, "optimizer": inner}


def average(optimizer: Optimizer, decay: float = 0.999) -> Average:
    """An optimizer whose state has an exponential moving average of the parameters, as `state["average"]`.

    >>> import livegrad as lg
    >>> optimizer, x = lg.optim.average(lg.optim.SGD(1.0), decay=0.75), lg.asarray(4.0)
    >>> x, state = optimizer.update(x, lg.asarray(4.0), optimizer.init(x))
    >>> x, state["average"]
    (Tensor(0., dtype=float32), Tensor(3., dtype=float32))
    """
    require_decays(decay=decay)
    return Average(require_optimizer(optimizer), decay)
