"""Random functions as Python text: loops with jumps, branches, lists, rows, structs, and second names of all of them.

`functions` runs them. Every name that is read has been set, every loop ends, and all numbers stay small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

Lines = list[str]

PRELUDE = """
@differentiable
def total(values: list[float]) -> float:
    found = 0.0
    for v in values:
        if found > 2.0:
            break
        found += v
    return found


@differentiable
def same(values):
    return values


@differentiable
def doubled(values):
    values[0] = tanh(values[0] * 2.0)
    return values

"""

# What variables there are: floats, lists of three, two rows of two, structs of two floats, structs with such a one.
SCALARS = ("a", "b", "c")
NAMES = {"list": ("p", "q"), "rows": ("m", "w"), "struct": ("s", "t"), "outer": ("o",)}


class Writer:
    """Writes one program; `counts` has what is in it, `aliases` whether an object got a second name."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.counts: Counter[str] = Counter()
        self.aliases = False
        self.scope: dict[str, str] = {}  # names that are set, with their kinds
        self.number = 0

    # --- choices ---

    def choose(self, *options: str) -> str:
        return self.random.choice(options)

    def often(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def name(self, kind: str) -> str | None:
        names = [name for name, own in self.scope.items() if own == kind]
        return self.random.choice(names) if names else None

    def new(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}{self.number}"

    # --- expressions ---

    def leaf(self) -> str:
        options = ["x", "y", "0.5", "1.25", "-0.75", *(n for n, kind in self.scope.items() if kind == "float")]
        options += [f"0.1 * {name}" for name, kind in self.scope.items() if kind == "int"]
        for kind in ("list", "rows", "struct", "outer"):
            name = self.name(kind)
            if name is not None:
                options.append(self.part(kind, name))
        return self.random.choice(options)

    def part(self, kind: str, name: str) -> str:
        """A float inside a variable."""
        if kind == "list":
            return f"{name}[{self.random.randrange(-3, 3)}]"
        if kind == "rows":
            return f"{name}[{self.random.randrange(-2, 2)}][{self.random.randrange(2)}]"
        if kind == "struct":
            return f"{name}.{self.choose('a', 'b')}"
        return self.choose(f"{name}.k", f"{name}.v.a", f"{name}.v.b")

    def float(self, depth: int = 2) -> str:
        if depth == 0 or self.often(25):
            return self.leaf()
        one, two = self.float(depth - 1), self.float(depth - 1)
        options = [
            f"({one} {self.choose('+', '-', '*')} {two})",
            f"sin({one})",
            f"tanh({one})",
            f"({one} / (1.5 + {two} * {two}))",
            f"({one} if {self.leaf()} > 0.1 else {two})",
            f"{self.choose('max', 'min')}({one}, {two})",
            f"sum([v * {self.leaf()} for v in {self.list_of()}])",
        ]
        struct = self.name("struct")
        if struct is not None:
            options.append(f"{struct}.area()")
        if self.often(5):
            options.append(f"total({self.list_of()})")
        return self.random.choice(options)

    def test(self) -> str:
        one, two = self.float(1), self.float(1)
        return self.random.choice(
            [
                f"{one} {self.choose('<', '>', '<=')} {two}",
                f"-0.5 < {one} <= 1.0 or {two} > 0.25",
                f"{one} > 0.0 and not {two} < 0.3",
                f"(u := {one}) > 0.2 and u < 0.8",
            ]
        )

    def list_of(self) -> str:
        name = self.name("list")
        return f"[{self.leaf()}, {self.leaf()}, {self.leaf()}]" if name is None or self.often(30) else name

    # --- objects, new or not ---

    def object(self, kind: str) -> str:
        """An expression of a kind; not all are new objects."""
        held = self.name(kind)
        if held is not None and self.often(35):
            return self.second_name(kind, held)
        if kind == "list":
            return self.random.choice(
                [
                    f"[{self.float(1)}, {self.float(1)}, {self.float(1)}]",
                    f"[{self.float(1)}] * 3",
                    f"[tanh(v + {self.leaf()}) for v in {self.list_of()}]",
                    "list(values)",
                    "values[::-1]",
                    "copy(values)",
                ]
            )
        if kind == "rows":
            rows = self.name("list")
            if rows is not None and self.often(20):
                self.aliases = True
                return f"[{rows}[:2], {rows}[1:]]"
            if self.often(15):
                self.aliases = True
                return f"[[{self.float(1)}, {self.leaf()}]] * 2"
            return f"[[{self.float(1)}, {self.leaf()}], [{self.leaf()}, {self.float(1)}]]"
        if kind == "struct":
            return f"S({self.float(1)}, {self.float(1)})"
        inner = self.name("struct")
        if inner is not None and self.often(50):
            self.aliases = True
            return f"O({inner}, {self.leaf()})"
        return f"O(S({self.leaf()}, {self.float(1)}), {self.float(1)})"

    def second_name(self, kind: str, held: str) -> str:
        self.aliases = True
        self.counts["second names"] += 1
        other = self.name(kind)
        options = [held, f"same({held})", f"({held} if {self.test()} else {other})", f"(lambda k: k)({held})"]
        if kind == "list":
            options += [f"list({held})", f"{held}[:]", f"{held}.copy()", f"({held} + {other})[2:5]"]
        if kind == "rows":
            options += [f"[{held}[1], {held}[0]]", f"[r for r in {held}]", f"{held}[:]", f"[{held}[0], {held}[0]]"]
        if kind == "struct":
            options.append(f"{held}.copy()")
            outer = self.name("outer")
            options += [] if outer is None else [f"{outer}.v"]
        if kind == "outer":
            options.append(f"O({held}.v, {self.leaf()})")
        return self.random.choice(options)

    # --- statements ---

    def block(self, depth: int, in_loop: bool) -> Lines:
        return [line for _ in range(self.random.randint(1, 3)) for line in self.statement(depth, in_loop)]

    def inner(self, depth: int, in_loop: bool) -> tuple[Lines, dict[str, str]]:
        """A block of its own, and the names that are set after it."""
        before = dict(self.scope)
        lines = self.block(depth, in_loop)
        after, self.scope = self.scope, before
        return ["    " + line for line in lines], after

    def statement(self, depth: int, in_loop: bool) -> Lines:
        simple: list[Callable[[], Lines]] = [self.assign, self.augment, self.unpack, self.make, self.make, self.change]
        simple += [self.change, self.exchange, self.local_function, self.call]
        if in_loop:
            simple += [self.jump, self.jump]
        nested = [
            self.branch,
            self.same_on_both_ways,
            self.for_range,
            self.for_each,
            self.while_loop,
            self.early_return,
        ]
        if depth and self.often(45):
            write = self.random.choice(nested)
            self.counts[write.__name__] += 1
            return write(depth - 1, in_loop)
        plain = self.random.choice(simple)
        self.counts[plain.__name__] += 1
        return plain()

    def assign(self) -> Lines:
        target = self.random.choice(SCALARS)
        return [f"{target} = tanh({self.float()}) * 1.5"]

    def augment(self) -> Lines:
        return [f"{self.random.choice(SCALARS)} {self.choose('+=', '-=')} sin({self.float()})"]

    def unpack(self) -> Lines:
        one, two = self.random.sample(SCALARS, 2)
        rows = self.name("rows")
        if rows is not None and self.often(40):
            return [f"{one}, {two} = {rows}[{self.random.randrange(2)}]"]
        return [f"{one}, {two} = {self.float()}, tanh({one})"]

    def make(self) -> Lines:
        kind = self.random.choice(list(NAMES))
        name, value = self.random.choice(NAMES[kind]), self.object(kind)
        self.scope[name] = kind
        return [f"{name} = {value}"]

    def change(self) -> Lines:
        kind = self.random.choice(list(NAMES))
        name = self.name(kind)
        if name is None:
            return self.make()
        self.counts["changes"] += 1
        if kind == "rows" and self.often(25):
            self.aliases = True
            source = self.name("rows")
            return [f"{name}[{self.random.randrange(2)}] = {source}[{self.random.randrange(2)}]"]
        if kind == "outer" and self.often(25) and self.name("struct") is not None:
            self.aliases = True
            return [f"{name}.v = {self.name('struct')}"]
        place = self.part(kind, name)
        if self.often(30):
            return [f"{place} {self.choose('+=', '-=')} {self.leaf()}"]
        return [f"{place} = tanh({self.float(1)})"]

    def exchange(self) -> Lines:
        kind = self.random.choice([kind for kind in NAMES if len(NAMES[kind]) == 2])
        one, two = NAMES[kind]
        if self.scope.get(one) != kind or self.scope.get(two) != kind:
            return self.make()
        self.aliases = True
        return [f"{one}, {two} = {two}, {one}"]

    def local_function(self) -> Lines:
        name = self.new("g")
        lines = [f"def {name}(k, h):", f"    k = sin(k + {self.leaf()})"]
        lines += [f"    if k > {self.leaf()}:", "        return k * h", f"    return {self.leaf()} - k"]
        return [*lines, f"{self.random.choice(SCALARS)} = {name}({self.float(1)}, {self.leaf()})"]

    def call(self) -> Lines:
        name = self.name("list")
        if name is None or self.often(30):
            struct = self.name("struct")
            return self.assign() if struct is None else [f"{struct} = {struct}.moved({self.leaf()})"]
        target = self.random.choice(NAMES["list"])
        self.aliases = True
        self.scope[target] = "list"
        return [f"{target} = doubled({name})"]

    def jump(self) -> Lines:
        return [f"if {self.test()}:", f"    {self.choose('break', 'continue')}"]

    def early_return(self, depth: int, in_loop: bool) -> Lines:
        return [f"if {self.test()}:", f"    return {self.float()} + {self.random.choice(SCALARS)}"]

    def branch(self, depth: int, in_loop: bool) -> Lines:
        body, first = self.inner(depth, in_loop)
        if self.often(40):
            return [f"if {self.test()}:", *body]
        other, second = self.inner(depth, in_loop)
        lines = [f"if {self.test()}:", *body, "else:", *other]
        self.scope |= {name: kind for name, kind in first.items() if second.get(name) == kind}
        return lines

    def same_on_both_ways(self, depth: int, in_loop: bool) -> Lines:
        target, source = self.random.choice(SCALARS), self.random.choice([*SCALARS, "x"])
        test, kind = self.test(), self.random.choice(list(NAMES))
        held = self.name(kind)
        if held is not None and self.often(40):
            target, source, self.aliases = self.random.choice(NAMES[kind]), held, True
            self.scope[target] = kind
        return [f"if {test}:", f"    {target} = {source}", "else:", f"    {target} = {source}"]

    def looped(self, head: str, depth: int, names: dict[str, str]) -> Lines:
        before = dict(self.scope)
        self.scope |= names
        body, _ = self.inner(depth, True)
        self.scope = before
        lines = [head, *body]
        if self.often(20):
            other, _ = self.inner(0, False)
            lines += ["else:", *other]
        return lines

    def for_range(self, depth: int, in_loop: bool) -> Lines:
        index = self.new("i")
        iterations = self.choose("n", "3", "1, n + 1", "n, 0, -1", "2")
        return self.looped(f"for {index} in range({iterations}):", depth, {index: "int"})

    def for_each(self, depth: int, in_loop: bool) -> Lines:
        item, index = self.new("e"), self.new("i")
        rows, held = self.name("rows"), self.name("list") or "values"
        if rows is not None and self.often(30):
            row = self.new("r")
            self.aliases = True
            change = [f"    {row}[0] = {self.leaf()}"] if self.often(30) else []
            return [f"for {row} in {rows}:", f"    {self.choose(*SCALARS)} = sin({row}[0] - {row}[1])", *change]
        heads = [
            (f"for {item} in {held}:", {item: "float"}),
            (f"for {index}, {item} in enumerate({held}):", {index: "int", item: "float"}),
            (f"for {item} in reversed({held}):", {item: "float"}),
            (f"for {item}, {index} in zip({held}, range(n)):", {index: "int", item: "float"}),
            (f"for {item} in ({self.leaf()}, {self.leaf()}):", {item: "float"}),
            (f"for {item} in unroll({held}):", {item: "float"}),
        ]
        head, names = self.random.choice(heads)
        self.aliases |= held in head  # it may be changed, or given away and changed
        return self.looped(head, depth, names)

    def while_loop(self, depth: int, in_loop: bool) -> Lines:
        counter = self.new("k")
        lines = self.looped(f"while {counter} < n and ({self.test()}):", depth, {counter: "int"})
        return [f"{counter} = 0", lines[0], f"    {counter} += 1", *lines[1:]]

    def program(self) -> str:
        self.scope = {**dict.fromkeys(SCALARS, "float"), "values": "list"}
        lines = ["a, b, c = x, y * 0.5, 1.0"]
        for _ in range(self.random.randint(1, 3)):
            lines += self.make()
        for _ in range(self.random.randint(2, 4)):
            lines += self.statement(2, False)
        results = [self.part(kind, name) for name, kind in self.scope.items() if kind in NAMES]
        lines.append(f"return a + b * c + {' + '.join(results)} + {self.float()}")
        head = "def program(x: float, y: float, n: int, values: list[float]) -> float:"
        return "\n".join([PRELUDE, "@differentiable", head, *("    " + line for line in lines)]) + "\n"
