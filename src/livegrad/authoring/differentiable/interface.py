"""Interfaces: values of any of a closed set of structs, told apart when the function runs.

A value is a tag and, for each scalar type, as many slots as the implementing struct that needs most of them; floats
stay floats, so differentiation needs no conversions. Methods are dispatched by a switch over the tag.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from livegrad.authoring.differentiable.optional import scaled
from livegrad.authoring.differentiable.protocol import (
    Differentiable,
    TaggedType,
    combine,
    lower_differential,
)
from livegrad.authoring.differentiable.struct import STRUCT_BASES, StructType
from livegrad.authoring.function.calls import METHODS, BoundMethod, call_value
from livegrad.authoring.function.captured import BOUNDS, CapturedFunction
from livegrad.authoring.function.context import Context
from livegrad.authoring.function.problems import FunctionError, Span
from livegrad.authoring.function.types import (
    FrontType,
    RecordType,
    describe,
    differential_type,
    ir_of,
    type_of_value,
)
from livegrad.authoring.function.values import CONVERSIONS, JOINS, Value, convert, flows_of, node_of, runtime
from livegrad.ir import types as ir
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Key, Node
from livegrad.ops.aggregate import make, member
from livegrad.ops.control import check, switch
from livegrad.ops.elementwise import equal, select
from livegrad.ops.rules import add_values, zero

_NULL = 0  # the tag of NullDifferential; the differential of implementer k has the tag k + 1


class NullDifferential:
    """The differential of an interface value of which nothing is known yet: the zero that fits any type."""

    def __repr__(self) -> str:
        return "NullDifferential()"

    def __livegrad_abstract__(self, abstract: Any, expected: FrontType | None) -> Value:
        if not isinstance(expected, InterfaceDifferential):
            raise TypeError("a NullDifferential stands for a differential of an interface's value only")
        return Value(expected)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NullDifferential)

    __hash__ = None  # type: ignore[assignment]


class InterfaceType(TaggedType):
    """The type of values that implement an interface."""

    def __init__(self, cls: type) -> None:
        self.cls, self.name = cls, cls.__name__
        self.own_implementers: list[StructType] = []
        self.children: list[InterfaceType] = []
        self.methods: dict[str, CapturedFunction] = {
            name: value
            for base in reversed(cls.__mro__)
            for name, value in vars(base).items()
            if isinstance(value, CapturedFunction)
        }
        self.differential_type = InterfaceDifferential(self)

    def __repr__(self) -> str:
        return self.name

    @property
    def implementers(self) -> list[StructType]:
        """The structs that implement the interface or one that inherits from it, in the order of their definition."""
        found = list(self.own_implementers)
        for child in self.children:
            found += [struct for struct in child.implementers if struct not in found]
        return found

    def require_implementers(self) -> list[StructType]:
        found = self.implementers
        if not found:
            raise FunctionError(
                "LG403", f"no type implements {self.name}", help="define a struct that inherits from it"
            )
        return found

    @property
    def slots(self) -> list[tuple[str, ir.Scalar]]:
        """The slots of the largest implementers."""
        counts: dict[ir.Scalar, int] = {}
        for struct in self.require_implementers():
            own: dict[ir.Scalar, int] = {}
            for leaf in scalar_leaves(struct.ir):
                own[leaf] = own.get(leaf, 0) + 1
            for leaf, count in own.items():
                counts[leaf] = max(counts.get(leaf, 0), count)
        return [(f"{scalar}_{k}", scalar) for scalar, count in sorted(counts.items(), key=str) for k in range(count)]

    @property
    def ir(self) -> ir.Type:
        return ir.Struct(self.name, (("tag", ir.i32), *self.slots))

    @property
    def differential(self) -> FrontType | None:
        if not any(differential_type(struct) is not None for struct in self.implementers):
            return None
        return self.differential_type

    # --- values ---

    def pack(self, struct: StructType, node: Node) -> Node:
        """A struct's value as a value of the interface."""
        places = self._places(struct)
        parts = [zero(scalar) for _, scalar in self.slots]
        for place, leaf in zip(places, leaf_nodes(node), strict=True):
            parts[place] = leaf
        tag = constant(self.implementers.index(struct), ir.i32)
        return make(tag, *parts, type=self.ir)

    def unpack(self, struct: StructType, node: Node) -> Node:
        """The value of the struct that an interface value is known to hold."""
        supply = iter([member(node, 1 + place) for place in self._places(struct)])
        return rebuilt(struct.ir, supply)

    def _places(self, struct: StructType) -> list[int]:
        """The slot of each of a struct's scalars."""
        taken: dict[ir.Scalar, int] = {}
        first = {}
        for index, (_, scalar) in enumerate(self.slots):
            first.setdefault(scalar, index)
        places = []
        for leaf in scalar_leaves(struct.ir):
            places.append(first[leaf] + taken.get(leaf, 0))
            taken[leaf] = taken.get(leaf, 0) + 1
        return places

    def struct_of(self, value: Any) -> StructType:
        """The implementing struct of a Python value."""
        own = type_of_value(value)
        if not isinstance(own, StructType) or own not in self.implementers:
            raise TypeError(f"{describe(own)} does not implement {self.name}")
        return own

    def to_argument(self, value: Any) -> Any:
        struct = self.struct_of(value)
        parts: list[Any] = [scalar.dtype.type(0) for _, scalar in self.slots]
        for place, leaf in zip(self._places(struct), _plain_leaves(struct.to_argument(value), struct.ir), strict=True):
            parts[place] = leaf
        return (self.implementers.index(struct), *parts)

    def from_result(self, value: Any) -> Any:
        struct = self.implementers[int(value[0])]
        supply = iter([value[1 + place] for place in self._places(struct)])
        return struct.from_result(_plain_rebuilt(struct.ir, supply))

    # --- differentials: the slots of floats at the same places, with a tag of their own ---

    @property
    def float_slots(self) -> list[int]:
        return [k for k, (_, scalar) in enumerate(self.slots) if ir.is_differentiable(scalar)]

    def lower_differential(self, node: Node, primal: Node) -> Node:
        fits = equal(member(node, 0), _NULL) | equal(member(node, 0), member(primal, 0) + 1)
        target = ir.differential_of(self.ir)
        parts = [member(node, 1 + k) for k in range(len(self.float_slots))]
        parts[0] = check(parts[0], fits, message=f"a differential of another type than the {self.name} it belongs to")
        return make(*parts, type=target)

    def raise_differential(self, node: Node, primal: Node) -> Node:
        parts = [member(node, k) for k in range(len(self.float_slots))]
        return make(member(primal, 0) + 1, *parts, type=self.differential_type.ir)

    def zero_differential(self) -> Node:
        return zero(self.differential_type.ir)

    def add_differentials(self, first: Node, second: Node) -> Node:
        return self.differential_type.add_differentials(first, second)

    def scale_differential(self, factor: Callable[[ir.Scalar], Node], node: Node) -> Node:
        return self.differential_type.scale_differential(factor, node)

    def zero_value(self) -> Any:
        return NullDifferential()

    def combine_values(self, values: list[Any], leaf: Callable[..., Any], name: str, first: tuple[Any, ...]) -> Any:
        return self.differential_type.combine_values(values, leaf, name, first)


class InterfaceDifferential(TaggedType):
    """The differentials of an interface's values: that of an implementing struct, or `NullDifferential`."""

    def __init__(self, interface: InterfaceType) -> None:
        self.interface = interface

    def __repr__(self) -> str:
        return f"{self.interface.name}.Differential"

    @property
    def ir(self) -> ir.Type:
        slots = [self.interface.slots[k] for k in self.interface.float_slots]
        return ir.Struct(repr(self), (("tag", ir.i32), *slots))

    @property
    def differential(self) -> FrontType | None:
        return self

    def _float_places(self, struct: StructType) -> list[tuple[int, int]]:
        """For each float of a struct: its place among the struct's scalars, and its slot."""
        floats = self.interface.float_slots
        leaves = scalar_leaves(struct.ir)
        return [
            (index, floats.index(place))
            for index, place in enumerate(self.interface._places(struct))
            if ir.is_differentiable(leaves[index])
        ]

    def pack(self, struct: StructType, node: Node) -> Node:
        """The differential of a struct as one of the interface."""
        lowered = lower_differential(struct, node, zero(struct.ir))
        parts = [zero(self.interface.slots[k][1]) for k in self.interface.float_slots]
        for (_, slot), leaf in zip(self._float_places(struct), leaf_nodes(lowered), strict=True):
            parts[slot] = leaf
        tag = constant(self.interface.implementers.index(struct) + 1, ir.i32)
        return make(tag, *parts, type=self.ir)

    def to_argument(self, value: Any) -> Any:
        slots = [self.interface.slots[k][1] for k in self.interface.float_slots]
        parts: list[Any] = [scalar.dtype.type(0) for scalar in slots]
        if isinstance(value, NullDifferential):
            return (_NULL, *parts)
        own = type_of_value(value)
        for index, struct in enumerate(self.interface.implementers):
            if struct.differential is own:
                leaves = _plain_leaves(own.to_argument(value), ir_of(own))
                for (_, slot), leaf in zip(self._float_places(struct), leaves, strict=True):
                    parts[slot] = leaf
                return (index + 1, *parts)
        raise TypeError(f"{describe(own)} is no differential of a {self.interface.name}")

    def from_result(self, value: Any) -> Any:
        tag = int(value[0])
        if tag == _NULL:
            return NullDifferential()
        struct = self.interface.implementers[tag - 1]
        own = struct.differential
        if own is None:
            return NullDifferential()
        supply = iter([value[1 + slot] for _, slot in self._float_places(struct)])
        assert isinstance(own, RecordType)
        return own.from_result(_plain_rebuilt(own.ir, supply))

    def lower_differential(self, node: Node, primal: Node) -> Node:
        parts = [member(node, 1 + k) for k in range(len(self.interface.float_slots))]
        return make(*parts, type=ir.differential_of(self.ir))

    def raise_differential(self, node: Node, primal: Node) -> Node:
        parts = [member(node, k) for k in range(len(self.interface.float_slots))]
        return make(member(primal, 0), *parts, type=self.ir)

    def zero_differential(self) -> Node:
        return zero(self.ir)

    def add_differentials(self, first: Node, second: Node) -> Node:
        """Null and a value give the value; two values must be of one type."""
        a, b = member(first, 0), member(second, 0)
        fits = equal(a, _NULL) | equal(b, _NULL) | equal(a, b)
        tag = check(select(equal(a, _NULL), b, a), fits, message="differentials of different types are added")
        sums = [add_values(member(first, 1 + k), member(second, 1 + k)) for k in range(len(self.interface.float_slots))]
        return make(tag, *sums, type=self.ir)

    def scale_differential(self, factor: Callable[[ir.Scalar], Node], node: Node) -> Node:
        parts = [scaled(factor, member(node, 1 + k)) for k in range(len(self.interface.float_slots))]
        return make(member(node, 0), *parts, type=self.ir)

    def zero_value(self) -> Any:
        return NullDifferential()

    def combine_values(self, values: list[Any], leaf: Callable[..., Any], name: str, first: tuple[Any, ...]) -> Any:
        present = [value for value in values if not isinstance(value, NullDifferential)]
        if not present:
            return NullDifferential()
        if len(present) < len(values):
            return present[0]
        types = [type_of_value(value) for value in present]
        if any(own is not types[0] for own in types):
            raise TypeError(f"differentials of different types: {', '.join(map(describe, types))}")
        struct = next(struct for struct in self.interface.implementers if struct.differential is types[0])
        return combine(struct, present, leaf, name, first)


# --- scalars in aggregates -------------------------------------------------------------------------------------------


def scalar_leaves(type: ir.Type) -> list[ir.Scalar]:
    """The scalars that a value is made of, in order."""
    if isinstance(type, ir.Scalar):
        return [type]
    return [leaf for part in ir.components(type) for leaf in scalar_leaves(part)]


def leaf_nodes(node: Node) -> list[Node]:
    """The scalars of a value, one by one."""
    if isinstance(node.type, ir.Scalar):
        return [node]
    count = len(ir.components(node.type))
    return [leaf for index in range(count) for leaf in leaf_nodes(member(node, index))]


def rebuilt(type: ir.Type, supply: Any) -> Node:
    """A value from its scalars."""
    if isinstance(type, ir.Scalar):
        return next(supply)
    return make(*[rebuilt(part, supply) for part in ir.components(type)], type=type)


def _plain_leaves(value: Any, type: ir.Type) -> list[Any]:
    if isinstance(type, ir.Scalar):
        return [value]
    if isinstance(type, ir.Vector | ir.Matrix):
        return list(np.asarray(value).reshape(-1))
    return [leaf for part, own in zip(value, ir.components(type), strict=True) for leaf in _plain_leaves(part, own)]


def _plain_rebuilt(type: ir.Type, supply: Any) -> Any:
    if isinstance(type, ir.Scalar):
        return next(supply)
    parts = [_plain_rebuilt(part, supply) for part in ir.components(type)]
    if isinstance(type, ir.Vector):
        return np.array(parts, type.element.dtype)
    if isinstance(type, ir.Matrix):
        return np.array(parts, type.element.dtype).reshape(type.rows, type.columns)
    return tuple(parts)


# --- dispatch --------------------------------------------------------------------------------------------------------


def _method(context: Context, value: Value, name: str) -> BoundMethod | None:
    if not isinstance(value.type, InterfaceType) or name not in value.type.methods:
        return None
    return BoundMethod(value, name, _dispatcher(name))


def _dispatcher(name: str) -> Any:
    def run(context: Context, target: Value, positional: list[Value], keywords: dict[str, Value], at: ast.AST) -> Value:
        assert isinstance(target.type, InterfaceType)
        interface = target.type
        structs = interface.require_implementers()
        known = list(structs)
        context.dependencies.callees.append(lambda: interface.implementers == known)
        return _dispatch(context, interface, structs, name, target, positional, keywords, at)

    return run


def _dispatch(
    context: Context,
    interface: InterfaceType,
    structs: list[StructType],
    name: str,
    target: Value,
    positional: list[Value],
    keywords: dict[str, Value],
    at: ast.AST,
) -> Value:
    span = context.span(at)
    declared = interface.methods[name].signature.result.type
    values = [target, *positional, *keywords.values()]
    outer = [node_of(value, span) for value in values]
    inputs = [input_node(Key(name), node.type) for node in outer]
    inner = [
        Value(value.type, node, weak=value.weak, flow=value.flow) for value, node in zip(values, inputs, strict=True)
    ]
    results: list[Value] = []
    for struct in structs:
        own = runtime(struct, interface.unpack(struct, inputs[0]), target.flow)
        given = inner[1 : 1 + len(positional)]
        named = dict(zip(keywords, inner[1 + len(positional) :], strict=True))
        result = call_value(context, struct.methods[name], [own, *given], named, at)
        results.append(result if declared is None else convert(result, declared, span, f"the result of `{name}`"))
    type = results[0].type
    assert type is not None
    branches = tuple(make_function(name, inputs, [node_of(convert(r, type, span), span)]) for r in results)
    node = switch(member(outer[0], 0), *outer, branches=branches)
    result = runtime(type, node)
    return context.with_flow(result, "operation", results, at, name) if flows_of(*results) else result


# --- conversion ------------------------------------------------------------------------------------------------------


def _convert(value: Value, target: FrontType, span: Span | None) -> Any:
    if isinstance(target, InterfaceDifferential) and isinstance(value.type, RecordType):
        return _convert_differential(value, target, span)
    if not isinstance(target, InterfaceType) or value.type is target:
        return None
    if isinstance(value.type, StructType) and value.type in target.implementers:
        if span is None or value.node is None:
            return Value(target)
        return Value(target, target.pack(value.type, value.node), flow=value.flow)
    if isinstance(value.type, InterfaceType) and all(s in target.implementers for s in value.type.implementers):
        if span is None or value.node is None:
            return Value(target)
        return Value(target, _repacked(value.type, target, value.node), flow=value.flow)
    return None


def _convert_differential(value: Value, target: InterfaceDifferential, span: Span | None) -> Any:
    for struct in target.interface.implementers:
        if struct.differential is value.type:
            if span is None or value.node is None:
                return Value(target)
            return Value(target, target.pack(struct, value.node), flow=value.flow)
    return None


def _repacked(source: InterfaceType, target: InterfaceType, node: Node) -> Node:
    """A value of a derived interface as one of its base."""
    given = input_node(Key("value"), node.type)
    branches = tuple(
        make_function(target.name, [given], [target.pack(struct, source.unpack(struct, given))])
        for struct in source.require_implementers()
    )
    return switch(member(node, 0), node, branches=branches)


def _join(first: FrontType, second: FrontType) -> FrontType | None:
    """Two structs meet in the one interface that both implement."""
    if not isinstance(first, StructType) or not isinstance(second, StructType):
        return None
    common = [base for base in interfaces_of(first.cls) if base in interfaces_of(second.cls)]
    return common[0] if common else None


def interfaces_of(cls: type) -> list[InterfaceType]:
    """The interfaces that a class implements, nearest first."""
    found = [vars(base).get("__livegrad_interface__") for base in cls.__mro__]
    return [interface for interface in found if isinstance(interface, InterfaceType)]


# --- what people write -----------------------------------------------------------------------------------------------


def interface(cls: type) -> type:
    """Makes a class an interface: structs that inherit from it implement it, and its methods are dispatched.

    >>> @interface
    ... class Shape:
    ...     pass
    >>> Shape.__livegrad_type__
    Shape
    """
    made = InterfaceType(cls)
    cls.__livegrad_interface__ = made  # type: ignore[attr-defined]
    cls.__livegrad_type__ = made  # type: ignore[attr-defined]
    for parent in interfaces_of(cls)[1:]:
        if made not in parent.children:
            parent.children.append(made)
    return cls


def _register(struct: StructType) -> None:
    """A struct that inherits from an interface implements it, with all its methods."""
    for found in interfaces_of(struct.cls):
        for name in found.methods:
            own = struct.methods.get(name)
            if own is None or own is found.methods[name]:
                raise FunctionError(
                    "LG401",
                    f"{struct.name} does not implement `{name}` of {found.name}",
                    struct.span,
                    help=f"define `{name}` in {struct.name}",
                )
            if found.methods[name].differentiable and not getattr(own, "differentiable", False):
                raise FunctionError(
                    "LG401",
                    f"`{name}` of {struct.name} is not differentiable, and {found.name} says it is",
                    struct.span,
                    help="decorate it with @differentiable",
                )
        if not any(struct in child.implementers for child in found.children) and struct not in found.own_implementers:
            found.own_implementers.append(struct)


def _bound(variable: TypeVar, type: FrontType) -> str | None:
    """Whether a type satisfies the bound of a type variable."""
    bound = variable.__bound__
    if bound is None:
        return None
    if bound is Differentiable:
        return None if differential_type(type) is not None else f"must be differentiable, found {describe(type)}"
    wanted = getattr(bound, "__livegrad_type__", None)
    if isinstance(wanted, InterfaceType) and type is not wanted:
        if not (isinstance(type, StructType) and type in wanted.implementers):
            return f"must implement {wanted.name}, found {describe(type)}"
    return None


METHODS.append(_method)
CONVERSIONS.append(_convert)
JOINS.append(_join)
STRUCT_BASES.append(_register)
BOUNDS.append(_bound)
