"""GradBench's functions of few numbers in livegrad's IR: straight code, and loops with derivatives inside."""

from collections.abc import Callable
from functools import cache

from livegrad import ops
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import Matrix, f64


def number(value: float) -> Node:
    return constant(value, f64)


def reprojection(camera: Node, point: Node, weight: Node, feature: Node) -> tuple[Node, Node]:
    """One observation's error."""
    c = [ops.get(camera, index=index) for index in range(11)]
    rotation = ops.make_vector(*c[:3])
    centred = point - ops.make_vector(*c[3:6])
    angle = ops.sqrt(ops.dot(rotation, rotation))
    vec3 = rotation.type
    axis = rotation / ops.splat(angle, type=vec3)
    cosine, sine = ops.cos(angle), ops.sin(angle)
    along = ops.dot(axis, centred) * (1.0 - cosine)
    seen = centred * ops.splat(cosine, type=vec3) + ops.cross(axis, centred) * ops.splat(sine, type=vec3)
    x, y, z = (ops.get(seen + axis * ops.splat(along, type=vec3), index=index) for index in range(3))
    u, v = x / z, y / z
    square = u * u + v * v
    bend = 1.0 + c[9] * square + c[10] * square * square
    expected = [ops.get(feature, index=index) for index in range(2)]
    return (
        weight * (u * bend * c[6] + c[7] - expected[0]),
        weight * (v * bend * c[6] + c[8] - expected[1]),
    )


def potential(x: Node, y: Node, w: Node) -> Node:
    first, second = ((10.0 - x), (y - (10.0 - w))), ((10.0 - x), y)
    return sum((1.0 / ops.sqrt(a * a + b * b) for a, b in (first, second)), number(0.0))


def particle(w: Node) -> Node:
    dt = 0.1
    field = trace(potential, f64, f64, f64)

    def above(x: Node, y: Node, vx: Node, vy: Node) -> Node:
        return y + vy * dt > 0.0

    def step(index: Node, x: Node, y: Node, vx: Node, vy: Node) -> tuple[Node, ...]:
        force = ops.bwd_diff(x, y, w, number(1.0), function=field)
        fx, fy = (ops.get(force, index=i) for i in range(2))
        return x + vx * dt, y + vy * dt, vx - fx * dt, vy - fy * dt

    x, y, vx, vy = ops.make_while_loop(above, step, *map(number, (0.0, 8.0, 0.75, 0.0)))
    end = x - y / vy * vx
    return end * end


def lowered_saddle(y0: Node, y1: Node, x0: Node, x1: Node) -> Node:
    return y0 * y0 + y1 * y1 - (x0 * x0 + x1 * x1)


def saddle(x0: Node, x1: Node) -> Node:
    """The largest value over y, found by gradient descent on the negated function."""
    function = trace(lowered_saddle, *[f64] * 4)

    def gradient(y0: Node, y1: Node) -> list[Node]:
        pulled = ops.bwd_diff(y0, y1, x0, x1, number(1.0), function=function)
        return [ops.get(pulled, index=i) for i in range(2)]

    def value(y0: Node, y1: Node) -> Node:
        return ops.call(y0, y1, x0, x1, function=function)

    one = number(1.0)
    start = (one, one, value(one, one), *gradient(one, one), number(1e-5), number(0.0), one)
    y0, y1, *_ = ops.make_while_loop(lambda *state: state[-1] > 0.0, descent(value, gradient), *start)
    return -value(y0, y1)


def descent(value: Callable[..., Node], gradient: Callable[..., list[Node]]) -> Callable[..., list[Node]]:
    """One step of GradBench's gradient descent in two dimensions."""

    def step(
        index: Node, y0: Node, y1: Node, f: Node, g0: Node, g1: Node, eta: Node, count: Node, go: Node
    ) -> list[Node]:
        state = (y0, y1, f, g0, g1, eta, count, go)
        length = g0 * g0 + g1 * g1
        rested = ops.equal(count, 10.0)
        settled = (length <= 1e-10) | (ops.bit_not(rested) & (eta * eta * length <= 1e-10))

        def attempt() -> tuple[Node, ...]:
            n0, n1 = y0 - eta * g0, y1 - eta * g1
            lower = value(n0, n1)
            moved = ops.make_cond(
                lower < f,
                lambda: (n0, n1, lower, *gradient(n0, n1), eta, count + 1.0, go),
                lambda: (*state[:5], eta * 0.5, count * 0.0, go),
            )
            return tuple(ops.get(moved, index=i) for i in range(8))

        def go_on() -> tuple[Node, ...]:
            tried = ops.make_cond(rested, lambda: (*state[:5], eta * 2.0, count * 0.0, go), attempt)
            return tuple(ops.get(tried, index=i) for i in range(8))

        after = ops.make_cond(settled, lambda: (*state[:7], go * 0.0), go_on)
        return [ops.get(after, index=i) for i in range(8)]

    return step


def det(matrix: Node) -> Node:
    """Expansion by minors, row by row; equal minors are one node."""
    assert isinstance(matrix.type, Matrix)
    size = matrix.type.rows
    entry = [[ops.get(matrix, index=row * size + column) for column in range(size)] for row in range(size)]

    @cache
    def minor(row: int, columns: tuple[int, ...]) -> Node:
        if len(columns) == 1:
            return entry[row][columns[0]]
        result: Node | None = None
        for index, column in enumerate(columns):
            term = entry[row][column] * minor(row + 1, columns[:index] + columns[index + 1 :])
            result = term if result is None else (result - term if index % 2 else result + term)
        assert result is not None
        return result

    return minor(0, tuple(range(size)))
