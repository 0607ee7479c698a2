"""Native code for kernels, made once for each kernel and layout, and a plan's kernels as a recipe."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from livegrad.backends.cpu.bind import Bound, RowBlock, bind
from livegrad.backends.cpu.chains import ChainBuilder, row_block
from livegrad.backends.cpu.emit.frame import Layout
from livegrad.backends.cpu.emit.kernel import KernelText, emit_kernel
from livegrad.backends.cpu.fork import renew_lock_after_fork
from livegrad.backends.cpu.math_library import MathRequest, math_imports
from livegrad.backends.cpu.native.chain import LIBRARY as CHAIN
from livegrad.backends.cpu.native.chain import chain_library
from livegrad.backends.cpu.native.compiler import (
    NativeFunction,
    compile_kernel,
    host_target,
    load_kernel,
    object_key,
)
from livegrad.backends.cpu.native.gemm import Launches, Product, arrange, arrange_rows
from livegrad.backends.cpu.native.gemm import library as product_library
from livegrad.backends.cpu.products import native_product, product_operands
from livegrad.backends.cpu.recipe import ArrayRecipe, KernelRecipe, Recipe, Word
from livegrad.diagnostics import Place
from livegrad.ir.node import Function
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.schedule.kernel import Kernel
from livegrad.schedule.plan import Buffer, HostStep, KernelStep, Plan, Step
from livegrad.schedule.row_chains import RowChain

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


def code_of(kernel: KernelRecipe) -> NativeFunction | None:
    """The native code that a recipe's kernel is a function of; None when it is no longer in the cache."""
    if kernel.library == CHAIN:
        return chain_library() if all(code_of(member) is not None for member in kernel.members) else None
    if kernel.library:
        return product_library(kernel.library, kernel.symbol)
    return loaded(kernel.object_key, kernel.math)


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
    """Spells out a plan's kernels; scratch buffers are numbered as they are met, and products share one."""

    plan: Plan
    scratch: dict[Buffer | RowChain | None, int] = field(default_factory=dict)  # None: for products' left operands
    product_scratch: int = 0
    chain_scratch: dict[RowChain, int] = field(default_factory=dict)
    workspace: int = 0  # bytes behind the arena, for what one step needs while it runs
    building: ChainBuilder | None = None

    def kernels(self, step: Step) -> tuple[KernelRecipe, ...] | None:
        """The kernels of a step; None for one that the host runs."""
        if isinstance(step, KernelStep):
            return (self._kernel(step),)
        product = native_product(step)
        if product is None:
            return None
        launches = arrange(product)
        made, used = self._product(step, product, launches, 0)
        self.workspace = max(self.workspace, used)
        return made

    def chain(self, chain: RowChain) -> tuple[KernelRecipe, ...]:
        """What prepares a chain, and the kernel that runs it block by block."""
        block = row_block(chain)
        assert block is not None
        self.building = builder = ChainBuilder(chain, block)
        before: list[KernelRecipe] = []
        members: list[tuple[KernelRecipe, int]] = []
        used = 0
        for step in chain.steps:
            if isinstance(step, KernelStep):
                kernel = self._kernel(step, block)
                members.append((kernel, kernel.grain))
                continue
            product = native_product(step)
            assert product is not None
            *ahead, run = (made := self._product(step, product, arrange_rows(product, block.block), used))[0]
            before += ahead
            members.append((run, 1))
            used = made[1]
        self.building = None
        slot = self.scratch.setdefault(chain, len(self.scratch))
        whole, self.chain_scratch[chain] = builder.recipe(members, Word("scratch", slot, 0))
        self.workspace = max(self.workspace, used)
        return (*before, whole)

    def _kernel(self, step: KernelStep, rows: RowBlock | None = None) -> KernelRecipe:
        bound = bind(step, host_target().vector_bytes, rows)
        code = compiled(step.kernel, bound.layout)
        values = self._words(step, bound)
        words = tuple(values[name] for name in code.text.words)
        return KernelRecipe(
            code.key, words, bound.total, bound.grain, code.text.interruptible, code.text.sites, code.text.math
        )

    def _product(
        self, step: HostStep, product: Product, launches: Launches, used: int
    ) -> tuple[tuple[KernelRecipe, ...], int]:
        """The kernels of a product that finds so many bytes of the workspace in use; and how many are after it."""
        start = rounded(self.plan.arena_bytes) + used
        between = rounded(launches.workspace)
        self.product_scratch = max(self.product_scratch, launches.scratch)
        left, right = (self._place(buffer, 0) for buffer, _ in product_operands(step))
        assert isinstance(step.result, Buffer)
        places = {
            "left": left, "right": right, "out": self._place(step.result, 0),
            "workspace": Word("arena", 0, start), "between": Word("arena", 0, start + between),
        }  # fmt: skip
        if launches.scratch:
            places["scratch"] = Word("scratch", self.scratch.setdefault(None, len(self.scratch)), 0)
        made = tuple(
            KernelRecipe(
                b"", tuple(_number(w) if isinstance(w, int) else places.get(w, _number(0)) for w in launch.words),
                launch.total, launch.grain, False, (), (), product.element, launch.kernel,
            )
            for launch in launches.steps
        )  # fmt: skip
        return made, used + between + rounded(launches.between)

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
        if self.building is not None and base in self.building.chain.private:
            return self.building.place(base, shift)
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


def make_recipe(plan: Plan, chains: Sequence[RowChain] = ()) -> tuple[Recipe, list[int | None]]:
    """The plan as a recipe, and how many of its kernels each step is (None for a step of the host).

    The steps of a chain count as its first one.
    """
    builder = RecipeBuilder(plan)
    place = {id(step): number for number, step in enumerate(plan.steps)}
    starts = {place[id(chain.steps[0])]: chain for chain in chains}
    inside = {place[id(step)] for chain in chains for step in chain.steps[1:]}
    steps: list[tuple[KernelRecipe, ...] | None] = []
    for number, step in enumerate(plan.steps):
        if number in starts:
            steps.append(builder.chain(starts[number]))
        else:
            steps.append(() if number in inside else builder.kernels(step))
    arrays = [
        tuple(ArrayRecipe(s.number, s.element, s.shape) for s in slots if isinstance(s, Buffer))
        for slots in (plan.arguments, plan.results)
    ]
    kernels = tuple(kernel for step in steps if step is not None for kernel in step)
    arena_bytes = rounded(plan.arena_bytes) + builder.workspace if builder.workspace else plan.arena_bytes
    counts = [None if step is None else len(step) for step in steps]
    scratch = tuple(_scratch_size(builder, owner) for owner in builder.scratch)
    return Recipe(kernels, arrays[0], arrays[1], arena_bytes, scratch), counts


def _scratch_size(builder: RecipeBuilder, owner: Buffer | RowChain | None) -> int:
    if owner is None:
        return builder.product_scratch
    return builder.chain_scratch[owner] if isinstance(owner, RowChain) else _largest_scratch(builder.plan, owner)


def _largest_scratch(plan: Plan, buffer: Buffer) -> int:
    """Threads step by the largest scratch buffer of their kernel, so each buffer has room for that."""
    steps = [s for s in plan.steps if isinstance(s, KernelStep) and any(v.buffer is buffer for v in s.outputs)]
    return max(_scratch_bytes(step) for step in steps)
