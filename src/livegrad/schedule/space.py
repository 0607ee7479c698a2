"""Iteration spaces: the shape that a kernel runs over, and the axes that are reduced within a row.

`fuse` compares the spaces of roots; a kernel runs over the space of its group.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from livegrad.schedule.views import Affine, Index


class Space(NamedTuple):
    """A shape and its reduced axes, with derived values. Kernels order the domain axes before the reduced axes."""

    shape: tuple[int, ...]
    axes: tuple[int, ...] | None  # None while no root needs an inner dimension
    domain: tuple[int, ...]
    inner: tuple[int, ...]
    point: tuple[Index, ...]  # the index of a point in a tensor of `shape`
    row: tuple[Index, ...]  # the index of a row in a tensor of shape `domain`


@lru_cache(maxsize=4096)
def space_over(shape: tuple[int, ...], axes: tuple[int, ...] | None) -> Space:
    """The space of a shape with reduced axes.

    >>> space = space_over((2, 3, 4), (1,))
    >>> space.domain, space.inner, [index.axis for index in space.point]
    ((2, 4), (3,), [0, 2, 1])
    """
    reduced = axes or ()
    domain_axes = tuple([axis for axis in range(len(shape)) if axis not in reduced])
    depth = {axis: index for index, axis in enumerate((*domain_axes, *reduced))}
    return Space(
        shape,
        axes,
        domain=tuple([shape[axis] for axis in domain_axes]),
        inner=tuple([shape[axis] for axis in reduced]),
        point=tuple([Affine(depth[axis], 0, 1) for axis in range(len(shape))]),
        row=tuple([Affine(index, 0, 1) for index in range(len(domain_axes))]),
    )
