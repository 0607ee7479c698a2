"""Functions that the baseline tier calls instead of inlining: masked loads and stores, and lane reductions.

LLVM compiles one masked instruction as slowly as ten calls, and a lane reduction is dozens of instructions. These
functions are compiled once, like math functions (`math_library.py`), from the same text that the optimised tier
inlines.
"""

from __future__ import annotations

from livegrad.codegen.llvm import lane_reductions, vector_memory
from livegrad.codegen.llvm.builder import lane_constants
from livegrad.codegen.llvm.kernel_builder import KernelBuilder
from livegrad.codegen.llvm.registers import Register, llvm_type, pointer
from livegrad.codegen.llvm.vector_math import math_function_name
from livegrad.ir.types import SCALARS, Scalar, bool_, f16, i64, u8, u16

_REDUCE = "reduce_"
_PLACE = Register("%place", pointer, 1)
_LEFT = Register("%left", i64, 1)  # how many lanes there are from the first on: any number, but more than none


def first_lanes(builder: KernelBuilder, left: Register, lanes: int, back: bool = False) -> Register:
    """The first `left` of some lanes, or the last: no loop goes beyond the end, so it is one at least.

    Compared as bytes: one instruction for all lanes, where numbers of 64 bits take one for each eight."""
    count = builder.convert("trunc", builder.least(left, builder.constant(lanes, i64)), u8)
    numbers = range(lanes - 1, -1, -1) if back else range(lanes)
    return builder.apply("icmp ult", bool_, lane_constants(numbers, u8), builder.widen(count, lanes))


# --- calls -----------------------------------------------------------------------------------------------------------


def has_calls(type: Scalar) -> bool:
    """Whether these functions exist for lanes of a type. Booleans use a different kind of register."""
    return type is not bool_


def _passed_type(type: Scalar) -> Scalar:
    """The type by which functions take and return lanes: LLVM cannot return vectors of halves without F16C."""
    return u16 if type is f16 else type


def _passed(builder: KernelBuilder, value: Register, type: Scalar) -> Register:
    return value if value.type is type else builder.convert("bitcast", value, type)


def load_first(builder: KernelBuilder, address: Register, type: Scalar, left: Register) -> Register:
    """Lanes from consecutive elements, of which so many are left; zeros behind."""
    held = vector_memory.memory_type(type)
    passed = _passed_type(held)
    called = _called(builder, "load", passed, builder.lanes)
    text = f"call fastcc {llvm_type(passed, builder.lanes)} @{called}({address.typed}, {left.typed})"
    loaded = _passed(builder, builder.make(text, passed, builder.lanes), held)
    return vector_memory.from_memory(builder, loaded, type)


def store_first(builder: KernelBuilder, address: Register, value: Register, left: Register) -> None:
    """Lanes to consecutive elements, as many as are left."""
    held = vector_memory.to_memory(builder, value)
    held = _passed(builder, held, _passed_type(held.type))
    called = _called(builder, "store", held.type, held.lanes)
    builder.line(f"call fastcc void @{called}({held.typed}, {address.typed}, {left.typed})")


def choose_first(builder: KernelBuilder, new: Register, old: Register, left: Register) -> Register:
    """The new lanes, as many as are left, and the old ones behind them."""
    type = _passed_type(new.type)
    called = _called(builder, "choose", type, new.lanes)
    arguments = ", ".join([*[_passed(builder, value, type).typed for value in (new, old)], left.typed])
    text = f"call fastcc {llvm_type(type, new.lanes)} @{called}({arguments})"
    return _passed(builder, builder.make(text, type, new.lanes), new.type)


def reduce_lanes(builder: KernelBuilder, kind: str, value: Register) -> Register:
    """One value from all lanes, in the order of `lane_reductions.across_lanes`."""
    called = _called(builder, _REDUCE + kind, value.type, value.lanes)
    return builder.make(f"call fastcc {llvm_type(value.type, 1)} @{called}({value.typed})", value.type, 1)


def _called(builder: KernelBuilder, function: str, type: Scalar, lanes: int) -> str:
    builder.math.add((function, type.name, lanes))
    return math_function_name(function, type.name, lanes)


# --- the functions themselves ----------------------------------------------------------------------------------------


def is_lane_function(function: str) -> bool:
    return function in ("load", "store", "choose") or function.startswith(_REDUCE)


def lane_declaration(function: str, element: str, lanes: int) -> str:
    """How a kernel declares one of the functions."""
    result, parameters = _signature(function, SCALARS[element], lanes)
    types = ", ".join([type for type, _ in parameters])
    return f"declare fastcc {result} @{math_function_name(function, element, lanes)}({types}) nounwind"


def lane_definition(function: str, element: str, lanes: int) -> tuple[set[str], str]:
    """Returns the declaration and the definition of a function; it has the attributes #1."""
    type, builder = SCALARS[element], KernelBuilder(lanes)
    result, parameters = _signature(function, type, lanes)
    if function.startswith(_REDUCE):
        (total,) = lane_reductions.across_lanes(
            builder, function.removeprefix(_REDUCE), (Register("%value", type, lanes),)
        )
        builder.line(f"ret {total.typed}")
    else:
        builder.branch(builder.apply("icmp sge", bool_, _LEFT, builder.constant(lanes, i64)), "all", "some")
        for label in ("all", "some"):
            builder.begin(label)
            _write(builder, function, type, None if label == "all" else first_lanes(builder, _LEFT, lanes))
    named = ", ".join([f"{type} {name}" for type, name in parameters])
    head = f"define fastcc {result} @{math_function_name(function, element, lanes)}({named}) #1 {{"
    return builder.declarations, "\n".join([head, "start:", *builder.lines, "}"])


def _write(builder: KernelBuilder, function: str, type: Scalar, mask: Register | None) -> None:
    """What a function does under a mask, or with all lanes."""
    value, old = Register("%value", type, builder.lanes), Register("%old", type, builder.lanes)
    if function == "load":
        builder.line(f"ret {vector_memory.load_vector(builder, _PLACE, type, mask).typed}")
    elif function == "store":
        vector_memory.store_vector(builder, _PLACE, value, mask)
        builder.line("ret void")
    else:
        builder.line(f"ret {(value if mask is None else builder.select(mask, value, old)).typed}")


def _signature(function: str, type: Scalar, lanes: int) -> tuple[str, list[tuple[str, str]]]:
    """The type of a function's result, and its parameters, with their names."""
    vector = llvm_type(type, lanes)
    value, address, left = (vector, "%value"), ("ptr", _PLACE.text), ("i64", _LEFT.text)
    if function == "load":
        return vector, [address, left]
    if function == "store":
        return "void", [value, address, left]
    return (vector, [value, (vector, "%old"), left]) if function == "choose" else (llvm_type(type, 1), [value])
