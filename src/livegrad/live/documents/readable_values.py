"""Converts exactly encoded numbers and small arrays to a legible form without losing a bit, and converts it back.

In: a result of `encode_value`, with the bytes of arrays in base64. Out: the same with decimal numbers where these give
the same bits, and with a marker for None, which TOML lacks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.live.documents.toml_text import Inline
from livegrad.live.recording.exact_values import decode_value, encode_value

_MOST_NUMBERS = 64  # larger arrays stay in base64


def to_readable(encoded: Any) -> Any:
    """The legible form of an encoded value.

    >>> to_readable(encode_value(np.array([0.1, 2.0], np.float32)))
    {'dtype': 'float32', 'values': [0.1, 2.0]}
    """
    if encoded is None:
        return Inline(none=True)
    if isinstance(encoded, list):
        return list(map(to_readable, encoded))
    if not isinstance(encoded, dict):
        return encoded
    if "dtype" in encoded:
        return _readable_array(encoded)
    (kind, content), *_ = encoded.items()
    if kind == "dict":
        return Inline(dict=Inline({key: to_readable(item) for key, item in content.items()}))
    return Inline({kind: list(map(to_readable, content))})


def _readable_array(encoded: dict[str, Any]) -> Inline:
    array = np.asarray(decode_value(encoded))
    if array.size and array.size <= _MOST_NUMBERS and array.dtype.kind in "biuf":
        values = _to_decimals(array)
        if np.array(values, array.dtype).tobytes() == array.tobytes():
            return Inline(dtype=array.dtype.name, values=values)
    return Inline(encoded)


def _to_decimals(array: np.ndarray[Any, Any]) -> Any:
    """Nested lists of the shortest decimals, which depend on the element type."""
    if array.ndim:
        return [_to_decimals(row) for row in array]
    number = array[()]
    return float(str(number)) if array.dtype.kind == "f" else number.item()


def from_readable(value: Any) -> Any:
    """The value of a legible form.

    >>> from_readable({"dtype": "float32", "values": 0.5}), from_readable({"tuple": [1, {"none": True}]})
    (np.float32(0.5), (1, None))
    """
    return decode_value(_to_encoded(value))


def _to_encoded(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_to_encoded, value))
    if not isinstance(value, dict):
        return value
    if "none" in value:
        return None
    if "values" in value:
        return encode_value(np.array(value["values"], value["dtype"])[()])
    if "dtype" in value:
        return value
    if "dict" in value:
        return {"dict": {key: _to_encoded(item) for key, item in value["dict"].items()}}
    return {kind: list(map(_to_encoded, content)) for kind, content in value.items()}
