"""Random nests of loops and branches that read and write elements, rows, columns and slices of arrays, beside the same
program in plain Python.

Values come from CPython on NumPy arrays, derivatives from central differences of it. The same function is also compiled
without the passes that make one kernel of a nest, and runs on one thread and on several.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import livegrad as lg
from livegrad.compiler import Compilation, lower
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.tensors.handle import wrap
from livegrad.tensors.tracing import trace_call
from tests.fuzz.on_threads import compare_threads

SHORT = 3
ROWS, COLUMNS = 5, 4
_STEP = 1e-6
Term = tuple[Any, ...]


# --- programs ---------------------------------------------------------------------------------------------------------


@dataclass
class Writer:
    """Writes a random program: a list of statements, each a tuple with its kind first."""

    random: np.random.Generator
    has_rows: bool = False  # whether rows, columns and slices are read and written too
    counts: Counter[str] = field(default_factory=Counter)

    def choose(self, *kinds: Any) -> Any:
        return kinds[int(self.random.integers(len(kinds)))]

    def statements(self, depth: int, indices: int) -> list[Term]:
        return [self.statement(depth, indices) for _ in range(int(self.random.integers(1, 4)))]

    def statement(self, depth: int, indices: int) -> Term:
        kinds = ["set", "add", "scalar"] if indices else ["scalar"]
        kinds += ["row", "column", "slice", "whole"] if self.has_rows else []
        kinds += ["for", "for", "for", "while", "if"] if depth else []
        kind = self.choose(*kinds)
        self.counts[kind] += 1
        match kind:
            case "for":
                iterations = int(self.random.integers(0, 5))
                return kind, iterations, bool(self.random.random() < 0.3), self.statements(depth - 1, indices + 1)
            case "while":
                return kind, int(self.random.integers(0, 4)), self.statements(depth - 1, indices + 1)
            case "if":
                return kind, self.number(2, indices), self.statements(depth - 1, indices), self.statements(0, indices)
            case "scalar":
                return kind, self.number(3, indices)
            case "row":
                return kind, self.index(indices), self.vector(3, indices, COLUMNS)
            case "column":
                return kind, self.index(indices), self.vector(3, indices, ROWS)
            case "slice":
                start, step = (int(self.random.integers(*bounds)) for bounds in ((0, 3), (1, 3)))
                return kind, start, step, self.vector(3, indices, ROWS)
            case "whole":
                return kind, self.vector(2, indices, ROWS), self.vector(2, indices, COLUMNS), self.choose(True, False)
        return kind, self.choose("line", "grid"), self.index(indices), self.index(indices), self.number(3, indices)

    def index(self, indices: int) -> Term:
        """An index of one of the loops around, scaled and shifted; it is taken modulo the size."""
        which = int(self.random.integers(max(indices, 1))) if indices else -1
        return which, int(self.choose(1, 1, 2, 3)), int(self.random.integers(0, 5))

    def number(self, depth: int, indices: int) -> Term:
        leaves = ["line", "grid", "weights", "scalar", "constant"]
        inner = ["sin", "+", "*", "-", "max"] + ["sum", "greatest"] * self.has_rows
        kind = self.choose(*leaves, *(inner * bool(depth)))
        self.counts[f"term {kind}"] += 1
        match kind:
            case "line" | "grid" | "weights":
                return kind, self.index(indices), self.index(indices)
            case "constant":
                return kind, float(np.round(self.random.normal(), 3))
            case "scalar":
                return (kind,)
            case "sin":
                return kind, self.number(depth - 1, indices)
            case "sum" | "greatest":
                size = self.choose(ROWS, COLUMNS)
                return kind, size, self.vector(depth - 1, indices, size)
        return kind, self.number(depth - 1, indices), self.number(depth - 1, indices)

    def vector(self, depth: int, indices: int, size: int) -> Term:
        """A term with a number for each element of a row, or of a column."""
        leaves = ["line", "part", "number"] if size == ROWS else ["weights", "part", "number"]
        kind = self.choose(*leaves, *(["sin", "+", "*", "max", "flip", "where", "gather", "dot"] * bool(depth)))
        self.counts[f"vector {kind}"] += 1
        match kind:
            case "line" | "weights":
                return (kind,)
            case "part":
                return kind, self.index(indices)
            case "number":
                return kind, self.number(depth - 1 if depth else 0, indices)
            case "sin" | "flip":
                return kind, self.vector(depth - 1, indices, size)
            case "gather":
                return kind, self.index(indices), self.vector(depth - 1, indices, size)
            case "where":
                return kind, self.index(indices), *(self.vector(depth - 1, indices, size) for _ in range(2))
            case "dot":
                return kind, self.vector(depth - 1, indices, COLUMNS if size == ROWS else ROWS)
        return kind, self.vector(depth - 1, indices, size), self.vector(depth - 1, indices, size)


# --- two interpreters: plain Python, and livegrad --------------------------------------------------------------------


@dataclass
class Machine:
    """What differs between the interpreters: numbers, functions of them, loops and branches."""

    constant: Callable[[float], Any]
    sin: Callable[[Any], Any]
    maximum: Callable[[Any, Any], Any]
    arrays: Any  # the module of functions of arrays
    loop: Callable[..., Any]
    repeat: Callable[..., Any]
    branch: Callable[..., Any]


State = tuple[Any, Any, Any]  # a line, a grid, a number


def _place(index: Term, indices: Sequence[Any], size: int) -> Any:
    which, scale, shift = index
    return ((indices[which] if indices and which >= 0 else 0) * scale + shift) % size


def _number(term: Term, state: State, weights: Any, indices: Sequence[Any], machine: Machine) -> Any:
    line, grid, scalar = state
    match term:
        case ("line", i, _):
            return line[_place(i, indices, ROWS)]
        case ("grid", i, j):
            return grid[_place(i, indices, ROWS), _place(j, indices, COLUMNS)]
        case ("weights", i, _):
            return weights[_place(i, indices, COLUMNS)]
        case ("constant", value):
            return machine.constant(value)
        case ("scalar",):
            return scalar
        case ("sin", inner):
            return machine.sin(_number(inner, state, weights, indices, machine))
        case (("sum" | "greatest") as kind, size, inner):
            values = _vector(inner, state, weights, indices, machine, size)
            return machine.arrays.sum(values) if kind == "sum" else machine.arrays.max(values)
    kind, *parts = term
    a, b = (_number(part, state, weights, indices, machine) for part in parts)
    return {"+": lambda: a + b, "*": lambda: a * b, "-": lambda: a - b, "max": lambda: machine.maximum(a, b)}[kind]()


def _vector(term: Term, state: State, weights: Any, indices: Sequence[Any], machine: Machine, size: int) -> Any:
    line, grid, _ = state
    lib = machine.arrays

    def inner(part: Term, own: int = size) -> Any:
        return _vector(part, state, weights, indices, machine, own)

    match term:
        case ("line",):
            return line + 0.0
        case ("weights",):
            return weights + 0.0
        case ("part", i):
            return grid[:, _place(i, indices, COLUMNS)] + 0.0 if size == ROWS else grid[_place(i, indices, ROWS)] * 1.0
        case ("number", number):
            return _number(number, state, weights, indices, machine) * np.ones(size)
        case ("sin", part):
            return lib.sin(inner(part))
        case ("flip", part):
            return inner(part)[::-1]
        case ("gather", i, part):
            return inner(part)[(lib.arange(size) * 2 + _place(i, indices, size)) % size]
        case ("where", i, first, second):
            return lib.where(lib.arange(size) > _place(i, indices, size), inner(first), inner(second))
        case ("dot", part):
            by_row = grid if size == ROWS else grid.T
            return lib.sum(by_row * inner(part, ROWS + COLUMNS - size), axis=1)
    kind, first, second = term
    a, b = inner(first), inner(second)
    return {"+": lambda: a + b, "*": lambda: a * b, "max": lambda: lib.maximum(a, b)}[kind]()


def _write_part(statement: Term, state: State, weights: Any, indices: tuple[Any, ...], machine: Machine) -> State:
    line, grid, scalar = state

    def vector(term: Term, size: int) -> Any:
        return machine.arrays.sin(_vector(term, state, weights, indices, machine, size))

    match statement:
        case ("row", i, term):
            grid[_place(i, indices, ROWS)] = vector(term, COLUMNS)
        case ("column", j, term):
            grid[:, _place(j, indices, COLUMNS)] = vector(term, ROWS)
        case ("slice", start, step, term):
            line[start::step] = vector(term, ROWS)[start::step] + line[start::step] * 0.5
        case ("whole", first, second, by_row):
            outer = vector(first, ROWS)[:, None] * vector(second, COLUMNS)[None, :]
            grid = grid * 0.5 + outer if by_row else machine.arrays.maximum(outer, grid * 0.9)
    return line, grid, scalar


def _run(statements: list[Term], state: State, weights: Any, indices: tuple[Any, ...], machine: Machine) -> State:
    for statement in statements:
        state = _run_one(statement, state, weights, indices, machine)
    return state


def _run_one(statement: Term, state: State, weights: Any, indices: tuple[Any, ...], machine: Machine) -> State:
    match statement:
        case ("for", iterations, reverse, body):
            return machine.loop(
                iterations,
                lambda i, s: _run(body, s, weights, (*indices, (iterations - 1 - i) if reverse else i), machine),
                state,
            )
        case ("while", limit, body):
            return machine.repeat(limit, lambda i, s: _run(body, s, weights, (*indices, i), machine), state)
        case ("if", number, then, otherwise):
            predicate = _number(number, state, weights, indices, machine) > 0.1
            ways = [lambda s, w=way: _run(w, s, weights, indices, machine) for way in (then, otherwise)]
            return machine.branch(predicate, *ways, state)
        case ("scalar", number):
            return state[0], state[1], machine.sin(_number(number, state, weights, indices, machine))
        case (("row" | "column" | "slice" | "whole"), *_):
            return _write_part(statement, state, weights, indices, machine)
    kind, name, i, j, number = statement
    value = machine.sin(_number(number, state, weights, indices, machine))
    tensor = state[0] if name == "line" else state[1]
    key = _place(i, indices, ROWS) if name == "line" else (_place(i, indices, ROWS), _place(j, indices, COLUMNS))
    tensor[key] = value if kind == "set" else tensor[key] + value
    return (tensor, state[1], state[2]) if name == "line" else (state[0], tensor, state[2])


def _plain_loop(iterations: int, body: Callable[..., State], state: State) -> State:
    for index in range(iterations):
        state = body(index, state)
    return state


PLAIN = Machine(
    constant=float,
    sin=np.sin,
    maximum=max,
    arrays=np,
    loop=_plain_loop,
    repeat=_plain_loop,
    branch=lambda predicate, then, otherwise, state: (then if predicate else otherwise)(state),
)


def _repeat(limit: int, body: Callable[..., State], state: State) -> State:
    def step(carried: Any) -> Any:
        count, inner = carried
        return count + 1, body(count, inner)

    return lg.while_loop(lambda carried: carried[0] < limit, step, (lg.asarray(0), state))[1]


LAZY = Machine(
    constant=lambda value: lg.asarray(value, dtype=lg.float64),
    sin=lg.sin,
    maximum=lg.maximum,
    arrays=lg,
    loop=lambda iterations, body, state: lg.fori_loop(0, iterations, body, state),
    repeat=_repeat,
    branch=lg.cond,
)


# --- comparison -------------------------------------------------------------------------------------------------------


def run_one(seed: int) -> Mapping[str, int]:
    """Runs one program in both ways, with derivatives; counts what it is made of."""
    random = np.random.default_rng(seed)
    writer = Writer(random, has_rows=bool(seed % 2))
    program = [("for", int(random.integers(1, 5)), False, writer.statements(2, 1)), *writer.statements(2, 0)]
    arguments = [random.normal(size=(ROWS,)), random.normal(size=(ROWS, COLUMNS)), random.normal(size=(COLUMNS,))]
    directions = [random.normal(size=a.shape) for a in arguments]
    try:
        _compare(program, arguments, directions, writer.counts)
    except Exception as error:
        error.add_note(f"seed {seed}: {program}")
        raise
    return writer.counts


def _total(line: Any, grid: Any, weights: Any, program: list[Term], machine: Machine, start: Any, total: Any) -> Any:
    """One number that depends on every element of the last state."""
    last = _run(program, (line, grid, start), weights, (), machine)
    return (
        total(last[0] * np.arange(1.0, ROWS + 1))
        + total(last[1] * np.linspace(0.5, 2.0, ROWS * COLUMNS).reshape(ROWS, COLUMNS))
        + last[2]
    )


def _compiled(traced: Any, target: Any, arguments: list[Any], counts: Counter[str], what: str) -> list[Any]:
    """What a function gives on a target; counts whether it is kernels alone."""
    plan = CompiledPlan.from_plan(Compilation(lower(traced.function, target), target).plan, run_function)
    counts[f"{what} in kernels" if plan.only_kernels else f"{what} with host steps"] += target is CPU
    return plan.run([*arguments, *(np.asarray(wrap(node)) for node in traced.captures)])


def _condition(function: Callable[..., float], arguments: list[Any], value: float) -> float:
    """How much a program magnifies rounding, at least 1: loops may iterate a chaotic map."""
    random, step = np.random.default_rng(0), 1e-12
    moved = [function(*[a + step * random.normal(size=a.shape) for a in arguments]) for _ in range(3)]
    return max(1.0, *(abs(one - value) / step for one in moved))


def _compare(program: list[Term], arguments: list[Any], directions: list[Any], counts: Counter[str]) -> None:
    def plain(*values: Any) -> float:
        line, grid, weights = (np.array(value) for value in values)
        return float(_total(line, grid, weights, program, PLAIN, 0.3, np.sum))

    def lazy(line: Any, grid: Any, weights: Any) -> Any:
        return _total(line + 0.0, grid + 0.0, weights, program, LAZY, lg.asarray(0.3, dtype=lg.float64), lg.sum)

    def both(line: Any, grid: Any, weights: Any) -> Any:
        value, gradients = lg.value_and_grad(lazy, argnums=(0, 1, 2))(line, grid, weights)
        return value, *gradients

    types = [lg.asarray(argument).type for argument in arguments]
    expected = plain(*arguments)
    value = trace_call(lazy, types, "nest")
    alone = _compiled(value, CPU, arguments, counts, "value")
    tolerance = 1e-12 * _condition(plain, arguments, expected)
    np.testing.assert_allclose(alone[0], expected, rtol=tolerance, atol=tolerance, err_msg="value alone")
    traced = trace_call(both, types, "nest")
    for own in (value, traced):
        compare_threads(own.function, [*arguments, *map(np.asarray, map(wrap, own.captures))], counts)
    others = ("lower_tapes",), ("loop_over_elements",), ("lower_tapes", "loop_over_elements", "scalarise_loops")
    targets = [CPU, *(CPU.without(*names) for names in others)]
    results = [_compiled(traced, target, arguments, counts, "gradient") for target in targets]
    np.testing.assert_allclose(results[0][0], expected, rtol=tolerance, atol=tolerance, err_msg="value")
    for own, *others in zip(*results, strict=True):
        for other in others:
            limit = 1e3 * tolerance * (1.0 + np.max(np.abs(other)))
            np.testing.assert_allclose(own, other, rtol=1e-9, atol=limit, err_msg="without a pass")
    ahead, behind = (plain(*[a + s * _STEP * d for a, d in zip(arguments, directions, strict=True)]) for s in (1, -1))
    near = plain(*[a + 0.01 * _STEP * d for a, d in zip(arguments, directions, strict=True)])
    slope = (ahead - behind) / (2 * _STEP)
    found = sum(float(np.sum(g * d)) for g, d in zip(results[0][1:], directions, strict=True))
    if abs(ahead - expected) > 1e-2 or abs(near - expected) > 1e-3:
        counts["at a jump"] += 1  # a branch is taken differently a step away
        return
    if abs(slope - found) > 1e-4 * max(1.0, abs(slope)):
        one_sided = (ahead - expected) / _STEP, (expected - behind) / _STEP
        assert abs(one_sided[0] - one_sided[1]) > 1e-3, f"slope {slope}, derivative {found}"
        counts["at a kink"] += 1
