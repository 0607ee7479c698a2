"""Emits gathers, scatters and binary searches of tensors by computed index, for the ops of `function_body.py`.

An index out of range is reported and accesses no memory. Lanes whose indices are consecutive load a vector instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from livegrad.codegen.llvm.counted_loops import OpenLoop, counted_loop
from livegrad.codegen.llvm.kernel_builder import KernelBuilder
from livegrad.codegen.llvm.registers import Register, TensorReference, llvm_type
from livegrad.codegen.llvm.vector_memory import (
    element_address,
    gather,
    load_element,
    load_uniform,
    load_vector,
    memory_type,
    scatter,
    store_element,
    store_vector,
    to_memory,
)
from livegrad.ir.node import Node
from livegrad.ir.types import bool_, i64
from livegrad.ops import elementwise
from livegrad.ops.assignment import assign
from livegrad.schedule.loops.cost_model import byte_size

# The comparison that holds for elements before a value: without elements equal to it, and with them.
_ORDER = {
    "float": ("fcmp olt", "fcmp ole"),
    "signed": ("icmp slt", "icmp sle"),
    "unsigned": ("icmp ult", "icmp ule"),
    "bool": ("icmp ult", "icmp ule"),
}


# Ops whose result may be one of their operands.
_SELECTING_OPS = (elementwise.select, elementwise.min, elementwise.max, elementwise.minimum, elementwise.maximum)


class _Access(NamedTuple):
    """The offset of the accessed elements, and the lanes whose index is in range (None: all).

    If lanes access neighbours, the offset is that of lane 0.
    """

    offset: Register
    inside: Register | None
    neighbours: bool


def emit_lookup(builder: KernelBuilder, node: Node, tensor: TensorReference, indices: list[Register]) -> Register:
    """The elements at indices."""
    if not indices:
        return load_uniform(builder, tensor.pointer, tensor.element)
    if _reads_downward(builder, node, indices):
        upward = [*indices[:-1], replace(indices[-1], first=indices[-1].last, last=None)]
        return builder.shuffle(emit_lookup(builder, node, tensor, upward), range(builder.lanes - 1, -1, -1))
    access = _resolve_access(builder, tensor, indices, node)
    if access.offset.uniform and (access.inside is None or access.inside.uniform):
        return _load_if(builder, tensor, access)
    if access.neighbours:
        pointer = element_address(builder, tensor.pointer, tensor.element, access.offset)
        every = builder.mask is None and access.inside is None
        mask = None if every else _active(builder, access)
        return load_vector(builder, pointer, tensor.element, mask, flags=tensor.flags)
    return gather(
        builder, tensor.pointer, tensor.element, builder.widen(access.offset, builder.lanes), _active(builder, access)
    )


def _reads_downward(builder: KernelBuilder, node: Node, indices: list[Register]) -> bool:
    """Whether lanes read consecutive elements in descending order, all of them in range."""
    *outer, last = indices
    proven = len(dict(node.attributes).get("in_range", ())) == len(indices)
    return proven and builder.mask is None and last.last is not None and all(index.uniform for index in outer)


def emit_lookup_or(
    builder: KernelBuilder, tensor: TensorReference, otherwise: Register, indices: list[Register]
) -> Register:
    """The elements at indices, and `otherwise` for indices out of range."""
    if not indices:
        return load_uniform(builder, tensor.pointer, tensor.element)
    access = _resolve_access(builder, tensor, indices, None)
    if access.offset.uniform and not access.neighbours:
        elements = _load_if(builder, tensor, access)
        return elements if access.inside is None else builder.select(access.inside, elements, otherwise)
    if not access.neighbours:
        mask = _lanes_inside(builder, tensor, access, indices)
        elements = gather(builder, tensor.pointer, tensor.element, builder.widen(access.offset, builder.lanes), mask)
        return builder.select(mask, elements, otherwise)
    pointer = element_address(builder, tensor.pointer, tensor.element, access.offset)
    every, some, done = (builder.label(hint) for hint in ("every", "some", "found"))
    builder.branch(_all_neighbours(builder, tensor, indices), every, some)
    builder.begin(every)
    whole = load_vector(builder, pointer, tensor.element, None)
    builder.jump(done)
    builder.begin(some)
    mask = _lanes_inside(builder, tensor, access, indices)
    part = builder.select(mask, load_vector(builder, pointer, tensor.element, mask), otherwise)
    builder.jump(done)
    builder.begin(done)
    return builder.phi(tensor.element, builder.lanes, [(whole, every), (part, some)])


def _lanes_inside(
    builder: KernelBuilder, tensor: TensorReference, access: _Access, indices: list[Register]
) -> Register:
    """The lanes whose indices are in range.

    An axis that covers a dimension is long enough for all of its elements, but not for lanes past the last element.
    """
    mask = access.inside
    for axis, (index, extent) in enumerate(zip(indices, tensor.extents, strict=True)):
        if (axis, index.dimension) in tensor.covered and not index.uniform:
            within = _is_below(builder, index, extent)
            mask = within if mask is None else builder.apply("and", bool_, mask, within)
    return builder.widen(mask or builder.constant(True, bool_), builder.lanes)


def _all_neighbours(builder: KernelBuilder, tensor: TensorReference, indices: list[Register]) -> Register:
    """Whether the consecutive elements that lanes access are all in range, computed from the index of lane 0."""
    *outer, last = indices
    first, extent = last.first, tensor.extents[-1]
    assert first is not None
    beyond = builder.apply("add", i64, first, builder.constant(builder.lanes, i64))
    inside = builder.apply("icmp sle", bool_, beyond, extent)
    inside = builder.apply("and", bool_, inside, builder.apply("icmp sge", bool_, first, builder.constant(0, i64)))
    for axis, index in enumerate(outer):
        if (axis, index.dimension) not in tensor.covered:
            inside = builder.apply("and", bool_, inside, _is_below(builder, index, tensor.extents[axis]))
    return inside


def emit_write(
    builder: KernelBuilder, node: Node, tensor: TensorReference, value: Register, indices: list[Register]
) -> None:
    """Adds to the elements at indices in memory, or assigns to them."""
    access = _resolve_access(builder, tensor, indices, node)
    if builder.optimises_loops and not builder.has_masks and node.operands[1].op in _SELECTING_OPS:
        # If the value may be the one just loaded from there, LLVM 22 merges select and store into a masked store.
        # Without AVX-512, that takes 20 times as long on some processors (llvm/llvm-project#213195).
        value = builder.freeze(value)
    if access.inside is None or not access.inside.uniform:
        _write_at(builder, tensor, access, value, node.op is not assign)
        return
    run, done = builder.label("write"), builder.label("written")
    builder.branch(access.inside, run, done)
    builder.begin(run)
    _write_at(builder, tensor, access._replace(inside=None), value, node.op is not assign)
    builder.jump(done)
    builder.begin(done)


def _write_at(builder: KernelBuilder, tensor: TensorReference, access: _Access, value: Register, adds: bool) -> None:
    if builder.lanes == 1:
        _write_one(builder, tensor, access.offset, value, adds)
    elif builder.in_order:
        _write_in_order(builder, tensor, access, value, adds)
    elif access.neighbours:
        mask = _active(builder, access)
        pointer = element_address(builder, tensor.pointer, tensor.element, access.offset)
        if adds:
            value = _sum(builder, load_vector(builder, pointer, tensor.element, mask), value)
        store_vector(builder, pointer, builder.widen(value, builder.lanes), mask)
    else:
        mask, offset = _active(builder, access), builder.widen(access.offset, builder.lanes)
        if adds:
            value = _sum(builder, gather(builder, tensor.pointer, tensor.element, offset, mask), value)
        scatter(builder, tensor.pointer, value, offset, mask)


def emit_search(builder: KernelBuilder, tensor: TensorReference, value: Register, after_equals: bool) -> Register:
    """The number of elements of an ascending tensor before a value: a branch-free binary search of all lanes."""
    (extent,) = tensor.extents
    is_float = value.type.kind == "float"
    is_nan = builder.apply("fcmp uno", bool_, value, value) if is_float else None  # NaN is ordered after all numbers

    def comes_before(element: Register) -> Register:
        before = builder.apply(_ORDER[value.type.kind][after_equals], bool_, element, value)
        if is_nan is None:
            return before
        before_nan = (
            is_nan
            if after_equals
            else builder.apply("and", bool_, is_nan, builder.apply("fcmp ord", bool_, element, element))
        )
        return builder.apply("or", bool_, before, before_nan)

    def element_at(position: Register) -> Register:
        if position.uniform:
            return load_uniform(
                builder, element_address(builder, tensor.pointer, tensor.element, position), tensor.element
            )
        return gather(builder, tensor.pointer, tensor.element, position, None)

    one = builder.constant(1, i64)
    count = builder.widen(builder.constant(0, i64), value.lanes)
    loop = OpenLoop(builder, [extent, count])
    remaining, low = loop.carried
    builder.branch(builder.apply("icmp sgt", bool_, remaining, one), loop.body, loop.done)
    builder.begin(loop.body)
    half = builder.apply("lshr", i64, remaining, one)
    middle = builder.apply("add", i64, low, half)
    before = comes_before(element_at(builder.apply("sub", i64, middle, one)))
    loop.close([builder.apply("sub", i64, remaining, half), builder.select(before, middle, low)])
    run, done = builder.label("last"), builder.label("found")
    ahead = builder.block
    builder.branch(builder.apply("icmp sgt", bool_, extent, builder.constant(0, i64)), run, done)
    builder.begin(run)
    beyond = builder.select(comes_before(element_at(low)), builder.apply("add", i64, low, one), low)
    builder.jump(done)
    builder.begin(done)
    return builder.phi(i64, value.lanes, [(low, ahead), (beyond, run)])


def _sum(builder: KernelBuilder, before: Register, value: Register) -> Register:
    return builder.apply("fadd" if value.type.kind == "float" else "add", value.type, before, value)


def _write_one(builder: KernelBuilder, tensor: TensorReference, offset: Register, value: Register, adds: bool) -> None:
    type = tensor.element
    pointer = element_address(builder, tensor.pointer, type, offset)
    if adds:
        value = _sum(builder, builder.load(pointer, type, align=byte_size(type), flags=tensor.flags), value)
    store_element(builder, pointer, value, tensor.flags)


def _write_in_order(
    builder: KernelBuilder, tensor: TensorReference, access: _Access, value: Register, adds: bool
) -> None:
    """Writes one lane after the other, through memory, which is faster than extracting lanes from a vector."""
    offset, mask = builder.widen(_sign_extend(builder, access.offset), builder.lanes), _active(builder, access)
    type = value.type
    offsets, values = (
        _spill(builder, offset),
        _spill(builder, to_memory(builder, builder.widen(value, builder.lanes))),
    )

    def write(lane: Register) -> None:
        lane_offset = load_element(builder, element_address(builder, offsets, i64, lane), i64)
        lane_value = load_element(builder, element_address(builder, values, type, lane), type)
        _write_one(builder, tensor, lane_offset, lane_value, adds)

    every, some, done = (builder.label(hint) for hint in ("every", "some", "done"))
    builder.branch(builder.reduce_lanes("and", mask), every, some)
    builder.begin(every)
    for lane in range(builder.lanes):
        write(builder.constant(lane, i64))
    builder.jump(done)
    builder.begin(some)
    flags = _spill(builder, builder.convert("zext", mask, memory_type(bool_)))

    def write_if_active(lane: Register, carried: list[Register]) -> list[Register]:
        run, over = builder.label("write"), builder.label("written")
        flag = load_element(builder, element_address(builder, flags, bool_, lane), bool_)
        builder.branch(flag, run, over)
        builder.begin(run)
        write(lane)
        builder.jump(over)
        builder.begin(over)
        return []

    counted_loop(builder, builder.constant(0, i64), builder.constant(builder.lanes, i64), 1, [], write_if_active)
    builder.jump(done)
    builder.begin(done)


def _spill(builder: KernelBuilder, vector: Register) -> Register:
    """Stores a vector on the stack; returns its address."""
    pointer = builder.allocate(llvm_type(vector.type, vector.lanes))
    builder.store(vector, pointer, 64)
    return pointer


def _active(builder: KernelBuilder, access: _Access) -> Register:
    """The active lanes whose index is in range."""
    mask = access.inside if builder.mask is None else builder.mask
    if builder.mask is not None and access.inside is not None:
        mask = builder.intersect_masks(builder.mask, access.inside)
    return builder.widen(builder.constant(True, bool_) if mask is None else mask, builder.lanes)


def _is_below(builder: KernelBuilder, index: Register, extent: Register) -> Register:
    """Whether an index is in range, compared in its own type: vectors of narrow integers take fewer instructions."""
    if index.type is i64:
        return builder.apply("icmp ult", bool_, index, extent)
    limit = builder.intrinsic("umin", i64, extent, builder.constant(1 << 31, i64))
    return builder.apply("icmp ult", bool_, index, builder.convert("trunc", limit, index.type))


def _sign_extend(builder: KernelBuilder, index: Register) -> Register:
    return index if index.type is i64 else builder.convert("sext", index, i64)


def _resolve_access(
    builder: KernelBuilder, tensor: TensorReference, indices: list[Register], checked: Node | None
) -> _Access:
    """The offsets of the elements at indices; for a checked node, indices out of range are reported."""
    *outer, last = indices
    neighbours = last.first is not None and all(index.uniform for index in outer)
    offset: Register | None = None
    inside: Register | None = None
    in_range = () if checked is None else dict(checked.attributes).get("in_range", ())
    for axis, (index, extent, stride) in enumerate(zip(indices, tensor.extents, tensor.strides, strict=True)):
        wide = index if index is last and not outer and not index.uniform else _sign_extend(builder, index)
        if axis not in in_range and (axis, index.dimension) not in tensor.covered:
            within = _is_below(builder, index, extent)
            if checked is not None:
                bad = builder.apply("xor", bool_, within, builder.constant(True, bool_))
                builder.report(bad, f"index out of range for axis {axis - tensor.chunk_rank}", checked.origin)
                if builder.failure_ends_run:
                    within = None
            if within is not None:
                inside = within if inside is None else builder.apply("and", bool_, inside, within)
        if neighbours and index is last:
            assert last.first is not None
            wide = last.first
        # Indices in range do not overflow, and the results of inactive lanes are not used.
        exact = " nuw nsw" if in_range and len(in_range) == len(indices) else ""
        term = wide if stride.text == "1" else builder.apply(f"mul{exact}", i64, wide, stride)
        offset = term if offset is None else builder.apply(f"add{exact}", i64, offset, term)
    assert offset is not None
    return _Access(offset, inside, neighbours)


def _load_if(builder: KernelBuilder, tensor: TensorReference, access: _Access) -> Register:
    """Loads one element, or consecutive ones, in a branch taken only if they are in range."""
    type = tensor.element
    pointer = element_address(builder, tensor.pointer, type, access.offset)

    def load() -> Register:
        if access.neighbours:
            return load_vector(builder, pointer, type, builder.mask)
        return load_element(builder, pointer, type, tensor.flags)

    if access.inside is None:
        return load()
    run, done = builder.label("read"), builder.label("was")
    before = builder.block
    builder.branch(access.inside, run, done)
    builder.begin(run)
    loaded = load()
    builder.jump(done)
    builder.begin(done)
    return builder.phi(type, loaded.lanes, [(loaded, run), (builder.zero(type, loaded.lanes), before)])
