"""Writes functions into a kernel of a plan: every value is a set of named scalars, and functions are inlined.

`codegen/c/body.py` emits the nodes. This module defines how kernels represent values, how checks report failures, and
which ops have better code than in readable C.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from livegrad.codegen.c.aggregates import Types
from livegrad.codegen.c.body import RULES, position_of, write_node
from livegrad.codegen.c.line_writer import Writer
from livegrad.codegen.c.operands import TapeReference, Text, Value, leaves_of, rebuild_value
from livegrad.codegen.check_sites import Site
from livegrad.codegen.cuda import device_tapes
from livegrad.codegen.cuda.device_elementwise import kernel_expression, without_parentheses
from livegrad.codegen.cuda.kernel_values import KERNELS
from livegrad.codegen.llvm.tapes import execution_order, mentions_tapes
from livegrad.diagnostics import SourceLocation
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Tape, Type, components

# After these ops, an error in the last bit of a quotient becomes an error of one.
_ROUNDING_OPS = frozenset({"floor", "ceil", "trunc", "round", "fract"})


def _lookup_or(writer: Writer, node: Node, operands: list[Value]) -> Value:
    """A read by computed index; an index out of range reads no memory and gives another value."""
    tensor = writer.tensor(operands[0], node.operands[0])
    otherwise = writer.text(operands[1], node.type)
    inside, terms = [], []
    for operand, value, extent, stride in zip(
        node.operands[2:], operands[2:], tensor.extents, tensor.strides, strict=True
    ):
        index, condition = position_of(writer, tensor, operand, value, extent)
        inside.append(condition)
        terms.append(index if stride == "1" else f"{index} * {stride}")
    text = writer.dialect.read(tensor.pointer, " + ".join(terms) or "0", tensor.element)
    if inside:
        text = f"({' && '.join(inside)} ? {text} : {otherwise})"
    return writer.bind(Text(text, node.type, plain=False), node.type)


_RULES = {**RULES, **device_tapes.RULES, "lookup_or": _lookup_or}


class KernelWriter(Writer):
    """The text of one kernel under construction."""

    def __init__(self) -> None:
        super().__init__(Types(KERNELS), [], first_number=1)
        self.uses_tapes = False
        self.minmax_propagates_nan = False  # whether `max` and `min` may propagate NaN, and return either of two zeros
        self.polls = False  # whether a loop polls for interrupts
        self.largest_slot = 16  # of all tapes, in bytes
        self.element = "row"  # the index that a failed check reports: of the kernel's domain, or of a reduced element
        self.exact_divisions: set[Node] = set()  # divisions whose quotients are rounded to integers
        self.sincos_operands: set[Node] = set()  # operands of both sine and cosine
        self.sincos_names: dict[str, dict[str, str]] = {}  # names of both values, by operand
        self.functors: dict[str, str] = {}  # names of structs, by their member function

    def functor(self, member: str) -> str:
        """A function object; objects with the same member function have one type."""
        return f"{self.functors.setdefault(member, f'Combine{len(self.functors)}')}()"

    # --- functions ---

    def write_function(self, function: Function, arguments: Sequence[Value]) -> list[Value]:
        """The values of the function's results."""
        values: dict[Node, Value] = dict(zip(function.parameters, arguments, strict=True))
        order, copies = execution_order(function.results)
        with self._analyse_uses(order):
            for node in order:
                if node in values:
                    continue
                operands = [values[operand] for operand in node.operands]
                for number, operand in enumerate(operands):
                    if (node, number) in copies and isinstance(operand, TapeReference):
                        operands[number] = device_tapes.copy_tape(self, operand)
                values[node] = write_node(self, node, operands, _RULES)
        return [values[result] for result in function.results]

    def scalars(self, function: Function, arguments: Sequence[Value]) -> list[Text]:
        """The scalar results of a stage's body, in order."""
        results = self.write_function(function, arguments)
        return [leaf for value in results for leaf in leaves_of(value) if isinstance(leaf, Text)]

    @contextmanager
    def _analyse_uses(self, order: Sequence[Node]) -> Iterator[None]:
        """Finds the divisions, sines and cosines of a function whose code depends on their uses."""
        before = self.exact_divisions, self.sincos_operands, self.sincos_names
        operands = {name: {n.operands[0] for n in order if n.op.name == name} for name in ("sin", "cos")}
        self.exact_divisions, self.sincos_operands, self.sincos_names = set(), operands["sin"] & operands["cos"], {}
        for node in order:
            to_integer = node.op.name == "cast" and node.attribute("type").kind != "float"
            if to_integer or node.op.name in _ROUNDING_OPS:
                self.exact_divisions.update(operand for operand in node.operands if operand.op.name == "div")
        yield
        self.exact_divisions, self.sincos_operands, self.sincos_names = before

    def invoke(self, function: Function, arguments: Sequence[Value]) -> Value:
        results = self.write_function(function, arguments)
        return results[0] if len(results) == 1 else tuple(results)

    def expression(self, node: Node, operands: Sequence[str]) -> str:
        return kernel_expression(self, node, operands)

    def takes_whole(self, node: Node) -> bool:
        return False

    def begin_iteration(self, node: Node, index: str) -> None:
        """Unbounded loops poll for interrupts; loops whose tapes have no memory left end."""
        if node.op.name == "while_loop":
            self.polls = True
            self.line(f"if (({index} & 1023) == 1023 && *a.interrupt) break;")
        if mentions_tapes(node.attribute("body")):
            self.uses_tapes = True
            self.line("if (memory.failed) break;")

    def report(self, bad: str, message: str, origin: SourceLocation | None) -> None:
        """Emits a check that records its site and the lowest element for which `bad` holds."""
        self.sites.append(Site(message, origin))
        self.line(f"if ({bad}) lg_note(&failed, {self.element}, {len(self.sites) - 1});")

    # --- values ---

    def value(self, expression: str, type: Type, prefix: str = "v") -> Text:
        return super().value(without_parentheses(expression), type, prefix)

    def bind(self, value: Value, type: Type) -> Value:
        return rebuild_value(value, iter([self._bind_leaf(leaf) for leaf in leaves_of(value)]))

    def _bind_leaf(self, leaf: Text | TapeReference) -> Text | TapeReference:
        if isinstance(leaf, TapeReference):
            return leaf if leaf.header.isidentifier() else device_tapes.bind_tape(self, leaf.header, leaf.element)
        return leaf if leaf.plain else self.value(leaf.text, leaf.type)

    def declare(self, type: Type, initial: Sequence[Value] | None = None) -> Value:
        """Declares variables for all leaves, initialised with zeros or with values; tapes are writable."""
        value = _zeros(type) if initial is None else tuple(initial)
        leaves = list(leaves_of(value))
        if initial is not None:
            leaves = [
                device_tapes.ensure_tape(self, leaf) if isinstance(leaf, TapeReference) else leaf for leaf in leaves
            ]
        return rebuild_value(value, iter([self._variable(leaf) for leaf in leaves]))

    def _variable(self, leaf: Text | TapeReference) -> Text | TapeReference:
        name = self.name("s")
        if isinstance(leaf, TapeReference):
            self.line(f"long long {name} = {leaf.header};")
            return TapeReference(name, leaf.element)
        self.line(f"{self.types.name(leaf.type)} {name} = {leaf.text};")
        return Text(name, leaf.type)

    def assign(self, target: Value, value: Value, type: Type | None = None) -> None:
        """Assigns to variables. All values are read before the first assignment, because they may use the variables."""
        assignments = []
        for variable, leaf in zip(leaves_of(target), leaves_of(value), strict=True):
            name_of_variable, text = _leaf_text(variable), _leaf_text(leaf)
            if name_of_variable == text:
                continue
            name = self.name("n")
            self.line(f"const auto {name} = {text};")
            assignments.append(f"{name_of_variable} = {name};")
        for assignment in assignments:
            self.line(assignment)


def _leaf_text(leaf: Text | TapeReference) -> str:
    return leaf.text if isinstance(leaf, Text) else leaf.header


def _zeros(type: Type) -> Value:
    if isinstance(type, Scalar):
        return Text("0", type)
    if isinstance(type, Tape):
        return TapeReference("0", type.element)
    return tuple(map(_zeros, components(type)))
