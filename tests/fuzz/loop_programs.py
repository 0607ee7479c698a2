"""Random programs of nested loops that write arrays, as text over a namespace `xp`; called by `loop_gradients`.

Each loop carries a line, a second one of the same length, a grid, a number, complex numbers, an integer, an array of
integers and a bool. Formulas keep away from ties and poles, and what is written is bounded.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.fuzz.programs import Program

STATE = "v, h, g, s, z, k, p, q"
SIZES = ((4, 3), (5, 4), (3, 3), (1, 2), (6, 1), (33, 17))
MOST_ITERATIONS = 60  # of all loops around a statement


@dataclass
class Writer:
    """Writes a random program line by line."""

    random: np.random.Generator
    n: int
    m: int
    lines: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    loops: list[str] = field(default_factory=list)
    iterations: int = 1
    names: int = 0

    def choose(self, *options: Any) -> Any:
        return options[int(self.random.integers(len(options)))]

    def below(self, limit: int) -> int:
        return int(self.random.integers(limit))

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def fresh(self, name: str) -> str:
        self.names += 1
        return f"{name}{self.names}"

    # --- expressions ---

    def index(self, size: int) -> str:
        """An index in range, of the loops around, of carried integers, or constant."""
        inner = self.choose(*self.loops, *self.loops, "k") if self.loops else "k"
        text = self.choose(
            "{0} % {1}", "{0} % {1}", "({0} + {2}) % {1}", "({0} * 2 + {2}) % {1}", "({1} - 1 - {0}) % {1}",
            "(p[{0} % {3}] + {2}) % {1}", "xp.minimum({0}, {1} - 1)", "{4}", "xp.maximum({0} % {1} - 1, 0)",
        )  # fmt: skip
        return text.format(inner, size, self.below(4), self.n, self.below(size))

    def number(self, depth: int = 2) -> str:
        leaves = ["v", "v", "h", "g", "g", "u", "w", "s", "constant", "z", "k"]
        kind = self.choose(
            *leaves, *(["sin", "+", "*", "-", "max", "where", "sum", "soft", "dot", "root"] * bool(depth))
        )
        self.counts[f"number {kind}"] += 1
        if kind in ("v", "h", "u"):
            return f"{kind}[{self.index(self.n)}]"
        texts = {
            "g": f"g[{self.index(self.n)}, {self.index(self.m)}]",
            "w": f"w[{self.index(self.m)}]",
            "s": "s",
            "constant": f"(one * {self.random.normal():.3f})",  # a number of Python alone would be a float32
            "z": f"xp.{self.choose('real', 'imag')}(z[{self.index(self.n)}])",
            "k": "xp.astype(k, xp.float64) * 0.13",
        }
        if kind in texts:
            return texts[kind]
        a, b = self.number(depth - 1), self.number(depth - 1)
        return {
            "sin": f"xp.{self.choose('sin', 'tanh', 'cos')}({a} + 0.0)",
            "max": f"xp.{self.choose('maximum', 'minimum')}({a}, {b} + 0.0137)",
            "where": f"xp.where({self.predicate()}, {a}, {b})",
            "sum": f"xp.{self.choose('sum', 'mean')}({self.vector(depth - 1)})",
            "soft": f"xp.exp(-xp.square({a} + 0.0))",
            "dot": f"xp.sum(g[{self.index(self.n)}, :] * w)",
            "root": f"xp.sqrt(xp.square({a} + 0.0) + 0.5)",
        }.get(kind, f"({a} {kind} {b})")

    def vector(self, depth: int = 2) -> str:
        """n numbers."""
        kind = self.choose(
            "v", "h", "u", "column", *(["sin", "+", "*", "flip", "roll", "gather", "product", "z"] * bool(depth))
        )
        self.counts[f"vector {kind}"] += 1
        texts = {
            "column": f"g[:, {self.index(self.m)}]",
            "gather": "v[p]",
            "product": "xp.sum(g * w, axis=1)",
            "z": "xp.real(z * xp.conj(z))",
        }
        if kind in ("v", "h", "u"):
            return kind
        if kind in texts:
            return texts[kind]
        a = self.vector(depth - 1)
        return {
            "sin": f"xp.sin({a} + {self.number(0)})",
            "flip": f"{a}[::-1]",
            "roll": f"xp.roll({a}, {self.choose(1, -1, 2)})",
        }.get(kind) or f"({a} {kind} {self.vector(depth - 1)})"

    def predicate(self) -> str:
        return self.choose("q", "k % 2 == 0", "p[k % {0}] % 2 == 1", "{1} > 0.1373").format(self.n, self.number(0))

    # --- statements; each assigns parts of the state ---

    def statements(self, depth: int, nesting: int, most: int = 3) -> None:
        for _ in range(1 + self.below(most)):
            self.statement(depth, nesting)

    def statement(self, depth: int, nesting: int) -> None:
        kinds = ["element", "element", "add", "cell", "update", "row", "column", "window", "whole", "number", "swap"]
        kinds += ["complex", "integer", "integers", "flag", "scatter", "local"]
        kinds += ["for", "for", "count", "until", "while", "cond", "scan", "switch", "checkpoint"] * bool(nesting)
        kind = self.choose(*kinds)
        if kind in ("for", "count", "until", "while", "scan") and self.iterations * 4 > MOST_ITERATIONS:
            kind = "cell"
        self.counts[kind] += 1
        getattr(self, f"write_{kind}")(depth, nesting)

    def write_element(self, depth: int, nesting: int) -> None:
        name = self.choose("v", "h")
        self.line(depth, f"{name} = xp.put({name}, {self.index(self.n)}, xp.sin({self.number()} + 0.0))")

    def write_add(self, depth: int, nesting: int) -> None:
        self.line(depth, f"v = xp.update_at(v, {self.index(self.n)}, xp.sin({self.number()} + 0.0) * 0.5, 'add')")

    def write_cell(self, depth: int, nesting: int) -> None:
        key = f"({self.index(self.n)}, {self.index(self.m)})"
        self.line(depth, f"g = xp.put(g, {key}, xp.sin({self.number()} + 0.0))")

    def write_update(self, depth: int, nesting: int) -> None:
        key = f"({self.index(self.n)}, {self.index(self.m)})"
        kind = self.choose("add", "mul", "max", "min")
        self.line(depth, f"g = xp.update_at(g, {key}, xp.tanh({self.number()} + 0.0137), '{kind}')")

    def write_row(self, depth: int, nesting: int) -> None:
        row = self.index(self.n)
        self.line(
            depth, f"g = xp.put(g, ({row}, slice(None)), xp.sin(g[{self.index(self.n)}, :] + {self.number()}) * w)"
        )

    def write_column(self, depth: int, nesting: int) -> None:
        self.line(depth, f"g = xp.put(g, (slice(None), {self.index(self.m)}), xp.tanh({self.vector()}))")

    def write_window(self, depth: int, nesting: int) -> None:
        length = 1 + self.below(self.n)
        start, other = (f"({self.index(self.n)}) % {self.n - length + 1}" for _ in range(2))
        name, source = self.choose("v", "h"), self.choose("v", "h", "u")
        values = f"xp.sin(xp.window({source}, ({other},), ({length},)) * 1.3 + {self.number(1)})"
        self.line(depth, f"{name} = xp.put_window({name}, ({start},), ({length},), {values})")

    def write_whole(self, depth: int, nesting: int) -> None:
        self.line(depth, self.choose(
            "v = xp.tanh({v}) + v * 0.3", "h = h * 0.5 + xp.sin({v})", "g = g * 0.6 + xp.sin({v})[:, None] * w",
            "g = xp.where({q}, g * 0.9, xp.cos(g))", "v = xp.cumulative_sum(xp.sin(v)) * 0.3",
        ).format(v=self.vector(), q=self.predicate()))  # fmt: skip

    def write_number(self, depth: int, nesting: int) -> None:
        self.line(depth, f"s = xp.sin({self.number(3)} + s * 0.5)")

    def write_swap(self, depth: int, nesting: int) -> None:
        self.line(depth, self.choose("v, h = h, v", "v, h = xp.sin(h) + 0.1, v", "h, v = v * 0.9, xp.tanh(h)"))

    def write_complex(self, depth: int, nesting: int) -> None:
        place = self.index(self.n)
        self.line(depth, self.choose(
            "z = xp.put(z, {i}, z[{j}] * (0.6 + 0.3j) + {a})", "z = z * (0.5 + 0.4j) + 1j * {v}",
            "z = xp.put(z, {i}, xp.exp(1j * {a}))", "z = xp.conj(z) * 0.7 + {v}",
            "z = z * z[{j}] / (xp.real(z * xp.conj(z)) + 1.5)",
        ).format(i=place, j=self.index(self.n), a=self.number(1), v=f"xp.sin({self.vector(1)})"))  # fmt: skip

    def write_integer(self, depth: int, nesting: int) -> None:
        inner = self.choose(*self.loops) if self.loops else "1"
        text = self.choose(
            "k = (k * 3 + {0} + 1) % 7", "k = k + 1", "k = xp.where({1}, k + 1, {0} * 1) % 11", "k = p[{0} % {2}] + 1"
        )
        self.line(depth, text.format(inner, self.predicate(), self.n))

    def write_integers(self, depth: int, nesting: int) -> None:
        self.line(depth, f"p = xp.put(p, {self.index(self.n)}, (k + {self.below(3)}) % {self.n})")

    def write_flag(self, depth: int, nesting: int) -> None:
        self.line(
            depth, f"q = {self.choose('xp.logical_not(q)', self.predicate(), f'xp.logical_and(q, {self.predicate()})')}"
        )

    def write_scatter(self, depth: int, nesting: int) -> None:
        self.line(depth, f"v = xp.update_at(v, p, xp.sin({self.vector()}) * 0.5, 'add')")

    def write_local(self, depth: int, nesting: int) -> None:
        """An array that is filled and read inside an iteration."""
        name, index = self.fresh("t"), self.fresh("j")
        if self.iterations * self.n > MOST_ITERATIONS:
            return self.write_cell(depth, nesting)
        self.line(depth, f"def {name}_body({index}, t):")
        self.loops.append(index)
        self.line(depth + 1, f"return xp.put(t, {index}, xp.sin({self.number(1)} + t[xp.maximum({index} - 1, 0)]))")
        self.loops.pop()
        self.line(depth, f"{name} = xp.fori_loop(0, {self.n}, {name}_body, xp.zeros({self.n}, dtype=xp.float64))")
        return self.line(depth, f"v = v * 0.5 + {name}")

    # --- control flow: a body is a function from state to state ---

    def body(self, depth: int, nesting: int, parameters: str, variable: str | None, iterations: int) -> str:
        name = self.fresh("body")
        self.line(depth, f"def {name}({parameters}):")
        self.line(depth + 1, f"{STATE} = state")
        before = self.iterations
        self.iterations *= max(iterations, 1)
        if variable:
            self.loops.append(variable)
        self.statements(depth + 1, nesting - 1)
        if variable:
            self.loops.pop()
        self.iterations = before
        return name

    def close(self, depth: int, result: str = f"({STATE})") -> None:
        self.line(depth + 1, f"return {result}")

    def write_for(self, depth: int, nesting: int) -> None:
        variable, first, count = self.fresh("i"), self.below(3), self.choose(0, 1, 2, 3, 4)
        name = self.body(depth, nesting, f"{variable}, state", variable, count)
        self.close(depth)
        self.line(depth, f"{STATE} = xp.fori_loop({first}, {first + count}, {name}, ({STATE}))")

    def write_count(self, depth: int, nesting: int) -> None:
        variable = self.fresh("i")
        name = self.body(depth, nesting, f"{variable}, state", variable, 4)
        self.close(depth)
        self.line(depth, f"{STATE} = xp.loop_by_count(k % 5, {name}, ({STATE}), 4)")

    def write_while(self, depth: int, nesting: int) -> None:
        variable, most = self.fresh("i"), self.choose(1, 3, 4)
        name = self.body(depth, nesting, f"{variable}, state", variable, most)
        self.close(depth)
        self.line(
            depth, f"{STATE} = xp.loop_by_test({self.choose(most, f'k % {most + 1}')}, {name}, ({STATE}), {most})"
        )

    def write_until(self, depth: int, nesting: int) -> None:
        """A loop that ends early, by numbers that it computes."""
        variable, test, most = self.fresh("i"), self.fresh("test"), 5
        name = self.body(depth, nesting, f"{variable}, state", variable, most)
        self.close(depth)
        self.line(depth, f"def {test}({variable}, state):")
        self.line(depth + 1, f"{STATE} = state")
        self.line(
            depth + 1, f"return {self.choose('s < 0.63', 'xp.sum(v) < 1.11', 'q', 'v[0] * s < 0.31', 'k % 5 != 3')}"
        )
        self.line(depth, f"{STATE} = xp.loop_until({test}, {name}, ({STATE}), {most})")

    def write_cond(self, depth: int, nesting: int) -> None:
        names = []
        for _ in range(2):
            names.append(self.body(depth, nesting, "state", None, 1))
            self.close(depth)
        self.line(depth, f"{STATE} = xp.cond({self.predicate()}, {', '.join(names)}, ({STATE}))")

    def write_switch(self, depth: int, nesting: int) -> None:
        names = []
        for _ in range(3):
            names.append(self.body(depth, 1, "state", None, 1))
            self.close(depth)
        self.line(depth, f"{STATE} = xp.switch(k % 3, [{', '.join(names)}], ({STATE}))")

    def write_scan(self, depth: int, nesting: int) -> None:
        """A scan over rows of the grid whose outputs become the second line, or are added to it."""
        name = self.body(depth, nesting, "state, given", None, self.n)
        output = self.choose("xp.sum(given) + s", "xp.sin(v[0] + given[0])", "given[-1] * s")
        self.close(depth, f"({STATE}), {output}")
        source = self.choose("g", "xp.sin(g)", f"u[:, None] * xp.ones((1, {self.m}), dtype=xp.float64)")
        made = self.fresh("ys")
        self.line(
            depth, f"({STATE}), {made} = xp.scan({name}, ({STATE}), {source}, reverse={self.choose(True, False)})"
        )
        self.line(
            depth, self.choose(f"h = xp.sin({made})", f"h = h * 0.5 + {made} * 0.1", f"s = xp.sin(s + xp.sum({made}))")
        )

    def write_checkpoint(self, depth: int, nesting: int) -> None:
        """A part that reverse mode recomputes."""
        name = self.body(depth, nesting, "*state", None, 1)
        self.close(depth)
        self.line(depth, f"{STATE} = xp.checkpoint({name})({STATE})")


def random_loops(seed: int) -> Program:
    """The program of a seed: a loop with statements inside, then more statements."""
    random = np.random.default_rng(seed)
    n, m = SIZES[int(random.integers(len(SIZES)))]
    writer = Writer(random, n, m)
    writer.line(1, "v, h, s, k, q = a0, xp.sin(a0), a3 * 0.5, xp.asarray(2), xp.asarray(True)")
    writer.line(1, "g, w, u, one = a1, a2, xp.cos(a0), xp.asarray(1.0, dtype=xp.float64)")
    writer.line(1, f"z = v + 1j * xp.sin(h); p = xp.asarray(np.arange({n}) * 3 % {n})")
    writer.counts["for"] += 1
    writer.write_for(1, writer.choose(1, 2, 2, 3))
    for _ in range(2):
        writer.statement(1, 2)
    writer.line(1, "return [v, h, g, s, z, k, p]")
    text = "def program(xp, a0, a1, a2, a3):\n" + "\n".join(writer.lines) + "\n"
    arguments: list[Any] = [random.normal(size=shape) for shape in ((n,), (n, m), (m,))]
    return Program(text, [*arguments, np.asarray(random.normal())], writer.counts, "float64")
