"""Random programs with control flow, and dual numbers: an oracle for derivatives that shares nothing with ours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

VARIABLES = ("a", "b", "c")


@dataclass
class Dual:
    """A number with its derivative along one direction, for plain Python to compute with."""

    value: float
    slope: float

    @staticmethod
    def of(x: Any) -> Dual:
        return x if isinstance(x, Dual) else Dual(float(x), 0.0)

    def __add__(self, other: Any) -> Dual:
        o = Dual.of(other)
        return Dual(self.value + o.value, self.slope + o.slope)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Dual:
        o = Dual.of(other)
        return Dual(self.value - o.value, self.slope - o.slope)

    def __rsub__(self, other: Any) -> Dual:
        return Dual.of(other) - self

    def __mul__(self, other: Any) -> Dual:
        o = Dual.of(other)
        return Dual(self.value * o.value, self.slope * o.value + self.value * o.slope)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Dual:
        o = Dual.of(other)
        return Dual(self.value / o.value, (self.slope * o.value - self.value * o.slope) / (o.value * o.value))

    def __rtruediv__(self, other: Any) -> Dual:
        return Dual.of(other) / self

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.slope)

    def __lt__(self, other: Any) -> bool:
        return self.value < Dual.of(other).value

    def __gt__(self, other: Any) -> bool:
        return self.value > Dual.of(other).value

    def __ge__(self, other: Any) -> bool:
        return self.value >= Dual.of(other).value

    def __le__(self, other: Any) -> bool:
        return self.value <= Dual.of(other).value


def dual_sin(x: Any) -> Dual:
    d = Dual.of(x)
    return Dual(math.sin(d.value), math.cos(d.value) * d.slope)


def dual_tanh(x: Any) -> Dual:
    d = Dual.of(x)
    t = math.tanh(d.value)
    return Dual(t, (1.0 - t * t) * d.slope)


expressions: st.SearchStrategy[str] = st.recursive(
    st.sampled_from([*VARIABLES, "x", "y", "0.5", "1.25", "-0.75", "values[1]"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda e: f"sin({e})"),
        inner.map(lambda e: f"tanh({e})"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]} / (1.5 + {t[1]} * {t[1]}))"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} > 0.1 else {t[2]})"),
    ),
    max_leaves=5,
)
conditions = st.one_of(
    st.tuples(expressions, st.sampled_from(["<", ">", "<="]), expressions).map(lambda t: f"{t[0]} {t[1]} {t[2]}"),
    st.tuples(expressions, expressions).map(lambda t: f"-0.5 < {t[0]} <= 1.0 or {t[1]} > 0.25"),
    st.tuples(expressions, expressions).map(lambda t: f"{t[0]} > 0.0 and not {t[1]} < 0.3"),
)


@st.composite
def statements(draw: Any, depth: int, loops: int) -> list[str]:
    """A block, as lines without its indentation."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        lines += draw(statement(depth, loops))
    return lines


def indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


@st.composite
def statement(draw: Any, depth: int, loops: int) -> list[str]:
    kinds = ["assign", "augment", "swap", "element"]
    if depth:
        kinds += ["if", "if_else", "for", "while", "return"]
    if loops:
        kinds += ["break", "continue"]
    kind = draw(st.sampled_from(kinds))
    target = draw(st.sampled_from(VARIABLES))
    if kind == "assign":
        # Bounded, so that loops stay in range.
        return [f"{target} = tanh({draw(expressions)}) * 1.5"]
    if kind == "augment":
        return [f"{target} {draw(st.sampled_from(['+=', '-=']))} sin({draw(expressions)})"]
    if kind == "swap":
        return [f"{target}, {draw(st.sampled_from(VARIABLES))} = {draw(expressions)}, sin({target})"]
    if kind == "element":
        return [f"values[{draw(st.integers(0, 2))}] = tanh(values[{draw(st.integers(-3, 2))}] + {draw(expressions)})"]
    if kind == "return":
        return [f"if {draw(conditions)}:", f"    return {draw(expressions)} + {target}"]
    if kind in ("break", "continue"):
        return [f"if {draw(conditions)}:", f"    {kind}"]
    body = indented(draw(statements(depth - 1, loops + (kind in ("for", "while")))))
    if kind == "if":
        return [f"if {draw(conditions)}:", *body]
    if kind == "if_else":
        return [f"if {draw(conditions)}:", *body, "else:", *indented(draw(statements(depth - 1, loops)))]
    if kind == "for":
        trips = draw(st.sampled_from(["n", "3", "1, n + 1"]))
        return [f"for i{depth} in range({trips}):", *body, f"    {target} += 0.1 * i{depth}"]
    counter = f"k{depth}{draw(st.integers(0, 99))}"
    return [f"{counter} = 0", f"while {counter} < n and ({draw(conditions)}):", f"    {counter} += 1", *body]


@st.composite
def programs(draw: Any) -> str:
    """A function of two floats and an integer."""
    lines = ["a, b, c = x, y * 0.5, 1.0", "values = [x, y, 0.25]", *draw(statements(2, 0))]
    lines.append(f"return a + b * c + values[0] * values[2] + {draw(expressions)}")
    return "\n".join(["def program(x, y, n):", *indented(lines)]) + "\n"
