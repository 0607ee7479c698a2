"""Emits kernels that sort rows, as LLVM IR: rank sort for short rows, and top-k selection for long ones.

Called by `runtime/cpu/native/ordering.py`, which compiles each kernel once per element type. Elements are mapped to
integer keys of the same order: zeros of both signs are equal, and NaN is greater than every number. The order is
stable: of equal elements, the one with the lower index comes first.
"""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.codegen.llvm.builder import lane_constants
from livegrad.codegen.llvm.counted_loops import OpenLoop, counted_loop
from livegrad.codegen.llvm.registers import Register, llvm_type, pointer
from livegrad.codegen.llvm.values import LlvmModule, PoolKernel, Procedure, Value, call, counting, integer, when
from livegrad.ir.types import Scalar, f32, f64, i32, i64

ORDERING_SLOTS = {
    "source": pointer, "target": pointer, "length": i64, "count": i64,  # elements of a row, and how many are returned
    # Rows are numbered along two dimensions; strides are in bytes.
    "inner": i64, "source_outer": i64, "source_row": i64, "source_step": i64,
    "target_outer": i64, "target_row": i64, "target_step": i64,
    "flip": i64,  # -1 for ascending order, 0 for descending
    "scratch": pointer, "scratch_bytes": i64,
}  # fmt: skip
KERNELS = ("rank_values", "rank_positions", "top_positions")
GUARD = 64  # bytes before a list of keys, for the greatest key


@dataclass(frozen=True)
class Keys:
    """The type of elements, their integer keys, and the vectors of both."""

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
        """The key of an element, or of one element per lane."""
        builder, lanes = number.builder, number.register.lanes
        if self.number in (f32, f64):
            number = number + number.wrap(builder.zero(self.number))  # makes a negative zero positive
            bits = number.wrap(
                builder.make(f"bitcast {number.typed} to {llvm_type(self.type, lanes)}", self.type, lanes)
            )
            bits = bits ^ ((bits >> (self.number.bits - 1)) & ~self.least)
            number = number.compare("uno", number).select(bits.wrap(builder.constant(~self.least, self.type)), bits)
        return number ^ flip


def module_text(keys: Keys, kernel: str) -> str:
    """The LLVM module of one kernel, with the functions that it calls."""
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
        """The keys of one element per lane; lanes past the end of the row have the least key."""
        keys, builder = self.keys, self.builder
        mask = self.lane_numbers() < left.wrap(builder.widen(left.register, keys.lanes))
        loaded = builder.masked_load(address.register, keys.number, mask.register, keys.bytes)
        least = left.wrap(builder.widen(builder.constant(keys.least, keys.type), keys.lanes))
        return mask.select(keys.of(left.wrap(loaded), self.flip), least)

    def lane_numbers(self) -> Value:
        return Value(self.builder, lane_constants(tuple(range(self.keys.lanes)), i64))


# --- ranks ------------------------------------------------------------------------------------------------------------


def _rank(module: LlvmModule, keys: Keys, name: str) -> None:
    """Emits a rank sort: the rank of an element is the number of elements before it, counted in lanes."""
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
    """The ranks of one element per lane.

    Of equal elements, those before the block count and those after it do not; within the block, those in earlier lanes
    count.
    """
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


# --- top-k selection --------------------------------------------------------------------------------------------------


def _define_insert(module: LlvmModule, keys: Keys) -> None:
    """Emits a function that inserts a key and its position into a list that ends at `hole`.

    The list is in descending order, with the greatest key before it as a sentinel.
    """
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
    """Emits a top-k selection: keeps a sorted list, and skips vectors without a key greater than its last."""
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
    """Inserts the keys of the lanes whose bit is set, in ascending order of lanes."""
    keys, builder = kernel.keys, kernel.builder
    keys_of_list, positions, last = lists
    loop = OpenLoop(builder, [bits.register])
    rest = Value(builder, loop.carried[0])
    builder.branch(rest.compare("ne", 0).register, loop.body, loop.done)
    builder.begin(loop.body)
    lane = rest.wrap(builder.intrinsic("cttz", i64, rest.register, extra="i1 true"))
    key = (some + lane * keys.bytes).load(keys.type)
    with when(key > last.load(keys.type)):  # earlier lanes may have raised it
        call("@insert", keys_of_list, positions, kernel.slots["count"] - 1, key, start + lane)
    loop.close([(rest & (rest - 1)).register])
