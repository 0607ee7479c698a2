"""Functions that the baseline tier calls instead of inlining them: masked loads and stores, and lane reductions.

LLVM compiles one masked instruction as slowly as ten calls, and a lane reduction is dozens of instructions. These
functions are compiled once, like math functions (`math_library.py`), from the LLVM IR that the optimised tier inlines.
"""

from __future__ import annotations

from livegrad.codegen.llvm import lane_reductions, vector_memory
from livegrad.codegen.llvm.builder import lane_constants
from livegrad.codegen.llvm.kernel_builder import KernelBuilder
from livegrad.codegen.llvm.registers import Register, llvm_type, pointer
from livegrad.codegen.llvm.vector_math import math_function_name
from livegrad.ir.types import Scalar, bool_, f16, i64, u8, u16
from livegrad.ir.types.scalars import SCALARS

_REDUCE = "reduce_"
_ADDRESS = Register("%address", pointer, 1)
_COUNT = Register("%count", i64, 1)  # active lanes: at least one, and perhaps more than there are lanes


def first_lanes(builder: KernelBuilder, count: Register, lanes: int, back: bool = False) -> Register:
    """A mask of the first `count` lanes, or of the last with `back`. `count` is at least one.

    Lane numbers are compared as bytes: one instruction for all lanes; 64-bit integers need one for every eight.
    """
    count = builder.convert("trunc", builder.least(count, builder.constant(lanes, i64)), u8)
    numbers = range(lanes - 1, -1, -1) if back else range(lanes)
    return builder.apply("icmp ult", bool_, lane_constants(numbers, u8), builder.widen(count, lanes))


# --- calls -----------------------------------------------------------------------------------------------------------


def has_calls(type: Scalar) -> bool:
    """Whether these functions exist for an element type. Booleans live in mask registers."""
    return type is not bool_


def _passed_type(type: Scalar) -> Scalar:
    """The type of lanes in arguments and results: LLVM cannot return vectors of halves without F16C."""
    return u16 if type is f16 else type


def _bitcast(builder: KernelBuilder, value: Register, type: Scalar) -> Register:
    return value if value.type is type else builder.convert("bitcast", value, type)


def load_first(builder: KernelBuilder, address: Register, type: Scalar, count: Register) -> Register:
    """Loads the first `count` lanes from consecutive elements; the other lanes are zero."""
    stored_type = vector_memory.memory_type(type)
    passed_type = _passed_type(stored_type)
    symbol = _require_function(builder, "load", passed_type, builder.lanes)
    text = f"call fastcc {llvm_type(passed_type, builder.lanes)} @{symbol}({address.typed}, {count.typed})"
    loaded = _bitcast(builder, builder.make(text, passed_type, builder.lanes), stored_type)
    return vector_memory.from_memory(builder, loaded, type)


def store_first(builder: KernelBuilder, address: Register, value: Register, count: Register) -> None:
    """Stores the first `count` lanes to consecutive elements."""
    stored = vector_memory.to_memory(builder, value)
    stored = _bitcast(builder, stored, _passed_type(stored.type))
    symbol = _require_function(builder, "store", stored.type, stored.lanes)
    builder.line(f"call fastcc void @{symbol}({stored.typed}, {address.typed}, {count.typed})")


def choose_first(builder: KernelBuilder, new: Register, old: Register, count: Register) -> Register:
    """The first `count` lanes of `new`, followed by the other lanes of `old`."""
    type = _passed_type(new.type)
    symbol = _require_function(builder, "choose", type, new.lanes)
    arguments = ", ".join([*[_bitcast(builder, value, type).typed for value in (new, old)], count.typed])
    text = f"call fastcc {llvm_type(type, new.lanes)} @{symbol}({arguments})"
    return _bitcast(builder, builder.make(text, type, new.lanes), new.type)


def reduce_lanes(builder: KernelBuilder, kind: str, value: Register) -> Register:
    """One value from all lanes, in the order of `lane_reductions.across_lanes`."""
    symbol = _require_function(builder, _REDUCE + kind, value.type, value.lanes)
    return builder.make(f"call fastcc {llvm_type(value.type, 1)} @{symbol}({value.typed})", value.type, 1)


def _require_function(builder: KernelBuilder, function: str, type: Scalar, lanes: int) -> str:
    """Records that the kernel calls a function; returns its symbol."""
    builder.math.add((function, type.name, lanes))
    return math_function_name(function, type.name, lanes)


# --- definitions -----------------------------------------------------------------------------------------------------


def is_lane_function(function: str) -> bool:
    return function in ("load", "store", "choose") or function.startswith(_REDUCE)


def lane_declaration(function: str, element: str, lanes: int) -> str:
    """The declaration of a function in a kernel's module."""
    result, parameters = _signature(function, SCALARS[element], lanes)
    types = ", ".join([type for type, _ in parameters])
    return f"declare fastcc {result} @{math_function_name(function, element, lanes)}({types}) nounwind"


def lane_definition(function: str, element: str, lanes: int) -> tuple[set[str], str]:
    """Returns the declarations that a function needs, and its definition, which has the attributes #1."""
    type, builder = SCALARS[element], KernelBuilder(lanes)
    result, parameters = _signature(function, type, lanes)
    if function.startswith(_REDUCE):
        (total,) = lane_reductions.across_lanes(
            builder, function.removeprefix(_REDUCE), (Register("%value", type, lanes),)
        )
        builder.line(f"ret {total.typed}")
    else:
        builder.branch(builder.apply("icmp sge", bool_, _COUNT, builder.constant(lanes, i64)), "all", "some")
        for label in ("all", "some"):
            builder.begin(label)
            _emit_body(builder, function, type, None if label == "all" else first_lanes(builder, _COUNT, lanes))
    typed_parameters = ", ".join([f"{type} {name}" for type, name in parameters])
    head = f"define fastcc {result} @{math_function_name(function, element, lanes)}({typed_parameters}) #1 {{"
    return builder.declarations, "\n".join([head, "start:", *builder.lines, "}"])


def _emit_body(builder: KernelBuilder, function: str, type: Scalar, mask: Register | None) -> None:
    """Emits the body of a function under a mask, or for all lanes."""
    value, old = Register("%value", type, builder.lanes), Register("%old", type, builder.lanes)
    if function == "load":
        builder.line(f"ret {vector_memory.load_vector(builder, _ADDRESS, type, mask).typed}")
    elif function == "store":
        vector_memory.store_vector(builder, _ADDRESS, value, mask)
        builder.line("ret void")
    else:
        builder.line(f"ret {(value if mask is None else builder.select(mask, value, old)).typed}")


def _signature(function: str, type: Scalar, lanes: int) -> tuple[str, list[tuple[str, str]]]:
    """The type of a function's result, and the types and names of its parameters."""
    vector = llvm_type(type, lanes)
    value, address, count = (vector, "%value"), ("ptr", _ADDRESS.text), ("i64", _COUNT.text)
    if function == "load":
        return vector, [address, count]
    if function == "store":
        return "void", [value, address, count]
    return (vector, [value, (vector, "%old"), count]) if function == "choose" else (llvm_type(type, 1), [value])
