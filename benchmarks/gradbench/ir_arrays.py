"""GradBench's functions of whole arrays in livegrad's IR."""

from typing import Any

from benchmarks.gradbench.inputs import FINGERS, JOINTS
from benchmarks.gradbench.programs import ODE_STEPS, gmm_constant
from livegrad import ops
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, f64, i64
from livegrad.ir.types import shape_of as sizes_of


def shape_of(type: Any) -> tuple[int, ...]:
    """A shape without symbolic sizes."""
    return tuple(size for size in sizes_of(type) if isinstance(size, int))


def spread(x: Node, shape: tuple[int, ...], *axes: int) -> Node:
    return ops.broadcast(x, shape=shape, axes=axes)


def total(x: Node, *axes: int, kind: str = "sum") -> Node:
    return ops.reduce(x, kind=kind, axes=axes)


def scalar(x: Node) -> Node:
    """The element of a tensor of rank 0."""
    return ops.lookup(x)


def swap(x: Node) -> Node:
    rank = len(shape_of(x.type))
    return ops.permute(x, axes=(*range(rank - 2), rank - 1, rank - 2))


def part(x: Node, start: int, stop: int, axis: int = 0) -> Node:
    shape = shape_of(x.type)
    starts = tuple(start if a == axis else 0 for a in range(len(shape)))
    sizes = tuple(stop - start if a == axis else size for a, size in enumerate(shape))
    return ops.slice_(x, start=starts, size=sizes, step=(1,) * len(shape))


def llsq(x: Node, powers: Node, signs: Node) -> Node:
    (m,), (n,) = shape_of(x.type), shape_of(signs.type)
    fitted = ops.reshape(ops.matmul(powers, ops.reshape(x, shape=(m, 1))), shape=(n,))
    residual = signs - fitted
    return scalar(total(residual * residual, 0)) * 0.5


def log_sum_exp(x: Node) -> Node:
    """Along the first axis."""
    highest = ops.detach(total(x, 0, kind="max"))
    shape = shape_of(x.type)
    return highest + ops.log(total(ops.exp(x - spread(highest, shape, *range(1, len(shape)))), 0))


def lse(x: Node) -> Node:
    return scalar(log_sum_exp(x))


def ode(x: Node) -> Node:
    (n,) = shape_of(x.type)
    h = 2.0 / ODE_STEPS
    first = part(x, 0, 1)

    def slope(y: Node) -> Node:
        return ops.concatenate(first, part(x, 1, n) * part(y, 0, n - 1), axis=0)

    def step(index: Node, y: Node) -> Node:
        k1 = slope(y)
        k2 = slope(y + k1 * (h / 2))
        k3 = slope(y + k2 * (h / 2))
        k4 = slope(y + k3 * h)
        return y + (k1 + k2 * 2.0 + k3 * 2.0 + k4) * (h / 6)

    (last,) = ops.make_for_loop(constant(ODE_STEPS, i64), step, ops.zero(x.type))
    return last


def ode_last(x: Node) -> Node:
    (n,) = shape_of(x.type)
    return ops.lookup(ode(x), constant(n - 1, i64))


def triangular(q: Node, below: Node) -> Node:
    """Lower triangular matrices: exp(q) on the diagonal, the rest column by column."""
    k, d = shape_of(q.type)
    shape = (k, d, d)
    batch, row, column = (ops.index_along(shape, axis) for axis in range(3))
    is_below = row > column
    index = ops.select(is_below, column * (2 * d - 1 - column) // 2 + row - column - 1, ops.zero(row.type))
    diagonal = ops.select(ops.equal(row, column), spread(ops.exp(q), shape, 0, 1), ops.zero(Tensor(f64, shape)))
    return ops.select(is_below, ops.lookup(below, batch, index), diagonal)


def gmm(x: Node, alpha: Node, mu: Node, q: Node, below: Node) -> Node:
    (n, d), (k,) = shape_of(x.type), shape_of(alpha.type)
    factor = triangular(q, below)
    # Observations are the last axis, because they are many and contiguous in memory.
    centred = spread(swap(x), (k, d, n), 1, 2) - spread(mu, (k, d, n), 0, 1)
    moved = ops.matmul(factor, centred)
    beta = spread(alpha + total(q, 1), (k, n), 0) - total(moved * moved, 1) * 0.5
    likelihood = scalar(total(log_sum_exp(beta), 0)) - scalar(log_sum_exp(alpha)) * float(n)
    return likelihood - scalar(total(factor * factor, 0, 1, 2)) * 0.5 + gmm_constant(n, d, k)


def kmeans(points: Node, centroids: Node) -> Node:
    (n, _), (k, _) = shape_of(points.type), shape_of(centroids.type)
    lengths = spread(total(points * points, 1), (n, k), 0) + spread(total(centroids * centroids, 1), (n, k), 1)
    return scalar(total(total(lengths - ops.matmul(points, swap(centroids)) * 2.0, 1, kind="min"), 0))


def ht(theta: Node, relatives: Node, inverses: Node, vertices: Node, weights: Node, points: Node) -> Node:
    (n, _), bones = shape_of(points.type), 1 + FINGERS * JOINTS
    local_transforms = ops.matmul(relatives, euler_rotations(finger_angles(theta)))
    level = part(local_transforms, 0, 1)
    absolute = [level]
    for joint in range(JOINTS):
        level = ops.matmul(level, part(local_transforms, 1 + joint * FINGERS, 1 + (joint + 1) * FINGERS))
        absolute.append(level)
    transforms = ops.matmul(ops.concatenate(*absolute, axis=0), inverses)
    held = ops.reshape(
        spread(weights, (n, bones, 4), 0, 1) * spread(vertices, (n, bones, 4), 0, 2), shape=(n, bones * 4)
    )
    posed = ops.matmul(held, ops.reshape(part(swap(transforms), 0, 3, axis=2), shape=(bones * 4, 3)))
    turned = ops.matmul(posed, swap(axis_rotation(part(theta, 0, 3))))
    return points - turned - spread(part(theta, 3, 6), (n, 3), 1)


def finger_angles(theta: Node) -> list[Node]:
    """The x, z and y angles of all bones."""
    free = ops.reshape(part(theta, 6, 6 + 4 * FINGERS), shape=(FINGERS, 4))
    column = [ops.reshape(part(free, at, at + 1, axis=1), shape=(FINGERS,)) for at in range(4)]
    still, none = ops.zero(Tensor(f64, (1 + FINGERS,))), ops.zero(Tensor(f64, (FINGERS,)))
    return [
        ops.concatenate(still, column[0], column[2], column[3], axis=0),
        ops.concatenate(still, column[1], none, none, axis=0),
        ops.concatenate(still, none, none, none, axis=0),
    ]


def euler_rotations(angles: list[Node]) -> Node:
    (cx, cz, cy), (sx, sz, sy) = ([f(angle) for angle in angles] for f in (ops.cos, ops.sin))
    nothing, one = ops.zero(cx.type), ops.filled(1.0, cx.type)
    rows = [
        [cz * cy, -(cz * sy * sx) - sz * cx, sz * sx - cz * sy * cx, nothing],
        [sz * cy, cz * cx - sz * sy * sx, -(sz * sy * cx) - cz * sx, nothing],
        [sy, cy * sx, cy * cx, nothing],
        [nothing, nothing, nothing, one],
    ]
    (bones,) = shape_of(cx.type)
    flat = [ops.reshape(entry, shape=(bones, 1)) for row in rows for entry in row]
    return ops.reshape(ops.concatenate(*flat, axis=1), shape=(bones, 4, 4))


def axis_rotation(vector: Node) -> Node:
    angle = ops.sqrt(scalar(total(vector * vector, 0)))
    x, y, z = (ops.lookup(vector, constant(i, i64)) / angle for i in range(3))
    s, c = ops.sin(angle), ops.cos(angle)
    rows = [
        [x * x + (1.0 - x * x) * c, x * y * (1.0 - c) - z * s, x * z * (1.0 - c) + y * s],
        [x * y * (1.0 - c) + z * s, y * y + (1.0 - y * y) * c, y * z * (1.0 - c) - x * s],
        [x * z * (1.0 - c) - y * s, z * y * (1.0 - c) + x * s, z * z + (1.0 - z * z) * c],
    ]
    flat = [spread(entry, (1,)) for row in rows for entry in row]
    return ops.reshape(ops.concatenate(*flat, axis=0), shape=(3, 3))
