"""More operations of random tensor programs: reductions, products, windows, control flow."""

from __future__ import annotations

from math import prod

from tests.fuzz.programs import Maker, distinct, operation, ramp, spread

# --- reductions and scans --------------------------------------------------------------------------------------------


@operation("sums", 2.0)
def _(m: Maker) -> None:
    x = m.draw(m.random.choice("fffci"))
    name = m.random.choice(["sum", "mean"] if x.kind in "fc" else ["sum"])
    m.add(
        f"xp.{name}({x.name}, axis={m.axes(x)}, keepdims={m.random.random() < 0.5})"
        if 0 not in x.shape
        else f"xp.sum({x.name})"
    )


@operation("folds", 1.5)
def _(m: Maker) -> None:
    x = m.draw()
    if 0 in x.shape:
        return
    axes = m.axes(x)
    chosen = range(len(x.shape)) if axes is None else (axes,) if isinstance(axes, int) else axes
    rest = f"axis={axes}, keepdims={m.random.random() < 0.5}"
    # At a deviation of zero JAX gives NaN.
    names = "prod max min var logsumexp" + " std" * (prod(x.shape[axis] for axis in chosen) > 1)
    name = m.random.choice(names.split())
    m.add(f"xp.{name}(xp.tanh({spread(m, x)}), {rest})")


@operation("whole folds", 1.0)
def _(m: Maker) -> None:
    x = m.draw(m.random.choice("ib"), 1)
    if 0 in x.shape:
        return
    names = (
        ["any", "all", "count_nonzero"] if x.kind == "b" else ["max", "min", "sum", "argmax", "argmin", "count_nonzero"]
    )
    name = m.random.choice(names)
    axes = m.axis(x) if name.startswith("arg") else m.axes(x)
    m.add(f"xp.{name}({x.name}, axis={axes}, keepdims={m.random.random() < 0.5})")


@operation("positions", 0.7)
def _(m: Maker) -> None:
    x = m.draw("f", 1)
    axis = m.axis(x)
    if x.shape[axis]:
        m.add(f"xp.{m.random.choice(['argmax', 'argmin'])}({distinct(m, x, axis)}, axis={axis})")


@operation("running", 1.5)
def _(m: Maker) -> None:
    x = m.draw(m.random.choice("ffi"), 1, 3)
    axis = m.axis(x)
    if 0 in x.shape:
        return
    first = m.random.random() < 0.3
    texts = [f"xp.cumulative_sum({x.name}, axis={axis}, include_initial={first})"]
    if x.kind == "f":
        texts.append(f"xp.cumulative_prod(xp.tanh({x.name}), axis={axis}, include_initial={first})")
        texts.append(f"xp.diff({x.name}, axis={axis})")
    m.add(m.random.choice(texts))


@operation("softmax", 1.0)
def _(m: Maker) -> None:
    x = m.draw("f", 1)
    axis = m.axis(x)
    if x.shape[axis]:
        m.add(f"xp.{m.random.choice(['softmax', 'log_softmax', 'nn.layer_norm'])}({distinct(m, x, axis)}, axis={axis})")


@operation("sort", 1.5)
def _(m: Maker) -> None:
    x = m.draw(m.random.choice("ffi"), 1)
    axis = m.axis(x)
    if 0 in x.shape:
        return
    values = distinct(m, x, axis) if x.kind == "f" else x.name
    down = m.random.random() < 0.5
    texts = [f"xp.{name}({values}, axis={axis}, descending={down})" for name in ("sort", "argsort")]
    if x.kind == "f":
        largest, k = m.random.random() < 0.5, m.random.randint(1, x.shape[axis])
        texts.append(f"xp.top_k({values}, {k}, axis={axis}, largest={largest})[{m.random.randrange(2)}]")
    m.add(m.random.choice(texts))


@operation("search", 0.5)
def _(m: Maker) -> None:
    x, y = m.draw("f", 1, 1), m.draw("f", 0, 2)
    side = m.random.choice(["left", "right"])
    m.add(f"xp.searchsorted(xp.sort({x.name}), {y.name} + 0.01371, side='{side}')")


# --- products --------------------------------------------------------------------------------------------------------


@operation("matmul", 2.0)
def _(m: Maker) -> None:
    x = m.draw(m.random.choice("fffc"), 1, 3)
    fitting = [v for v in m.values if v.kind == x.kind and v.shape and v.shape[-2:][0] == x.shape[-1]]
    fitting = [v for v in fitting if min(len(v.shape), len(x.shape)) < 3 or v.shape[:-2] == x.shape[:-2]]
    y = m.random.choice(fitting).name if fitting else f"xp.matrix_transpose({x.name})" if len(x.shape) > 1 else x.name
    if fitting or len(x.shape) != 1:
        m.add(f"{x.name} @ {y}")


@operation("contractions", 1.5)
def _(m: Maker) -> None:
    x = m.draw("f", 1, 3)
    alike = m.random.choice([v.name for v in m.values if v.kind == "f" and v.shape == x.shape])
    letters = "ijk"[: len(x.shape)]
    kept = "".join(m.random.sample(letters, m.random.randrange(len(letters) + 1)))
    texts = [
        f"xp.einsum('{letters},{letters}->{kept}', {x.name}, {alike})",
        f"xp.einsum('{letters}->{kept}', {x.name})",
        f"xp.vecdot({x.name}, {alike}, axis={m.axis(x)})",
        f"xp.tensordot({x.name}, {alike}, axes={len(x.shape)})",
    ]
    if len(x.shape) == 1:
        texts.append(f"xp.linalg.outer({x.name}, {m.draw('f', 1, 1).name})")
    if len(x.shape) >= 2:
        axis = m.random.randrange(len(x.shape))
        texts += [
            f"xp.tensordot({x.name}, {alike}, axes=(({axis},), ({axis},)))",
            f"xp.einsum('...ij,...kj->...ik', {x.name}, {alike})",
        ]
    m.add(m.random.choice(texts))


@operation("matrices", 1.5)
def _(m: Maker) -> None:
    x = m.draw("f", 2, 3)
    n = x.shape[-2]
    if 0 in x.shape or n > 8:
        return
    square = f"({x.name} @ xp.matrix_transpose({x.name}) + 2.0 * xp.eye({n}, dtype={x.name}.dtype))"
    general = f"({square} + {ramp(m, (n, n), 0.1)})"
    # Where eigenvalues are equal, JAX has NaN for second derivatives: it divides by their differences.
    apart = f"({square} + xp.eye({n}, dtype={x.name}.dtype) * {ramp(m, (n,), 0.37)})"
    m.add(
        m.random.choice(
            [
                f"xp.linalg.inv({general})",
                f"xp.linalg.det({general} * 0.3)",
                f"xp.linalg.slogdet({general})[1]",
                f"xp.linalg.solve({general}, {x.name})",
                f"xp.linalg.cholesky({square})",
                f"xp.linalg.matrix_power({general} * 0.2, {m.random.choice([0, 1, 2, 3, -1])})",
                f"xp.linalg.trace({x.name}, offset={m.random.randrange(-1, 2)})",
                f"xp.linalg.pinv({general})",
                f"xp.linalg.vector_norm({x.name} + 0.37, axis={m.axis(x)}, ord={m.random.choice([1, 2, 3])})",
                f"xp.linalg.matrix_norm({x.name} + 0.37, ord='fro')",
                f"xp.linalg.qr({general})[1]",
                f"xp.sum(xp.linalg.eigvalsh({apart}), axis=-1)",
            ]
        )
    )


@operation("cross", 0.3)
def _(m: Maker) -> None:
    fitting = [v for v in m.values if v.kind == "f" and v.shape and v.shape[-1] == 3]
    if fitting:
        x = m.random.choice(fitting)
        y = m.random.choice([v for v in fitting if v.shape == x.shape])
        m.add(f"xp.linalg.cross({x.name}, {y.name})")


@operation("fourier", 1.0)
def _(m: Maker) -> None:
    x = m.draw("f", 1, 3)
    axis = m.axis(x)
    if 0 in x.shape:
        return
    real = m.random.choice(
        [f"xp.fft.{name}({x.name}, axis={axis})" for name in ("rfft", "fft", "ifft", "ihfft")]
        + [f"xp.fft.fftn({x.name})", f"xp.fft.rfftn({x.name})"]
        + [f"xp.fft.{name}({x.name}, axes=({axis},))" for name in ("fftshift", "ifftshift")]
        + [f"xp.fft.rfft({x.name}, n={m.random.randint(1, 6)}, axis={axis})"]
    )
    value = m.add(real)
    if value.kind == "c" and m.random.random() < 0.6:
        n = m.random.randint(2, 6)
        m.add(f"xp.fft.{m.random.choice(['irfft', 'hfft'])}({value.name}, n={n}, axis={axis})")


@operation("complex", 1.5)
def _(m: Maker) -> None:
    z = m.draw("c")
    w = m.partner(z)
    m.add(
        m.random.choice(
            [f"xp.real({z.name})", f"xp.imag({z.name})", f"xp.conj({z.name})", f"xp.abs({z.name} + (3.1 + 1j))"]
            + [f"{z.name} * {w}", f"{z.name} + xp.conj({w})", f"{z.name} / ({w} * xp.conj({w}) + 1.0)"]
            + [f"xp.{name}({z.name} * 0.3)" for name in ("exp", "sin", "cos", "tanh", "square", "sinh", "cosh")]
            + [f"xp.{name}({z.name} + (9.1 + 1j))" for name in ("log", "sqrt", "reciprocal")]
        )
    )


# --- windows ---------------------------------------------------------------------------------------------------------


@operation("windows", 1.0)
def _(m: Maker) -> None:
    x = m.draw("f", 3, 4)
    space = x.shape[2:]
    if 0 in x.shape or x.shape[1] > 8 or prod(x.shape) > 1500:
        return
    window = tuple(m.random.randint(1, min(size, 3)) for size in space)
    strides = tuple(m.random.randint(1, 2) for _ in space)
    padding = m.random.choice(
        ["'valid'", "'same'", repr([(m.random.randint(0, 1), m.random.randint(0, 1)) for _ in space])]
    )
    # `same` and widths of one window may hold nothing but padding; then a maximum is minus infinity.
    texts = [f"xp.nn.max_pool({spread(m, x)}, {window}, strides={strides}, padding='valid')"]
    texts.append(f"xp.nn.average_pool({x.name}, {window}, strides={strides}, padding='valid')")
    shape = (m.random.randint(1, 3), x.shape[1], *window)
    kernel = f"(xp.sin({ramp(m, shape, 1.3)}) * xp.cos(xp.sum({m.draw().name}) * 0.01))"
    texts += [f"xp.nn.conv({x.name}, {kernel}, strides={strides}, padding={padding})"] * 2
    m.add(m.random.choice(texts))


@operation("attention", 0.5)
def _(m: Maker) -> None:
    x = m.draw("f", 2, 3)
    if 0 not in x.shape:
        m.add(f"xp.nn.attention({x.name}, {x.name} * 0.7, xp.cos({x.name}), causal={m.random.random() < 0.5})")


@operation("classes", 0.5)
def _(m: Maker) -> None:
    x = m.draw("f", 1, 2)
    if 0 in x.shape:
        return
    target = [m.random.randrange(x.shape[-1]) for _ in range(prod(x.shape[:-1]))]
    number = f"np.array({target}).reshape({x.shape[:-1]})"
    texts = [f"xp.nn.cross_entropy({x.name}, xp.asarray({number}))"]
    i = m.draw("i", 0, 2)
    texts.append(f"xp.one_hot(xp.abs({i.name}) % 4, 4, dtype=a0.dtype)")
    m.add(m.random.choice(texts))


# --- control flow ----------------------------------------------------------------------------------------------------

_BODIES = (
    "xp.sin({s}) + {x} * 0.5",
    "{s} * 0.7 - xp.tanh({x})",
    "xp.roll({s}, 1) * 0.6 + {x}",
    "{s} + xp.flip({x}) * {s} * 0.1",
)


@operation("loops", 1.5)
def _(m: Maker) -> None:
    x = m.draw("f", 0, 3)
    body, iterations = m.random.choice(_BODIES), m.random.randint(0, 4)
    if not x.shape:
        body = _BODIES[m.random.randrange(2)]
    step, again = body.format(s="s", x=x.name), body.format(s="t[1]", x=x.name)
    start = f"(xp.asarray(0), {x.name})"
    texts = [
        f"xp.fori_loop(0, {iterations}, lambda i, s: {step}, {x.name})",
        f"xp.fori_loop(1, {iterations + 1}, lambda i, s: ({step}) / i, {x.name})",
        f"xp.while_loop(lambda t: t[0] < {iterations}, lambda t: (t[0] + 1, {again}), {start}, {iterations})[1]",
    ]
    if len(x.shape) >= 1 and x.shape[0]:
        over = _BODIES[m.random.randrange(4 if len(x.shape) > 1 else 2)].format(s="s", x="r")
        which, back = m.random.randrange(2), m.random.random() < 0.4
        texts += [f"xp.scan(lambda s, r: ({over}, s * r), {x.name}[0], {x.name}, reverse={back})[{which}]"] * 2
    m.add(m.random.choice(texts))


# Functions of values that are zero where the loop has no iterations: their derivatives are infinite there.
_SINGULAR = (
    "xp.sqrt({z})",
    "xp.log({z}) * 0.3",
    "0.2 / {z}",
    "{z} ** 0.3",
    "xp.sqrt(xp.sum({z}))",
    "xp.log({z}) / xp.sqrt({z}) * 0.2",
)


@operation("loops that may not run", 1.5)
def _(m: Maker) -> None:
    x, y, i = m.draw("f", 0, 3), m.draw("f", 0, 2), m.draw("i", 0, 0)
    iterations = m.add(f"{i.name} % 4 - 1").name
    zero = m.add(f"(xp.tanh(xp.sum({y.name})) + 1.5) * xp.astype({iterations} > 0, a0.dtype)").name
    if m.random.random() < 0.5:
        zero = m.add(f"xp.exp(xp.sin({x.name})) * {zero}").name
    inside = m.random.choice(_SINGULAR).format(z=zero)
    if x.shape and 0 not in x.shape and m.random.random() < 0.3:  # a check must not fail either
        inside += f" * xp.reshape({x.name}, (-1,))[xp.where({iterations} > 0, 0, 1000)]"
    loop = m.random.choice(["loop_by_count", "loop_by_test"])
    step = m.random.choice(["s * 0.5 + {0}", "xp.sin(s) * {0}", "s * 0.3 + {0} * i", "{0} * xp.sum(s) + s"])
    text = f"xp.{loop}({iterations}, lambda i, s: {step.format(f'({inside})')}, {{0}}, 2)"
    around = m.random.choice([
        "{1}",
        "xp.fori_loop(0, 2, lambda j, x: {2} * 0.7, {0})",
        "xp.loop_by_count({3} + 1, lambda j, x: {2} * 0.7, {0}, 3)",
        "xp.cond({3} > 0, lambda x: {2} + 0.5, lambda x: x * 2.0, {0})",
        "(lambda equal: {1})(" + inside + ")" if "[" not in inside else "{1}",  # somebody has the value already
        "xp.scan(lambda x, r: (x * 0.5 + " + inside + ", x), {0}, xp.zeros((0, 2)))[0]",
    ])  # fmt: skip
    m.add(around.format(x.name, text.format(x.name), text.format("x"), iterations))


@operation("branches", 0.7)
def _(m: Maker) -> None:
    x, p = m.draw("f", 0, 3), m.draw("b", 0, 3)
    first, second = m.random.sample(["xp.sin(x)", "x * 2.0", "xp.flip(x) + 0.5" if x.shape else "x", "x"], 2)
    if m.random.random() < 0.6:
        m.add(f"xp.cond(xp.any({p.name}), lambda x: {first}, lambda x: {second}, {x.name})")
    else:
        i = m.draw("i", 0, 0)
        m.add(f"xp.switch({i.name} % 2, [lambda x: {first}, lambda x: {second}], {x.name})")


@operation("vmap", 1.0)
def _(m: Maker) -> None:
    x = m.draw("f", 1, 3)
    if 0 in x.shape:
        return
    bodies = [
        "xp.sin(r) * xp.sum(r)",
        "xp.cumulative_sum(xp.reshape(r, (-1,)))",
        "xp.reshape(r, (-1,))[::-1]",
        "xp.max(r + 0.0)",
    ]
    bodies += ["xp.stack([r, r * 2.0])", "xp.concat([xp.reshape(r, (-1,)), xp.reshape(r, (-1,))[:1]])"]
    if len(x.shape) == 3:
        bodies += ["r @ xp.matrix_transpose(r)", "xp.flip(r, axis=0)[::2]", "xp.tril(r)"]
    m.add(f"xp.vmap(lambda r: {m.random.choice(bodies)})({x.name})")


@operation("inner derivatives", 0.5)
def _(m: Maker) -> None:
    x = m.draw("f", 0, 2)
    if 0 not in x.shape:
        m.add(
            f"xp.grad(lambda t: xp.sum(xp.tanh(t) * xp.flip(t) * t))({x.name})"
            if x.shape
            else f"xp.grad(lambda t: xp.sin(t) * t)({x.name})"
        )
