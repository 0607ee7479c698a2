"""Fits a small network to two moons of points, and draws what it learnt.

    python examples/fit_network.py [--steps 1500] [--out out]

The network is a plain function of its parameters; one call of `lg.value_and_grad` gives the loss and its gradients, an
optimizer makes the step, and `lg.jit` turns all of it into native code. Progress is printed; the loss curve and a
picture of what was learnt are written to out/.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import livegrad as lg
from livegrad.tools.chart import chart_svg

WIDTHS = (2, 32, 32, 1)
BATCH = 64
RED, BLUE = np.array([0.84, 0.30, 0.25]), np.array([0.20, 0.42, 0.72])
PAPER = np.array([1.0, 1.0, 1.0])


def two_moons(count: int, seed: int = 0) -> tuple[lg.Tensor, lg.Tensor]:
    """Points of two half circles that reach into each other, and which one each belongs to (0 or 1)."""
    angle_key, noise_key = lg.random.split(lg.random.key(seed))
    half = count // 2
    angle = lg.random.uniform(angle_key, (2, half)) * lg.pi
    upper = lg.stack([lg.cos(angle[0]), lg.sin(angle[0])], axis=1)
    lower = lg.stack([1.0 - lg.cos(angle[1]), 0.5 - lg.sin(angle[1])], axis=1)
    points = lg.concat([upper, lower]) + 0.12 * lg.random.normal(noise_key, (2 * half, 2))
    return points, lg.concat([lg.zeros(half), lg.ones(half)])


def first_parameters(seed: int = 1) -> list[dict[str, lg.Tensor]]:
    """Weights that keep the size of what passes through them, and no bias."""
    keys = lg.random.split(lg.random.key(seed), len(WIDTHS) - 1)
    return [
        {"weights": lg.random.normal(keys[index], (before, after)) * before**-0.5, "bias": lg.zeros(after)}
        for index, (before, after) in enumerate(pairwise(WIDTHS))
    ]


def network(parameters: list[dict[str, lg.Tensor]], points: lg.Tensor) -> lg.Tensor:
    """How strongly the network holds each point for one of the second moon; 0 is undecided."""
    *hidden, last = parameters
    for layer in hidden:
        points = lg.tanh(points @ layer["weights"] + layer["bias"])
    return (points @ last["weights"] + last["bias"])[:, 0]


def loss(parameters: list[dict[str, lg.Tensor]], points: lg.Tensor, labels: lg.Tensor) -> lg.Tensor:
    """Mean cross entropy, written so that no exponential overflows."""
    score = network(parameters, points)
    return lg.mean(lg.maximum(score, 0.0) - score * labels + lg.log1p(lg.exp(-lg.abs(score))))


def fit(steps: int, points: lg.Tensor, labels: lg.Tensor) -> tuple[Any, list[float]]:
    """Parameters after some steps of Adam on random batches, and the loss at each step."""
    optimizer = lg.optim.Adam(rate=0.01)
    parameters = first_parameters()
    state = optimizer.init(parameters)

    @lg.jit
    def step(parameters: Any, state: Any, points: lg.Tensor, labels: lg.Tensor) -> tuple[lg.Tensor, Any, Any]:
        value, gradients = lg.value_and_grad(loss)(parameters, points, labels)
        return value, *optimizer.update(parameters, gradients, state)

    losses: list[float] = []
    generator = np.random.default_rng(0)
    x, y = points.numpy(), labels.numpy()
    for index in range(steps):
        batch = generator.integers(len(x), size=BATCH)
        value, parameters, state = step(parameters, state, x[batch], y[batch])
        losses.append(float(value))
        if (index + 1) % max(1, steps // 10) == 0:
            print(f"step {index + 1:5d} of {steps}: loss {np.mean(losses[-50:]):.4f}", flush=True)
    return parameters, losses


def accuracy(parameters: Any, points: lg.Tensor, labels: lg.Tensor) -> float:
    """The share of points on the right side."""
    return float(lg.mean(lg.astype((network(parameters, points) > 0.0) == (labels > 0.5), lg.float32)))


def draw(parameters: Any, points: lg.Tensor, labels: lg.Tensor, size: int = 640) -> np.ndarray[Any, Any]:
    """The plane in the colour of the network's answer, with the points on it."""
    low, high = np.array([-1.6, -1.15]), np.array([2.6, 1.65])
    height = int(size * (high[1] - low[1]) / (high[0] - low[0]))
    across, up = lg.meshgrid(lg.linspace(low[0], high[0], size), lg.linspace(high[1], low[1], height), indexing="xy")
    plane = lg.stack([lg.reshape(across, (-1,)), lg.reshape(up, (-1,))], axis=1)
    belief = lg.sigmoid(network(parameters, plane)).numpy().reshape(height, size, 1)
    image = (belief * RED + (1.0 - belief) * BLUE) * 0.55 + 0.45 * PAPER
    above = belief[..., 0] > 0.5
    image[:-1, :-1][(above[:-1, :-1] != above[1:, :-1]) | (above[:-1, :-1] != above[:-1, 1:])] = PAPER
    places = (points.numpy() - low) / (high - low) * [size, -height] + [0, height]
    for (column, row), label in zip(places.astype(int), labels.numpy(), strict=True):
        image[max(0, row - 2) : row + 3, max(0, column - 2) : column + 3] = PAPER
        image[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2] = RED if label else BLUE
    return image


def main(arguments: list[str] | None = None) -> float:
    """Fits, writes the two pictures, and gives the accuracy on points that were not fitted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--out", type=Path, default=Path("out"))
    chosen = parser.parse_args(arguments)
    points, labels = two_moons(600)
    parameters, losses = fit(chosen.steps, points, labels)
    unseen = accuracy(parameters, *two_moons(1000, seed=7))
    width = max(1, len(losses) // 30)
    smooth = np.convolve(losses, np.full(width, 1.0 / width), mode="valid")
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "fit_network_loss.svg").write_text(chart_svg(smooth, title="the loss", across="steps"))
    lg.save_png(draw(parameters, points, labels), chosen.out / "fit_network.png")
    print(f"{100.0 * unseen:.1f}% of new points on the right side; pictures in {chosen.out}/")
    return unseen


if __name__ == "__main__":
    main()
