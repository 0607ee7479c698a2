"""Evaluates what JAX traces with NumPy, primitive by primitive: JAX's meaning and derivatives without XLA's compiler.

XLA takes seconds for a program that NumPy runs in milliseconds. A primitive without a rule here is run by JAX itself;
`check=True` runs all of them by JAX too and compares, which is how the rules themselves are tested.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any

import jax  # pyright: ignore[reportMissingImports]
import numpy as np
from jax.extend.core import Literal  # pyright: ignore[reportMissingImports]

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
_WIDE = {np.dtype(np.float32): np.dtype(np.float64), np.dtype(np.complex64): np.dtype(np.complex128)}
_widens = False  # whether float32 is evaluated as float64


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


def evaluate(closed: Any, arguments: list[Any], check: bool = False) -> list[Any]:
    """The results of a closed jaxpr for NumPy arguments."""
    return _evaluate(closed.jaxpr, [np.asarray(c) for c in closed.consts], arguments, check)


def evaluate_widely(closed: Any, arguments: list[Any]) -> list[Any]:
    """The results with float64 in place of float32, whose distance from those of `evaluate` is the error of float32."""
    global _widens
    _widens = True
    try:
        return evaluate(closed, [_as_type(a, np.asarray(a).dtype) for a in arguments])
    finally:
        _widens = False


def _as_type(value: Any, dtype: Any) -> Any:
    """An array of the type, or of the wider type that stands for it."""
    return np.asarray(value, _WIDE.get(np.dtype(dtype), dtype) if _widens else dtype)


def _evaluate(jaxpr: Any, constants: list[Any], arguments: list[Any], check: bool) -> list[Any]:
    values: dict[Any, Any] = {}
    values.update(zip(jaxpr.constvars, [_as_type(c, c.dtype) for c in constants], strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))

    def read(variable: Any) -> Any:
        return _as_type(variable.val, variable.aval.dtype) if isinstance(variable, Literal) else values[variable]

    for equation in jaxpr.eqns:
        operands = [read(v) for v in equation.invars]
        results = _apply(equation, operands, check)
        values.update(zip(equation.outvars, results, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _apply(equation: Any, operands: list[Any], check: bool) -> list[Any]:
    name, params = equation.primitive.name, equation.params
    control = _CONTROL.get(name)
    if control is not None:
        return control(params, operands, check)
    own, theirs = RULES.get(name), None
    if own is None or check:
        theirs = equation.primitive.bind(*map(jax.numpy.asarray, operands), **params)
        theirs = [np.asarray(t) for t in (theirs if equation.primitive.multiple_results else [theirs])]
        if own is None:
            return [_as_type(t, t.dtype) for t in theirs]
    with np.errstate(all="ignore"):
        results = own(*operands, **params)
    results = list(results) if equation.primitive.multiple_results else [results]
    results = [_as_type(r, v.aval.dtype) for r, v in zip(results, equation.outvars, strict=True)]
    for result, variable in zip(results, equation.outvars, strict=True):
        assert result.shape == variable.aval.shape, (name, params, [o.shape for o in operands], result.shape)
    if theirs is not None:
        for mine, other in zip(results, theirs, strict=True):
            loose = 1e-4 if mine.dtype in (np.float32, np.complex64) else 1e-9
            np.testing.assert_allclose(mine, other, rtol=loose, atol=loose, err_msg=f"{name} {params}")
    return results


# --- control flow ----------------------------------------------------------------------------------------------------


def _closed(closed: Any, operands: list[Any], check: bool) -> list[Any]:
    return _evaluate(closed.jaxpr, [np.asarray(c) for c in closed.consts], operands, check)


def _scan_sizes(params: Any) -> tuple[int, int]:
    """How many operands are constants, and how many are carried."""
    if "ft_in" in params:  # since JAX 0.11, a tree of constants, carried values and rows
        constants, carried, _ = params["ft_in"].unpack()
        return len(constants), len(carried)
    return params["num_consts"], params["num_carry"]


def _scan(params: Any, operands: list[Any], check: bool) -> list[Any]:
    count, carried = _scan_sizes(params)
    constants, state, rows = operands[:count], operands[count : count + carried], operands[count + carried :]
    length = params["length"]
    order = range(length - 1, -1, -1) if params["reverse"] else range(length)
    stacked: dict[int, list[Any]] = {}
    for i in order:
        results = _closed(params["jaxpr"], [*constants, *state, *(row[i] for row in rows)], check)
        state, stacked[i] = results[:carried], results[carried:]
    avals = [v.aval for v in params["jaxpr"].jaxpr.outvars[carried:]]
    columns = [
        np.stack([stacked[i][k] for i in range(length)]) if length else _as_type(np.zeros((0, *aval.shape)), aval.dtype)
        for k, aval in enumerate(avals)
    ]
    return [*state, *columns]


def _while(params: Any, operands: list[Any], check: bool) -> list[Any]:
    first, second = params["cond_nconsts"], params["body_nconsts"]
    of_condition, of_body, state = operands[:first], operands[first : first + second], operands[first + second :]
    while bool(_closed(params["cond_jaxpr"], [*of_condition, *state], check)[0]):
        state = _closed(params["body_jaxpr"], [*of_body, *state], check)
    return state


def _cond(params: Any, operands: list[Any], check: bool) -> list[Any]:
    index, *rest = operands
    branches = params["branches"]
    return _closed(branches[int(np.clip(index, 0, len(branches) - 1))], rest, check)


def _call(params: Any, operands: list[Any], check: bool) -> list[Any]:
    inner = params.get("jaxpr", params.get("call_jaxpr"))
    if hasattr(inner, "consts"):
        return _closed(inner, operands, check)
    return _evaluate(inner, [], operands, check)


_CONTROL: dict[str, Callable[[Any, list[Any], bool], list[Any]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    **dict.fromkeys(
        ("pjit", "jit", "closed_call", "core_call", "checkpoint", "remat2", "custom_jvp_call", "custom_vjp_call"), _call
    ),
}

# --- elementwise -----------------------------------------------------------------------------------------------------


def _plain(function: Rule) -> Rule:
    return lambda *operands, **params: function(*operands)


def _signed_rest(a: Any, b: Any) -> Any:
    return np.fmod(a, b)


def _divide(a: Any, b: Any) -> Any:
    if np.issubdtype(a.dtype, np.integer):
        ones = np.invert(np.zeros_like(a))  # what XLA gives for a division by zero
        return np.where(b == 0, ones, (np.abs(a) // np.abs(np.where(b == 0, 1, b))) * np.sign(a) * np.sign(b))
    return a / b


def _sign(x: Any) -> Any:
    if np.iscomplexobj(x):
        return np.where(x == 0, 0, x / np.where(x == 0, 1, np.abs(x)))
    return np.sign(x)


def _round(x: Any, *, rounding_method: Any) -> Any:
    if int(rounding_method) == 1:
        return np.round(x)
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


for _name, _function in {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "rem": _signed_rest,
    "neg": np.negative,
    "sign": _sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(erf, otypes=[np.float64]),
    "abs": np.abs,
    "square": np.square,
    "pow": np.power,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shift_left": np.left_shift,
    "shift_right_arithmetic": np.right_shift,
    "eq": np.equal,
    "eq_to": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "lt_to": np.less,
    "le": np.less_equal,
    "le_to": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "is_finite": np.isfinite,
    "real": np.real,
    "imag": np.imag,
    "conj": np.conj,
    "complex": lambda a, b: a + 1j * b,
    "copy": lambda x: x,
    "copy_p": lambda x: x,
    "stop_gradient": lambda x: x,
    "nextafter": np.nextafter,
    "mul_no_nan": lambda a, b: np.where(b == 0, 0, a * b),
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
}.items():
    RULES[_name] = _plain(_function)
RULES["round"] = _round


@rule("integer_pow")
def _integer_pow(x: Any, *, y: int) -> Any:
    return x**y if y >= 0 else 1 / x**-y


@rule("select_n")
def _select(which: Any, *cases: Any) -> Any:
    return np.choose(np.broadcast_to(np.asarray(which, np.int64), cases[0].shape), cases) if cases[0].size else cases[0]


@rule("convert_element_type")
def _convert(x: Any, *, new_dtype: Any, **_: Any) -> Any:
    x = np.real(x) if np.iscomplexobj(x) and np.dtype(new_dtype).kind != "c" else x
    return _as_type(x, new_dtype)


# --- movement --------------------------------------------------------------------------------------------------------


@rule("broadcast_in_dim")
def _broadcast(x: Any, *, shape: Any, broadcast_dimensions: Any, **_: Any) -> Any:
    wide = [1] * len(shape)
    for own, place in zip(x.shape, broadcast_dimensions, strict=True):
        wide[place] = own
    return np.broadcast_to(x.reshape(wide), shape)


@rule("reshape")
def _reshape(x: Any, *, new_sizes: Any, dimensions: Any, **_: Any) -> Any:
    return (x if dimensions is None else np.transpose(x, dimensions)).reshape(new_sizes)


@rule("squeeze")
def _squeeze(x: Any, *, dimensions: Any) -> Any:
    return np.squeeze(x, tuple(dimensions))


@rule("expand_dims")
def _expand(x: Any, *, dimensions: Any) -> Any:
    return np.expand_dims(x, tuple(dimensions))


@rule("transpose")
def _transpose(x: Any, *, permutation: Any) -> Any:
    return np.transpose(x, permutation)


@rule("rev")
def _rev(x: Any, *, dimensions: Any) -> Any:
    return np.flip(x, tuple(dimensions))


@rule("slice")
def _slice(x: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    steps = strides or [1] * x.ndim
    return x[tuple(slice(a, b, s) for a, b, s in zip(start_indices, limit_indices, steps, strict=True))]


def _start(operand: Any, sizes: Any, starts: Any) -> tuple[slice, ...]:
    clamped = [int(np.clip(s, 0, own - size)) for s, own, size in zip(starts, operand.shape, sizes, strict=True)]
    return tuple(slice(s, s + size) for s, size in zip(clamped, sizes, strict=True))


@rule("dynamic_slice")
def _dynamic_slice(x: Any, *starts: Any, slice_sizes: Any) -> Any:
    return x[_start(x, slice_sizes, starts)]


@rule("dynamic_update_slice")
def _dynamic_update_slice(x: Any, update: Any, *starts: Any) -> Any:
    result = np.array(x)
    result[_start(x, update.shape, starts)] = update
    return result


@rule("pad")
def _pad(x: Any, fill: Any, *, padding_config: Any) -> Any:
    for axis, (low, high, inside) in enumerate(padding_config):
        size = x.shape[axis]
        spread = size + max(size - 1, 0) * inside
        shape = list(x.shape)
        shape[axis] = spread + low + high
        result = np.full(shape, fill, x.dtype)
        places = np.arange(size) * (inside + 1) + low
        kept = (places >= 0) & (places < shape[axis])
        where: list[Any] = [slice(None)] * x.ndim
        where[axis] = places[kept]
        result[tuple(where)] = np.compress(kept, x, axis)
        x = result
    return x


@rule("concatenate")
def _concatenate(*arrays: Any, dimension: int) -> Any:
    return np.concatenate(arrays, dimension)


@rule("split")
def _split(x: Any, *, sizes: Any, axis: int) -> Any:
    return np.split(x, np.cumsum(sizes)[:-1], axis)


@rule("iota")
def _iota(*, dtype: Any, shape: Any, dimension: int, **_: Any) -> Any:
    line = np.arange(shape[dimension]).astype(dtype)
    return np.broadcast_to(line.reshape([-1 if d == dimension else 1 for d in range(len(shape))]), shape)


def _gathered_places(
    shape: Any, indices: Any, window: Any, batch: Any, numbers: Any, names: tuple[str, str, str, str]
) -> tuple[list[Any], list[Any]]:
    """For each place of the windows: the index into the operand, and where windows start."""
    inserted, mapped, batching, of_indices = (getattr(numbers, name) for name in names)
    starts = indices[tuple(batch)] if batch else np.broadcast_to(indices, (*window_shape(window), indices.shape[-1]))
    zero = np.zeros(starts.shape[:-1], np.int64)
    begin = [zero for _ in shape]
    for k, d in enumerate(mapped):
        begin[d] = starts[..., k].astype(np.int64)
    # The index vector is the last dimension, so batch dimensions of the indices are numbered as they stand.
    for d, k in zip(batching, of_indices, strict=True):
        begin[d] = batch[k]
    offsets = iter(window)
    within = [zero if d in inserted or d in batching else next(offsets) for d in range(len(shape))]
    return begin, within


def window_shape(window: Any) -> tuple[int, ...]:
    return window[0].shape if len(window) else ()


def _begin_inside(begin: list[Any], shape: Any, sizes: Any, mode: Any) -> tuple[list[Any], Any]:
    """Where windows start by the mode, and which of them are inside."""
    inside = np.ones(begin[0].shape if begin else (), bool)
    moved = []
    for start, own, size in zip(begin, shape, sizes, strict=True):
        inside = inside & (start >= 0) & (start <= own - size)
        moved.append(np.clip(start, 0, max(own - size, 0)))
    clipped = "CLIP" in str(mode) or "PROMISE" in str(mode)
    return moved, np.ones_like(inside) if clipped else inside


@rule("gather")
def _gather(
    x: Any, indices: Any, *, dimension_numbers: Any, slice_sizes: Any, mode: Any, fill_value: Any, **_: Any
) -> Any:
    numbers = dimension_numbers
    kept = [
        size
        for d, size in enumerate(slice_sizes)
        if d not in numbers.collapsed_slice_dims and d not in numbers.operand_batching_dims
    ]
    batch_shape = indices.shape[:-1]
    sizes, batches, offsets = [], iter(batch_shape), iter(kept)
    for d in range(len(kept) + len(batch_shape)):
        sizes.append(next(offsets) if d in numbers.offset_dims else next(batches))
    grid = np.indices(sizes)
    batch = [grid[d] for d in range(len(sizes)) if d not in numbers.offset_dims]
    window = [grid[d] for d in numbers.offset_dims]
    names = ("collapsed_slice_dims", "start_index_map", "operand_batching_dims", "start_indices_batching_dims")
    if not sizes:
        batch, window = [], []
    begin, within = _gathered_places(x.shape, indices, window, batch, numbers, names)
    begin, inside = _begin_inside(begin, x.shape, slice_sizes, mode)
    if x.size == 0:
        return np.zeros(sizes, x.dtype)
    found = x[tuple(np.asarray(b + w) for b, w in zip(begin, within, strict=True))] if x.ndim else x
    if fill_value is None:
        fill_value = np.nan if x.dtype.kind in "fc" else np.iinfo(x.dtype).min if x.dtype.kind == "i" else True
    return np.where(inside, found, np.asarray(fill_value).astype(x.dtype)).reshape(sizes)


def _scattered(update: Callable[[Any, Any, Any], None]) -> Rule:
    def scatter(x: Any, indices: Any, updates: Any, *, dimension_numbers: Any, mode: Any, **_: Any) -> Any:
        numbers, result = dimension_numbers, np.array(x)
        grid = np.indices(updates.shape)
        batch = [grid[d] for d in range(updates.ndim) if d not in numbers.update_window_dims]
        window = [grid[d] for d in numbers.update_window_dims]
        names = (
            "inserted_window_dims",
            "scatter_dims_to_operand_dims",
            "operand_batching_dims",
            "scatter_indices_batching_dims",
        )
        begin, within = _gathered_places(x.shape, indices, window, batch, numbers, names)
        taken = iter([updates.shape[d] for d in numbers.update_window_dims])
        sizes = [
            1 if d in numbers.inserted_window_dims or d in numbers.operand_batching_dims else next(taken)
            for d in range(x.ndim)
        ]
        begin, inside = _begin_inside(begin, x.shape, sizes, mode)
        inside = np.broadcast_to(inside, updates.shape)
        places = tuple(np.broadcast_to(b + w, updates.shape)[inside] for b, w in zip(begin, within, strict=True))
        update(result, places, updates[inside])
        return result

    return scatter


def _assign(result: Any, places: Any, values: Any) -> None:
    result[places] = values


RULES["scatter"] = _scattered(_assign)
RULES["scatter-add"] = RULES["scatter_add"] = _scattered(np.add.at)
RULES["scatter-mul"] = RULES["scatter_mul"] = _scattered(np.multiply.at)
RULES["scatter-max"] = RULES["scatter_max"] = _scattered(np.maximum.at)
RULES["scatter-min"] = RULES["scatter_min"] = _scattered(np.minimum.at)

# --- reductions ------------------------------------------------------------------------------------------------------

for _name, _function in {
    "reduce_sum": np.sum,
    "reduce_prod": np.prod,
    "reduce_max": np.max,
    "reduce_min": np.min,
    "reduce_and": np.all,
    "reduce_or": np.any,
}.items():
    RULES[_name] = lambda x, *, axes, _f=_function, **_: _f(x, axis=tuple(axes))


@rule("argmax")
def _argmax(x: Any, *, axes: Any, **_: Any) -> Any:
    return np.argmax(x, axes[0])


@rule("argmin")
def _argmin(x: Any, *, axes: Any, **_: Any) -> Any:
    return np.argmin(x, axes[0])


def _running(function: Any) -> Rule:
    def run(x: Any, *, axis: int, reverse: bool) -> Any:
        return np.flip(function(np.flip(x, axis), axis=axis), axis) if reverse else function(x, axis=axis)

    return run


RULES["cumsum"], RULES["cumprod"] = _running(np.cumsum), _running(np.cumprod)
RULES["cummax"], RULES["cummin"] = _running(np.maximum.accumulate), _running(np.minimum.accumulate)


@rule("dot_general")
def _dot_general(a: Any, b: Any, *, dimension_numbers: Any, **_: Any) -> Any:
    (first, second), (batch_a, batch_b) = dimension_numbers
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    of_a = [next(letters) for _ in range(a.ndim)]
    of_b = [next(letters) for _ in range(b.ndim)]
    for i, j in [*zip(first, second, strict=True), *zip(batch_a, batch_b, strict=True)]:
        of_b[j] = of_a[i]
    batch = [of_a[i] for i in batch_a]
    free_a = [of_a[i] for i in range(a.ndim) if i not in (*first, *batch_a)]
    free_b = [of_b[j] for j in range(b.ndim) if j not in (*second, *batch_b)]
    return np.einsum(f"{''.join(of_a)},{''.join(of_b)}->{''.join([*batch, *free_a, *free_b])}", a, b)


@rule("sort")
def _sort(*operands: Any, dimension: int, num_keys: int, **_: Any) -> Any:
    order = np.lexsort(operands[:num_keys][::-1], axis=dimension)
    return [np.take_along_axis(operand, order, dimension) for operand in operands]


@rule("top_k")
def _top_k(x: Any, *, k: int, **params: Any) -> Any:
    assert params.get("axis", -1) in (-1, x.ndim - 1)
    order = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    return [np.take_along_axis(x, order, -1), order]


# --- linear algebra and transforms -----------------------------------------------------------------------------------


def _each_matrix(function: Rule, x: Any) -> Any:
    return np.asarray([function(m) for m in x.reshape(-1, *x.shape[-2:])]).reshape(x.shape)


@rule("cholesky")
def _cholesky(x: Any, **_: Any) -> Any:
    return np.linalg.cholesky((x + np.conj(np.swapaxes(x, -1, -2))) / 2)


@rule("triangular_solve")
def _triangular_solve(
    a: Any, b: Any, *, left_side: bool, lower: bool, transpose_a: bool, conjugate_a: bool, unit_diagonal: bool
) -> Any:
    a = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        a = a - a * np.eye(a.shape[-1]) + np.eye(a.shape[-1])
    a = np.conj(a) if conjugate_a else a
    a = np.swapaxes(a, -1, -2) if transpose_a else a
    if left_side:
        return np.linalg.solve(a, b)
    return np.swapaxes(np.linalg.solve(np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2)), -1, -2)


@rule("fft")
def _fft(x: Any, *, fft_type: Any, fft_lengths: Any) -> Any:
    axes, kind = tuple(range(-len(fft_lengths), 0)), str(fft_type).upper()
    if "IRFFT" in kind or kind.endswith("3"):
        return np.fft.irfftn(x, fft_lengths, axes)
    if "RFFT" in kind or kind.endswith("2"):
        return np.fft.rfftn(x, fft_lengths, axes)
    return (np.fft.ifftn if "IFFT" in kind or kind.endswith("1") else np.fft.fftn)(x, fft_lengths, axes)
