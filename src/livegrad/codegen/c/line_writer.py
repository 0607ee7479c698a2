"""Writes lines of C: unique names, blocks, checks, and the construction and decomposition of aggregates.

`body.py` emits ops through a `Writer`. There are two: `readable_function.FunctionWriter` writes readable C functions,
with vectors and structs as values; `codegen.cuda.kernel_writer.KernelWriter` writes one kernel, scalar by scalar.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from livegrad.codegen.c.aggregates import Types
from livegrad.codegen.c.expressions import apply_op, takes_whole_vectors
from livegrad.codegen.c.operands import TensorReference, Text, Value
from livegrad.codegen.check_sites import Site
from livegrad.diagnostics import CompileError, SourceLocation
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, Type, bool_, components, scalar_of


class Writer(ABC):
    """The text of a function or kernel under construction."""

    checks: bool = True  # whether to emit checks

    def __init__(self, types: Types, sites: list[Site], first_number: int = 0) -> None:
        self.types, self.dialect = types, types.dialect
        self.sites = sites
        self.lines: list[str] = []
        self.inside: dict[tuple[str, str], str] = {}  # names of range conditions, by index and extent
        self._number, self._depth = first_number, 1

    # --- lines ---

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    def name(self, prefix: str = "v") -> str:
        self._number += 1
        return f"{prefix}{self._number - 1}"

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Indents the lines that are written inside."""
        before, self.inside = self.inside, dict(self.inside)  # names are local to their block
        self._depth += 1
        yield
        self._depth -= 1
        self.inside = before

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Encloses the lines that are written inside in a block after `head`."""
        self.line(f"{head} {{")
        with self.nested():
            yield
        self.line("}")

    def leave_loop(self, condition: str) -> None:
        """Emits the end of a loop under a condition."""
        statement = "{ break; }" if self.dialect.needs_braces else "break;"
        self.line(f"if ({condition}) {statement}")

    def value(self, expression: str, type: Type, prefix: str = "v") -> Text:
        """Assigns an expression to a new name."""
        name = self.name(prefix)
        self.line(self.dialect.declare(self.types.name(type), name, expression, constant=True))
        return Text(name, type)

    def condition(self, expression: str) -> str:
        """Assigns a boolean expression to a new name."""
        return self.value(expression, bool_, "c").text

    # --- values ---

    def text(self, value: Value, type: Type) -> str:
        """A value as one expression."""
        if isinstance(value, tuple):
            parts = zip(value, components(type), strict=True)
            return self.types.make(type, [self.text(part, part_type) for part, part_type in parts])
        assert isinstance(value, Text)
        return value.text

    def members(self, value: Value, type: Type) -> tuple[Value, ...]:
        """The members of an aggregate."""
        if isinstance(value, tuple):
            return value
        assert isinstance(value, Text)
        if value.parts is not None:
            return value.parts
        numbered_types = enumerate(components(type))
        return tuple(
            Text(self.types.member(value.text, type, index), part, value.plain) for index, part in numbered_types
        )

    def tensor(self, value: Value, node: Node) -> TensorReference:
        """The pointer, extents and strides of a tensor; here, one of static sizes."""
        if isinstance(value, TensorReference):
            return value
        type = node.type
        assert isinstance(value, Text)
        assert isinstance(type, Tensor)
        sizes = [size for size in type.shape if isinstance(size, int)]
        if len(sizes) != len(type.shape):
            raise CompileError(f"{self.dialect.name} requires tensors with static sizes", where=node.origin)
        strides, stride = [], 1
        for size in reversed(sizes):
            strides.append(str(stride))
            stride *= size
        return TensorReference(value.text, type.element, tuple(map(str, sizes)), tuple(reversed(strides)))

    @abstractmethod
    def bind(self, value: Value, type: Type) -> Value:
        """Assigns a value composed of expressions to names, where needed."""

    @abstractmethod
    def declare(self, type: Type, initial: Sequence[Value] | None = None) -> Value:
        """Declares a variable, initialised with these members or not at all."""

    @abstractmethod
    def assign(self, target: Value, value: Value, type: Type) -> None:
        """Assigns to a variable."""

    # --- ops ---

    def expression(self, node: Node, operands: Sequence[str]) -> str:
        """One component of an elementwise op, without checks."""
        scalar = scalar_of(node.operands[-1].type)
        assert scalar is not None
        return apply_op(self.dialect, node.op, scalar, operands)

    def takes_whole(self, node: Node) -> bool:
        """Whether an elementwise op is emitted for all components at once."""
        return takes_whole_vectors(self.types, node)

    @abstractmethod
    def invoke(self, function: Function, arguments: Sequence[Value]) -> Value:
        """The value of a function for these arguments."""

    @abstractmethod
    def begin_iteration(self, node: Node, index: str) -> None:
        """Emits the start of every iteration of a loop."""

    @abstractmethod
    def report(self, bad: str, message: str, origin: SourceLocation | None) -> None:
        """Emits a check that records its site, and the element, where `bad` holds."""
