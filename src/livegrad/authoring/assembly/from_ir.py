"""From the value IR to node graphs: a `Function` of scalars, vectors and 4×4 matrices becomes a function made of nodes.

People who write shapes with `trace` call `add_ir_function`; `exact_graph` calls it for analytic gradients. What has no
node (loops, reads of tensors, integers) is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from livegrad.authoring.assembly.assembly import Assembly
from livegrad.authoring.assembly.builder import FunctionBuilder, Wire
from livegrad.authoring.assembly.errors import AssemblyError
from livegrad.authoring.assembly.ports import PortType
from livegrad.ir.leaves import parameter_op
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.types import Matrix, Scalar, Type, Vector, bool_, components
from livegrad.ir.walk import nodes_of
from livegrad.passes.expand import expand_ops
from livegrad.passes.pipeline import run_pipeline

_LARGEST = 3.4028234e38


def add_ir_function(
    assembly: Assembly,
    function: Function,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    name: str | None = None,
    id: int | None = None,
) -> Assembly:
    """The assembly with a function of the value IR as nodes, under the names of its inputs and outputs.

    Calls are written out and the function is simplified first. A comparison with NaN, which the files leave undefined,
    may decide either way.

    >>> from livegrad import ops
    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import Vector, f32
    >>> ball = trace(lambda p, r: ops.length(p) - r, Vector(f32, 3), f32)
    >>> list(add_ir_function(Assembly(), ball, ["pos", "radius"], ["shape"], name="ball").graph("ball").nodes)
    ['Length_1', 'Subtraction_2']
    """
    prepared = run_pipeline(Module((function,))).functions[0]
    prepared = expand_ops(prepared, lambda node: node.op.name not in _RULES and node.op.expand is not None)
    _require_rules(prepared)
    build = FunctionBuilder(assembly, name or function.name, id=id)
    writer = _Writer(build)
    for index, (port, type) in enumerate(zip(inputs, prepared.parameter_types, strict=True)):
        writer.parameters[index] = build.input(port, port_type(type))
    for node in nodes_of(prepared):
        writer.values[node] = writer.write(node)
    results = {port: writer.wire(result) for port, result in zip(outputs, prepared.results, strict=True)}
    return build.finish(**results)


def port_type(type: Type) -> PortType:
    """The port type that carries values of a type of the value IR."""
    match type:
        case Scalar(kind="float"):
            return PortType.SCALAR
        case Vector(element=Scalar(kind="float"), size=3):
            return PortType.VECTOR
        case Matrix(element=Scalar(kind="float"), rows=4, columns=4):
            return PortType.MATRIX
    raise AssemblyError(f"no port carries a {type}", expected="a float, three floats, or a 4×4 matrix of floats")


# Files hold straight code.
_INSTEAD = {
    "for_loop": "write the loop out: for i in lg.unroll(range(4))",
    "while_loop": "write the loop out: for i in lg.unroll(range(4))",
    "cond": "compute both sides and choose: lg.select(condition, then, otherwise)",
    "switch": "compute all sides and choose: lg.select(condition, then, otherwise)",
}


def _require_rules(function: Function) -> None:
    """An error unless every node of the function can be written as nodes of a file."""
    for node in nodes_of(function):
        if node.op is not parameter_op and node.op.name not in _RULES:
            raise AssemblyError(
                f"no node of a 3MF file computes `{node.op.name}`", where=node.origin, help=_INSTEAD.get(node.op.name)
            )


@dataclass(frozen=True, eq=False)
class Condition:
    """left < right, or its opposite: what a Select node can decide by."""

    left: Wire
    right: Wire
    opposite: bool = False


@dataclass(frozen=True, eq=False)
class Members:
    """An aggregate by its members, each written when it is asked for."""

    makers: tuple[Callable[[], Value], ...]


Value = Wire | Condition | Members


class _Writer:
    """Writes nodes of the value IR as nodes of a graph."""

    def __init__(self, build: FunctionBuilder) -> None:
        self.build = build
        self.parameters: dict[int, Wire] = {}
        self.values: dict[Node, Value] = {}
        self.wholes: dict[Members, Wire] = {}

    def write(self, node: Node) -> Value:
        if node.op is parameter_op:
            return self.parameters[node.attribute("index")]
        return _RULES[node.op.name](self, node)

    def wire(self, node: Node) -> Wire:
        return self.as_wire(self.values[node], node.type)

    def as_wire(self, value: Value, type: Type) -> Wire:
        if isinstance(value, Wire):
            return value
        if isinstance(value, Condition):
            return self.mask(value)
        if value not in self.wholes:
            members = [self.as_wire(make(), components(type)[0]) for make in value.makers]
            self.wholes[value] = self._composed(members, port_type(type))
        return self.wholes[value]

    def _composed(self, members: list[Wire], type: PortType) -> Wire:
        nodes = self.build._nodes
        holders = [nodes.get(member.source.node) for member in members]
        if all(holder is not None and holder.type.name == "Constant" for holder in holders):
            return self.build.constant([holder.value for holder in holders], type)  # type: ignore[union-attr]
        return self.build.apply("ComposeVector" if type is PortType.VECTOR else "ComposeMatrix", *members)

    def members(self, value: Value, type: Type) -> Members:
        if isinstance(value, Members):
            return value
        if isinstance(value, Condition):
            raise AssemblyError("a condition by component is only known to a choice")
        wire = value
        if wire.type is PortType.VECTOR:
            return Members(tuple((lambda axis=axis: self.build.component(wire, axis)) for axis in "xyz"))
        return Members(tuple((lambda index=index: self.matrix_member(wire, index)) for index in range(16)))

    def matrix_member(self, matrix: Wire, index: int) -> Wire:
        """One number of a matrix: no node reads it, so everything else is multiplied away."""
        row, column = divmod(index, 4)
        if row == 3:
            matrix, row, column = self.build.apply("Transpose", matrix), column, row
        if row == 3:
            raise AssemblyError("no node reads the last number of a matrix")
        mask = self.build.constant([1.0 if place == row * 4 + column else 0.0 for place in range(16)], PortType.MATRIX)
        alone = self.build.apply("Multiplication", matrix, mask)
        chosen = [1.0 if place == column else 0.0 for place in range(3)]
        read = self.build.apply("MatVecMultiplication", alone, self.build.constant(chosen, PortType.VECTOR))
        return self.build.component(read, "xyz"[row])

    def elementwise(self, node: Node, rule: Callable[..., Wire]) -> Value:
        """The rule on wires; vectors of other sizes go member by member."""
        if not isinstance(node.type, Vector) or node.type.size == 3:
            return rule(*[self.wire(operand) for operand in node.operands])
        parts = [self.members(self.values[operand], operand.type).makers for operand in node.operands]
        element = node.type.element

        def maker(makers: tuple[Callable[[], Value], ...]) -> Callable[[], Value]:
            return lambda: rule(*[self.as_wire(make(), element) for make in makers])

        return Members(tuple(map(maker, zip(*parts, strict=True))))

    # --- conditions ---------------------------------------------------------------------------------------------------

    def condition(self, node: Node) -> Condition:
        value = self.values[node]
        if isinstance(value, Condition):
            return value
        assert isinstance(value, Wire)
        return Condition(self.build._literal(0.5, value.type), value)

    def mask(self, condition: Condition) -> Wire:
        """1 where the condition holds, 0 elsewhere."""
        yes, no = (0.0, 1.0) if condition.opposite else (1.0, 0.0)
        return self.build.apply("Select", condition.left, condition.right, yes, no)

    def combined(self, node: Node, type: str) -> Condition:
        first, second = (self.mask(self.condition(operand)) for operand in node.operands)
        both = self.build.apply(type, first, second)
        return Condition(self.build._literal(0.5, both.type), both)

    def choose(self, node: Node) -> Value:
        condition = self.condition(node.operands[0])
        if condition.opposite:
            order = (node.operands[2], node.operands[1])
        else:
            order = (node.operands[1], node.operands[2])
        if node.type is bool_:
            then, otherwise = (self.mask(self.condition(each)) for each in order)
            chosen = self.build.apply("Select", condition.left, condition.right, then, otherwise)
            return Condition(self.build._literal(0.5, chosen.type), chosen)
        then, otherwise = self.wire(order[0]), self.wire(order[1])
        left, right = condition.left, condition.right
        if left.type is PortType.SCALAR and then.type is PortType.VECTOR:
            left, right = self.build.apply("VectorFromScalar", left), self.build.apply("VectorFromScalar", right)
        elif left.type is not then.type:
            left, right = (self.build.apply("ComposeMatrix", *[each] * 16) for each in (left, right))
        return self.build.apply("Select", left, right, then, otherwise)

    # --- single rules -------------------------------------------------------------------------------------------------

    def constant(self, node: Node) -> Value:
        value = node.attribute("value")
        if isinstance(value, bool):
            return Condition(self.build.constant(0.0), self.build.constant(1.0), opposite=not value)
        if not isinstance(value, float) or abs(value) > _LARGEST:
            raise AssemblyError(f"no constant node holds {value!r}", where=node.origin)
        return self.build.constant(value)

    def make(self, node: Node) -> Value:
        operands = node.operands
        return Members(tuple((lambda operand=operand: self.values[operand]) for operand in operands))

    def get(self, node: Node) -> Value:
        (value,) = node.operands
        return self.members(self.values[value], value.type).makers[node.attribute("index")]()

    def splat(self, node: Node) -> Value:
        (value,) = node.operands
        if value.type is bool_:
            return self.values[value]
        if isinstance(node.type, Vector) and node.type.size == 3:
            return self.build.apply("VectorFromScalar", self.wire(value))
        wire = self.wire(value)
        return Members(tuple((lambda: wire) for _ in components(node.type)))

    def matrix_vector(self, node: Node) -> Value:
        """With a fourth component of one, the affine node; otherwise sums of products."""
        matrix, vector = node.operands
        makers = self.members(self.values[vector], vector.type).makers
        parts = [self.as_wire(make(), components(vector.type)[0]) for make in makers]
        last = self.build._nodes.get(parts[3].source.node)
        if last is not None and last.type.name == "Constant" and last.value == 1.0:
            point = self._composed(parts[:3], PortType.VECTOR)
            moved = self.build.apply("MatVecMultiplication", self.wire(matrix), point)
            return Members(
                (*self.members(moved, node.type).makers, lambda: self.row_product(matrix, parts, 3)),
            )
        return Members(tuple((lambda row=row: self.row_product(matrix, parts, row)) for row in range(4)))

    def row_product(self, matrix: Node, parts: list[Wire], row: int) -> Wire:
        makers = self.members(self.values[matrix], matrix.type).makers[4 * row : 4 * row + 4]
        element = components(matrix.type)[0]
        terms = [self.as_wire(make(), element) * part for make, part in zip(makers, parts, strict=True)]
        return terms[0] + terms[1] + terms[2] + terms[3]


def _node(name: str) -> Callable[[_Writer, Node], Value]:
    return lambda writer, node: writer.elementwise(node, lambda *wires: writer.build.apply(name, *wires))


def _formula(rule: Callable[..., Wire]) -> Callable[[_Writer, Node], Value]:
    return lambda writer, node: writer.elementwise(node, lambda *wires: rule(writer.build, *wires))


def _compare(*, swapped: bool, opposite: bool) -> Callable[[_Writer, Node], Value]:
    def rule(writer: _Writer, node: Node) -> Value:
        left, right = (writer.wire(operand) for operand in node.operands)
        return Condition(right, left, opposite) if swapped else Condition(left, right, opposite)

    return rule


def _equal(opposite: bool) -> Callable[[_Writer, Node], Value]:
    def rule(writer: _Writer, node: Node) -> Value:
        left, right = (writer.wire(operand) for operand in node.operands)
        differs = writer.build.apply("Abs", left - right)
        return Condition(writer.build._literal(0.0, differs.type), differs, opposite=not opposite)

    return rule


def _inverted(writer: _Writer, node: Node) -> Value:
    condition = writer.condition(node.operands[0])
    return replace(condition, opposite=not condition.opposite)


def _round_half_even(build: FunctionBuilder, x: Wire) -> Wire:
    low = build.apply("Floor", x)
    rest = x - low
    even = low + build.apply("Mod", low, 2.0)
    return build.apply("Select", rest, 0.5, low, build.apply("Select", 0.5, rest, low + 1.0, even))


def _finite(writer: _Writer, node: Node) -> Value:
    size = writer.build.apply("Abs", writer.wire(node.operands[0]))
    return Condition(size, writer.build._literal(_LARGEST, size.type))


_NAMES = {
    "add": "Addition", "sub": "Subtraction", "mul": "Multiplication", "div": "Division",
    "min": "Min", "max": "Max", "minimum": "Min", "maximum": "Max", "clamp": "Clamp",
    "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "ArcSin", "acos": "ArcCos", "atan": "ArcTan", "atan2": "ArcTan2",
    "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "exp": "Exp", "log": "Log", "log2": "Log2", "log10": "Log10",
    "sqrt": "Sqrt", "abs": "Abs", "ceil": "Ceil", "floor": "Floor", "fract": "Fract", "sign": "Sign",
    "fmod": "Fmod", "mod": "Mod", "pow": "Pow",
}  # fmt: skip
_VECTOR_NODES = {"dot": "Dot", "cross": "Cross", "length": "Length"}
_MATRIX_NODES = {"matrix_transpose": "Transpose", "inverse": "Inverse"}

_RULES: dict[str, Callable[[_Writer, Node], Value]] = {
    **{op: _node(name) for op, name in _NAMES.items()},
    **{
        op: (lambda writer, node, name=name: writer.build.apply(name, *map(writer.wire, node.operands)))
        for op, name in {**_VECTOR_NODES, **_MATRIX_NODES}.items()
    },
    "constant": _Writer.constant,
    "make": _Writer.make,
    "get": _Writer.get,
    "splat": _Writer.splat,
    "select": _Writer.choose,
    "matrix_vector": _Writer.matrix_vector,
    "less": _compare(swapped=False, opposite=False),
    "greater": _compare(swapped=True, opposite=False),
    "greater_equal": _compare(swapped=False, opposite=True),
    "less_equal": _compare(swapped=True, opposite=True),
    "equal": _equal(opposite=False),
    "not_equal": _equal(opposite=True),
    "is_finite": _finite,
    "bit_and": lambda writer, node: writer.combined(node, "Min"),
    "bit_or": lambda writer, node: writer.combined(node, "Max"),
    "bit_not": _inverted,
    "neg": _formula(lambda build, x: -x),
    "detach": _formula(lambda build, x: x),
    "exp2": _formula(lambda build, x: build.apply("Pow", build._literal(2.0, x.type), x)),
    "trunc": _formula(lambda build, x: build.apply("Select", x, 0.0, build.apply("Ceil", x), build.apply("Floor", x))),
    "round": _formula(_round_half_even),
    "floor_div": _formula(lambda build, a, b: build.apply("Floor", a / b)),
    "hypot": _formula(lambda build, a, b: build.apply("Sqrt", a * a + b * b)),
    "copysign": _formula(lambda build, a, b: build.apply("Select", b, 0.0, -abs(a), abs(a))),
}
