"""Random small programs for tests of passes: special floats, integers, booleans, aggregates, tensors and control flow.

`programs()` draws a module of two functions and arguments for them. A program follows from its seed and its size alone:
Hypothesis draws and shrinks those two, since drawing each choice by itself gives little more than constants.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from livegrad import ops
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, parameter
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.types import Struct, Tensor, Tuple, Type, Vector, bool_, components, f32, f64, i64
from livegrad.ops import aggregate, control, conversion, elementwise, indexing, maps, movement, reduction

PAIR, VECTOR, RECORD = Tuple((f32, i64)), Vector(f32, 2), Struct("Record", (("flag", bool_), ("weight", f32)))
ROW, GRID = Tensor(f32, (3,)), Tensor(f32, (2, 3))
TYPES: tuple[Type, ...] = (f32, i64, bool_, PAIR, VECTOR, RECORD, ROW)
FLOATS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -3.5, 1e30, 1e-40, float("inf"), float("-inf"), float("nan"))
INTEGERS = (0, 1, 2, 3, -1, -7, 2**62)


@dataclass
class Builder:
    """A function under construction: its values so far, and the functions that it may call."""

    random: Random
    size: int
    values: list[Node]
    depth: int
    library: list[Function] = field(default_factory=list)

    def one_of(self, type: Type) -> Node:
        """A value of this type, mostly an existing one."""
        known = [node for node in self.values if node.type is type]
        if known and self.random.randint(0, 7):
            return self.random.choice(known[-3:] if self.random.randint(0, 2) else known)
        return self.fresh(type)

    def fresh(self, type: Type) -> Node:
        if type is f32:
            return constant(self.random.choice(FLOATS), f32)
        if type is i64:
            return constant(self.random.choice(INTEGERS), i64)
        if type is bool_:
            return constant(self.random.random() < 0.5, bool_)
        if isinstance(type, Tensor):
            return movement.broadcast(self.one_of(f32), shape=type.shape, axes=())
        return aggregate.make(*map(self.one_of, components(type)), type=type)

    def types(self, most: int = 3) -> list[Type]:
        return self.random.choices(TYPES, k=self.random.randint(1, most))

    def add(self, *nodes: Node) -> None:
        self.values.extend(nodes)

    def function(self, name: str, parameters: Sequence[Type], results: Sequence[Type], depth: int) -> Function:
        inputs = [parameter(index, type) for index, type in enumerate(parameters)]
        inner = Builder(self.random, self.size, list(inputs), depth, self.library)
        inner.grow(self.random.randint(self.size // 2, self.size))
        return make_function(name, inputs, [inner.one_of(type) for type in results])

    def grow(self, steps: int) -> None:
        rules = SIMPLE if self.depth == 0 else SIMPLE + CONTROL
        for _ in range(steps):
            self.random.choice(rules)(self)


def arithmetic(b: Builder) -> None:
    type = b.random.choice((f32, f32, i64, VECTOR, ROW))
    names = ["add", "sub", "mul", "min", "max", "minimum", "maximum"]
    names += ["bit_and", "bit_or", "bit_xor", "shift_left"] if type is i64 else ["div"]
    b.add(getattr(ops, b.random.choice(names))(b.one_of(type), b.one_of(type)))


def unary(b: Builder) -> None:
    name = b.random.choice(["neg", "abs", "floor", "ceil", "trunc", "round", "sign", "detach"])
    b.add(getattr(ops, name)(b.one_of(b.random.choice((f32, VECTOR, ROW)))))


def negation(b: Builder) -> None:
    b.add(-b.one_of(b.random.choice((f32, i64, ROW))))


def compare(b: Builder) -> None:
    type = b.random.choice((f32, i64))
    name = b.random.choice(["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
    b.add(getattr(ops, name)(b.one_of(type), b.one_of(type)))


def logic(b: Builder) -> None:
    name = b.random.choice(["bit_and", "bit_or", "bit_xor"])
    b.add(getattr(ops, name)(b.one_of(bool_), b.one_of(bool_)), ~b.one_of(bool_))


def choose(b: Builder) -> None:
    type = b.random.choice((f32, i64, bool_, VECTOR, ROW))
    b.add(elementwise.select(b.one_of(bool_), b.one_of(type), b.one_of(type)))


def checked(b: Builder) -> None:
    number = b.one_of(i64)
    kind = b.random.randint(0, 3)
    if kind == 0:
        b.add(elementwise.floor_div(number, b.one_of(i64)))
    elif kind == 1:
        b.add(conversion.cast(b.one_of(f32), type=i64))
    elif kind == 2:
        b.add(aggregate.get_at(b.one_of(VECTOR), number))
    else:
        b.add(indexing.lookup(b.one_of(ROW), number))


def casts(b: Builder) -> None:
    wide = conversion.cast(b.one_of(f32), type=f64)
    b.add(conversion.cast(wide, type=f32), conversion.cast(b.one_of(i64), type=f32))
    b.add(conversion.cast(conversion.cast(b.one_of(bool_), type=i64), type=bool_))


def take_apart(b: Builder) -> None:
    for type, number in ((PAIR, 2), (VECTOR, 2), (RECORD, 2)):
        b.add(aggregate.get(b.one_of(type), index=b.random.randint(0, number - 1)))


def put_together(b: Builder) -> None:
    b.add(aggregate.make(b.one_of(f32), b.one_of(i64), type=PAIR))
    b.add(aggregate.make(b.one_of(f32), b.one_of(f32), type=VECTOR))
    b.add(aggregate.set_(b.one_of(RECORD), b.one_of(f32), index=1))
    b.add(aggregate.splat(b.one_of(f32), type=VECTOR))


def remake(b: Builder) -> None:
    pair = b.one_of(PAIR)
    b.add(aggregate.make(aggregate.get(pair, index=0), aggregate.get(pair, index=1), type=PAIR))


def move(b: Builder) -> None:
    grid = movement.broadcast(b.one_of(ROW), shape=(2, 3), axes=(1,))
    if b.random.random() < 0.5:
        grid = movement.flip(movement.flip(grid, axes=(0, 1)), axes=b.random.choice([(0, 1), (1,), ()]))
    turned = movement.permute(movement.permute(grid, axes=(1, 0)), axes=b.random.choice([(1, 0), (0, 1)]))
    flat = movement.reshape(movement.reshape(turned, shape=(3, 2)), shape=(6,))
    cut = movement.slice_(flat, start=(b.random.randint(0, 1),), size=(5,), step=(1,))
    b.add(movement.slice_(cut, start=(0,), size=(3,), step=(b.random.randint(1, 2),)))
    b.add(movement.broadcast(b.one_of(f32), shape=(3,), axes=()))


def fold(b: Builder) -> None:
    row = b.one_of(ROW)
    b.add(reduction.reduce(row, kind=b.random.choice(["sum", "max"]), axes=()))
    b.add(indexing.lookup(reduction.reduce(row, kind="sum", axes=(0,))))


def divide_exactly(b: Builder) -> None:
    b.add(b.one_of(f32) / b.random.choice([1.0, -1.0, 4.0, 0.125, 2.0**-126, 2.0**127, 2.0**-149, 3.0]))


def branch(b: Builder) -> None:
    types, results = b.types(), b.types()
    functions = [b.function(name, types, results, b.depth - 1) for name in ("then", "otherwise")]
    if not b.random.randint(0, 4):
        functions[1] = functions[0]
    value = control.cond(b.one_of(bool_), *map(b.one_of, types), then=functions[0], otherwise=functions[1])
    _add_some_results(b, value, results)


def choose_branch(b: Builder) -> None:
    types, results = b.types(), b.types()
    branches = tuple(b.function(f"branch{i}", types, results, b.depth - 1) for i in range(2))
    selector = b.random.choice([constant(0, i64), constant(1, i64), b.one_of(i64)])
    _add_some_results(b, control.switch(selector, *map(b.one_of, types), branches=branches), results)


def loop(b: Builder) -> None:
    carried, captured = b.types(), b.types(2)
    body = b.function("body", [i64, *carried, *captured], carried, b.depth - 1)
    if not b.random.randint(0, 2):  # some values stay as they are
        kept = body.parameters[1]
        body = Function(body.name, body.parameters, (kept, *body.results[1:]))
    iterations = b.random.choice([constant(n, i64) for n in (-1, 0, 1, 3)] + [_few(b)])
    operands = [b.one_of(type) for type in (*carried, *captured)]
    reverse = b.random.random() < 0.5
    node = control.for_loop(iterations, *operands, body=body, carried=len(carried), reverse=reverse)
    _add_some_results(b, node, carried, is_loop=True)


def _few(b: Builder) -> Node:
    return elementwise.min(elementwise.max(b.one_of(i64), constant(0, i64)), constant(3, i64))


def repeat_while(b: Builder) -> None:
    carried, captured = [i64, *b.types(2)], b.types(2)
    body = b.function("body", [i64, *carried, *captured], carried, b.depth - 1)
    counter = body.parameters[1] + constant(1, i64)
    body = Function(body.name, body.parameters, (counter, *body.results[1:]))
    inputs = [parameter(index, type) for index, type in enumerate((*carried, *captured))]
    test = make_function("condition", inputs, [inputs[0] < b.random.randint(0, 3)])
    start = constant(0, i64)
    operands = [start, *map(b.one_of, (*carried[1:], *captured))]
    limit = b.random.choice([None, 2, 5])
    node = control.while_loop(*operands, condition=test, body=body, carried=len(carried), limit=limit)
    _add_some_results(b, node, carried, is_loop=True)


def run_call(b: Builder) -> None:
    if b.library and b.random.random() < 0.5:
        function = b.random.choice(b.library)
    else:
        function = b.function("callee", b.types(), b.types(), b.depth - 1)
        b.library.append(function)
    value = control.call(*map(b.one_of, function.parameter_types), function=function)
    _add_some_results(b, value, function.result_types)


def run_map(b: Builder) -> None:
    results = b.random.choices((f32, i64), k=b.random.randint(1, 3))
    function = b.function("point", [f32, f32, i64], results, 0)
    summed = [b.random.random() < 0.5 for _ in results]
    lifted = b.random.random() < 0.5
    operands = [b.one_of(ROW), b.one_of(ROW if lifted else f32), b.one_of(i64)]
    value = maps.make_map(function, *operands, summed=summed)
    parts = [value] if len(results) == 1 else [aggregate.get(value, index=i) for i in range(len(results))]
    b.add(*parts)


def _add_some_results(b: Builder, value: Node, types: Sequence[Type], is_loop: bool = False) -> None:
    if len(types) == 1 and not is_loop:
        b.add(value)
        return
    read = b.random.choices(range(len(types)), k=len(types))
    b.add(*(aggregate.get(value, index=index) for index in sorted(set(read))))


SIMPLE = [arithmetic] * 6 + [unary, negation, compare, logic, choose, checked, casts, take_apart, put_together]
SIMPLE += [remake, move, fold, divide_exactly]
CONTROL = [branch, choose_branch, loop, repeat_while, run_call, run_call, run_map]


@dataclass(frozen=True)
class Program:
    module: Module
    arguments: tuple[Any, ...]


def make_program(seed: int, size: int) -> Program:
    """A module of two functions that call the same library, and arguments for both."""
    types = [f32, i64, bool_, ROW]
    random = Random(seed)
    builder = Builder(random, size, [], 2)
    functions = [builder.function(name, types, builder.types(4), 2) for name in ("main", "other")]
    return Program(Module(tuple(functions)), tuple(_argument(random, type) for type in types))


def _argument(random: Random, type: Type) -> Any:
    if type is ROW:
        return np.array(random.choices(FLOATS, k=3), np.float32)
    return random.choice({f32: FLOATS, i64: INTEGERS, bool_: (True, False)}[type])


def programs() -> st.SearchStrategy[Program]:
    return st.builds(make_program, st.integers(0, 2**32), st.integers(1, 12))


def same_bits(first: Any, second: Any) -> bool:
    """Whether two values of the reference are equal to the last bit; all NaNs are equal."""
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(same_bits, first, second))
    a, b = np.asarray(first), np.asarray(second)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind == "c":
        return same_bits(np.real(a), np.real(b)) and same_bits(np.imag(a), np.imag(b))
    if a.dtype.kind != "f":
        return bool(np.all(a == b))
    return bool(np.all((np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))))
