"""Emits a function as readable C: one line per value, with vectors, structs and calls kept intact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from livegrad.codegen.c.body import RULES, write_node
from livegrad.codegen.c.line_writer import Writer
from livegrad.codegen.c.operands import Text, Value
from livegrad.codegen.check_sites import Site
from livegrad.diagnostics import CompileError, SourceLocation
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Type, components
from livegrad.ir.walk import nodes_of

if TYPE_CHECKING:
    from livegrad.codegen.c.function_source import FunctionText


class FunctionWriter(Writer):
    """Writes one function of a source; `expanded` is the function in ops that have C code."""

    def __init__(self, source: FunctionText, function: Function, expanded: Function) -> None:
        super().__init__(source.types, source.sites)
        self.source, self.expanded = source, expanded
        self.checks = function in source.failing
        used = {operand for node in nodes_of(expanded) for operand in node.operands}
        self._only_returned = set(expanded.results) - used
        self._is_returned = False  # whether the current node is only returned, not used by other nodes

    def write(self, name: str) -> str:
        """The C function, under the given name."""
        function, types = self.expanded, self.types
        parameters = [(types.name(p.type), f"p{index}") for index, p in enumerate(function.parameters)]
        if self.checks:
            parameters.append(("int*", "status"))
        values: dict[Node, Value] = {p: Text(f"p{index}", p.type) for index, p in enumerate(function.parameters)}
        for node in nodes_of(function):
            if node not in values:
                self._is_returned = node in self._only_returned
                values[node] = self._write(node, [values[operand] for operand in node.operands])
        results = tuple(values[result] for result in function.results)
        returned = self.text(results[0] if len(results) == 1 else results, function.result_type)
        head = self.dialect.function_head(types.name(function.result_type), name, parameters)
        return "\n".join([head, "{", *self.lines, f"    return {returned};", "}", ""])

    def _write(self, node: Node, operands: list[Value]) -> Value:
        try:
            return write_node(self, node, operands, RULES)
        except CompileError as error:
            if error.where is None:
                error.move_to(node.origin)
            raise

    def expression(self, node: Node, operands: Sequence[str]) -> str:
        """One component of an elementwise op; a choice is not the same expression in all dialects."""
        if node.op.name != "select":
            return super().expression(node, operands)
        type = node.type if self.takes_whole(node) else (components(node.type) or (node.type,))[0]
        return self.dialect.choose(self.types.name(type), *operands)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """A single assignment is put on one line with the head, without braces."""
        start = len(self.lines)
        with super().block(head):
            yield
        first, *inside, _ = self.lines[start:]
        is_declaration = ("if", "for", "const")
        if len(inside) == 1 and not self.dialect.needs_braces and not inside[0].lstrip().startswith(is_declaration):
            self.lines[start:] = [first.removesuffix("{") + inside[0].lstrip()]

    def bind(self, value: Value, type: Type) -> Value:
        """Assigns a value to a name, unless it is plain or only returned."""
        if isinstance(value, Text) and value.plain:
            return value
        text = self.text(value, type)
        if self._is_returned:
            return Text(text, type, plain=False)
        parts = value if isinstance(value, tuple) else ()
        are_plain = all(isinstance(part, Text) and part.plain for part in parts)
        return Text(self.value(text, type).text, type, parts=parts if parts and are_plain else None)

    def declare(self, type: Type, initial: Sequence[Value] | None = None) -> Text:
        name = self.name("c" if initial is None else "s")
        value = None if initial is None else self.text(tuple(initial), type)
        self.line(self.dialect.declare(self.types.name(type), name, value))
        return Text(name, type)

    def assign(self, target: Value, value: Value, type: Type) -> None:
        self.line(f"{self.text(target, type)} = {self.text(value, type)};")

    def invoke(self, function: Function, arguments: Sequence[Value]) -> Text:
        types = function.parameter_types
        texts = [self.text(argument, type) for argument, type in zip(arguments, types, strict=True)]
        return Text(self.source.call(function, texts), function.result_type, plain=False)

    def begin_iteration(self, node: Node, index: str) -> None:
        """Nothing: readable functions cannot be interrupted."""

    def report(self, bad: str, message: str, origin: SourceLocation | None) -> None:
        """Emits a check that sets the status to the first site that fails."""
        self.sites.append(Site(message, origin))
        self.line(f"if ({bad} && *status == 0) *status = {len(self.sites)};")
