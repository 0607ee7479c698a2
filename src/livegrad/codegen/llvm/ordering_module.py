"""Orders rows of numbers, as LLVM IR: ranks in short rows, and the first few in order of long ones.

Called by `runtime/cpu/native/ordering.py`, which compiles it once for each element type. Numbers are compared as
integers (keys) in the order of their values: zeros of both signs are equal, and NaN is greater than every number. Of
equal numbers, the one that comes first in its row comes first.
"""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.codegen.llvm.builder import lane_constants
from livegrad.codegen.llvm.counted_loops import OpenLoop, counted_loop
from livegrad.codegen.llvm.registers import Register, llvm_type, pointer
from livegrad.codegen.llvm.values import LlvmModule, PoolKernel, Procedure, Value, call, counting, integer, when
from livegrad.ir.types import Scalar, f32, f64, i32, i64

ORDERING_SLOTS = {
    "source": pointer, "target": pointer, "length": i64, "count": i64,  # of a row: its numbers, and how many are wanted
    # Rows are counted along two dimensions; distances in bytes.
    "inner": i64, "source_outer": i64, "source_row": i64, "source_step": i64,
    "target_outer": i64, "target_row": i64, "target_step": i64,
    "flip": i64,  # -1 if the lowest number comes first, else 0
    "scratch": pointer, "scratch_bytes": i64,
}  # fmt: skip
KERNELS = ("rank_values", "rank_positions", "top_positions")
GUARD = 64  # bytes before a list of keys, for the greatest key


@dataclass(frozen=True)
class Keys:
    """The type of numbers, the integers that stand for them, and vectors of both."""

    number: Scalar
    vector_bytes: int

    @property
    def type(self) -> Scalar:
        return i32 if self.number.bits == 32 else i64

    @property
    def bytes(self) -> int:
        return self.number.bits // 8

    @property
    def lanes(self) -> int:
        return self.vector_bytes // self.bytes

    @property
    def least(self) -> int:
        return -(1 << (self.number.bits - 1))

    def of(self, number: Value, flip: Value) -> Value:
        """The key of a number, or of one in each lane."""
        builder, lanes = number.builder, number.register.lanes
        if self.number in (f32, f64):
            number = number + number.wrap(builder.zero(self.number))  # a zero without a sign
            bits = number.wrap(
                builder.make(f"bitcast {number.typed} to {llvm_type(self.type, lanes)}", self.type, lanes)
            )
            bits = bits ^ ((bits >> (self.number.bits - 1)) & ~self.least)
            number = number.compare("uno", number).select(bits.wrap(builder.constant(~self.least, self.type)), bits)
        return number ^ flip


def module_text(keys: Keys, kernel: str) -> str:
    """One kernel, with what it calls."""
    module = LlvmModule()
    if kernel == "top_positions":
        _define_insert(module, keys)
        _top_positions(module, keys)
    else:
        _rank(module, keys, kernel)
    width = keys.vector_bytes * 8
    common = f'nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
    return module.text(f'attributes #0 = {{ {common} "stackrealign" }}')


class _Kernel(PoolKernel):
    """A kernel over rows."""

    def __init__(self, module: LlvmModule, name: str, keys: Keys) -> None:
        super().__init__(module, name)
        self.keys, self.slots = keys, self.arguments(ORDERING_SLOTS)
        self.scratch = self.slots["scratch"] + self.worker * self.slots["scratch_bytes"]
        flip = self.slots["flip"]
        self.flip = flip if keys.type is i64 else flip.convert("trunc", i32)

    def row(self, side: str, number: Value) -> Value:
        w = self.slots
        return w[side] + number // w["inner"] * w[f"{side}_outer"] + number % w["inner"] * w[f"{side}_row"]

    def key_at(self, address: Value) -> Value:
        return self.keys.of(address.load(self.keys.number), self.flip)

    def load_keys(self, address: Value, left: Value) -> Value:
        """Keys of as many numbers as there are lanes; those behind the last are the least."""
        keys, builder = self.keys, self.builder
        mask = self.lane_numbers() < left.wrap(builder.widen(left.register, keys.lanes))
        loaded = builder.masked_load(address.register, keys.number, mask.register, keys.bytes)
        least = left.wrap(builder.widen(builder.constant(keys.least, keys.type), keys.lanes))
        return mask.select(keys.of(left.wrap(loaded), self.flip), least)

    def lane_numbers(self) -> Value:
        return Value(self.builder, lane_constants(tuple(range(self.keys.lanes)), i64))


# --- ranks ------------------------------------------------------------------------------------------------------------


def _rank(module: LlvmModule, keys: Keys, name: str) -> None:
    """The rank of a number is how many come before it. Each number is compared with all of them, in lanes."""
    kernel = _Kernel(module, name, keys)
    w, length, step = kernel.slots, kernel.slots["length"], kernel.slots["source_step"]
    size = (length + keys.lanes - 1) // keys.lanes * keys.vector_bytes
    ranks, ordered = kernel.scratch + size, kernel.scratch + size * 2
    result = keys.number if name == "rank_values" else i64
    with counting(kernel.begin, kernel.end) as number:
        source, target = kernel.row("source", number), kernel.row("target", number)
        _write_keys(kernel, source)
        with counting(0, length, keys.lanes) as block:
            (ranks + block * keys.bytes).store(_ranks_of_block(kernel, block), keys.bytes)
        with counting(0, length) as index:
            rank = (ranks + index * keys.bytes).load(keys.type)
            rank = rank if keys.type is i64 else rank.convert("zext", i64)
            value = (source + index * step).load(result) if name == "rank_values" else index
            (ordered + rank * (result.bits // 8)).store(value)
        with counting(0, w["count"]) as rank:
            (target + rank * w["target_step"]).store((ordered + rank * (result.bits // 8)).load(result))
    kernel.finish(exported=True)


def _write_keys(kernel: _Kernel, source: Value) -> None:
    keys, w = kernel.keys, kernel.slots
    length, step = w["length"], w["source_step"]
    with when(step.equals(keys.bytes)), counting(0, length, keys.lanes) as start:
        offset = start * keys.bytes
        (kernel.scratch + offset).store(kernel.load_keys(source + offset, length - start), keys.bytes)
    with when(step.compare("ne", keys.bytes)):
        last = (length - 1) // keys.lanes * keys.vector_bytes
        least = kernel.builder.widen(kernel.builder.constant(keys.least, keys.type), keys.lanes)
        (kernel.scratch + last).store(length.wrap(least), keys.bytes)
        with counting(0, length) as index:
            (kernel.scratch + index * keys.bytes).store(kernel.key_at(source + index * step))


def _ranks_of_block(kernel: _Kernel, block: Value) -> Value:
    """The ranks of as many numbers as there are lanes. Of equal numbers, those before a block count, those behind not;
    within the block it depends on the lane."""
    keys, builder, length = kernel.keys, kernel.builder, kernel.slots["length"]
    block_keys = (kernel.scratch + block * keys.bytes).load(keys.type, keys.lanes, keys.bytes)

    def other(index: Value) -> Value:
        return (kernel.scratch + index * keys.bytes).load(keys.type)

    def counted(total: Value, condition: Value) -> Value:
        return total + condition.convert("zext", keys.type)

    def sweep(start: Value, stop: Value, predicate: str, total: Value) -> Value:
        def body(index: Register, carried: list[Register]) -> list[Register]:
            value = other(start.wrap(index))
            return [counted(total.wrap(carried[0]), value.compare(predicate, block_keys)).register]

        return total.wrap(counted_loop(builder, start.register, stop.register, 1, [total.register], body)[0])

    total = block_keys.wrap(builder.zero(keys.type, keys.lanes))
    total = sweep(integer(builder, 0), block, "sge", total)
    lanes = kernel.lane_numbers()
    for lane in range(keys.lanes):
        value = other(block + lane)
        total = counted(total, (value > block_keys) | (value.equals(block_keys) & (lanes > lane)))
    return sweep(block + keys.lanes, length, "sgt", total)


# --- the first few ----------------------------------------------------------------------------------------------------


def _define_insert(module: LlvmModule, keys: Keys) -> None:
    """Inserts a key and its position into a list in descending order that ends at `hole`. Before the list is the
    greatest key."""
    parameters = {"list": pointer, "positions": pointer, "hole": i64, "key": keys.type, "position": i64}
    function = Procedure(module, "insert", parameters)
    builder, p = function.builder, function.parameters
    loop = OpenLoop(builder, [p["hole"].register])
    hole = Value(builder, loop.carried[0])
    before = hole - 1
    previous = (p["list"] + before * keys.bytes).load(keys.type)
    builder.branch((previous < p["key"]).register, loop.body, loop.done)
    builder.begin(loop.body)
    (p["list"] + hole * keys.bytes).store(previous)
    (p["positions"] + hole * 8).store((p["positions"] + before * 8).load(i64))
    loop.close([before.register])
    (p["list"] + hole * keys.bytes).store(p["key"])
    (p["positions"] + hole * 8).store(p["position"])
    function.finish()


def _top_positions(module: LlvmModule, keys: Keys) -> None:
    """Keeps a list of the first few; vectors without a number greater than the last of the list are passed over."""
    kernel = _Kernel(module, "top_positions", keys)
    w, length, count = kernel.slots, kernel.slots["length"], kernel.slots["count"]
    keys_of_list = kernel.scratch + GUARD
    positions = keys_of_list + count * 8
    some = positions + count * 8
    last = keys_of_list + (count - 1) * keys.bytes
    (keys_of_list + -keys.bytes).store(Value(kernel.builder, kernel.builder.constant(~keys.least, keys.type)))
    with counting(kernel.begin, kernel.end) as number:
        source, target = kernel.row("source", number), kernel.row("target", number)
        with counting(0, count) as index:
            call("@insert", keys_of_list, positions, index, kernel.key_at(source + index * keys.bytes), index)
        with counting(count, length, keys.lanes) as start:
            candidates = kernel.load_keys(source + start * keys.bytes, length - start)
            threshold = last.load(keys.type)
            bits = _bits(keys, candidates > threshold)
            with when(bits.compare("ne", 0)):
                some.store(candidates, keys.bytes)
                _insert_lanes(kernel, bits, some, start, (keys_of_list, positions, last))
        with counting(0, count) as rank:
            (target + rank * w["target_step"]).store((positions + rank * 8).load(i64))
    kernel.finish(exported=True)


def _bits(keys: Keys, mask: Value) -> Value:
    builder = mask.builder
    packed = builder.raw(f"bitcast {mask.typed} to i{keys.lanes}")
    return mask.wrap(builder.make(f"zext i{keys.lanes} {packed} to i64", i64, 1))


def _insert_lanes(kernel: _Kernel, bits: Value, some: Value, start: Value, lists: tuple[Value, Value, Value]) -> None:
    """Inserts the keys of those lanes whose bit is set, the first one first."""
    keys, builder = kernel.keys, kernel.builder
    keys_of_list, positions, last = lists
    loop = OpenLoop(builder, [bits.register])
    rest = Value(builder, loop.carried[0])
    builder.branch(rest.compare("ne", 0).register, loop.body, loop.done)
    builder.begin(loop.body)
    lane = rest.wrap(builder.intrinsic("cttz", i64, rest.register, extra="i1 true"))
    key = (some + lane * keys.bytes).load(keys.type)
    with when(key > last.load(keys.type)):  # which the lanes before may have raised
        call("@insert", keys_of_list, positions, kernel.slots["count"] - 1, key, start + lane)
    loop.close([(rest & (rest - 1)).register])
