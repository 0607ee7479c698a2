"""NumPy-style methods of tensors.

A mixin of `Tensor`. Names and arguments follow NumPy; each method calls the corresponding function of the namespace.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

from livegrad.diagnostics import UsageError, caller_origin

if TYPE_CHECKING:
    from livegrad.tensors.handle import Tensor
    from livegrad.tensors.updates import At


@cache
def namespace() -> Any:
    """Imports the tensor namespace on first use, because it depends on `Tensor`."""
    return importlib.import_module("livegrad.tensors.namespace")


class Methods:
    """Functions of the namespace as methods."""

    __slots__ = ()
    if TYPE_CHECKING:

        @property
        def ndim(self) -> int: ...

    @property
    def T(self) -> Tensor:
        """The transposed matrix.

        >>> import livegrad as lg
        >>> lg.ones((2, 3)).T.shape
        (3, 2)
        """
        return namespace().transpose_matrix(self)

    @property
    def mT(self) -> Tensor:
        """Each matrix transposed: the last two dimensions swapped.

        >>> import livegrad as lg
        >>> lg.ones((5, 2, 3)).mT.shape
        (5, 3, 2)
        """
        return namespace().matrix_transpose(self)

    @property
    def real(self) -> Tensor:
        """The real part.

        >>> import livegrad as lg
        >>> lg.asarray([1 + 2j]).real
        Tensor([1.], dtype=float32)
        """
        return namespace().real(self)

    @property
    def imag(self) -> Tensor:
        """The imaginary part.

        >>> import livegrad as lg
        >>> lg.asarray([1 + 2j]).imag
        Tensor([2.], dtype=float32)
        """
        return namespace().imag(self)

    @property
    def at(self) -> At:
        """Updates that return a new tensor: `x.at[key].set(value)`, `.add`, `.mul`, `.max`, `.min`, and `.get()`.

        The key may be anything that indexing accepts. If it selects an element several times, `set` keeps the last
        value and the other updates combine all values. The tensor itself does not change.

        >>> import livegrad as lg
        >>> x = lg.zeros(4)
        >>> x.at[lg.asarray([1, 1, 3])].add(1.0), x
        (Tensor([0., 2., 0., 1.], dtype=float32), Tensor([0., 0., 0., 0.], dtype=float32))
        """
        return namespace().At(self)

    def reshape(self, *shape: Any) -> Tensor:
        """The elements in another shape: `x.reshape(2, -1)` or `x.reshape((2, -1))`.

        >>> import livegrad as lg
        >>> lg.arange(6).reshape(2, -1).shape
        (2, 3)
        """
        return namespace().reshape(self, shape[0] if len(shape) == 1 else shape)

    def flatten(self) -> Tensor:
        """All elements in one dimension.

        >>> import livegrad as lg
        >>> lg.ones((2, 3)).flatten().shape
        (6,)
        """
        return namespace().reshape(self, (-1,))

    def ravel(self) -> Tensor:
        """All elements in one dimension.

        >>> import livegrad as lg
        >>> lg.ones((2, 3)).ravel().shape
        (6,)
        """
        return namespace().reshape(self, (-1,))

    def astype(self, dtype: Any, /, *, copy: bool = True, device: str | None = None) -> Tensor:
        """The tensor in another element type: see `lg.astype`.

        >>> import livegrad as lg
        >>> lg.ones(2).astype(lg.int8)
        Tensor([1, 1], dtype=int8)
        """
        return namespace().astype(self, dtype, copy=copy, device=device)

    def transpose(self, *axes: Any) -> Tensor:
        """The dimensions in another order, or reversed if no order is given.

        >>> import livegrad as lg
        >>> lg.ones((2, 3, 4)).transpose(1, 0, 2).shape
        (3, 2, 4)
        """
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return namespace().permute_dims(self, order or tuple(range(self.ndim))[::-1])

    def squeeze(self, axis: Any = None) -> Tensor:
        """The tensor without dimensions of size one: see `lg.squeeze`.

        >>> import livegrad as lg
        >>> lg.ones((1, 3)).squeeze(0).shape
        (3,)
        """
        return namespace().squeeze(self, axis)

    def expand_dims(self, axis: Any = 0) -> Tensor:
        """The tensor with a new dimension of size one: see `lg.expand_dims`.

        >>> import livegrad as lg
        >>> lg.ones(3).expand_dims(0).shape
        (1, 3)
        """
        return namespace().expand_dims(self, axis)

    def broadcast_to(self, shape: Any) -> Tensor:
        """The tensor broadcast to a shape: see `lg.broadcast_to`.

        >>> import livegrad as lg
        >>> lg.ones(3).broadcast_to((2, 3)).shape
        (2, 3)
        """
        return namespace().broadcast_to(self, shape)

    def repeat(self, repeats: Any, axis: int | None = None) -> Tensor:
        """Each element repeated: see `lg.repeat`.

        >>> import livegrad as lg
        >>> lg.arange(2).repeat(2)
        Tensor([0, 0, 1, 1], dtype=int64)
        """
        return namespace().repeat(self, repeats, axis=axis)

    def take(self, indices: Any, axis: int | None = None) -> Tensor:
        """The elements at these indices along an axis: see `lg.take`.

        >>> import livegrad as lg
        >>> lg.arange(5).take([4, 0])
        Tensor([4, 0], dtype=int64)
        """
        return namespace().take(self, indices, axis=axis)

    def clip(self, min: Any = None, max: Any = None) -> Tensor:
        """The elements limited to a range: see `lg.clip`.

        >>> import livegrad as lg
        >>> lg.arange(4).clip(1, 2)
        Tensor([1, 1, 2, 2], dtype=int64)
        """
        return namespace().clip(self, min, max)

    def round(self) -> Tensor:
        """The elements rounded to the nearest integers: see `lg.round`.

        >>> import livegrad as lg
        >>> lg.asarray([0.4]).round()
        Tensor([0.], dtype=float32)
        """
        return namespace().round(self)

    def conj(self) -> Tensor:
        """The complex conjugate.

        >>> import livegrad as lg
        >>> lg.asarray([1j]).conj()
        Tensor([0.-1.j], dtype=complex64)
        """
        return namespace().conj(self)

    def dot(self, other: Any, /) -> Tensor:
        """NumPy's `dot`: sums products over the last axis of `self` and the second-to-last axis of `other`.

        >>> import livegrad as lg
        >>> float(lg.ones(3).dot(lg.ones(3)))
        3.0
        """
        return importlib.import_module("livegrad.tensors.products").dot(self, other)

    def sum(self, axis: Any = None, dtype: Any = None, out: None = None, *, keepdims: bool = False) -> Tensor:
        """The sum along axes.

        >>> import livegrad as lg
        >>> lg.arange(4).sum()
        Tensor(6, dtype=int64)
        """
        _reject_out(out)
        return namespace().sum(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def prod(self, axis: Any = None, dtype: Any = None, out: None = None, *, keepdims: bool = False) -> Tensor:
        """The product along axes.

        >>> import livegrad as lg
        >>> lg.asarray([2, 3]).prod()
        Tensor(6, dtype=int64)
        """
        _reject_out(out)
        return namespace().prod(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def mean(self, axis: Any = None, dtype: Any = None, out: None = None, *, keepdims: bool = False) -> Tensor:
        """The mean along axes.

        >>> import livegrad as lg
        >>> lg.asarray([1.0, 3.0]).mean()
        Tensor(2., dtype=float32)
        """
        _reject_out(out)
        return namespace().mean(_cast(self, dtype), axis=axis, keepdims=keepdims)

    def var(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: float = 0.0,
        *,
        correction: float | None = None,
        keepdims: bool = False,
    ) -> Tensor:
        """The variance along axes; NumPy's `ddof` is the `correction` of the Array API.

        >>> import livegrad as lg
        >>> lg.asarray([1.0, 3.0]).var()
        Tensor(1., dtype=float32)
        """
        _reject_out(out)
        resolved_correction = ddof if correction is None else correction
        return namespace().var(_cast(self, dtype), axis=axis, correction=resolved_correction, keepdims=keepdims)

    def std(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: float = 0.0,
        *,
        correction: float | None = None,
        keepdims: bool = False,
    ) -> Tensor:
        """The standard deviation along axes; NumPy's `ddof` is the `correction` of the Array API.

        >>> import livegrad as lg
        >>> lg.asarray([1.0, 3.0]).std()
        Tensor(1., dtype=float32)
        """
        _reject_out(out)
        resolved_correction = ddof if correction is None else correction
        return namespace().std(_cast(self, dtype), axis=axis, correction=resolved_correction, keepdims=keepdims)

    def max(self, axis: Any = None, out: None = None, *, keepdims: bool = False) -> Tensor:
        """The largest element along axes.

        >>> import livegrad as lg
        >>> lg.arange(4).max()
        Tensor(3, dtype=int64)
        """
        _reject_out(out)
        return namespace().max(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, out: None = None, *, keepdims: bool = False) -> Tensor:
        """The smallest element along axes.

        >>> import livegrad as lg
        >>> lg.arange(4).min()
        Tensor(0, dtype=int64)
        """
        _reject_out(out)
        return namespace().min(self, axis=axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
        """The index of the largest element.

        >>> import livegrad as lg
        >>> lg.arange(4).argmax()
        Tensor(3, dtype=int64)
        """
        return namespace().argmax(self, axis=axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
        """The index of the smallest element.

        >>> import livegrad as lg
        >>> lg.arange(4).argmin()
        Tensor(0, dtype=int64)
        """
        return namespace().argmin(self, axis=axis, keepdims=keepdims)

    def all(self, axis: Any = None, out: None = None, *, keepdims: bool = False) -> Tensor:
        """Whether all elements are true.

        >>> import livegrad as lg
        >>> lg.ones(2).all()
        Tensor(True, dtype=bool)
        """
        _reject_out(out)
        return namespace().all(self, axis=axis, keepdims=keepdims)

    def any(self, axis: Any = None, out: None = None, *, keepdims: bool = False) -> Tensor:
        """Whether any element is true.

        >>> import livegrad as lg
        >>> lg.zeros(2).any()
        Tensor(False, dtype=bool)
        """
        _reject_out(out)
        return namespace().any(self, axis=axis, keepdims=keepdims)

    def cumsum(self, axis: int | None = None) -> Tensor:
        """The cumulative sum along an axis.

        >>> import livegrad as lg
        >>> lg.arange(4).cumsum()
        Tensor([0, 1, 3, 6], dtype=int64)
        """
        return namespace().cumulative_sum(self, axis=axis)

    def cumprod(self, axis: int | None = None) -> Tensor:
        """The cumulative product along an axis.

        >>> import livegrad as lg
        >>> lg.asarray([2, 3]).cumprod()
        Tensor([2, 6], dtype=int64)
        """
        return namespace().cumulative_prod(self, axis=axis)

    def sort(self, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
        """The sorted elements in a new tensor; `self` does not change.

        >>> import livegrad as lg
        >>> lg.asarray([3, 1, 2]).sort()
        Tensor([1, 2, 3], dtype=int64)
        """
        return namespace().sort(self, axis=axis, descending=descending, stable=stable)

    def argsort(self, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
        """The indices that sort the elements.

        >>> import livegrad as lg
        >>> lg.asarray([3, 1, 2]).argsort()
        Tensor([1, 2, 0], dtype=int64)
        """
        return namespace().argsort(self, axis=axis, descending=descending, stable=stable)

    def nonzero(self) -> tuple[Tensor, ...]:
        """The indices of the nonzero elements; executes, because their number is a shape.

        >>> import livegrad as lg
        >>> lg.asarray([0, 5]).nonzero()
        (Tensor([1], dtype=int64),)
        """
        return namespace().nonzero(self)


def _reject_out(out: object) -> None:
    """Requires `out` to be None, as NumPy's functions pass it: results are new tensors."""
    if out is not None:
        raise UsageError("results cannot be written into an array", where=caller_origin(), help="omit `out`")


def _cast(tensor: Any, dtype: Any) -> Any:
    return tensor if dtype is None else tensor.astype(dtype)
