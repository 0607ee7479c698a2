"""The LLVM builder folds identities, matches the types and lanes of operands, and emits code that runs."""

import ctypes

import pytest

from livegrad.codegen.llvm.builder import Builder
from livegrad.codegen.llvm.registers import Register, pointer
from livegrad.codegen.llvm.values import LlvmModule, Procedure, Value, counting, largest, smallest, when
from livegrad.ir.types import f32, i64
from livegrad.runtime.cpu.native.llvm_jit import compile_kernel
from livegrad.runtime.object_cache import CacheSettings, ObjectCache


def register(type=i64, lanes=1) -> Register:
    return Register("%x", type, lanes)


def test_identity_operations_emit_no_instruction():
    builder = Builder()
    x = Value(builder, register())
    assert [(x * 1).register, (x + 0).register, (x - 0).register] == [x.register] * 3
    assert builder.select(register(lanes=1), x.register, x.register) is x.register
    assert builder.widen(x.register, 1) is x.register
    assert builder.lines == []


def test_a_constant_is_widened_to_the_lanes_of_the_other_operand():
    builder = Builder()
    total = builder.apply("fadd", f32, register(f32, 8), builder.constant(1.0, f32))
    assert (total.type, total.lanes, len(builder.lines)) == (f32, 8, 1)


def test_one_lane_of_a_vector_is_a_scalar():
    assert Builder().shuffle(register(f32, 8), [3]).lanes == 1


def test_an_operand_of_another_type_is_an_error():
    builder = Builder()
    with pytest.raises(TypeError, match="expected an operand of type i64"):
        _ = Value(builder, register()) + Value(builder, register(f32))


def test_an_unsupported_operation_of_a_type_is_an_error():
    with pytest.raises(TypeError, match="fdiv takes no operands of type i64"):
        _ = Value(Builder(), register()) / 2


@pytest.mark.parametrize("count", [0, 1, 7])
def test_values_loops_and_branches_compute(count: int):
    module = LlvmModule()
    function = Procedure(module, "clamped_squares", {"target": pointer, "count": i64})
    target, end = function.parameters["target"], function.parameters["count"]
    with counting(0, end) as index:
        (target + index * 8).store(largest(smallest(index * index, 20), 2))
        with when(index.equals(3)):
            (target + index * 8).store(index - 100)
    function.finish(exported=True)
    text = module.text("attributes #0 = { nounwind }")
    code = compile_kernel(text, "clamped_squares", cache=ObjectCache(CacheSettings(None)))
    numbers = (ctypes.c_int64 * 8)()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address)(ctypes.addressof(numbers), count)
    expected = [-97 if index == 3 else max(min(index * index, 20), 2) for index in range(count)]
    assert list(numbers) == expected + [0] * (8 - count)
