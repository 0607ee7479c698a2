"""Parses the terms of IR text: types, sizes, numbers, strings, names and tuples.

`parsing` reads statements and uses a `TermReader` for their parts.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping

from livegrad.diagnostics import LivegradError
from livegrad.ir.dimension import Dimension, Size
from livegrad.ir.node import Attribute, Function, Key
from livegrad.ir.text.lexing import Cursor, guess
from livegrad.ir.types import Array, Matrix, Scalar, Struct, Tape, Tensor, Tuple, Type, Vector
from livegrad.ir.types.scalars import SCALARS

_NUMBER = re.compile(
    r"-?(?:0x[0-9a-f]+|inf|nan(?:\(0x(?P<bits>[0-9a-f]{16})\))?|\d+(?P<point>\.\d*)?(?P<exponent>e[+-]?\d+)?)(?![\w.])",
    re.ASCII,
)
_STARTS_NUMBER = re.compile(r"-?(?:\d|(?:inf|nan)(?![\w.]))", re.ASCII)
_SYMBOL = re.compile(r"[^\W\d]\w*")
_MAX_DEPTH = 64  # each level takes five Python frames
_NAMED_VALUES = {"none": None, "true": True, "false": False}


class TermReader:
    """Reads types and attribute values. `functions` are those read so far; new labels create keys."""

    def __init__(self, cursor: Cursor, functions: Mapping[str, Function], keys: dict[str, Key]) -> None:
        self.cursor = cursor
        self._functions = functions
        self._keys = keys
        self._depth = 0

    def attribute(self) -> Attribute:
        """Reads the value of an attribute."""
        cursor = self.cursor
        start = cursor.position
        character = cursor.text[start : start + 1]
        if character == '"':
            return cursor.string("a string")
        if character == "[":
            return self._nested(self._tuple)
        if character == "@":
            return self.function()
        if cursor.take("$"):
            label = cursor.name("a key's label")
            return self._keys.setdefault(label, Key(label))
        if cursor.take("<"):
            return self._bracketed_size(start)
        if _STARTS_NUMBER.match(cursor.text, start):
            return self.number()
        token = cursor.peek_word() or ""
        if token in _NAMED_VALUES:
            cursor.word("a value")
            return _NAMED_VALUES[token]
        if token == "complex":
            return self._complex()
        return self.type("a value")

    def function(self) -> Function:
        """Reads a reference to an earlier function, such as `@step`."""
        start = self.cursor.position
        self.cursor.expect("@")
        name = self.cursor.name("a function's name")
        defined = self._functions.get(name)
        if defined is None:
            self.cursor.fail(f"no function `@{name}` above", at=start, help=guess("@" + name, self._functions, "@"))
        return defined

    def _nested(self, read: Callable[[], Attribute]) -> Attribute:
        if self._depth >= _MAX_DEPTH:
            self.cursor.fail(
                f"nested more than {_MAX_DEPTH} deep", help="name the inner parts with functions or structs"
            )
        self._depth += 1
        value = read()
        self._depth -= 1
        return value

    def _tuple(self) -> tuple[Attribute, ...]:
        self.cursor.expect("[")
        return tuple(self._read_list("]", self.attribute))

    def _read_list(self, end: str, read: Callable[[], Attribute]) -> list[Attribute]:
        """Reads comma-separated items, with an optional trailing comma, up to the closing bracket."""
        items: list[Attribute] = []
        while not self.cursor.take(end):
            if items:
                self.cursor.expect(",")
                if self.cursor.take(end):
                    break
            items.append(read())
        return items

    def number(self) -> int | float:
        match = self.cursor.match(_NUMBER)
        if match is None:
            self.cursor.refuse("a number")
        text = match[0]
        if match["bits"]:
            return struct.unpack("<d", int(match["bits"], 16).to_bytes(8, "little"))[0]
        if match["point"] or match["exponent"] or text.endswith(("inf", "nan")):
            return float(text)
        return self._integer(text, match.start())

    def _integer(self, text: str, start: int) -> int:
        try:
            return int(text, 16 if "0x" in text else 10)
        except ValueError:  # Python's limit on the length of decimals
            self.cursor.fail("a decimal integer of too many digits", at=start, help="write it in hexadecimal, 0x...")

    def _complex(self) -> complex:
        cursor = self.cursor
        cursor.word("complex")
        cursor.expect("(")
        real = self._real_part()
        cursor.expect(",")
        imaginary = self._real_part()
        cursor.expect(")")
        return complex(real, imaginary)

    def _real_part(self) -> float:
        start = self.cursor.position
        part = self.number()
        if not isinstance(part, float):
            self.cursor.fail(
                "the parts of a complex number are floats", at=start, found=str(part), help=f"write {part}.0"
            )
        return part

    def _bracketed_size(self, start: int) -> Dimension:
        size = self.size()
        self.cursor.expect(">")
        if not isinstance(size, Dimension):
            self.cursor.fail("a size in <> is symbolic", at=start, found=str(size), help=f"write {size} by itself")
        return size

    def size(self) -> Size:
        """Reads a polynomial over named sizes, such as `2*n*m - n + 4`."""
        negative = self.cursor.take("-")
        total = self._product()
        if negative:
            total = -1 * total
        while True:
            if self.cursor.take("+"):
                total = total + self._product()
            elif self.cursor.take("-"):
                total = total - self._product()
            else:
                return total

    def _product(self) -> Size:
        product = self._factor()
        while self.cursor.take("*"):
            product = product * self._factor()
        return product

    def _factor(self) -> Size:
        start = self.cursor.position
        if self.cursor.text[start : start + 1].isdecimal():
            number = self.number()
            return (
                number
                if isinstance(number, int)
                else self.cursor.fail("a size must be an integer", at=start, found=str(number))
            )
        match = self.cursor.match(_SYMBOL)
        if match is None or not match[0].isidentifier():
            self.cursor.refuse("a size: an integer or a name")
        return Dimension.symbol(match[0])

    def type(self, expected: str = "a type") -> Type:
        cursor = self.cursor
        if cursor.text.startswith("(", cursor.position):
            return self._nested(self._tuple_type)
        token = cursor.peek_word() or ""
        if token in SCALARS:
            cursor.word("a type")
            return SCALARS[token]
        readers = {
            "vec": self._vector,
            "mat": self._matrix,
            "array": self._array,
            "tensor": self._tensor,
            "tape": self._tape,
            "struct": self._struct,
        }
        if token not in readers:
            cursor.refuse(expected, help="types are " + ", ".join([*SCALARS, *readers, "(tuple, of, types)"]))
        start = cursor.position
        cursor.word("a type")
        try:
            return self._nested(readers[token])
        except LivegradError as error:
            if error.where is not None:
                raise
            cursor.fail(error.what, at=start, expected=error.expected, found=error.found, help=error.help)

    def _tuple_type(self) -> Tuple:
        self.cursor.expect("(")
        return Tuple(tuple(self._read_list(")", self.type)))

    def _element(self) -> Type:
        self.cursor.expect("<")
        return self.type()

    def _scalar_element(self) -> Scalar:
        start = self.cursor.position
        element = self._element()
        if not isinstance(element, Scalar):
            self.cursor.fail("elements of vectors and matrices must be scalars", at=start + 1, found=str(element))
        return element

    def _extent(self) -> int:
        self.cursor.expect(",")
        start = self.cursor.position
        extent = self.number()
        if not isinstance(extent, int) or extent < 0:
            self.cursor.fail("a size must be a non-negative integer", at=start, found=str(extent))
        return extent

    def _vector(self) -> Vector:
        vector = Vector(self._scalar_element(), self._extent())
        self.cursor.expect(">")
        return vector

    def _matrix(self) -> Matrix:
        matrix = Matrix(self._scalar_element(), self._extent(), self._extent())
        self.cursor.expect(">")
        return matrix

    def _array(self) -> Array:
        array = Array(self._element(), self._extent())
        self.cursor.expect(">")
        return array

    def _tensor(self) -> Tensor:
        element = self._element()
        self.cursor.expect(",")
        self.cursor.expect("[")
        tensor = Tensor(element, tuple(self._read_list("]", self.size)))
        self.cursor.expect(">")
        return tensor

    def _tape(self) -> Tape:
        tape = Tape(self._element())
        self.cursor.expect(">")
        return tape

    def _struct(self) -> Struct:
        name = self.cursor.name("a struct's name")
        self.cursor.expect("{")
        return Struct(name, tuple(self._read_list("}", self._field)))

    def _field(self) -> tuple[str, Type]:
        name = self.cursor.name("a field's name")
        self.cursor.expect(":")
        return name, self.type()
