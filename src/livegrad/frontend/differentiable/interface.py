"""Interface types: tagged unions over a closed set of implementing structs.

A value is a tag and, for each scalar type, as many slots as any implementing struct needs. Floats are stored as floats,
so differentiation needs no conversions. `interface_dispatch` dispatches methods by a switch over the tag.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from livegrad.frontend.differentiable.differentials import (
    TaggedType,
    keeps_layout,
    lower_differential,
    raise_differential,
    scale_floats,
)
from livegrad.frontend.differentiable.protocol import combine, require_differential
from livegrad.frontend.differentiable.slots import (
    leaf_nodes,
    python_leaves,
    rebuild_node,
    rebuild_python_value,
    slot_indices,
    slots_for,
)
from livegrad.frontend.differentiable.struct import StructType
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.frontend.function.compile_values import Value
from livegrad.frontend.function.function_errors import FunctionError
from livegrad.frontend.function.function_types import (
    FrontType,
    describe,
    differential_type,
    from_result,
    ir_of,
    to_argument,
)
from livegrad.frontend.function.type_reading import type_of_value
from livegrad.ir import types as ir
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Key, Node
from livegrad.ops.aggregate import make, member, members_of
from livegrad.ops.comparison import equal
from livegrad.ops.control import check, switch
from livegrad.ops.elementwise import select
from livegrad.ops.rules import add_values, zero

_NULL = 0  # the tag of NullDifferential; the differential of implementer k has the tag k + 1


class NullDifferential:
    """The zero differential of an interface value, for every implementing type.

    >>> NullDifferential()
    NullDifferential()
    """

    def __repr__(self) -> str:
        return "NullDifferential()"

    def __livegrad_abstract__(self, abstract: Any, expected: Any, weak_numbers: bool = False) -> Value:
        if not isinstance(expected, InterfaceDifferential):
            raise TypeError("a NullDifferential can only stand for the differential of an interface value")
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
        structs = list(self.own_implementers)
        for child in self.children:
            structs += [struct for struct in child.implementers if struct not in structs]
        return structs

    def require_implementers(self) -> list[StructType]:
        structs = self.implementers
        if not structs:
            raise FunctionError(
                "LG403", f"no type implements {self.name}", help="define a struct that inherits from it"
            )
        return structs

    @property
    def slots(self) -> list[tuple[str, ir.Scalar]]:
        """The slots that can store every implementing struct, as pairs of a name and a scalar type."""
        return slots_for([struct.ir for struct in self.require_implementers()])

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
        """Converts a struct to a value of the interface."""
        slots = self._slot_indices(struct)
        parts = [zero(scalar) for _, scalar in self.slots]
        for slot, leaf in zip(slots, leaf_nodes(node), strict=True):
            parts[slot] = leaf
        tag = constant(self.implementers.index(struct), ir.i32)
        return make(tag, *parts, type=self.ir)

    def unpack(self, struct: StructType, node: Node) -> Node:
        """Reads the struct from an interface value that contains this type."""
        supply = iter([member(node, 1 + slot) for slot in self._slot_indices(struct)])
        return rebuild_node(struct.ir, supply)

    def _slot_indices(self, struct: StructType) -> list[int]:
        """The slot of each of a struct's scalars."""
        return slot_indices(self.slots, struct.ir)

    def struct_of(self, value: Any) -> StructType:
        """The implementing struct of a Python value."""
        value_type = type_of_value(value)
        if not isinstance(value_type, StructType) or value_type not in self.implementers:
            raise TypeError(f"{describe(value_type)} does not implement {self.name}")
        return value_type

    def accepts(self, value: Any) -> bool:
        return any(isinstance(value, struct.cls) for struct in self.implementers)

    def to_argument(self, value: Any) -> Any:
        struct = self.struct_of(value)
        parts: list[Any] = [scalar.dtype.type(0) for _, scalar in self.slots]
        for slot, leaf in zip(
            self._slot_indices(struct), python_leaves(struct.to_argument(value), struct.ir), strict=True
        ):
            parts[slot] = leaf
        return (self.implementers.index(struct), *parts)

    def from_result(self, value: Any) -> Any:
        struct = self.implementers[int(value[0])]
        supply = iter([value[1 + slot] for slot in self._slot_indices(struct)])
        return struct.from_result(rebuild_python_value(struct.ir, supply))

    # --- differentials: the float slots, with another tag ---

    @property
    def float_slots(self) -> list[int]:
        return [k for k, (_, scalar) in enumerate(self.slots) if ir.is_differentiable(scalar)]

    @property
    def _keeps_layout(self) -> bool:
        """Whether the differentials of all implementers use the same slots as in the IR."""
        return all(map(keeps_layout, self.implementers))

    def lower_differential(self, node: Node, primal: Node, cotangent: bool) -> Node:
        fits = equal(member(node, 0), _NULL) | equal(member(node, 0), member(primal, 0) + 1)
        if self._keeps_layout:
            parts = [member(node, 1 + k) for k in range(len(self.float_slots))]
        else:
            parts = members_of(self._for_each_type(self._lower_struct, node, primal, cotangent))
        parts[0] = check(
            parts[0], fits, message=f"the differential has a different type from the {self.name} it belongs to"
        )
        return make(*parts, type=ir.differential_of(self.ir))

    def raise_differential(self, node: Node, primal: Node, cotangent: bool) -> Node:
        if self._keeps_layout:
            parts = [member(node, k) for k in range(len(self.float_slots))]
            return make(member(primal, 0) + 1, *parts, type=self.differential_type.ir)
        return self._for_each_type(self._raise_struct, node, primal, cotangent)

    def _for_each_type(self, convert: Callable[..., Node], node: Node, primal: Node, cotangent: bool) -> Node:
        """Converts a differential with a switch over the type of the primal."""
        inputs = [input_node(Key("differential"), node.type), input_node(Key("primal"), primal.type)]
        structs = self.require_implementers()
        branches = [make_function(self.name, inputs, [convert(struct, *inputs, cotangent)]) for struct in structs]
        return switch(member(primal, 0), node, primal, branches=tuple(branches))

    def _lower_struct(self, struct: StructType, node: Node, primal: Node, cotangent: bool) -> Node:
        target = ir.differential_of(self.ir)
        parts = [zero(differential) for differential in ir.components(target)]
        if differential_type(struct) is not None:
            differential = self.differential_type.unpack(struct, node)
            lowered = lower_differential(struct, differential, self.unpack(struct, primal), cotangent)
            for slot, leaf in zip(self._float_slots(struct), leaf_nodes(lowered), strict=True):
                parts[slot] = leaf
        return make(*parts, type=target)

    def _raise_struct(self, struct: StructType, node: Node, primal: Node, cotangent: bool) -> Node:
        if differential_type(struct) is None:
            return self.zero_differential()
        supply = iter([member(node, slot) for slot in self._float_slots(struct)])
        lowered = rebuild_node(ir.differential_of(struct.ir), supply)
        differential = raise_differential(struct, lowered, self.unpack(struct, primal), cotangent)
        return self.differential_type.pack(struct, differential)

    def _float_slots(self, struct: StructType) -> list[int]:
        """The index of each float of a struct among the float slots."""
        floats = self.float_slots
        return [floats.index(slot) for slot in self._slot_indices(struct) if slot in floats]

    def zero_differential(self) -> Node:
        return zero(self.differential_type.ir)

    def add_differentials(self, first: Node, second: Node) -> Node:
        return self.differential_type.add_differentials(first, second)

    def payload_types(self) -> list[FrontType]:
        return [struct for struct in self.implementers if differential_type(struct) is not None]

    def add_payloads(self, add: Callable[[FrontType, Node, Node], Node], first: Node, second: Node) -> Node:
        return self.differential_type.add_payloads(add, first, second)

    def scale_differential(self, factor: Callable[[ir.Scalar], Node], node: Node) -> Node:
        return self.differential_type.scale_differential(factor, node)

    def zero_value(self) -> Any:
        return NullDifferential()

    def combine_values(self, values: list[Any], leaf: Callable[..., Any], name: str, first: tuple[Any, ...]) -> Any:
        return self.differential_type.combine_values(values, leaf, name, first)


class InterfaceDifferential(TaggedType):
    """The type of differentials of interface values: one of an implementing struct, or `NullDifferential`."""

    def __init__(self, interface: InterfaceType) -> None:
        self.interface = interface

    def __repr__(self) -> str:
        return f"{self.interface.name}.Differential"

    @property
    def slots(self) -> list[tuple[str, ir.Scalar]]:
        """The slots that can store the Differential of every implementing struct."""
        types = [struct.differential for struct in self.interface.require_implementers()]
        return slots_for([ir_of(differential) for differential in types if differential is not None])

    @property
    def ir(self) -> ir.Type:
        return ir.Struct(repr(self), (("tag", ir.i32), *self.slots))

    @property
    def differential(self) -> FrontType | None:
        return self

    def pack(self, struct: StructType, node: Node) -> Node:
        """Converts the differential of a struct to a differential of the interface."""
        slots = self.slots
        parts = [zero(scalar) for _, scalar in slots]
        for slot, leaf in zip(slot_indices(slots, node.type), leaf_nodes(node), strict=True):
            parts[slot] = leaf
        tag = constant(self.interface.implementers.index(struct) + 1, ir.i32)
        return make(tag, *parts, type=self.ir)

    def unpack(self, struct: StructType, node: Node) -> Node:
        """Reads the Differential of a struct from a differential of the interface that belongs to this struct."""
        differential = ir_of(require_differential(struct))
        supply = iter([member(node, 1 + slot) for slot in slot_indices(self.slots, differential)])
        return rebuild_node(differential, supply)

    def to_argument(self, value: Any) -> Any:
        slots = self.slots
        parts: list[Any] = [scalar.dtype.type(0) for _, scalar in slots]
        if isinstance(value, NullDifferential):
            return (_NULL, *parts)
        value_type = type_of_value(value)
        for index, struct in enumerate(self.interface.implementers):
            if struct.differential is value_type:
                leaves = python_leaves(to_argument(value_type, value), ir_of(value_type))
                for slot, leaf in zip(slot_indices(slots, ir_of(value_type)), leaves, strict=True):
                    parts[slot] = leaf
                return (index + 1, *parts)
        raise TypeError(f"{describe(value_type)} is not a differential of a {self.interface.name}")

    def from_result(self, value: Any) -> Any:
        tag = int(value[0])
        if tag == _NULL:
            return NullDifferential()
        differential = self.interface.implementers[tag - 1].differential
        if differential is None:
            return NullDifferential()
        supply = iter([value[1 + slot] for slot in slot_indices(self.slots, ir_of(differential))])
        return from_result(differential, rebuild_python_value(ir_of(differential), supply))

    def lower_differential(self, node: Node, primal: Node, cotangent: bool) -> Node:
        floats = [k for k, (_, scalar) in enumerate(self.slots) if ir.is_differentiable(scalar)]
        return make(*[member(node, 1 + k) for k in floats], type=ir.differential_of(self.ir))

    def raise_differential(self, node: Node, primal: Node, cotangent: bool) -> Node:
        supply = iter(members_of(node))
        parts = [
            next(supply) if ir.is_differentiable(scalar) else member(primal, 1 + k)
            for k, (_, scalar) in enumerate(self.slots)
        ]
        return make(member(primal, 0), *parts, type=self.ir)

    def zero_differential(self) -> Node:
        return zero(self.ir)

    def add_differentials(self, first: Node, second: Node) -> Node:
        """Adds slot by slot. Null is neutral; two other differentials must belong to one type."""
        a, b = member(first, 0), member(second, 0)
        fits = equal(a, _NULL) | equal(b, _NULL) | equal(a, b)
        tag = check(select(equal(a, _NULL), b, a), fits, message="cannot add differentials of different types")
        sums = [_add_slots(member(first, 1 + k), member(second, 1 + k)) for k in range(len(self.slots))]
        return make(tag, *sums, type=self.ir)

    def payload_types(self) -> list[FrontType]:
        return self.interface.payload_types()

    def add_payloads(self, add: Callable[[FrontType, Node, Node], Node], first: Node, second: Node) -> Node:
        """Adds two differentials of one type with the type's `dadd`; null is neutral."""
        inputs = [input_node(Key("differential"), self.ir) for _ in range(2)]
        branches = [make_function("dadd", inputs, [self.add_differentials(*inputs)])]
        for struct in self.interface.implementers:
            if differential_type(struct) is None:
                branches.append(branches[0])
                continue
            total = add(struct, *(self.unpack(struct, node) for node in inputs))
            branches.append(make_function("dadd", inputs, [self.pack(struct, total)]))
        a, b = member(first, 0), member(second, 0)
        common_tag = select(equal(a, b), a, zero(a.type))
        return switch(common_tag, first, second, branches=tuple(branches))

    def scale_differential(self, factor: Callable[[ir.Scalar], Node], node: Node) -> Node:
        tag, *parts = members_of(node)
        products = [scale_floats(factor, part) if ir.is_differentiable(part.type) else part for part in parts]
        return make(tag, *products, type=self.ir)

    def zero_value(self) -> Any:
        return NullDifferential()

    def combine_values(self, values: list[Any], leaf: Callable[..., Any], name: str, first: tuple[Any, ...]) -> Any:
        present = [value for value in values if not isinstance(value, NullDifferential)]
        if not present:
            return NullDifferential()
        if len(present) < len(values):
            return present[0]
        types = [type_of_value(value) for value in present]
        if any(value_type is not types[0] for value_type in types):
            raise TypeError(f"differentials of different types: {', '.join(map(describe, types))}")
        struct = next(struct for struct in self.interface.implementers if struct.differential is types[0])
        return combine(struct, present, leaf, name, first)


def _add_slots(first: Node, second: Node) -> Node:
    """Adds two float slots; merges two slots of other types, which record presence or a tag."""
    if ir.is_differentiable(first.type):
        return add_values(first, second)
    return first | second if first.type is ir.bool_ else select(equal(first, 0), second, first)
