"""The fit: gradient descent on the dimensions of the wheel, as one For region of the plan.

In: sample points and the target's distance at each. Out: a region whose pin `count` is the number of Adam steps. It has
no state: its outputs depend only on its pins.
"""

from __future__ import annotations

import livegrad as lg
from livegrad.tools.tour.wheel import BOUNDS, MEASURES, Wheel, distance

FIRST = (0.82, 0.22, 0.44, 0.24, 0.16, 0.05)
REACH = 0.15  # distances are clipped to this, because only the shape near the surface matters
STEPS = 200
RATE = 0.008


def sample_points(count: int, seed: int = 0) -> lg.Tensor:
    """Random points in the bounds of the part."""
    low, high = lg.asarray(BOUNDS[0]), lg.asarray(BOUNDS[1])
    return low + (high - low) * lg.random.uniform(lg.random.key(seed), (count, 3))


def loss(measures: lg.Tensor, points: lg.Tensor, target: lg.Tensor) -> lg.Tensor:
    """The mean squared difference to the target: the typed function at every point, as a lazy tensor."""
    fitted = distance(points, Wheel(*lg.unstack(measures)))
    return lg.mean((lg.clip(fitted, -REACH, REACH) - lg.clip(target, -REACH, REACH)) ** 2)


def slope(measures: lg.Tensor, points: lg.Tensor, target: lg.Tensor) -> tuple[lg.Tensor, lg.Tensor]:
    """The loss and its exact gradient."""
    return lg.value_and_grad(loss)(measures, points, target)


def descend(
    measures: lg.Tensor, gradient: lg.Tensor, mean: lg.Tensor, square: lg.Tensor, index: lg.Tensor, rate: lg.Tensor
) -> tuple[lg.Tensor, lg.Tensor, lg.Tensor]:
    """One step of Adam, and the moments for the next one. Measures stay above a small positive value."""
    optimizer = lg.optim.Adam(rate, decay=0.85, square_decay=0.98)  # type: ignore[arg-type]
    better, state = optimizer.update(measures, gradient, {"step": index, "mean": mean, "square": square})
    return lg.maximum(better, 0.02), state["mean"], state["square"]


def note(losses: lg.Tensor, loss: lg.Tensor, index: lg.Tensor) -> lg.Tensor:
    """The losses so far, with this step's."""
    return lg.where(lg.arange(STEPS) == index, loss, losses)


def make_fit(points: lg.Tensor, target: lg.Tensor, engine: lg.Engine) -> lg.For:
    """The region, in the engine, with its inputs set."""
    body = lg.Composite("descent")
    down = body.graph.add(lg.block(slope, name="slope", outputs=("loss", "gradient")))
    better = body.graph.add(lg.block(descend, name="descend", outputs=("better", "mean_then", "square_then")))
    noted = body.graph.add(lg.block(note, name="note", outputs=("noted",)))
    body.graph.connect(down["gradient"], better["gradient"])
    body.graph.connect(down["loss"], noted["loss"])
    for inner in (down["measures"], better["measures"]):
        body.expose(inner, "measures")
    for inner in (better["index"], noted["index"]):
        body.expose(inner, "index")
    for inner in (down["points"], down["target"], better["mean"], better["square"], better["rate"], noted["losses"]):
        body.expose(inner)
    for inner in (better["better"], better["mean_then"], better["square_then"], noted["noted"]):
        body.expose(inner)
    carried = {"measures": "better", "mean": "mean_then", "square": "square_then", "losses": "noted"}
    fit = engine.add(lg.For("fit", body, carried))
    engine.set(fit["measures"], lg.asarray(FIRST).numpy())
    engine.set(fit["mean"], lg.zeros(len(MEASURES)).numpy())
    engine.set(fit["square"], lg.zeros(len(MEASURES)).numpy())
    engine.set(fit["losses"], lg.zeros(STEPS).numpy())
    engine.set(fit["points"], points.numpy())
    engine.set(fit["target"], target.numpy())
    engine.set(fit["rate"], RATE)
    engine.set(fit["count"], 0)
    return fit
