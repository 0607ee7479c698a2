"""Random captured functions over arrays: element and row writes, slices, local arrays, helpers, jumps, parallel loops.

The oracle is CPython, which runs the same source on NumPy arrays. Numbers are multiplied by powers of two only, so that
fused multiply-adds are exact and values agree to the bit. Smooth programs are also differentiated in both modes, and
compared with central differences of CPython. Threads share the loops, and must not change a bit. A program that gives
an array a second name may be refused, but not wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

import livegrad as lg
from tests.fuzz.on_threads import compare_threads

SHORT = 12
ROWS, COLUMNS = 4, 3
_STEP = 1e-6
_HELPERS = """
@decorate
def bump(row: lg.inout[lg.array[float, "p"]], place: int, by: float) -> float:
    row[place % p] += by
    for q in range(p):
        if q == place:
            continue
        row[q] = row[q] * 0.5 + by
    return row[0]


@decorate
def total(row: lg.array[float, "p"]) -> float:
    s = 0.0
    for x in row:
        s += x * 0.5
    return s


"""


@dataclass
class Writer:
    """Writes a random function as text, line by line."""

    random: np.random.Generator
    smooth: bool
    lines: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    loops: list[str] = field(default_factory=list)
    arrays: list[tuple[str, int]] = field(default_factory=lambda: [("a", 1), ("g", 2), ("b", 1)])
    aliases: int = 0
    names: int = 0

    def choose(self, *options: Any) -> Any:
        return options[int(self.random.integers(len(options)))]

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def fresh(self, name: str) -> str:
        self.names += 1
        return f"{name}{self.names}"

    # --- expressions ---

    def index(self, size: str) -> str:
        inner = self.choose(*self.loops, "k[0]", "2") if self.loops else self.choose("k[1]", "1")
        scaled = self.choose("{}", "{} * 2", "{} + 1", "3 - {}", "k[{} % n]").format(inner)
        return self.choose(f"({scaled}) % {size}", f"({scaled}) % {size}", f"-1 - ({scaled}) % {size}")

    def element(self) -> str:
        name, rank = self.choose(*self.arrays)
        return f"{name}[{self.index('n')}]" if rank == 1 else f"{name}[{self.index('n')}, {self.index('m')}]"

    def number(self, depth: int) -> str:
        kinds = ["element", "element", "w", "s", "constant"] + ["+", "-", "half", "call"] * bool(depth)
        kinds += (["sin", "*"] if self.smooth else ["max", "min", "abs", "choice"]) * bool(depth)
        kind = self.choose(*kinds)
        self.counts[f"term {kind}"] += 1
        inner = lambda: self.number(depth - 1)  # noqa: E731
        match kind:
            case "element":
                return self.element()
            case "w" | "s":
                return kind
            case "constant":
                return self.choose("0.25", "-1.5", "2.0")
            case "+" | "-":
                return f"({inner()} {kind} {inner()})"
            case "*":
                return f"(0.25 * {inner()} * {inner()})"
            case "half":
                return f"({inner()} * {self.choose('0.5', '2.0', '-0.25')})"
            case "sin":
                return f"lg.sin({inner()})"
            case "abs":
                return f"abs({inner()})"
            case "choice":
                return f"({inner()} if {inner()} < {inner()} else {inner()})"
            case "call":
                row, column = f"total(g[{self.index('n')}])", f"total(g[:, {self.index('m')}])"
                return self.choose("total(a)", "total(b)", row, column)
        return f"{kind}({inner()}, {inner()})"

    # --- statements ---

    def statements(self, depth: int, nesting: int) -> None:
        for _ in range(int(self.random.integers(1, 4))):
            self.statement(depth, nesting)

    def statement(self, depth: int, nesting: int) -> None:
        kinds = ["store", "store", "add", "scalar", "row", "slice", "local", "helper", "range", "buffers"]
        kinds += ["for", "for", "while", "parallel", "if"] * bool(nesting)
        kinds += ["alias"] if not self.smooth else []
        kinds += ["break", "continue"] if self.loops else []
        kinds += ["return"] if not self.smooth else []
        kind = self.choose(*kinds)
        self.counts[kind] += 1
        getattr(self, f"write_{kind}")(depth, nesting)

    def write_store(self, depth: int, nesting: int) -> None:
        self.line(depth, f"{self.element()} = {self.number(2)}")

    def write_add(self, depth: int, nesting: int) -> None:
        self.line(depth, f"{self.element()} {self.choose('+=', '-=')} {self.number(2)}")

    def write_scalar(self, depth: int, nesting: int) -> None:
        self.line(depth, f"s = {self.number(2)} * 0.5")

    def write_row(self, depth: int, nesting: int) -> None:
        self.line(depth, f"g[{self.index('n')}] {self.choose('=', '+=')} g[{self.index('n')}] * 0.5 + {self.number(1)}")

    def write_slice(self, depth: int, nesting: int) -> None:
        text = self.choose(
            "a[1:] = b[:-1] * 0.5", "g[1:-1, 0] = a[1:-1]", "g[:, -1] -= b", "a[::2] = {}", "b[:] = a + {}", "b *= 0.5"
        )
        self.line(depth, text.format(self.number(1)))

    def write_local(self, depth: int, nesting: int) -> None:
        made = self.choose("lg.zeros(n)", "lg.full(n, 0.5)", "a.copy()", "np.ones(n)", "b * 0.5")
        self.line(depth, f"t = {made}")
        self.line(depth, f"t[{self.index('n')}] = {self.number(1)}")
        self.line(depth, f"s = s * 0.5 + t[{self.index('n')}]")

    def write_helper(self, depth: int, nesting: int) -> None:
        given = self.choose("a", "b", f"g[{self.index('n')}]", f"g[:, {self.index('m')}]")
        call = f"bump({given}, {self.index('n')}, {self.number(1)})"
        self.line(depth, self.choose(call, f"s = {call} * 0.5"))

    def write_alias(self, depth: int, nesting: int) -> None:
        if self.random.random() < 0.7:
            return self.write_store(depth, nesting)
        self.aliases += 1
        name = self.fresh("v")
        row = f"g[{self.index('n')}]"
        self.line(depth, f"{name} = {self.choose('a', row, 'g[:, 0]', 'a[1:]')}")
        self.line(depth, self.choose(f"{name}[0] = {self.number(1)}", f"a[1] = {self.number(1)}", "s = s * 0.5"))
        return self.line(depth, f"s = s * 0.5 + {name}[0]")

    def write_for(self, depth: int, nesting: int) -> None:
        variable = self.fresh("i")
        bounds = self.choose("n", "m", "1, n", "n - 1, -1, -1", "0", "k[0] % 3", "a.shape[0]", "len(g)")
        self.line(depth, f"for {variable} in range({bounds}):")
        self.inside(depth, nesting, variable)

    def write_range(self, depth: int, nesting: int) -> None:
        """A loop whose variable is an index as it is: negative or not, shifted or not."""
        variable = self.fresh("r")
        bounds, index = self.choose(
            ("-n, n", "{}"), ("n - 1, -1, -1", "{}"), ("1, n", "{} - 1"), ("n", "n - 1 - {}"), ("n", "{} - n"),
            ("n - 1", "({} + 1) % n"), ("-1, n - 1", "{}"), ("k[0] % n, n", "{}"), ("-2, 0", "2 * {}"),
        )  # fmt: skip
        self.line(depth, f"for {variable} in range({bounds}):")
        self.line(depth + 1, f"a[{index.format(variable)}] += b[{index.format(variable)}] * 0.5 + {self.number(1)}")

    def write_buffers(self, depth: int, nesting: int) -> None:
        """Two arrays that change their names after each step."""
        old, new, step, place = (self.fresh(name) for name in ("x", "y", "t", "p"))
        self.line(depth, f"{old} = a.copy()")
        self.line(depth, f"{new} = b.copy()")
        self.line(depth, f"for {step} in range({self.choose('2', '3', 'k[0] % 3')}):")
        self.line(depth + 1, f"for {place} in range(n - 1):")
        self.line(depth + 2, f"{new}[{place}] = {old}[{place} + 1] * 0.5 + {self.number(1)}")
        self.line(depth + 1, f"{old}, {new} = {new}, {old}")
        self.line(depth, f"a[:] = {old} + {new} * 0.5")

    def write_parallel(self, depth: int, nesting: int) -> None:
        """A parallel loop: it writes one element or row in each iteration, and has local arrays and loops."""
        j = self.fresh("j")
        self.line(depth, f"for {j} in lg.parallel(n):")
        kind = self.choose("element", "row", "local", "order", "sum", "branch")
        self.counts[f"parallel {kind}"] += 1
        match kind:
            case "element":
                self.line(depth + 1, f"a[{j}] = b[{j}] * 0.5 + a[{j}]")
            case "row":
                inner = self.fresh("q")
                self.line(depth + 1, f"for {inner} in range(m):")
                self.line(depth + 2, f"g[{j}, {inner}] = b[({j} + {inner}) % n] * 0.5 + g[{j}, m - 1 - {inner}]")
            case "local":
                local, inner = self.fresh("t"), self.fresh("q")
                self.line(depth + 1, f"{local} = lg.zeros(m)")
                self.line(depth + 1, f"for {inner} in range(m):")
                self.line(depth + 2, f"{local}[{inner}] = g[{j}, {inner}] * 0.5 + {local}[{inner} - 1]")
                self.line(depth + 1, f"a[{j}] = {local}[{self.index('m')}] + {local}[0]")
            case "order":
                self.line(depth + 1, f"a[({j} + k[0]) % n] = b[{j}] * 0.5 + w")
            case "sum":
                self.line(depth + 1, f"a[k[{j}] % n] += b[{j}] * 0.5")
            case "branch":
                self.line(depth + 1, f"if k[{j}] % 2 == 0:")
                self.line(depth + 2, f"a[{j}] = b[{j}] * 0.5 + w")
                self.line(depth + 1, "else:")
                self.line(depth + 2, f"g[{j}, 0] = b[{j}] + g[{j}, 1]")

    def write_while(self, depth: int, nesting: int) -> None:
        variable = self.fresh("c")
        self.line(depth, f"{variable} = 0")
        self.line(depth, f"while lg.bounded({variable} < {self.choose('2', 'k[1] % 3')}, 8):")
        self.line(depth + 1, f"{variable} += 1")
        self.inside(depth, nesting, variable)

    def inside(self, depth: int, nesting: int, variable: str) -> None:
        self.loops.append(variable)
        self.statements(depth + 1, nesting - 1)
        self.loops.pop()

    def write_if(self, depth: int, nesting: int) -> None:
        self.line(depth, f"if {self.condition()}:")
        self.statements(depth + 1, nesting - 1)
        if self.random.random() < 0.5:
            self.line(depth, "else:")
            self.statements(depth + 1, 0)

    def condition(self) -> str:
        """Smooth programs branch on integers only."""
        return f"k[{self.index('n')}] % 2 == 0" if self.smooth else f"{self.number(1)} < {self.number(1)}"

    def write_break(self, depth: int, nesting: int) -> None:
        self.line(depth, f"if {self.condition()}:")
        self.line(depth + 1, "break")

    def write_continue(self, depth: int, nesting: int) -> None:
        self.line(depth, f"if {self.condition()}:")
        self.line(depth + 1, "continue")

    def write_return(self, depth: int, nesting: int) -> None:
        self.line(depth, f"if {self.condition()}:")
        self.line(depth + 1, "return a, g, s")

    def program(self) -> str:
        parameters = 'a: lg.inout[lg.array[float, "n"]], g: lg.inout[lg.array[float, "n", "m"]], w: float, k: K'
        self.line(0, "@decorate")
        self.line(0, f"def f({parameters}):")
        self.line(1, "s = 0.5")
        self.line(1, "b = a.copy()")
        for _ in range(3):
            self.statements(1, 3)
        self.line(1, "return a, g, s")
        return _HELPERS + "\n".join(self.lines) + "\n"


def run_one(seed: int) -> Mapping[str, int]:
    """One random program; returns what it was made of, or raises with its text."""
    random = np.random.default_rng(seed)
    writer = Writer(random, smooth=bool(seed % 2))
    text = writer.program()
    decorate = lg.differentiable if writer.smooth else lg.function
    names = lg.run_source(text, {"lg": lg, "np": np, "decorate": decorate, "K": lg.array[int, Literal["n"]]})
    a, g = (random.integers(-16, 16, shape) / 8.0 for shape in ((ROWS,), (ROWS, COLUMNS)))
    given = (a, g, 0.75, random.integers(0, 5, ROWS))
    try:
        refused = _check_values(names["f"], given, writer)
        if not refused:
            types = [lg.asarray(value).type for value in (a, g)]
            ints = lg.asarray(given[3]).type
            compare_threads(names["f"].specialization_for(*types, float, ints).function, given, writer.counts)
        if writer.smooth:
            _check_derivatives(names["f"], given, random)
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}\n{text}") from error
    return {"programs": 1, "refused": int(refused), **writer.counts}


def _check_values(function: Any, given: tuple[Any, ...], writer: Writer) -> bool:
    """Whether the program was refused, for a second name that it gives an array; else it is as in CPython."""
    before = [np.copy(value) for value in given]
    try:
        found = function(*given)
    except lg.FunctionError as error:
        if writer.aliases and error.code == "LG106":
            return True
        raise
    expected = function.python(*given)
    for value, old in zip(given, before, strict=True):
        np.testing.assert_array_equal(value, old, "an argument was changed")
    for one, other in zip(found, expected, strict=True):
        if writer.smooth:
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
        else:
            np.testing.assert_array_equal(one, other)
    return False


def _check_derivatives(function: Any, given: tuple[Any, ...], random: np.random.Generator) -> None:
    a, g, w, k = given
    da, dg, ca, cg = (random.normal(size=value.shape) for value in (a, g, a, g))
    pairs = lg.pair(a, da), lg.pair(g, dg), lg.pair(w, 1.0), k
    forward = lg.fwd_diff(function)(*pairs).differential
    along = float(np.sum(ca * forward[0]) + np.sum(cg * forward[1]) + forward[2])
    back = lg.bwd_diff(function)(a, g, w, k, (ca, cg, 1.0))
    backward = float(np.sum(back[0] * da) + np.sum(back[1] * dg) + back[2])
    moved = []
    for step in (_STEP, -_STEP):
        x, y, s = function.python(a + step * da, g + step * dg, w + step, k)
        moved.append(float(np.sum(ca * x) + np.sum(cg * y) + s))
    scale = 1.0 + abs(along) + max(map(abs, moved))
    np.testing.assert_allclose(backward, along, rtol=1e-9, atol=1e-9 * scale)
    np.testing.assert_allclose(along, (moved[0] - moved[1]) / (2.0 * _STEP), rtol=1e-4, atol=1e-5 * scale)
