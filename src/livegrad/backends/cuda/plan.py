"""A plan on the device: kernels compiled and bound, one arena, graphs of launches, and steps of the host in between."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from livegrad.backends.cpu.execute import HostCall
from livegrad.backends.cpu.fork import renew_lock_after_fork
from livegrad.backends.cuda.bind import Bound, Word, bind, remembers, word_value
from livegrad.backends.cuda.compiler import compile_source
from livegrad.backends.cuda.depend import dependencies
from livegrad.backends.cuda.driver import DeviceError, checked, device, driver
from livegrad.backends.cuda.graph import Graph, Launch
from livegrad.backends.cuda.kernel import KernelText, emit_kernel
from livegrad.backends.cuda.memory import DeviceMemory, download, upload
from livegrad.diagnostics import KernelCheckError
from livegrad.schedule.plan import Buffer, HostStep, KernelStep, ObjectSlot, Plan, Slot

_CLEAN = (1 << 64) - 1
_FIRST_TRACE_BYTES = 2048
_MOST_TRACE_BYTES = 1 << 34  # all threads together

_modules: dict[str, tuple[Any, Any]] = {}  # never unloaded: a graph that still runs may use any of them
_lock = threading.Lock()
renew_lock_after_fork(sys.modules[__name__], "_lock")


def _loaded_function(text: str, name: str) -> Any:
    """The kernel of a text, compiled and loaded once."""
    assert driver is not None
    with _lock:
        if text in _modules:
            return _modules[text][1]
    cubin = np.frombuffer(compile_source(text, device().architecture, name), np.uint8)
    module = checked(driver.cuModuleLoadData(cubin.ctypes.data))
    function = checked(driver.cuModuleGetFunction(module, b"kernel"))
    with _lock:
        _modules[text] = (module, function)
    return function


class _BoundStep:
    """A kernel step with its launch, and where its words come from."""

    def __init__(self, step: KernelStep, plan: Plan, number: int) -> None:
        self.step, self.number = step, number
        self.bound: Bound = bind(step, plan)
        self.text: KernelText = emit_kernel(step.kernel, self.bound.layout)
        self.words: list[Word] = [self.bound.words[name] for name in self.text.words]
        self.remembers = self.text.uses_traces or remembers(step.kernel)
        function = _loaded_function(self.text.text, step.kernel.name)
        self.launch = Launch(function, self.bound.grid, self.bound.threads, len(self.words))


class CudaPlan:
    """A plan with its code and its memory on the device. One run at a time; others wait."""

    def __init__(self, plan: Plan, run_nested: Callable[..., Any]) -> None:
        self.plan, self.run_nested = plan, run_nested
        self._lock = threading.RLock()
        device()
        self._steps = [
            _BoundStep(step, plan, number)
            for number, step in enumerate(plan.steps)
            if isinstance(step, KernelStep) and all(step.domain)
        ]
        self._arena = DeviceMemory(plan.arena_bytes)
        self._status_host = np.full(len(plan.steps) + 1, _CLEAN, np.uint64)  # the last word: a trace found no room
        self._status = DeviceMemory(self._status_host.nbytes)
        self._status.upload(self._status_host)
        self._watched = any(step.text.sites or step.remembers for step in self._steps)
        slots = [slot for slot in (*plan.arguments, *plan.results) if isinstance(slot, Buffer)]
        self._external = {slot.number: DeviceMemory(slot.bytes) for slot in slots}
        self._bound = {number: memory.address for number, memory in self._external.items()}
        self._values: dict[int, int] = {}
        self._trace_bytes = _FIRST_TRACE_BYTES
        self._traces: DeviceMemory | None = None
        self._scratch = self._make_scratch()
        self._users: dict[int, list[tuple[_BoundStep, int]]] = {}
        self._stale: set[int] = set()
        self._fill_words()
        self.segments = self._make_segments()

    # --- preparation ---

    def _make_scratch(self) -> dict[int, DeviceMemory]:
        sizes: dict[int, int] = {}
        for bound in self._steps:
            for port, view in zip(bound.step.kernel.outputs, bound.step.outputs, strict=True):
                if port.scratch:
                    wanted = bound.bound.workers * bound.bound.scratch_bytes
                    number = view.buffer.base.number
                    sizes[number] = max(sizes.get(number, 0), wanted)
        return {number: DeviceMemory(size) for number, size in sizes.items()}

    def _fill_words(self) -> None:
        for bound in self._steps:
            for index, word in enumerate(bound.words):
                if word.kind in ("external", "cell", "value"):
                    self._users.setdefault(word.slot, []).append((bound, index))
                self._set_word(bound, index, word)

    def _set_word(self, bound: _BoundStep, index: int, word: Word) -> None:
        match word.kind:
            case "number":
                value = word.value
            case "arena":
                value = self._arena.address + word.value
            case "scratch":
                value = self._scratch[word.slot].address
            case "status":
                value = self._status.address + 8 * bound.number
            case "full":
                value = self._status.address + 8 * len(self.plan.steps)
            case "traces":
                value = self._trace_memory().address
            case "trace_bytes":
                value = self._trace_bytes
            case "value":
                value = self._values.get(word.slot, 0)
            case _:
                value = self._bound[word.slot] + word.value
        if bound.launch.words[index] != value:
            bound.launch.words[index] = value
            self._stale.add(bound.number)

    def _trace_memory(self) -> DeviceMemory:
        workers = max(bound.bound.workers for bound in self._steps if bound.remembers)
        wanted = workers * self._trace_bytes
        if wanted > _MOST_TRACE_BYTES:
            raise DeviceError(f"what loops must remember takes more than {_MOST_TRACE_BYTES >> 30} GiB of the device")
        if self._traces is None or self._traces.size < wanted:
            self._traces = DeviceMemory(wanted)
        return self._traces

    def _make_segments(self) -> list[Graph | HostCall]:
        """Graphs of kernels that follow one another, and the host's steps between them."""
        by_number = {bound.number: bound for bound in self._steps}
        segments: list[Graph | HostCall] = []
        self._places: dict[int, tuple[Graph, int]] = {}
        waiting: list[_BoundStep] = []

        def close() -> None:
            if waiting:
                remembering = [place for place, w in enumerate(waiting) if w.remembers]
                order = dependencies([w.step for w in waiting], self.plan, remembering)
                graph = Graph([w.launch for w in waiting], order)
                self._places.update({w.number: (graph, place) for place, w in enumerate(waiting)})
                segments.append(graph)
                waiting.clear()

        for number, step in enumerate(self.plan.steps):
            if isinstance(step, HostStep):
                close()
                segments.append(HostCall(step, self))
            elif number in by_number:
                waiting.append(by_number[number])
        close()
        self._host_steps = [step for step in self.plan.steps if isinstance(step, HostStep)]
        return segments

    @property
    def graphs(self) -> list[Graph]:
        return [segment for segment in self.segments if isinstance(segment, Graph)]

    @property
    def step_counts(self) -> tuple[int, int]:
        """How many kernels and how many steps of the host one run makes."""
        return len(self._steps), len(self._host_steps)

    # --- running ---

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """The results' leaves as NumPy arrays from the arguments' leaves: arrays of the host or of the device."""
        with self._lock:
            values = self.start(arguments)
            return [self._result(slot, values) for slot in self.plan.results]

    def start(self, arguments: Sequence[Any]) -> dict[Any, Any]:
        """Runs everything and raises what checks found; results stay on the device. Gives the objects of the host."""
        device()
        values: dict[Any, Any] = {}
        for slot, argument in zip(self.plan.arguments, arguments, strict=True):
            self._bind_argument(slot, argument, values)
        self._run_segments(dict(values))
        while self._watched and self._read_status():
            # A trace found no room: nothing of this run counts. Again, with twice as much.
            self._trace_bytes *= 2
            for bound in self._steps:
                for index, word in enumerate(bound.words):
                    if word.kind in ("traces", "trace_bytes"):
                        self._set_word(bound, index, word)
            self._run_segments(dict(values))
        return self._last_values

    def bind(self, slot: Slot, array: Any) -> None:
        """Makes an argument or result live in an array of the device (by `__cuda_array_interface__`) from now on."""
        assert isinstance(slot, Buffer)
        address = int(array.__cuda_array_interface__["data"][0])
        self._keep = {**getattr(self, "_keep", {}), slot.number: array}
        self._rebind(slot.number, address)

    def _bind_argument(self, slot: Slot, argument: Any, values: dict[Any, Any]) -> None:
        if isinstance(slot, ObjectSlot):
            values[slot] = argument
        elif hasattr(argument, "__cuda_array_interface__"):
            self.bind(slot, argument)
        elif slot.shape == ():
            self._set_scalar(slot, argument)
        else:
            self._rebind(slot.number, self._external[slot.number].address)
            self._external[slot.number].upload(np.ascontiguousarray(argument, slot.element.dtype))

    def _set_scalar(self, slot: Buffer, argument: Any) -> None:
        array = np.zeros((), slot.element.dtype)
        array[()] = argument
        self._rebind(slot.number, self._external[slot.number].address)
        users = self._users.get(slot.number, [])
        if slot.element.dtype.itemsize <= 8:
            self._values[slot.number] = word_value(array)
            for bound, index in users:
                if bound.words[index].kind == "value":
                    self._set_word(bound, index, bound.words[index])
        if any(bound.words[index].kind != "value" for bound, index in users) or self._host_steps:
            self._external[slot.number].upload(array)

    def _rebind(self, number: int, address: int) -> None:
        if self._bound[number] != address:
            self._bound[number] = address
            for bound, index in self._users.get(number, []):
                self._set_word(bound, index, bound.words[index])

    def _run_segments(self, values: dict[Any, Any]) -> None:
        for number in self._stale:
            graph, place = self._places[number]
            if graph.is_built:
                graph.update(place)
        self._stale.clear()
        for segment in self.segments:
            if isinstance(segment, Graph):
                segment.launch()
            elif not (self._watched and self._read_status(keep=True)):
                self._run_on_host(segment, values)
        self._last_values = values

    def _run_on_host(self, call: HostCall, values: dict[Any, Any]) -> None:
        """A step of the host on copies of what it reads; what it gives goes back to the device."""
        for slot in call.step.operands:
            if isinstance(slot, Buffer):
                self._fetch(slot, values)
        result = call.step.result
        if isinstance(result, Buffer):
            base = result.base
            values[base.number] = np.empty(base.shape, base.element.dtype)
        call.run(values)
        if isinstance(result, Buffer):
            array = values[result.base.number]
            upload(self._address(result), array)

    def _fetch(self, buffer: Buffer, values: dict[Any, Any]) -> None:
        base = buffer.base
        array = np.empty(base.shape, base.element.dtype)
        download(self._address(buffer), array)
        values[base.number] = array

    def _address(self, buffer: Buffer) -> int:
        base = buffer.base
        if base.lifetime == "external":
            return self._bound[base.number]
        return self._arena.address + self.plan.places[base]

    def _result(self, slot: Slot, values: Mapping[Any, Any]) -> Any:
        if isinstance(slot, ObjectSlot):
            return values[slot]
        array = np.empty(slot.shape, slot.element.dtype)
        download(self._bound[slot.number], array)
        return array

    # --- what a step of the host asks for ---

    def array_of(self, buffer: Buffer, values: Mapping[Any, Any]) -> np.ndarray[Any, Any]:
        """A buffer's copy on the host."""
        return values[buffer.base.number].reshape(buffer.shape)

    def fixed_array(self, buffer: Buffer) -> np.ndarray[Any, Any] | None:
        """None: no array of the host is the same in every run."""
        return None

    # --- checks ---

    def _read_status(self, keep: bool = False) -> bool:
        """Raises the first failed check; whether a trace found no room. Clears the words unless told to keep them."""
        host = self._status_host
        self._status.download(host)
        full = bool(host[-1] != _CLEAN)
        failed = None
        if not full:
            failed = next((bound for bound in self._steps if host[bound.number] != _CLEAN), None)
        word = _CLEAN if failed is None else int(host[failed.number])
        if np.any(host != _CLEAN) and not (keep and full):
            host.fill(_CLEAN)
            self._status.upload(host)
        if failed is not None:
            site = failed.text.sites[word & 0xFFFF]
            raise KernelCheckError(f"{site.message}, at element {word >> 16}", where=site.origin)
        return full
