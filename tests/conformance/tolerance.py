"""Tolerances for results: exact, or a number of ulp relative to the magnitude that determines rounding."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from livegrad.ir.bfloat16 import readable
from livegrad.ir.types import Array, Struct, Tape, Tuple, Type, bf16, components
from tests.conformance.values import element_of, plain_shape


@dataclass(frozen=True)
class Tolerance:
    """The error that is allowed at an element.

    `ulps` counts in units of the last place of the expected value or, for sums, of `magnitude(*arguments)`: the sum of
    the magnitudes of the terms. `signed_zeros` tells 0.0 from -0.0.
    """

    ulps: float = 0.0
    magnitude: Callable[..., Any] | None = None
    signed_zeros: bool = True


EXACT = Tolerance()
NEAR = Tolerance(4.0)
ANY_ZERO = Tolerance(signed_zeros=False)


def differences(actual: Any, expected: Any, type: Type, tolerance: Tolerance, arguments: tuple[Any, ...]) -> list[str]:
    """What is wrong with a result of this type, in words; nothing when it is right."""
    with np.errstate(all="ignore"):
        plain = [readable(np.asarray(v)) if isinstance(v, np.ndarray | np.void) else v for v in arguments]
        magnitude = 0.0 if tolerance.magnitude is None else tolerance.magnitude(*plain)
        return _differences(actual, expected, type, tolerance, magnitude, "result")


def _differences(actual: Any, expected: Any, type: Type, tolerance: Tolerance, magnitude: Any, at: str) -> list[str]:
    if isinstance(type, Struct | Tuple | Array):
        members = components(type)
        if not isinstance(actual, tuple) or len(actual) != len(members):
            return [f"{at} is {actual!r}, expected {len(members)} members in a tuple"]
        return [
            line
            for index, own in enumerate(members)
            for line in _differences(actual[index], expected[index], own, tolerance, magnitude, f"{at}.{index}")
        ]
    if isinstance(type, Tape):
        return [] if actual == expected else [f"{at} is {actual!r}, expected {expected!r}"]
    found, wanted = np.asarray(actual), np.asarray(expected)
    dtype = element_of(type).dtype
    if found.dtype != dtype or found.shape != wanted.shape:
        return [f"{at} is {found.dtype}{found.shape}, expected {dtype}{wanted.shape} for {type}"]
    # The last place of a bf16 counts 65,536 times that of the f32 which holds its value.
    ulps = tolerance.ulps * (65536.0 if element_of(type) is bf16 else 1.0)
    found, wanted = readable(found), readable(wanted)
    wrong = ~_close(found, wanted, replace(tolerance, ulps=ulps), np.asarray(magnitude))
    if not np.any(wrong):
        return []
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    count = f"{int(wrong.sum())} of {wrong.size} differ"
    return [f"{at}{list(place)} is {found[place]!r}, expected {wanted[place]!r} ({count})"]


def _close(found: Any, wanted: Any, tolerance: Tolerance, magnitude: Any) -> Any:
    kind = wanted.dtype.kind
    if kind not in "fc":
        return found == wanted
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    if kind == "c":
        same |= ~np.isfinite(found) & ~np.isfinite(wanted)
    elif tolerance.signed_zeros:
        same &= np.isnan(wanted) | (np.signbit(found) == np.signbit(wanted)) | (wanted != 0)
    if tolerance.ulps == 0.0:
        return same
    real = np.dtype(f"f{wanted.dtype.itemsize // 2}") if kind == "c" else wanted.dtype
    # The ulp of the largest number would reach infinity: that of its neighbour stands for it.
    largest = np.nextafter(np.finfo(real).max, real.type(0))
    size = np.minimum(np.maximum(np.abs(wanted), np.abs(magnitude)), largest).astype(real)
    error = np.abs(found.astype(complex) - wanted.astype(complex)) if kind == "c" else _error(found, wanted)
    nearby = error <= tolerance.ulps * np.spacing(size).astype(np.float64)
    return same | (nearby & ((wanted != 0) | (magnitude > 0) | ~np.asarray(tolerance.signed_zeros)))


def _error(found: Any, wanted: Any) -> Any:
    return np.abs(found.astype(np.float64) - wanted.astype(np.float64))


def misfit(value: Any, type: Type) -> str | None:
    """Why a value is not one of this type as the reference holds it, or None."""
    if isinstance(type, Struct | Tuple | Array):
        members = components(type)
        if not isinstance(value, tuple) or len(value) != len(members):
            return f"{value!r} is no {type}"
        return next((text for m, t in zip(value, members, strict=True) if (text := misfit(m, t))), None)
    if isinstance(type, Tape):
        return None if isinstance(value, Mapping) else f"{value!r} is no {type}"
    array = np.asarray(value)
    if array.dtype == element_of(type).dtype and array.shape == plain_shape(type):
        return None
    return f"{array.dtype}{array.shape} is no {type}"
