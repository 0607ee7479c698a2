"""Parses expressions such as `length(pos) - radius` to node graphs.

`add_expression` is public. Expressions use Python's grammar; they are parsed, never executed.
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

_MAX_LENGTH = 1 << 20
_MAX_DEPTH = 3000  # levels of the syntax tree; each takes three or four nested calls
_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "Addition",
    ast.Sub: "Subtraction",
    ast.Mult: "Multiplication",
    ast.Div: "Division",
    ast.Mod: "Mod",
    ast.Pow: "Pow",
}
# Functions have their names in shading languages: `ArcTan2` is `atan2`.
_NODES_BY_NAME = {type.tag: name for name, type in NODE_TYPES.items() if type.compute is not None}
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

    Statements before the expression may name values: `d = length(pos)`. The expression may call functions of the
    assembly by name, with positional or keyword arguments. A call returns the only output of the function; if there are
    several, `f(pos).shape` selects one.

    >>> shapes = add_expression(Assembly(), "ball", "d = length(pos - vector(1, 0, 0)); d - 2", {"pos": "vector"})
    >>> len(shapes.graph("ball").nodes)
    5
    """
    if len(text) > _MAX_LENGTH:
        raise AssemblyError("the expression is too long", expected=f"at most {_MAX_LENGTH} characters")
    try:
        statements = ast.parse(text.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        reason = getattr(error, "msg", None) or str(error)
        raise AssemblyError(f"`{name}` is not an expression: {reason}", where=TextOrigin(name, line)) from None
    _require_depth(statements, name)
    build = FunctionBuilder(assembly, name, id=id)
    converter = _Converter(build, dict(build.inputs(inputs)), name)
    with deep_recursion():
        value = converter.convert_statements(statements)
    return build.finish(**{output: value})


def _require_depth(statements: list[ast.stmt], name: str) -> None:
    """Raises if the syntax tree is so deep that converting it could exhaust the stack. Long sums are deep too."""
    level: list[ast.AST] = list(statements)
    for _ in range(_MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise AssemblyError(
        f"the expression of `{name}` is nested too deeply",
        where=TextOrigin(name, 1),
        expected=f"at most {_MAX_DEPTH} levels",
        help="name subexpressions: a = ...; b = ...",
    )


class _Converter:
    """Converts a syntax tree to nodes."""

    def __init__(self, build: FunctionBuilder, names: dict[str, Value], file: str) -> None:
        self.build = build
        self.names = names
        self.file = file

    def convert_statements(self, statements: list[ast.stmt]) -> Value:
        for index, statement in enumerate(statements):
            if isinstance(statement, ast.Expr) and index == len(statements) - 1:
                return self.convert(statement.value)
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.names[name] = self.convert(value)
                case _:
                    raise self.error_at(statement, "only `name = value` may come before the last expression")
        raise AssemblyError(f"`{self.file}` has no expression to compute", where=TextOrigin(self.file, 1))

    def error_at(self, node: ast.AST, message: str) -> AssemblyError:
        return AssemblyError(
            message, where=TextOrigin(self.file, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1)
        )

    def convert(self, node: ast.expr) -> Value:
        try:
            return self._convert(node)
        except AssemblyError as error:
            if isinstance(error.where, TextOrigin):
                raise
            raise self.error_at(node, f"{error.what}{f'; {error.help}' if error.help else ''}") from None

    def _convert(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return float(number)
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.Name(id=name) if name in _CONSTANTS:
                return _CONSTANTS[name]
            case ast.Name(id=name):
                raise self.error_at(node, f"undefined name `{name}`; defined names: {', '.join(self.names) or 'none'}")
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.convert(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.convert(operand)
            case ast.BinOp(op=op, left=left, right=right) if type(op) in _OPERATORS:
                return self.apply(node, _OPERATORS[type(op)], [self.convert(left), self.convert(right)])
            case ast.Attribute(value=ast.Call() as call, attr=port) if self.find_callee(call) is not None:
                return self.convert_call(call, port)
            case ast.Attribute(value=vector, attr="x" | "y" | "z" as axis):
                wire = self.convert(vector)
                if not isinstance(wire, Wire) or wire.type is not PortType.VECTOR:
                    raise self.error_at(node, f"only a vector has a component `{axis}`")
                return self.build.component(wire, axis)
            case ast.IfExp(test=ast.Compare(left=left, ops=[op], comparators=[right]), body=body, orelse=orelse):
                return self.convert_conditional(node, op, [self.convert(part) for part in (left, right, body, orelse)])
            case ast.Call():
                return self.convert_call(node, None)
        raise self.error_at(node, f"`{ast.unparse(node)[:60]}` is not supported in an expression")

    def convert_conditional(self, node: ast.expr, op: ast.cmpop, parts: list[Value]) -> Value:
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
        raise self.error_at(node, "only <, <=, > and >= are supported in a condition")

    def apply(self, node: ast.expr, name: str, operands: list[Value]) -> Value:
        if all(isinstance(operand, float) for operand in operands):
            operands = [self.build.constant(operands[0]), *operands[1:]]
        return self.build.apply(name, *operands)

    def find_callee(self, node: ast.Call) -> Any:
        """The function of the assembly that a call refers to, or None."""
        if not isinstance(node.func, ast.Name):
            return None
        matches = [f for f in self.build.base.functions.values() if f.name == node.func.id]
        return matches[0] if len(matches) == 1 else None

    def convert_call(self, node: ast.Call, port: str | None) -> Value:
        if not isinstance(node.func, ast.Name):
            raise self.error_at(node, "only functions can be called")
        function = self.find_callee(node)
        if function is None:
            return self.convert_node_call(node, node.func.id)
        arguments = dict(zip(function.inputs, (self.convert(argument) for argument in node.args), strict=False))
        if len(node.args) > len(function.inputs):
            raise self.error_at(node, f"`{function.name}` takes {len(function.inputs)} arguments, got {len(node.args)}")
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg in arguments:
                raise self.error_at(node, f"argument `{keyword.arg}` is repeated or has no name")
            arguments[keyword.arg] = self.convert(keyword.value)
        outputs = self.build.call(function.id, arguments)
        if port is None and len(outputs) != 1:
            raise self.error_at(node, f"`{function.name}` has several outputs; select one of {', '.join(outputs)}")
        output = next(iter(outputs)) if port is None else port
        if output not in outputs:
            raise self.error_at(node, f"`{function.name}` has no output `{output}`; outputs: {', '.join(outputs)}")
        return outputs[output]

    def convert_node_call(self, node: ast.Call, name: str) -> Value:
        if node.keywords:
            raise self.error_at(node, f"`{name}` takes positional arguments only")
        operands = [self.convert(argument) for argument in node.args]
        if name == "vector":
            return self.convert_vector(node, operands)
        if name not in _NODES_BY_NAME:
            raise self.error_at(
                node, f"undefined function `{name}`; defined functions: vector, {', '.join(sorted(_NODES_BY_NAME))}"
            )
        return self.apply(node, _NODES_BY_NAME[name], operands)

    def convert_vector(self, node: ast.Call, operands: list[Value]) -> Value:
        if len(operands) == 1:
            return self.build.apply("VectorFromScalar", operands[0])
        if len(operands) != 3:
            raise self.error_at(node, f"`vector` takes one or three arguments, got {len(operands)}")
        if all(isinstance(operand, float) for operand in operands):
            return self.build.constant(operands, PortType.VECTOR)
        return self.build.apply("ComposeVector", *operands)
