"""Converts nodes of the value IR to graph nodes: how values are represented, and the rules that need a method.

`from_ir` has the table of all rules and converts functions. Vectors of two or four numbers, which no port type holds,
are represented by their components.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce

from livegrad.implicit.nodes.builder import FunctionBuilder, Wire
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.ports import PortType
from livegrad.ir.leaves import parameter_op
from livegrad.ir.node import Node
from livegrad.ir.types import Matrix, Scalar, Type, Vector, bool_, components

LARGEST = 3.4028234e38


def port_type(type: Type) -> PortType | None:
    """Returns the port type for a type of the value IR, or None.

    >>> from livegrad.ir.types import f32
    >>> port_type(Vector(f32, 3)), port_type(Vector(f32, 2))
    (<PortType.VECTOR: 'vector'>, None)
    """
    match type:
        case Scalar(kind="float"):
            return PortType.SCALAR
        case Vector(element=Scalar(kind="float"), size=3):
            return PortType.VECTOR
        case Matrix(element=Scalar(kind="float"), rows=4, columns=4):
            return PortType.MATRIX
    return None


@dataclass(frozen=True, eq=False)
class Condition:
    """left < right, or its negation if `opposite`: the condition of a Select node."""

    left: Wire
    right: Wire
    opposite: bool = False


@dataclass(frozen=True, eq=False)
class Members:
    """An aggregate, as functions that add the nodes of each member on demand."""

    makers: tuple[Callable[[], Value], ...]


Value = Wire | Condition | Members


class IrWriter:
    """Converts nodes of the value IR to nodes of a graph function under construction."""

    def __init__(self, build: FunctionBuilder, rules: Mapping[str, Callable[[IrWriter, Node], Value]]) -> None:
        self.build = build
        self.rules = rules
        self.parameters: dict[int, Wire | Members] = {}
        self.values: dict[Node, Value] = {}
        self.composed: dict[Members, Wire] = {}

    def write(self, node: Node) -> Value:
        """Converts one node, whose operands are in `values`."""
        if node.op is parameter_op:
            return self.parameters[node.attribute("index")]
        return self.rules[node.op.name](self, node)

    def wire(self, node: Node) -> Wire:
        """The value of a node as one wire. Raises if no port type holds it."""
        type = port_type(node.type)
        if type is None and node.type is not bool_:
            raise AssemblyError(
                f"3MF files have no node for values of type {node.type}",
                where=node.origin,
                expected="a float, three floats, or a 4×4 matrix of floats",
            )
        return self.as_wire(self.values[node], type)

    def wires(self, node: Node) -> list[Wire]:
        """The value of a node as wires: one, or one per component of a vector without a port type."""
        return [self.wire(node)] if port_type(node.type) is not None else self.scalars(node)

    def scalars(self, node: Node) -> list[Wire]:
        """The components of a vector."""
        return [self.as_wire(make()) for make in self.members(self.values[node]).makers]

    def as_wire(self, value: Value, type: PortType | None = None) -> Wire:
        if isinstance(value, Wire):
            return value
        if isinstance(value, Condition):
            return self.mask(value)
        if value not in self.composed:
            assert type is not None
            self.composed[value] = self._compose([self.as_wire(make()) for make in value.makers], type)
        return self.composed[value]

    def _compose(self, members: list[Wire], type: PortType) -> Wire:
        nodes = self.build._nodes
        holders = [nodes.get(member.source.node) for member in members]
        if all(holder is not None and holder.type.name == "Constant" for holder in holders):
            return self.build.constant([holder.value for holder in holders], type)  # type: ignore[union-attr]
        return self.build.apply("ComposeVector" if type is PortType.VECTOR else "ComposeMatrix", *members)

    def members(self, value: Value) -> Members:
        if isinstance(value, Members):
            return value
        if isinstance(value, Condition):
            raise AssemblyError("a vector of conditions can only be used in select")
        wire = value
        if wire.type is PortType.VECTOR:
            return Members(tuple((lambda axis=axis: self.build.component(wire, axis)) for axis in "xyz"))
        return Members(tuple((lambda index=index: self.read_matrix_element(wire, index)) for index in range(16)))

    def read_matrix_element(self, matrix: Wire, index: int) -> Wire:
        """One element of a matrix. No node reads a single element, so the others are masked with zeros."""
        row, column = divmod(index, 4)
        if column == 3:
            matrix, row, column = self.build.apply("Transpose", matrix), column, row
        if column == 3:
            raise AssemblyError("no node reads the last number of a matrix")
        mask = self.build.constant(
            [1.0 if position == row * 4 + column else 0.0 for position in range(16)], PortType.MATRIX
        )
        masked = self.build.apply("Multiplication", matrix, mask)
        unit = [1.0 if position == row else 0.0 for position in range(3)]
        row_vector = self.build.apply("MatVecMultiplication", masked, self.build.constant(unit, PortType.VECTOR))
        return self.build.component(row_vector, "xyz"[column])

    def elementwise(self, node: Node, rule: Callable[..., Wire]) -> Value:
        """Applies `rule` to the operands, or member by member to vectors without a port type."""
        if not is_split(node.type):
            return rule(*[self.wire(operand) for operand in node.operands])
        parts = [self.members(self.values[operand]).makers for operand in node.operands]
        return self.map_members(lambda *values: rule(*map(self.as_wire, values)), *parts)

    def map_members(self, rule: Callable[..., Value], *parts: Sequence[Callable[[], Value]]) -> Members:
        """Applies `rule` to each member of vectors, on demand and at most once."""

        def memoize(makers: tuple[Callable[[], Value], ...]) -> Callable[[], Value]:
            return cache(lambda: rule(*[make() for make in makers]))

        return Members(tuple(map(memoize, zip(*parts, strict=True))))

    # --- conditions ---------------------------------------------------------------------------------------------------

    def condition(self, node: Node) -> Condition:
        return self.as_condition(self.values[node])

    def as_condition(self, value: Value) -> Condition:
        if isinstance(value, Condition):
            return value
        assert isinstance(value, Wire)
        return Condition(self.build._literal(0.5, value.type), value)

    def conditions(self, node: Node, rule: Callable[..., Condition]) -> Value:
        """Applies `rule` to conditions, or member by member to vectors without a port type."""
        operands = [self.values[operand] for operand in node.operands]
        if not is_split(node.type):
            return rule(*map(self.as_condition, operands))
        parts = [self.members(operand).makers for operand in operands]
        return self.map_members(lambda *values: rule(*map(self.as_condition, values)), *parts)

    def mask(self, condition: Condition) -> Wire:
        """1 where the condition holds, 0 elsewhere."""
        if_less, otherwise = (0.0, 1.0) if condition.opposite else (1.0, 0.0)
        return self.build.apply("Select", condition.left, condition.right, if_less, otherwise)

    def combine_conditions(self, node: Node, type: str) -> Value:
        """Combines two conditions by the minimum (and) or maximum (or) of their masks."""

        def rule(first: Condition, second: Condition) -> Condition:
            combined = self.build.apply(type, self.mask(first), self.mask(second))
            return Condition(self.build._literal(0.5, combined.type), combined)

        return self.conditions(node, rule)

    def select(self, node: Node) -> Value:
        predicate = self.values[node.operands[0]]
        if is_split(node.type):
            then, otherwise = (self.members(self.values[operand]).makers for operand in node.operands[1:])
            conditions = predicate.makers if isinstance(predicate, Members) else [lambda: predicate] * len(then)
            return self.map_members(
                lambda condition, *sides: self.select_wire(condition, *map(self.as_wire, sides)),
                conditions,
                then,
                otherwise,
            )
        condition = self.condition(node.operands[0])
        if node.type is bool_:
            masks = (self.mask(self.condition(branch)) for branch in node.operands[1:])
            selected = self.select_wire(condition, *masks)
            return Condition(self.build._literal(0.5, selected.type), selected)
        return self.select_wire(condition, *map(self.wire, node.operands[1:]))

    def select_wire(self, condition: Condition, then: Wire, otherwise: Wire) -> Wire:
        """A Select node. Its four inputs have the same type, so a scalar condition is broadcast."""
        if condition.opposite:
            then, otherwise = otherwise, then
        left, right = condition.left, condition.right
        if left.type is PortType.SCALAR and then.type is PortType.VECTOR:
            left, right = self.build.apply("VectorFromScalar", left), self.build.apply("VectorFromScalar", right)
        elif left.type is not then.type:
            left, right = (self.build.apply("ComposeMatrix", *[wire] * 16) for wire in (left, right))
        return self.build.apply("Select", left, right, then, otherwise)

    # --- rules --------------------------------------------------------------------------------------------------------

    def constant(self, node: Node) -> Value:
        value = node.attribute("value")
        if isinstance(value, bool):
            return Condition(self.build.constant(0.0), self.build.constant(1.0), opposite=not value)
        if not isinstance(value, float) or abs(value) > LARGEST:
            raise AssemblyError(f"a constant node cannot hold {value!r}", where=node.origin)
        return self.build.constant(value)

    def make(self, node: Node) -> Value:
        operands = node.operands
        return Members(tuple((lambda operand=operand: self.values[operand]) for operand in operands))

    def get(self, node: Node) -> Value:
        (value,) = node.operands
        return self.members(self.values[value]).makers[node.attribute("index")]()

    def splat(self, node: Node) -> Value:
        (value,) = node.operands
        if value.type is bool_:
            return self.values[value]
        if isinstance(node.type, Vector) and node.type.size == 3:
            return self.build.apply("VectorFromScalar", self.wire(value))
        wire = self.wire(value)
        return Members(tuple((lambda: wire) for _ in components(node.type)))

    def matrix_vector(self, node: Node) -> Value:
        """A MatVecMultiplication node of the transpose if the fourth component is 1; else dot products with rows."""
        matrix, vector = node.operands
        parts = self.scalars(vector)
        fourth = self.build._nodes.get(parts[3].source.node)
        if fourth is not None and fourth.type.name == "Constant" and fourth.value == 1.0:
            point = self._compose(parts[:3], PortType.VECTOR)
            transformed = self.build.apply("MatVecMultiplication", self.transpose(matrix), point)
            return Members(
                (*self.members(transformed).makers, lambda: self.multiply_row(matrix, parts, 3)),
            )
        return Members(tuple((lambda row=row: self.multiply_row(matrix, parts, row)) for row in range(4)))

    def transpose(self, matrix: Node) -> Wire:
        if matrix.op.name == "matrix_transpose":
            return self.wire(matrix.operands[0])
        wire = self.wire(matrix)
        source = self.build._nodes.get(wire.source.node)
        if source is not None and source.type.name == "ConstMat" and isinstance(source.value, tuple):
            rows = [source.value[start : start + 4] for start in range(0, 16, 4)]
            return self.build.constant([element for column in zip(*rows, strict=True) for element in column], wire.type)
        return self.build.apply("Transpose", wire)

    def clamp(self, node: Node) -> Value:
        """A Clamp node if the bounds are constants in order; else Min and Max.

        If low > high, the node returns low and the op returns high.
        """
        low, high = (
            operand.attribute("value") if operand.op.name == "constant" else None for operand in node.operands[1:]
        )
        if low is not None and high is not None and low <= high:
            return self.elementwise(node, lambda *wires: self.build.apply("Clamp", *wires))
        return self.elementwise(
            node, lambda x, low, high: self.build.apply("Min", self.build.apply("Max", x, low), high)
        )

    def multiply_row(self, matrix: Node, parts: list[Wire], row: int) -> Wire:
        makers = self.members(self.values[matrix]).makers[4 * row : 4 * row + 4]
        return _sum([self.as_wire(make()) * part for make, part in zip(makers, parts, strict=True)])

    def dot(self, node: Node) -> Value:
        if not is_split(node.operands[0].type):
            return self.build.apply("Dot", *map(self.wire, node.operands))
        first, second = map(self.scalars, node.operands)
        return _sum([a * b for a, b in zip(first, second, strict=True)])

    def length(self, node: Node) -> Value:
        (vector,) = node.operands
        if not is_split(vector.type):
            return self.build.apply("Length", self.wire(vector))
        return self.build.apply("Sqrt", _sum([component * component for component in self.scalars(vector)]))


def is_split(type: Type) -> bool:
    """Whether values of a type are represented by components: vectors without a port type."""
    return isinstance(type, Vector) and type.size != 3


def _sum(wires: list[Wire]) -> Wire:
    return reduce(lambda total, wire: total + wire, wires)
