"""Controls for inputs: which kind of control a value needs and how far it goes, and values that a page sends.

In: a pin and its value. Out: JSON for a control; or, from JSON, a value of the same type. An input without a range gets
one around its default.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError
from livegrad.live.graph.block import Pin
from livegrad.live.graph.control import Control
from livegrad.live.graph.sources import Setting
from livegrad.tools.studio.values import Json, plain

_COLOURS = ("color", "colour")
_MAX_COMPONENTS = 16
_FROM_TEXT = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def control_of(pin: Pin, setting: Setting) -> Json:
    """The control for an input: that of its pin, completed by its value and its default.

    >>> import livegrad as lg
    >>> block = lg.block(lambda x=0.5, n=3: x * n, name="b")
    >>> control = control_of(block["x"], lg.Engine().graph.source_of(block["x"]))
    >>> control["kind"], control["low"], control["high"]
    ('number', 0.0, 1.0)
    """
    control = pin.control or Control()
    kind, default = _kind(pin.name, control, setting.value), _default(pin)
    low, high = (0.0, 1.0) if kind == "colour" else (-math.pi, math.pi) if kind == "angle" else _guess_range(default)
    if control.low is not None and control.high is not None:
        low, high = control.low, control.high
    return {
        "kind": kind,
        "default": default,
        "low": low,
        "high": high,
        "step": control.step or (1 if kind == "integer" else None),
        "unit": control.unit or ("rad" if kind == "angle" else ""),
        "label": control.label or pin.name,
        "group": control.group or pin.block.name,
        "choices": [list(choice) for choice in control.choices],
    }


def _default(pin: Pin) -> Any:
    """The default of an input as JSON."""
    default = pin.block.default_of(pin.name)
    if default is not None:
        array = np.asarray(default)
        return plain(array if array.ndim else array[()]) if array.size <= _MAX_COMPONENTS else None
    return None


def _kind(name: str, control: Control, value: Any) -> str:
    """What the page shows: the kind of the control, as far as it fits the value."""
    array = np.asarray(value)
    if array.ndim == 1 and 1 < array.size <= _MAX_COMPONENTS and array.dtype.kind in "iuf":
        is_colour = control.kind == "colour" or any(word in name.lower() for word in _COLOURS)
        return "colour" if is_colour and array.size in (3, 4) else "vector"
    if array.ndim or array.dtype.kind not in "biuf":
        return "none"
    if control.kind in ("choice", "angle"):
        return control.kind
    return {"b": "boolean", "i": "integer", "u": "integer", "f": "number"}[array.dtype.kind]


def _guess_range(default: Any) -> tuple[float, float]:
    """A range around a default that a slider starts with.

    >>> _guess_range(0.5), _guess_range(4.0), _guess_range(-3.0), _guess_range(None)
    ((0.0, 1.0), (0.0, 8.0), (-6.0, 6.0), (0.0, 1.0))
    """
    numbers = [number for number in (default if isinstance(default, list) else [default]) if _is_finite(number)]
    largest = max((abs(number) for number in numbers), default=0.0)
    high = 1.0 if largest <= 1.0 else 2.0 * largest
    return (-high if any(number < 0.0 for number in numbers) else 0.0), float(high)


def _is_finite(number: Any) -> bool:
    return isinstance(number, int | float) and math.isfinite(number)


def value_from_json(value: Any, current: Any) -> Any:
    """The value that a page sends, in the type of the current value (None: a float).

    >>> value_from_json(2, np.float32(0.5)), value_from_json(2.6, 1), value_from_json("NaN", 0.5)
    (np.float32(2.0), 3, nan)
    """
    if isinstance(value, list):
        return _array_from_json(value, current)
    number = _number(value)
    if current is None:
        return float(number)
    if isinstance(current, bool | np.bool_):
        return type(current)(bool(number))
    if isinstance(current, int | np.integer):
        if not math.isfinite(number):
            raise UsageError("this input takes whole numbers", found=str(value))
        return type(current)(round(number))
    if isinstance(current, float | np.floating):
        return type(current)(number)
    raise UsageError("this input takes an array", found=repr(value))


def _number(value: Any) -> int | float:
    number = _FROM_TEXT.get(value) if isinstance(value, str) else value
    if not isinstance(number, int | float):
        raise UsageError("not a number", found=repr(value)[:60])
    try:
        float(number)
    except OverflowError:
        raise UsageError("the number is too large", found=repr(value)[:60]) from None
    return number


def _array_from_json(value: list[Any], current: Any) -> Any:
    if len(value) > _MAX_COMPONENTS:
        raise UsageError("too many numbers", expected=f"at most {_MAX_COMPONENTS}", found=str(len(value)))
    numbers = [_number(item) for item in value]
    like = None if current is None else np.asarray(current)
    if like is not None and like.shape != (len(numbers),):
        raise UsageError("another number of components", expected=str(list(like.shape)), found=str([len(numbers)]))
    if like is not None and like.dtype.kind in "iu":
        numbers = [round(number) for number in numbers if math.isfinite(number)]
        if len(numbers) != len(value):
            raise UsageError("this input takes whole numbers", found=repr(value))
    return np.array(numbers, np.float32 if like is None else like.dtype)
