"""Emits a function as readable C: one line per value, with vectors, structs and calls kept intact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from livegrad.codegen.c.body import RULES, write_node
from livegrad.codegen.c.line_writer import Writer
from livegrad.codegen.c.operands import Text, Value
from livegrad.codegen.check_sites import Site
from livegrad.diagnostics import SourceLocation
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Type
from livegrad.ir.walk import nodes_of

if TYPE_CHECKING:
    from livegrad.codegen.c.function_source import Source


class FunctionWriter(Writer):
    """Writes one function of a `Source`; `plain` is the function in ops that have C."""

    def __init__(self, source: Source, function: Function, plain: Function) -> None:
        super().__init__(source.types, source.sites)
        self.source, self.plain = source, plain
        self.checks = function in source.failing
        used = {operand for node in nodes_of(plain) for operand in node.operands}
        self._only_returned = set(plain.results) - used
        self._returns = False  # whether the node being written is returned, and nothing else

    def written(self, name: str) -> str:
        """The text of the function under this name."""
        function, types = self.plain, self.types
        parameters = [f"{types.name(p.type)} p{index}" for index, p in enumerate(function.parameters)]
        if self.checks:
            parameters.append("int* status")
        values: dict[Node, Value] = {p: Text(f"p{index}", p.type) for index, p in enumerate(function.parameters)}
        for node in nodes_of(function):
            if node not in values:
                self._returns = node in self._only_returned
                values[node] = write_node(self, node, [values[operand] for operand in node.operands], RULES)
        results = tuple(values[result] for result in function.results)
        returned = self.text(results[0] if len(results) == 1 else results, function.result_type)
        head = f"{self.dialect.function_prefix}{types.name(function.result_type)} {name}"
        head = f"{head}({', '.join(parameters) or 'void'})"
        return "\n".join([head, "{", *self.lines, f"    return {returned};", "}", ""])

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """As of every writer; a single assignment stands in one line with its head."""
        start = len(self.lines)
        with super().block(head):
            yield
        first, *inside, _ = self.lines[start:]
        if len(inside) == 1 and not inside[0].lstrip().startswith(("if", "for", "const")):
            self.lines[start:] = [first.removesuffix("{") + inside[0].lstrip()]

    def kept(self, value: Value, type: Type) -> Value:
        """A value that is only returned needs no separate line."""
        if isinstance(value, Text) and value.plain:
            return value
        text = self.text(value, type)
        if self._returns:
            return Text(text, type, plain=False)
        parts = value if isinstance(value, tuple) else ()
        are_plain = all(isinstance(part, Text) and part.plain for part in parts)
        return Text(self.value(text, type).text, type, parts=parts if parts and are_plain else None)

    def declared(self, type: Type, initial: Sequence[Value] | None = None) -> Text:
        name = self.name("c" if initial is None else "s")
        contents = "" if initial is None else f" = {self.text(tuple(initial), type)}"
        self.line(f"{self.types.name(type)} {name}{contents};")
        return Text(name, type)

    def assign(self, target: Value, value: Value, type: Type) -> None:
        self.line(f"{self.text(target, type)} = {self.text(value, type)};")

    def invoke(self, function: Function, arguments: Sequence[Value]) -> Text:
        types = function.parameter_types
        texts = [self.text(argument, type) for argument, type in zip(arguments, types, strict=True)]
        return Text(self.source.call(function, texts), function.result_type, plain=False)

    def begin_iteration(self, node: Node, index: str) -> None:
        """Nothing: who runs the text has no word to stop it by."""

    def report(self, bad: str, message: str, origin: SourceLocation | None) -> None:
        """Keeps the first site that fails."""
        self.sites.append(Site(message, origin))
        self.line(f"if ({bad} && *status == 0) *status = {len(self.sites)};")
