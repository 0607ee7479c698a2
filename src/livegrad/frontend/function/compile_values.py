"""Values of the compiler: static (known at compile time), or IR nodes (known at run time).

Numeric literals are weakly typed: combined with a typed value they take its type; alone they have Python's types.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from livegrad.frontend.function.aliases import (
    Alias,
    Aliases,
    aliases_of_container,
    aliases_of_element,
    merge_aliases,
    retire_allocation_site,
)
from livegrad.frontend.function.derivative_flow import Flow
from livegrad.frontend.function.function_errors import FunctionError, Span
from livegrad.frontend.function.function_types import (
    MISSING,
    NONE,
    ArrayType,
    FrontType,
    RecordType,
    TupleType,
    describe,
    differential_type,
    ir_of,
    mutable_depth,
)
from livegrad.frontend.function.promotion import adopts_type, is_lossless, promote
from livegrad.frontend.function.type_rules import rules
from livegrad.ir import types as ir
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ops.aggregate import make, member, splat
from livegrad.ops.conversion import cast
from livegrad.ops.rules import zero


@dataclass(frozen=True, eq=False)
class Value:
    """A value: static, a tuple of values (`items`), or computed at run time (`node`)."""

    type: FrontType | None
    node: Node | None = None
    static: Any = MISSING
    weak: bool = False
    items: tuple[Value, ...] | None = None
    flow: Flow | None = None
    aliases: Aliases = ()  # the objects that it is, is contained in, or contains; empty for a new value

    @property
    def is_static(self) -> bool:
        return self.static is not MISSING

    @property
    def is_number(self) -> bool:
        return isinstance(self.static, bool | int | float | complex)


def static(value: Any) -> Value:
    """A compile-time value; Python numbers are weakly typed."""
    if isinstance(value, bool | int | float | complex):
        kinds = {bool: ir.bool_, int: ir.i64, float: ir.f64, complex: ir.c128}
        wrapper = next(kind for python, kind in kinds.items() if isinstance(value, python))
        return Value(wrapper, static=value, weak=True)
    if value is None:
        return Value(NONE, static=None)
    return Value(None, static=value)


def aliases_of(value: Value) -> Aliases:
    """The objects that a value is, is contained in, or contains."""
    if value.items is not None:
        return aliases_of_container(map(aliases_of, value.items))
    return value.aliases


def with_aliases(value: Value, aliases: Aliases) -> Value:
    """The value with these aliases, as far as its type has components that can be changed in place."""
    if value.items is not None:
        parts = aliases_of_element(aliases)
        return replace(value, items=tuple(with_aliases(item, parts) for item in value.items))
    depth = 0 if value.node is None else mutable_depth(value.type)
    return replace(value, aliases=tuple(alias for alias in aliases if alias.depth < depth))


def with_allocation(value: Value, site: Hashable) -> Value:
    """The value with an object identity: a new value becomes an object that is allocated at `site`."""
    if value.items is not None:
        items = tuple(with_allocation(item, (site, index)) for index, item in enumerate(value.items))
        return replace(value, items=items)
    if all(alias.depth for alias in value.aliases):
        return with_aliases(value, (*value.aliases, Alias(site, 0, 0)))
    return replace(value, aliases=merge_aliases(value.aliases))


def with_retired_site(value: Value, allocation_site: Hashable) -> Value:
    """The value after the site has allocated another object."""
    if value.items is not None:
        return replace(value, items=tuple(with_retired_site(item, allocation_site) for item in value.items))
    aliases = retire_allocation_site(value.aliases, allocation_site)
    return value if aliases == value.aliases else replace(value, aliases=aliases)


def tuple_value(items: Sequence[Value]) -> Value:
    """A tuple of separate values, so that static members stay static."""
    types = tuple(item.type for item in items)
    tuple_type = TupleType(tuple(type for type in types if type is not None)) if None not in types else None
    return Value(tuple_type, items=tuple(items))


def runtime(type: FrontType, node: Node, flow: Flow | None = None, weak: bool = False) -> Value:
    """A value that is computed at run time; tuples are split into their elements."""
    if isinstance(type, TupleType):
        items = tuple(runtime(inner, member(node, index), flow) for index, inner in enumerate(type.elements))
        return Value(type, items=items, flow=flow)
    if type is NONE:
        return Value(NONE, static=None)
    return Value(type, node, weak=weak, flow=flow if differential_type(type) is not None else None)


def flows_of(*values: Value) -> list[Flow]:
    """The derivative flows of these values, without duplicates."""
    flows: list[Flow] = []
    for value in values:
        if value.items is not None:
            flows += flows_of(*value.items)
        elif value.flow is not None:
            flows.append(value.flow)
    return list(dict.fromkeys(flows))


def node_of(value: Value, span: Span) -> Node:
    """The IR node of a value, in the value's own type; numbers become constants."""
    if value.node is not None:
        return value.node
    if value.items is not None:
        nodes = [node_of(item, span) for item in value.items]
        return make(*nodes, type=ir.Tuple(tuple(node.type for node in nodes)))
    if value.type is NONE:
        return make(type=ir.UNIT)
    if value.is_number and isinstance(value.type, ir.Scalar):
        return constant_of(value.static, value.type, span)
    raise FunctionError(
        "LG202",
        f"cannot compute with {name_of(value)}",
        span,
        expected="a number, vector, list, tuple or struct",
        help="call it, or take one of its attributes",
    )


def constant_of(number: Any, type: ir.Scalar, span: Span) -> Node:
    """A number as a constant of a scalar type."""
    try:
        return constant(number, type)
    except Exception as error:
        raise FunctionError("LG202", f"{number!r} does not fit {describe(type)}", span) from error


def name_of(value: Value) -> str:
    """The description of a value in a message: its type, its name or its repr."""
    if value.type is not None:
        return describe(value.type)
    if value.items is not None:
        return "a tuple of " + ", ".join(name_of(item) for item in value.items)
    named = getattr(value.static, "__name__", None)
    return f"`{named}`" if named else repr(value.static)


def array_advice(value: Value) -> str | None:
    """Advice on declaring an array parameter, for a number that is used like an array."""
    if not isinstance(value.type, ir.Scalar):
        return None
    return 'an argument without an annotation is a number; for an array, write `a: lg.array[float, "n"]`'


# --- casts of numbers -------------------------------------------------------------------------------------------------


def cast_to(node: Node, scalar: ir.Scalar) -> Node:
    """Casts a number, vector or matrix to a scalar type."""
    return node if ir.scalar_of(node.type) is scalar else cast(node, type=scalar)


def as_scalar_type(value: Value, scalar: ir.Scalar, span: Span) -> Node:
    """The node of a number, vector or matrix with elements of a scalar type."""
    if value.is_number:
        return constant_of(_convert_literal(value.static, scalar), scalar, span)
    return cast_to(node_of(value, span), scalar)


def _convert_literal(number: Any, scalar: ir.Scalar) -> Any:
    if scalar.kind in ("float", "complex") and isinstance(number, bool | int):
        return float(number)
    return int(number) if scalar.kind in ("signed", "unsigned") and isinstance(number, bool) else number


def splat_to(node: Node, type: ir.Type) -> Node:
    """Broadcasts a scalar to a vector or matrix type; returns other nodes unchanged."""
    return splat(node, type=type) if isinstance(node.type, ir.Scalar) and node.type is not type else node


# --- conversion and joining ------------------------------------------------------------------------------------------


EMPTY_LIST = ArrayType(ir.i64, 0)


def convertible(value: Value, target: FrontType) -> bool:
    """Whether a value converts to `target` implicitly."""
    if value.type == target:
        return True
    for rule in rules.conversion:
        if rule(value, target, None) is not None:
            return True
    if value.items is not None and isinstance(target, TupleType):
        return len(value.items) == len(target.elements) and all(map(convertible, value.items, target.elements))
    if isinstance(target, ir.Scalar) and isinstance(value.type, ir.Scalar):
        if value.weak:
            return adopts_type(value.type, target)
        return is_lossless(value.type, target)
    if isinstance(target, ir.Vector | ir.Matrix) and isinstance(value.type, ir.Vector | ir.Matrix):
        shaped = ir.with_scalar(value.type, target.element)
        return shaped is target and is_lossless(value.type.element, target.element)
    if isinstance(target, ArrayType) and isinstance(value.type, ArrayType):
        inner = Value(value.type.element, weak=value.weak)
        return value.type.size == target.size and (not target.size or convertible(inner, target.element))
    return False


def convert(value: Value, target: FrontType, span: Span, role: str = "the value") -> Value:
    """Converts a value to the expected type; raises if there is no implicit conversion."""
    if value.type == target and not value.weak and (value.node is not None or value.items is not None):
        return value
    for rule in rules.conversion:
        converted = rule(value, target, span)
        if converted is not None:
            return with_aliases(converted, aliases_of(value))
    if not convertible(value, target):
        raise FunctionError(
            "LG202",
            f"{role} has the wrong type",
            span,
            expected=describe(target),
            found=name_of(value),
            help=_cast_help(value.type, target),
        )
    if value.items is not None and isinstance(target, TupleType):
        return tuple_value(
            [convert(item, element, span, role) for item, element in zip(value.items, target.elements, strict=True)]
        )
    return replace(value, type=target, node=_converted_node(value, target, span), static=MISSING, weak=False)


def _converted_node(value: Value, target: FrontType, span: Span) -> Node:
    if isinstance(target, ir.Scalar):
        return as_scalar_type(value, target, span)
    node = node_of(value, span)
    if isinstance(target, ir.Vector | ir.Matrix):
        return cast_to(node, target.element)
    if isinstance(target, ArrayType) and isinstance(value.type, ArrayType):
        parts = [Value(value.type.element, member(node, index), weak=value.weak) for index in range(target.size)]
        return make(*[node_of(convert(part, target.element, span), span) for part in parts], type=target.ir)
    return node


def _cast_help(source: FrontType | None, target: FrontType) -> str | None:
    if isinstance(source, ir.Scalar) and isinstance(target, ir.Scalar):
        return f"write {describe(target)}(...) to convert it"
    if not isinstance(source, ir.Vector | ir.Matrix) or not isinstance(target, ir.Vector | ir.Matrix):
        return None
    if ir.with_scalar(source, target.element) is target:
        reason = f"a {describe(source.element)} makes a {describe(source)}"
        return f"write {describe(target)}(...) to convert it, or compute with {describe(target.element)}: {reason}"
    return None


def join(first: Value, second: Value) -> FrontType | None:
    """The common type of two values, or None if there is none."""
    if first.type is None or second.type is None:
        return None
    if isinstance(first.type, ir.Scalar) and isinstance(second.type, ir.Scalar):
        if (first.type is ir.bool_) != (second.type is ir.bool_):
            return None  # a bool on one path and a number on the other is probably a mistake
        return promote(first.type, first.weak, second.type, second.weak)
    if first.type == second.type:
        return first.type
    if isinstance(first.type, ArrayType) and isinstance(second.type, ArrayType) and first.type.size == second.type.size:
        if EMPTY_LIST in (first.type, second.type):
            return second.type if first.type == EMPTY_LIST else first.type
        inner = join(Value(first.type.element, weak=first.weak), Value(second.type.element, weak=second.weak))
        return None if inner is None else ArrayType(inner, first.type.size)
    for value, target in ((first, second), (second, first)):
        if target.type is not None and convertible(value, target.type):
            return target.type
    for rule in rules.join:
        common = rule(first.type, second.type)
        if common is not None:
            return common
    return None


def zero_value(type: FrontType) -> Node:
    """A placeholder for a variable that is never read on this path."""
    return zero(ir_of(type))


# --- global and closure values ---------------------------------------------------------------------------------------


def from_python(value: Any, span: Span) -> Value:
    """Converts a global or closure value: NumPy numbers, arrays, lists and structs become constants."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        scalar = ir.scalar_of_dtype(value.dtype)
        return Value(scalar, constant_of(value.item(), scalar, span))
    if isinstance(value, np.ndarray):
        return _array_constant(value, span)
    if isinstance(value, tuple):
        return tuple_value([from_python(item, span) for item in value])
    if isinstance(value, list):
        return array_value([from_python(item, span) for item in value], span)
    value_type = getattr(value, "__livegrad_type__", None)
    if isinstance(value_type, RecordType) and not isinstance(value, type):
        parts = [
            convert(from_python(getattr(value, f.name), span), f.type, span, f"`{f.name}`") for f in value_type.fields
        ]
        return Value(value_type, make(*[node_of(part, span) for part in parts], type=value_type.ir))
    return static(value)


def _array_constant(value: np.ndarray[Any, Any], span: Span) -> Value:
    scalar = ir.scalar_of_dtype(value.dtype)
    if value.ndim == 1 and value.size <= 4:
        nodes = [constant_of(item, scalar, span) for item in value.tolist()]
        vector = ir.Vector(scalar, value.size)
        return Value(vector, make(*nodes, type=vector))
    return array_value([from_python(item, span) for item in value], span)


def array_value(items: Sequence[Value], span: Span) -> Value:
    """A list of the values, converted to their common type."""
    if not items:  # weakly typed: it converts to an empty list of any type
        return Value(EMPTY_LIST, make(type=EMPTY_LIST.ir), weak=True)
    common: Value = items[0]
    for item in items[1:]:
        joined = join(common, item)
        if joined is None:
            raise FunctionError(
                "LG202",
                "a list's elements must have one type",
                span,
                found=f"{name_of(common)} and {name_of(item)}",
                help="use a tuple for values of different types",
            )
        common = Value(joined, weak=common.weak and item.weak)
    if common.type is None:
        raise FunctionError("LG202", f"{name_of(common)} cannot be an element of a list", span, help="use a tuple")
    nodes = [node_of(convert(item, common.type, span, "the element"), span) for item in items]
    type = ArrayType(common.type, len(items))
    return Value(type, make(*nodes, type=type.ir), weak=common.weak)
