"""Prints functions and modules as text, which depends only on structure and parses to the same objects.

`livegrad.ir.text` describes the format.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence

from livegrad.diagnostics import UsageError
from livegrad.ir.dimension import Dimension, Size
from livegrad.ir.node import Attribute, Function, Key, Module, Node
from livegrad.ir.types import Array, Matrix, Scalar, Struct, Tape, Tensor, Tuple, Type, Vector
from livegrad.ir.walk import reachable_functions, toposort

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_PLAIN_NAN = struct.pack("<d", float("nan"))
_MAX_DECIMAL_BITS = 256  # Python refuses to read very long decimals; hexadecimal has no limit


def print_function(function: Function, *, origins: bool = False) -> str:
    """Returns a function as text, after the functions that it uses. `origins` adds the user's lines as comments.

    >>> from livegrad.ir.leaves import parameter
    >>> from livegrad.ir.types import f32
    >>> x = parameter(0, f32)
    >>> print(print_function(Function("same", (x,), (x,))), end="")
    function @same(%p0: f32) -> f32 {
      return %p0
    }
    """
    printer = _Printer((function,), origins)
    return "".join(printer.function_text(used, printer.names[used], "") for used in printer.functions)


def print_module(module: Module, *, origins: bool = False) -> str:
    """Returns a module as text. Its functions are marked `export` and follow the functions they use."""
    return _Printer(module.functions, origins).module_text()


def key_labels(*functions: Function) -> dict[str, Key]:
    """The labels under which the keys of these functions are printed, for the `keys` argument of `parse_function`."""
    printer = _Printer(functions, False)
    for function in printer.functions:
        for node in toposort(function.results):
            for key in _keys(value for _, value in node.attributes):
                printer.label(key)
    return {label: key for key, label in printer.labels.items()}


def print_type(type: Type) -> str:
    """Returns a type as text for `parse_type`: `str(type)`, but with names quoted that are not identifiers."""
    match type:
        case Scalar(name=name):
            return name
        case Vector(element=element, size=size):
            return f"vec<{print_type(element)}, {size}>"
        case Matrix(element=element, rows=rows, columns=columns):
            return f"mat<{print_type(element)}, {rows}, {columns}>"
        case Array(element=element, size=size):
            return f"array<{print_type(element)}, {size}>"
        case Struct(name=name, fields=fields):
            members = ", ".join(f"{print_name(field)}: {print_type(inner)}" for field, inner in fields)
            return f"struct {print_name(name)}{{{members}}}"
        case Tuple(elements=elements):
            return f"({', '.join(map(print_type, elements))}{',' if len(elements) == 1 else ''})"
        case Tensor(element=element, shape=shape):
            return f"tensor<{print_type(element)}, [{', '.join(map(_print_size, shape))}]>"
        case Tape(element=element):
            return f"tape<{print_type(element)}>"
    raise UsageError(f"{type!r} has no text form", expected="one of the types of livegrad.ir.types")


def _print_size(size: Size) -> str:
    return repr(size) if isinstance(size, Dimension) else _print_integer(size)


def print_name(name: str) -> str:
    """Prints a name, quoted unless it is an identifier."""
    return name if _PLAIN_NAME.fullmatch(name) else print_string(name)


def print_string(text: str) -> str:
    """Prints a string in double quotes on one line, with escapes."""
    return f'"{"".join(_print_character(character) for character in text)}"'


def _print_character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    return character if character.isprintable() else f"\\u{{{ord(character):x}}}"


def _print_integer(value: int) -> str:
    return str(value) if value.bit_length() <= _MAX_DECIMAL_BITS else hex(value)


def _print_float(value: float) -> str:
    if value != value and (bits := struct.pack("<d", value)) != _PLAIN_NAN:
        return f"nan(0x{int.from_bytes(bits, 'little'):016x})"
    return float.__repr__(value)


def _make_unique(base: str, used: set[str], counts: dict[str, int]) -> str:
    """Returns `base`, or the first of base.1, base.2 … that is unused, and adds it to `used`."""
    name = base
    while name in used:
        counts[base] = counts.get(base, 0) + 1
        name = f"{base}.{counts[base]}"
    used.add(name)
    return name


class _Printer:
    """The names of functions, keys and values in one text."""

    def __init__(self, exports: Sequence[Function], origins: bool) -> None:
        self.origins = origins
        self._orders = {function: toposort(function.results) for function in exports}
        # Equal functions are printed once, whatever their names. Exports that no other function uses come last.
        used = reachable_functions(used_functions(node for order in self._orders.values() for node in order))
        self.functions = list(dict.fromkeys([*used, *exports]))
        self.types: dict[Type, str] = {}
        self._location_texts: dict[int, str] = {}
        self.labels: dict[Key, str] = {}
        self._used_labels: set[str] = set()
        self._label_counts: dict[str, int] = {}
        used_names: set[str] = set()
        counts: dict[str, int] = {}
        # Exports are named first, so that they keep their names.
        self.exports = [(function, _make_unique(function.name, used_names, counts)) for function in exports]
        self.names: dict[Function, str] = {}
        for function, name in self.exports:
            self.names.setdefault(function, name)
        for function in self.functions:
            if function not in self.names:
                self.names[function] = _make_unique(function.name, used_names, counts)

    def module_text(self) -> str:
        exported = set(dict.fromkeys(function for function, _ in self.exports))
        parts: list[str] = []
        order: list[str] = []
        for function in self.functions:
            name = self.names[function]
            if function in exported:
                order.append(name)
            parts.append(self.function_text(function, name, "export " if function in exported else ""))
        for function, name in self.exports:
            if name != self.names[function]:  # the same function exported under a second name
                parts.append(self.function_text(function, name, "export "))
                order.append(name)
        export_order = [name for _, name in self.exports]
        if order != export_order:
            parts.append("order " + ", ".join("@" + print_name(name) for name in export_order) + "\n")
        return "".join(parts)

    def function_text(self, function: Function, name: str, prefix: str) -> str:
        values = {parameter: f"%p{index}" for index, parameter in enumerate(function.parameters)}
        header = ", ".join(
            f"{values[parameter]}: {self.type_text(parameter.type)}" for parameter in function.parameters
        )
        result = self.type_text(function.result_type)
        lines = [f"{prefix}function @{print_name(name)}({header}) -> {result} {{"]
        index = 0
        for node in self._order(function):
            if node not in values:
                values[node] = value = f"%{index}"
                index += 1
                lines.append(self._node_text(node, value, values, function))
        lines.append(" ".join(["  return", ", ".join(values[result] for result in function.results)]).rstrip())
        lines.append("}\n")
        return "\n".join(lines)

    def _order(self, function: Function) -> list[Node]:
        order = self._orders.get(function)
        return toposort(function.results) if order is None else order

    def _node_text(self, node: Node, value: str, values: dict[Node, str], function: Function) -> str:
        arguments = ", ".join([values[operand] for operand in node.operands])
        if node.attributes:
            attributes = ", ".join([f"{key}={self._attribute_text(item)}" for key, item in node.attributes])
            arguments = f"{arguments}; {attributes}" if arguments else attributes
        text = f"  {value} = {node.op.name}({arguments}): {self.type_text(node.type)}"
        locations = function.origins_of(node) if self.origins else ()
        return f"{text}  # {', '.join(map(self._location_text, locations))}" if locations else text

    def _location_text(self, location: object) -> str:
        # Cached: nodes created in a loop share a location, and computing its column is slow.
        text = self._location_texts.get(id(location))
        if text is None:
            text = self._location_texts[id(location)] = str(location).replace("\n", " ")
        return text

    def type_text(self, type: Type) -> str:
        text = self.types.get(type)
        if text is None:
            text = self.types[type] = print_type(type)
        return text

    def label(self, key: Key) -> str:
        """The label of a key: its name, with a suffix if an earlier key has that label."""
        if key not in self.labels:
            self.labels[key] = _make_unique(key.name or "key", self._used_labels, self._label_counts)
        return self.labels[key]

    def _attribute_text(self, value: Attribute) -> str:
        if value is None or isinstance(value, bool):
            return {None: "none", True: "true", False: "false"}[value]
        if isinstance(value, int):
            return _print_integer(value)
        if isinstance(value, float):
            return _print_float(value)
        if isinstance(value, complex):
            return f"complex({_print_float(value.real)}, {_print_float(value.imag)})"
        if isinstance(value, str):
            return print_string(value)
        if isinstance(value, Type):
            return self.type_text(value)
        return self._reference_text(value)

    def _reference_text(self, value: Attribute) -> str:
        if isinstance(value, Dimension):
            return f"<{value!r}>"
        if isinstance(value, Function):
            return f"@{print_name(self.names[value])}"
        if isinstance(value, Key):
            return f"${print_name(self.label(value))}"
        if isinstance(value, tuple):
            return f"[{', '.join(map(self._attribute_text, value))}]"
        raise UsageError(f"{value!r} has no text form", expected="an attribute: a number, string, type or function")


def used_functions(nodes: Iterable[Node]) -> list[Function]:
    """The functions in the nodes' attributes, in the order of first use."""
    inner_functions = (inner for node in nodes for inner in node.functions)
    return list(dict.fromkeys(inner_functions))


def _keys(values: Iterable[Attribute]) -> Iterable[Key]:
    for value in values:
        if isinstance(value, Key):
            yield value
        elif isinstance(value, tuple):
            yield from _keys(value)
