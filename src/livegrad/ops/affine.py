"""Analyses integers as affine forms: a constant plus a linear combination of unknowns.

The caller chooses the unknowns: nodes, axes of a tensor, loop indices with bounds (`passes/affine_bounds.py`).
`linear_form` has the rules for arithmetic; each analysis adds rules for other ops.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from livegrad.ir.node import Node
from livegrad.ir.types import i64, scalar_of, shape_of
from livegrad.ir.walk import toposort
from livegrad.ops.failing import constant_integer

T = TypeVar("T", bound=Hashable)

_INTEGERS = ("signed", "unsigned")
_MAX_UNKNOWNS = 32  # a longer form becomes an unknown itself


@dataclass(frozen=True)
class AffineForm(Generic[T]):
    """`constant` plus the sum of `coefficients[u] * u` over unknowns u; no coefficient is zero."""

    constant: int = 0
    coefficients: Mapping[T, int] = field(default_factory=dict)

    @classmethod
    def of(cls, unknown: T) -> AffineForm[T]:
        """The form that is a single unknown."""
        return cls(0, {unknown: 1})

    @property
    def is_constant(self) -> bool:
        return not self.coefficients

    def plus(self, other: AffineForm[T], times: int = 1) -> AffineForm[T]:
        """Returns `self + times * other`."""
        coefficients = dict(self.coefficients)
        for unknown, coefficient in other.coefficients.items():
            total = coefficients.get(unknown, 0) + times * coefficient
            if total:
                coefficients[unknown] = total
            else:
                coefficients.pop(unknown, None)
        return AffineForm(self.constant + times * other.constant, coefficients)

    def times(self, factor: int) -> AffineForm[T]:
        return AffineForm[T]().plus(self, factor)


def linear_form(node: Node, operands: Sequence[AffineForm[T] | None]) -> AffineForm[T] | None:
    """The form of a constant, sum, difference or multiple, from the forms of its operands; None for other nodes."""
    integer = constant_integer(node)
    if integer is not None:
        return AffineForm(integer)
    match node.op.name, operands:
        case "neg", [AffineForm() as form]:
            return form.times(-1)
        case "add", [AffineForm() as first, AffineForm() as second]:
            return first.plus(second)
        case "sub", [AffineForm() as first, AffineForm() as second]:
            return first.plus(second, -1)
        case "mul", [AffineForm() as first, AffineForm() as second]:
            if first.is_constant:
                return second.times(first.constant)
            return first.times(second.constant) if second.is_constant else None
    return None


def same_integer(node: Node) -> Node | None:
    """The operand of a node that only converts or checks a single integer; None for other nodes."""
    if node.op.name in ("broadcast", "lookup", "reshape", "check"):
        is_same = shape_of(node.type) == () and len(node.operands) == 1 + (node.op.name == "check")
    else:
        is_same = node.op.name == "cast" and all(_is_integer(value) for value in (node, node.operands[0]))
    return node.operands[0] if is_same else None


def _is_integer(value: Node) -> bool:
    scalar = scalar_of(value.type)
    return scalar is not None and scalar.kind in _INTEGERS


def expand_form(
    value: Node,
    follows: Callable[[Node], bool],
    form_of: Callable[[Node, list[AffineForm[T]]], AffineForm[T] | None],
    unknown: Callable[[Node], T],
) -> AffineForm[T]:
    """Computes the form of a value bottom-up. Nodes that `follows` rejects, or that have no form, become unknowns."""
    forms: dict[Node, AffineForm[T]] = {}
    for node in toposort([value], stop=lambda node: not follows(node)):
        form = form_of(node, [forms[operand] for operand in node.operands]) if follows(node) else None
        is_short = form is not None and len(form.coefficients) <= _MAX_UNKNOWNS
        forms[node] = form if is_short else AffineForm.of(unknown(node))  # type: ignore[assignment]
    return forms[value]


def affine_form(value: Node) -> AffineForm[Node]:
    """The form of an i64, whose unknowns are the nodes that are not sums or constant multiples. Exact modulo 2**64.

    >>> from livegrad.ir.function import trace
    >>> f = trace(lambda i, j: 2 * (i - j) + 5, i64, i64)
    >>> form = affine_form(f.results[0])
    >>> form.constant, list(form.coefficients.values())
    (5, [2, -2])
    """
    return expand_form(value, lambda node: node.type is i64 and _is_arithmetic(node), _derive_form, lambda node: node)


def _is_arithmetic(node: Node) -> bool:
    return node.op.name in ("constant", "add", "sub", "neg", "mul") or same_integer(node) is not None


def _derive_form(node: Node, operands: list[AffineForm[Node]]) -> AffineForm[Node] | None:
    return linear_form(node, operands) if same_integer(node) is None else operands[0]


def constant_difference(first: Node, second: Node) -> int | None:
    """`first - second`, if the difference is constant, else None.

    >>> from livegrad.ir.leaves import input_node
    >>> from livegrad.ir.node import Key
    >>> i = input_node(Key("i"), i64)
    >>> constant_difference(i * 3 + 5, i * 3), constant_difference(i * 2, i)
    (5, None)
    """
    forms = [expand_form(v, _is_integer_arithmetic, _derive_form, lambda node: node) for v in (first, second)]
    difference = forms[0].plus(forms[1], -1)
    return difference.constant if difference.is_constant else None


def _is_integer_arithmetic(node: Node) -> bool:
    return _is_integer(node) and (_is_arithmetic(node) or constant_integer(node) is not None)
