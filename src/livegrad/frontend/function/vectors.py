"""Vector and matrix values in Python: `vec3(1, 2, 3)` creates a NumPy array with named components.

The constructors are also annotations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from livegrad.diagnostics import NotANumberError, caller_origin
from livegrad.ir import types as ir

_PLAIN = 1e30  # smaller floats are in the range of every float element type
_REAL = "biuf"  # NumPy's kinds of real numbers
_COMPONENTS = {"x": 0, "y": 1, "z": 2, "w": 3, "r": 0, "g": 1, "b": 2, "a": 3}


def swizzle(name: str) -> tuple[int, ...] | None:
    """The components that an attribute such as `x` or `zyx` names."""
    if 1 <= len(name) <= 4 and all(letter in _COMPONENTS for letter in name):
        return tuple(_COMPONENTS[letter] for letter in name)
    return None


class VectorValue(np.ndarray):
    """A short vector in Python: a NumPy array with named components.

    >>> v = vec3(1.0, 2.0, 3.0)
    >>> float(v.y), v.zx.tolist()
    (2.0, [3.0, 1.0])
    """

    def __getattr__(self, name: str) -> Any:
        components = swizzle(name)
        if components is None or self.ndim != 1 or max(components) >= self.shape[0]:
            raise AttributeError(f"a vector of shape {self.shape} has no attribute `{name}`")
        picked = np.asarray(self)[list(components)]
        return picked[0] if len(components) == 1 else picked.view(VectorValue)

    def __setattr__(self, name: str, value: Any) -> None:
        components = swizzle(name)
        if components is None or self.ndim != 1:
            super().__setattr__(name, value)
        elif max(components) >= self.shape[0]:
            raise AttributeError(f"a vector of shape {self.shape} has no attribute `{name}`")
        else:
            np.asarray(self)[list(components)] = value


@dataclass(frozen=True)
class ShapedConstructor(ir.UnionMember):
    """`vec3`, `mat2` and so on: a constructor of values that is also an annotation.

    >>> import livegrad as lg
    >>> lg.vec3(1.0), lg.vec3(1.0, 2.0, 3.0), lg.mat2
    (VectorValue([1., 1., 1.], dtype=float32), VectorValue([1., 2., 3.], dtype=float32), mat2)
    """

    type: ir.Vector | ir.Matrix
    name: str

    def __repr__(self) -> str:
        return self.name

    @property
    def shape(self) -> tuple[int, ...]:
        type = self.type
        return (type.size,) if isinstance(type, ir.Vector) else (type.rows, type.columns)

    def __call__(self, *parts: Any) -> VectorValue:
        """Constructs a value from one number for all components, or from numbers and vectors for all of them."""
        element = self.type.element
        if element.kind == "float" and all(part.__class__ is float and -_PLAIN < part < _PLAIN for part in parts):
            flat = np.array(parts or (0.0,), element.dtype)
        else:
            flat = np.concatenate([_numbers(part, element, self.name) for part in parts or (0,)])
        count = int(np.prod(self.shape))
        if flat.size not in (1, count):
            what = f"`{self.name}` takes 1 or {count} numbers"
            raise NotANumberError(what, where=caller_origin(), found=str(flat.size))
        return np.array(np.broadcast_to(flat, (count,)).reshape(self.shape)).view(VectorValue)


def _numbers(part: Any, element: ir.Scalar, name: str) -> np.ndarray[Any, Any]:
    """Converts a number, a vector or a list of them to components; raises if the element type cannot hold a number."""
    try:
        values = np.asarray(part)
        if values.dtype.kind in _REAL:
            with np.errstate(invalid="ignore", over="ignore"):
                numbers = np.asarray(part, element.dtype).reshape(-1)
            exact = values.reshape(-1) if element.kind == "float" else np.trunc(values.reshape(-1))
            if (np.isfinite(numbers) == np.isfinite(exact) if element.kind == "float" else numbers == exact).all():
                return numbers
    except (ValueError, OverflowError):  # lists of different lengths, or an integer that no NumPy type holds
        pass
    raise NotANumberError(
        f"invalid components for `{name}`", where=caller_origin(), expected=str(element), found=repr(part)
    )


vec2, vec3, vec4 = (ShapedConstructor(ir.Vector(ir.f32, n), f"vec{n}") for n in (2, 3, 4))
dvec2, dvec3, dvec4 = (ShapedConstructor(ir.Vector(ir.f64, n), f"dvec{n}") for n in (2, 3, 4))
ivec2, ivec3, ivec4 = (ShapedConstructor(ir.Vector(ir.i32, n), f"ivec{n}") for n in (2, 3, 4))
mat2, mat3, mat4 = (ShapedConstructor(ir.Matrix(ir.f32, n, n), f"mat{n}") for n in (2, 3, 4))
dmat2, dmat3, dmat4 = (ShapedConstructor(ir.Matrix(ir.f64, n, n), f"dmat{n}") for n in (2, 3, 4))
SHAPED_NAMES = {
    constructor.type: constructor.name
    for constructor in (
        vec2,
        vec3,
        vec4,
        dvec2,
        dvec3,
        dvec4,
        ivec2,
        ivec3,
        ivec4,
        mat2,
        mat3,
        mat4,
        dmat2,
        dmat3,
        dmat4,
    )
}
