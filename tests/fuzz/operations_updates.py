"""The operations of random tensor programs that read and write slices with computed starts, and update at keys."""

from __future__ import annotations

from tests.fuzz.operations import array_key, basic_key, fits
from tests.fuzz.programs import Maker, Value, distinct, operation


def _starts_and_sizes(m: Maker, x: Value) -> tuple[str, tuple[int, ...]]:
    """Computed starts along each axis, of slices that lie inside."""
    starts, sizes = [], []
    for size in x.shape:
        count = m.random.randint(1, size)
        number = m.draw("i", 0, 0).name
        starts.append(m.random.choice([f"{number} % {size - count + 1}", f"2 * {number} % {size - count + 1}"]))
        sizes.append(count)
    return f"({''.join(f'{start}, ' for start in starts)})", tuple(sizes)


def _values_for(m: Maker, x: Value, shape: tuple[int, ...]) -> str:
    fitting = [v.name for v in m.values if v.kind == x.kind and fits(v.shape, shape)]
    return m.random.choice([*fitting[-2:], "7" if x.kind == "i" else "0.75"])


@operation("windows by computed starts", 2.0)
def _(m: Maker) -> None:
    x = m.draw(m.random.choice("fffi"), 1, 3)
    if 0 in x.shape:
        return
    starts, sizes = _starts_and_sizes(m, x)
    if m.random.random() < 0.5:
        m.add(f"xp.window({x.name}, {starts}, {sizes})")
    else:
        m.add(f"xp.put_window({x.name}, {starts}, {sizes}, {_values_for(m, x, sizes)})")


@operation("dynamic slices", 1.0)
def _(m: Maker) -> None:
    x = m.draw("f", 1, 3)
    if 0 in x.shape:
        return
    sizes = [m.random.randint(1, size) for size in x.shape]
    numbers = [m.draw("i", 0, 0).name for _ in sizes]
    starts = f"[{', '.join(f'{number} % 11 - 5' for number in numbers)}]"
    taken = m.add(f"xp.dynamic_slice({x.name}, {starts}, {sizes})")
    if m.random.random() < 0.6:
        m.add(f"xp.dynamic_update_slice({x.name}, xp.sin({taken.name}), {starts[:-1].replace('- 5', '- 4')}])")


@operation("rolls by computed shifts", 1.0)
def _(m: Maker) -> None:
    x, i = m.draw("f", 1, 3), m.draw("i", 0, 0)
    axis = m.random.choice([None, m.axis(x)])
    m.add(f"xp.roll({x.name}, {i.name} % 13 - 6, axis={axis})")


@operation("updates at keys", 3.0)
def _(m: Maker) -> None:
    x = m.draw(m.random.choice("fffi"), 1, 3)
    if 0 in x.shape:
        return
    key = basic_key(m, x) if m.random.random() < 0.5 else array_key(m, x)
    shape = eval(f"x[{key}].shape", {"x": m.scope[x.name], "np": m.scope["np"]})
    values = _values_for(m, x, tuple(shape))
    name = m.random.choice(["add", "mul", "max", "min"])
    if name in ("max", "min") and x.kind == "f":  # ties share a derivative, each library in its own way
        m.add(f"xp.update_at({distinct(m, x, -1)}, np.index_exp[{key}], {values} + 0.00417, '{name}')")
    else:
        m.add(f"xp.update_at({x.name}, np.index_exp[{key}], {values}, '{name}')")


@operation("updates at computed places", 1.0)
def _(m: Maker) -> None:
    x, i = m.draw("f", 1, 2), m.draw("i", 0, 1)
    if 0 not in x.shape:
        name = m.random.choice(["add", "add", "max", "min"])
        value = "0.317" if name == "add" else "(0.0317 + xp.sum(a0) * 0.1)"
        m.add(f"xp.update_at({distinct(m, x, 0)}, ({i.name} % {x.shape[0]},), {value}, '{name}')")


@operation("loops over windows", 1.5)
def _(m: Maker) -> None:
    x = m.draw("f", 1, 2)
    if 0 in x.shape or x.shape[0] < 2:
        return
    count = m.random.randint(1, x.shape[0] - 1)
    sizes = (count, *x.shape[1:])
    rest = "0, " * (len(x.shape) - 1)
    trips = x.shape[0] - count
    read = f"xp.window(y, (i + {m.random.choice([0, 1])}, {rest}), {sizes})"
    new = m.random.choice([f"xp.sin({read}) * 0.7", f"{read} * {x.name}[0] + 0.1", f"xp.flip({read}, axis=0)"])
    put = f"xp.put_window(y, (i, {rest}), {sizes}, {new})"
    kind = m.random.choice(["for", "for", "while", "scan", "branch"])
    if kind == "for":
        m.add(f"xp.fori_loop(0, {trips}, lambda i, y: {put}, {x.name})")
    elif kind == "while":
        m.add(f"xp.loop_by_test({trips}, lambda i, y: {put}, {x.name}, {trips})")
    elif kind == "scan":
        which = m.random.choice([0, 1])
        m.add(f"xp.scan(lambda y, i: ({put}, xp.sum(y)), {x.name}, xp.asarray(np.arange({trips})))[{which}]")
    else:
        i = m.draw("i", 0, 0).name
        m.add(f"xp.cond({i} % 2 == 0, lambda y, i: {put}, lambda y, i: y * 0.5, {x.name}, {i} % {trips})")


@operation("slices written in turn", 2.0, fusing=True)
def _(m: Maker) -> None:
    """Writes that may happen in place, of values that are computed from what they replace, or read afterwards."""
    x = m.draw("f", 1, 2)
    if 0 in x.shape:
        return
    rows = 300 // x.shape[0] + 1
    value = m.add(f"xp.tile({x.name}, ({rows}, {', '.join('1' for _ in x.shape[1:])})) * 0.5")
    size = value.shape[0]
    for _ in range(m.random.randint(1, 4)):
        start, step = m.random.randrange(size // 2), m.random.choice([1, 1, 2, 3])
        count = m.random.randint(1, (size - start - 1) // step)
        end = start + count * step
        shift = m.random.randint(0, size - end)
        same, moved = f"{value.name}[{start}:{end}:{step}]", f"{value.name}[{start + shift}:{end + shift}:{step}]"
        new = m.random.choice(["0.25", f"xp.sin({same})", f"{same} + {moved}", f"xp.flip({moved}, axis=0) * 0.9"])
        if m.random.random() < 0.2:
            m.add(f"xp.sum({value.name}[{start}:{end}])")
        value = m.add(f"xp.put({value.name}, np.index_exp[{start}:{end}:{step}], {new})")
    if m.random.random() < 0.5:
        m.add(f"xp.sum({value.name} * {value.name})")
