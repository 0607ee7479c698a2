"""Conversion ops: casts between scalar types, and complex numbers from and to their parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Scalar, Tensor, Type, c64, c128, scalar_of, with_scalar
from livegrad.ops.failing import cast_can_fail
from livegrad.ops.rules import FLOATS, INEXACT, INTEGERS, or_zero, same, zero


def _cast_type(source: Type, *, type: Type) -> Type:
    scalar, target = scalar_of(source), type
    if scalar is None or not isinstance(target, Scalar):
        raise TypeRuleError("a cast converts scalars to scalars", found=f"{source} to {type}")
    if scalar.kind == "complex" and target.kind != "complex":
        raise TypeRuleError(f"a {scalar} cannot be cast to {target}", help="take real(x) or imag(x) first")
    return with_scalar(source, target)


def _evaluate_cast(value: Any, *, type: Scalar) -> Any:
    array = np.asarray(value)
    if type.kind in INTEGERS and array.dtype.kind == "f":
        _require_integral_range(array, type)
    with np.errstate(over="ignore"):
        return array.astype(type.dtype)


def _require_integral_range(array: Any, type: Scalar) -> None:
    low = -(2.0 ** (type.bits - 1)) if type.kind == "signed" else 0.0
    high = 2.0 ** (type.bits - 1 if type.kind == "signed" else type.bits)
    whole = np.trunc(array.astype(np.float64))
    if not np.all((whole >= low) & (whole < high)):
        raise OverflowError(f"a value does not fit {type}")


def _cast_jvp(y: Node, dx: Node | None) -> Node | None:
    scalar = scalar_of(y.type)
    if dx is None or scalar is None or scalar.kind not in INEXACT:
        return None
    return cast(dx, type=scalar)


def _cast_transpose(y: Node, ct: Node, linear: bool) -> tuple[Node | None, ...]:
    (x,) = y.operands
    source, target = scalar_of(x.type), scalar_of(y.type)
    assert source is not None
    assert target is not None
    if target.kind == "complex" and source.kind != "complex":
        ct = real(ct)
    return (ct if ct.type is x.type else cast(ct, type=source),)


# NaN, infinity and values out of range cannot become integers: the cast reports them.
cast = Op(
    "cast",
    type_of=_cast_type,
    evaluate=_evaluate_cast,
    jvp=_cast_jvp,
    transpose=_cast_transpose,
    linear_in=(0,),
    llvm=dict.fromkeys(("bool", "signed", "unsigned", "float"), "cast"),
    elementwise=True,
    checked=True,
    can_fail=cast_can_fail,
)


def _complex_type(re: Type, im: Type) -> Type:
    type = same(2, FLOATS)(re, im)
    scalar = scalar_of(type)
    assert scalar is not None
    if scalar.bits == 16:
        raise TypeRuleError("no complex type has 16-bit parts", help="cast to f32 first")
    return with_scalar(type, _COMPLEX[scalar.name])


def _part_type(type: Type) -> Type:
    scalar = scalar_of(same(1, ("complex",))(type))
    assert scalar is not None
    return with_scalar(type, scalar.real)


_COMPLEX = {"f32": c64, "f64": c128}

make_complex = Op(
    "make_complex",
    type_of=_complex_type,
    evaluate=lambda re, im: join_parts(re, im),
    jvp=lambda y, dre, dim: (
        None
        if dre is None and dim is None
        else make_complex(or_zero(dre, y.operands[0].type), or_zero(dim, y.operands[0].type))
    ),
    transpose=lambda y, ct, a, b: (real(ct) if a else None, -imag(ct) if b else None),
    linear_in=(0, 1),
    elementwise=True,
)


def join_parts(re: Any, im: Any) -> Any:
    """A complex array from its parts. `re + 1j*im` would lose infinities and signed zeros."""
    re, im = np.asarray(re), np.asarray(im)
    result = np.empty(re.shape, np.complex64 if re.dtype == np.float32 else np.complex128)
    result.real, result.imag = re, im
    return result


# The pairing of cotangents is Re(ct * x), so the transpose of imag is multiplication by -i.
real = Op(
    "real",
    type_of=_part_type,
    evaluate=np.real,
    jvp=lambda y, dx: None if dx is None else real(dx),
    transpose=lambda y, ct, x: (make_complex(ct, zero(ct.type)),),
    linear_in=(0,),
    elementwise=True,
)
imag = Op(
    "imag",
    type_of=_part_type,
    evaluate=np.imag,
    jvp=lambda y, dx: None if dx is None else imag(dx),
    transpose=lambda y, ct, x: (make_complex(zero(ct.type), -ct),),
    linear_in=(0,),
    elementwise=True,
)
conj = Op(
    "conj",
    type_of=same(1, ("complex",)),
    evaluate=np.conj,
    jvp=lambda y, dx: None if dx is None else conj(dx),
    transpose=lambda y, ct, x: (conj(ct),),
    linear_in=(0,),
    elementwise=True,
)


def _parts_type(type: Type) -> Type:
    scalar = scalar_of(same(1, ("complex",))(type))
    if scalar is None or not isinstance(type, Tensor):
        raise TypeRuleError("only a complex tensor can be viewed as its parts", found=str(type))
    return Tensor(scalar.real, (*type.shape, 2))


def _from_parts_type(type: Type) -> Type:
    if not isinstance(type, Tensor) or type.element.name not in _COMPLEX or type.shape[-1:] != (2,):
        raise TypeRuleError("parts are a tensor of f32 or f64 whose last dimension is 2", found=str(type))
    return Tensor(_COMPLEX[type.element.name], type.shape[:-1])


# The memory layout of a complex tensor, real and imaginary parts along a last dimension of 2, and its inverse.
complex_parts = Op(
    "complex_parts",
    type_of=_parts_type,
    evaluate=lambda x: np.stack([np.real(x), np.imag(x)], axis=-1),
    jvp=lambda y, dx: None if dx is None else complex_parts(dx),
    transpose=lambda y, ct, x: (conj(from_parts(ct)),),
    linear_in=(0,),
)
from_parts = Op(
    "from_parts",
    type_of=_from_parts_type,
    evaluate=lambda x: join_parts(x[..., 0], x[..., 1]),
    jvp=lambda y, dx: None if dx is None else from_parts(dx),
    transpose=lambda y, ct, x: (complex_parts(conj(ct)),),
    linear_in=(0,),
)
