"""Analyses how an index tensor varies over the points of its shape: affine in one coordinate, or computed.

Derivatives of writes and the scheduler use it to prove that different points write different elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from livegrad.ir.dimension import Size
from livegrad.ir.node import Node
from livegrad.ir.types import shape_of
from livegrad.ops.affine import AffineForm, expand_form, linear_form

_AFFINE_OPS = ("constant", "iota", "broadcast", "add", "sub", "neg", "mul")


class Motion(NamedTuple):
    """An index `start + step * (coordinate along axis)`; without an axis it varies along `others` only.

    `start` is None if it is computed, from values that vary along the axes `others`.
    """

    axis: int | None
    start: int | None
    step: int
    others: frozenset[int] = frozenset()


class _Computed(NamedTuple):
    """A computed value at each point: axis k of `value` is indexed by the point's coordinate along `axes[k]`."""

    value: Node
    axes: tuple[int, ...]

    @property
    def varying_axes(self) -> frozenset[int]:
        """The axes of the points along which the value may vary."""
        sizes = shape_of(self.value.type)
        return frozenset(axis for axis, size in zip(self.axes, sizes, strict=True) if size != 1)


_Unknown = int | _Computed  # the coordinate along an axis, or a computed value


def motion_of(index: Node) -> Motion:
    """Analyses how an index varies over the points.

    >>> from livegrad.ops.movement import index_along
    >>> motion_of(index_along((3, 4), 1) * 2 + 5)
    Motion(axis=1, start=5, step=2, others=frozenset())
    """
    form = expand_form(index, lambda node: node.op.name in _AFFINE_OPS, _derive_form, _make_computed)
    axes = [unknown for unknown in form.coefficients if isinstance(unknown, int)]
    computed = [unknown for unknown in form.coefficients if isinstance(unknown, _Computed)]
    others = frozenset[int]().union(*[value.varying_axes for value in computed])
    if len(axes) > 1:
        return Motion(None, None, 0, others.union(axes))
    start = None if computed else form.constant
    return Motion(axes[0], start, form.coefficients[axes[0]], others) if axes else Motion(None, start, 0, others)


def _make_computed(node: Node) -> _Unknown:
    return _Computed(node, tuple(range(len(shape_of(node.type)))))


def _derive_form(node: Node, operands: list[AffineForm[_Unknown]]) -> AffineForm[_Unknown] | None:
    if node.op.name == "iota":
        return AffineForm.of(node.attribute("axis"))
    form = linear_form(node, operands)
    return _broadcast_form(operands[0], node) if form is None and node.op.name == "broadcast" else form


def _broadcast_form(form: AffineForm[_Unknown], broadcast: Node) -> AffineForm[_Unknown]:
    """The form of an index at the points of a broadcast."""
    sizes, axes = shape_of(broadcast.operands[0].type), broadcast.attribute("axes")
    result: AffineForm[_Unknown] = AffineForm(form.constant)
    for unknown, coefficient in form.coefficients.items():
        if isinstance(unknown, _Computed):
            value = _Computed(unknown.value, tuple([axes[axis] for axis in unknown.axes]))
            result = result.plus(AffineForm.of(value), coefficient)
        elif sizes[unknown] != 1:
            result = result.plus(AffineForm.of(axes[unknown]), coefficient)
    return result


def separating_axes(indices: Sequence[Node]) -> frozenset[int]:
    """The axes that separate elements: points that differ along one of them have different elements.

    >>> from livegrad.ops.movement import index_along
    >>> separating_axes([index_along((3, 4), 1), index_along((3, 4), 1) + 2])
    frozenset({1})
    """
    motions = [motion for motion in map(motion_of, indices) if motion.axis is not None and motion.step]
    axes: frozenset[int] = frozenset()
    while True:
        # An index separates points along its axis if everything else it depends on is equal at both points.
        more = {motion.axis for motion in motions if motion.axis is not None and motion.others <= axes}
        if more <= axes:
            return axes
        axes |= more


def are_distinct(indices: Sequence[Node]) -> bool:
    """Whether all points provably have different elements."""
    sizes = shape_of(indices[0].type) if indices else ()
    nontrivial_axes = {axis for axis, size in enumerate(sizes) if size != 1}
    return nontrivial_axes <= separating_axes(indices)


class Box(NamedTuple):
    """Evenly spaced elements along each dimension of a tensor, all in bounds.

    `axes` has the axis of the points for each dimension, in order; None for a single element.
    """

    start: tuple[int, ...]
    size: tuple[int, ...]
    step: tuple[int, ...]
    axes: tuple[int | None, ...]

    @property
    def is_dense(self) -> bool:
        return all(step == 1 for step in self.step)


def box_of(shape: Sequence[Size], indices: Sequence[Node]) -> Box | None:
    """The box that the indices of all points fill, in the order of the points; None if there is none or sizes vary.

    >>> from livegrad.ops.movement import index_along
    >>> box_of((9,), [index_along((3,), 0) * 2 + 1])
    Box(start=(1,), size=(3,), step=(2,), axes=(0,))
    """
    points = shape_of(indices[0].type) if indices else ()
    if not all(isinstance(size, int) for size in (*shape, *points)):
        return None
    start, size, step, axes = [], [], [], []
    for extent, motion in zip(shape, map(motion_of, indices), strict=True):
        count = 1 if motion.axis is None else points[motion.axis]
        axis_step = 1 if motion.axis is None or count == 1 else motion.step
        if motion.start is None or motion.others or axis_step < 1 or motion.start < 0 or count == 0:
            return None
        if motion.start + (count - 1) * axis_step >= extent:  # type: ignore[operator]
            return None
        start.append(motion.start)
        size.append(count)
        step.append(axis_step)
        axes.append(None if count == 1 else motion.axis)
    varying = [axis for axis in axes if axis is not None]
    if varying != [axis for axis, count in enumerate(points) if count != 1]:
        return None
    return Box(tuple(start), tuple(size), tuple(step), tuple(axes))  # type: ignore[arg-type]
