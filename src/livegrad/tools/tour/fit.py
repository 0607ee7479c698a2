"""Fits the measures of the wheel to the target by gradient descent, as one For region of the plan.

In: sample points, and the distance of the target at each. Out: a region whose pin `count` is the number of Adam steps.
The region is stateless: its outputs depend only on its pins.
"""

from __future__ import annotations

import livegrad as lg
from livegrad.tools.tour.wheel import BOUNDS, MEASURES, Wheel, distance

INITIAL_MEASURES = (0.82, 0.22, 0.44, 0.24, 0.16, 0.05)
CLIP = 0.15  # distances are clipped, because only the shape near the surface matters
STEPS = 200
LEARNING_RATE = 0.008


def sample_points(count: int, seed: int = 0) -> lg.Tensor:
    """Random points in the bounds of the part."""
    low, high = lg.asarray(BOUNDS[0]), lg.asarray(BOUNDS[1])
    return low + (high - low) * lg.random.uniform(lg.random.key(seed), (count, 3))


def loss(measures: lg.Tensor, points: lg.Tensor, target: lg.Tensor) -> lg.Tensor:
    """The mean squared difference from the target: the typed function at every point, as a lazy tensor."""
    fitted = distance(points, Wheel(*lg.unstack(measures)))
    return lg.mean((lg.clip(fitted, -CLIP, CLIP) - lg.clip(target, -CLIP, CLIP)) ** 2)


def differentiate(measures: lg.Tensor, points: lg.Tensor, target: lg.Tensor) -> tuple[lg.Tensor, lg.Tensor]:
    """The loss and its exact gradient."""
    return lg.value_and_grad(loss)(measures, points, target)


def descend(
    measures: lg.Tensor, gradient: lg.Tensor, mean: lg.Tensor, square: lg.Tensor, index: lg.Tensor, rate: lg.Tensor
) -> tuple[lg.Tensor, lg.Tensor, lg.Tensor]:
    """One step of Adam: the next measures, which stay above a small positive value, and the next moments."""
    optimizer = lg.optim.Adam(rate, betas=(0.85, 0.98))  # type: ignore[arg-type]
    next_measures, state = optimizer.update(measures, gradient, {"step": index, "mean": mean, "square": square})
    return lg.maximum(next_measures, 0.02), state["mean"], state["square"]


def record(losses: lg.Tensor, loss: lg.Tensor, index: lg.Tensor) -> lg.Tensor:
    """The losses of all steps so far, including this step."""
    return lg.where(lg.arange(STEPS) == index, loss, losses)


def make_fit(points: lg.Tensor, target: lg.Tensor, engine: lg.Engine) -> lg.For:
    """Adds the region to the engine, and sets its inputs."""
    body = lg.Composite("descent")
    gradient = body.graph.add(lg.block(differentiate, name="gradient", outputs=("loss", "gradient")))
    step = body.graph.add(lg.block(descend, name="descend", outputs=("next_measures", "next_mean", "next_square")))
    history = body.graph.add(lg.block(record, name="record", outputs=("next_losses",)))
    body.graph.connect(gradient["gradient"], step["gradient"])
    body.graph.connect(gradient["loss"], history["loss"])
    for pin in (gradient["measures"], step["measures"]):
        body.expose(pin, "measures")
    for pin in (step["index"], history["index"]):
        body.expose(pin, "index")
    for pin in (gradient["points"], gradient["target"], step["mean"], step["square"], step["rate"], history["losses"]):
        body.expose(pin)
    for pin in (step["next_measures"], step["next_mean"], step["next_square"], history["next_losses"]):
        body.expose(pin)
    carried = {
        "measures": "next_measures", "mean": "next_mean", "square": "next_square", "losses": "next_losses",
    }  # fmt: skip
    fit = engine.add(lg.For("fit", body, carried))
    engine.set(fit["measures"], lg.asarray(INITIAL_MEASURES).numpy())
    engine.set(fit["mean"], lg.zeros(len(MEASURES)).numpy())
    engine.set(fit["square"], lg.zeros(len(MEASURES)).numpy())
    engine.set(fit["losses"], lg.zeros(STEPS).numpy())
    engine.set(fit["points"], points.numpy())
    engine.set(fit["target"], target.numpy())
    engine.set(fit["rate"], LEARNING_RATE)
    engine.set(fit["count"], 0)
    return fit
