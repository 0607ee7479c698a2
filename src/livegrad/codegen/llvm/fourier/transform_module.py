"""Emits Fourier transforms of batches of rows as LLVM IR: Stockham's algorithm, vectorised across rows.

In: an element type and the processor's vectors. Out: the text of a module, which `runtime/cpu/native/fourier.py`
compiles once. A work item is a group of rows, one per lane (two for real rows, as the real and the imaginary part of
one transform). The rows are loaded into a workspace, transformed by passes between its two halves, and stored. Lengths
and strides are argument slots, so one module serves all of them.
"""

from __future__ import annotations

from livegrad.codegen.llvm.fourier.butterflies import Complex, Lanes, butterfly, product
from livegrad.codegen.llvm.fourier.rows import declarations, define_moves, find_rows
from livegrad.codegen.llvm.registers import Register, pointer
from livegrad.codegen.llvm.values import (
    LlvmModule,
    PoolKernel,
    Procedure,
    Value,
    call,
    counting,
    integer,
    largest,
    smallest,
    when,
)
from livegrad.ir.types import f32, f64, i64

TRANSFORM_SLOTS = {
    "source": pointer, "target": pointer,
    "program": pointer,  # for each pass: code, blocks, size and offset of its twiddle factors, which follow the records
    "twiddles": pointer,  # for a long transform: one factor per element of the group, applied after the passes
    "passes": i64, "length": i64,
    # Rows are numbered along two dimensions. A group has rows of one `block`: one inner dimension, or all rows.
    "count": i64, "inner": i64, "block": i64, "groups": i64,
    "source_outer": i64, "source_row": i64, "source_step": i64, "source_layout": i64,
    "target_outer": i64, "target_row": i64, "target_step": i64, "target_layout": i64,
    "first": i64,  # the offset of real parts in the workspace: swapping the parts inverts a transform
    "has_twiddles": i64,
    "scale": f64,
    "scratch": pointer, "scratch_bytes": i64, "half": i64,  # the workspaces, and the bytes of one and of its half
}  # fmt: skip
_PASS_PARAMETERS = {"source": pointer, "target": pointer, "blocks": i64, "size": i64, "twiddles": pointer}


def module_text(lanes: Lanes, name: str) -> str:
    """The text of one small module, so that a transform compiles only the code it needs.

    `name` is a kernel, `radix_` and the radix of its passes, or `rows_` and the kind of numbers that it moves. Kernels
    import the other modules.
    """
    module = LlvmModule()
    prefix, _, suffix = name.partition("_")
    if prefix == "rows":
        define_moves(module, lanes, suffix)
    elif prefix == "radix":
        for is_last in (False, True):
            _define_pass(module, lanes, int(suffix), is_last=is_last)
    else:
        module.declarations |= declarations(lanes, moves_of(name))
        _define_passes(module)
        _KERNELS[name](module, lanes)
    width = lanes.vector_bytes * 8
    common = f'nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
    return module.text(f'attributes #0 = {{ {common} "stackrealign" }}')


def moves_of(kernel: str) -> tuple[str, ...]:
    """The kinds of rows that a kernel loads or stores."""
    return ("complex",) if kernel == "transform" else ("complex", "real")


def pass_name(radix: int, is_last: bool) -> str:
    return f"{'last' if is_last else 'pass'}_{radix}"


# --- passes -----------------------------------------------------------------------------------------------------------


def _define_pass(module: LlvmModule, lanes: Lanes, radix: int, *, is_last: bool) -> None:
    """One pass: elements (radix, blocks, size) become (blocks, radix, size), multiplied by their twiddle factors.

    The last pass has one block, and all of its factors are 1.
    """
    function = Procedure(module, pass_name(radix, is_last), _PASS_PARAMETERS)
    p, element = function.parameters, 2 * lanes.vector_bytes
    distance = p["blocks"] * p["size"] * element
    row = p["size"] * element
    with counting(0, p["blocks"]) as block:
        factors = p["twiddles"] + block * ((radix - 1) * 2 * lanes.bytes)
        source, target = p["source"] + block * row, p["target"] + block * (row * radix)
        with counting(0, p["size"]) as number:
            first_input, first_output = source + number * element, target + number * element
            results = butterfly(lanes, [_load(lanes, first_input + distance * j) for j in range(radix)])
            for k, value in enumerate(results):
                if k and not is_last:
                    value = product(lanes, value, _load_scalars(lanes, factors + (k - 1) * 2 * lanes.bytes))
                _store(lanes, first_output + row * k, value)
    function.finish(exported=True)


def _load(lanes: Lanes, address: Value) -> Complex:
    parts = [address + offset for offset in (0, lanes.vector_bytes)]
    return Complex(*[part.load(lanes.type, lanes.count, lanes.bytes) for part in parts])


def _store(lanes: Lanes, address: Value, value: Complex) -> None:
    address.store(value.re, lanes.bytes)
    (address + lanes.vector_bytes).store(value.im, lanes.bytes)


def _load_scalars(lanes: Lanes, address: Value) -> Complex:
    return Complex(address.load(lanes.type), (address + lanes.bytes).load(lanes.type))


def _define_passes(module: LlvmModule) -> None:
    """Runs the passes of a program, alternating between the halves so that the last pass writes to the first half."""
    function = Procedure(module, "run_passes", {"program": pointer, "passes": i64, "workspace": pointer, "half": i64})
    p = function.parameters
    with counting(0, p["passes"]) as number:
        remaining = p["passes"] - number
        source = p["workspace"] + (remaining % 2) * p["half"]
        target = p["workspace"] + ((remaining + 1) % 2) * p["half"]
        record = p["program"] + number * 32
        code = record.load(pointer)
        blocks, size, offset = ((record + 8 * field).load(i64) for field in range(1, 4))
        call(code.text, source, target, blocks, size, p["program"] + offset)
    function.finish()


# --- kernels ----------------------------------------------------------------------------------------------------------


class _Kernel(PoolKernel):
    """A kernel over groups of rows: `sets` rows per lane."""

    def __init__(self, module: LlvmModule, name: str, lanes: Lanes, sets: int) -> None:
        super().__init__(module, name)
        self.lanes, self.sets = lanes, sets
        self.slots = w = self.arguments(TRANSFORM_SLOTS)
        self.workspace = w["scratch"] + self.worker * w["scratch_bytes"]
        self.input_half = self.workspace + (w["passes"] % 2) * w["half"]  # the input of the first pass
        self.output_half = self.workspace + ((w["passes"] + 1) % 2) * w["half"]
        self.scale = w["scale"] if lanes.type is f64 else w["scale"].convert("fptrunc", f32)
        self._sides = {side: self._allocate(side) for side in ("source", "target")}

    def _allocate(self, side: str) -> Value:
        name = f"%{side}_rows"
        self.builder.line(f"{name} = alloca [{self.sets * self.lanes.count} x ptr], align 64")
        return Value(self.builder, Register(name, pointer, 1))

    def find_group(self, group: Value) -> Value:
        """Finds the rows of a group in source and target; returns the number of the group in its block."""
        w, rows = self.slots, self.sets * self.lanes.count
        number = group % w["groups"]
        start = group // w["groups"] * w["block"] + largest(smallest(number * rows, w["block"] - rows), 0)
        for side, addresses in self._sides.items():
            batch = {
                "address": w[side], "outer": w[f"{side}_outer"], "row": w[f"{side}_row"],
                "inner": w["inner"], "count": w["count"],
            }  # fmt: skip
            find_rows(batch, start, addresses, rows)
        return number

    def load(self, kind: str, number: int, workspace: Value, first: Value, count: Value) -> None:
        self._move(f"load_{kind}", "source", number, workspace, first, count)

    def store(self, kind: str, number: int, workspace: Value, first: Value, count: Value, scale: Value) -> None:
        self._move(f"store_{kind}", "target", number, workspace, first, count, scale)

    def _move(
        self, function: str, side: str, number: int, workspace: Value, first: Value, count: Value, *scale: Value
    ) -> None:
        rows, w = self._sides[side] + 8 * number * self.lanes.count, self.slots
        call(f"@{function}", rows, w[f"{side}_layout"], w[f"{side}_step"], count, workspace, first, *scale)

    def transform(self) -> None:
        w = self.slots
        call("@run_passes", w["program"], w["passes"], self.workspace, w["half"])

    def element(self, start: Value, index: Value) -> Value:
        return start + index * (2 * self.lanes.vector_bytes)


def _transform(module: LlvmModule, lanes: Lanes) -> None:
    """The transform of complex rows; the inverse if real and imaginary parts are swapped."""
    kernel = _Kernel(module, "transform", lanes, 1)
    w = kernel.slots
    with counting(kernel.begin, kernel.end) as group:
        number = kernel.find_group(group)
        kernel.load("complex", 0, kernel.input_half, w["first"], w["length"])
        kernel.transform()
        with when(w["has_twiddles"].compare("ne", 0)):
            factors = kernel.element(w["twiddles"], number * w["length"])
            with counting(0, w["length"]) as index:
                address = kernel.element(kernel.workspace, index)
                _store(
                    lanes, address, product(lanes, _load(lanes, address), _load(lanes, kernel.element(factors, index)))
                )
        kernel.store("complex", 0, kernel.workspace, w["first"], w["length"], kernel.scale)
    kernel.finish(exported=True)


def _transform_real(module: LlvmModule, lanes: Lanes) -> None:
    """The transform of two real rows a and b per lane: the hermitian part of the spectrum of a + ib is that of a."""
    kernel = _Kernel(module, "transform_real", lanes, 2)
    w, length = kernel.slots, kernel.slots["length"]
    zero, imaginary = integer(kernel.builder, 0), integer(kernel.builder, lanes.vector_bytes)
    with counting(kernel.begin, kernel.end) as group:
        kernel.find_group(group)
        kernel.load("real", 0, kernel.input_half, zero, length)
        kernel.load("real", 1, kernel.input_half, imaginary, length)
        kernel.transform()
        frequencies = length // 2 + 1
        spectra = [kernel.workspace + w["half"]]
        spectra.append(kernel.element(spectra[0], frequencies))
        with counting(0, frequencies) as index:
            a = _load(lanes, kernel.element(kernel.workspace, index))
            b = _load(lanes, kernel.element(kernel.workspace, (length - index) % length))
            _store(lanes, kernel.element(spectra[0], index), Complex(a.re + b.re, a.im - b.im))
            _store(lanes, kernel.element(spectra[1], index), Complex(a.im + b.im, b.re - a.re))
        for number, spectrum in enumerate(spectra):
            kernel.store("complex", number, spectrum, zero, frequencies, kernel.scale * 0.5)
    kernel.finish(exported=True)


def _invert_real(module: LlvmModule, lanes: Lanes) -> None:
    """The inverse of two half spectra A and B per lane: the parts of the inverse of A + iB are their rows, swapped."""
    kernel = _Kernel(module, "invert_real", lanes, 2)
    length = kernel.slots["length"]
    zero, imaginary = integer(kernel.builder, 0), integer(kernel.builder, lanes.vector_bytes)
    with counting(kernel.begin, kernel.end) as group:
        kernel.find_group(group)
        frequencies = length // 2 + 1
        spectra = [kernel.output_half, kernel.element(kernel.output_half, frequencies)]
        for number, spectrum in enumerate(spectra):
            kernel.load("complex", number, spectrum, zero, frequencies)
        with counting(0, frequencies) as index:
            a, b = (_load(lanes, kernel.element(spectrum, index)) for spectrum in spectra)
            mirrored = length - index
            # The first frequency, and the last one of an even length, are real: their imaginary parts are not read.
            is_single = index.equals(0) | mirrored.equals(index)
            zeros = Value(kernel.builder, kernel.builder.zero(lanes.type, lanes.count))
            first, second = is_single.select(zeros, a.im), is_single.select(zeros, b.im)
            target = kernel.element(kernel.input_half, mirrored % length)
            _store(lanes, target, Complex(b.re - first, a.re + second))
            _store(lanes, kernel.element(kernel.input_half, index), Complex(first + b.re, a.re - second))
        kernel.transform()
        kernel.store("real", 0, kernel.workspace, imaginary, length, kernel.scale)
        kernel.store("real", 1, kernel.workspace, zero, length, kernel.scale)
    kernel.finish(exported=True)


_KERNELS = {"transform": _transform, "transform_real": _transform_real, "invert_real": _invert_real}
KERNELS = tuple(_KERNELS)
