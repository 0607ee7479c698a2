"""The op record: type rule, derivatives, reference evaluation and code of one operation.

`ops/` defines the records; passes and backends read the rules.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from livegrad.diagnostics import LivegradError, SourceLocation, TypeRuleError, UsageError, caller_origin, shown
from livegrad.ir.bfloat16 import narrow, widen
from livegrad.ir.node import Attribute, Node, make_node
from livegrad.ir.symbolic_size import SymbolicSize
from livegrad.ir.types import Scalar, Tensor, Type, bf16, f32, f64, scalar_of

ALL_OPERANDS = range(1 << 62)
_type_of = attrgetter("type")
TypeRule = Callable[..., Type]
JvpRule = Callable[..., "Node | None"]
TransposeRule = Callable[..., tuple["Node | None", ...]]


@dataclass(frozen=True, eq=False)
class Op:
    """An operation with all its rules.

    type_of(*operand_types, **attributes) returns the result type or raises `TypeRuleError`.
    evaluate(*values, **attributes) is the reference implementation, on NumPy values.
    jvp(node, *tangents) returns the tangent of the result; None is an identically zero tangent.
    transpose(node, cotangent, *linear) returns a cotangent for each operand whose flag in `linear` is set.
    expand(node) rewrites the op into simpler ones, which supply the rules that are missing here.
    code is a C expression with {0}, {1} for operands; llvm maps kinds of scalars to LLVM code for the CPU.
    cost estimates the run time in additions, for decisions about fusion and recomputation.
    checked ops may fail at run time and are not dead code when their value is unused; can_fail(operands, attributes)
    says whether the op can fail for these operands.
    """

    name: str
    type_of: TypeRule
    evaluate: Callable[..., Any] | None = None
    jvp: JvpRule | None = None
    transpose: TransposeRule | None = None
    linear_in: Container[int] = ()  # operands in which the op is linear while the others are constant
    expand: Callable[[Node], Node] | None = None
    code: str | None = None
    llvm: dict[str, str] | None = None
    cost: float = 1.0
    elementwise: bool = False
    checked: bool = False
    can_fail: Callable[[tuple[Node, ...], tuple[tuple[str, Attribute], ...]], bool] = lambda operands, attributes: True
    differentiable: bool = True  # False: the derivative is zero where it exists (comparisons, rounding)

    table: ClassVar[dict[str, Op]] = {}

    def __post_init__(self) -> None:
        if self.name in Op.table:
            raise UsageError(f"op `{self.name}` is defined twice")
        Op.table[self.name] = self

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Op.named, (self.name,)

    @staticmethod
    def named(name: str) -> Op:
        op = Op.table.get(name)
        if op is None:
            raise UsageError(f"no op named `{name}`")
        return op

    def __call__(self, *operands: Any, **attributes: Attribute) -> Node:
        """Creates a node of this op. Python numbers become constants with the scalar type of the first node operand."""
        for operand in operands:
            if not isinstance(operand, Node):
                operands = self._with_literals(operands)
                break
        if not attributes:
            return make_node(self, operands)
        return make_node(self, operands, tuple(sorted(attributes.items())))

    def _with_literals(self, operands: tuple[Any, ...]) -> tuple[Node, ...]:
        like = next((operand.type for operand in operands if isinstance(operand, Node)), None)
        return tuple(operand if isinstance(operand, Node) else literal(operand, like, self) for operand in operands)

    def derive_type(
        self,
        operands: tuple[Node, ...],
        attributes: tuple[tuple[str, Attribute], ...],
        origins: tuple[SourceLocation, ...],
    ) -> Type:
        try:
            if not attributes:
                return self.type_of(*map(_type_of, operands))
            return self.type_of(*map(_type_of, operands), **dict(attributes))
        except LivegradError as error:
            if error.where is not None:
                raise
            description = error.found or ", ".join(str(operand.type) for operand in operands)
            name = dict(attributes).get("kind", self.name)  # name the kind, `max`, rather than the op, `reduce`
            raise TypeRuleError(
                f"`{name}`: {error.what}",
                where=origins[0] if origins else None,
                expected=error.expected,
                found=description,
                help=error.help,
            ) from None
        except (TypeError, AttributeError) as error:
            raise TypeRuleError(
                f"`{self.name}` does not accept {len(operands)} operands with attributes {dict(attributes)}",
                where=origins[0] if origins else None,
                help=str(error),
            ) from None


def literal(value: Any, like: Type | None, op: Op) -> Node:
    """A Python number as a constant of the scalar type of `like`, broadcast to its shape."""
    scalar = None if like is None else scalar_of(like)
    if like is None or scalar is None or not isinstance(value, bool | int | float | complex):
        raise UsageError(
            f"`{op.name}` takes nodes and numbers",
            where=caller_origin(),
            found=repr(value),
            help="create a constant with constant(value, type)",
        )
    node = Op.named("constant")(value=exact_value(value, scalar, op.name), type=scalar)
    if like is scalar:
        return node
    if isinstance(like, Tensor):
        return Op.named("broadcast")(node, shape=like.shape, axes=())
    return Op.named("splat")(node, type=like)


_KINDS = ("bool", "unsigned", "signed", "float", "complex")
_PYTHON_TYPES = {"bool": bool, "signed": int, "unsigned": int, "float": float, "complex": complex}
_single = struct.Struct("<f")
# A fast path: most constants have these types.
_ROUND: dict[Scalar, Callable[[float], float]] = {f64: float, f32: lambda x: _single.unpack(_single.pack(x))[0]}


def exact_value(value: Any, scalar: Scalar, user: str = "constant") -> bool | int | float | complex:
    """Converts a number to the scalar type: rounds to its precision, but never wraps, truncates or overflows."""
    number: Any = value.item() if isinstance(value, np.generic) else value
    if type(value) is SymbolicSize and (scalar in (f32, f64) or scalar.kind in ("signed", "unsigned")):
        return number if scalar.kind == "float" else _integer_in_range(number, scalar)
    if number.__class__ is float and scalar in _ROUND:
        try:
            return _ROUND[scalar](number)
        except OverflowError:
            raise _conversion_error(value, scalar, user) from None
    if not isinstance(number, bool | int | float | complex) or _KINDS.index(_kind_of(number)) > _KINDS.index(
        scalar.kind
    ):
        raise _conversion_error(value, scalar, user)
    if scalar.kind == "bool" or isinstance(number, bool):
        if scalar.kind == "bool" and not isinstance(number, bool):
            raise _conversion_error(value, scalar, user)
        return _PYTHON_TYPES[scalar.kind](number)
    if scalar.kind in ("signed", "unsigned"):
        return _integer_in_range(int(number.real), scalar)
    try:
        number = number if isinstance(number, complex) else float(number)
    except OverflowError:  # an integer beyond all floats
        raise _conversion_error(value, scalar, user) from None
    with np.errstate(over="ignore"):
        rounded = (
            float(widen(narrow(number))) if scalar is bf16 else _PYTHON_TYPES[scalar.kind](scalar.dtype.type(number))
        )
    if np.isfinite(number) and not np.isfinite(rounded):
        raise _conversion_error(value, scalar, user)
    return rounded


def _kind_of(number: bool | int | float | complex) -> str:
    if isinstance(number, bool):
        return "bool"
    if isinstance(number, int):
        return "unsigned" if number >= 0 else "signed"
    return "float" if isinstance(number, float) else "complex"


def _integer_in_range(number: int, scalar: Scalar) -> int:
    low = -(1 << (scalar.bits - 1)) if scalar.kind == "signed" else 0
    high = (1 << (scalar.bits - 1 if scalar.kind == "signed" else scalar.bits)) - 1
    if not low <= number <= high:
        what = f"{shown(number)} does not fit {scalar}"
        raise TypeRuleError(what, where=caller_origin(), expected=f"{low} to {high}")
    return number


def _conversion_error(value: Any, scalar: Scalar, user: str) -> TypeRuleError:
    return TypeRuleError(
        f"`{user}` cannot convert {shown(value)} to {scalar}",
        where=caller_origin(),
        help=f"cast the operand, or write a literal that a {scalar} can hold",
    )
