"""Compiles or loads user kernels, checks them against their declared parameters, and converts them to step code.

In: a `CudaKernel`. Out: a `StepCode` of one launch. NVRTC messages refer to the user's line.
"""

from __future__ import annotations

import re
from typing import Any

from livegrad.codegen.argument_slots import ArgumentSlot
from livegrad.diagnostics import CompileError, TextOrigin
from livegrad.ir.node import Function
from livegrad.ir.types import Scalar, Tensor, Type
from livegrad.live.compile.live_steps import BlockStep, BufferOperand
from livegrad.live.cuda.step_code import StepCode
from livegrad.live.graph.user_kernel import CudaKernel, KernelArgument
from livegrad.runtime.cuda.driver import DeviceError, device, driver
from livegrad.runtime.cuda.modules import load_code
from livegrad.runtime.cuda.nvrtc import compile_source
from livegrad.runtime.cuda.serialised_launches import SerialisedLaunch
from livegrad.schedule.plan import Buffer, Plan

_ERROR = re.compile(r"\((\d+)\): (?:catastrophic )?error:? ?(.*)")


def make_source_code(step: BlockStep, kernel: CudaKernel) -> StepCode:
    """The code of a step whose block is a user kernel."""
    for argument in kernel.arguments:
        if argument.kind == "number" and isinstance(step.operands[argument.index], BufferOperand):
            raise CompileError(
                f"`{kernel.symbol}` takes a number where `{step.key}` reads a buffer",
                help="set the pin to a number, or let the kernel take a pointer",
            )
    function = load_kernel(kernel)
    _require_layout(kernel, function)
    arguments, results = _buffers(kernel)
    slots = tuple(_slot(argument, arguments, results) for argument in kernel.arguments)
    grid = max(1, -(-kernel.points // kernel.threads))
    serialised = SerialisedLaunch(0, kernel.name, b"", slots, grid, kernel.threads, 0, (), 0, 0, False, False, ())
    plan = Plan(kernel.name, (), (*arguments, *results), arguments, results, {}, 0, Function(kernel.name, (), ()))
    read = tuple(arguments[a.index] for a in kernel.arguments if a.kind == "input")
    slots = {buffer.number: position for position, buffer in enumerate(arguments)}
    outputs = {buffer.number: position for position, buffer in enumerate(results)}
    # Outputs are not cleared: elements that a kernel does not write keep the values of the last run.
    return StepCode(plan, (serialised,), ((),), (function,), slots, outputs, ((read, results),), separate=True)


def _buffers(kernel: CudaKernel) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
    arguments = tuple(_buffer(n, type, "argument") for n, type in enumerate(kernel.parameter_types))
    first = len(arguments)
    return arguments, tuple(_buffer(first + n, type, "result") for n, type in enumerate(kernel.result_types))


def _buffer(index: int, type: Type, name: str) -> Buffer:
    if isinstance(type, Tensor):
        return Buffer(index, name, type.element, type.shape, "external")  # type: ignore[arg-type]
    assert isinstance(type, Scalar)
    return Buffer(index, name, type, (), "external")


def _slot(argument: KernelArgument, arguments: Any, results: Any) -> int | ArgumentSlot:
    buffer: Buffer = (results if argument.kind.startswith("output") else arguments)[argument.index]
    match argument.kind:
        case "number":
            return ArgumentSlot("value", buffer.number)
        case "input" | "output":
            return ArgumentSlot("external", buffer.number)
    return buffer.size if argument.axis is None else buffer.shape[argument.axis]


# --- code ------------------------------------------------------------------------------------------------------------


def load_kernel(kernel: CudaKernel) -> Any:
    """Loads a kernel on the device."""
    try:
        return load_code(machine_code(kernel, device().architecture), kernel.symbol)
    except DeviceError as error:
        raise CompileError(
            f"the driver rejects `{kernel.symbol}`: {error}",
            where=TextOrigin(kernel.file, kernel.first_line) if kernel.file else None,
            help='check that it is an extern "C" kernel, and that the code is for this device',
        ) from error


def machine_code(kernel: CudaKernel, architecture: str) -> bytes:
    """Compiles CUDA C for an architecture, and returns other code unchanged. Needs no GPU."""
    if kernel.language != "cuda":
        return kernel.code.encode() if isinstance(kernel.code, str) else kernel.code
    assert isinstance(kernel.code, str)
    try:
        return compile_source(kernel.code, architecture, kernel.name)
    except CompileError as error:
        raise _at_users_line(error, kernel) from error


def _at_users_line(error: CompileError, kernel: CudaKernel) -> CompileError:
    """The first error of NVRTC, with the user's line."""
    match = _ERROR.search(str(error))
    if match is None:
        return error
    where = TextOrigin(kernel.file or f"{kernel.name}.cu", kernel.first_line + int(match[1]) - 1)
    others = len(_ERROR.findall(str(error))) - 1
    more = f" (and {others} more)" if others else ""
    return CompileError(f"NVRTC rejects `{kernel.name}`: {match[2].strip()}{more}", where=where)


def _require_layout(kernel: CudaKernel, function: Any) -> None:
    """Checks the declared parameters against the kernel, because the driver does not check what it reads."""
    sizes: list[int] = []
    while int((answer := driver.cuFuncGetParamInfo(function, len(sizes)))[0]) == 0:
        sizes.append(int(answer[2]))
    pointers = ("input", "output")
    expected = [8 if a.kind in pointers else a.element.dtype.itemsize for a in kernel.arguments]
    if sizes != expected:
        raise CompileError(
            f"`{kernel.symbol}` does not have the declared parameters",
            where=TextOrigin(kernel.file, kernel.first_line) if kernel.file else None,
            expected=f"{len(expected)} of {expected} bytes",
            found=f"{len(sizes)} of {sizes} bytes",
        )
