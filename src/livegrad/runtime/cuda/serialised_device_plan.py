"""Serialises plans for the device: everything needed to run a plan, as plain data for the disk cache.

In: a plan. Out: a `SerialisedDevicePlan`, which `cuda_function.py` stores on disk and `device_plan.py` runs. It refers
to cubins by their keys in the cache.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from livegrad.codegen.argument_slots import ArgumentSlot, buffer_slot, decode_slots
from livegrad.codegen.check_sites import Site, decode_sites, encode_sites
from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.codegen.cuda.kernel import KernelText, emit_kernel
from livegrad.codegen.cuda.launch import BoundKernel, bind
from livegrad.runtime.cuda.dependencies import plan_dependencies
from livegrad.runtime.cuda.libraries import LIBRARY_CALLS
from livegrad.runtime.cuda.libraries.library_call import operand_buffers
from livegrad.runtime.cuda.nvrtc import compile_with_key, load_compiled
from livegrad.runtime.cuda.plan_objects import ObjectLowering
from livegrad.runtime.cuda.serialised_launches import (
    SerialisedDevicePlan,
    SerialisedGraph,
    SerialisedHostStep,
    SerialisedLaunch,
    SerialisedLibraryCall,
)
from livegrad.runtime.serialised import (
    SerialisedArrays,
    decode_executable,
    encode_executable,
    executable_key,
    serialise_signature,
)
from livegrad.schedule.loops.device import uses_tapes
from livegrad.schedule.plan import Buffer, HostStep, KernelStep, Plan
from livegrad.schedule.target import Target

# --- from plans ------------------------------------------------------------------------------------------------------


def serialise_plan(
    plan: Plan, architecture: str, ieee: bool = False, target: Target = CUDA, for_engine: bool = False
) -> SerialisedDevicePlan:
    """Compiles the kernels of a plan and serialises it.

    With `for_engine`, for the live engine, loops over tensors and library calls that can fail stay host steps.
    """
    emitted = _emit_kernels(plan, architecture, ieee, target)
    objects = (
        None if for_engine else ObjectLowering(plan, lambda body: serialise_plan(body, architecture, ieee, target))
    )
    segments: list[SerialisedGraph | SerialisedHostStep] = []
    pending: list[tuple[KernelStep | HostStep, SerialisedLaunch | SerialisedLibraryCall]] = []

    def close_graph() -> None:
        if pending:
            steps, launches = zip(*pending, strict=True)
            dependencies = plan_dependencies(steps, plan, _exclusive_resources(launches))
            segments.append(SerialisedGraph(launches, tuple(dependencies)))
            pending.clear()

    for index, step in enumerate(plan.steps):
        if isinstance(step, KernelStep):
            if all(step.domain):
                pending.append((step, _serialise_launch(index, step, *emitted[index])))
        elif objects is not None and index in objects.calls:
            pending += [(step, call) for call in objects.calls[index]]
        elif (call := _serialise_library_call(index, step, plan, not for_engine)) is not None:
            pending.append((step, call))
        else:
            close_graph()
            segments.append(SerialisedHostStep(index))
    close_graph()
    arena_bytes = plan.arena_bytes if objects is None or not objects.calls else objects.arena_bytes
    return SerialisedDevicePlan(*serialise_signature(plan), arena_bytes, tuple(segments), len(plan.steps))


def _exclusive_resources(launches: Sequence[SerialisedLaunch | SerialisedLibraryCall]) -> dict[int, str]:
    """The shared resource of each launch that uses one besides buffers: the tapes, or the library workspace."""
    shared = {}
    for index, launch in enumerate(launches):
        if isinstance(launch, SerialisedLibraryCall):
            shared[index] = "libraries"
        elif launch.uses_tapes:
            shared[index] = "tapes"
    return shared


def _emit_kernels(
    plan: Plan, architecture: str, ieee: bool, target: Target
) -> dict[int, tuple[BoundKernel, KernelText, bytes]]:
    """The kernels of a plan by the index of their step, with the keys of their code; compiled concurrently."""
    kernels: dict[int, tuple[BoundKernel, KernelText]] = {}
    for index, step in enumerate(plan.steps):
        if isinstance(step, KernelStep) and all(step.domain):
            bound = bind(step, plan, True, target)
            kernels[index] = bound, emit_kernel(bound.nest, ieee)
    names = {text.text: plan.steps[index].kernel.name for index, (_, text) in kernels.items()}  # type: ignore[union-attr]

    def compile_text(text: str) -> bytes:
        return compile_with_key(text, architecture, names[text])

    if len(names) > 1:
        with ThreadPoolExecutor(min(len(names), os.cpu_count() or 1), thread_name_prefix="livegrad-nvrtc") as pool:
            keys = dict(zip(names, pool.map(compile_text, names), strict=True))
    else:
        keys = {text: compile_text(text) for text in names}
    return {index: (bound, text, keys[text.text]) for index, (bound, text) in kernels.items()}


def _serialise_launch(
    index: int, step: KernelStep, bound: BoundKernel, text: KernelText, code: bytes
) -> SerialisedLaunch:
    scratch = {
        view.buffer.base.number: bound.workers * bound.scratch_bytes
        for port, view in zip(step.kernel.outputs, step.outputs, strict=True)
        if port.scratch and bound.scratch_bytes
    }
    return SerialisedLaunch(
        index,
        step.kernel.name,
        code,
        tuple([bound.slots[name] for name in text.slots]),
        bound.grid,
        bound.threads,
        bound.workers,
        tuple(scratch.items()),
        bound.partial_bytes,
        bound.counters,
        text.uses_tapes or uses_tapes(step.kernel),
        text.polls,
        text.sites,
    )


def _serialise_library_call(index: int, step: HostStep, plan: Plan, may_fail: bool) -> SerialisedLibraryCall | None:
    """The library call for a host step; None if no library supports it."""
    make = LIBRARY_CALLS.get(step.op)
    call = make(step) if make is not None else None
    if call is None or not isinstance(step.result, Buffer):
        return None
    operands = tuple(buffer_slot(buffer, plan) for buffer in operand_buffers(step))
    sites = tuple(Site(failure, step.origin) for failure in getattr(call, "failures", ()))
    if not sites:
        return SerialisedLibraryCall(index, call, operands, buffer_slot(step.result, plan))
    if not may_fail:
        return None
    return SerialisedLibraryCall(
        index, call, (*operands, ArgumentSlot("status")), buffer_slot(step.result, plan), sites
    )


# --- on disk ---------------------------------------------------------------------------------------------------------


def serialised_plan_key(
    digest: bytes, sizes: Mapping[str, int], architecture: str, ieee: bool, target: Target = CUDA
) -> bytes:
    """The key of a serialised plan in the disk cache: the function, its sizes, the architecture and this compiler."""
    return executable_key(digest, sizes, "cuda", architecture, str(ieee), *sorted(target.skipped))


def encode(serialised: SerialisedDevicePlan) -> bytes | None:
    """The serialised plan as JSON; None if it has host steps, library calls or arguments that are not arrays."""
    graphs = []
    for segment in serialised.segments:
        if isinstance(segment, SerialisedHostStep):
            return None
        kernels = [launch for launch in segment.launches if isinstance(launch, SerialisedLaunch)]
        if len(kernels) < len(segment.launches):
            return None
        graphs.append([list(map(_encode_launch, kernels)), segment.dependencies])
    if None in serialised.arguments + serialised.results:
        return None
    return encode_executable(serialised, [graphs, serialised.steps])


def decode(data: bytes) -> SerialisedDevicePlan | None:
    """The serialised plan from JSON; None if the data is invalid or a cubin is no longer in the cache."""
    serialised = decode_executable(data, _decode_plan)
    if serialised is None or any(load_compiled(kernel.code) is None for kernel in serialised.kernels):
        return None
    return serialised


def _decode_plan(
    arguments: SerialisedArrays, results: SerialisedArrays, arena_bytes: int, code: Any
) -> SerialisedDevicePlan:
    graphs, steps = code
    segments = tuple(
        SerialisedGraph(tuple(map(_decode_launch, launches)), tuple(map(tuple, dependencies)))
        for launches, dependencies in graphs
    )
    return SerialisedDevicePlan(arguments, results, arena_bytes, segments, steps)


def _encode_launch(launch: SerialisedLaunch) -> dict[str, Any]:
    return vars(launch) | {"code": launch.code.hex(), "sites": encode_sites(launch.sites)}


def _decode_launch(fields: dict[str, Any]) -> SerialisedLaunch:
    decoded = {
        "code": bytes.fromhex(fields["code"]),
        "slots": decode_slots(fields["slots"]),
        "scratch": tuple((buffer, size) for buffer, size in fields["scratch"]),
        "sites": decode_sites(fields["sites"]),
    }
    return SerialisedLaunch(**(fields | decoded))
