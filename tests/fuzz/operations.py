"""The operations of random tensor programs: elementwise ops, and above all movement and indexing."""

from __future__ import annotations

from math import prod
from typing import Any

from tests.fuzz.programs import MOST_ELEMENTS, Maker, Value, distinct, operation

# --- elementwise -----------------------------------------------------------------------------------------------------

UNARY = [
    "sin({0})",
    "cos({0})",
    "tanh({0})",
    "tan(tanh({0}))",
    "exp(-abs({0}+.013))",
    "log(abs({0}+.017)+.5)",
    "sqrt(abs({0}+.019)+.5)",
    "square({0})",
    "sigmoid({0})",
    "silu({0})",
    "relu({0}+.0137)",
    "gelu({0})",
    "erf({0})",
    "abs({0}+.0137)",
    "reciprocal(square({0})+.5)",
    "expm1(tanh({0}))",
    "log1p(square({0}))",
    "log2(square({0})+.5)",
    "log10(square({0})+.5)",
    "atan({0})",
    "asinh({0})",
    "sinh(tanh({0}))",
    "cosh(tanh({0}))",
    "acos(tanh({0})*.9)",
    "asin(tanh({0})*.9)",
    "atanh(tanh({0})*.9)",
    "acosh(square({0})+1.5)",
    "negative({0})",
    "positive({0})",
    "floor({0}*1.37+.211)",
    "ceil({0}*1.37+.211)",
    "round({0}*1.37+.211)",
    "trunc({0}*1.37+.211)",
    "sign({0}+.0317)",
    "clip({0},-.731,.617)",
    "nn.softplus({0})",
    "copy({0})",
    "stop_gradient({0})",
]

BINARY = [
    "add({0},{1})",
    "subtract({0},{1})",
    "multiply({0},{1})",
    "divide({0},square({1})+.5)",
    "maximum({0},{1}+.0173)",
    "minimum({0},{1}+.0173)",
    "atan2({0},square({1})+.5)",
    "hypot({0},{1}+1.37)",
    "pow(square({0})+.5,tanh({1}))",
    "logaddexp({0},{1})",
    "copysign({0}+.017,{1}+.0137)",
    "remainder({0}+.0137,square({1})+.71)",
    "floor_divide({0}+.0137,square({1})+.71)",
]


def _in_namespace(text: str) -> str:
    """Function names with `xp.` before each: a name is followed by a parenthesis or continues one."""
    result, word = "", ""
    for character in text:
        if character.isalnum() or character in "._":
            word += character
            continue
        result += (f"xp.{word}" if character == "(" and word else word) + character
        word = ""
    return result + word


@operation("unary", 2.0)
def _(m: Maker) -> None:
    m.add(_in_namespace(m.random.choice(UNARY)).format(m.draw().name))


@operation("binary", 3.0)
def _(m: Maker) -> None:
    x = m.draw()
    m.add(_in_namespace(m.random.choice(BINARY)).format(x.name, m.partner(x)))


@operation("where", 1.0)
def _(m: Maker) -> None:
    x = m.draw()
    alike = [v.name for v in m.values if v.kind == "f" and v.shape == x.shape]
    m.add(f"xp.where({m.partner(x, 'b')}, {x.name}, {m.random.choice([m.random.choice(alike), '0.25'])})")


@operation("comparison", 0.5)
def _(m: Maker) -> None:
    name = m.random.choice(["less", "less_equal", "greater", "greater_equal", "not_equal"])
    if m.random.random() < 0.5:
        x = m.draw("i")
        m.add(f"xp.{name}({x.name}, {m.partner(x)})")
    else:
        m.add(f"xp.{name}({m.draw().name}, 0.1739)")


@operation("logic", 0.5)
def _(m: Maker) -> None:
    x = m.draw("b")
    name = m.random.choice(["logical_and", "logical_or", "logical_xor", "not_equal"])
    m.add(m.random.choice([f"xp.{name}({x.name}, {m.partner(x)})", f"xp.logical_not({x.name})"]))


@operation("whole numbers", 1.0)
def _(m: Maker) -> None:
    x = m.draw("i")
    y, name = m.partner(x), x.name
    m.add(
        m.random.choice(
            [f"{name} {op} {y}" for op in ("+", "-", "&", "|", "^")]
            + [f"{name} * ({y} % 5)", f"{name} // (xp.abs({y}) % 7 + 1)", f"{name} % (xp.abs({y}) % 7 + 1)"]
            + [f"({name} % 64) << ({y} % 8)", f"{name} >> ({y} % 8)", f"~{name}", f"xp.maximum({name}, {y})"]
            + [f"xp.astype(xp.astype({name} % 100, xp.int32) * 3, xp.int64)", f"xp.sign({name})"]
            + [f"xp.astype(xp.astype({name} % 7, xp.uint8) * xp.astype({y} % 31, xp.uint8), xp.int64)"]
            + [f"xp.where(xp.isin({name}, xp.asarray([0, 1, 3])), {name}, -1)", f"xp.abs({name}) % 5"]
        )
    )


@operation("as floats", 0.7)
def _(m: Maker) -> None:
    m.add(f"xp.astype({m.draw(m.random.choice('ib')).name}, a0.dtype) * 0.37")


# --- shapes ----------------------------------------------------------------------------------------------------------


def _any_kind(m: Maker, least: int = 0, most: int = 4) -> Value:
    kinds = [k for k in "ffffffcib" if k == "f" or any(v.kind == k for v in m.values)]
    return m.draw(m.random.choice(kinds), least, most)


@operation("reshape", 2.0)
def _(m: Maker) -> None:
    x = _any_kind(m)
    rest, shape = prod(x.shape), []
    while rest > 1 and len(shape) < 3:
        divisor = m.random.choice([d for d in range(1, rest + 1) if rest % d == 0])
        shape.append(divisor)
        rest //= divisor
    shape.append(rest)
    m.random.shuffle(shape)
    if 0 not in x.shape and m.random.random() < 0.4:
        shape[m.random.randrange(len(shape))] = -1
    m.add(f"xp.reshape({x.name}, {tuple(shape)})")


@operation("permute", 2.0)
def _(m: Maker) -> None:
    x = _any_kind(m, 1)
    axes = list(range(len(x.shape)))
    m.random.shuffle(axes)
    texts = [f"xp.permute_dims({x.name}, {tuple(axes)})", f"xp.moveaxis({x.name}, {m.axis(x)}, {m.axis(x)})"]
    if len(x.shape) >= 2:
        texts.append(f"xp.matrix_transpose({x.name})")
    m.add(m.random.choice(texts))


@operation("flip", 1.5)
def _(m: Maker) -> None:
    x = _any_kind(m)
    m.add(f"xp.flip({x.name}, axis={m.axes(x)})")


@operation("roll", 1.5)
def _(m: Maker) -> None:
    x = _any_kind(m, 1)
    if m.random.random() < 0.5:
        m.add(f"xp.roll({x.name}, {m.random.randrange(-7, 8)}, axis={m.random.choice([None, m.axis(x)])})")
        return
    axes = m.random.sample(range(len(x.shape)), m.random.randint(1, len(x.shape)))
    m.add(f"xp.roll({x.name}, {tuple(m.random.randrange(-3, 4) for _ in axes)}, axis={tuple(axes)})")


@operation("dimensions of one", 1.0)
def _(m: Maker) -> None:
    x = _any_kind(m, 0, 3)
    ones = [axis for axis, size in enumerate(x.shape) if size == 1]
    if ones and m.random.random() < 0.5:
        m.add(f"xp.squeeze({x.name}, axis={m.random.choice([m.random.choice(ones), tuple(ones)])})")
    else:
        m.add(f"xp.expand_dims({x.name}, axis={m.random.randint(-len(x.shape) - 1, len(x.shape))})")


@operation("broadcast", 1.5)
def _(m: Maker) -> None:
    x = _any_kind(m, 0, 3)
    shape = [m.size() if size == 1 and m.random.random() < 0.7 else size for size in x.shape]
    if m.random.random() < 0.6:
        shape.insert(0, m.size())
    if prod(shape) <= MOST_ELEMENTS:
        m.add(f"xp.broadcast_to({x.name}, {tuple(shape)})")


@operation("tile and repeat", 1.5)
def _(m: Maker) -> None:
    x = _any_kind(m, 1, 3)
    axis = m.axis(x)
    counts = [m.random.randrange(0, 3) for _ in range(x.shape[axis])]
    m.add(
        m.random.choice(
            [
                f"xp.tile({x.name}, {tuple(m.random.randint(1, 2) for _ in range(m.random.randint(1, 3)))})",
                f"xp.repeat({x.name}, {m.random.randint(1, 3)}, axis={m.random.choice([axis, None])})",
                f"xp.repeat({x.name}, np.array({counts}, int), axis={axis})",
            ]
        )
    )


@operation("concat", 2.5)
def _(m: Maker) -> None:
    x = _any_kind(m, 1)
    axis = m.random.randrange(len(x.shape))
    others = [
        v.name
        for v in m.values
        if v.kind == x.kind and len(v.shape) == len(x.shape) and _equal_but(v.shape, x.shape, axis)
    ]
    parts = [m.random.choice(others) for _ in range(m.random.randint(1, 2))]
    cut = m.random.randint(0, x.shape[axis])
    within = ":, " * axis
    parts.append(m.random.choice([f"{x.name}[{within}:{cut}]", f"{x.name}[{within}{cut}:]", x.name]))
    m.random.shuffle(parts)
    m.add(f"xp.concat([{', '.join(parts)}], axis={m.random.choice([axis, axis - len(x.shape)])})")


def _equal_but(first: Any, second: Any, axis: int) -> bool:
    return all(a == b or i == axis for i, (a, b) in enumerate(zip(first, second, strict=True)))


@operation("stack", 1.5)
def _(m: Maker) -> None:
    x = _any_kind(m, 0, 3)
    alike = [v.name for v in m.values if v.kind == x.kind and v.shape == x.shape]
    parts = [m.random.choice(alike) for _ in range(m.random.randint(1, 3))]
    m.add(f"xp.stack([{', '.join(parts)}], axis={m.random.randint(-len(x.shape) - 1, len(x.shape))})")


@operation("stack of elements", 1.0)
def _(m: Maker) -> None:
    x = _any_kind(m, 1, 3)
    if x.shape[0]:
        picked = m.indices(m.random.randint(1, 4), x.shape[0])
        m.add(f"xp.stack([{', '.join(f'{x.name}[{i}]' for i in picked)}], axis=0)")


@operation("unstack", 0.7)
def _(m: Maker) -> None:
    x = _any_kind(m, 1)
    axis = m.axis(x)
    if x.shape[axis]:
        m.add(f"xp.unstack({x.name}, axis={axis})[{m.random.randrange(x.shape[axis])}]")


@operation("pad", 2.0)
def _(m: Maker) -> None:
    x = m.draw(m.random.choice("ffi"), 1, 3)
    axis = m.random.randrange(len(x.shape))
    shape = list(x.shape)
    shape[axis] = m.random.randint(1, 2)
    border = f"xp.{m.random.choice(['zeros', 'ones'])}({tuple(shape)}, dtype={x.name}.dtype)"
    inside = f"{x.name}[{', '.join([*[':'] * axis, m.random.choice([':', '1:', ':-1', '::2', '::-1'])])}]"
    parts = m.random.choice([[border, inside], [inside, border], [border, inside, border]])
    m.add(f"xp.concat([{', '.join(parts)}], axis={axis})")


@operation("triangles", 1.0)
def _(m: Maker) -> None:
    x = _any_kind(m, 2)
    offset = m.random.randrange(-2, 3)
    m.add(
        m.random.choice(
            [
                f"xp.tril({x.name}, k={offset})",
                f"xp.triu({x.name}, k={offset})",
                f"xp.linalg.diagonal({x.name}, offset={m.random.randrange(-x.shape[-2] + 1, x.shape[-1])})"
                if 0 not in x.shape[-2:]
                else f"xp.tril({x.name})",
            ]
        )
    )


@operation("grid", 0.5)
def _(m: Maker) -> None:
    x, y = m.draw("f", 1, 1), m.draw("f", 1, 1)
    indexing = m.random.choice(["xy", "ij"])
    if prod(x.shape + y.shape) <= MOST_ELEMENTS:
        m.add(f"xp.meshgrid({x.name}, {y.name}, indexing='{indexing}')[{m.random.randrange(2)}]")


# --- indexing --------------------------------------------------------------------------------------------------------


def _slice(m: Maker, size: int) -> str:
    start = m.random.choice(["", str(m.random.randint(-size, size))])
    stop = m.random.choice(["", str(m.random.randint(-size, size))])
    return f"{start}:{stop}:{m.random.choice([1, 1, 2, 3, -1, -1, -2])}"


def basic_key(m: Maker, x: Value) -> str:
    """Slices, integers, new axes, an ellipsis."""
    items = []
    for size in x.shape[: m.random.randint(0, len(x.shape))]:
        number = str(m.random.randrange(-size, size)) if size else ":"
        items.append(m.random.choice([_slice(m, size), _slice(m, size), number, ":"]))
    if len(items) < len(x.shape) and m.random.random() < 0.3:
        cut = m.random.randint(0, len(items))
        # What follows an ellipsis indexes the last dimensions.
        last = [_slice(m, size) for size in x.shape[len(x.shape) - (len(items) - cut) :]] if len(items) > cut else []
        items = [*items[:cut], "...", *last]
    if len(x.shape) < 4 and m.random.random() < 0.3:
        items.insert(m.random.randint(0, len(items)), "None")
    return ", ".join(items) or "..."


def array_key(m: Maker, x: Value) -> str:
    """Arrays of integers, with slices and numbers between them; masks."""
    kind = m.random.random()
    if kind < 0.2:
        mask = [m.random.random() < 0.6 for _ in range(x.shape[0])]
        return ", ".join([f"np.array({mask}, bool)", *[_slice(m, size) for size in x.shape[1:2]]])
    count = m.random.randint(1, 4)
    items = []
    for size in x.shape[: m.random.randint(1, len(x.shape))]:
        entry = f"np.array({m.indices(count, size)})"
        if m.random.random() < 0.2:
            entry = f"np.array([[{m.indices(1, size)[0]}], [{m.indices(1, size)[0]}]])"
        items.append(m.random.choice([entry, entry, _slice(m, size), str(m.indices(1, size)[0])]))
    return ", ".join(items)


@operation("slices", 4.0)
def _(m: Maker) -> None:
    x = _any_kind(m)
    m.add(f"{x.name}[{basic_key(m, x)}]")


@operation("arrays of indices", 3.0)
def _(m: Maker) -> None:
    x = _any_kind(m, 1, 3)
    if 0 not in x.shape:
        m.add(f"{x.name}[{array_key(m, x)}]")


@operation("computed indices", 2.0)
def _(m: Maker) -> None:
    x, i = _any_kind(m, 1, 3), m.draw("i", 0, 2)
    axis = m.random.randrange(len(x.shape))
    size = x.shape[axis]
    if size == 0 or prod(x.shape) * prod(i.shape) > MOST_ELEMENTS:
        return
    within = ":, " * axis
    m.add(
        m.random.choice(
            [
                f"{x.name}[{within}xp.abs({i.name}) % {size}]",
                f"{x.name}[{within}{i.name} % {size} - {size}]",
                f"xp.take({x.name}, {i.name} % {size}, axis={axis})",
            ]
        )
    )


@operation("take", 1.0)
def _(m: Maker) -> None:
    x = _any_kind(m, 1, 3)
    axis = m.axis(x)
    if x.shape[axis]:
        picked = [m.random.randrange(x.shape[axis]) for _ in range(m.random.randint(1, 4))]
        m.add(f"xp.take({x.name}, xp.asarray(np.array({picked})), axis={axis})")


@operation("take along", 1.0)
def _(m: Maker) -> None:
    x = m.draw("f", 1, 3)
    axis = m.axis(x)
    if x.shape[axis]:
        order = f"xp.argsort({distinct(m, x, axis)}, axis={axis}, descending={m.random.random() < 0.5})"
        m.add(f"xp.take_along_axis({x.name}, {order}, axis={axis})")


@operation("put", 3.0)
def _(m: Maker) -> None:
    x = m.draw(m.random.choice("fffi"), 1, 3)
    if 0 in x.shape:
        return
    if m.random.random() < 0.6:
        key = basic_key(m, x)
    else:  # places that differ: which of several writes stays is a library's own
        rows = m.random.sample(range(x.shape[0]), m.random.randint(1, x.shape[0]))
        masked = [m.random.random() < 0.5 for _ in range(x.shape[0])]
        key = m.random.choice([f"np.array({rows})", f"np.array({masked}, bool)"])
    shape = eval(f"x[{key}].shape", {"x": m.scope[x.name], "np": m.scope["np"]})
    fitting = [v.name for v in m.values if v.kind == x.kind and fits(v.shape, tuple(shape))]
    value = m.random.choice([*fitting[-2:], "7" if x.kind == "i" else "0.75"])
    m.add(f"xp.put({x.name}, np.index_exp[{key}], {value})")


def fits(own: Any, target: Any) -> bool:
    if len(own) > len(target):
        return False
    return all(a in (1, b) for a, b in zip(reversed(own), reversed(target), strict=False))


@operation("put computed", 1.0)
def _(m: Maker) -> None:
    x, i = m.draw("f", 1, 2), m.draw("i", 0, 0)
    if 0 not in x.shape:
        value = m.random.choice(["0.5", f"xp.sum({x.name}, axis=0) * 0.5"])
        m.add(f"xp.put({x.name}, ({i.name} % {x.shape[0]},), {value})")
