"""Lines of CUDA C under way: fresh names, blocks, and the checks that have been written so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from livegrad.backends.cuda.values import Text, TraceReference, Value, held_type, leaves_of, rebuilt
from livegrad.backends.sites import Site
from livegrad.diagnostics import Place
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar

# A quotient that is off by the last bit would be off by one after these.
_TO_WHOLE_NUMBERS = frozenset({"floor", "ceil", "trunc", "round"})


@dataclass
class Writer:
    """The text of one kernel."""

    lines: list[str] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    uses_traces: bool = False
    uses_waves: bool = False  # sines and cosines of floats
    choices_pass_nan: bool = False  # whether `max` and `min` may give NaN for NaN, and either zero for two zeros
    polls: bool = False  # whether a loop asks if it should stop
    largest_slot: int = 16  # bytes that any trace keeps for one iteration
    element: str = "row"  # what a failed check names: the element of the kernel's domain, or of what it folds
    exact_divisions: set[Node] = field(default_factory=set)  # whose quotients are rounded to whole numbers next
    paired: set[Node] = field(default_factory=set)  # operands of which both sine and cosine are taken
    pairs: dict[tuple[str, str], str] = field(default_factory=dict)  # (sin or cos, operand) → name, when written
    functors: dict[str, str] = field(default_factory=dict)  # names of structs by what they hold
    _names: int = 0
    _depth: int = 1

    def functor(self, member: str) -> str:
        """An object that can be called; those with the same member are of one type."""
        return f"{self.functors.setdefault(member, f'Combine{len(self.functors)}')}()"

    @contextmanager
    def function(self, order: Sequence[Node]) -> Iterator[None]:
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

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    def name(self, prefix: str = "v") -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    @contextmanager
    def nested(self) -> Iterator[None]:
        """What is written inside stands one step further in."""
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """What is written inside stands between braces after `head`."""
        self.line(f"{head} {{")
        with self.nested():
            yield
        self.line("}")

    def value(self, expression: str, type: Scalar) -> Text:
        """A new name for an expression."""
        name = self.name()
        self.line(f"const {held_type(type)} {name} = {expression};")
        return Text(name, type)

    def condition(self, expression: str) -> str:
        name = self.name("c")
        self.line(f"const bool {name} = {expression};")
        return name

    def variables(self, value: Value, initial: bool) -> Value:
        """Variables for all leaves of a value, with its own contents at first or (to be assigned) with zeros."""
        made: list[Text | TraceReference] = []
        for leaf in leaves_of(value):
            name = self.name("s")
            if isinstance(leaf, TraceReference):
                self.line(f"long long {name} = {leaf.header if initial else 0};")
                made.append(TraceReference(name, leaf.element))
            else:
                self.line(f"{held_type(leaf.type)} {name} = {leaf.text if initial else 0};")
                made.append(Text(name, leaf.type))
        return rebuilt(value, iter(made))

    def assign(self, targets: Value, values: Value) -> None:
        """Sets variables. All values are read before the first is written: they may be one another's."""
        pairs = list(zip(leaves_of(targets), leaves_of(values), strict=True))
        held = []
        for target, value in pairs:
            own, text = _texts(target), _texts(value)
            if own == text:
                continue
            name = self.name("n")
            self.line(f"const auto {name} = {text};")
            held.append(f"{own} = {name};")
        for text in held:
            self.line(text)

    def report(self, bad: str, message: str, origin: Place | None) -> None:
        """Writes the site and the lowest element for which `bad` holds to the status word."""
        site = len(self.sites)
        self.sites.append(Site(message, origin))
        self.line(f"if ({bad}) lg_report(a.status, {self.element}, {site});")


def _texts(leaf: Text | TraceReference) -> str:
    return leaf.text if isinstance(leaf, Text) else leaf.header
