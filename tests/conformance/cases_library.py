"""Cases of ops that backends delegate to a library: sorting, matrices, Fourier transforms, convolutions, pooling."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Scalar, Tensor, c64, c128, f32, f64, i32
from livegrad.ir.types.scalars import SCALARS
from livegrad.ops.convolution import convolve
from livegrad.ops.decompositions import cholesky, qr
from livegrad.ops.fourier import fft, irfft, rfft
from livegrad.ops.rules import filled
from livegrad.ops.solving import cofactors, det, inv, pinv, slogdet, solve, triangular_solve
from livegrad.ops.sorting import argsort, searchsorted, sort, top_positions
from livegrad.ops.spectra import eig, eigh, eigvals, eigvalsh, svd, svdvals
from livegrad.ops.windows import arg_reduce_window, put_window, reduce_window, take_window
from tests.conformance.case import Case, accepts, make_case
from tests.conformance.cases_tensor import draw_ties
from tests.conformance.tolerance import EXACT, Tolerance
from tests.conformance.values import Draw, draw_any, special_values

# The same library on the same numbers: only the alignment of memory may tell the backends apart.
_LIBRARY = Tolerance(64.0, lambda *values: 1.0 + max(np.max(np.abs(value), initial=0.0) for value in values))

# --- sorting ---------------------------------------------------------------------------------------------------------


def draw_apart(scalar: Scalar, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Numbers with gaps between them, in no order: a small step does not change the order."""
    size = int(np.prod(shape))
    numbers = (rng.permutation(size) - size // 2) * 0.1 if scalar.kind == "float" else rng.permutation(size)
    return numbers.reshape(shape).astype(scalar.dtype)


def sorting_cases() -> Iterator[Case]:
    shapes = (((37,), 0), ((4, 5), 0), ((2, 3, 4), 1), ((0,), 0), ((2, 0), 0))
    for op in (sort, argsort):
        for scalar in SCALARS.values():
            if not accepts(op, Tensor(scalar, (2,)), axis=0, descending=False, stable=True):
                continue
            for shape, axis in shapes if scalar in (f32, f64) else shapes[1:2]:
                for descending in (False, True):
                    yield _sorting_case(op, Tensor(scalar, shape), axis, descending, draw_apart)
            yield _sorting_case(op, Tensor(scalar, (4, 25)), 1, True, draw_ties, "_ties")
        for scalar in (f32, f64):
            for descending in (False, True):
                values = special_values(scalar)
                draw = lambda s, shape, rng, values=values: rng.permutation(values)  # noqa: E731
                yield _sorting_case(op, Tensor(scalar, values.shape), 0, descending, draw, "_special")


def _sorting_case(op: Op, type: Tensor, axis: int, descending: bool, draw: Draw, note: str = "") -> Case:
    return make_case(
        op,
        lambda x: op(x, axis=axis, descending=descending, stable=True),
        type,
        note=f"axis{axis}{'_descending' if descending else ''}{note}",
        draws=(draw,),
        smooth=not note,
    )


def top_cases() -> Iterator[Case]:
    for scalar in SCALARS.values():
        for count, largest in ((3, True), (9, False)) if scalar in (f32, f64) else ((2, True),):
            if accepts(top_positions, Tensor(scalar, (25, 4)), axis=0, count=count, largest=largest):
                yield make_case(
                    top_positions,
                    lambda x, count=count, largest=largest: top_positions(x, axis=0, count=count, largest=largest),
                    Tensor(scalar, (25, 4)),
                    note=f"{count}_{'largest' if largest else 'smallest'}",
                    draws=(draw_apart if scalar is f64 else draw_ties,),
                    smooth=scalar is f64,
                )


def searching_cases() -> Iterator[Case]:
    def ordered(scalar: Scalar, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
        return np.sort(draw_ties(scalar, shape, rng))

    for scalar in SCALARS.values():
        for side in ("left", "right"):
            for shape in ((9,), (2, 3), ()) if scalar in (f32, f64) else ((9,),):
                types = Tensor(scalar, (12,)), Tensor(scalar, shape)
                if accepts(searchsorted, *types, side=side):
                    yield make_case(
                        searchsorted,
                        lambda a, x, s=side: searchsorted(a, x, side=s),
                        *types,
                        note=side,
                        draws=(ordered, draw_ties),
                        smooth=False,
                    )
        if scalar is f64:
            yield make_case(
                searchsorted,
                lambda a, x: searchsorted(a, x, side="left"),
                *(Tensor(f64, (7,)), Tensor(f64, (5,))),
                draws=(lambda s, shape, rng: np.arange(7.0), lambda s, shape, rng: rng.permutation(5) + 0.5),
            )


# --- matrices --------------------------------------------------------------------------------------------------------

_MATRIX_SCALARS = (f32, f64, c64, c128)
_SQUARE: tuple[tuple[int, ...], ...] = ((3, 3), (2, 4, 4), (1, 1), (0, 3, 3), (0, 0))
_RECTANGULAR: tuple[tuple[int, ...], ...] = ((4, 3), (3, 4), (2, 3, 3), (1, 4), (0, 3), (2, 3, 0))


def draw_matrix(scalar: Scalar, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Well-conditioned matrices whose eigenvalues and singular values lie apart, none of them near 0."""
    steps = np.zeros(shape)
    for index in range(min(shape[-2:])):
        steps[..., index, index] = 1.5 * index + 2.0
    return (steps + 0.3 * draw_any(scalar, shape, rng)).astype(scalar.dtype)


def draw_definite(scalar: Scalar, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Not quite hermitian, so that both triangles are seen to count, and positive definite in the mean."""
    matrix = draw_matrix(scalar, shape, rng)
    return (matrix @ np.conj(np.swapaxes(matrix, -1, -2)) + 0.1 * draw_any(scalar, shape, rng)).astype(scalar.dtype)


def _matrix_cases(
    op: Op, callable: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], note: str = "", draw: Draw = draw_matrix
) -> Iterator[Case]:
    for scalar in _MATRIX_SCALARS:
        for shape in shapes if scalar in (f64, c128) else shapes[:2]:
            yield make_case(op, callable, Tensor(scalar, shape), note=note, draws=(draw,), tolerance=_LIBRARY)


def decomposition_cases() -> Iterator[Case]:
    yield from _matrix_cases(cholesky, lambda x: cholesky(x), _SQUARE, draw=draw_definite)
    for op in (inv, det, cofactors, slogdet, eigh, eigvalsh, eig, eigvals):
        yield from _matrix_cases(op, lambda x, op=op: op(x), (*_SQUARE, (2, 2, 2)))
    yield from _matrix_cases(svdvals, lambda x: svdvals(x), _RECTANGULAR)
    yield from _matrix_cases(svd, lambda x: svd(x, full_matrices=False), _RECTANGULAR)
    yield from _matrix_cases(svd, lambda x: svd(x, full_matrices=True), ((3, 3), (2, 2, 2)), "full")
    yield from _matrix_cases(qr, lambda x: qr(x, mode="reduced"), _RECTANGULAR)
    yield from _matrix_cases(qr, lambda x: qr(x, mode="complete"), ((3, 4), (2, 3, 3)), "complete")


def pseudo_inverse_cases() -> Iterator[Case]:
    for scalar in _MATRIX_SCALARS:
        for shape in _RECTANGULAR if scalar in (f64, c128) else _RECTANGULAR[:2]:
            cutoff = filled(1e-6, Tensor(scalar.real, shape[:-2]))
            yield make_case(
                pinv,
                lambda x, cutoff=cutoff: pinv(x, cutoff),
                Tensor(scalar, shape),
                draws=(draw_matrix,),
                tolerance=_LIBRARY,
            )


def solving_cases() -> Iterator[Case]:
    shapes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((3, 3), (3, 2)),
        ((2, 4, 4), (4, 1)),
        ((4, 4), (2, 4, 3)),
        ((2, 1, 3, 3), (4, 3, 2)),
        ((0, 0), (0, 2)),
    )
    for scalar in _MATRIX_SCALARS:
        for first, second in shapes if scalar in (f64, c128) else shapes[:2]:
            types = Tensor(scalar, first), Tensor(scalar, second)
            yield make_case(solve, lambda a, b: solve(a, b), *types, draws=(draw_matrix,), tolerance=_LIBRARY)
            for lower in (True, False):
                yield make_case(
                    triangular_solve,
                    lambda a, b, lower=lower: triangular_solve(a, b, lower=lower),
                    *types,
                    note="lower" if lower else "upper",
                    draws=(draw_matrix,),
                    tolerance=_LIBRARY,
                )
    large = Tensor(f64, (150, 150)), Tensor(f64, (150, 2))
    for lower in (True, False):
        yield make_case(
            triangular_solve,
            lambda a, b, lower=lower: triangular_solve(a, b, lower=lower),
            *large,
            note="lower" if lower else "upper",
            draws=(lambda s, shape, rng: 0.1 * rng.standard_normal(shape) + 3.0 * np.eye(150),),
            tolerance=_LIBRARY,
            smooth=False,
        )


# --- Fourier transforms ----------------------------------------------------------------------------------------------


def fourier_cases() -> Iterator[Case]:
    for number, norm in enumerate(("backward", "ortho", "forward")):
        for scalar in (c64, c128):
            for shape, axes in (((8,), (0,)), ((3, 5), (1,)), ((2, 3, 4), (0, 2)), ((1, 0), (0,))):
                inverse = (number + len(shape)) % 2 == 0
                yield make_case(
                    fft,
                    lambda x, a=axes, i=inverse, n=norm: fft(x, axes=a, inverse=i, norm=n),
                    Tensor(scalar, shape),
                    note=f"{axes}{'inverse' if inverse else ''}_{norm}",
                    tolerance=_LIBRARY,
                )
        for scalar in (f32, f64):
            for length in (1, 2, 5, 8):
                half = Tensor(c64 if scalar is f32 else c128, (2, length // 2 + 1))
                yield make_case(
                    rfft,
                    lambda x, n=norm: rfft(x, axis=0, norm=n),
                    Tensor(scalar, (length, 3)),
                    note=norm,
                    tolerance=_LIBRARY,
                )
                yield make_case(
                    irfft,
                    lambda x, n=norm, size=length: irfft(x, axis=1, size=size, norm=n),
                    half,
                    note=f"{length}_{norm}",
                    tolerance=_LIBRARY,
                )


# --- windows ---------------------------------------------------------------------------------------------------------

CONVOLUTIONS: tuple[tuple[Any, ...], ...] = (
    # image, kernels, strides, padding, dilation, groups
    ((2, 3, 9), (4, 3, 3), (1,), ((0, 0),), (1,), 1),
    ((1, 4, 10), (6, 2, 3), (2,), ((1, 3),), (2,), 2),
    ((2, 2, 7, 8), (3, 2, 3, 2), (2, 3), ((1, 0), (4, 5)), (2, 1), 1),
    ((1, 3, 5, 4), (3, 1, 3, 3), (1, 2), ((1, 1), (1, 1)), (1, 1), 3),
    ((1, 2, 4, 3, 5), (2, 2, 2, 3, 1), (1, 2, 4), ((1, 0), (0, 2), (0, 0)), (1, 1, 1), 1),
    ((1, 1, 2), (1, 1, 5), (1,), ((1, 1),), (1,), 1),
    ((0, 2, 4), (1, 2, 2), (1,), ((0, 0),), (1,), 1),
)


def convolution_cases() -> Iterator[Case]:
    for scalar in SCALARS.values():
        for image, kernels, strides, padding, dilation, groups in (
            CONVOLUTIONS if scalar in (f64, c128) else CONVOLUTIONS[1:3]
        ):
            types = Tensor(scalar, image), Tensor(scalar, kernels)
            attributes = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
            if accepts(convolve, *types, **attributes):
                yield make_case(
                    convolve,
                    lambda x, w, a=attributes: convolve(x, w, **a),
                    *types,
                    note=f"{strides}{padding}{dilation}{groups}",
                    tolerance=_LIBRARY if scalar.kind in ("float", "complex") else EXACT,
                )


_WINDOWS: tuple[tuple[Any, ...], ...] = (
    # shape, window, strides, padding, dilation
    ((2, 9), (1, 3), (1, 2), ((0, 0), (1, 1)), (1, 1)),
    ((2, 7, 6), (1, 3, 2), (1, 2, 3), ((0, 0), (1, 2), (0, 1)), (1, 2, 1)),
    ((6,), (2,), (2,), ((0, 0),), (1,)),
    ((2,), (5,), (1,), ((0, 0),), (1,)),
    ((4, 4), (4, 4), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    ((0, 3), (1, 2), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    ((2, 7, 11), (1, 2, 5), (1, 2, 5), ((0, 0), (1, 0), (0, 1)), (1, 1, 1)),
    ((2, 130), (1, 60), (1, 60), ((0, 0), (0, 0)), (1, 1)),
    ((2, 66), (1, 60), (1, 3), ((0, 0), (2, 0)), (1, 1)),
)


def window_cases() -> Iterator[Case]:
    for scalar in SCALARS.values():
        for shape, window, strides, padding, dilation in _WINDOWS if scalar in (f32, f64) else _WINDOWS[1:2]:
            attributes = {"window": window, "strides": strides, "padding": padding, "dilation": dilation}
            for op, kind in (
                *((reduce_window, kind) for kind in ("sum", "max", "min")),
                *((arg_reduce_window, kind) for kind in ("max", "min")),
            ):
                if accepts(op, Tensor(scalar, shape), kind=kind, **attributes):
                    yield _window_case(op, Tensor(scalar, shape), {"kind": kind, **attributes})
            if scalar.kind == "float":
                yield from _tap_cases(Tensor(scalar, shape), attributes)


def _tap_cases(type: Tensor, attributes: dict[str, Any]) -> Iterator[Case]:
    """One element of each window, taken and put back."""
    counts = reduce_window(filled(0, type), kind="sum", **attributes).type
    assert isinstance(counts, Tensor)
    number = Tensor(i32, counts.shape)
    taps = int(np.prod(attributes["window"]))

    def draw_taps(scalar: Scalar, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
        return rng.integers(-1, taps, shape, dtype=np.int32)

    note = f"{attributes['window']}{attributes['strides']}"
    draws = (draw_any, draw_taps)
    yield make_case(
        take_window, lambda x, at: take_window(x, at, **attributes), type, number, note=note, draws=draws
    )  # fmt: skip
    yield make_case(
        put_window,
        lambda x, at: put_window(x, at, shape=type.shape, **attributes),
        counts,
        number,
        note=note,
        draws=draws,
    )


def _window_case(op: Op, type: Tensor, attributes: dict[str, Any]) -> Case:
    def pooled(x: Node) -> Node:
        return op(x, **attributes)

    note = f"{attributes['kind']}{attributes['window']}{attributes['strides']}"
    if attributes["kind"] != "sum":
        return make_case(op, pooled, type, note=note, draws=(draw_apart,))
    # Windows side by side, if they are large or few, are summed along themselves, in another order.
    reordered = type.element.kind == "float" and len(type.shape) > 1 and attributes["window"] == attributes["strides"]
    sums = Tolerance(4.0, lambda x: op.evaluate(np.abs(x), **attributes))  # type: ignore[misc]
    return make_case(op, pooled, type, note=note, draws=(draw_any,), tolerance=sums if reordered else EXACT)
