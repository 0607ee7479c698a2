"""Random functions as GLSL and WGSL against native code of the CPU, on points and in both languages.

Programs of integers, booleans and floats with exact operations must agree in every bit, through branches, loops, calls,
structs and tables. Parts must agree with the values and gradients of the CPU up to rounding, and Python functions of
floats up to what small changes of their arguments make of them.
"""

from __future__ import annotations

import atexit
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

import livegrad as lg
from livegrad import ops
from livegrad.frontend.function.captured import Slot
from livegrad.frontend.function.function_types import ArrayType
from livegrad.implicit.shaders.to_shader import gradient_by
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Array, Scalar, Tensor, Tuple, Type, Vector, bool_, f32, i32, i64, u32
from livegrad.ops.aggregate import make_vector
from livegrad.ops.control import make_cond, make_for_loop, make_while_loop
from livegrad.runtime.reference import evaluate
from tests.fuzz.function_programs import Writer as ProgramWriter
from tests.fuzz.functions import OURS
from tests.fuzz.parts import LIMIT, random_tree, shape_of
from tests.shaders.browser import Browser, reason_for_no_browser
from tests.shaders.run_shaders import Program, columns_of
from tests.shaders.wgpu_device import reason_for_no_wgpu

NEEDS = ("playwright", "wgpu")
SHORT = 8
POINTS = 48
TABLE = 37
_MOST_OPERATIONS = 10_000  # compilers inline calls, and take minutes for more


@cache
def _browser() -> Browser:
    browser = Browser()
    atexit.register(browser.close)
    return browser


def languages() -> list[str]:
    """The languages that can run here."""
    found = [] if reason_for_no_browser() else ["GLSL"]
    return found if reason_for_no_wgpu() else [*found, "WGSL"]


def run_one(seed: int) -> Mapping[str, int]:
    counts = Counter({f"in {language}": 1 for language in languages()})
    random = Random(seed)
    if seed % 4 == 0:
        counts.update(_compare_part(seed))
    elif seed % 4 == 1:
        counts.update(_compare_captured(random, f"shaders seed {seed}"))
    else:
        counts.update(_compare_exactly(random, f"shaders seed {seed}"))
    return counts


# --- parts -----------------------------------------------------------------------------------------------------------


def _compare_part(seed: int) -> Mapping[str, int]:
    generator = np.random.default_rng(seed)
    tree = random_tree(generator, int(generator.integers(1, 4)))
    part = shape_of(tree).part(((-LIMIT,) * 3, (LIMIT,) * 3))
    by_position = gradient_by(part.function, 0)
    if lg.to_glsl(by_position).operations > _MOST_OPERATIONS:
        return {"parts with too many calls for shaders": 1}
    points = generator.uniform(-LIMIT, LIMIT, (POINTS, 3)).astype(np.float32)
    gradient = part.gradient(points)
    # A gradient is compared where it does not jump nearby: there, rounding may choose another branch.
    nearby = [part.gradient(points + generator.normal(0, 1e-4, points.shape).astype(np.float32)) for _ in range(4)]
    smooth = np.stack([np.abs(other - gradient).max(1) for other in nearby]).max(0) < 0.02
    for language in languages():
        shown = f"shaders seed {seed}, {language}: {tree}"
        (value,) = _run(part.function, language, [points])
        assert np.abs(value - part(points)).max() < 1e-3, (
            f"{shown}: values are off by {np.abs(value - part(points)).max()}"
        )
        found = np.stack(_run(by_position, language, [points]), -1)
        off = np.abs(found - gradient)[smooth]
        assert not off.size or off.max() < 0.05, f"{shown}: gradients are off by {off.max()}"
    return {"parts": 1, "smooth points": int(smooth.sum())}


def _run(function: Function, language: str, arguments: Sequence[Any]) -> list[NDArray[Any]]:
    types = function.parameter_types
    columns = [
        columns_of(type, [argument] if isinstance(type, Tensor) else list(argument))
        for type, argument in zip(types, arguments, strict=True)
    ]
    return Program(function, language).run(columns, POINTS, _browser() if language == "GLSL" else None)


# --- captured functions ---------------------------------------------------------------------------------------------


@lg.differentiable
class S:
    """The struct of random programs, of 32-bit floats."""

    a: lg.f32
    b: lg.f32

    @lg.differentiable
    def area(self):
        return self.a * self.b

    @lg.differentiable
    def moved(self, by):
        self.a += by
        return self


@lg.differentiable
class O:  # noqa: E742
    """A struct with another inside."""

    v: S
    k: lg.f32


def _compare_captured(random: Random, shown: str) -> Mapping[str, int]:
    """A Python function with loops, jumps, lists and structs, where small changes of its arguments change little."""
    text = ProgramWriter(random).program().replace("float", "f32").replace("n: int", "n: i32")
    names = {**OURS, "S": S, "O": O, "f32": lg.f32, "i32": lg.i32}
    try:
        program = lg.run_source(text, names)["program"]
        made = program.specialize((Slot(f32), Slot(f32), Slot(i32), Slot(ArrayType(f32, 3)))).function
    except lg.FunctionError as error:
        return {f"captured functions refused as {error.code}": 1}
    generator = np.random.default_rng(random.randrange(1 << 30))
    xs, ys = generator.uniform(-1.5, 1.5, (2, POINTS)).astype(np.float32)
    counts = generator.integers(0, 5, POINTS).astype(np.int32)
    lists = generator.uniform(-1.5, 1.5, (POINTS, 3)).astype(np.float32)
    shift = np.float32(2e-3)
    expected, low, high = (
        np.array(
            [evaluate(made, x + by, y - by, n, list(v + by)) for x, y, n, v in zip(xs, ys, counts, lists, strict=True)]
        )
        for by in (np.float32(0.0), -shift, shift)
    )
    smooth = np.maximum(np.abs(low - expected), np.abs(high - expected)) < 0.1
    try:
        programs = [(language, Program(made, language)) for language in languages()]
    except lg.CompileError as error:
        if "has no f64" not in str(error):
            raise
        return {"captured functions with 64-bit floats": 1}  # an integer times a number of Python is one
    for language, _ in programs:
        (found,) = _run(made, language, [xs, ys, counts, lists])
        wrong = np.flatnonzero(smooth & ~(np.abs(found - expected) < 0.1))
        if len(wrong):
            at = wrong[0]
            given = f"{xs[at]}, {ys[at]}, {counts[at]}, {lists[at].tolist()}"
            raise AssertionError(f"{shown}, {language}: {found[at]}, not {expected[at]}, for {given}\n{text}")
    return {"captured functions": 1, "smooth points": int(smooth.sum())}


# --- exact programs --------------------------------------------------------------------------------------------------

_COMPARISONS = (ops.equal, ops.not_equal, ops.less, ops.less_equal, ops.greater, ops.greater_equal)
_PAIR = Tuple((f32, i32))
_PARAMETERS: tuple[Type, ...] = (i32, u32, f32, bool_, Vector(f32, 3), Tensor(f32, (TABLE,)), Tensor(i32, (TABLE,)))


class _Writer:
    """Builds a random expression. Floats are multiples of 1/8 below 1,024 in magnitude, so all results are exact."""

    def __init__(self, random: Random, values: Sequence[Node], counts: Counter[str]) -> None:
        self.random, self.counts = random, counts
        self.values = list(values)

    def pick(self, type: Type) -> Node:
        found = [value for value in self.values if value.type is type]
        if found and self.random.random() < 0.9:
            return self.random.choice(found[-8:])
        if type is bool_:
            return constant(self.random.random() < 0.5, bool_)
        assert isinstance(type, Scalar)
        number = self.random.randrange(-7 if type is not u32 else 0, 8)
        return constant(number / 2 if type is f32 else number, type)

    def tame(self, value: Node) -> Node:
        """Keeps a float small, and a multiple of 1/8."""
        eighths = ops.round(ops.fmod(value, constant(64.0, f32)) * 8.0)
        return eighths / 8.0

    def step(self, depth: int) -> None:
        kinds = [
            "integer",
            "bits",
            "float",
            "float",
            "compare",
            "select",
            "cast",
            "vector",
            "struct",
            "table",
            "negate",
        ]
        kind = self.random.choice(kinds + (["cond", "loop", "while", "call"] if depth else []))
        self.counts[kind] += 1
        self.values.append(getattr(self, f"_{kind}")(depth))

    def _integer(self, depth: int) -> Node:
        type = self.random.choice((i32, u32))
        a, b = self.pick(type), self.pick(type)
        if self.random.random() < 0.3:  # the divisor is never zero
            divisor = b | constant(1, type)
            return self.random.choice((ops.floor_div, ops.mod))(a, divisor)
        return self.random.choice((ops.add, ops.sub, ops.mul, ops.minimum, ops.maximum, ops.min, ops.max))(a, b)

    def _bits(self, depth: int) -> Node:
        type = self.random.choice((i32, u32, bool_))
        a, b = self.pick(type), self.pick(type)
        if type is not bool_ and self.random.random() < 0.4:
            return self.random.choice((ops.shift_left, ops.shift_right))(a, b)
        return self.random.choice((ops.bit_and, ops.bit_or, ops.bit_xor))(a, b)

    def _float(self, depth: int) -> Node:
        a, b = self.pick(f32), self.pick(f32)
        op = self.random.choice(
            (ops.add, ops.sub, ops.mul, ops.min, ops.max, ops.minimum, ops.maximum, ops.copysign, ops.floor_div)
        )
        divisor = ops.select(ops.not_equal(b, constant(0.0, f32)), b, constant(1.0, f32))
        return self.tame(op(a, divisor if op is ops.floor_div else b))

    def _negate(self, depth: int) -> Node:
        if self.random.random() < 0.3:
            return -self.pick(i32)
        a = self.pick(f32)
        op = self.random.choice((ops.neg, ops.abs, ops.floor, ops.ceil, ops.trunc, ops.round, ops.sign, ops.fract))
        return op(a)

    def _compare(self, depth: int) -> Node:
        type = self.random.choice((i32, u32, f32))
        return self.random.choice(_COMPARISONS)(self.pick(type), self.pick(type))

    def _select(self, depth: int) -> Node:
        type = self.random.choice((i32, u32, f32, bool_))
        return ops.select(self.pick(bool_), self.pick(type), self.pick(type))

    def _cast(self, depth: int) -> Node:
        source, target = self.random.sample((i32, u32, bool_), 2)
        if self.random.random() < 0.4:
            return ops.cast(self.pick(f32), type=self.random.choice((i32, bool_)))
        if self.random.random() < 0.4:
            return ops.cast(self.pick(i32) & constant(511, i32), type=f32)
        return ops.cast(self.pick(source), type=target)

    def _vector(self, depth: int) -> Node:
        vector = make_vector(*[self.pick(f32) for _ in range(self.random.choice((2, 3, 4, 5)))])
        other = ops.get_at(vector, self.index(vector.type.size))  # type: ignore[attr-defined]
        if self.random.random() < 0.5:
            return other
        changed = ops.set_at(vector, self.index(vector.type.size), other)  # type: ignore[attr-defined]
        return self.tame(ops.get(changed + vector, index=self.random.randrange(vector.type.size)))  # type: ignore[attr-defined]

    def _struct(self, depth: int) -> Node:
        pairs = [ops.make(self.pick(f32), self.pick(i32), type=_PAIR) for _ in range(3)]
        listed = ops.make(*pairs, type=Array(_PAIR, 3))
        if self.random.random() < 0.5:
            listed = ops.set_at(listed, self.index(3), pairs[0])
        return ops.get(ops.get_at(listed, self.index(3)), index=self.random.randrange(2))

    def index(self, size: int) -> Node:
        return ops.mod(self.pick(i32), constant(size, i32))

    def _table(self, depth: int) -> Node:
        tables = [value for value in self.values if isinstance(value.type, Tensor)]
        if not tables:
            return self.pick(f32)
        return ops.lookup(self.random.choice(tables), ops.cast(self.index(TABLE), type=i64))

    # --- functions ---

    def body(self, values: Sequence[Node], type: Type) -> Node:
        """A result of some steps from other values."""
        inner = _Writer(self.random, values, self.counts)
        for _ in range(self.random.randrange(1, 5)):
            inner.step(0)
        result = inner.pick(type)
        return result

    def captures(self) -> list[Node]:
        return [self.pick(f32), self.pick(i32), self.pick(u32), self.pick(bool_)]

    def _cond(self, depth: int) -> Node:
        type, given = self.random.choice((i32, u32, f32, bool_)), self.captures()
        return make_cond(
            self.pick(bool_), lambda *values: self.body(values, type), lambda *values: self.body(values, type), *given
        )

    def _loop(self, depth: int) -> Node:
        start = (self.pick(f32), self.pick(i32))
        count = ops.cast(self.pick(i32) & constant(7, i32), type=i64)

        def body(index: Node, x: Node, n: Node) -> tuple[Node, Node]:
            values = [x, n, ops.cast(index, type=i32)]
            return self.body(values, f32), self.body(values, i32)

        results = make_for_loop(count, body, *start, reverse=self.random.random() < 0.5)
        return self.random.choice(list(results))

    def _while(self, depth: int) -> Node:
        start = (constant(0, i32), self.pick(f32))
        most = self.random.randrange(1, 6)

        def condition(n: Node, x: Node) -> Node:
            return (n < constant(most, i32)) & (x < 50.0)

        def body(index: Node, n: Node, x: Node) -> tuple[Node, Node]:
            return n + constant(1, i32), self.body([n, x], f32)

        results = make_while_loop(condition, body, *start)
        return self.random.choice(list(results))

    def _call(self, depth: int) -> Node:
        type, given = self.random.choice((i32, f32)), self.captures()
        types = [value.type for value in given]
        function = lg.ir.trace(lambda *values: self.body(values, type), *types, name="inner")
        return ops.call(*given, function=function)


def random_function(random: Random, counts: Counter[str]) -> Function:
    """A function of `_PARAMETERS` with one result of each scalar type."""

    def every(*values: Node) -> tuple[Node, ...]:
        writer = _Writer(random, [*values, *[ops.get(values[4], index=index) for index in range(3)]], counts)
        for _ in range(random.randrange(4, 16)):
            writer.step(2)
        return tuple(writer.pick(type) for type in (i32, u32, f32, bool_))

    return lg.ir.trace(every, *_PARAMETERS, name="random")


def _arguments(random: Random) -> list[Any]:
    generator = np.random.default_rng(random.randrange(1 << 30))

    def floats(*shape: int) -> NDArray[Any]:
        return (generator.integers(-256, 257, shape) / 8.0).astype(np.float32)

    integers = generator.integers(-(2**31), 2**31, POINTS).astype(np.int32)
    integers[: POINTS // 2] = generator.integers(-9, 10, POINTS // 2)
    unsigned = generator.integers(0, 2**32, POINTS).astype(np.uint32)
    unsigned[: POINTS // 2] = generator.integers(0, 40, POINTS // 2)
    truths = generator.integers(0, 2, POINTS).astype(np.bool_)
    table = generator.integers(-99, 100, TABLE).astype(np.int32)
    return [integers, unsigned, floats(POINTS), truths, floats(POINTS, 3), floats(TABLE), table]


def _compare_exactly(random: Random, shown: str) -> Mapping[str, int]:
    counts: Counter[str] = Counter({"exact programs": 1})
    function = random_function(random, counts)
    arguments = _arguments(random)
    expected = [
        evaluate(
            function, *[a if isinstance(t, Tensor) else a[point] for a, t in zip(arguments, _PARAMETERS, strict=True)]
        )
        for point in range(POINTS)
    ]
    for language in languages():
        for index, found in enumerate(_run(function, language, arguments)):
            wanted = np.array([row[index] for row in expected])
            wrong = np.flatnonzero(found != wanted)
            if len(wrong):
                given = [argument[wrong[0]] for argument in arguments[:5]]
                what = f"result {index} is {found[wrong[0]]}, not {wanted[wrong[0]]}, for {given}"
                raise AssertionError(f"{shown}, {language}: {what}\n{lg.ir.print_function(function)}")
    return counts
