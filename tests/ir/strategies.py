"""Hypothesis strategies for types and attributes of the IR."""

import math
import struct
from typing import Any

from hypothesis import strategies as st

from livegrad.ir.dimension import Dimension, Size
from livegrad.ir.types import Array, Matrix, Struct, Tape, Tensor, Tuple, Type, Vector
from livegrad.ir.types.scalars import SCALARS

scalars = st.sampled_from(list(SCALARS.values()))
dimensions: st.SearchStrategy[Dimension] = st.builds(
    lambda first, second, factor, offset: Dimension.symbol(first) * Dimension.symbol(second) * factor + offset,
    st.sampled_from(["n", "m", "f32", "inf", "none", "batch_2"]),
    st.sampled_from(["n", "m"]),
    st.integers(1, 5),
    st.integers(-3, 3),
).map(lambda size: size if isinstance(size, Dimension) else Dimension.symbol("n"))
sizes: st.SearchStrategy[Size] = st.integers(0, 9) | dimensions
names = st.sampled_from(["x", "Material", "Material.Differential", "a b", 'quo"te', "", "f32"]) | st.text(max_size=5)


def _distinct_fields(items: list[tuple[str, Type]]) -> tuple[tuple[str, Type], ...]:
    return tuple(dict(items).items())


types: st.SearchStrategy[Type] = st.recursive(
    st.one_of(
        scalars,
        st.builds(Vector, scalars, st.integers(1, 4)),
        st.builds(Matrix, scalars, st.integers(1, 4), st.integers(1, 4)),
        st.builds(Tensor, scalars, st.lists(sizes, max_size=3).map(tuple)),
    ),
    lambda inner: st.one_of(
        st.builds(Array, inner, st.integers(0, 4)),
        st.builds(Tape, inner),
        st.builds(Tuple, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Struct, names, st.lists(st.tuples(names, inner), max_size=3).map(_distinct_fields)),
    ),
    max_leaves=6,
)

_special_floats = st.sampled_from(
    [
        0.0,
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        -math.nan,
        5e-324,
        1e22,
        0.1,
        *struct.unpack("<d", b"\1" * 6 + b"\xf0\x7f"),
    ]
)
floats = _special_floats | st.floats()
attributes: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        floats,
        st.builds(complex, floats, floats),
        st.text(),
        st.text(st.characters(categories=["Cs", "Cc", "Zl", "Zp"]), max_size=3),
        types,
        dimensions,
    ),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=8,
)
