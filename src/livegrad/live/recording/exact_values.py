"""Encodes numbers and arrays as JSON exactly, and decodes them."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError


class NotRecordable(UsageError):
    """A value that cannot be written into a recording."""

    code = "recording"


def encode_value(value: Any) -> Any:
    """Encodes a number, an array, a string, or a tuple, list or dict of them, as JSON.

    >>> encode_value((1.5, True)), encode_value(np.float32(2.0))
    ({'tuple': [1.5, True]}, {'dtype': 'float32', 'number': '00000040'})
    """
    if value is None or value.__class__ in (bool, int, float, str):
        return value
    if value.__class__ is complex:
        return {"complex": [value.real, value.imag]}
    if value.__class__ is tuple:
        return {"tuple": [encode_value(item) for item in value]}
    if value.__class__ is list:
        return [encode_value(item) for item in value]
    if value.__class__ is dict and all(isinstance(key, str) for key in value):
        return {"dict": {key: encode_value(item) for key, item in value.items()}}
    if isinstance(value, np.generic):
        return {"dtype": value.dtype.name, "number": value.tobytes().hex()}
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return encode_array(value)
    raise NotRecordable("this value cannot be recorded", found=type(value).__name__)


def encode_array(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Encodes an array exactly."""
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": data}


def decode_value(encoded: Any) -> Any:
    """Decodes a value that `encode_value` has encoded.

    >>> decode_value(encode_value((np.float32(2.0), [1])))
    (np.float32(2.0), [1])
    """
    if isinstance(encoded, list):
        return [decode_value(item) for item in encoded]
    if not isinstance(encoded, dict):
        return encoded
    if "complex" in encoded:
        return complex(*encoded["complex"])
    if "tuple" in encoded:
        return tuple(decode_value(item) for item in encoded["tuple"])
    if "dict" in encoded:
        return {key: decode_value(item) for key, item in encoded["dict"].items()}
    dtype = np.dtype(encoded["dtype"])
    if "number" in encoded:
        return np.frombuffer(bytes.fromhex(encoded["number"]), dtype)[0]
    return np.frombuffer(base64.b64decode(encoded["data"]), dtype).reshape(encoded["shape"]).copy()
