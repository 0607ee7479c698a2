"""After the pass, bf16 values are only moved and cast; all arithmetic is in f32; signatures stay."""

from __future__ import annotations

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.compiler import lower
from livegrad.diagnostics import LivegradError
from livegrad.ir.bfloat16 import narrow, widen
from livegrad.ir.node import Function, Module
from livegrad.ir.types import Tensor, bf16, f32, i32, scalar_of
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.conversion import cast
from livegrad.passes.lower_bfloat16 import computes_bfloat16, lower_bfloat16
from livegrad.runtime.reference import evaluate

VECTOR = Tensor(bf16, (5,))


def lowered(function: Function) -> Function:
    return lower_bfloat16(Module((function,))).functions[0]


def computing(function: Function) -> list[str]:
    """The ops that still compute with bf16, besides the two casts."""
    return [
        node.op.name
        for inner in reachable_functions([function])
        for node in nodes_of(inner)
        if computes_bfloat16(node) and not (node.op is cast and f32 in _ends(node))
    ]


def _ends(node):
    return scalar_of(node.type), scalar_of(node.operands[0].type)


PROGRAMS = {
    "arithmetic": lambda x, y: ops.exp(x * y) - x / (y + 3.0),
    "choice": lambda x, y: ops.select(x < y, x, y),
    "sum": lambda x, y: ops.reduce(x * y, kind="sum", axes=(0,)),
    "product": lambda x, y: ops.matmul(ops.reshape(x, shape=(1, 5)), ops.reshape(y, shape=(5, 1))),
    "order": lambda x, y: ops.sort(x, axis=0, descending=False, stable=True),
    "integers": lambda x, y: cast(cast(x, type=i32), type=bf16) + y,
    "movement": lambda x, y: ops.concatenate(ops.flip(x, axes=(0,)), y, axis=0),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_nothing_computes_in_bf16_and_values_stay(program):
    function = lg.ir.trace(program, VECTOR, VECTOR)
    after = lowered(function)
    assert computing(after) == []
    assert (after.parameter_types, after.result_types) == (function.parameter_types, function.result_types)
    arguments = [narrow(np.array([0.5, -1.25, 3.0, 0.1, 7.5]) * factor) for factor in (1.0, -0.3)]
    expected, found = evaluate(function, *arguments), evaluate(after, *arguments)
    np.testing.assert_array_equal(widen(found), widen(expected))
    np.testing.assert_array_equal(widen(lg.ir.compile(function)(*arguments)), widen(expected))


def test_functions_within_functions_are_lowered_too():
    def body(x):
        return ops.make_for_loop(lg.ir.constant(4, lg.i64), lambda index, total: (total * x + 0.3,), x)[0]

    function = lg.ir.trace(body, bf16)
    assert computing(lowered(function)) == []
    np.testing.assert_array_equal(widen(lg.ir.compile(function)(0.7)), widen(evaluate(function, 0.7)))


def test_a_module_without_bf16_is_left_as_it_is():
    module = Module((lg.ir.trace(lambda x: x * x, f32),))
    assert lower_bfloat16(module) is module


def test_the_pipeline_keeps_the_rounding_between_operations():
    """256 + 1 is 256 in bf16, so that (256 + 1) - 256 is 0; simplification must not see through the casts."""
    function = lg.ir.trace(lambda x, y: (x + y) - x, bf16, bf16)
    assert widen(lg.ir.compile(function)(256.0, 1.0)) == 0.0
    assert widen(evaluate(function, 256.0, 1.0)) == 0.0
    names = [node.op.name for node in nodes_of(lower(function))]
    assert names.count("cast") >= 4


def test_neighbours_are_refused():
    with pytest.raises(LivegradError, match="bf16 has no `nextafter`"):
        lg.ir.trace(ops.nextafter, bf16, bf16)
