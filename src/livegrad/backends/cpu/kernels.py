"""Native code for kernels, made once for each kernel and layout, and a plan's kernels as a recipe."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from livegrad.backends.cpu.bind import Bound, bind
from livegrad.backends.cpu.emit.frame import Layout
from livegrad.backends.cpu.emit.kernel import KernelText, emit_kernel
from livegrad.backends.cpu.fork import renew_lock_after_fork
from livegrad.backends.cpu.math_library import MathRequest, math_imports
from livegrad.backends.cpu.native.compiler import (
    NativeFunction,
    compile_kernel,
    host_target,
    load_kernel,
    object_key,
)
from livegrad.backends.cpu.recipe import ArrayRecipe, KernelRecipe, Recipe, Word
from livegrad.diagnostics import Place
from livegrad.ir.node import Function
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.schedule.kernel import Kernel
from livegrad.schedule.plan import Buffer, KernelStep, Plan

ALIGNMENT = 64
_MOST_KERNELS = 2048


@dataclass(frozen=True)
class CompiledKernel:
    """The text of a kernel for one layout, and its native code."""

    text: KernelText
    key: bytes
    native: NativeFunction


_kernels: OrderedDict[tuple[Any, ...], CompiledKernel] = OrderedDict()
_loaded: OrderedDict[bytes, NativeFunction] = OrderedDict()
_lock = threading.Lock()
renew_lock_after_fork(sys.modules[__name__], "_lock")


def compiled(kernel: Kernel, layout: Layout) -> CompiledKernel:
    """The kernel's code, made when it is asked for first."""
    # Equal kernels from different lines of a program report failed checks at their own.
    key = (kernel, layout, tuple(place for stage in kernel.stages for place in _check_places(stage.body)))
    with _lock:
        found = _kernels.get(key)
        if found is not None:
            _kernels.move_to_end(key)
            return found
    text = emit_kernel(kernel, layout)
    made = CompiledKernel(
        text, object_key(text.text), compile_kernel(text.text, "kernel", imports=math_imports(text.math))
    )
    with _lock:
        _kernels[key] = made
        _keep_loaded(made.key, made.native)
        while len(_kernels) > _MOST_KERNELS:
            _kernels.popitem(last=False)
    return made


def _check_places(function: Function) -> tuple[Place | None, ...]:
    every = [node for inner in reachable_functions([function]) for node in nodes_of(inner)]
    return tuple(node.origin for node in every if node.op.checked)


def _keep_loaded(key: bytes, native: NativeFunction) -> None:
    _loaded[key] = native
    while len(_loaded) > _MOST_KERNELS:
        _loaded.popitem(last=False)


def loaded(key: bytes, math: Sequence[MathRequest]) -> NativeFunction | None:
    """Native code by the key of its object: from memory, or from the disk cache if it is there."""
    with _lock:
        if key in _loaded:
            return _loaded[key]
    native = load_kernel(key, "kernel", imports=math_imports(math))
    if native is not None:
        with _lock:
            _keep_loaded(key, native)
    return native


def kernels_in_memory() -> int:
    """How many kernels are loaded: it grows with every kernel that is new, whether compiled or read from disk."""
    with _lock:
        return len(_loaded)


def forget_kernels() -> None:
    """Drops all compiled kernels from memory; those on disk stay."""
    with _lock:
        _kernels.clear()
        _loaded.clear()


# --- recipes ---------------------------------------------------------------------------------------------------------


@dataclass
class RecipeBuilder:
    """Spells out a plan's kernels; scratch buffers are numbered as they are met."""

    plan: Plan
    scratch: dict[Buffer, int]

    def kernel(self, step: KernelStep) -> KernelRecipe:
        bound = bind(step, host_target().vector_bytes)
        code = compiled(step.kernel, bound.layout)
        values = self._words(step, bound)
        words = tuple(values[name] for name in code.text.words)
        return KernelRecipe(
            code.key, words, bound.total, bound.grain, code.text.interruptible, code.text.sites, code.text.math
        )

    def _words(self, step: KernelStep, bound: Bound) -> dict[str, Word]:
        """What each word that a kernel may take holds."""
        words = {"status": Word("status", 0, 0), "interrupt": Word("interrupt", 0, 0), "block": _number(bound.block)}
        words |= {f"domain{d}": _number(size) for d, size in enumerate(bound.domain)}
        words |= {f"inner{d}": _number(size) for d, size in enumerate(bound.inner)}
        for role, ports, views, strides in (
            ("read", step.kernel.reads, step.reads, bound.reads),
            ("output", step.kernel.outputs, step.outputs, bound.outputs),
        ):
            for number, (port, view, own) in enumerate(zip(ports, views, strides, strict=True)):
                words[f"{role}{number}"] = self._place(view.buffer, view.offset)
                words |= {f"{role}{number}.stride{d}": _number(stride) for d, stride in enumerate(own)}
                if port.scratch:
                    words["block"] = _number(_scratch_bytes(step))
        for number, buffer in enumerate(step.wholes):
            words[f"whole{number}"] = self._place(buffer, 0)
            words |= {f"whole{number}.extent{d}": _number(size) for d, size in enumerate(buffer.shape)}
            words |= {f"whole{number}.stride{d}": _number(stride) for d, stride in enumerate(buffer.strides)}
        for number, view in enumerate(step.uniforms):
            words[f"uniform{number}"] = self._place(view.buffer, view.offset)
        return words

    def _place(self, buffer: Buffer, offset: int) -> Word:
        base = buffer.base
        shift = offset * buffer.element.dtype.itemsize
        if base.lifetime == "region":
            return Word("scratch", self.scratch.setdefault(base, len(self.scratch)), 0)
        if base.lifetime == "graph":
            return Word("arena", 0, self.plan.places[base] + shift)
        is_cell = base.shape == () and base in self.plan.arguments
        return Word("cell" if is_cell else "external", base.number, shift)


def _number(value: int) -> Word:
    return Word("number", 0, value)


def rounded(size: int) -> int:
    """A size in whole cache lines."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _scratch_bytes(step: KernelStep) -> int:
    """What one thread needs of each scratch buffer of a step."""
    sizes = [v.buffer.bytes for p, v in zip(step.kernel.outputs, step.outputs, strict=True) if p.scratch]
    return rounded(max(sizes))


def make_recipe(plan: Plan) -> tuple[Recipe, list[KernelRecipe | None]]:
    """The plan as a recipe, and for each of its steps the kernel (None for a step of the host)."""
    builder = RecipeBuilder(plan, {})
    steps = [builder.kernel(step) if isinstance(step, KernelStep) else None for step in plan.steps]
    scratch = tuple(_largest_scratch(plan, buffer) for buffer in builder.scratch)
    arrays = [
        tuple(ArrayRecipe(s.number, s.element, s.shape) for s in slots if isinstance(s, Buffer))
        for slots in (plan.arguments, plan.results)
    ]
    kernels = tuple(step for step in steps if step is not None)
    return Recipe(kernels, arrays[0], arrays[1], plan.arena_bytes, scratch), steps


def _largest_scratch(plan: Plan, buffer: Buffer) -> int:
    """Threads step by the largest scratch buffer of their kernel, so each buffer has room for that."""
    steps = [s for s in plan.steps if isinstance(s, KernelStep) and any(v.buffer is buffer for v in s.outputs)]
    return max(_scratch_bytes(step) for step in steps)
