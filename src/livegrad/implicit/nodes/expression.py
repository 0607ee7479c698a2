"""Parses expressions: `length(pos) - radius` becomes a graph of nodes.

`add_expression` is public. The text uses Python's grammar and is parsed without executing it.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any

from livegrad.diagnostics import TextOrigin
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.builder import FunctionBuilder, Wire
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.node_types import NODE_TYPES
from livegrad.implicit.nodes.ports import PortType
from livegrad.ir.recursion import deep_recursion

_LONGEST_TEXT = 1 << 20
_DEEPEST = 3000  # levels of the syntax tree, each of which takes three calls or four
_NUMBERS = {"pi": math.pi, "e": math.e, "tau": math.tau}
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "Addition",
    ast.Sub: "Subtraction",
    ast.Mult: "Multiplication",
    ast.Div: "Division",
    ast.Mod: "Mod",
    ast.Pow: "Pow",
}
# Functions have the names of shading languages: `ArcTan2` is `atan2`.
_NODES = {type.tag: name for name, type in NODE_TYPES.items() if type.compute is not None}
Value = Wire | float


def add_expression(
    assembly: Assembly,
    name: str,
    text: str,
    inputs: Mapping[str, PortType | str],
    *,
    output: str = "shape",
    id: int | None = None,
) -> Assembly:
    """Returns the assembly with an additional function that computes the expression.

    Lines before the last may name values: `d = length(pos)`. The expression may call functions of the assembly by name,
    with inputs by position or by name. A call returns the only output of the function; `f(pos).shape` selects one of
    several.

    >>> shapes = add_expression(Assembly(), "ball", "d = length(pos - vector(1, 0, 0)); d - 2", {"pos": "vector"})
    >>> len(shapes.graph("ball").nodes)
    5
    """
    if len(text) > _LONGEST_TEXT:
        raise AssemblyError("the expression is too long", expected=f"at most {_LONGEST_TEXT} characters")
    try:
        statements = ast.parse(text.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        why = getattr(error, "msg", None) or str(error)
        raise AssemblyError(f"`{name}` is not an expression: {why}", where=TextOrigin(name, line)) from None
    _require_depth(statements, name)
    build = FunctionBuilder(assembly, name, id=id)
    reader = _Reader(build, dict(build.inputs(inputs)), name)
    with deep_recursion():
        value = reader.run(statements)
    return build.finish(**{output: value})


def _require_depth(statements: list[ast.stmt], name: str) -> None:
    """Raises if the syntax tree is so deep that reading it could exhaust the stack. Long sums are deep, too."""
    level: list[ast.AST] = list(statements)
    for _ in range(_DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise AssemblyError(
        f"the expression of `{name}` is nested too deeply",
        where=TextOrigin(name, 1),
        expected=f"at most {_DEEPEST} levels",
        help="name parts of it: a = ...; b = ...",
    )


class _Reader:
    """Converts the syntax tree to nodes."""

    def __init__(self, build: FunctionBuilder, names: dict[str, Value], file: str) -> None:
        self.build = build
        self.names = names
        self.file = file

    def run(self, statements: list[ast.stmt]) -> Value:
        for index, statement in enumerate(statements):
            if isinstance(statement, ast.Expr) and index == len(statements) - 1:
                return self.value(statement.value)
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.names[name] = self.value(value)
                case _:
                    raise self.wrong(statement, "only `name = value` may come before the last expression")
        raise AssemblyError(f"`{self.file}` has no expression to compute", where=TextOrigin(self.file, 1))

    def wrong(self, node: ast.AST, what: str) -> AssemblyError:
        return AssemblyError(
            what, where=TextOrigin(self.file, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1)
        )

    def value(self, node: ast.expr) -> Value:
        try:
            return self._value(node)
        except AssemblyError as error:
            if isinstance(error.where, TextOrigin):
                raise
            raise self.wrong(node, f"{error.what}{f'; {error.help}' if error.help else ''}") from None

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return float(number)
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.Name(id=name) if name in _NUMBERS:
                return _NUMBERS[name]
            case ast.Name(id=name):
                raise self.wrong(node, f"nothing is named `{name}`; there are {', '.join(self.names) or 'no names'}")
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.value(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.value(operand)
            case ast.BinOp(op=op, left=left, right=right) if type(op) in _OPERATORS:
                return self.apply(node, _OPERATORS[type(op)], [self.value(left), self.value(right)])
            case ast.Attribute(value=ast.Call() as call, attr=port) if self.called(call) is not None:
                return self.call(call, port)
            case ast.Attribute(value=vector, attr="x" | "y" | "z" as axis):
                wire = self.value(vector)
                if not isinstance(wire, Wire) or wire.type is not PortType.VECTOR:
                    raise self.wrong(node, f"only a vector has a component `{axis}`")
                return self.build.component(wire, axis)
            case ast.IfExp(test=ast.Compare(left=left, ops=[op], comparators=[right]), body=body, orelse=orelse):
                return self.choice(node, op, [self.value(part) for part in (left, right, body, orelse)])
            case ast.Call():
                return self.call(node, None)
        raise self.wrong(node, f"`{ast.unparse(node)[:60]}` is not supported in an expression")

    def choice(self, node: ast.expr, op: ast.cmpop, parts: list[Value]) -> Value:
        left, right, body, orelse = parts
        match op:
            case ast.Lt():
                return self.apply(node, "Select", [left, right, body, orelse])
            case ast.Gt():
                return self.apply(node, "Select", [right, left, body, orelse])
            case ast.GtE():
                return self.apply(node, "Select", [left, right, orelse, body])
            case ast.LtE():
                return self.apply(node, "Select", [right, left, orelse, body])
        raise self.wrong(node, "only <, <=, > and >= are supported in a condition")

    def apply(self, node: ast.expr, name: str, operands: list[Value]) -> Value:
        if all(isinstance(operand, float) for operand in operands):
            operands = [self.build.constant(operands[0]), *operands[1:]]
        return self.build.apply(name, *operands)

    def called(self, node: ast.Call) -> Any:
        """The function of the assembly that a call refers to, or None."""
        if not isinstance(node.func, ast.Name):
            return None
        matches = [f for f in self.build.base.functions.values() if f.name == node.func.id]
        return matches[0] if len(matches) == 1 else None

    def call(self, node: ast.Call, port: str | None) -> Value:
        if not isinstance(node.func, ast.Name):
            raise self.wrong(node, "only functions can be called")
        function = self.called(node)
        if function is None:
            return self.native(node, node.func.id)
        arguments = dict(zip(function.inputs, (self.value(argument) for argument in node.args), strict=False))
        if len(node.args) > len(function.inputs):
            raise self.wrong(node, f"`{function.name}` takes {len(function.inputs)} arguments")
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg in arguments:
                raise self.wrong(node, f"argument `{keyword.arg}` is given twice or has no name")
            arguments[keyword.arg] = self.value(keyword.value)
        outputs = self.build.call(function.id, arguments)
        if port is None and len(outputs) != 1:
            raise self.wrong(node, f"`{function.name}` has several outputs; choose one: {', '.join(outputs)}")
        chosen = next(iter(outputs)) if port is None else port
        if chosen not in outputs:
            raise self.wrong(node, f"`{function.name}` has no output `{chosen}`; there are {', '.join(outputs)}")
        return outputs[chosen]

    def native(self, node: ast.Call, name: str) -> Value:
        if node.keywords:
            raise self.wrong(node, f"`{name}` takes its arguments by position")
        operands = [self.value(argument) for argument in node.args]
        if name == "vector":
            return self.vector(node, operands)
        if name not in _NODES:
            raise self.wrong(node, f"no function `{name}`; there are vector, {', '.join(sorted(_NODES))}")
        return self.apply(node, _NODES[name], operands)

    def vector(self, node: ast.Call, operands: list[Value]) -> Value:
        if len(operands) == 1:
            return self.build.apply("VectorFromScalar", operands[0])
        if len(operands) != 3:
            raise self.wrong(node, "a vector has one or three numbers")
        if all(isinstance(operand, float) for operand in operands):
            return self.build.constant(operands, PortType.VECTOR)
        return self.build.apply("ComposeVector", *operands)
