"""Exact messages for functions that cannot be compiled or differentiated; one golden file per program."""

import re
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import pytest

import livegrad as lg
from livegrad.frontend.function.function_errors import CODES

MESSAGES = Path(__file__).parent / "functions"
DOCUMENT = Path(__file__).parents[2] / "docs" / "diagnostics.md"

# code, what is wrong, the program, what is called
CASES = [
    (
        "LG202",
        "a vector of another precision",
        """
@lg.function
def f(x: lg.vec3, scale: float) -> lg.vec3:
    return x * scale
""",
        "f(lg.vec3(1.0), 2.0)",
    ),
    (
        "LG108",
        "too many arguments by position",
        """
@lg.function
def f(x: float, *, scale: float = 2.0) -> float:
    return x * scale
""",
        "f(1.0, 2.0)",
    ),
    (
        "LG102",
        "a local function with enclosing variables passed as an argument",
        """
@lg.function
def twice(g, x: float):
    return g(g(x))

@lg.function
def f(x: float):
    return twice(lambda t: t * x, x)
""",
        "f(1.0)",
    ),
    (
        "LG102",
        "an unsupported pattern",
        """
@lg.function
def f(x: float):
    match x:
        case {"a": 1}:
            return x
    return 0.0
""",
        "f(1.0)",
    ),
    (
        "LG106",
        "a call whose change would be lost",
        """
@lg.differentiable
class Particle:
    x: float

    def move(self, by):
        self.x += by

@lg.function
def f(x: float):
    particle = Particle(x)
    particle.move(1.0)
    return particle.x
""",
        "f(1.0)",
    ),
    (
        "LG306",
        "a gradient of two results",
        """
@lg.differentiable
def f(x: float) -> tuple[float, float]:
    return x, x
""",
        "lg.grad(f)(1.0)",
    ),
    (
        "LG102",
        "syntax that functions do not support",
        """
@lg.function
def f(x: float):
    try:
        return x
    except ValueError:
        return 0.0
""",
        "f(1.0)",
    ),
    (
        "LG102",
        "a list that grows",
        """
@lg.function
def f(x: float):
    values = [x]
    values.append(x)
    return values[0]
""",
        "f(1.0)",
    ),
    (
        "LG103",
        "a name that is assigned on one path only",
        """
@lg.function
def f(x: float):
    if x > 0.0:
        y = x
    return y
""",
        "f(1.0)",
    ),
    (
        "LG103",
        "a name that is assigned in a loop that may not run",
        """
@lg.function
def f(x: float, n: int):
    for i in range(n):
        y = x * i
    return y
""",
        "f(1.0, 2)",
    ),
    (
        "LG104",
        "a name that is not defined",
        """
@lg.function
def f(x: float):
    return x * scale
""",
        "f(1.0)",
    ),
    (
        "LG105",
        "a function that calls itself",
        """
@lg.function
def f(x: float):
    return x if x < 1.0 else f(x / 2.0)
""",
        "f(1.0)",
    ),
    (
        "LG106",
        "a list with two names is changed",
        """
@lg.function
def f(x: float):
    a = [x, 1.0]
    b = a
    b[0] = 2.0
    return a[0]
""",
        "f(1.0)",
    ),
    (
        "LG107",
        "a loop over something that has no elements",
        """
@lg.function
def f(x: float):
    total = 0.0
    for v in x:
        total += v
    return total
""",
        "f(1.0)",
    ),
    (
        "LG107",
        "a list of unknown length",
        """
@lg.function
def f(n: int):
    return [i * 2.0 for i in range(n)]
""",
        "f(1)",
    ),
    (
        "LG108",
        "a call with a wrong argument",
        """
def g(x: float, y: float):
    return x * y
@lg.function
def f(x: float):
    return g(x, z=1.0)
""",
        "f(1.0)",
    ),
    (
        "LG108",
        "a value of the wrong type in a call",
        """
def g(n: int):
    return n
@lg.function
def f(x: float):
    return g(x)
""",
        "f(1.0)",
    ),
    (
        "LG109",
        "a function that the compiler does not support",
        """
@lg.function
def f(x: float):
    return open(x)
""",
        "f(1.0)",
    ),
    (
        "LG109",
        "a tensor function",
        """
@lg.function
def f(x: list[float]):
    return lg.linspace(0.0, x[0], 3)[0]
""",
        "f([1.0])",
    ),
    (
        "LG201",
        "operands that cannot be added",
        """
@lg.differentiable
class Thing:
    x: float
@lg.function
def f(t: Thing):
    return 1.0 + t
""",
        "f(Thing(1.0))",
    ),
    (
        "LG202",
        "a result of the wrong type",
        """
@lg.function
def f(x: float) -> int:
    return x * 2.0
""",
        "f(1.0)",
    ),
    (
        "LG202",
        "a function that may end without a result",
        """
@lg.function
def f(x: float):
    if x > 0.0:
        return x
""",
        "f(1.0)",
    ),
    (
        "LG203",
        "a name with two types",
        """
@lg.function
def f(x: float):
    if x > 0.0:
        y = x
    else:
        y = lg.vec3(1.0)
    return y
""",
        "f(1.0)",
    ),
    (
        "LG204",
        "an annotation that is not a type",
        """
@lg.function
def f(x: "complicated"):
    return x
""",
        "f(1.0)",
    ),
    (
        "LG205",
        "no overload matches",
        """
@lg.function
def g(x: int):
    return x
@g.overload
def _(x: lg.vec3):
    return x.x
@lg.function
def f(x: float):
    return g(x)
""",
        "f(1.0)",
    ),
    (
        "LG206",
        "two overloads match",
        """
@lg.function
def g(x: lg.f64, y: lg.f32):
    return x
@g.overload
def _(x: lg.f32, y: lg.f64):
    return y
@lg.function
def f(x: lg.f32):
    return g(x, x)
""",
        "f(1.0)",
    ),
    (
        "LG207",
        "no such attribute",
        """
@lg.differentiable
class Thing:
    x: float
@lg.function
def f(t: Thing):
    return t.y
""",
        "f(Thing(1.0))",
    ),
    (
        "LG208",
        "an index out of range",
        """
@lg.function
def f(x: float):
    values = [x, x]
    return values[2]
""",
        "f(1.0)",
    ),
    (
        "LG301",
        "a derivative lost in a call",
        """
def lookup(x: float) -> float:
    return x + 1.0
@lg.differentiable
def f(x: float) -> float:
    y = x * 2.0
    z = lookup(y)
    return z * x
""",
        "f(1.0)",
    ),
    (
        "LG301",
        "a derivative lost in a loop",
        """
def smooth(x: float) -> float:
    return x * 0.5
@lg.differentiable
def f(x: float, n: int) -> float:
    total = 0.0
    for i in range(n):
        total = smooth(total) + x
    return total
""",
        "f(1.0, 3)",
    ),
    (
        "LG301",
        "a derivative lost on the path to a differentiable function",
        """
def lookup(x: float) -> float:
    return x + 1.0
@lg.differentiable
def g(x: float) -> float:
    return x * x
@lg.differentiable
def f(x: float) -> float:
    return lg.detach(g(lookup(x))) + x
""",
        "f(1.0)",
    ),
    (
        "LG302",
        "a derivative lost in a field",
        """
@lg.differentiable
class Thing:
    x: float
    seed: lg.no_diff[float]
@lg.differentiable
def f(x: float) -> Thing:
    return Thing(x, x * 2.0)
""",
        "f(1.0)",
    ),
    (
        "LG303",
        "no_diff on something that is not a call",
        """
@lg.differentiable
def f(x: float) -> float:
    return lg.no_diff(x + 1.0) * x
""",
        "f(1.0)",
    ),
    (
        "LG304",
        "no_diff that does nothing",
        """
@lg.differentiable
def g(x: float) -> float:
    return x * 0.5
@lg.differentiable
def f(x: float) -> float:
    return lg.no_diff(g(2.0)) * x
""",
        "f(1.0)",
    ),
    (
        "LG304",
        "no_diff on a result without a derivative",
        """
def lookup(x: float) -> int:
    return int(x)
@lg.differentiable
def f(x: float) -> float:
    return lg.no_diff(lookup(x)) * x
""",
        "f(1.0)",
    ),
    (
        "LG305",
        "a derivative of a function that is not differentiable",
        """
@lg.function
def g(x: float):
    return x
@lg.differentiable
def f(x: float) -> float:
    return lg.bwd_diff(g)(x, 1.0)[0]
""",
        "f(1.0)",
    ),
    (
        "LG306",
        "a derivative of an integer result",
        """
@lg.differentiable
def g(x: float) -> int:
    return int(x)
@lg.differentiable
def f(x: float) -> float:
    return lg.bwd_diff(g)(x, 1.0)[0]
""",
        "f(1.0)",
    ),
    (
        "LG307",
        "a struct that contains itself",
        """
@lg.differentiable
class Node:
    value: float
    next: "Node"
""",
        "Node.Differential",
    ),
    (
        "LG308",
        "a derivative member that does not exist",
        """
@lg.differentiable
class D:
    db: float
@lg.differentiable
class Thing:
    Differential = D
    b: Annotated[float, lg.derivative_member("dc")]
""",
        "Thing.dzero()",
    ),
    (
        "LG309",
        "a custom derivative of the wrong type",
        """
@lg.differentiable
def f(x: float) -> float:
    return x
@f.backward_derivative
def f_bwd(x: float, d: float):
    return d, d
""",
        "f(1.0)",
    ),
    (
        "LG310",
        "a forward derivative without a pair",
        """
@lg.differentiable
def g(x: float) -> float:
    return x * x
@lg.differentiable
def f(x: float) -> float:
    return lg.fwd_diff(lg.fwd_diff(g))(lg.pair(x, 1.0)).differential.primal
""",
        "f(1.0)",
    ),
    (
        "LG401",
        "a struct that does not implement its interface",
        """
@lg.interface
class Shape:
    @lg.differentiable
    def area(self) -> float: ...
@lg.differentiable
class Circle(Shape):
    r: float
""",
        "None",
    ),
    (
        "LG402",
        "a type that does not satisfy a bound",
        """
T = TypeVar("T", bound=lg.Differentiable)
@lg.differentiable
def g(x: T) -> T:
    return x
@lg.differentiable
def f(n: int) -> int:
    return g(n)
""",
        "f(1)",
    ),
    (
        "LG403",
        "an interface without implementers",
        """
@lg.interface
class Shape:
    @lg.differentiable
    def area(self) -> float: ...
@lg.differentiable
def f(s: Shape) -> float:
    return s.area()
""",
        "f.ir()",
    ),
    (
        "LG102",
        "an asynchronous function",
        """
@lg.function
async def f(x: float):
    return x
""",
        "f(1.0)",
    ),
    (
        "LG207",
        "an attribute that the bound does not promise",
        """
T = TypeVar("T", bound=lg.Differentiable)
@lg.differentiable
def f(x: T) -> T:
    return x.weight
""",
        "None",
    ),
    (
        "LG304",
        "no_diff on a call of an intrinsic with a constant",
        """
import math
@lg.differentiable
def f(x: float) -> float:
    return lg.no_diff(math.sin(3.0)) * x
""",
        "f(1.0)",
    ),
    (
        "LG308",
        "two types with one name and one custom dadd",
        """
def make(own):
    @lg.differentiable
    class Point:
        x: float
        if own:
            @staticmethod
            def dadd(a, b):
                return a
    return Point
First, Second = make(True), make(False)
@lg.differentiable
def f(a: First, b: Second) -> float:
    return a.x * b.x
""",
        "f(First(1.0), Second(2.0))",
    ),
    (
        "LG310",
        "a number for the differential of a tuple",
        """
@lg.differentiable
def g(x: float) -> tuple[float, float]:
    return x, x
@lg.differentiable
def f(x: float) -> float:
    return lg.bwd_diff(g)(x, 1.0)[0]
""",
        "f(1.0)",
    ),
    (
        "LG401",
        "a method of another signature",
        """
@lg.interface
class Shape:
    @lg.differentiable
    def area(self, scale: float) -> float: ...
@lg.differentiable
class Circle(Shape):
    r: float
    @lg.differentiable
    def area(self) -> float:
        return self.r
""",
        "None",
    ),
    (
        "LG110",
        "an array that is not declared inout",
        """
@lg.function
def f(a: lg.array[float, "n"]):
    a[0] = 1.0
    return a
""",
        "f(np.zeros(3))",
    ),
    (
        "LG110",
        "another array for an inout parameter",
        """
@lg.function
def f(a: lg.inout[lg.array[float, "n"]]):
    a = a * 2.0
    return a
""",
        "f(np.zeros(3))",
    ),
    (
        "LG112",
        "thousands of functions that call each other",
        """
def then_add_one(g):
    def h(x: float):
        return g(x) + 1.0
    return h

f = abs
for _ in range(6000):
    f = then_add_one(f)
f = lg.function(f)
""",
        "f(1.0)",
    ),
    (
        "LG111",
        "two parallel iterations that write one element",
        """
@lg.function
def f(a: lg.inout[lg.array[float, "n"]]):
    for i in lg.parallel(n):
        a[i // 2] = 1.0
""",
        "f(np.zeros(3))",
    ),
    (
        "LG106",
        "a view of an array that is written",
        """
@lg.function
def f(a: lg.inout[lg.array[float, "n", "m"]]):
    row = a[0]
    a[0, 1] = 1.0
    return a, row
""",
        "f(np.zeros((2, 2)))",
    ),
    (
        "LG106",
        "an inout array that is not returned",
        """
@lg.function
def f(a: lg.inout[lg.array[float, "n"]]) -> float:
    a[0] = 1.0
    return a[1]
""",
        "f(np.zeros(3))",
    ),
    (
        "LG106",
        "one array for two arguments",
        """
@lg.function
def g(a: lg.inout[lg.array[float, "n"]], b: lg.array[float, "n"]):
    a[0] = b[1]
@lg.function
def f(a: lg.inout[lg.array[float, "n"]]):
    g(a, a)
""",
        "f(np.zeros(3))",
    ),
    (
        "LG108",
        "arrays of different sizes for one named size",
        """
@lg.function
def f(a: lg.array[float, "n"], b: lg.array[float, "n"]):
    return a[0] + b[0]
""",
        "f(np.zeros(3), np.zeros(4))",
    ),
    (
        "LG202",
        "a result of another shape",
        """
@lg.function
def f(a: lg.array[float, "n", "m"]) -> lg.array[float, "m"]:
    return lg.zeros(n)
""",
        "f(np.zeros((3, 4)))",
    ),
    (
        "LG202",
        "a float in an array of integers",
        """
@lg.function
def f(a: lg.inout[lg.array[int, "n"]], x: float):
    a[0] = x
""",
        "f(np.zeros(3, int), 1.5)",
    ),
    (
        "LG202",
        "an index that is not an int",
        """
@lg.function
def f(a: lg.array[float, "n"], x: float):
    return a[x]
""",
        "f(np.zeros(3), 1.5)",
    ),
    (
        "LG204",
        "a result size that no parameter has",
        """
@lg.function
def f(a: lg.array[float, "n"]) -> lg.array[float, "k"]:
    return a
""",
        "f(np.zeros(3))",
    ),
    (
        "LG204",
        "a parameter with the name of a size",
        """
@lg.function
def f(a: lg.array[float, "n"], n: int):
    return a[n]
""",
        "f(np.zeros(3), 1)",
    ),
    (
        "LG208",
        "too many indices",
        """
@lg.function
def f(a: lg.inout[lg.array[float, "n", "m"]]):
    a[0, 1, 2] = 1.0
""",
        "f(np.zeros((3, 3)))",
    ),
    (
        "LG208",
        "a row of another length",
        """
@lg.function
def f(a: lg.inout[lg.array[float, "n", "m"]], b: lg.array[float, "k"]):
    a[0] = b
""",
        "f(np.zeros((3, 3)), np.zeros(2))",
    ),
    (
        "LG107",
        "a new array of unknown size",
        """
@lg.function
def f(a: lg.array[float, "n"], k: int):
    return lg.zeros(k)
""",
        "f(np.zeros(3), 2)",
    ),
]


def message_of(program: str, call: str) -> str:
    """The error message of a program whose file is program.py."""
    names: dict[str, Any] = {"lg": lg, "np": np, "Annotated": Annotated, "TypeVar": TypeVar, "__name__": "program"}

    def run() -> None:
        lg.run_source(program, names)
        eval(call, names)

    with pytest.raises(lg.FunctionError) as caught:
        run()
    return re.sub(r"<livegrad source \d+>", "program.py", str(caught.value))


@pytest.mark.parametrize(("code", "title", "program", "call"), CASES, ids=[f"{c[0]} {c[1]}" for c in CASES])
def test_the_exact_message(code: str, title: str, program: str, call: str, check_golden: Any) -> None:
    text = program.strip("\n") + "\n"
    message = message_of(text, call)
    assert message.startswith(f"{code}: ")
    path = MESSAGES / f"{code}_{title.replace(' ', '_')}.txt"
    check_golden(path, f"{text}>>> {call}\n{message}\n")


def test_every_code_has_a_case() -> None:
    elsewhere = {"LG101"}  # tests/frontend/function/test_capture.py
    assert {code for code, *_ in CASES} | elsewhere == CODES.keys()


def test_every_code_is_in_the_documentation() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for code, title in CODES.items():
        assert f"## {code}: {title}" in text, f"{code} is not in docs/diagnostics.md"
