"""How users of PyTorch compile functions, gradients and training steps. In: tensors on the device. Out: a run."""
# pyright: reportMissingImports=false

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.tensors_gpu.namespaces import DECAY, EPSILON, LEARNING_RATE, SQUARE_DECAY, WEIGHT_DECAY
from benchmarks.tensors_gpu.program import Run, Tree, leaves, map_tree


def compiled(function: Callable[..., Tree], *arguments: Tree) -> Run:
    """The whole function as one graph."""
    fast = torch.compile(function)
    return lambda: fast(*arguments)


def compiled_gradient(loss: Callable[..., Any], argnums: tuple[int, ...], *arguments: Any) -> Run:
    """The gradient in the same graph as the function, which has the least overhead in small programs."""
    return compiled(torch.func.grad(loss, argnums), *arguments)


def variables(tree: Tree) -> Tree:
    return map_tree(lambda tensor: tensor.detach().clone().requires_grad_(), tree)


def like(tree: Tree, values: list[Any]) -> Tree:
    """A tree of the same form, with values in the order of its leaves."""
    if isinstance(tree, dict):
        parts = {}
        for name in sorted(tree):
            count = len(leaves(tree[name]))
            parts[name], values = like(tree[name], values[:count]), values[count:]
        return {name: parts[name] for name in tree}
    if isinstance(tree, list | tuple):
        items = []
        for part in tree:
            count = len(leaves(part))
            items.append(like(part, values[:count]))
            values = values[count:]
        return type(tree)(items)
    (value,) = values
    return value


def value_and_gradient(loss: Callable[..., Any], differentiated: Tree, *arguments: Tree) -> Run:
    """A compiled loss and its backward pass, as in a training loop: (value, gradients by the first argument)."""
    forward, tree = torch.compile(loss), variables(differentiated)
    parts = leaves(tree)

    def run() -> Tree:
        value = forward(tree, *arguments)
        return value.detach(), like(tree, list(torch.autograd.grad(value, parts)))

    return run


def fused_adam(parts: list[Any]) -> Any:
    return torch.optim.AdamW(
        parts, lr=LEARNING_RATE, betas=(DECAY, SQUARE_DECAY), eps=EPSILON, weight_decay=WEIGHT_DECAY, fused=True
    )


def adam_results(optimizer: Any, tree: Tree) -> tuple[Tree, Tree]:
    """The parameters and the optimizer's state, as the other libraries return them."""
    states = [optimizer.state[part] for part in leaves(tree)]
    averages = {name: like(tree, [state[key] for state in states]) for name, key in _AVERAGES.items()}
    return map_tree(lambda part: part.detach(), tree), {"step": states[0]["step"], **averages}


_AVERAGES = {"mean": "exp_avg", "square": "exp_avg_sq"}


def training_step(loss: Callable[..., Any], parameters: Tree, *arguments: Tree) -> Run:
    """A compiled loss, `backward()` and the fused AdamW: parameters and state are updated in place."""
    forward, tree = torch.compile(loss), variables(parameters)
    optimizer = fused_adam(leaves(tree))

    def run() -> Tree:
        optimizer.zero_grad(set_to_none=True)
        value = forward(tree, *arguments)
        value.backward()
        optimizer.step()
        return Results(optimizer, tree, value.detach())

    return run


class Results:
    """Results of a step. They are put into trees when they are compared, which is no part of a step."""

    def __init__(self, optimizer: Any, tree: Tree, *others: Any) -> None:
        self.optimizer, self.tree, self.others = optimizer, tree, others

    def trees(self) -> Tree:
        return *adam_results(self.optimizer, self.tree), *self.others
