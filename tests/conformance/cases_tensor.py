"""Cases of ops on tensors: movement, reductions, scans, indexing, matrix products."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from livegrad.ir.function import make_function, trace
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, c64, c128, f16, f32, f64, i32, i64
from livegrad.ir.types.scalars import SCALARS
from livegrad.ops.assignment import assign
from livegrad.ops.conversion import complex_parts, from_parts
from livegrad.ops.indexing import lookup, lookup_or, scatter_add
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import broadcast, concatenate, flip, iota, pad, permute, reshape, slice_
from livegrad.ops.reduction import arg_reduce, cumulative, recurrence, reduce
from livegrad.ops.rules import filled
from tests.conformance.case import Case, accepts, make_case
from tests.conformance.tolerance import ANY_ZERO, EXACT, Tolerance
from tests.conformance.values import Draw, draw_any, draw_between, special_values

_BROADCASTS: tuple[tuple[tuple[int, ...] | None, tuple[int, ...], tuple[int, ...]], ...] = (
    (None, (37,), ()),
    (None, (), ()),
    ((), (2, 3), ()),
    ((1,), (37,), (0,)),
    ((3,), (2, 3, 5), (1,)),
    ((3, 1), (3, 37), (0, 1)),
    ((1, 1, 1), (1, 4, 1), (0, 1, 2)),
    ((0,), (4, 0), (1,)),
    ((1,), (0,), (0,)),
)
_RESHAPES = (
    ((6,), (2, 3)),
    ((2, 3, 5), (30,)),
    ((), (1, 1)),
    ((0, 3), (3, 0)),
    ((37,), (1, 37)),
    ((4, 9), (6, 6)),
)
_PERMUTES = (
    ((2, 3, 5), (2, 0, 1)),
    ((37, 4), (1, 0)),
    ((), ()),
    ((0, 3), (1, 0)),
    ((1, 7, 2), (1, 2, 0)),
    ((5,), (0,)),
)
_SLICES = (
    ((37,), (3,), (11,), (3,)),
    ((37,), (0,), (37,), (1,)),
    ((37,), (36,), (1,), (5,)),
    ((37,), (5,), (0,), (1,)),
    ((5, 7, 3), (1, 0, 2), (2, 4, 1), (2, 2, 1)),
    ((0, 4), (0, 1), (0, 2), (1, 2)),
    ((), (), (), ()),
)
_PADS = (
    ((5,), (2,), (3,), (1,)),
    ((37,), (0,), (0,), (0,)),
    ((1,), (1,), (0,), (4,)),
    ((2, 3), (1, 0), (0, 2), (0, 3)),
    ((0,), (2,), (1,), (2,)),
    ((), (), (), ()),
    ((2, 1, 3), (0, 1, 0), (1, 1, 0), (1, 0, 2)),
)
_FLIPS = (((37,), (0,)), ((2, 3, 5), (0, 2)), ((2, 3), ()), ((), ()), ((0, 3), (0, 1)))
_CONCATENATIONS: tuple[tuple[tuple[tuple[int, ...], ...], int], ...] = (
    (((37,),), 0),
    (((3,), (34,)), 0),
    (((2, 3), (2, 0), (2, 5)), 1),
    (((1, 2, 3), (4, 2, 3)), 0),
    (((0,), (0,)), 0),
)


def movement_cases() -> Iterator[Case]:
    for scalar in SCALARS.values():
        some = slice(None) if scalar in (f32, f64) else slice(4, 5)
        for source, shape, axes in _BROADCASTS[some]:
            type = scalar if source is None else Tensor(scalar, source)
            yield make_case(
                broadcast, lambda x, s=shape, a=axes: broadcast(x, shape=s, axes=a), type, note=f"{shape}{axes}"
            )
        for source, shape in _RESHAPES[some]:
            yield make_case(reshape, lambda x, s=shape: reshape(x, shape=s), Tensor(scalar, source), note=f"{shape}")
        for shape, axes in _PERMUTES[some]:
            yield make_case(permute, lambda x, a=axes: permute(x, axes=a), Tensor(scalar, shape), note=f"{axes}")
        for shape, axes in _FLIPS[: 2 if scalar is not f32 else None]:
            yield make_case(flip, lambda x, a=axes: flip(x, axes=a), Tensor(scalar, shape), note=f"{axes}")
        yield from _cutting_cases(scalar, some)
    for scalar in (c64, c128):
        yield make_case(complex_parts, complex_parts, Tensor(scalar, (3, 37)))
        yield make_case(from_parts, from_parts, Tensor(scalar.real, (3, 37, 2)))


def _cutting_cases(scalar: Scalar, some: slice) -> Iterator[Case]:
    for shape, start, size, step in _SLICES[some]:
        yield make_case(
            slice_,
            lambda x, a=start, n=size, s=step: slice_(x, start=a, size=n, step=s),
            Tensor(scalar, shape),
            note=f"{start}{size}{step}",
        )
    for shape, low, high, interior in _PADS[some if scalar in (f32, f64) else slice(3, 5)]:
        yield make_case(
            pad,
            lambda x, v, a=low, b=high, i=interior: pad(x, v, low=a, high=b, interior=i),
            Tensor(scalar, shape),
            scalar,
            note=f"{low}{high}{interior}",
        )
    for shapes, axis in _CONCATENATIONS[some if scalar in (f32, f64) else slice(2, 3)]:
        yield make_case(
            concatenate,
            lambda *x, a=axis: concatenate(*x, axis=a),
            *(Tensor(scalar, shape) for shape in shapes),
            note=f"axis{axis}",
        )


def iota_cases() -> Iterator[Case]:
    for scalar in SCALARS.values():
        for shape, axis in (((37,), 0), ((2, 5), 0), ((2, 1, 9), 2), ((0, 3), 1)):
            if accepts(iota, shape=shape, axis=axis, type=scalar):
                node = iota(shape=shape, axis=axis, type=scalar)
                yield Case(f"iota/{scalar}/{shape}/axis{axis}", iota, make_function("iota", (), [node]), lambda rng: ())


# --- reductions ------------------------------------------------------------------------------------------------------

_AXES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((37,), (0,)),
    ((3, 37), (1,)),
    ((37, 3), (0,)),
    ((2, 3, 5), (0, 2)),
    ((2, 3, 5), (1,)),
    ((2, 3), (0, 1)),
    ((1, 4), (0,)),
    ((), ()),
    ((2, 3), ()),
)
_EMPTY: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (((0,), (0,)), ((3, 0), (1,)), ((0, 3), (1,)))


def _sum_tolerance(scalar: Scalar, kind: str, axes: tuple[int, ...], terms: int) -> Tolerance:
    if scalar.kind not in ("float", "complex"):
        return EXACT
    if kind == "prod":
        return Tolerance(4.0 + terms)
    if kind == "sum":
        return Tolerance(8.0, lambda x: np.sum(np.abs(x), axis=axes), signed_zeros=False)
    return ANY_ZERO


def reduce_cases() -> Iterator[Case]:
    kinds = ("sum", "prod", "max", "min", "any", "all")
    for kind in kinds:
        for scalar in SCALARS.values():
            if not accepts(reduce, Tensor(scalar, (2,)), kind=kind, axes=(0,)):
                continue
            for shape, axes in (*_AXES, *_EMPTY) if scalar in (f32, f64) or kind == "any" else _AXES[:4:3]:
                if accepts(reduce, Tensor(scalar, shape), kind=kind, axes=axes):
                    yield _reduce_case(scalar, kind, shape, axes)
    for shape in ((1037,), (5, 523)):
        yield _reduce_case(f32, "sum", shape, (len(shape) - 1,))
        yield _reduce_case(f16, "sum", shape, (len(shape) - 1,))


def _reduce_case(scalar: Scalar, kind: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> Case:
    terms = int(np.prod([shape[axis] for axis in axes]))
    return make_case(
        reduce,
        lambda x: reduce(x, kind=kind, axes=axes),
        Tensor(scalar, shape),
        note=f"{kind}{axes}",
        draws=(draw_between(0.6, 1.6) if kind == "prod" else draw_any,),
        tolerance=_sum_tolerance(scalar, kind, axes, terms),
    )


def reduce_special_cases() -> Iterator[Case]:
    """Each special value in a row of its own, beside ordinary numbers; and a row of nothing but zeros."""
    for scalar in (f32, f64, f16):
        values = special_values(scalar)
        rows = np.stack([values, np.ones_like(values), np.full_like(values, -2.0)], axis=1)
        for kind in ("sum", "prod", "max", "min"):
            fold = trace(lambda x, k=kind: reduce(x, kind=k, axes=(1,)), Tensor(scalar, rows.shape), name="reduce")
            yield Case(
                f"reduce/{scalar}/{kind}/special",
                reduce,
                fold,
                lambda rng, rows=rows: (rows,),
                _sum_tolerance(scalar, kind, (1,), 3),
                smooth=False,
            )
        for kind in ("argmax", "argmin"):
            find = trace(lambda x, k=kind: arg_reduce(x, kind=k, axis=1), Tensor(scalar, rows.shape), name="arg_reduce")
            yield Case(
                f"arg_reduce/{scalar}/{kind}/special",
                arg_reduce,
                find,
                lambda rng, rows=rows: (rows,),
                smooth=False,
            )


def draw_ties(scalar: Scalar, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Few different numbers, so that extrema tie."""
    return rng.integers(0, 2 if scalar.kind == "bool" else 4, shape).astype(scalar.dtype)


def arg_reduce_cases() -> Iterator[Case]:
    for kind in ("argmax", "argmin"):
        for scalar in SCALARS.values():
            for shape, axis in (((37,), 0), ((4, 7), 1), ((4, 7), 0), ((2, 3, 5), 1))[: None if scalar is f32 else 2]:
                if not accepts(arg_reduce, Tensor(scalar, shape), kind=kind, axis=axis):
                    continue
                for note, draw in (("", draw_any), ("ties", draw_ties)):
                    yield make_case(
                        arg_reduce,
                        lambda x, k=kind, a=axis: arg_reduce(x, kind=k, axis=a),
                        Tensor(scalar, shape),
                        note=f"{kind}{axis}{note}",
                        draws=(draw,),
                        smooth=not note,
                    )


def cumulative_cases() -> Iterator[Case]:
    for kind in ("sum", "prod", "max", "min"):
        for scalar in SCALARS.values():
            for reverse in (False, True):
                for exclusive in (False, True):
                    for shape, axis in (((37,), 0), ((3, 5), 0), ((2, 3, 4), 1), ((1,), 0), ((0, 2), 0), ((2, 0), 0)):
                        full = scalar in (f32, f64) or (reverse and exclusive) == (kind in ("sum", "prod"))
                        attributes = {"kind": kind, "axis": axis, "reverse": reverse, "exclusive": exclusive}
                        if (full and (scalar in (f32, f64) or axis == 1)) and accepts(
                            cumulative, Tensor(scalar, shape), **attributes
                        ):
                            yield _cumulative_case(scalar, shape, attributes)


def _cumulative_case(scalar: Scalar, shape: tuple[int, ...], attributes: dict[str, Any]) -> Case:
    kind, axis = attributes["kind"], attributes["axis"]
    tolerance = _sum_tolerance(scalar, kind, (), shape[axis])
    if kind == "sum" and tolerance is not EXACT:
        tolerance = Tolerance(16.0, lambda x: np.broadcast_to(np.sum(np.abs(x), axis, keepdims=True), x.shape))
    words = "".join(f"_{name}" for name in ("reverse", "exclusive") if attributes[name])
    return make_case(
        cumulative,
        lambda x: cumulative(x, **attributes),
        Tensor(scalar, shape),
        note=f"{kind}{axis}{words}",
        draws=(draw_between(0.6, 1.6) if kind == "prod" else draw_any,),
        tolerance=tolerance,
    )


def recurrence_cases() -> Iterator[Case]:
    for scalar in SCALARS.values():
        for reverse in (False, True):
            for shape, axis in (((37,), 0), ((3, 5), 0), ((2, 3, 4), 1), ((0, 2), 0), ((1,), 0)):
                type = Tensor(scalar, shape)
                expected = scalar in (f32, f64) or axis == 1
                if expected and accepts(recurrence, type, type, axis=axis, reverse=reverse):
                    inexact = scalar.kind in ("float", "complex")
                    yield make_case(
                        recurrence,
                        lambda a, b, x=axis, r=reverse: recurrence(a, b, axis=x, reverse=r),
                        type,
                        type,
                        note=f"axis{axis}{'_reverse' if reverse else ''}",
                        draws=(draw_between(-0.9, 0.9),),
                        tolerance=Tolerance(32.0, lambda a, b: np.max(np.abs(b), initial=0.0)) if inexact else EXACT,
                    )


# --- indexing and products -------------------------------------------------------------------------------------------


def draw_below(size: int) -> Draw:
    def draw(scalar: Scalar, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
        return rng.integers(0, size, shape).astype(scalar.dtype)

    return draw


def draw_around(size: int) -> Draw:
    """Indices of which some are out of range, on either side."""

    def draw(scalar: Scalar, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
        return rng.integers(-2, size + 2, shape).astype(scalar.dtype)

    return draw


def indexing_cases() -> Iterator[Case]:
    shapes: tuple[tuple[tuple[int, ...], tuple[int, ...] | None], ...] = (
        ((37,), (50,)),
        ((37,), None),
        ((4, 3), (5, 2)),
        ((4, 3, 2), (7,)),
        ((4, 3, 2), None),
        ((), None),
        ((5,), (0,)),
        ((3,), ()),
    )
    for scalar in SCALARS.values():
        for shape, at in shapes if scalar in (f32, f64) else shapes[:3:2]:
            for index in (i32, i64) if scalar is f32 else (i64,):
                yield from _indexing_pair(scalar, shape, at, index)


def _indexing_pair(scalar: Scalar, shape: tuple[int, ...], at: tuple[int, ...] | None, index: Scalar) -> Iterator[Case]:
    indices = [index if at is None else Tensor(index, at)] * len(shape)
    below = tuple(map(draw_below, shape))
    source, updates = Tensor(scalar, shape), scalar if at is None or not shape else Tensor(scalar, at)
    note = "scalar_index" if at is None else ""
    yield make_case(lookup, lookup, source, *indices, note=note, draws=(draw_any, *below))
    if accepts(lookup_or, source, updates, *indices):
        around = tuple(map(draw_around, shape))
        yield make_case(lookup_or, lookup_or, source, updates, *indices, note=note, draws=(draw_any, draw_any, *around))
    if accepts(assign, source, updates, *indices):
        yield make_case(assign, assign, source, updates, *indices, note=note, draws=(draw_any, draw_any, *below))
    if accepts(scatter_add, source, updates, *indices) and scalar.kind != "bool":
        tolerance = EXACT
        if scalar.kind in ("float", "complex"):
            tolerance = Tolerance(8.0, lambda base, new, *_: np.max(np.abs(base)) + np.sum(np.abs(new)))
        types = (source, updates, *indices)
        draws = (draw_any, draw_any, *below)
        yield make_case(scatter_add, scatter_add, *types, note=note, draws=draws, tolerance=tolerance)


def box_cases() -> Iterator[Case]:
    """Assignments to slices: starts and steps are known, so that kernels write part of a buffer."""
    boxes: tuple[tuple[tuple[int, ...], tuple[tuple[int, int | None, int], ...]], ...] = (
        ((37,), ((3, 20, 1),)),
        ((500,), ((3, 20, 1),)),
        ((500,), ((1, 160, 3),)),
        ((7, 90), ((1, 5, 1), (1, 88, 1))),
        ((7, 90), ((2, None, 1), (0, 90, 1))),
        ((7, 90), ((0, 4, 2), (89, None, 1))),
        ((4, 3, 40), ((0, 4, 1), (1, None, 1), (5, 7, 4))),
    )
    for scalar in SCALARS.values():
        for shape, spans in boxes if scalar in (f32, f64) else boxes[1::3]:
            points = tuple(count for _, count, _ in spans if count is not None)
            axes = iter(range(len(points)))
            places = [
                filled(start, Tensor(i64, points))
                if count is None
                else iota(shape=points, axis=next(axes), type=i64) * step + start
                for start, count, step in spans
            ]
            types = Tensor(scalar, shape), Tensor(scalar, points)

            def once(base: Node, new: Node, places: list[Node] = places) -> Node:
                return assign(base, new, *places)

            def twice(base: Node, new: Node, places: list[Node] = places) -> Node:
                # The second write is in place, and reads what it replaces.
                first = assign(base, new, *places)
                return assign(first, lookup(first, *places[:-1], flip(places[-1], axes=(0,))), *places)

            yield make_case(assign, once, *types, note="slice")
            yield make_case(assign, twice, *types, note="slice twice")


def matmul_cases() -> Iterator[Case]:
    shapes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((3, 4), (4, 5)),
        ((37, 19), (19, 23)),
        ((1, 1), (1, 1)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((3, 0), (0, 2)),
        ((0, 3), (3, 2)),
    )

    def product(a: Node, b: Node) -> Node:
        return matmul(a, b)

    for scalar in SCALARS.values():
        for first, second in shapes if scalar in (f32, f64) else shapes[:5:4]:
            types = Tensor(scalar, first), Tensor(scalar, second)
            if accepts(matmul, *types):
                inexact = scalar.kind in ("float", "complex")
                tolerance = Tolerance(16.0, lambda a, b: np.abs(a) @ np.abs(b)) if inexact else EXACT
                yield make_case(matmul, product, *types, tolerance=tolerance)
