"""Iteration spaces: the shape that a kernel runs over, and which axes are swept inside a row.

`fuse` compares the spaces of roots; kernels are built over the space of their group.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from livegrad.schedule.views import Affine, Index


class Space(NamedTuple):
    """A shape, the axes that are reduced, and what follows from them. Kernels have the kept axes before the others."""

    shape: tuple[int, ...]
    axes: tuple[int, ...] | None  # None while nothing needs an inner dimension
    domain: tuple[int, ...]
    inner: tuple[int, ...]
    point: tuple[Index, ...]  # the index of a point into a tensor of the whole shape
    row: tuple[Index, ...]  # and that of its row, into a tensor with a value for each


@lru_cache(maxsize=4096)
def space_over(shape: tuple[int, ...], axes: tuple[int, ...] | None) -> Space:
    """The space of a shape, of which some axes are reduced.

    >>> space = space_over((2, 3, 4), (1,))
    >>> space.domain, space.inner, [index.axis for index in space.point]
    ((2, 4), (3,), [0, 2, 1])
    """
    inside = axes or ()
    kept = tuple([axis for axis in range(len(shape)) if axis not in inside])
    depth = {axis: number for number, axis in enumerate((*kept, *inside))}
    return Space(
        shape,
        axes,
        domain=tuple([shape[axis] for axis in kept]),
        inner=tuple([shape[axis] for axis in inside]),
        point=tuple([Affine(depth[axis], 0, 1) for axis in range(len(shape))]),
        row=tuple([Affine(number, 0, 1) for number in range(len(kept))]),
    )
