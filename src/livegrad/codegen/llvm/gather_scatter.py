"""Gathers, scatters and searches of tensors by computed index, for the ops of `function_body.py`.

An index out of range is reported and accesses no memory.
"""

from __future__ import annotations

from typing import NamedTuple

from livegrad.codegen.llvm.builder import Assembler
from livegrad.codegen.llvm.counted_loops import OpenLoop, counted_loop
from livegrad.codegen.llvm.registers import Register, TensorReference, llvm_memory, llvm_type
from livegrad.codegen.llvm.vector_memory import (
    element_pointer,
    from_memory,
    gather,
    load_uniform,
    load_vector,
    memory_type,
    scatter,
    store_vector,
    to_memory,
)
from livegrad.ir.node import Node
from livegrad.ir.types import bool_, i64
from livegrad.ops.assignment import assign
from livegrad.schedule.loops.cost_model import byte_size

# What an element fulfils that comes before a value: without its equals, and with them.
_ORDER = {
    "float": ("fcmp olt", "fcmp ole"),
    "signed": ("icmp slt", "icmp sle"),
    "unsigned": ("icmp ult", "icmp ule"),
    "bool": ("icmp ult", "icmp ule"),
}


class _Place(NamedTuple):
    """Where elements lie, and which of them are there (None: all). Of neighbours, one a lane, lane 0's place."""

    offset: Register
    inside: Register | None
    neighbours: bool


def emit_lookup(asm: Assembler, node: Node, tensor: TensorReference, indices: list[Register]) -> Register:
    """The elements at indices."""
    if not indices:
        return load_uniform(asm, tensor.pointer, tensor.element)
    place = _place_of(asm, tensor, indices, node)
    if place.offset.uniform and (place.inside is None or place.inside.uniform):
        return _load_if(asm, tensor, place)
    if place.neighbours:
        pointer = element_pointer(asm, tensor.pointer, tensor.element, place.offset)
        return load_vector(asm, pointer, tensor.element, _active(asm, place))
    return gather(asm, tensor.pointer, tensor.element, asm.widen(place.offset, asm.lanes), _active(asm, place))


def emit_lookup_or(asm: Assembler, tensor: TensorReference, otherwise: Register, indices: list[Register]) -> Register:
    """The elements at indices, and another value where there is none."""
    if not indices:
        return load_uniform(asm, tensor.pointer, tensor.element)
    place = _place_of(asm, tensor, indices, None)
    if place.offset.uniform and not place.neighbours:
        found = _load_if(asm, tensor, place)
        return found if place.inside is None else asm.select(place.inside, found, otherwise)
    if not place.neighbours:
        mask = _lanes_inside(asm, tensor, place, indices)
        found = gather(asm, tensor.pointer, tensor.element, asm.widen(place.offset, asm.lanes), mask)
        return asm.select(mask, found, otherwise)
    pointer = element_pointer(asm, tensor.pointer, tensor.element, place.offset)
    every, some, done = (asm.label(hint) for hint in ("every", "some", "found"))
    asm.branch(_all_neighbours(asm, tensor, indices), every, some)
    asm.begin(every)
    whole = load_vector(asm, pointer, tensor.element, None)
    asm.jump(done)
    asm.begin(some)
    mask = _lanes_inside(asm, tensor, place, indices)
    part = asm.select(mask, load_vector(asm, pointer, tensor.element, mask), otherwise)
    asm.jump(done)
    asm.begin(done)
    return asm.phi(tensor.element, asm.lanes, [(whole, every), (part, some)])


def _lanes_inside(asm: Assembler, tensor: TensorReference, place: _Place, indices: list[Register]) -> Register:
    """The lanes that may read.

    An axis that covers a dimension has room for all of its elements, but not for lanes behind the last one.
    """
    mask = place.inside
    for axis, (index, extent) in enumerate(zip(indices, tensor.extents, strict=True)):
        if (axis, index.dimension) in tensor.covered and not index.uniform:
            within = _is_below(asm, index, extent)
            mask = within if mask is None else asm.apply("and", bool_, mask, within)
    return asm.widen(mask or asm.constant(True, bool_), asm.lanes)


def _all_neighbours(asm: Assembler, tensor: TensorReference, indices: list[Register]) -> Register:
    """Whether all neighbours of a row, one per lane, are inside, decided by lane 0."""
    *others, last = indices
    first, extent = last.first, tensor.extents[-1]
    assert first is not None
    beyond = asm.apply("add", i64, first, asm.constant(asm.lanes, i64))
    inside = asm.apply("icmp sle", bool_, beyond, extent)
    inside = asm.apply("and", bool_, inside, asm.apply("icmp sge", bool_, first, asm.constant(0, i64)))
    for axis, index in enumerate(others):
        if (axis, index.dimension) not in tensor.covered:
            here = _is_below(asm, index, tensor.extents[axis])
            inside = asm.apply("and", bool_, inside, here)
    return inside


def emit_write(asm: Assembler, node: Node, tensor: TensorReference, value: Register, indices: list[Register]) -> None:
    """Adds to the elements at indices, or assigns to them, in memory."""
    place = _place_of(asm, tensor, indices, node)
    if place.inside is None or not place.inside.uniform:
        _write_at(asm, tensor, place, value, node.op is not assign)
        return
    run, done = asm.label("write"), asm.label("written")
    asm.branch(place.inside, run, done)
    asm.begin(run)
    _write_at(asm, tensor, place._replace(inside=None), value, node.op is not assign)
    asm.jump(done)
    asm.begin(done)


def _write_at(asm: Assembler, tensor: TensorReference, place: _Place, value: Register, adds: bool) -> None:
    if asm.lanes == 1:
        _write_one(asm, tensor, place.offset, value, adds)
    elif asm.in_order:
        _write_in_order(asm, tensor, place, value, adds)
    elif place.neighbours:
        mask = _active(asm, place)
        pointer = element_pointer(asm, tensor.pointer, tensor.element, place.offset)
        if adds:
            value = _sum(asm, load_vector(asm, pointer, tensor.element, mask), value)
        store_vector(asm, pointer, asm.widen(value, asm.lanes), mask)
    else:
        mask, offset = _active(asm, place), asm.widen(place.offset, asm.lanes)
        if adds:
            value = _sum(asm, gather(asm, tensor.pointer, tensor.element, offset, mask), value)
        scatter(asm, tensor.pointer, value, offset, mask)


def emit_search(asm: Assembler, tensor: TensorReference, value: Register, after_equals: bool) -> Register:
    """How many elements of an ascending tensor come before a value: halved without branches, all lanes at once."""
    (extent,) = tensor.extents
    is_float = value.type.kind == "float"
    last = asm.apply("fcmp uno", bool_, value, value) if is_float else None  # NaN comes behind all numbers

    def comes_before(element: Register) -> Register:
        before = asm.apply(_ORDER[value.type.kind][after_equals], bool_, element, value)
        if last is None:
            return before
        known = last if after_equals else asm.apply("and", bool_, last, asm.apply("fcmp ord", bool_, element, element))
        return asm.apply("or", bool_, before, known)

    def element_at(place: Register) -> Register:
        if place.uniform:
            return load_uniform(asm, element_pointer(asm, tensor.pointer, tensor.element, place), tensor.element)
        return gather(asm, tensor.pointer, tensor.element, place, None)

    one = asm.constant(1, i64)
    found = asm.widen(asm.constant(0, i64), value.lanes)
    loop = OpenLoop(asm, [extent, found])
    left, low = loop.carried
    asm.branch(asm.apply("icmp sgt", bool_, left, one), loop.body, loop.done)
    asm.begin(loop.body)
    half = asm.apply("lshr", i64, left, one)
    middle = asm.apply("add", i64, low, half)
    before = comes_before(element_at(asm.apply("sub", i64, middle, one)))
    loop.close([asm.apply("sub", i64, left, half), asm.select(before, middle, low)])
    run, done = asm.label("last"), asm.label("found")
    ahead = asm.block
    asm.branch(asm.apply("icmp sgt", bool_, extent, asm.constant(0, i64)), run, done)
    asm.begin(run)
    beyond = asm.select(comes_before(element_at(low)), asm.apply("add", i64, low, one), low)
    asm.jump(done)
    asm.begin(done)
    return asm.phi(i64, value.lanes, [(low, ahead), (beyond, run)])


def _sum(asm: Assembler, before: Register, value: Register) -> Register:
    return asm.apply("fadd" if value.type.kind == "float" else "add", value.type, before, value)


def _write_one(asm: Assembler, tensor: TensorReference, offset: Register, value: Register, adds: bool) -> None:
    type, align = tensor.element, byte_size(tensor.element)
    pointer = element_pointer(asm, tensor.pointer, type, offset)
    if adds:
        before = asm.make(f"load {llvm_memory(type)}, ptr {pointer}, align {align}", type, 1)
        value = _sum(asm, before, value)
    asm.line(f"store {to_memory(asm, value).typed}, ptr {pointer}, align {align}")


def _write_in_order(asm: Assembler, tensor: TensorReference, place: _Place, value: Register, adds: bool) -> None:
    """One lane after the other, by way of memory: lanes of a vector come singly from there, and it costs less."""
    offset, mask = asm.widen(_wide(asm, place.offset), asm.lanes), _active(asm, place)
    type = value.type
    offsets, values = _spilled(asm, offset), _spilled(asm, to_memory(asm, asm.widen(value, asm.lanes)))

    def write(lane: Register) -> None:
        at = asm.make(f"load i64, ptr {element_pointer(asm, offsets, i64, lane)}, align 8", i64, 1)
        pointer = element_pointer(asm, values, type, lane)
        held = asm.make(f"load {llvm_memory(type)}, ptr {pointer}, align {byte_size(type)}", memory_type(type), 1)
        _write_one(asm, tensor, at, from_memory(asm, held, type), adds)

    every, some, done = (asm.label(hint) for hint in ("every", "some", "done"))
    asm.branch(_all_lanes(asm, mask), every, some)
    asm.begin(every)
    for lane in range(asm.lanes):
        write(asm.constant(lane, i64))
    asm.jump(done)
    asm.begin(some)
    flags = _spilled(asm, asm.convert("zext", mask, memory_type(bool_)))

    def turn(lane: Register, carried: list[Register]) -> list[Register]:
        run, over = asm.label("write"), asm.label("written")
        held = asm.make(f"load i8, ptr {element_pointer(asm, flags, bool_, lane)}, align 1", memory_type(bool_), 1)
        flag = from_memory(asm, held, bool_)
        asm.branch(flag, run, over)
        asm.begin(run)
        write(lane)
        asm.jump(over)
        asm.begin(over)
        return []

    counted_loop(asm, asm.constant(0, i64), asm.constant(asm.lanes, i64), 1, [], turn)
    asm.jump(done)
    asm.begin(done)


def _spilled(asm: Assembler, vector: Register) -> str:
    """The address of a vector's lanes in memory."""
    pointer = asm.name("p")
    asm.entry.append(f"  {pointer} = alloca {llvm_type(vector.type, vector.lanes)}, align 64")
    asm.line(f"store {vector.typed}, ptr {pointer}, align 64")
    return pointer


def _all_lanes(asm: Assembler, mask: Register) -> Register:
    vector = llvm_type(bool_, mask.lanes)
    asm.declarations.add(f"declare i1 @llvm.vector.reduce.and.v{mask.lanes}i1({vector})")
    return asm.make(f"call i1 @llvm.vector.reduce.and.v{mask.lanes}i1({mask.typed})", bool_, 1)


def _active(asm: Assembler, place: _Place) -> Register:
    """The lanes that have an element."""
    mask = place.inside if asm.mask is None else asm.mask
    if asm.mask is not None and place.inside is not None:
        mask = asm.both(asm.mask, place.inside)
    return asm.widen(asm.constant(True, bool_) if mask is None else mask, asm.lanes)


def _is_below(asm: Assembler, index: Register, extent: Register) -> Register:
    """Whether an index is in range, compared in its own type: vectors of narrow numbers take fewer instructions."""
    if index.type is i64:
        return asm.apply("icmp ult", bool_, index, extent)
    limit = asm.intrinsic("umin", i64, extent, asm.constant(1 << 31, i64))
    return asm.apply("icmp ult", bool_, index, asm.convert("trunc", limit, index.type))


def _wide(asm: Assembler, index: Register) -> Register:
    return index if index.type is i64 else asm.convert("sext", index, i64)


def _place_of(asm: Assembler, tensor: TensorReference, indices: list[Register], checked: Node | None) -> _Place:
    """The place of elements; a node that is checked has indices out of range reported."""
    *others, last = indices
    neighbours = last.first is not None and all(index.uniform for index in others)
    offset: Register | None = None
    inside: Register | None = None
    for axis, (index, extent, stride) in enumerate(zip(indices, tensor.extents, tensor.strides, strict=True)):
        wide = index if index is last and not others and not index.uniform else _wide(asm, index)
        if (axis, index.dimension) not in tensor.covered:
            within = _is_below(asm, index, extent)
            if checked is not None:
                bad = asm.apply("xor", bool_, within, asm.constant(True, bool_))
                asm.report(bad, f"index out of range for axis {axis - tensor.chunk_rank}", checked.origin)
            inside = within if inside is None else asm.apply("and", bool_, inside, within)
        if neighbours and index is last:
            assert last.first is not None
            wide = last.first
        term = wide if stride.text == "1" else asm.apply("mul", i64, wide, stride)
        offset = term if offset is None else asm.apply("add", i64, offset, term)
    assert offset is not None
    return _Place(offset, inside, neighbours)


def _load_if(asm: Assembler, tensor: TensorReference, place: _Place) -> Register:
    """A load of one element, or of neighbours, that happens only when it may."""
    type = tensor.element
    pointer = element_pointer(asm, tensor.pointer, type, place.offset)

    def load() -> Register:
        if place.neighbours:
            return load_vector(asm, pointer, type, asm.mask)
        text = f"load {llvm_memory(type)}, ptr {pointer}, align {byte_size(type)}"
        return from_memory(asm, asm.make(text, memory_type(type), 1), type)

    if place.inside is None:
        return load()
    run, done = asm.label("read"), asm.label("was")
    before = asm.block
    asm.branch(place.inside, run, done)
    asm.begin(run)
    loaded = load()
    asm.jump(done)
    asm.begin(done)
    nothing = Register("zeroinitializer", type, loaded.lanes) if loaded.lanes > 1 else asm.constant(0, type)
    return asm.phi(type, loaded.lanes, [(loaded, run), (nothing, before)])
