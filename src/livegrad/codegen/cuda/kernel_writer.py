"""Writes a kernel of a plan: every value is a set of named scalars, and functions are inlined.

The walk over nodes is that of `codegen/c`. This module defines how kernels represent values, how checks report, and
where different code is better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from livegrad.codegen.c.aggregates import Types
from livegrad.codegen.c.body import RULES, write_node
from livegrad.codegen.c.line_writer import Writer
from livegrad.codegen.c.operands import TapeReference, Text, Value, leaves_of, rebuilt
from livegrad.codegen.check_sites import Site
from livegrad.codegen.cuda import device_tapes
from livegrad.codegen.cuda.device_elementwise import kernel_expression, without_parentheses
from livegrad.codegen.cuda.kernel_values import KERNELS
from livegrad.codegen.llvm.tapes import execution_order, mentions_tapes
from livegrad.diagnostics import SourceLocation
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Tape, Type, components

# A quotient that is off by the last bit would be off by one after these.
_TO_WHOLE_NUMBERS = frozenset({"floor", "ceil", "trunc", "round", "fract"})
_RULES = {**RULES, **device_tapes.RULES}


class KernelWriter(Writer):
    """The text of one kernel."""

    def __init__(self) -> None:
        super().__init__(Types(KERNELS), [], first_number=1)
        self.uses_tapes = False
        self.choices_pass_nan = False  # whether `max` and `min` may give NaN for NaN, and either zero for two zeros
        self.polls = False  # whether a loop asks if it should stop
        self.largest_slot = 16  # bytes that any tape keeps for one iteration
        self.element = "row"  # what a failed check names: the element of the kernel's domain, or of what it folds
        self.exact_divisions: set[Node] = set()  # whose quotients are rounded to whole numbers next
        self.paired: set[Node] = set()  # operands of which both sine and cosine are taken
        self.pairs: dict[str, dict[str, str]] = {}  # their names by operand, when written
        self.functors: dict[str, str] = {}  # names of structs by what they hold

    def functor(self, member: str) -> str:
        """An object that can be called; those with the same member are of one type."""
        return f"{self.functors.setdefault(member, f'Combine{len(self.functors)}')}()"

    # --- functions ---

    def write_function(self, function: Function, arguments: Sequence[Value]) -> list[Value]:
        """The values of the function's results."""
        values: dict[Node, Value] = dict(zip(function.parameters, arguments, strict=True))
        order, copies = execution_order(function.results)
        with self._looking_ahead(order):
            for node in order:
                if node in values:
                    continue
                operands = [values[operand] for operand in node.operands]
                for number, operand in enumerate(operands):
                    if (node, number) in copies and isinstance(operand, TapeReference):
                        operands[number] = device_tapes.copied(self, operand)
                values[node] = write_node(self, node, operands, _RULES)
        return [values[result] for result in function.results]

    def scalars(self, function: Function, arguments: Sequence[Value]) -> list[Text]:
        """The numbers that a stage's body gives, in order."""
        results = self.write_function(function, arguments)
        return [leaf for value in results for leaf in leaves_of(value) if isinstance(leaf, Text)]

    @contextmanager
    def _looking_ahead(self, order: Sequence[Node]) -> Iterator[None]:
        """Inside, the nodes of a function are written; looks first which are better written in another way."""
        before = self.exact_divisions, self.paired, self.pairs
        taken = {name: {n.operands[0] for n in order if n.op.name == name} for name in ("sin", "cos")}
        self.exact_divisions, self.paired, self.pairs = set(), taken["sin"] & taken["cos"], {}
        for node in order:
            whole = node.op.name == "cast" and node.attribute("type").kind != "float"
            if whole or node.op.name in _TO_WHOLE_NUMBERS:
                self.exact_divisions.update(operand for operand in node.operands if operand.op.name == "div")
        yield
        self.exact_divisions, self.paired, self.pairs = before

    def invoke(self, function: Function, arguments: Sequence[Value]) -> Value:
        results = self.write_function(function, arguments)
        return results[0] if len(results) == 1 else tuple(results)

    def expression(self, node: Node, operands: Sequence[str]) -> str:
        return kernel_expression(self, node, operands)

    def takes_whole(self, node: Node) -> bool:
        return False

    def begin_iteration(self, node: Node, index: str) -> None:
        """An unbounded loop polls for interrupts; a loop that ran out of memory ends."""
        if node.op.name == "while_loop":
            self.polls = True
            self.line(f"if (({index} & 1023) == 1023 && *a.interrupt) break;")
        if mentions_tapes(node.attribute("body")):
            self.uses_tapes = True
            self.line("if (memory.failed) break;")

    def report(self, bad: str, message: str, origin: SourceLocation | None) -> None:
        """Notes the site and the lowest element for which `bad` holds, for the status word."""
        self.sites.append(Site(message, origin))
        self.line(f"if ({bad}) lg_note(&failed, {self.element}, {len(self.sites) - 1});")

    # --- values ---

    def value(self, expression: str, type: Type, prefix: str = "v") -> Text:
        return super().value(without_parentheses(expression), type, prefix)

    def kept(self, value: Value, type: Type) -> Value:
        return rebuilt(value, iter([self._named(leaf) for leaf in leaves_of(value)]))

    def _named(self, leaf: Text | TapeReference) -> Text | TapeReference:
        if isinstance(leaf, TapeReference):
            return leaf if leaf.header.isidentifier() else device_tapes.named(self, leaf.header, leaf.element)
        return leaf if leaf.plain else self.value(leaf.text, leaf.type)

    def declared(self, type: Type, initial: Sequence[Value] | None = None) -> Value:
        """Declares variables for all leaves, initialised with zeros or with values; tapes are writable."""
        value = _zeros(type) if initial is None else tuple(initial)
        ready = list(leaves_of(value))
        if initial is not None:
            ready = [device_tapes.ensured(self, leaf) if isinstance(leaf, TapeReference) else leaf for leaf in ready]
        return rebuilt(value, iter([self._variable(leaf) for leaf in ready]))

    def _variable(self, leaf: Text | TapeReference) -> Text | TapeReference:
        name = self.name("s")
        if isinstance(leaf, TapeReference):
            self.line(f"long long {name} = {leaf.header};")
            return TapeReference(name, leaf.element)
        self.line(f"{self.types.name(leaf.type)} {name} = {leaf.text};")
        return Text(name, leaf.type)

    def assign(self, target: Value, value: Value, type: Type | None = None) -> None:
        """Sets variables. All values are read before the first is written: they may be one another's."""
        held = []
        for variable, leaf in zip(leaves_of(target), leaves_of(value), strict=True):
            name_of_variable, text = _spelled(variable), _spelled(leaf)
            if name_of_variable == text:
                continue
            name = self.name("n")
            self.line(f"const auto {name} = {text};")
            held.append(f"{name_of_variable} = {name};")
        for text in held:
            self.line(text)


def _spelled(leaf: Text | TapeReference) -> str:
    return leaf.text if isinstance(leaf, Text) else leaf.header


def _zeros(type: Type) -> Value:
    if isinstance(type, Scalar):
        return Text("0", type)
    if isinstance(type, Tape):
        return TapeReference("0", type.element)
    return tuple(map(_zeros, components(type)))
