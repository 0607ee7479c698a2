"""Converts functions of the value IR over scalars, vectors and 4×4 matrices to node-graph functions.

`add_ir_function` is public, for shapes written with `trace`; `gradient_function` calls it for analytic gradients. Ops
that no node can represent (loops, reads of tensors, integers) are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from livegrad.compiler import lower
from livegrad.diagnostics import SourceLocation, caller_origin
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.builder import FunctionBuilder, Wire
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.ir_writer import LARGEST, Condition, IrWriter, Members, Value, is_split, port_type
from livegrad.implicit.nodes.ports import PortType
from livegrad.ir.leaves import parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Type, Vector
from livegrad.ir.walk import nodes_of
from livegrad.passes.expand import expand_ops


def add_ir_function(
    assembly: Assembly,
    function: Function,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    name: str | None = None,
    id: int | None = None,
) -> Assembly:
    """Returns the assembly with an additional function that is converted from the value IR to nodes. `inputs` and
    `outputs` name its ports.

    The function is inlined and simplified first. The result of a comparison with NaN is unspecified, because the file
    format does not define it. No port type holds vectors of two or four numbers: an input named `size` becomes the
    scalars `size_x` and `size_y`.

    >>> from livegrad import ops
    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import Vector, f32
    >>> ball = trace(lambda p, r: ops.length(p) - r, Vector(f32, 3), f32)
    >>> list(add_ir_function(Assembly(), ball, ["pos", "radius"], ["shape"], name="ball").graph("ball").nodes)
    ['Length_1', 'Subtraction_2']
    """
    prepared = lower(function)
    prepared = expand_ops(prepared, lambda node: node.op.name not in _RULES and node.op.expand is not None)
    _require_rules(prepared)
    build = FunctionBuilder(assembly, name or function.name, id=id)
    writer = IrWriter(build, _RULES)
    for index, (name_of_port, type) in enumerate(zip(inputs, prepared.parameter_types, strict=True)):
        wires = list(build.inputs(ports_for(name_of_port, type, caller_origin())).values())
        members = tuple((lambda wire=wire: wire) for wire in wires)
        writer.parameters[index] = Members(members) if is_split(type) else wires[0]
    for node in nodes_of(prepared):
        writer.values[node] = writer.write(node)
    results: dict[str, Wire] = {}
    for name_of_port, result in zip(outputs, prepared.results, strict=True):
        ports = ports_for(name_of_port, result.type, result.origin or caller_origin())
        results |= dict(zip(ports, writer.wires(result), strict=True))
    return build.finish(**results)


def ports_for(name: str, type: Type, where: SourceLocation | None = None) -> dict[str, PortType]:
    """Returns the ports for a value: one, or one per component of a vector without a port type.

    >>> from livegrad.ir.types import f32
    >>> list(ports_for("size", Vector(f32, 2)))
    ['size_x', 'size_y']
    """
    single = port_type(type)
    if single is not None:
        return {name: single}
    if isinstance(type, Vector) and type.element.kind == "float" and type.size <= 4:
        return {f"{name}_{axis}": PortType.SCALAR for axis in "xyzw"[: type.size]}
    raise AssemblyError(
        f"no port has the type {type} of `{name}`",
        where=where,
        expected="a float, a vector of floats, or a 4×4 matrix of floats",
    )


# Node graphs are straight-line code, so control flow has no node.
_ALTERNATIVES = {
    "for_loop": "unroll the loop: for i in lg.unroll(range(4))",
    "while_loop": "unroll the loop: for i in lg.unroll(range(4))",
    "cond": "compute both sides and select one: lg.select(condition, then, otherwise)",
    "switch": "compute all sides and select one: lg.select(condition, then, otherwise)",
}


def _require_rules(function: Function) -> None:
    """Raises unless every op of the function has a rule."""
    for node in nodes_of(function):
        if node.op is not parameter_op and node.op.name not in _RULES:
            raise AssemblyError(
                f"3MF files have no node for `{node.op.name}`", where=node.origin, help=_ALTERNATIVES.get(node.op.name)
            )


def _node_rule(name: str) -> Callable[[IrWriter, Node], Value]:
    return lambda writer, node: writer.elementwise(node, lambda *wires: writer.build.apply(name, *wires))


def _formula_rule(rule: Callable[..., Wire]) -> Callable[[IrWriter, Node], Value]:
    return lambda writer, node: writer.elementwise(node, lambda *wires: rule(writer.build, *wires))


def _comparison_rule(rule: Callable[..., Condition]) -> Callable[[IrWriter, Node], Value]:
    def convert(writer: IrWriter, node: Node) -> Value:
        if not is_split(node.operands[0].type):
            return rule(*map(writer.wire, node.operands))
        parts = [writer.members(writer.values[operand]).makers for operand in node.operands]
        return writer.map_members(lambda *values: rule(*map(writer.as_wire, values)), *parts)

    return convert


def _ordering_rule(*, swapped: bool, opposite: bool) -> Callable[[IrWriter, Node], Value]:
    return _comparison_rule(
        lambda left, right: Condition(right, left, opposite) if swapped else Condition(left, right, opposite)
    )


def _equality_rule(opposite: bool) -> Callable[[IrWriter, Node], Value]:
    def rule(left: Wire, right: Wire) -> Condition:
        differs = abs(left - right)
        return Condition(left.builder._literal(0.0, differs.type), differs, opposite=not opposite)

    return _comparison_rule(rule)


def _negate_condition(writer: IrWriter, node: Node) -> Value:
    return writer.conditions(node, lambda condition: replace(condition, opposite=not condition.opposite))


def _round_half_even(build: FunctionBuilder, x: Wire) -> Wire:
    floor = build.apply("Floor", x)
    fraction = x - floor
    even = floor + build.apply("Mod", floor, 2.0)
    return build.apply("Select", fraction, 0.5, floor, build.apply("Select", 0.5, fraction, floor + 1.0, even))


def _is_finite(value: Wire) -> Condition:
    magnitude = abs(value)
    return Condition(magnitude, value.builder._literal(LARGEST, magnitude.type))


_ELEMENTWISE_NODES = {
    "add": "Addition", "sub": "Subtraction", "mul": "Multiplication", "div": "Division",
    "min": "Min", "max": "Max", "minimum": "Min", "maximum": "Max",
    "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "ArcSin", "acos": "ArcCos", "atan": "ArcTan", "atan2": "ArcTan2",
    "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "exp": "Exp", "log": "Log", "log2": "Log2", "log10": "Log10",
    "sqrt": "Sqrt", "abs": "Abs", "ceil": "Ceil", "floor": "Floor", "fract": "Fract", "sign": "Sign",
    "fmod": "Fmod", "mod": "Mod", "pow": "Pow",
}  # fmt: skip
_FIXED_NODES = {"cross": "Cross", "matrix_transpose": "Transpose", "inverse": "Inverse"}

_RULES: dict[str, Callable[[IrWriter, Node], Value]] = {
    **{op: _node_rule(name) for op, name in _ELEMENTWISE_NODES.items()},
    **{
        op: (lambda writer, node, name=name: writer.build.apply(name, *map(writer.wire, node.operands)))
        for op, name in _FIXED_NODES.items()
    },
    "constant": IrWriter.constant,
    "make": IrWriter.make,
    "get": IrWriter.get,
    "splat": IrWriter.splat,
    "select": IrWriter.select,
    "matrix_vector": IrWriter.matrix_vector,
    "clamp": IrWriter.clamp,
    "dot": IrWriter.dot,
    "length": IrWriter.length,
    "less": _ordering_rule(swapped=False, opposite=False),
    "greater": _ordering_rule(swapped=True, opposite=False),
    "greater_equal": _ordering_rule(swapped=False, opposite=True),
    "less_equal": _ordering_rule(swapped=True, opposite=True),
    "equal": _equality_rule(opposite=False),
    "not_equal": _equality_rule(opposite=True),
    "is_finite": _comparison_rule(_is_finite),
    "bit_and": lambda writer, node: writer.combine_conditions(node, "Min"),
    "bit_or": lambda writer, node: writer.combine_conditions(node, "Max"),
    "bit_not": _negate_condition,
    "neg": _formula_rule(lambda build, x: -x),
    "detach": _formula_rule(lambda build, x: x),
    "exp2": _formula_rule(lambda build, x: build.apply("Pow", build._literal(2.0, x.type), x)),
    "trunc": _formula_rule(
        lambda build, x: build.apply("Select", x, 0.0, build.apply("Ceil", x), build.apply("Floor", x))
    ),
    "round": _formula_rule(_round_half_even),
    "floor_div": _formula_rule(lambda build, a, b: build.apply("Floor", a / b)),
    "hypot": _formula_rule(lambda build, a, b: build.apply("Sqrt", a * a + b * b)),
    "copysign": _formula_rule(lambda build, a, b: build.apply("Select", b, 0.0, -abs(a), abs(a))),
}
