"""The types of the value IR in C: how values are declared, made and taken apart, and how constants are written."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from livegrad.backends.c_family.dialect import Dialect
from livegrad.diagnostics import CompileError
from livegrad.ir.types import Array, Matrix, Scalar, Struct, Tensor, Tuple, Type, Vector, components


class Types:
    """Names types, and collects the structs that they need, in order."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.structs: dict[Type, str] = {}
        self.declarations: list[str] = []

    def name(self, type: Type) -> str:
        """The C type of a value."""
        match type:
            case Scalar():
                return self._scalar(type)
            case Vector(size=1) | Matrix(rows=1, columns=1):
                return self._scalar(type.element)
            case Vector(element=element) | Matrix(element=element) if self.is_vector(type):
                return f"{self.dialect.vector_names[element.name]}{len(components(type))}"
            case Vector() | Matrix() | Tuple() | Struct() | Array():
                return self._struct(type)
            case Tensor(element=element):
                return self.pointer(element, "const ")
        raise CompileError(f"{self.dialect.name} has no {type}")

    def pointer(self, element: Scalar, qualifier: str = "") -> str:
        """The C type of an array that all threads see; a truth value in memory is a byte."""
        held = self.dialect.unsigned[8] if element.kind == "bool" else self._scalar(element)
        return self.dialect.pointer.format(type=qualifier + held)

    def loaded(self, place: str, element: Scalar) -> str:
        """What an element in memory is as a value."""
        return f"({place} != 0)" if element.kind == "bool" else place

    def is_vector(self, type: Type) -> bool:
        """Whether the language has a type of its own for these components; they are a struct otherwise."""
        if not isinstance(type, Vector | Matrix):
            return False
        return type.element.name in self.dialect.vector_names and len(components(type)) in self.dialect.widths

    def _scalar(self, type: Scalar) -> str:
        if type.name not in self.dialect.scalars:
            raise CompileError(f"{self.dialect.name} has no {type}")
        return self.dialect.scalars[type.name]

    def _struct(self, type: Type) -> str:
        if type not in self.structs:
            members = " ".join(f"{self.name(member)} r{i};" for i, member in enumerate(components(type)))
            name = f"lg_tuple{len(self.structs)}"
            self.structs[type] = name
            self.declarations.append(f"typedef struct {{ {members} }} {name};")
        return self.structs[type]

    def make(self, type: Type, members: Sequence[str]) -> str:
        """An expression that makes an aggregate of its members."""
        if isinstance(type, Vector | Matrix) and len(members) == 1:
            return members[0]
        form = self.dialect.make_vector if self.is_vector(type) else self.dialect.make_struct
        return form.format(type=self.name(type), members=", ".join(members))

    def member(self, value: str, type: Type, index: int) -> str:
        """An expression for one member of an aggregate."""
        if isinstance(type, Vector | Matrix) and len(components(type)) == 1:
            return value
        if not self.is_vector(type):
            return f"{value}.r{index}"
        return f"{value}.{'xyzw'[index]}" if len(components(type)) <= 4 else f"{value}.s{index:x}"

    def literal(self, value: bool | int | float | complex, type: Scalar) -> str:
        """A constant as C writes it: the shortest decimal that is read as the same number."""
        if isinstance(value, bool):
            return {"bool": ("false", "true")}.get(self._scalar(type), ("0", "1"))[value]
        if isinstance(value, int) and type.kind != "float":
            return self._integer(value, type)
        if isinstance(value, complex):
            raise CompileError(f"{self.dialect.name} has no constant {value!r}")
        if math.isnan(value):
            return self.dialect.not_a_number[type.bits]
        if math.isinf(value):
            return self.dialect.infinity[type.bits] if value > 0 else f"(-{self.dialect.infinity[type.bits]})"
        text = str(type.dtype.type(value)) if type.bits == 32 else repr(float(value))
        text = text if "." in text or "e" in text else f"{text}.0"
        return _enclosed(text + ("f" if type.bits == 32 else ""))

    def _integer(self, value: int, type: Scalar) -> str:
        if type.kind == "unsigned":
            return f"{value}U{self.dialect.long_suffix}" if type.bits == 64 else f"{value}U"
        suffix = self.dialect.long_suffix if type.bits == 64 else ""
        if value == np.iinfo(type.dtype).min and type.bits >= 32:
            return f"({value + 1}{suffix} - 1)"  # C has no literal for the least number, only for its negation
        return _enclosed(f"{value}{suffix}")


def _enclosed(text: str) -> str:
    return f"({text})" if text.startswith("-") else text
