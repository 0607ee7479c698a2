"""GradBench's functions for any array library (see `arrays`), and how each is differentiated."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.gradbench.arrays import Arrays, State
from benchmarks.gradbench.inputs import FINGERS, JOINTS

# gradient: of one number; rows: of two numbers for each observation; columns: of a vector by few parameters;
# newton: the gradient over the diagonal of the Hessian.
Derivative = Literal["gradient", "rows", "columns", "newton"]
ODE_STEPS = 100


def hello(xp: Arrays, x: Any) -> Any:
    return xp.sum(x * x)


def llsq(xp: Arrays, x: Any, powers: Any, signs: Any) -> Any:
    residual = signs - powers @ x
    return xp.sum(residual * residual) / 2


def log_sum_exp(xp: Arrays, x: Any, axis: int) -> Any:
    """Along the first or the last axis."""
    highest = xp.fixed(xp.max(x, axis))
    return highest + xp.log(xp.sum(xp.exp(x - (highest if axis == 0 else highest[..., None])), axis))


def lse(xp: Arrays, x: Any) -> Any:
    return log_sum_exp(xp, x, 0)


def ode(xp: Arrays, x: Any) -> Any:
    """Runge and Kutta's method on y0' = x0, yi' = xi · y(i-1), from 0 to 2."""
    h = 2.0 / ODE_STEPS

    def slope(y: Any) -> Any:
        return xp.concatenate([x[:1], x[1:] * y[:-1]])

    def step(y: Any) -> Any:
        k1 = slope(y)
        k2 = slope(y + h / 2 * k1)
        k3 = slope(y + h / 2 * k2)
        k4 = slope(y + h * k3)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    return xp.repeat(ODE_STEPS, step, xp.zeros_like(x))


def ode_last(xp: Arrays, x: Any) -> Any:
    return ode(xp, x)[-1]


def triangle_places(d: int) -> tuple[Any, Any]:
    """For each matrix element, its index in q followed by l (in column-major order), and whether it has one."""
    index, has = np.zeros((d, d), np.int64), np.zeros((d, d), bool)
    following = itertools.count(d)
    for column in range(d):
        index[column, column], has[column, column] = column, True
        for row in range(column + 1, d):
            index[row, column], has[row, column] = next(following), True
    return index, has


def gmm_constant(n: int, d: int, k: int) -> float:
    """The terms of the log posterior that depend on sizes alone, with m = 0 and gamma = 1."""
    freedom = d + 1
    multigamma = d * (d - 1) / 4 * math.log(math.pi) + sum(math.lgamma((freedom - j) / 2) for j in range(d))
    return -n * d / 2 * math.log(2 * math.pi) + k * (freedom * d * math.log(1 / math.sqrt(2)) - multigamma)


def gmm(xp: Arrays, x: Any, alpha: Any, mu: Any, q: Any, l: Any) -> Any:  # noqa: E741 - GradBench's name
    (n, d), k = x.shape, len(alpha)
    index, has = triangle_places(d)
    entries = xp.concatenate([xp.exp(q), l], 1)
    factor = xp.where(xp.array(has), entries[:, index], xp.zeros_like(q)[0, 0])
    moved = factor @ (xp.swap(x)[None] - mu[:, :, None])
    beta = (alpha + xp.sum(q, 1))[:, None] - xp.sum(moved * moved, 1) / 2
    likelihood = xp.sum(log_sum_exp(xp, beta, 0)) - n * log_sum_exp(xp, alpha, 0)
    return likelihood - xp.sum(factor * factor) / 2 + gmm_constant(n, d, k)


def ba(xp: Arrays, camera: Any, point: Any, weight: Any, feature: Any) -> tuple[Any, Any]:
    """The weighted errors of all observations, both components."""
    rotation, from_centre = camera[:, :3], point - camera[:, 3:6]
    angle = xp.sqrt(xp.sum(rotation * rotation, 1))[:, None]
    axis = rotation / angle
    turned = [axis[:, i - 2] * from_centre[:, i - 1] - axis[:, i - 1] * from_centre[:, i - 2] for i in range(3)]
    along = xp.sum(axis * from_centre, 1)[:, None] * (1.0 - xp.cos(angle))
    seen = from_centre * xp.cos(angle) + xp.stack(turned, 1) * xp.sin(angle) + axis * along
    flat = seen[:, :2] / seen[:, 2:]
    square = xp.sum(flat * flat, 1)
    bent = flat * (1.0 + camera[:, 9] * square + camera[:, 10] * square * square)[:, None]
    error = weight[:, None] * (bent * camera[:, 6:7] + camera[:, 7:9] - feature)
    return error[:, 0], error[:, 1]


def kmeans(xp: Arrays, points: Any, centroids: Any) -> Any:
    squares = xp.sum(points * points, 1)[:, None] + xp.sum(centroids * centroids, 1) - 2 * (points @ xp.swap(centroids))
    return xp.sum(xp.min(squares, 1))


def ht(xp: Arrays, theta: Any, relatives: Any, inverses: Any, vertices: Any, weights: Any, points: Any) -> Any:
    """Rotates bones by theta, moves the vertices with them, and returns their offsets from the observed points."""
    angles = finger_angles(xp, theta)
    local_transforms = xp.array(relatives) @ euler_rotations(xp, angles)
    absolute = [local_transforms[:1]]
    level = local_transforms[:1]
    for joint in range(JOINTS):
        level = level @ local_transforms[1 + joint * FINGERS : 1 + (joint + 1) * FINGERS]
        absolute.append(level)
    transforms = xp.concatenate(absolute) @ xp.array(inverses)
    count, bones = weights.shape
    held = (xp.array(weights)[:, :, None] * xp.array(vertices)[:, None, :]).reshape(count, bones * 4)
    posed = held @ xp.swap(transforms)[:, :, :3].reshape(bones * 4, 3)
    turned = posed @ xp.swap(axis_rotation(xp, theta[:3]))
    return xp.array(points) - (turned + theta[3:6])


def finger_angles(xp: Arrays, theta: Any) -> Any:
    """Three angles for each bone: none for the wrist and the first joints; x and y for the second, x for the others."""
    x, z, nothing = theta[6:], theta[6:] * 0, xp.zeros_like(theta[:FINGERS])
    first = xp.stack([x[0::4], x[1::4], z[0::4]], 1)
    others = [xp.stack([x[at::4], z[at::4], z[at::4]], 1) for at in (2, 3)]
    still = xp.stack([nothing, nothing, nothing], 1)
    return xp.concatenate([still[:1], still, first, *others])


def euler_rotations(xp: Arrays, angles: Any) -> Any:
    """Rotations about x, then y, then z, as matrices of four rows."""
    (cx, cz, cy), (sx, sz, sy) = ([part[:, i] for i in range(3)] for part in (xp.cos(angles), xp.sin(angles)))
    zero = cx * 0
    rows = [
        [cz * cy, cz * sy * sx * -1 - sz * cx, sz * sx - cz * sy * cx, zero],
        [sz * cy, cz * cx - sz * sy * sx, sz * sy * cx * -1 - cz * sx, zero],
        [sy, cy * sx, cy * cx, zero],
        [zero, zero, zero, zero + 1],
    ]
    return xp.stack([xp.stack(row, 1) for row in rows], 1)


def axis_rotation(xp: Arrays, vector: Any) -> Any:
    angle = xp.sqrt(xp.sum(vector * vector))
    x, y, z = (vector[i] / angle for i in range(3))
    s, c = xp.sin(angle), xp.cos(angle)
    rows = [
        [x * x + (1 - x * x) * c, x * y * (1 - c) - z * s, x * z * (1 - c) + y * s],
        [x * y * (1 - c) + z * s, y * y + (1 - y * y) * c, y * z * (1 - c) - x * s],
        [x * z * (1 - c) - y * s, z * y * (1 - c) + x * s, z * z + (1 - z * z) * c],
    ]
    return xp.stack([xp.stack(row) for row in rows])


def particle(xp: Arrays, w: Any) -> Any:
    """Where a particle between two charges crosses the x axis, squared; Euler's method, forces by differentiation."""
    charges = ((10.0, 10.0 - w[0]), (10.0, 0.0 * w[0]))
    dt = 0.1

    def potential(x: Any) -> Any:
        return sum(1.0 / xp.sqrt((x[0] - a) ** 2 + (x[1] - b) ** 2) for a, b in charges)

    force = xp.gradient(potential)

    def above(x: Any, v: Any) -> Any:
        return x[1] + dt * v[1] > 0

    def step(x: Any, v: Any) -> State:
        return x + dt * v, v - dt * force(x)

    start = xp.stack([0.0 * w[0], 8.0 + 0.0 * w[0]]), xp.stack([0.75 + 0.0 * w[0], 0.0 * w[0]])
    x, v = xp.loop(above, step, start)
    end = x[0] - x[1] / v[1] * v[0]
    return end * end


def saddle(xp: Arrays, outer: Any) -> Any:
    """The largest value over y of |x|² - |y|², by gradient ascent from (1, 1), as a function of x."""

    def objective(y: Any) -> Any:
        return xp.sum(outer * outer) - xp.sum(y * y)

    def lowered(y: Any) -> Any:
        return -objective(y)

    start = xp.array(np.ones(2)) + 0.0 * outer
    return objective(argmin(xp, lowered, start))


def argmin(xp: Arrays, function: Callable[[Any], Any], start: Any) -> Any:
    """GradBench's gradient descent: the step doubles after ten that went down, and halves after one that did not."""
    gradient = xp.gradient(function)
    one = xp.sum(start) * 0 + 1.0

    def go_on(x: Any, fx: Any, gx: Any, eta: Any, count: Any, going: Any) -> Any:
        return going > 0

    def step(x: Any, fx: Any, gx: Any, eta: Any, count: Any, going: Any) -> State:
        candidate = x - eta * gx
        settled = (xp.sum(gx * gx) <= 1e-10) | ((count != 10) & (xp.sum((eta * gx) ** 2) <= 1e-10))

        def move() -> State:
            lower = function(candidate)
            return xp.choose(
                lower < fx,
                lambda: (candidate, lower, gradient(candidate), eta, count + 1, going),
                lambda: (x, fx, gx, eta / 2, count * 0, going),
            )

        return xp.choose(
            settled,
            lambda: (x, fx, gx, eta, count, going * 0),
            lambda: xp.choose(count == 10, lambda: (x, fx, gx, eta * 2, count * 0, going), move),
        )

    begin = (start, function(start), gradient(start), one * 1e-5, one * 0, one)
    return xp.loop(go_on, step, begin)[0]


def permutations(size: int) -> tuple[Any, Any]:
    """Every permutation, and its sign."""
    columns = np.array(list(itertools.permutations(range(size))))
    swaps = [sum(a > b for i, a in enumerate(row) for b in row[i + 1 :]) for row in columns.tolist()]
    return columns, np.where(np.array(swaps) % 2, -1.0, 1.0)


def det(xp: Arrays, matrix: Any) -> Any:
    """All products at once: array libraries have no recursion, and GradBench allows this form for them."""
    size = matrix.shape[0]
    columns, signs = permutations(size)
    return xp.sum(xp.array(signs) * xp.product(matrix[np.arange(size), columns], 1))


@dataclass(frozen=True)
class Program:
    """A function, the arguments it is differentiated by, and how; `objective` where that is not the function itself."""

    name: str
    primal: Callable[..., Any]
    active: tuple[int, ...] = (0,)
    derivative: Derivative = "gradient"
    objective: Callable[..., Any] | None = None

    @property
    def differentiated(self) -> Callable[..., Any]:
        return self.objective or self.primal


PROGRAMS = {
    program.name: program
    for program in (
        Program("hello", hello),
        Program("llsq", llsq),
        Program("lse", lse),
        Program("ode", ode, objective=ode_last),
        Program("gmm", gmm, (1, 2, 3, 4)),
        Program("ba", ba, (0, 1, 2), "rows"),
        Program("kmeans", kmeans, (1,), "newton"),
        Program("ht", ht, (0,), "columns"),
        Program("particle", particle),
        Program("saddle", saddle),
        Program("det", det),
    )
}
