"""Trains a small network on the two-moons data set and draws the result.

    python examples/fit_network.py [--steps 1500] [--out out]

The network is a pure function of its parameters. `lg.value_and_grad` returns the loss and its gradients, an optimizer
updates the parameters, and `lg.jit` compiles both to native code. The program prints its progress, and writes the loss
curve and a picture of the decision boundary to out/.
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
    """Returns points on two interleaving half circles and their labels, 0 or 1."""
    angle_key, noise_key = lg.random.split(lg.random.key(seed))
    half = count // 2
    angle = lg.random.uniform(angle_key, (2, half)) * lg.pi
    upper = lg.stack([lg.cos(angle[0]), lg.sin(angle[0])], axis=1)
    lower = lg.stack([1.0 - lg.cos(angle[1]), 0.5 - lg.sin(angle[1])], axis=1)
    points = lg.concat([upper, lower]) + 0.12 * lg.random.normal(noise_key, (2 * half, 2))
    return points, lg.concat([lg.zeros(half), lg.ones(half)])


def initial_parameters(seed: int = 1) -> list[dict[str, lg.Tensor]]:
    """Returns initial weights that preserve the scale of activations, and zero biases."""
    keys = lg.random.split(lg.random.key(seed), len(WIDTHS) - 1)
    return [
        {"weights": lg.random.normal(keys[index], (before, after)) * before**-0.5, "bias": lg.zeros(after)}
        for index, (before, after) in enumerate(pairwise(WIDTHS))
    ]


def network(parameters: list[dict[str, lg.Tensor]], points: lg.Tensor) -> lg.Tensor:
    """Returns the logit of label 1 for each point."""
    *hidden, last = parameters
    for layer in hidden:
        points = lg.tanh(points @ layer["weights"] + layer["bias"])
    return (points @ last["weights"] + last["bias"])[:, 0]


def loss(parameters: list[dict[str, lg.Tensor]], points: lg.Tensor, labels: lg.Tensor) -> lg.Tensor:
    """Returns the mean cross entropy, in a form that does not overflow."""
    score = network(parameters, points)
    return lg.mean(lg.maximum(score, 0.0) - score * labels + lg.log1p(lg.exp(-lg.abs(score))))


def fit(steps: int, points: lg.Tensor, labels: lg.Tensor) -> tuple[Any, list[float]]:
    """Runs Adam on random batches; returns the parameters and the loss at each step."""
    optimizer = lg.optim.Adam(learning_rate=0.01)
    parameters = initial_parameters()
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
    """Returns the fraction of points that are classified correctly."""
    return float(lg.mean(lg.astype((network(parameters, points) > 0.0) == (labels > 0.5), lg.float32)))


def draw(parameters: Any, points: lg.Tensor, labels: lg.Tensor, size: int = 640) -> np.ndarray[Any, Any]:
    """Draws the prediction over the plane, with the points on top."""
    low, high = np.array([-1.6, -1.15]), np.array([2.6, 1.65])
    height = int(size * (high[1] - low[1]) / (high[0] - low[0]))
    grid_x, grid_y = lg.meshgrid(
        lg.linspace(low[0], high[0], size), lg.linspace(high[1], low[1], height), indexing="xy"
    )
    plane = lg.stack([lg.reshape(grid_x, (-1,)), lg.reshape(grid_y, (-1,))], axis=1)
    probability = lg.sigmoid(network(parameters, plane)).numpy().reshape(height, size, 1)
    image = (probability * RED + (1.0 - probability) * BLUE) * 0.55 + 0.45 * PAPER
    is_red = probability[..., 0] > 0.5
    image[:-1, :-1][(is_red[:-1, :-1] != is_red[1:, :-1]) | (is_red[:-1, :-1] != is_red[:-1, 1:])] = PAPER
    pixels = (points.numpy() - low) / (high - low) * [size, -height] + [0, height]
    for (column, row), label in zip(pixels.astype(int), labels.numpy(), strict=True):
        image[max(0, row - 2) : row + 3, max(0, column - 2) : column + 3] = PAPER
        image[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2] = RED if label else BLUE
    return image


def main(arguments: list[str] | None = None) -> float:
    """Trains the network, writes two pictures and returns the accuracy on a test set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args(arguments)
    points, labels = two_moons(600)
    parameters, losses = fit(options.steps, points, labels)
    test_accuracy = accuracy(parameters, *two_moons(1000, seed=7))
    width = max(1, len(losses) // 30)
    smooth = np.convolve(losses, np.full(width, 1.0 / width), mode="valid")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "fit_network_loss.svg").write_text(chart_svg(smooth, title="the loss", across="steps"))
    lg.save_png(draw(parameters, points, labels), options.out / "fit_network.png")
    print(f"{100.0 * test_accuracy:.1f}% accuracy on new points; pictures in {options.out}/")
    return test_accuracy


if __name__ == "__main__":
    main()
