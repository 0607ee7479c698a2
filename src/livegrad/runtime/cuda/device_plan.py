"""Runs plans on the device. In: a `SerialisedDevicePlan` and arguments. Out: results on the host or the device.

A plan has loaded kernels with bound argument slots, one arena, graphs of launches, and host steps between the graphs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from livegrad.codegen.argument_slots import ArgumentSlot
from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.codegen.cuda.launch import slot_value
from livegrad.diagnostics import LivegradError
from livegrad.ir.line_sites import SourceLocations, resolve_location
from livegrad.runtime.cpu.compiled_plan import HostCall
from livegrad.runtime.cuda.device_memory import DeviceArray, DeviceMemory, download, upload
from livegrad.runtime.cuda.driver import DeviceError, check, device, driver
from livegrad.runtime.cuda.interrupt import interrupt_address, wait_interruptibly
from livegrad.runtime.cuda.plan_graph import PlanGraph, PlanLaunch
from livegrad.runtime.cuda.result_memory import ResultMemory
from livegrad.runtime.cuda.run_checks import CLEAN, PendingChecks, RunCheck, error_in, unfinished_checks
from livegrad.runtime.cuda.serialised_device_plan import serialise_plan
from livegrad.runtime.cuda.serialised_launches import SerialisedDevicePlan, SerialisedGraph
from livegrad.runtime.serialised import SerialisedArray
from livegrad.schedule.plan import Buffer, HostStep, ObjectSlot, Plan
from livegrad.schedule.target import Target

_FIRST_TAPE_BYTES = 2048
_MAX_TAPE_BYTES = 1 << 34  # all threads together


class CudaPlan:
    """A plan with its code and memory on the device. Threads run it one at a time.

    `plan` may be None if the serialised plan has no host steps.
    """

    def __init__(
        self,
        serialised: SerialisedDevicePlan,
        plan: Plan | None,
        run_nested: Callable[..., Any],
        source_locations: SourceLocations = (),
    ) -> None:
        self.serialised, self.plan, self.run_nested = serialised, plan, run_nested
        self._source_locations = source_locations
        self._lock = threading.RLock()
        device()
        self._steps = [PlanLaunch(launch) for launch in serialised.launches]
        self._kernels = [step for step in self._steps if step.kernel is not None]
        self._arena = DeviceMemory(serialised.arena_bytes)
        self._status_host = np.full(serialised.steps + 1, CLEAN, np.uint64)  # the last word: tape overflow
        self._status = DeviceMemory(self._status_host.nbytes)
        self._status.upload(self._status_host)
        self._watched = any(k.sites for k in serialised.launches) or any(k.uses_tapes for k in serialised.kernels)
        self._has_unbounded_loops = any(k.polls for k in serialised.kernels)
        self._staging: dict[int, DeviceMemory] = {}  # device memory of host arrays, allocated on first use
        # By buffer: addresses of arguments and results, values of scalars, immutable Python numbers (the same object
        # need not be set again), and arrays of other libraries, which the device may read until the next run.
        self._addresses: dict[int, int] = {}
        self._written: dict[int, int] = {}  # the addresses that the argument slots have
        self._values: dict[int, int] = {}
        self._numbers: dict[int, Any] = {}
        self._foreign: dict[int, Any] = {}
        self._uses_tapes = any(k.uses_tapes for k in serialised.kernels)
        self._pending_checks = PendingChecks()
        self._tape_bytes = _FIRST_TAPE_BYTES
        self._tapes: DeviceMemory | None = None
        self._scratch = self._make_scratch()
        self._users: dict[int, list[tuple[PlanLaunch, int, ArgumentSlot]]] = {}  # argument slots by buffer
        self._stale: set[PlanLaunch] = set()
        self._results = {
            result.number: ResultMemory(result.bytes) for result in serialised.results if result is not None
        }
        self._fill_slots()
        self.segments = self._make_segments()
        self.graphs = [segment for segment in self.segments if isinstance(segment, PlanGraph)]
        # Tapes may overflow, so that the plan runs again; host steps need the status of the graphs before them.
        self._can_defer = not self._uses_tapes and not self._has_host_steps

    @classmethod
    def from_plan(
        cls,
        plan: Plan,
        run_nested: Callable[..., Any],
        ieee: bool = False,
        source_locations: SourceLocations = (),
        target: Target = CUDA,
    ) -> CudaPlan:
        """Compiles the kernels of a plan. `source_locations` has the source locations of the marks in its nodes."""
        serialised = serialise_plan(plan, device().architecture, ieee, target)
        return cls(serialised, plan, run_nested, source_locations)

    # --- preparation ---

    def _make_scratch(self) -> dict[int, DeviceMemory]:
        sizes: dict[int, int] = {}
        for kernel in self.serialised.kernels:
            for buffer, size in kernel.scratch:
                sizes[buffer] = max(sizes.get(buffer, 0), size)
        return {buffer: DeviceMemory(size) for buffer, size in sizes.items()}

    def _fill_slots(self) -> None:
        for step in self._steps:
            for index, slot in enumerate(step.slots):
                if isinstance(slot, int):
                    step.set(index, slot)
                    continue
                if slot.kind in ("external", "cell", "value"):
                    self._users.setdefault(slot.buffer, []).append((step, index, slot))
                self._set_slot(step, index, slot)

    def _set_slot(self, step: PlanLaunch, index: int, slot: ArgumentSlot) -> None:
        if step.set(index, self._slot_value(step, slot)):
            self._stale.add(step)

    def _slot_value(self, step: PlanLaunch, slot: ArgumentSlot) -> int:
        match slot.kind:
            case "arena":
                return self._arena.address + slot.offset
            case "scratch":
                return self._scratch[slot.buffer].address
            case "status":
                return self._status.address + 8 * step.number
            case "full":
                return self._status.address + 8 * self.serialised.steps
            case "tapes":
                return self._tape_memory().address
            case "tape_bytes":
                return self._tape_bytes
            case "interrupt":
                return interrupt_address()
            case "partials" | "counters":
                memory = step.partials if slot.kind == "partials" else step.counters
                assert memory is not None
                return memory.address
            case "value":
                return self._values.get(slot.buffer, 0)
        return self._addresses.get(slot.buffer, 0) + slot.offset

    def _tape_memory(self) -> DeviceMemory:
        size = max(kernel.workers for kernel in self.serialised.kernels if kernel.uses_tapes) * self._tape_bytes
        if size > _MAX_TAPE_BYTES:
            raise DeviceError(f"the tapes of loops take more than {_MAX_TAPE_BYTES >> 30} GiB of the device")
        if self._tapes is None or self._tapes.size < size:
            self._tapes = DeviceMemory(size)
        return self._tapes

    def _make_segments(self) -> list[PlanGraph | HostCall]:
        """Builds the graphs of launches, and the host steps between them."""
        launches = iter(self._steps)
        segments: list[PlanGraph | HostCall] = []
        self._graphs: dict[PlanLaunch, PlanGraph] = {}
        for segment in self.serialised.segments:
            if isinstance(segment, SerialisedGraph):
                members = [next(launches) for _ in segment.launches]
                graph = PlanGraph([step.launch for step in members], segment.dependencies)
                self._graphs.update(dict.fromkeys(members, graph))
                segments.append(graph)
            else:
                assert self.plan is not None
                step = self.plan.steps[segment.number]
                assert isinstance(step, HostStep)
                segments.append(HostCall(step, self))
        self._has_host_steps = any(isinstance(segment, HostCall) for segment in segments)
        return segments

    @property
    def step_counts(self) -> tuple[int, int]:
        """The number of kernels in a run, and of library calls and host steps."""
        return len(self._kernels), len(self._steps) - len(self._kernels) + len(self.segments) - len(self.graphs)

    # --- running ---

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """Runs the plan on argument leaves, host or device arrays. Returns NumPy arrays."""
        with self._lock:
            unfinished_checks(arguments, wait=True)
            for result in self.serialised.results:
                if result is not None:
                    self._addresses[result.number] = self._staging_memory(result).address
            values = self.start(arguments)
            return [self._download(position, result, values) for position, result in enumerate(self.serialised.results)]

    def run_on_device(self, arguments: Sequence[Any], defers_checks: bool = False) -> list[Any]:
        """Runs the plan without waiting. Returns device arrays, which later runs do not overwrite.

        A failed check raises here, or with `defers_checks`, when a result is read.
        """
        with self._lock:
            inherited = unfinished_checks(arguments, wait=self._has_host_steps)  # host steps read arguments
            arrays: dict[int, DeviceArray] = {}
            for result in self.serialised.results:
                if result is not None and (number := result.number) not in arrays:
                    memory = self._results[number].lease()
                    arrays[number] = DeviceArray(result.element.dtype, result.shape, memory)
                    self._addresses[number] = memory.address
            if defers_checks and self._can_defer:
                values = self._start(arguments, defers_checks=True)
                if self._watched:
                    run_check = RunCheck(self._status, len(self._status_host), self._error_of)
                    inherited = (*inherited, run_check)
                    self._pending_checks.add(run_check)
            else:
                values = self.start(arguments)
            if inherited:
                for array in arrays.values():
                    array.checks = inherited
            return [
                values[self._object_slot(position)] if result is None else arrays[result.number]
                for position, result in enumerate(self.serialised.results)
            ]

    def start(self, arguments: Sequence[Any]) -> dict[Any, Any]:
        """Runs the plan and raises failed checks. Results stay on the device; returns objects of the host by slot."""
        try:
            return self._start(arguments)
        except LivegradError as error:
            resolve_location(error, self._source_locations)
            raise

    def _error_of(self, status: np.ndarray[Any, Any]) -> LivegradError | None:
        return error_in(status, self.serialised.launches, self._source_locations)

    def _start(self, arguments: Sequence[Any], defers_checks: bool = False) -> dict[Any, Any]:
        device()
        values: dict[Any, Any] = {}
        self._foreign.clear()
        for position, (array, argument) in enumerate(zip(self.serialised.arguments, arguments, strict=True)):
            if array is None:
                assert self.plan is not None
                values[self.plan.arguments[position]] = argument
            else:
                self._bind_argument(array, argument)
        self._run_segments(dict(values))
        while self._watched and not defers_checks and self._read_status():
            # A tape overflowed, so this run is invalid. Run again with tapes of twice the size.
            self._tape_bytes *= 2
            for step in self._steps:
                for index, slot in enumerate(step.slots):
                    if not isinstance(slot, int) and slot.kind in ("tapes", "tape_bytes"):
                        self._set_slot(step, index, slot)
            self._run_segments(dict(values))
        return self._last_values

    def _staging_memory(self, array: SerialisedArray) -> DeviceMemory:
        if array.number not in self._staging:
            self._staging[array.number] = DeviceMemory(array.bytes)
        return self._staging[array.number]

    def _object_slot(self, position: int) -> ObjectSlot:
        assert self.plan is not None
        slot = self.plan.results[position]
        assert isinstance(slot, ObjectSlot)
        return slot

    def _bind_argument(self, array: SerialisedArray, argument: Any) -> None:
        if isinstance(argument, DeviceArray):
            self._numbers.pop(array.number, None)
            self._addresses[array.number] = argument.address
        elif hasattr(argument, "__cuda_array_interface__"):
            self._bind_foreign(array, argument)
        elif array.shape == ():
            if argument is not self._numbers.get(array.number):
                self._set_scalar(array, argument)
            return
        else:
            memory = self._staging_memory(array)
            self._addresses[array.number] = memory.address
            memory.upload(np.ascontiguousarray(argument, array.element.dtype))
        if array.shape == () and any(slot.kind == "value" for _, _, slot in self._users.get(array.number, ())):
            # Kernels take the scalar by value.
            if isinstance(argument, DeviceArray):
                argument.require_checks()
            value = np.empty((), array.element.dtype)
            download(self._addresses[array.number], value)
            self._set_value(array, value)

    def _bind_foreign(self, array: SerialisedArray, argument: Any) -> None:
        """Binds a device array of another library, after waiting for its stream."""
        interface = argument.__cuda_array_interface__
        stream = interface.get("stream")
        if stream is not None and stream != int(device().stream):
            check(driver.cuStreamSynchronize(driver.CUstream(stream)))
        self._numbers.pop(array.number, None)
        self._foreign[array.number] = argument
        self._addresses[array.number] = int(interface["data"][0])

    def _set_scalar(self, array: SerialisedArray, argument: Any) -> None:
        value = np.zeros((), array.element.dtype)
        value[()] = argument
        self._numbers[array.number] = argument if isinstance(argument, bool | int | float) else None
        self._addresses[array.number] = self._staging_memory(array).address
        self._set_value(array, value)
        users = self._users.get(array.number, ())
        if any(slot.kind != "value" for _, _, slot in users) or self._has_host_steps:
            self._staging_memory(array).upload(value)

    def _set_value(self, array: SerialisedArray, value: np.ndarray[Any, Any]) -> None:
        if array.element.dtype.itemsize <= 8:
            self._values[array.number] = slot_value(value)
            for step, index, slot in self._users.get(array.number, ()):
                if slot.kind == "value":
                    self._set_slot(step, index, slot)

    def _write_addresses(self) -> None:
        """Writes the addresses of this run to the argument slots."""
        written = self._written
        for buffer, address in self._addresses.items():
            if written.get(buffer) != address:
                written[buffer] = address
                for step, index, slot in self._users.get(buffer, ()):
                    if slot.kind != "value":
                        step.set(index, address + slot.offset)

    def _run_segments(self, values: dict[Any, Any]) -> None:
        binding = tuple(self._addresses.values())  # the same buffers in the same order in every run
        for step in self._stale:
            self._graphs[step].change(step.launch)
        self._stale.clear()
        if not all(segment.is_ready(binding) for segment in self.graphs):
            self._write_addresses()
        for segment in self.segments:
            if isinstance(segment, PlanGraph):
                segment.launch(binding)
                if self._has_unbounded_loops:
                    wait_interruptibly()
            elif not (self._watched and self._read_status(keep=True)):
                self._run_on_host(segment, values)
        self._last_values = values

    def _run_on_host(self, call: HostCall, values: dict[Any, Any]) -> None:
        """Runs a host step on copies of its operands, and copies its results to the device."""
        for slot in call.step.operands:
            if isinstance(slot, Buffer):
                self._fetch(slot, values)
        results = [slot for slot in call.step.written if isinstance(slot, Buffer)]
        for result in results:
            values[result.base.number] = np.empty(result.base.shape, result.base.element.dtype)
        call.run(values)
        for result in results:
            upload(self._address(result), values[result.base.number])

    def _fetch(self, buffer: Buffer, values: dict[Any, Any]) -> None:
        base = buffer.base
        array = np.empty(base.shape, base.element.dtype)
        download(self._address(buffer), array)
        values[base.number] = array

    def _address(self, buffer: Buffer) -> int:
        base = buffer.base
        if base.lifetime == "external":
            return self._addresses[base.number]
        assert self.plan is not None
        return self._arena.address + self.plan.arena_offsets[base]

    def _download(self, position: int, result: SerialisedArray | None, values: Mapping[Any, Any]) -> Any:
        if result is None:
            return values[self._object_slot(position)]
        array = np.empty(result.shape, result.element.dtype)
        download(self._addresses[result.number], array)
        return array

    # --- the interface for `HostCall` ---

    def array_of(self, buffer: Buffer, values: Mapping[Any, Any]) -> np.ndarray[Any, Any]:
        """The host copy of a buffer."""
        array = values[buffer.base.number]
        if array.dtype != buffer.element.dtype:  # complex numbers as pairs of floats, or pairs as complex numbers
            array = array.reshape(-1).view(buffer.element.dtype)
        return array.reshape(buffer.shape)

    def fixed_array(self, buffer: Buffer) -> np.ndarray[Any, Any] | None:
        """None, because each run has new host copies."""
        return None

    # --- checks ---

    def _read_status(self, keep: bool = False) -> bool:
        """Raises the first failed check; returns whether a tape overflowed; with `keep`, that stays recorded."""
        host = self._status_host
        self._status.download(host)
        overflowed = bool(host[-1] != CLEAN)
        failed = None if overflowed else self._error_of(host)
        if np.any(host != CLEAN) and not (keep and overflowed):
            host.fill(CLEAN)
            self._status.upload(host)
        if failed is not None:
            raise failed
        return overflowed
