"""Parses IR text to functions and modules. Nodes are interned, so parsing printed text returns the printed object.

Invalid text always raises a livegrad error with the line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn

from livegrad.diagnostics import LivegradError, ParseError
from livegrad.ir.leaves import parameter, parameter_op
from livegrad.ir.node import Attribute, Function, Key, Module, Node, make_node
from livegrad.ir.op import Op
from livegrad.ir.propagate_lines import propagating_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.text.lexing import Cursor, guess
from livegrad.ir.text.terms import TermReader
from livegrad.ir.types import Type

_VALUE = re.compile(r"%[A-Za-z0-9_.]+")
# The fast path: most lines of a large function match this pattern and have a type that occurred before.
_PLAIN_LINE = re.compile(r"(%[\w.]+) = (\w+)\((%[\w.]+(?:, %[\w.]+)*)?\): ([^\n#%]*)\n\s*", re.ASCII)

Attributes = tuple[tuple[str, Attribute], ...]


def parse_function(text: str, *, file: str = "<text>", keys: Mapping[str, Key] | None = None) -> Function:
    """Parses IR text and returns the exported function, or the last one if none is exported.

    `keys` maps `$labels` to keys (see `key_labels`); other labels get fresh keys.

    >>> import livegrad as lg
    >>> f = lg.ir.trace(lambda x: x * 2.0, lg.f32)
    >>> lg.ir.parse_function(lg.ir.print_function(f)) == f
    True
    """
    parser = _Parser(text, file, keys)
    parser.read_all()
    if len(parser.exports) > 1:
        first, second = parser.exports[:2]
        parser.cursor.fail(
            "text for one function must export one function",
            found=f"@{first.name} and @{second.name}",
            help="use parse_module",
        )
    if not parser.functions:
        parser.cursor.refuse("a function")
    return parser.exports[0] if parser.exports else list(parser.functions.values())[-1]


def parse_module(text: str, *, file: str = "<text>", keys: Mapping[str, Key] | None = None) -> Module:
    """Parses a module: the functions marked `export`."""
    parser = _Parser(text, file, keys)
    parser.read_all()
    return Module(tuple(parser.exports))


def parse_type(text: str, *, file: str = "<text>") -> Type:
    """Parses a type.

    >>> parse_type("tensor<f32, [2*n, 3]>")
    tensor<f32, [2*n, 3]>
    """
    parser = _Parser(text, file, None)
    type = parser.terms.type()
    if not parser.cursor.at_end:
        parser.cursor.refuse("the end of the type")
    return type


class _Parser:
    """Reads a text and collects its functions by name."""

    def __init__(self, text: str, file: str, keys: Mapping[str, Key] | None) -> None:
        self.cursor = Cursor(text, file)
        self.functions: dict[str, Function] = {}
        self.exports: list[Function] = []
        # No back references: functions must not wait for the cycle collector.
        self.terms = TermReader(self.cursor, self.functions, dict(keys or {}))
        self._types: dict[str, Type] = {}

    def read_all(self) -> None:
        while not self.cursor.at_end:
            if self.cursor.peek_word() == "order":
                self._read_order()
            else:
                self._read_function()

    def _read_order(self) -> None:
        """Reads the last line of a module whose functions are printed in another order."""
        cursor = self.cursor
        start = cursor.position
        cursor.word("order")
        ordered: list[Function] = []
        while not ordered or cursor.take(","):
            ordered.append(self.terms.function())
        if sorted(map(id, ordered)) != sorted(map(id, self.exports)):
            cursor.fail(
                "the order of a module must name its exported functions",
                at=start,
                expected=", ".join("@" + function.name for function in self.exports),
                found=", ".join("@" + function.name for function in ordered),
            )
        self.exports = ordered

    def _read_function(self) -> None:
        cursor = self.cursor
        exported = cursor.peek_word() == "export"
        if exported:
            cursor.word("export")
        if cursor.peek_word() != "function":
            cursor.refuse("`function`" if exported else "`function` or `export function`")
        cursor.word("function")
        start = cursor.position
        cursor.expect("@")
        name = cursor.name("a function's name")
        if name in self.functions:
            cursor.fail(f"function `@{name}` is defined twice", at=start, help="give one of them another name")
        with propagating_lines(()) as lines:
            function = lines.keep_outer(_FunctionParser(self, name).read())
        self.functions[name] = function
        if exported:
            self.exports.append(function)

    def type(self) -> Type:
        """Reads a type and caches its text, because most lines repeat a type."""
        start = self.cursor.position
        type = self.terms.type()
        self._types[self.cursor.text[start : self.cursor.position].rstrip()] = type
        return type

    def find_type(self, text: str) -> Type | None:
        return self._types.get(text)


class _FunctionParser:
    """Reads one function and collects its values by name."""

    def __init__(self, parser: _Parser, name: str) -> None:
        self.parser = parser
        self.cursor = parser.cursor
        self.name = name
        self.values: dict[str, Node] = {}

    def read(self) -> Function:
        """Reads from the parameters to the closing brace."""
        cursor = self.cursor
        parameters = self._parameters()
        start = cursor.position
        declared = self.parser.type() if cursor.take("->") else None
        cursor.expect("{")
        while cursor.peek_word() != "return":
            if not self._plain_line():
                self._line()
        cursor.word("return")
        results: list[Node] = []
        while not cursor.take("}"):
            if results:
                cursor.expect(",")
            results.append(self._operand())
        function = Function(self.name, parameters, tuple(results))
        if declared is not None and declared is not function.result_type:
            self._mismatch(
                f"`@{self.name}` does not return the type that it declares", start, declared, function.result_type
            )
        return function

    def _parameters(self) -> tuple[Node, ...]:
        cursor = self.cursor
        cursor.expect("(")
        parameters: list[Node] = []
        while not cursor.take(")"):
            if parameters:
                cursor.expect(",")
            name = self._new_name("a parameter such as `%x: f32`")
            cursor.expect(":")
            node = parameter(len(parameters), self.parser.type())
            self.values[name] = node
            parameters.append(node)
        return tuple(parameters)

    def _new_name(self, expected: str) -> str:
        start = self.cursor.position
        match = self.cursor.match(_VALUE)
        if match is None:
            self.cursor.refuse(expected)
        if match[0] in self.values:
            self.cursor.fail(f"`{match[0]}` is defined twice in `@{self.name}`", at=start, help="use a different name")
        return match[0]

    def _operand(self) -> Node:
        start = self.cursor.position
        match = self.cursor.match(_VALUE)
        if match is None:
            self.cursor.refuse("a value such as `%0`")
        value = self.values.get(match[0])
        if value is None:
            help = guess(match[0], self.values) or "values are defined above their uses"
            self.cursor.fail(f"`{match[0]}` is not defined in `@{self.name}`", at=start, help=help)
        return value

    def _plain_line(self) -> bool:
        """Reads a line of the common form with one match. False: `_line` has to read it or report an error."""
        cursor = self.cursor
        match = _PLAIN_LINE.match(cursor.text, cursor.position)
        if match is None:
            return False
        name, op_name, listed, type_text = match.groups()
        values, op = self.values, Op.table.get(op_name)
        type = self.parser.find_type(type_text.rstrip())
        if type is None or op is None or op is parameter_op or name in values:
            return False
        try:
            operands = tuple([values[operand] for operand in listed.split(", ")]) if listed else ()
        except KeyError:
            return False
        node = self._node(op, operands, (), cursor.position)
        if node.type is not type:
            return False
        values[name] = node
        cursor.position = match.end()
        if cursor.text.startswith("#", cursor.position):
            cursor.skip_space()
        return True

    def _line(self) -> None:
        cursor = self.cursor
        start = cursor.position
        name = self._new_name("a value such as `%0 = ...`, or `return`")
        cursor.expect("=")
        op = self._op()
        cursor.expect("(")
        operands: list[Node] = []
        while cursor.text.startswith("%", cursor.position):
            operands.append(self._operand())
            if not cursor.take(","):
                break
        if operands and not cursor.text.startswith((";", ")"), cursor.position):
            cursor.refuse("`,`, `;` or `)`", help="attributes come after the operands and a `;`")
        if operands:
            cursor.take(";")
        attributes = self._attributes()
        node = self._node(op, tuple(operands), attributes, start)
        at = cursor.position
        if cursor.take(":") and (declared := self.parser.type()) is not node.type:
            self._mismatch(f"`{op.name}` has a different type", at, node.type, declared)
        self.values[name] = node

    def _op(self) -> Op:
        start = self.cursor.position
        name = self.cursor.word("an op")
        if name == parameter_op.name:
            self.cursor.fail("a parameter is listed after the function's name", at=start, help="write (%x: f32) there")
        op = Op.table.get(name)
        if op is None:
            help = guess(name, Op.table) or "the ops are defined by `import livegrad.ops`"
            self.cursor.fail(f"no op named `{name}`", at=start, help=help)
        return op

    def _attributes(self) -> Attributes:
        cursor = self.cursor
        attributes: dict[str, Attribute] = {}
        while not cursor.take(")"):
            if attributes:
                cursor.expect(",")
            start = cursor.position
            name = cursor.word("an attribute such as `axis=0`, or `)`")
            if name in attributes:
                cursor.fail(f"attribute `{name}` is given twice", at=start, help="remove one of them")
            cursor.expect("=")
            attributes[name] = self.parser.terms.attribute()
        return tuple(sorted(attributes.items()))

    def _node(self, op: Op, operands: tuple[Node, ...], attributes: Attributes, at: int) -> Node:
        """Creates a node whose origin is the current text location, where errors of the op are reported too."""
        try:
            with originating_from((self.cursor.location(at, self.name),)):
                return make_node(op, operands, attributes)
        except LivegradError as error:
            if error.where is not None:
                raise
            where = self.cursor.location(at, self.name)
            raise error.__class__(
                error.what, where=where, expected=error.expected, found=error.found, help=error.help
            ) from None
        except Exception as error:  # a type rule failed on attributes of unexpected types
            raise ParseError(
                f"`{op.name}` does not accept these operands and attributes",
                where=self.cursor.location(at, self.name),
                found=f"{type(error).__name__}: {error}",
                help="print a valid node of this op to see its attributes",
            ) from error

    def _mismatch(self, what: str, at: int, expected: Type, found: Type) -> NoReturn:
        self.cursor.fail(what, at=at, expected=str(expected), found=str(found), help="correct the type or omit it")
