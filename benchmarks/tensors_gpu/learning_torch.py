"""PyTorch's ports of `learning`."""
# pyright: reportMissingImports=false

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.tensors_gpu.learning import ROUNDS
from benchmarks.tensors_gpu.program import Run, Sizes, Tree, leaves
from benchmarks.tensors_gpu.torch_idioms import (
    Results,
    compiled,
    fused_adam,
    value_and_gradient,
    variables,
)

CHUNK = 20  # steps of a loop that are compiled together: all 200 would take minutes


def steps_of(weights: Any, state: Any, x: Any) -> Any:
    states = []
    for t in range(x.shape[0]):
        state = torch.tanh(state @ weights + x[t])
        states.append(state)
    return torch.stack(states)


def scanned(chunk: Callable[..., Any], weights: Any, state: Any, x: Any) -> Any:
    parts = []
    for start in range(0, x.shape[0], CHUNK):
        parts.append(chunk(weights, state, x[start : start + CHUNK]))
        state = parts[-1][-1]
    return torch.cat(parts)


def scan(s: Sizes, weights: Any, start: Any, x: Any) -> Run:
    chunk = torch.compile(steps_of)

    def run() -> Tree:
        states = scanned(chunk, weights, start, x)
        return states[-1], states

    return run


def scan_gradient(s: Sizes, weights: Any, start: Any, x: Any) -> Run:
    chunk, parts = torch.compile(steps_of), variables((weights, start, x))

    def run() -> Tree:
        return torch.autograd.grad((scanned(chunk, *parts) ** 2).mean(), parts)

    return run


def mlp_gradient(s: Sizes, layers: Tree, x: Any, y: Any) -> Run:
    def loss(layers: Tree, x: Any, y: Any) -> Any:
        hidden = x
        for index, w in enumerate(layers):
            hidden = hidden @ w["weights"] + w["bias"]
            if index < 2:
                hidden = torch.tanh(hidden)
        return ((hidden - y) ** 2).mean()

    def derived(layers: Tree, x: Any, y: Any) -> Tree:
        gradients, value = torch.func.grad_and_value(loss)(layers, x, y)
        return value, gradients

    return compiled(derived, layers, x, y)


def lstm(s: Sizes, parameters: Tree, state: Tree, x: Any, target: Any) -> Run:
    """`torch.nn.LSTM` is cuDNN's, which `torch.compile` leaves as it is."""
    network = torch.nn.LSTM(s.width, s.width).to(x.device)
    head = parameters["head"].detach().clone().requires_grad_()
    with torch.no_grad():
        network.weight_ih_l0.copy_(parameters["input"].T)
        network.weight_hh_l0.copy_(parameters["state"].T)
        network.bias_ih_l0.copy_(parameters["bias"])
        network.bias_hh_l0.zero_()
    network.bias_hh_l0.requires_grad_(False)  # the others have one bias
    tree = {"bias": network.bias_ih_l0, "head": head, "input": network.weight_ih_l0, "state": network.weight_hh_l0}
    optimizer, target = fused_adam(leaves(tree)), target.long()
    last = torch.compile(lambda hidden, head, target: F.cross_entropy(hidden @ head, target))

    def run() -> Tree:
        optimizer.zero_grad(set_to_none=True)
        value = last(network(x)[0][-1], head, target)
        value.backward()
        optimizer.step()
        return TransposedResults(optimizer, tree, value.detach())

    return run


class TransposedResults(Results):
    """`torch.nn.LSTM` keeps its weights transposed."""

    def trees(self) -> Tree:
        parameters, state, value = super().trees()
        turned = {name: {key: _upright(key, part) for key, part in state[name].items()} for name in ("mean", "square")}
        return {key: _upright(key, part) for key, part in parameters.items()}, state | turned, value


def _upright(name: str, part: Any) -> Any:
    return part.T if name in ("input", "state") else part


def pointnet(s: Sizes, parameters: Tree, points: Any, target: Any) -> Run:
    def loss(w: Tree, points: Any, target: Any) -> Any:
        hidden = points
        for layer in w["points"]:
            hidden = F.relu(hidden @ layer["weights"] + layer["bias"])
        first, last = w["head"]
        hidden = F.relu(hidden.amax(dim=1) @ first["weights"] + first["bias"])
        return F.cross_entropy(hidden @ last["weights"] + last["bias"], target)

    return value_and_gradient(loss, parameters, points, target.long())


def embedding(s: Sizes, parameters: Tree, tokens: Any, target: Any) -> Run:
    def loss(w: Tree, tokens: Any, target: Any) -> Any:
        return F.cross_entropy(F.embedding(tokens, w["table"]) @ w["head"], target)

    return value_and_gradient(loss, parameters, tokens.long(), target.long())


def kmeans(s: Sizes, points: Any, centres: Any) -> Run:
    clusters = s.clusters

    def move(points: Any, centres: Any) -> Any:
        nearest = torch.argmin((centres**2).sum(dim=1) - 2.0 * (points @ centres.T), dim=1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, points)
        counts = torch.zeros(clusters, device=points.device).index_add_(0, nearest, torch.ones_like(points[:, 0]))
        return sums / counts.clamp(min=1.0)[:, None]

    fast = torch.compile(move)

    def run() -> Tree:
        moved = centres
        for _ in range(ROUNDS):
            moved = fast(points, moved)
        return moved

    return run


def adam(s: Sizes, parameters: Tree, state: Tree, gradients: Tree) -> Run:
    tree = variables(parameters)
    optimizer = fused_adam(tree)
    for part, gradient in zip(tree, gradients, strict=True):
        part.grad = gradient

    def run() -> Tree:
        optimizer.step()
        return Results(optimizer, tree)

    return run


PORTS: dict[str, Callable[..., Run]] = {
    "scan": scan,
    "scan_gradient": scan_gradient,
    "mlp_gradient": mlp_gradient,
    "lstm": lstm,
    "pointnet": pointnet,
    "embedding": embedding,
    "kmeans": kmeans,
    "adam": adam,
}
