"""Aggregate types in C: vectors where the dialect has them, structs otherwise; construction and member access."""

from __future__ import annotations

from collections.abc import Sequence

from livegrad.codegen.c.dialect import Dialect
from livegrad.diagnostics import CompileError
from livegrad.ir.types import Array, Matrix, Scalar, Struct, Tensor, Tuple, Type, Vector, components


class Types:
    """Names types, and collects the struct declarations that they need, in order."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.structs: dict[Type, str] = {}
        self.declarations: list[str] = []

    def name(self, type: Type) -> str:
        """The C type of a value."""
        match type:
            case Scalar():
                return self.dialect.scalar(type)
            case Vector(size=1) | Matrix(rows=1, columns=1):
                return self.dialect.scalar(type.element)
            case Vector(element=element) | Matrix(element=element) if self.is_vector(type):
                return self.dialect.vector(element, len(components(type)))
            case Vector() | Matrix() | Tuple() | Struct() | Array():
                return self._struct(type)
            case Tensor(element=element):
                return self.dialect.table(element)
        raise CompileError(f"{self.dialect.name} has no {type}")

    def pointer(self, element: Scalar, qualifier: str = "") -> str:
        """The C type of a pointer to global memory."""
        return self.dialect.pointer.format(type=qualifier + self.dialect.in_memory(element))

    def is_vector(self, type: Type) -> bool:
        """Whether the dialect has a vector type for these components; otherwise they are a struct."""
        if not isinstance(type, Vector | Matrix):
            return False
        return type.element.name in self.dialect.vector_stems and len(components(type)) in self.dialect.widths

    def _struct(self, type: Type) -> str:
        if type not in self.structs:
            members = [(self.name(member), f"r{index}") for index, member in enumerate(components(type))]
            name = f"lg_tuple{len(self.structs)}"
            self.structs[type] = name
            self.declarations.append(self.dialect.struct(name, members))
        return self.structs[type]

    def make(self, type: Type, members: Sequence[str]) -> str:
        """An expression that constructs an aggregate from its members."""
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
