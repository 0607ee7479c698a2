"""Other models: recurrent networks, a small network, PointNet, embeddings, clusters and an optimiser's update."""

from itertools import pairwise
from typing import Any

from benchmarks.tensors_gpu.attention import loss_and_mean
from benchmarks.tensors_gpu.program import (
    Array,
    Program,
    Sizes,
    Tree,
    adam_state,
    dense,
    integers,
    normal,
    one_size,
    three_sizes,
)

# --- a scan ----------------------------------------------------------------------------------------------------------


def scan_inputs(s: Sizes) -> tuple[Array, ...]:
    return dense(s.width, s.width, 1), normal((s.batch, s.width), 2), normal((s.steps, s.batch, s.width))


def last_state(xp: Any, weights: Any, start: Any, x: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        state = xp.tanh(state @ weights + x)
        return state, state

    return xp.scan(step, start, x)


def scan(xp: Any, s: Sizes, weights: Any, start: Any, x: Any) -> Tree:
    return last_state(xp, weights, start, x)


def scan_gradient(xp: Any, s: Sizes, weights: Any, start: Any, x: Any) -> Tree:
    def loss(weights: Any, start: Any, x: Any) -> Any:
        return xp.mean(last_state(xp, weights, start, x)[1] ** 2)

    return xp.grad(loss, (0, 1, 2))(weights, start, x)


# --- a small network -------------------------------------------------------------------------------------------------


def mlp_inputs(s: Sizes) -> tuple[Tree, ...]:
    widths = (s.width, s.width, s.width, 10)
    layers = [
        {"weights": dense(before, after, seed), "bias": normal((after,), seed + 10, 0.1)}
        for seed, (before, after) in enumerate(pairwise(widths))
    ]
    return layers, normal((s.batch, s.width), 20), normal((s.batch, 10), 21)


def mlp_gradient(xp: Any, s: Sizes, layers: Tree, x: Any, y: Any) -> Tree:
    def loss(layers: Tree) -> Any:
        hidden = x
        for index, w in enumerate(layers):
            hidden = hidden @ w["weights"] + w["bias"]
            if index < 2:
                hidden = xp.tanh(hidden)
        return xp.mean((hidden - y) ** 2)

    return xp.value_and_grad(loss)(layers)


# --- a training step of an LSTM --------------------------------------------------------------------------------------


def lstm_inputs(s: Sizes) -> tuple[Tree, ...]:
    """Gates in the order of PyTorch's: input, forget, cell, output."""
    parameters = {
        "input": dense(s.width, 4 * s.width, 1),
        "state": dense(s.width, 4 * s.width, 2),
        "bias": normal((4 * s.width,), 3, 0.1),
        "head": dense(s.width, 10, 4),
    }
    return parameters, adam_state(parameters), normal((s.length, s.batch, s.width), 5), integers((s.batch,), 10, 6)


def lstm(xp: Any, s: Sizes, parameters: Tree, state: Tree, x: Any, target: Any) -> Tree:
    width = s.width

    def loss(w: Tree) -> Any:
        def step(carried: Any, projected: Any) -> Any:
            hidden, cell = carried
            gates = projected + hidden @ w["state"]
            i, f, g, o = (gates[:, k * width : (k + 1) * width] for k in range(4))
            cell = xp.nn.sigmoid(f) * cell + xp.nn.sigmoid(i) * xp.tanh(g)
            hidden = xp.nn.sigmoid(o) * xp.tanh(cell)
            return (hidden, cell), hidden

        start = xp.zeros_like(x[0])
        (hidden, _), _ = xp.scan(step, (start, start), x @ w["input"] + w["bias"])
        return xp.mean(xp.nn.cross_entropy(hidden @ w["head"], target))

    value, gradients = xp.value_and_grad(loss)(parameters)
    return *xp.adam(parameters, gradients, state), value


# --- PointNet --------------------------------------------------------------------------------------------------------

POINTNET = (3, 64, 128, 1024)
CLASSES = 40


def pointnet_inputs(s: Sizes) -> tuple[Tree, ...]:
    def layers(widths: tuple[int, ...], seed: int) -> Tree:
        return [
            {"weights": normal((m, n), seed + i, (2.0 / m) ** 0.5), "bias": normal((n,), seed + i + 10, 0.1)}
            for i, (m, n) in enumerate(pairwise(widths))
        ]

    widths = (*POINTNET[:-1], s.features)
    parameters = {"points": layers(widths, 1), "head": layers((s.features, 256, CLASSES), 30)}
    return parameters, normal((s.batch, s.points, 3), 50), integers((s.batch,), CLASSES, 51)


def pointnet(xp: Any, s: Sizes, parameters: Tree, points: Any, target: Any) -> Tree:
    def loss(w: Tree) -> Any:
        hidden = points
        for layer in w["points"]:
            hidden = xp.nn.relu(hidden @ layer["weights"] + layer["bias"])
        first, last = w["head"]
        hidden = xp.nn.relu(xp.max(hidden, axis=1) @ first["weights"] + first["bias"])
        return xp.mean(xp.nn.cross_entropy(hidden @ last["weights"] + last["bias"], target))

    return xp.value_and_grad(loss)(parameters)


# --- embedding and cross entropy -------------------------------------------------------------------------------------


def embedding_inputs(s: Sizes) -> tuple[Tree, ...]:
    parameters = {"table": normal((s.vocabulary, s.width), 1), "head": dense(s.width, s.vocabulary, 2)}
    return parameters, integers((s.tokens,), s.vocabulary, 3), integers((s.tokens,), s.vocabulary, 4)


def embedding(xp: Any, s: Sizes, parameters: Tree, tokens: Any, target: Any) -> Tree:
    def loss(w: Tree) -> Any:
        scores = xp.take(w["table"], tokens, axis=0) @ w["head"]
        return xp.mean(xp.nn.cross_entropy(scores, target))

    return xp.value_and_grad(loss)(parameters)


# --- k-means ---------------------------------------------------------------------------------------------------------

ROUNDS = 10


def kmeans_inputs(s: Sizes) -> tuple[Array, ...]:
    centres = normal((s.clusters, s.width), 1, 4.0)
    points = centres[integers((s.points,), s.clusters, 2)] + normal((s.points, s.width), 3)
    return points, points[:: s.points // s.clusters][: s.clusters].copy()


def kmeans(xp: Any, s: Sizes, points: Any, centres: Any) -> Tree:
    def move(_: Any, centres: Any) -> Any:
        distances = xp.sum(centres**2, axis=1) - 2.0 * (points @ centres.T)
        nearest = xp.argmin(distances, axis=1)
        counts = xp.segment_sum(xp.ones_like(points[:, 0]), nearest, s.clusters)
        return xp.segment_sum(points, nearest, s.clusters) / xp.maximum(counts, 1.0)[:, None]

    return xp.fori_loop(0, ROUNDS, move, centres)


# --- Adam ------------------------------------------------------------------------------------------------------------


def adam_inputs(s: Sizes) -> tuple[Tree, ...]:
    parameters = [normal((s.count // 8,), seed) for seed in range(8)]
    gradients = [normal((s.count // 8,), seed + 10, 0.1) for seed in range(8)]
    return parameters, adam_state(parameters), gradients


def adam(xp: Any, s: Sizes, parameters: Tree, state: Tree, gradients: Tree) -> Tree:
    return xp.adam(parameters, gradients, state)


SCAN = one_size(steps=200, batch=64, width=256)
SMALL_SCAN = Sizes(steps=6, batch=3, width=8)
PROGRAMS = [
    Program("scan", "scan of {steps} steps tanh(c @ w + x), {batch} × {width}", SCAN, SMALL_SCAN, scan_inputs, scan),
    Program("scan_gradient", "gradient of a scan of {steps} steps, {batch} × {width}", SCAN, SMALL_SCAN, scan_inputs,
            scan_gradient),
    Program("mlp_gradient", "gradient of a network of three layers, {batch} × {width}", one_size(batch=64, width=256),
            Sizes(batch=4, width=12), mlp_inputs, mlp_gradient),
]  # fmt: skip
MODELS = [
    Program("lstm", "training step of an LSTM with AdamW, {length} × {batch} × {width}",
            three_sizes(Sizes(length=32, batch=32, width=128), Sizes(length=64, batch=64, width=256),
                        Sizes(length=128, batch=64, width=512)),
            Sizes(length=5, batch=3, width=8), lstm_inputs, lstm, state_count=2, checked=loss_and_mean,
            tolerance=2e-3),
    Program("pointnet", "PointNet with gradients, {batch} clouds of {points} points",
            three_sizes(*(Sizes(batch=b, points=n, features=1024) for b, n in ((8, 512), (32, 1024), (32, 4096)))),
            Sizes(batch=2, points=16, features=32), pointnet_inputs, pointnet, tolerance=5e-3),
    Program("embedding", "embedding and cross entropy with gradients, {tokens} tokens of {vocabulary}, {width} wide",
            three_sizes(Sizes(tokens=1024, vocabulary=8192, width=128), Sizes(tokens=4096, vocabulary=32768, width=256),
                        Sizes(tokens=8192, vocabulary=50257, width=512)),
            Sizes(tokens=9, vocabulary=20, width=6), embedding_inputs, embedding),
    Program("kmeans", f"{ROUNDS} rounds of k-means, {{points}} points of {{width}}, {{clusters}} clusters",
            three_sizes(Sizes(points=10_000, clusters=64, width=16), Sizes(points=100_000, clusters=128, width=32),
                        Sizes(points=1_000_000, clusters=256, width=32)),
            Sizes(points=60, clusters=4, width=3), kmeans_inputs, kmeans, tolerance=1e-2, differing=0.05),
    Program("adam", "AdamW update of {count} parameters",
            three_sizes(*(Sizes(count=count) for count in (1_000_000, 10_000_000, 100_000_000))), Sizes(count=80),
            adam_inputs, adam, state_count=2),
]  # fmt: skip
