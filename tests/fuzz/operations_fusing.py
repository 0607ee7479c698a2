"""Operations that the schedule has optimisations for: stencils, layers, many small matrices, loops of elements."""

from __future__ import annotations

from tests.fuzz.programs import Maker, operation, ramp


@operation("stencil", 1.0, fusing=True)
def _(m: Maker) -> None:
    x = m.draw("f", 1, 3)
    axes = [m.random.randrange(len(x.shape)) for _ in range(m.random.randint(1, 3))]
    terms = [
        f"xp.roll({x.name}, {m.random.choice([1, -1, 2])}, axis={axis}) * {i + 1}.25" for i, axis in enumerate(axes)
    ]
    m.add(" + ".join([f"{x.name} * 0.5", *terms]))


@operation("relaxation", 0.7, fusing=True)
def _(m: Maker) -> None:
    x = m.draw("f", 1, 2)
    axis, count = m.random.randrange(len(x.shape)), m.random.randint(1, 3)
    step = f"s + 0.1 * (xp.roll(s, 1, axis={axis}) + xp.roll(s, -1, axis={axis}) - 2.0 * s)"
    m.add(f"xp.fori_loop(0, {count}, lambda i, s: {step}, {x.name})")


@operation("layers", 1.0, fusing=True)
def _(m: Maker) -> None:
    x = m.draw("f", 2, 3)
    width = m.size()
    first, second = ramp(m, (x.shape[-1], width), 0.37), ramp(m, (width, x.shape[-1]), 0.73)
    middle = m.random.choice(["xp.tanh", "xp.softmax", "xp.relu", "xp.sin"])
    m.add(f"{middle}({x.name} @ xp.sin({first})) @ xp.cos({second}) + {x.name}")


@operation("small matrices", 1.0, fusing=True)
def _(m: Maker) -> None:
    n, size = m.random.choice([40, 130]), m.random.choice([2, 3, 4])
    x = m.draw("f", 0, 3)
    matrices = f"(xp.sin({ramp(m, (n, size, size), 0.37)}) * xp.cos(xp.sum({x.name}) * 0.01))"
    turned = m.random.choice(["{0}", "xp.matrix_transpose({0})"])
    m.add(f"xp.matrix_transpose({matrices}) @ {turned.format(matrices)}")


@operation("loop of elements", 1.0, fusing=True)
def _(m: Maker) -> None:
    x = m.draw("f", 1, 3)
    body = m.random.choice(["s * s * 0.3 + x", "xp.sin(s) + x * i", "xp.where(s > 0.137, s * 0.5, s + x)"])
    m.add(f"xp.fori_loop(0, {m.random.randint(1, 5)}, lambda i, s, x={x.name}: {body}, {x.name} * 0.7)")


@operation("sums of one tensor", 1.0, fusing=True)
def _(m: Maker) -> None:
    x = m.draw("f", 2, 3)
    wide = f"xp.sin({ramp(m, (64, 65), 0.37)}) * xp.cos(xp.sum({x.name}) * 0.01)"
    name = m.random.choice([x, m.add(wide)]).name
    m.add(f"xp.sum({name} * {name}, axis=-1) * xp.sum(xp.sin({name})) * 0.1 + xp.sum(xp.cos({name}), axis=-1)")


@operation("products of transposes", 1.0, fusing=True)
def _(m: Maker) -> None:
    x = m.draw("f", 2, 2)
    texts = [
        "xp.matrix_transpose({0}) @ {0}",
        "{0} @ xp.matrix_transpose({0})",
        "xp.matrix_transpose({0} @ xp.matrix_transpose({0}))",
        "xp.matrix_transpose({0})[::-1] @ {0}",
    ]
    m.add(m.random.choice(texts).format(x.name))


@operation("normalised rows", 1.0, fusing=True)
def _(m: Maker) -> None:
    x = m.draw("f", 2, 3)
    axis = m.random.choice([-1, -2])
    if 0 in x.shape:
        x = m.add("xp.ones((2, 3), dtype=a0.dtype) * xp.sum(a0)")  # nothing has no maximum
    m.add(f"({x.name} - xp.mean({x.name}, axis={axis}, keepdims=True)) / (1.0 + xp.max(xp.abs({x.name} + 0.0173)))")
