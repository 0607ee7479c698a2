"""Evaluates one op on small arrays, without a graph: with NumPy where native code gives the same bits, else natively.

`deferred_ops` evaluates the ops of eager programs one by one. For a few numbers, finding the fused program of a graph
takes longer than running its ops, and each length of a loop and each place of a read would need another program.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, parameter
from livegrad.ir.lru import LruCache
from livegrad.ir.node import Node, attributes_key, make_node
from livegrad.ir.op import Op
from livegrad.ir.source_lines import created_at
from livegrad.ir.types import Tensor, f32, f64
from livegrad.lazy.compiled_graphs import Program
from livegrad.lazy.counts import RepeatedRun, count
from livegrad.lazy.layout import LAYOUT_OPS
from livegrad.lazy.lazy_values import Array
from livegrad.ops import comparison, elementwise
from livegrad.ops.movement import broadcast, slice_
from livegrad.runtime.arguments import is_dense
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.cpu.plan_entry import make_plan_entry
from livegrad.state import Owned

MAX_BYTES = 1 << 12  # of one value: it belongs to its tensor and does not count towards the cache budget
_MAX_PROGRAMS = 512
Evaluate = Callable[..., Any]
Step = tuple["SmallOp", tuple["int | SmallNumber", ...]]

# Ops that round at most once, so that NumPy and native code give the same bits.
_EXACT = frozenset(
    {
        *(elementwise.add, elementwise.sub, elementwise.mul, elementwise.div, elementwise.neg, elementwise.abs),
        *(elementwise.select, elementwise.floor, elementwise.ceil, elementwise.trunc),
        *(comparison.equal, comparison.not_equal, comparison.less, comparison.less_equal),
        *(comparison.greater, comparison.greater_equal),
        *(comparison.bit_and, comparison.bit_or, comparison.bit_xor, comparison.bit_not),
    }
)
_EXACT_KINDS = ("bool", "signed", "unsigned")


class SmallNumber:
    """A number broadcast to the type of a small tensor, as an operand without a node."""

    __slots__ = ("node", "type", "value")

    def __init__(self, value: Array | None, type: Tensor, node: Node | None = None) -> None:
        self.value = value  # without dimensions; None if only native code uses it
        self.type = type
        self.node = node

    def make_node(self) -> Node:
        """Returns the node that broadcasts the number, and creates it on first use."""
        if self.node is None:
            assert self.value is not None
            number = constant(self.value.item(), self.type.element)
            self.node = broadcast(number, shape=self.type.shape, axes=())
        return self.node


class SmallOp:
    """An op with its attributes and the types of its operands: what it needs to run on small arrays.

    `evaluate` takes the values of all operands and returns an array, or a NumPy number if the result has no dimensions.
    It is None for ops that run natively: their code belongs to the session (`find_native`).
    """

    __slots__ = ("attributes", "evaluate", "is_small", "key", "numbers", "op", "operands", "type")

    def __init__(
        self, op: Op, attributes: tuple[tuple[str, Any], ...], operands: tuple[Any, ...], type: Tensor
    ) -> None:
        self.op, self.attributes, self.type = op, attributes, type
        self.numbers: dict[int | float, SmallNumber] = {}  # for the operators of tensors
        # Numbers are part of a native program, whose code depends on them.
        self.operands = tuple([o.node if o.__class__ is SmallNumber else o.type for o in operands])
        self.is_small = is_small(type) and all(is_small(operand.type) for operand in operands)
        numbers = [operand for operand in operands if operand.__class__ is SmallNumber]
        # NumPy takes the shape from the other operands.
        allowed = 0 if op in LAYOUT_OPS else len(operands) - 1
        has_shape = len(numbers) <= allowed and all(number.value is not None for number in numbers)
        self.evaluate = _numpy_evaluation(op, attributes, [o.type for o in operands]) if has_shape else None
        self.key = (op, attributes_key(attributes), self.operands)

    def make_node(self, operands: tuple[Node, ...]) -> Node:
        """Creates the node of this op."""
        return make_node(self.op, operands, self.attributes)

    def find_native(self) -> Evaluate:
        """Returns native code for this op, and compiles it on first use."""
        programs = native_ops.current.programs
        found = programs.get(self.key)
        if found is None:
            found = programs.keep(self.key, _compile(self))
        found[1].times += 1
        return found[0]


class SmallCall(SmallOp):
    """The ops of one call of a tensor function, which run as one native program.

    Each step has the positions of its operands: among the operands of the call, followed by the results of the steps
    before.
    """

    __slots__ = ("steps",)

    def __init__(self, steps: tuple[Step, ...], operand_types: tuple[Tensor, ...]) -> None:
        self.steps, self.operands, self.type = steps, operand_types, steps[-1][0].type
        self.evaluate = None
        self.key = (operand_types, *[(small.key, positions) for small, positions in steps])

    def make_node(self, operands: tuple[Node, ...]) -> Node:
        values = list(operands)
        for small, positions in self.steps:
            values.append(
                small.make_node(tuple([p.make_node() if p.__class__ is SmallNumber else values[p] for p in positions]))  # type: ignore[index, union-attr]
            )
        return values[-1]


class _NativeOps:
    """The native code of small ops in a session, and the runs of small ops for `lg.stats()`."""

    def __init__(self) -> None:
        self.programs: LruCache[Any, tuple[Evaluate, RepeatedRun]] = LruCache(_MAX_PROGRAMS)
        self.executions = RepeatedRun({"executions": 1}, {"executions": 1})
        self.nodes = RepeatedRun({"nodes_computed": 1}, {"nodes_computed": 1})
        self.cache_hits = RepeatedRun({"cache_hits": 1}, {"cache_hits": 1})


native_ops = Owned(_NativeOps)


def is_small(type: Any) -> bool:
    """Whether a tensor type is small enough for ops without nodes."""
    size = type.element.dtype.itemsize
    for extent in type.shape:
        if extent.__class__ is not int:
            return False
        size *= extent
    return size <= MAX_BYTES


def _numpy_evaluation(op: Op, attributes: tuple[tuple[str, Any], ...], types: list[Any]) -> Evaluate | None:
    """Returns the NumPy function that gives the bits of native code; None if there is none."""
    if op is slice_:
        start, size, step = (dict(attributes)[name] for name in ("start", "size", "step"))
        return partial(_take, tuple([slice(a, a + n * s, s) for a, n, s in zip(start, size, step, strict=True)]))
    if op in LAYOUT_OPS:
        return partial(_rearrange, partial(op.evaluate, **dict(attributes)))  # type: ignore[arg-type]
    exact = op in _EXACT and all(is_exact(type.element) for type in types)
    return op.evaluate if exact else None


def is_exact(element: Any) -> bool:
    """Whether NumPy computes with numbers of this type as native code does."""
    return element is f32 or element is f64 or element.kind in _EXACT_KINDS


def _take(key: tuple[slice, ...], array: Array) -> Array:
    return np.array(array[key], order="C")


def _rearrange(function: Evaluate, *arrays: Array) -> Array:
    array: Array = np.asarray(function(*arrays))
    return array if is_dense(array) else np.array(array, order="C")


def _compile(small: SmallOp) -> tuple[Evaluate, RepeatedRun]:
    """Compiles a program of a small op, with its numbers as constants."""
    with created_at(()):
        inputs = tuple(
            operand if isinstance(operand, Node) else parameter(position, operand)
            for position, operand in enumerate(small.operands)
        )
        positions = [position for position, operand in enumerate(small.operands) if not isinstance(operand, Node)]
        function = make_function("tensors", [inputs[position] for position in positions], (small.make_node(inputs),))
        program = Program(function, compile_function)
    count(programs_compiled=1)
    entry = make_plan_entry(program.plan, frozen=True) if program.plan.only_kernels else None
    evaluate: Evaluate = partial(_run_program, program, positions)
    if entry is not None and len(positions) == len(inputs):
        evaluate = entry
    runs = {"kernels_run": program.kernels, "library_calls": program.library_calls}
    return evaluate, RepeatedRun(runs, {**runs, "programs_reused": 1})


def _run_program(program: Program, positions: list[int], *arrays: Array) -> Array:
    (result,) = program.run([arrays[position] for position in positions])
    return result
