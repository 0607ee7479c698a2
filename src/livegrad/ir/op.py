"""The op record: everything livegrad knows about an operation, in one place.

`ops/` makes the records; every pass and backend reads its rule from here.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, ClassVar

from livegrad.diagnostics import LivegradError, Place, TypeRuleError, UsageError, caller_origin
from livegrad.ir.node import Attribute, Node, make_node
from livegrad.ir.types import Scalar, Tensor, Type, scalar_of

ALL_OPERANDS = range(1 << 62)
TypeRule = Callable[..., Type]
JvpRule = Callable[..., "Node | None"]
TransposeRule = Callable[..., tuple["Node | None", ...]]


@dataclass(frozen=True, eq=False)
class Op:
    """One operation with all its rules.

    type_of(*operand_types, **attributes) gives the result type or raises `TypeRuleError`.
    evaluate(*values, **attributes) is the reference meaning, on NumPy values.
    jvp(node, *tangents) is the tangent of the result; a tangent of None is identically zero.
    transpose(node, cotangent, *linear) gives a cotangent for each operand whose flag in `linear` is set.
    expand(node) rewrites the op into simpler ones, for whatever rule is missing here.
    code is C-family text with {0}, {1} for operands; llvm is a rule for `backends.cpu`: text by kind of scalar.
    cost is roughly how many additions the op is worth: fusion and recomputation weigh by it.
    checked ops may fail at run time and are kept even when nobody reads their value.
    """

    name: str
    type_of: TypeRule
    evaluate: Callable[..., Any] | None = None
    jvp: JvpRule | None = None
    transpose: TransposeRule | None = None
    linear_in: Container[int] = ()  # operands in which the op is linear, the others held fixed
    expand: Callable[[Node], Node] | None = None
    code: str | None = None
    llvm: dict[str, str] | None = None
    cost: float = 1.0
    elementwise: bool = False
    checked: bool = False
    differentiable: bool = True  # False: the derivative is zero wherever it exists (comparisons, rounding)

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
        found = Op.table.get(name)
        if found is None:
            raise UsageError(f"no op named `{name}`")
        return found

    def __call__(self, *operands: Any, **attributes: Attribute) -> Node:
        """A node of this op. Python numbers among the operands become constants of the other operands' type."""
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
        self, operands: tuple[Node, ...], attributes: tuple[tuple[str, Attribute], ...], origins: tuple[Place, ...]
    ) -> Type:
        try:
            types = [operand.type for operand in operands]
            return self.type_of(*types, **dict(attributes)) if attributes else self.type_of(*types)
        except LivegradError as error:
            if error.where is not None:
                raise
            found = error.found or ", ".join(str(operand.type) for operand in operands)
            raise TypeRuleError(
                f"`{self.name}` refused: {error.what}",
                where=origins[0] if origins else None,
                expected=error.expected,
                found=found,
                help=error.help,
            ) from None
        except TypeError as error:
            raise TypeRuleError(
                f"`{self.name}` cannot take {len(operands)} operands with attributes {dict(attributes)}",
                where=origins[0] if origins else None,
                help=str(error),
            ) from None


def literal(value: Any, like: Type | None, op: Op) -> Node:
    """A Python number as a constant of the scalar type of `like`, spread over its shape."""
    scalar = None if like is None else scalar_of(like)
    if like is None or scalar is None or not isinstance(value, bool | int | float | complex):
        raise UsageError(
            f"`{op.name}` takes nodes and numbers",
            where=caller_origin(),
            found=repr(value),
            help="make a constant with constant(value, type)",
        )
    _check_exact(value, scalar, op)
    node = Op.named("constant")(value=_canonical(value, scalar), type=scalar)
    if like is scalar:
        return node
    if isinstance(like, Tensor):
        return Op.named("broadcast")(node, shape=like.shape, axes=())
    return Op.named("splat")(node, type=like)


def _check_exact(value: Any, scalar: Scalar, op: Op) -> None:
    order = ("bool", "unsigned", "signed", "float", "complex")
    needed = {bool: "bool", int: "unsigned" if value is True or _is_natural(value) else "signed"}.get(
        type(value), "float" if isinstance(value, float) else "complex"
    )
    if order.index(needed) > order.index(scalar.kind) or (scalar.kind == "bool" and needed != "bool"):
        raise TypeRuleError(
            f"`{op.name}` cannot make {value!r} a {scalar}",
            where=caller_origin(),
            help=f"cast the operand, or write a literal that a {scalar} can hold",
        )


def _is_natural(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


def _canonical(value: Any, scalar: Scalar) -> Any:
    """The value as the scalar type holds it: the attribute's Python type follows the scalar's kind."""
    kind = {"bool": bool, "signed": int, "unsigned": int, "float": float, "complex": complex}[scalar.kind]
    number = kind(value)
    if scalar.kind in ("signed", "unsigned"):
        low, high = (-(1 << (scalar.bits - 1)), (1 << (scalar.bits - 1)) - 1)
        if scalar.kind == "unsigned":
            low, high = 0, (1 << scalar.bits) - 1
        if not low <= number <= high:
            raise TypeRuleError(f"{number} does not fit {scalar}", where=caller_origin(), expected=f"{low} to {high}")
        return number
    return kind(scalar.dtype.type(number)) if scalar.bits != 1 else number
