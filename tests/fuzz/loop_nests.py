"""Random nests of loops and branches that read and write elements of arrays, beside the same program in plain Python.

Values come from CPython on NumPy arrays, derivatives from central differences of it. The same function is also compiled
without `scalarise_loops`.
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

SHORT = 3
ROWS, COLUMNS = 5, 4
_STEP = 1e-6
Term = tuple[Any, ...]


# --- programs ---------------------------------------------------------------------------------------------------------


@dataclass
class Writer:
    """Writes a random program: a list of statements, each a tuple with its kind first."""

    random: np.random.Generator
    counts: Counter[str] = field(default_factory=Counter)

    def choose(self, *kinds: Any) -> Any:
        return kinds[int(self.random.integers(len(kinds)))]

    def statements(self, depth: int, indices: int) -> list[Term]:
        return [self.statement(depth, indices) for _ in range(int(self.random.integers(1, 4)))]

    def statement(self, depth: int, indices: int) -> Term:
        kinds = ["set", "add", "scalar"] if indices else ["scalar"]
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
        return kind, self.choose("line", "grid"), self.index(indices), self.index(indices), self.number(3, indices)

    def index(self, indices: int) -> Term:
        """An index of one of the loops around, scaled and shifted; it is taken modulo the size."""
        which = int(self.random.integers(max(indices, 1))) if indices else -1
        return which, int(self.choose(1, 1, 2, 3)), int(self.random.integers(0, 5))

    def number(self, depth: int, indices: int) -> Term:
        kind = self.choose(
            "line", "grid", "weights", "scalar", "constant", *(["sin", "+", "*", "-", "max"] * bool(depth))
        )
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
        return kind, self.number(depth - 1, indices), self.number(depth - 1, indices)


# --- two interpreters: plain Python, and livegrad --------------------------------------------------------------------


@dataclass
class Machine:
    """What differs between the interpreters: numbers, functions of them, loops and branches."""

    constant: Callable[[float], Any]
    sin: Callable[[Any], Any]
    maximum: Callable[[Any, Any], Any]
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
    kind, *parts = term
    a, b = (_number(part, state, weights, indices, machine) for part in parts)
    return {"+": lambda: a + b, "*": lambda: a * b, "-": lambda: a - b, "max": lambda: machine.maximum(a, b)}[kind]()


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
    loop=lambda iterations, body, state: lg.fori_loop(0, iterations, body, state),
    repeat=_repeat,
    branch=lg.cond,
)


# --- comparison -------------------------------------------------------------------------------------------------------


def run_one(seed: int) -> Mapping[str, int]:
    """Runs one program in both ways, with derivatives; counts what it is made of."""
    random = np.random.default_rng(seed)
    writer = Writer(random)
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
    traced = trace_call(both, types, "nest")
    given = [*arguments, *(np.asarray(wrap(node)) for node in traced.captures)]
    results = []
    for target in (CPU, CPU.without("lower_tapes"), CPU.without("lower_tapes", "scalarise_loops")):
        plan = CompiledPlan.from_plan(Compilation(lower(traced.function, target), target).plan, run_function)
        results.append(plan.run(given))
        counts["in one kernel" if plan.only_kernels else "with host steps"] += target is CPU
    np.testing.assert_allclose(results[0][0], expected, rtol=1e-12, atol=1e-12, err_msg="value")
    for own, *others in zip(*results, strict=True):
        for other in others:
            np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-9, err_msg="without a pass")
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
