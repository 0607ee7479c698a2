"""Types made of other types: vectors, matrices, arrays, structs, tuples, tensors and tapes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from livegrad.diagnostics import UsageError
from livegrad.ir.dimension import Dimension
from livegrad.ir.types.interned import Type
from livegrad.ir.types.scalars import Scalar

_MAX_MEMBERS = 1 << 16


def _require_size(type: Type, *sizes: int) -> None:
    """Checks that sizes are non-negative integers and not too large: vectors, matrices and arrays live in registers."""
    if any(size.__class__ is not int or size < 0 for size in sizes) or int(np.prod(sizes)) > _MAX_MEMBERS:
        expected = f"non-negative integers, with at most {_MAX_MEMBERS} members"
        raise UsageError("invalid size", expected=expected, found=str(type), help="use a tensor for many elements")


@dataclass(frozen=True, eq=False, repr=False)
class Vector(Type):
    """A short vector; arithmetic works on each component.

    >>> from livegrad.ir.types import f32
    >>> Vector(f32, 3), Vector(f32, 3) is Vector(f32, 3)
    (vec<f32, 3>, True)
    """

    element: Scalar
    size: int

    def __post_init__(self) -> None:
        _require_size(self, self.size)

    def __str__(self) -> str:
        return f"vec<{self.element}, {self.size}>"


@dataclass(frozen=True, eq=False, repr=False)
class Matrix(Type):
    """A small dense matrix; arithmetic works on each component, `matrix_multiply` is the product.

    >>> from livegrad.ir.types import f32
    >>> Matrix(f32, 2, 3)
    mat<f32, 2, 3>
    """

    element: Scalar
    rows: int
    columns: int

    def __post_init__(self) -> None:
        _require_size(self, self.rows, self.columns)

    def __str__(self) -> str:
        return f"mat<{self.element}, {self.rows}, {self.columns}>"


@dataclass(frozen=True, eq=False, repr=False)
class Array(Type):
    """A fixed number of values of one type.

    >>> from livegrad.ir.types import f32
    >>> Array(f32, 4), Array(Vector(f32, 3), 2)
    (array<f32, 4>, array<vec<f32, 3>, 2>)
    """

    element: Type
    size: int

    def __post_init__(self) -> None:
        _require_size(self, self.size)

    def __str__(self) -> str:
        return f"array<{self.element}, {self.size}>"


@dataclass(frozen=True, eq=False, repr=False)
class Struct(Type):
    """Named fields. Two structs are the same type if their names and fields are equal.

    >>> from livegrad.ir.types import f32, i32
    >>> Struct("Material", (("albedo", Vector(f32, 3)), ("layer", i32)))
    struct Material{albedo: vec<f32, 3>, layer: i32}
    """

    name: str
    fields: tuple[tuple[str, Type], ...]

    def __str__(self) -> str:
        return f"struct {self.name}{{{', '.join(f'{name}: {type}' for name, type in self.fields)}}}"

    def field(self, name: str) -> Type:
        for field_name, type in self.fields:
            if field_name == name:
                return type
        raise UsageError(
            f"struct {self.name} has no field `{name}`", expected="one of " + ", ".join(n for n, _ in self.fields)
        )


@dataclass(frozen=True, eq=False, repr=False)
class Tuple(Type):
    """Values by position: the type of a call of a function with several results.

    >>> from livegrad.ir.types import f32, i32
    >>> Tuple((f32, i32))
    (f32, i32)
    """

    elements: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.elements))}{',' if len(self.elements) == 1 else ''})"


UNIT = Tuple(())


@dataclass(frozen=True, eq=False, repr=False)
class Tensor(Type):
    """A dense array of scalars; dimensions are integers or symbolic.

    A tensor of vectors has a trailing dimension for them; a tensor of structs is a struct of tensors.

    >>> from livegrad.ir.types import f32
    >>> Tensor(f32, (Dimension.symbol("n"), 3))
    tensor<f32, [n, 3]>
    """

    element: Scalar
    shape: tuple[int | Dimension, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.element, Scalar):
            raise UsageError("a tensor's element must be a scalar", found=str(self.element))
        for size in self.shape:
            if not isinstance(size, Dimension) and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
                raise UsageError("not a shape", expected="integers or symbolic dimensions", found=repr(self.shape))

    def __str__(self) -> str:
        return f"tensor<{self.element}, [{', '.join(map(str, self.shape))}]>"

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True, eq=False, repr=False)
class Tape(Type):
    """A tape: the residuals of a loop, one value of the same type for each iteration.

    >>> from livegrad.ir.types import f32
    >>> Tape(f32)
    tape<f32>
    """

    element: Type

    def __str__(self) -> str:
        return f"tape<{self.element}>"
