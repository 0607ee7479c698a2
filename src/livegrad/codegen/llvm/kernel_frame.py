"""The frame of a kernel in LLVM IR: loads its arguments, and tracks the current position and the active lanes.

`accesses.py`, `register_tiles.py`, `stages.py` and `kernel_module.py` each add a layer as a subclass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Literal

from livegrad.codegen.llvm import vector_memory
from livegrad.codegen.llvm.baseline_lanes import first_lanes
from livegrad.codegen.llvm.builder import lane_constants
from livegrad.codegen.llvm.function_body import needs_mask
from livegrad.codegen.llvm.kernel_builder import KernelBuilder
from livegrad.codegen.llvm.metadata import STATUS, LoopMetadata
from livegrad.codegen.llvm.registers import NodeValue, Register, TensorReference, llvm_element, pointer
from livegrad.codegen.llvm.tapes import mentions_tapes
from livegrad.ir.cached_property import cached_property
from livegrad.ir.leaves import constant_op
from livegrad.ir.symbolic_size import SymbolicSize
from livegrad.ir.types import Scalar, bool_, i64
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.schedule.kernel import StridedAccess
from livegrad.schedule.loops.dimensions import NEAR, StrideKind
from livegrad.schedule.loops.divergence import may_diverge
from livegrad.schedule.loops.nest import Access, LoopNest
from livegrad.schedule.plan import ALIGNMENT

AccessKind = Literal["read", "output"]
Groups = Literal["any", "full", "remainder"]  # the groups of lanes that code is being emitted for
Tail = tuple[Register, Register]  # the position of lane 0, and the end of the lanes' dimension

_CONSTANT_STRIDES: dict[StrideKind, int] = {"zero": 0, "one": 1, **{kind: step for step, kind in NEAR.items()}}


@dataclass
class ArgumentSlots:
    """Allocates the slots of the argument block; `names` records the contents of each."""

    names: list[str] = field(default_factory=list)

    def take(self, name: str) -> int:
        self.names.append(name)
        return len(self.names) - 1


class Frame:
    """One kernel under construction."""

    def __init__(self, nest: LoopNest, is_baseline: bool = False) -> None:
        self.nest, self.kernel, self.across = nest, nest.kernel, nest.across
        kernel = nest.kernel
        self.is_baseline = is_baseline  # the baseline tier: compile time counts more than speed; the bits are the same
        self.masks: dict[Tail, Register] = {}  # lane masks that dominate the current block
        self.remaining: dict[Tail, Register] = {}  # likewise, the number of elements from lane 0 on
        self.groups: Groups = "any"
        registers = 0 if is_baseline else nest.vector_bytes
        self.builder = KernelBuilder(
            nest.lanes, is_baseline=is_baseline, in_order=not self.across, vector_bytes=registers
        )
        self.builder.shares_lockstep = nest.shares_lockstep
        if nest.memories is not None and not is_baseline:
            self.builder.metadata = LoopMetadata((STATUS, *dict.fromkeys(nest.memories)))
        if nest.memories is not None:  # an arena with tapes must be freed at the end
            self.builder.ends_on_failure = not any(mentions_tapes(stage.body) for stage in kernel.stages)
        self.slots = ArgumentSlots()
        self.rows: list[NodeValue | None] = [None] * len(kernel.rows)
        self.diverges = any(may_diverge(stage.body) for stage in kernel.stages)
        self.masked = self.diverges and any(needs_mask(stage.body) for stage in kernel.stages)
        self.domain_index: list[Register] = []
        self.chunk_rank = 1 if nest.is_split else 0  # leading dimensions that count chunks of a split reduction

    @cached_property
    def sizes(self) -> tuple[SymbolicSize, ...]:
        """The symbolic sizes that the code uses, in the same order in all tiers."""
        functions = reachable_functions([stage.body for stage in self.kernel.stages])
        constants = [n.attribute("value") for f in functions for n in nodes_of(f) if n.op is constant_op]
        return tuple(dict.fromkeys([value for value in constants if type(value) is SymbolicSize]))

    # --- the argument block ---

    def argument(self, name: str, type: Scalar = i64) -> Register:
        """A slot of the argument block, loaded before the loops."""
        slot, value = self.builder.name(), self.builder.name()
        # As text: code for a small kernel loads more arguments than it has other instructions.
        self.builder.entry += (
            f"  {slot} = getelementptr i64, ptr %args, i64 {self.slots.take(name)}",
            f"  {value} = load {llvm_element(type)}, ptr {slot}, align 8, !invariant.load !0",
        )
        return Register(value, type, 1)

    def scalar_argument(self, name: str, type: Scalar) -> Register:
        """A scalar argument, loaded from the address in its slot."""
        address = self.argument(name, pointer)
        with self.builder.before_loops():
            return vector_memory.load_uniform(self.builder, address, type)

    def load_arguments(self) -> None:
        nest, kernel = self.nest, self.kernel
        self.status = self.argument("status", pointer)
        self.interrupt = self.argument("interrupt", pointer)
        self.extents = [self.argument(f"domain{d}") for d in range(nest.domain_rank)]
        self.inner = [self.argument(f"inner{d}") for d in range(nest.inner_rank)]
        self.block_size = self.argument("block")
        scratch = any(port.scratch for port in kernel.outputs)
        self.scratch_size = self.argument("scratch") if scratch else self.block_size
        self.chunk = self.argument("chunk") if nest.is_split else None
        self.read_bases, self.read_strides = self._ports("read", kernel.reads, nest.reads)
        self.output_bases, self.output_strides = self._ports("output", kernel.outputs, nest.outputs)
        self.indexed_buffers = [self._indexed_buffer(index) for index in range(len(kernel.indexed_buffers))]
        if nest.has_parallel_loops:
            self.builder.pool_run = self.argument("run", pointer)
        self.scalar_arguments = [
            self.scalar_argument(f"uniform{i}", type) for i, type in enumerate(kernel.scalar_arguments)
        ]
        for number, size in enumerate(self.sizes):
            self.builder.sizes[size] = self.argument(f"size{number}")
        self.line_aligned = self._are_line_aligned([self.output_bases[number] for number in nest.non_temporal])

    def _are_line_aligned(self, addresses: list[Register]) -> Register | None:
        """Whether all addresses are aligned to cache lines, computed before the loops; None if there are none."""
        builder = self.builder
        if not addresses:
            return None
        with builder.before_loops():
            numbers = [builder.convert("ptrtoint", address, i64) for address in addresses]
            joined = reduce(lambda a, b: builder.apply("or", i64, a, b), numbers)
            rest = builder.apply("and", i64, joined, builder.constant(ALIGNMENT - 1, i64))
            return builder.apply("icmp eq", bool_, rest, builder.constant(0, i64))

    def _ports(
        self, role: str, ports: tuple[StridedAccess, ...], accesses: tuple[Access, ...]
    ) -> tuple[list[Register], list[list[Register]]]:
        bases = [self.argument(f"{role}{k}", pointer) for k in range(len(ports))]
        strides = [
            [self._stride(f"{role}{k}.stride{d}", kind) for d, kind in enumerate(access.strides)]
            for k, access in enumerate(accesses)
        ]
        return bases, strides

    def _stride(self, name: str, kind: StrideKind) -> Register:
        if kind == "any":
            return self.argument(name)
        return self.builder.constant(self.nest.unrolled_points if kind == "row" else _CONSTANT_STRIDES[kind], i64)

    def _indexed_buffer(self, index: int) -> TensorReference:
        buffer = self.kernel.indexed_buffers[index]
        address = self.argument(f"whole{index}", pointer)
        extents = tuple(self.argument(f"whole{index}.extent{d}") for d in range(buffer.rank))
        strides = [self.argument(f"whole{index}.stride{d}") for d in range(buffer.rank - 1)]
        strides += [self.builder.constant(1, i64)] * min(buffer.rank, 1)  # memory of tensors is dense
        covered = frozenset((axis, dimension) for buffer, axis, dimension in self.nest.covered if buffer == index)
        chunk_rank = self.chunk_rank if index in self.kernel.written else 0
        flags = "" if self.nest.memories is None else self.builder.metadata.flags(self.nest.memories[index])
        return TensorReference(address, buffer.element, extents, tuple(strides), covered, chunk_rank, flags)

    # --- positions ---

    def offset_of(self, strides: list[Register], indices: list[Register], start: Register | None) -> Register:
        """The element offset of a point: the sum of index times stride, without terms that are zero."""
        total = start
        for stride, index in zip(strides, indices, strict=True):
            if stride.text == "0":
                continue
            term = index if stride.text == "1" else self.builder.apply("mul", i64, index, stride)
            total = term if total is None else self.builder.apply("add", i64, total, term)
        return self.builder.constant(0, i64) if total is None else total

    def decode(self, linear: Register, extents: list[Register]) -> list[Register]:
        """The indices of a point from its linear index in row-major order."""
        indices: list[Register] = []
        for extent in reversed(extents[1:]):
            indices.append(self.builder.apply("urem", i64, linear, extent))
            linear = self.builder.apply("udiv", i64, linear, extent)
        if extents:
            indices.append(linear)
        return indices[::-1]

    def _next_indices(self, indices: list[Register], extents: list[Register]) -> list[Register]:
        """The indices of the next point in row-major order."""
        builder, one, zero = self.builder, self.builder.constant(1, i64), self.builder.constant(0, i64)
        following: list[Register] = []
        step = one
        for index, extent in zip(reversed(indices[1:]), reversed(extents[1:]), strict=True):
            moved = builder.apply("add", i64, index, step)
            ends = builder.apply("icmp eq", bool_, moved, extent)
            following.append(builder.select(ends, zero, moved))
            step = builder.convert("zext", ends, i64)
        if indices:
            following.append(builder.apply("add", i64, indices[0], step))
        return following[::-1]

    def encode(self, indices: list[Register], extents: list[Register]) -> Register:
        """The linear index of a point in row-major order from its indices."""
        linear: Register | None = None
        for index, extent in zip(indices, extents, strict=True):
            scaled = None if linear is None else self.builder.apply("mul", i64, linear, extent)
            linear = index if scaled is None else self.builder.apply("add", i64, scaled, index)
        return self.builder.constant(0, i64) if linear is None else linear

    def _begin_group(self, tail: Tail | None) -> None:
        """In the baseline tier, computes the masks that all accesses of a group of lanes share."""
        if self.is_baseline and tail is not None and self.builder.lanes > 1:
            self.remaining[tail] = self._remaining(tail)
            if self.masked or self._has_gathers():
                self.masks[tail] = self._lane_mask(tail)

    def _has_gathers(self) -> bool:
        """Whether lanes of an access are not consecutive."""
        ranks = self.nest.domain_rank + (0 if self.across else self.nest.inner_rank)
        strides = [access.strides for access in (*self.nest.reads, *self.nest.outputs)]
        kinds = [access_strides[ranks - 1] for access_strides in strides if len(access_strides) >= ranks]
        return not {"zero", "one"}.issuperset(kinds)

    def _remaining(self, tail: Tail) -> Register:
        """The number of elements from lane 0 on."""
        position, stop = tail
        return self.remaining[tail] if tail in self.remaining else self.builder.apply("sub", i64, stop, position)

    def _lane_mask(self, tail: Tail) -> Register:
        """The lanes before the end of their dimension."""
        return (
            self.masks[tail]
            if tail in self.masks
            else first_lanes(self.builder, self._remaining(tail), self.builder.lanes)
        )

    def _lane_numbers(self) -> Register:
        return lane_constants(range(self.builder.lanes), i64)
