"""Vectors, matrices and structs: geometry for shading, simulation and implicit models."""

import math
from typing import Literal

import livegrad as lg
from tests.frontend.function.programs.registry import program


@lg.differentiable
class Sphere:
    center: lg.dvec3
    radius: float
    layer: int

    def distance(self, p):
        return lg.length(p - self.center) - self.radius


@lg.differentiable
class State:
    position: lg.dvec2
    velocity: lg.dvec2


def ball(x: float) -> Sphere:
    return Sphere(lg.dvec3(x, 0.2, 0.1), 0.5, 2)


V = lg.dvec3(0.3, 0.5, 0.7)
W = lg.dvec3(-0.2, 0.9, 0.4)


@program((V, W))
def dot_and_cross(a: lg.dvec3, b: lg.dvec3) -> float:
    return lg.dot(a, b) + lg.length(lg.cross(a, b)) * lg.dot(lg.normalize(a), b)


@program((V,))
def components_and_swizzles(v: lg.dvec3) -> float:
    w = v.zyx * 2.0 + lg.dvec3(v.xy, 1.0)
    return w.x * w.y + w.z * v.x


@program((V, 0.3))
def scalar_times_vector(v: lg.dvec3, s: float) -> float:
    w = s * v + v / (1.0 + s) - s
    return lg.dot(w, -v)


@program((V, 4))
def vector_in_a_loop(v: lg.dvec3, n: int) -> float:
    w = v
    for i in range(n):
        w = lg.cross(w, v * (i + 1.0)) + v
    return lg.length(w)


@program((V, 5))
def component_read_modify_write(v: lg.dvec3, n: int) -> float:
    w = v * 1.0
    for i in range(n):
        w[i % 3] += w[(i + 1) % 3] * w[(i + 2) % 3]
    return w.x + 2.0 * w.y + 3.0 * w.z


@program((V,))
def component_assignment(v: lg.dvec3) -> float:
    w = v + 0.0
    w.x = w.y * w.z
    w.y *= w.x
    w[2] = w[0] - w[1]
    return lg.dot(w, v)


@program((V,))
def vector_loop(v: lg.dvec3) -> float:
    total = 0.0
    for component in v:
        total += component * component * component
    return total


@program((lg.dmat2(1.0, 0.5, 0.25, 2.0), lg.dvec2(0.3, 0.7)))
def matrix_and_vector(m: lg.dmat2, v: lg.dvec2) -> float:
    w = m @ v
    return lg.dot(w, m @ w) + lg.determinant(m)


@program((lg.dmat2(1.0, 0.5, 0.25, 2.0),))
def matrix_inverse(m: lg.dmat2) -> float:
    a = lg.inverse(m) @ lg.transpose(m)
    return a[0, 1] * a[1, 0] + a[0, 0]


@program((ball(0.4), V))
def struct_fields(s: Sphere, p: lg.dvec3) -> float:
    return (lg.length(p - s.center) - s.radius) * s.layer


@program((ball(0.4), V))
def struct_made_and_changed(s: Sphere, p: lg.dvec3) -> float:
    t = Sphere(s.center + p, s.radius * 2.0, s.layer)
    t.radius += t.center.x
    t.center.y = p.x * p.y
    return t.radius * lg.dot(t.center, p)


@program((ball(0.4), V))
def method_call(s: Sphere, p: lg.dvec3) -> float:
    return s.distance(p) * s.distance(p * 2.0)


@program((State(lg.dvec2(1.0, 0.0), lg.dvec2(0.0, 0.8)), 0.1, 6))
def struct_in_a_loop(s: State, dt: float, steps: int) -> float:
    for _ in range(steps):
        r = lg.length(s.position)
        velocity = s.velocity - s.position * (dt / (r * r * r))
        s = State(s.position + velocity * dt, velocity)
    return lg.dot(s.position, s.position)


@program(([ball(0.4), ball(0.9)], V))
def list_of_structs(spheres: lg.array[Sphere, Literal[2]], p: lg.dvec3) -> float:
    best = 1e9
    for s in spheres:
        best = min(best, lg.length(p - s.center) - s.radius)
    return best


@program((V, 0.3))
def smooth_union(p: lg.dvec3, k: float) -> float:
    a = lg.length(p) - 0.5
    b = lg.length(p - lg.dvec3(0.4, 0.1, 0.0)) - 0.3
    h = lg.clamp(0.5 + 0.5 * (b - a) / k, 0.0, 1.0)
    return lg.mix(b, a, h) - k * h * (1.0 - h)


@program((V,))
def gyroid(p: lg.dvec3) -> float:
    return math.sin(p.x) * math.cos(p.y) + math.sin(p.y) * math.cos(p.z) + math.sin(p.z) * math.cos(p.x)


@program((lg.dvec3(0.1, 0.2, -2.0), lg.dvec3(0.05, 0.1, 1.0)), order=1)
def sphere_tracing(origin: lg.dvec3, direction: lg.dvec3) -> float:
    t = 0.0
    for _ in range(20):
        d = lg.length(origin + direction * t) - 0.5
        if d < 1e-9:
            break
        t += d
    return t


@program((V, W, 0.4))
def shading(normal: lg.dvec3, light: lg.dvec3, roughness: float) -> float:
    n, l = lg.normalize(normal), lg.normalize(light)
    diffuse = lg.max(lg.dot(n, l), 0.0)
    h = lg.normalize(n + l)
    return diffuse + lg.max(lg.dot(n, h), 0.0) ** (1.0 / roughness)  # type: ignore


@program((0.3,))
def rotation(angle: float) -> float:
    c, s = math.cos(angle), math.sin(angle)
    v = lg.dmat2(c, -s, s, c) @ lg.dvec2(1.0, 2.0)
    return v.x * v.y


@program((0.3, 0.5))
def vector_from_branches(x: float, y: float) -> float:
    v = lg.dvec2(x, y) if x < y else lg.dvec2(y, -x)
    if v.x > 0.1:
        v = v * v.y
    return v.x + v.y * v.y


@program((V,))
def smoothstep_and_step(p: lg.dvec3) -> float:
    return lg.smoothstep(0.0, 1.0, p.x) * lg.step(0.2, p.y) + lg.fract(p.z * 3.0)


@program((V, 2), (V, -1))
def vector_with_computed_index(v: lg.dvec3, k: int) -> float:
    return v[k] * v[k - 1] + v[0]
