"""Optional types, `T | None`: values that may be absent. The differential of an absent value is absent.

`if x is not None:` narrows `x` to a plain value in the branch, through the rule `narrowing`.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from livegrad.frontend.differentiable.differentials import (
    TaggedType,
    lower_differential,
    raise_differential,
    scale_floats,
)
from livegrad.frontend.differentiable.protocol import combine, zero_of
from livegrad.frontend.function.compile_values import Value, convert, convertible, node_of, runtime
from livegrad.frontend.function.function_errors import Span
from livegrad.frontend.function.function_types import (
    NONE,
    FrontType,
    describe,
    differential_type,
    from_result,
    ir_of,
    to_argument,
)
from livegrad.frontend.function.type_reading import plain_type
from livegrad.frontend.function.type_rules import TypeRules
from livegrad.ir import types as ir
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Key, Node
from livegrad.ops.aggregate import make, member
from livegrad.ops.comparison import bit_and, bit_or
from livegrad.ops.control import cond
from livegrad.ops.rules import add_values, zero


@dataclass(frozen=True)
class OptionalType(TaggedType):
    """A value or None.

    >>> OptionalType(ir.f64)
    float | None
    """

    element: FrontType

    def __repr__(self) -> str:
        return f"{describe(self.element)} | None"

    @property
    def ir(self) -> ir.Type:
        return ir.Struct("Optional", (("present", ir.bool_), ("value", ir_of(self.element))))

    @property
    def differential(self) -> FrontType | None:
        inner = differential_type(self.element)
        return None if inner is None else OptionalType(inner)

    def to_argument(self, value: Any) -> Any:
        if value is None:
            return False, _zero_argument(ir_of(self.element))
        return True, to_argument(self.element, value)

    def from_result(self, value: Any) -> Any:
        present, inner = value
        return from_result(self.element, inner) if present else None

    def make(self, present: Node, value: Node) -> Node:
        return make(present, value, type=self.ir)

    # --- differentials ---

    def _differential(self) -> OptionalType:
        differential = self.differential
        assert isinstance(differential, OptionalType)
        return differential

    def lower_differential(self, node: Node, primal: Node, cotangent: bool) -> Node:
        inner = lower_differential(self.element, member(node, 1), member(primal, 1), cotangent)
        return make(inner, type=ir.differential_of(self.ir))

    def raise_differential(self, node: Node, primal: Node, cotangent: bool) -> Node:
        inner = raise_differential(self.element, member(node, 0), member(primal, 1), cotangent)
        return self._differential().make(member(primal, 0), inner)

    def zero_differential(self) -> Node:
        differential = self._differential()
        return differential.make(constant(False, ir.bool_), zero(ir_of(differential.element)))

    def add_differentials(self, first: Node, second: Node) -> Node:
        present = bit_or(member(first, 0), member(second, 0))
        return self._differential().make(present, add_values(member(first, 1), member(second, 1)))

    def payload_types(self) -> list[FrontType]:
        return [self.element]

    def add_payloads(self, add: Callable[[FrontType, Node, Node], Node], first: Node, second: Node) -> Node:
        """Adds two present differentials with the element type's `dadd`; an absent one is neutral."""
        differential = self._differential()
        inputs = [input_node(Key("differential"), differential.ir) for _ in range(2)]
        present = constant(True, ir.bool_)
        custom_sum = differential.make(present, add(self.element, *(member(node, 1) for node in inputs)))
        functions = [make_function("dadd", inputs, [sum]) for sum in (custom_sum, self.add_differentials(*inputs))]
        both_present = bit_and(member(first, 0), member(second, 0))
        return cond(both_present, first, second, then=functions[0], otherwise=functions[1])

    def scale_differential(self, factor: Callable[[ir.Scalar], Node], node: Node) -> Node:
        return self._differential().make(member(node, 0), scale_floats(factor, member(node, 1)))

    def zero_value(self) -> Any:
        return None

    def combine_values(self, values: list[Any], leaf: Callable[..., Any], name: str, first: tuple[Any, ...]) -> Any:
        if all(value is None for value in values):
            return None
        present = [zero_of(self.element) if value is None else value for value in values]
        return combine(self.element, present, leaf, name, first)


def _zero_argument(type: ir.Type) -> Any:
    if isinstance(type, ir.Scalar):
        return type.dtype.type(0)
    parts = [_zero_argument(part) for part in ir.components(type)]
    if isinstance(type, ir.Matrix):
        return [parts[row * type.columns : (row + 1) * type.columns] for row in range(type.rows)]
    return tuple(parts) if not isinstance(type, ir.Vector) else parts


def _annotation(annotation: Any) -> FrontType | None:
    """`T | None` and `Optional[T]`."""
    if isinstance(annotation, ir.TypeUnion):
        parts = annotation.parts
    elif typing.get_origin(annotation) in (types.UnionType, typing.Union):
        parts = typing.get_args(annotation)
    else:
        return None
    inner = [part for part in parts if part is not None and part is not type(None)]
    if len(inner) != 1 or len(parts) != 2:
        return None
    return OptionalType(plain_type(inner[0]))


def _convert(value: Value, target: FrontType, span: Span | None) -> Any:
    if not isinstance(target, OptionalType) or isinstance(value.type, OptionalType):
        return None
    if value.type is NONE:
        return Value(target, target.make(constant(False, ir.bool_), zero(ir_of(target.element))))
    if not convertible(value, target.element):
        return None
    if span is None:
        return Value(target)
    inner = convert(value, target.element, span)
    return Value(target, target.make(constant(True, ir.bool_), node_of(inner, span)), flow=value.flow)


def _presence(value: Value) -> tuple[Value, Value] | None:
    """Whether an optional is present, and its value; None for other types."""
    inner = _unwrap_present(value)
    if inner is None or value.node is None:
        return None
    return runtime(ir.bool_, member(value.node, 0)), inner


def _join(first: FrontType, second: FrontType) -> FrontType | None:
    for absent, present in ((first, second), (second, first)):
        if absent is NONE and present is not NONE:
            return present if isinstance(present, OptionalType) else OptionalType(present)
    return None


def _unwrap_present(value: Value) -> Value | None:
    """The value of an optional, given that it is present; None for other types."""
    if not isinstance(value.type, OptionalType) or value.node is None:
        return None
    return runtime(value.type.element, member(value.node, 1), value.flow)


RULES = TypeRules(
    annotation=_annotation, conversion=_convert, join=_join, narrowing=_unwrap_present, presence=_presence
)
