"""Programs with control flow that the tests of differentiation share, each with arguments at which it is smooth.

Among them are those that other systems get wrong: products and weighted means in loops whose iterations are known only
at run time, vectors changed component by component, values made before a loop and used after it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Array, Struct, Tensor, Tuple, Type, Vector, bool_, c128, f64, i32, i64
from livegrad.ops.aggregate import get, get_at, get_field, make, make_tuple, make_vector, set_, set_at
from livegrad.ops.control import call, make_cond, make_for_loop, make_switch, make_while_loop
from livegrad.ops.conversion import cast, conj, imag, real
from livegrad.ops.elementwise import max, select
from livegrad.ops.indexing import lookup, scatter_add
from livegrad.ops.linalg import matmul
from livegrad.ops.maps import make_map
from livegrad.ops.movement import broadcast
from livegrad.ops.reduction import reduce
from livegrad.ops.transcendental import cos, exp, log, sin, sqrt
from livegrad.ops.vector import cross, dot, length

Program = tuple[Function, tuple[Any, ...]]
PROGRAMS: dict[str, Program] = {}
POINT = Vector(f64, 3)
TABLE = Tensor(f64, (5,))
BODY = Struct("Body", (("id", i32), ("place", POINT), ("mass", f64), ("hits", i64)))
VALUES = np.array([0.7, -1.2, 0.4, 1.6, -0.5])


def program(*types: Type, at: tuple[Any, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the traced callable to `PROGRAMS`, under its name, with these arguments."""

    def add(callable: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[callable.__name__] = (trace(callable, *types), at)
        return callable

    return add


# --- calls and branches ----------------------------------------------------------------------------------------------


@program(f64, f64, at=(0.7, -0.4))
def calls(x: Node, y: Node) -> Node:
    inner = trace(lambda a, b, k: (sin(a) * b, k + 1, a / 2.0), f64, f64, i64, name="inner")
    first = call(x, y, cast(x * 0.0, type=i64), function=inner)
    second = call(get(first, index=0), get(first, index=2), get(first, index=1), function=inner)
    return get(second, index=0) * x + cast(get(second, index=1), type=f64) * y


@program(f64, f64, at=(0.7, -0.4))
def branches(x: Node, y: Node) -> Node:
    chosen = make_cond(x > 0.0, lambda a: (a * sin(y), a), lambda a: (exp(a), y * y), x)
    return get(chosen, index=0) * get(chosen, index=1)


@program(f64, f64, at=(-0.7, -0.4))
def other_branch(x: Node, y: Node) -> Node:
    return make_cond(x > 0.0, lambda a: a * sin(y), lambda a: exp(a) * a * y, x) * x


@program(bool_, f64, f64, at=(True, 0.3, 0.9))
def branches_with_different_needs(p: Node, x: Node, y: Node) -> Node:
    """The branches keep different numbers and types of values for the backward pass."""

    def then(a: Node) -> Node:
        v = make_vector(a, y, a * y)
        return dot(v, v) * sin(a)

    return make_cond(p, then, lambda a: y * 2.0, x)


@program(i32, f64, f64, at=(2, 0.7, -0.4))
def switches(k: Node, x: Node, y: Node) -> Node:
    return make_switch(k, [lambda a: a * y, lambda a: sin(a) * a, lambda a: exp(a * y) * a, lambda a: x - a], x * y)


@program(f64, at=(1.3,))
def nested_branches(x: Node) -> Node:
    def inner(a: Node) -> Node:
        return make_cond(a > 1.0, lambda b: b * b * x, lambda b: sin(b), a)

    return make_cond(x < 0.0, lambda a: a, inner, x * x)


# --- loops -----------------------------------------------------------------------------------------------------------


@program(i64, f64, at=(4, 1.1))
def product_loop(n: Node, x: Node) -> Node:
    """x ** (n + 1), by a run-time number of multiplications."""
    return make_for_loop(n, lambda i, p: p * x, x)[0]


@program(i64, TABLE, TABLE, at=(5, VALUES, VALUES[::-1] ** 2 + 0.5))
def weighted_mean(n: Node, values: Node, weights: Node) -> Node:
    def step(i: Node, total: Node, weight: Node) -> tuple[Node, Node]:
        w = lookup(weights, i) * lookup(weights, i)
        return total + w * lookup(values, i), weight + w

    total, weight = make_for_loop(n, step, lookup(values, n - n) * 0.0, lookup(weights, n - n) * 0.0)
    return total / weight


@program(i64, f64, at=(4, 0.8))
def loop_backwards(n: Node, x: Node) -> Node:
    return make_for_loop(n, lambda i, a: a * sin(a) + cast(i, type=f64) * x, x, reverse=True)[0]


@program(i64, f64, f64, at=(3, 0.8, 0.3))
def nested_loops(n: Node, x: Node, y: Node) -> Node:
    """The inner iterations depend on the outer index, the inner body on everything around it."""

    def outer(i: Node, a: Node) -> Node:
        scale = sin(a) * y

        def inner(j: Node, b: Node) -> Node:
            return b * scale + cast(j + i, type=f64) * x * 0.1

        return make_for_loop(i + 1, inner, a)[0] + a * 0.5

    return make_for_loop(n, outer, x)[0]


@program(i64, f64, at=(2, 0.6))
def thrice_nested_loops(n: Node, x: Node) -> Node:
    def outer(i: Node, a: Node) -> Node:
        def middle(j: Node, b: Node) -> Node:
            return make_for_loop(j + 1, lambda k, c: c * b * 0.9 + sin(a), b)[0]

        return make_for_loop(n, middle, a * x)[0]

    return make_for_loop(n, outer, x)[0]


@program(i64, f64, f64, at=(4, 0.5, 1.2))
def skipping(n: Node, x: Node, y: Node) -> Node:
    """Odd iterations are skipped, as `continue` would."""

    def step(i: Node, a: Node) -> Node:
        return make_cond((i % 2) > 0, lambda b: b, lambda b: b * y + sin(b) * x, a)

    return make_for_loop(n, step, x)[0]


@program(i64, f64, at=(4, 0.7))
def defined_before_and_used_after(n: Node, x: Node) -> Node:
    before = sin(x) * x
    looped = make_for_loop(n, lambda i, a: a * before + x, before)[0]
    return looped * before + looped / x


@program(i64, f64, f64, at=(5, 0.7, 0.4))
def swapped_each_iteration(n: Node, x: Node, y: Node) -> Node:
    """A value becomes active only after some iterations; another is carried and never used."""

    def step(i: Node, a: Node, b: Node, c: Node, unused: Node) -> tuple[Node, ...]:
        return b, c * a + 0.1, x * a, unused

    one = x * 0.0 + 1.0
    a, b, c, _ = make_for_loop(n, step, one, y, y * 0.5, y)
    return a * b + c


@program(i64, f64, at=(0, 0.7))
def no_iterations(n: Node, x: Node) -> Node:
    return make_for_loop(n, lambda i, a: a * a * x, sin(x))[0]


@program(f64, at=(2.3,))
def newton_root(x: Node) -> Node:
    def step(i: Node, root: Node, k: Node) -> tuple[Node, Node]:
        return (root + x / root) * 0.5, k + 1

    return make_while_loop(lambda root, k: k < 4, step, x, cast(x * 0.0, type=i64))[0]


@program(f64, f64, at=(0.31, 1.7))
def halving_until_small(x: Node, y: Node) -> Node:
    """As many iterations as the values need, with the index in use."""

    def step(i: Node, a: Node, total: Node) -> tuple[Node, Node]:
        return a * x, total + sin(a * y) * cast(i + 1, type=f64)

    a, total = make_while_loop(lambda a, total: a > 0.01, step, y, y * 0.0, limit=50)
    return total * a + total


@program(f64, at=(1.4,))
def while_inside_for(x: Node) -> Node:
    def outer(i: Node, a: Node) -> Node:
        return make_while_loop(lambda b: b > 1.0, lambda j, b: b * 0.4 * x, a + 1.0)[0] * a

    return make_for_loop(cast(x * 0.0, type=i64) + 3, outer, x)[0]


@program(i64, f64, at=(4, 0.6))
def while_with_captures(n: Node, x: Node) -> Node:
    scale = sin(x)
    _, a = make_while_loop(lambda k, a: k < n, lambda i, k, a: (k + 1, a * scale + x), n - n, x)
    return a * scale


# --- what loops carry ------------------------------------------------------------------------------------------------


@program(i64, POINT, at=(3, np.array([0.3, -0.7, 0.5])))
def vector_changed_by_component(n: Node, v: Node) -> Node:
    """Read-modify-write of components, by fixed and by computed index."""

    def step(i: Node, a: Node) -> Node:
        a = set_(a, get(a, index=0) * get(a, index=2) + 0.3, index=1)
        return set_at(a, i % 3, get_at(a, (i + 1) % 3) * get_at(a, i % 3) + get(v, index=0))

    return dot(make_for_loop(n, step, v)[0], v)


@program(POINT, f64, at=(np.array([0.3, -0.7, 0.5]), 0.9))
def component_written_twice(v: Node, x: Node) -> Node:
    a = set_(v, get(v, index=0) * x, index=0)
    a = set_(a, get(a, index=0) * get(a, index=1), index=0)
    return dot(a, a) + length(a)


@program(i64, BODY, at=(3, (7, np.array([0.3, -0.7, 0.5]), 1.3, 2)))
def struct_carried(n: Node, body: Node) -> Node:
    def step(i: Node, b: Node) -> Node:
        place = cross(get_field(b, "place"), get_field(body, "place")) + get_field(b, "place")
        mass = get_field(b, "mass") * 0.9 + cast(get_field(b, "hits"), type=f64) * get(place, index=0)
        return make(get_field(b, "id"), place, mass, get_field(b, "hits") + 1, type=BODY)

    last = make_for_loop(n, step, body)[0]
    return dot(get_field(last, "place"), get_field(last, "place")) * get_field(last, "mass")


@program(i64, BODY, at=(2, (7, np.array([0.3, -0.7, 0.5]), 1.3, 2)))
def struct_returned(n: Node, body: Node) -> Node:
    grown = make_for_loop(n, lambda i, b: set_(b, get(b, index=2) * get(b, index=2), index=2), body)[0]
    return set_(grown, get(grown, index=3) + 1, index=3)


@program(i64, Tuple((i64, f64, Tuple((f64, i32)))), at=(3, (1, 0.8, (0.4, 5))))
def tuple_carried(n: Node, t: Node) -> Node:
    def step(i: Node, a: Node) -> Node:
        inner = get(a, index=2)
        x, y = get(a, index=1), get(inner, index=0)
        return make_tuple(get(a, index=0) + 2, x * y + 0.2, make_tuple(sin(x), get(inner, index=1) + 1))

    last = make_for_loop(n, step, t)[0]
    return get(last, index=1) * cast(get(last, index=0), type=f64) + get(get(last, index=2), index=0)


@program(i64, Array(f64, 3), at=(4, (0.4, 0.9, -0.6)))
def array_carried(n: Node, a: Node) -> Node:
    def step(i: Node, b: Node) -> Node:
        return set_at(b, i % 3, get_at(b, i % 3) * get_at(b, (i + 2) % 3) + get_at(a, i % 3))

    last = make_for_loop(n, step, a)[0]
    return get_at(last, n % 3) * get(last, index=0) + get(last, index=2)


@program(i64, Array(Tuple((i32, f64)), 2), at=(3, ((1, 0.4), (2, 0.9))))
def array_of_mixed_tuples(n: Node, a: Node) -> Node:
    def step(i: Node, b: Node) -> Node:
        entry, other = get_at(b, i % 2), get_at(b, (i + 1) % 2)
        grown = get(entry, index=1) * get(other, index=1) + cast(get(entry, index=0), type=f64) * 0.1
        return set_at(b, i % 2, make_tuple(get(entry, index=0) + 1, grown))

    last = make_for_loop(n, step, a)[0]
    return get(get(last, index=0), index=1) * get(get(last, index=1), index=1)


@program(i64, TABLE, at=(3, VALUES))
def tensor_carried(n: Node, t: Node) -> Node:
    def step(i: Node, a: Node) -> Node:
        first = broadcast(lookup(a, i), shape=(5,), axes=())
        return a * t * 0.5 + first * sin(a)

    return make_for_loop(n, step, t)[0]


@program(i64, TABLE, at=(4, VALUES))
def tensor_written_in_a_loop(n: Node, t: Node) -> Node:
    def step(i: Node, a: Node) -> Node:
        return scatter_add(a, lookup(a, i) * lookup(t, i + 1), (i * 2) % 5)

    return reduce(make_for_loop(n, step, t)[0] * t, kind="sum", axes=(0,))


# --- maps ------------------------------------------------------------------------------------------------------------


@program(Tensor(f64, (4, 3)), POINT, f64, at=(np.linspace(-1, 1, 12).reshape(4, 3), np.array([0.2, 0.9, -0.4]), 0.8))
def mapped(points: Node, centre: Node, radius: Node) -> Node:
    """Lifted and shared arguments."""
    distance = trace(lambda p, c, r: sqrt(dot(p - c, p - c) + 0.1) - r * r, POINT, POINT, f64, name="distance")
    return make_map(distance, points, centre, radius)


@program(Tensor(f64, (2, 3)), f64, at=(np.linspace(0.2, 1.4, 6).reshape(2, 3), 0.7))
def mapped_and_summed(x: Node, k: Node) -> tuple[Node, Node]:
    pair = trace(lambda a, b: (sin(a * b), a * a * b), f64, f64, name="pair")
    both = make_map(pair, x, k, summed=(True, False))
    return get(both, index=0) * k, get(both, index=1)


@program(Tensor(f64, (6,)), TABLE, at=(np.linspace(0.3, 3.6, 6), VALUES))
def texture(places: Node, table: Node) -> Node:
    """Linear interpolation: reads at computed indices whose weights are differentiated too."""

    def sample(x: Node, t: Node) -> Node:
        low = cast(x, type=i64)
        weight = x - cast(low, type=f64)
        return lookup(t, low) * (1.0 - weight) + lookup(t, low + 1) * weight * weight

    return make_map(trace(sample, f64, TABLE), places, table)


@program(Tensor(i64, (4,)), Tensor(f64, (4,)), TABLE, at=(np.array([3, 0, 5, 1]), VALUES[:4], VALUES))
def loops_in_a_map(iterations: Node, x: Node, table: Node) -> Node:
    """Every point runs its own number of iterations, reading the shared table."""

    def run(n: Node, a: Node, t: Node) -> Node:
        return make_for_loop(n, lambda i, b: sin(b) * lookup(t, i) + a, a)[0]

    return make_map(trace(run, i64, f64, TABLE), iterations, x, table)


@program(Tensor(f64, (3,)), TABLE, at=(np.array([0.9, 0.5, 0.7]), VALUES))
def diverging_loops_in_a_map(x: Node, table: Node) -> Node:
    def run(a: Node, t: Node) -> Node:
        def step(i: Node, b: Node) -> Node:
            return make_cond(b > 0.4, lambda c: c * a * 0.8, lambda c: c * lookup(t, i % 5) * 0.3, b)

        return make_while_loop(lambda b: abs(b) > 0.05, step, a + 0.3, limit=40)[0] * lookup(t, cast(a * 0.0, type=i64))

    return make_map(trace(run, f64, TABLE), x, table)


@program(Tensor(f64, (3, 3)), Tensor(f64, (3,)), at=(np.linspace(-0.8, 1.1, 9).reshape(3, 3), VALUES[:3]))
def map_over_structs(places: Node, masses: Node) -> Node:
    kind = Struct("Particle", (("place", POINT), ("mass", f64)))
    lifted = Struct("Particle", (("place", Tensor(f64, (3, 3))), ("mass", Tensor(f64, (3,)))))

    def push(p: Node) -> Node:
        place = get_field(p, "place") * make_vector(*[get_field(p, "mass")] * 3)
        return make(place, dot(place, get_field(p, "place")), type=kind)

    return make_map(trace(push, kind), make(places, masses, type=lifted))


@program(i64, Tensor(f64, (3,)), at=(2, VALUES[:3]))
def map_in_a_loop(n: Node, x: Node) -> Node:
    square = trace(lambda a, b: a * a * b + sin(b), f64, f64, name="square")

    def step(i: Node, a: Node) -> Node:
        return make_map(square, a, lookup(a, i))

    return make_for_loop(n, step, x)[0]


@program(Tensor(f64, (2,)), Tensor(f64, (3,)), at=(VALUES[:2], VALUES[:3]))
def map_in_a_map(x: Node, y: Node) -> Node:
    inner = trace(lambda b, a: sin(a * b), f64, f64, name="inner")

    def outer(a: Node, ys: Node) -> Node:
        return make_map(inner, ys, a, summed=(True,)) * a

    return make_map(trace(outer, f64, Tensor(f64, (3,))), x, y)


@program(i64, c128, c128, at=(3, 0.3 - 0.2j, 0.4 + 0.5j))
def complex_iteration(n: Node, z: Node, c: Node) -> Node:
    """Squares and adds, as the Mandelbrot set does, and gives a real number."""
    last = make_for_loop(n, lambda i, a: a * a * z + conj(c) * a + c, z)[0]
    return abs(last) * imag(z) + real(last / c)


@program(i64, Tensor(c128, (2, 2)), at=(2, np.array([[0.3 + 0.1j, -0.4j], [0.7, 0.2 - 0.5j]])))
def complex_matrices(n: Node, a: Node) -> Node:
    return make_for_loop(n, lambda i, b: matmul(b, a) + sin(b), a)[0]


@program(i64, f64, at=(6, 0.4))
def guarded(n: Node, x: Node) -> Node:
    """Selects with a running maximum, at no tie."""

    def step(i: Node, a: Node) -> Node:
        return max(a * x, select(a > 1.0, a * 0.5, a + cast(i, type=f64) * log(1.0 + x))) + cos(a) * 0.1

    return make_for_loop(n, step, x)[0]
