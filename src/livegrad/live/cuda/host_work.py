"""Runs host work between graphs: ops without kernels, and regions that contain them.

Such a step waits for the device, works on copies, and copies its results back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from livegrad.ir.types import scalar_of
from livegrad.live.compile.live_steps import BufferOperand, Operand, RegionStep
from livegrad.live.cuda.bound_step import BoundStep
from livegrad.live.cuda.buffers import write_array
from livegrad.runtime.cpu import run_function
from livegrad.runtime.cpu.compiled_plan import HostCall
from livegrad.runtime.cuda.device_memory import download
from livegrad.runtime.cuda.driver import device
from livegrad.schedule.plan import Buffer, HostStep

if TYPE_CHECKING:
    from livegrad.live.cuda.executable import CudaExecutable
    from livegrad.live.cuda.program import Program


class HostWork:
    """Runs host calls on copies of device memory."""

    def __init__(self, executable: CudaExecutable) -> None:
        self._executable = executable
        self.calls: dict[str, int] = {}
        self.run_nested = run_function

    def run_item(self, bound: BoundStep, item_index: int) -> None:
        """Runs one host item of a step."""
        item = bound.code.plan.steps[bound.code.items[item_index].number]
        assert isinstance(item, HostStep)
        for slot in item.operands:
            if isinstance(slot, Buffer):
                base = slot.base
                array = np.empty(base.shape, base.element.dtype)
                download(bound.buffer_address(slot, self._addresses()), array)
                bound.values[base.number] = array
        results = [slot for slot in item.written if isinstance(slot, Buffer)]
        for result in results:
            bound.values[result.base.number] = np.empty(result.base.shape, result.base.element.dtype)
        HostCall(item, self).run(bound.values)  # type: ignore[arg-type]
        for result in results:
            write_array(bound.buffer_address(result, self._addresses()), bound.values[result.base.number])

    def run_region(self, region: RegionStep, bodies: Sequence[Program], prologue: Program) -> None:
        """Runs a region: reads the condition from the device before each body."""
        stream = device().stream
        _start(prologue, stream)
        control = self._read_operand(region.control)
        if region.kind == "for":
            for iteration in range(int(control)):
                if region.index is not None:
                    write_array(self._executable.address(region.index), np.array(iteration, np.int64))
                self._run_body(region, 0, bodies, stream)
        elif region.kind == "while":
            assert region.condition is not None
            continues = bool(control)
            while continues:
                self._run_body(region, 0, bodies, stream)
                continues = bool(self._executable.read(region.condition))
        else:
            index = int(control) if region.kind == "switch" else 0 if control else 1
            if 0 <= index < len(bodies):
                self._run_body(region, index, bodies, stream)

    def _run_body(self, region: RegionStep, body: int, bodies: Sequence[Program], stream: Any) -> None:
        _start(bodies[body], stream)
        for step in region.bodies[body]:
            self.calls[step.key] = self.calls.get(step.key, 0) + 1

    def _read_operand(self, operand: Operand) -> Any:
        if isinstance(operand, BufferOperand):
            return self._executable.read(operand.key)[()]
        element = scalar_of(operand.type)
        assert element is not None
        array = np.empty((), element.dtype)
        download(self._executable.operand_address(operand), array)
        return array[()]

    def _addresses(self) -> Any:
        return self._executable.addresses()

    # --- the interface of `HostCall` ---

    def array_of(self, buffer: Buffer, values: Mapping[Any, Any]) -> np.ndarray[Any, Any]:
        """The host copy of a buffer."""
        array = values[buffer.base.number]
        if array.dtype != buffer.element.dtype:  # complex numbers as pairs of floats, or pairs as complex numbers
            array = array.reshape(-1).view(buffer.element.dtype)
        return array.reshape(buffer.shape)

    def fixed_array(self, buffer: Buffer) -> np.ndarray[Any, Any] | None:
        """None: host copies differ between runs."""
        return None


def _start(program: Program, stream: Any) -> None:
    failures = program.start(stream)
    if failures:
        raise failures[0].error
