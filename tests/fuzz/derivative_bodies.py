"""Bodies of the derivative fuzzer's functions: random statements and expressions over the parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz.derivative_types import FLOAT, Float, Int, Interface, List, Optional, Struct, Type, Vector

if TYPE_CHECKING:
    from tests.fuzz.derivative_programs import Writer


class Body:
    """Writes the body of one function: statements over its parameters, and what it returns."""

    def __init__(self, writer: Writer, parameters: list[tuple[str, Type, bool]], indent: str) -> None:
        self.writer, self.random, self.indent = writer, writer.random, indent
        self.lines: list[str] = []
        self.floats: list[str] = []  # expressions of floats
        self.quiet: list[str] = []  # those without a derivative
        self.values: list[tuple[str, Type]] = []  # expressions of other types, with derivatives
        self.room = 40  # how many more expressions may have parts
        for name, type, no_diff in parameters:
            self.reach(name, type, no_diff)

    def reach(self, text: str, type: Type, no_diff: bool) -> None:
        """Notes what can be read of a value."""
        if not no_diff:
            self.values.append((text, type))
        match type:
            case Float():
                (self.quiet if no_diff else self.floats).append(text)
            case Int():
                self.quiet.append(f"(0.5 * {text})")
            case Vector():
                for part in ("x", "y"):
                    self.reach(f"{text}.{part}", FLOAT, no_diff)
            case List(element=element, length=length):
                for k in range(length):
                    self.reach(f"{text}[{k}]", element, no_diff)
            case Struct(fields=fields):
                for f in fields:
                    self.reach(f"{text}.{f.name}", f.type, no_diff or f.no_diff)
            case Optional(element=element):
                self.present(text, element, no_diff)
            case Interface():
                (self.quiet if no_diff else self.floats).append(f"{text}.area({self.random.uniform(0.5, 1.5):.2f})")

    def present(self, text: str, element: Type, no_diff: bool) -> None:
        """The number in an optional, or another."""
        self.writer.temporary += 1
        held, made = f"h{self.writer.temporary}", f"o{self.writer.temporary}"
        inner = held if isinstance(element, Float) else f"{held}.x * {held}.y"
        self.lines += [
            f"{held} = {text}",
            f"if {held} is None:",
            f"    {made} = 0.75",
            "else:",
            f"    {made} = {inner} * 1.5",
        ]
        (self.quiet if no_diff else self.floats).append(made)

    def atom(self) -> str:
        pools = [self.floats] * 4 + [self.quiet] if self.floats else [self.quiet]
        pool = self.random.choice(pools)
        return self.random.choice(pool) if pool else f"{self.random.uniform(0.3, 1.5):.2f}"

    def expression(self, depth: int = 3) -> str:
        self.room -= 1
        if depth == 0 or self.room < 0:
            return self.atom()
        one, other = (lambda: self.expression(depth - 1)), (lambda: self.expression(self.random.randrange(depth)))
        kinds = ["+", "-", "*", "sin", "cos", "tanh", "/", "sqrt", "atom", "call", "over", "where", "generic"]
        match self.random.choice(kinds):
            case "+" | "-" | "*" as operator:
                return f"({one()} {operator} {other()})"
            case "/":
                return f"({one()} / (1.5 + math.sin({other()})))"
            case "sqrt":
                value = one()
                return f"math.sqrt(1.0 + {value} * {value})"
            case "sin" | "cos" | "tanh" as name:
                return f"math.{name}({one()})"
            case "call":
                return self.call() or self.atom()
            case "over":
                return self.overloaded() or self.atom()
            case "generic" if self.writer.generic:
                vector = f"lg.dvec2({one()}, {other()})"
                return self.random.choice((f"scaled({one()}, {other()})", f"scaled({vector}, {self.atom()}).y"))
            case "where":
                self.writer.note("conditional expression")
                return f"({one()} if {self.atom()} > {self.random.uniform(-1, 1):.3f} else {other()})"
        return self.atom()

    def argument(self, type: Type) -> str | None:
        """An expression of a type: something at hand, or something new."""
        if isinstance(type, Float):
            return self.atom() if self.random.random() < 0.5 else self.expression(1)
        found = [text for text, own in self.values if own is type]
        if found and self.random.random() < 0.6:
            return self.random.choice(found)
        match type:
            case Vector():
                return f"lg.dvec2({self.expression(1)}, {self.expression(1)})"
            case Int():
                return "2"
            case Struct(fields=fields, name=name):
                parts = [self.constant(f.type) if f.no_diff else self.argument(f.type) for f in fields]
                return None if None in parts else f"{name}({', '.join(map(str, parts))})"
            case List(element=element, length=length):
                items = [self.argument(element) for _ in range(length)]
                return None if None in items else f"[{', '.join(map(str, items))}]"
            case Optional(element=element):
                return self.argument(element)
            case Interface(structs=structs):
                return self.argument(self.random.choice(structs))
        return None

    def constant(self, type: Type) -> str | None:
        """An expression without a derivative."""
        match type:
            case Float():
                return self.random.choice([*self.quiet, "1.25"])
            case Vector():
                return "lg.dvec2(0.5, 0.25)"
            case Int():
                return "3"
            case Optional(element=element):
                return self.constant(element)
            case List(element=element, length=length):
                items = [self.constant(element) for _ in range(length)]
                return None if None in items else f"[{', '.join(map(str, items))}]"
            case Struct(fields=fields, name=name):
                parts = [self.constant(f.type) for f in fields]
                return None if None in parts else f"{name}({', '.join(map(str, parts))})"
            case Interface(structs=structs):
                return self.constant(structs[0])
        return None

    def call(self) -> str | None:
        if not self.writer.callable:
            return None
        function = self.random.choice(self.writer.callable)
        given = [self.constant(t) if quiet else self.argument(t) for _, t, quiet in function.parameters]
        return None if None in given else f"{function.name}({', '.join(map(str, given))})"

    def overloaded(self) -> str | None:
        if not self.writer.is_overloaded:
            return None
        function = self.random.choice(self.writer.overloads)
        given = self.argument(function.parameters[0][1])
        return None if given is None else f"over({given}, {self.expression(1)})"

    def returning(self, result: Type) -> list[str]:
        self.lines.append(f"t = {self.expression()}")
        self.floats.append("t")
        for _ in range(self.random.randint(0, 2)):
            self.statement()
        if result is FLOAT:
            self.lines.append(f"return {self.expression()} + t * 0.5")
        else:
            made = self.argument(result)
            self.lines.append(f"return {made}")
        return [self.indent + line for line in self.lines]

    def statement(self) -> None:
        match self.random.choice(("loop", "branch", "list", "assign")):
            case "loop":
                self.writer.note("loop")
                bound = self.random.choice(("2", "3"))
                self.lines += [f"for k in range({bound}):", f"    t = t * 0.5 + {self.expression(2)} * (k + 1) * 0.1"]
            case "branch":
                self.writer.note("branch")
                self.lines += [f"if {self.atom()} > {self.random.uniform(-1, 1):.3f}:", f"    t = {self.expression(2)}",
                               "else:", f"    t = t + {self.expression(1)}"]  # fmt: skip
            case "list":
                self.writer.note("local list")
                self.lines += [
                    f"v = [{self.expression(1)}, {self.expression(1)}]",
                    "for item in v:",
                    "    t = t + item * t * 0.1",
                ]
            case "assign":
                found = [
                    (text, own, f.name)
                    for text, own in self.values
                    if isinstance(own, Struct) and "." not in text
                    for f in own.fields
                    if f.type is FLOAT and not f.no_diff
                ]
                if not found:
                    return
                text, own, changed = self.random.choice(found)
                self.writer.temporary += 1
                name = f"c{self.writer.temporary}"
                self.lines += [f"{name} = lg.copy({text})", f"{name}.{changed} = {self.expression(1)}"]
                self.writer.note("field assignment")
                self.reach(name, own, False)
