"""Runs LLVM passes over a module, as its `speed` selects. Used by `llvm_jit.py` and `unlocked_compile.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm

# The speeds, with costs of float32 kernels of 32 lanes (Ice Lake, LLVM 22, on a machine in use): processor time of
# `compile_kernel` and Mpoints/s on one thread, for 310 ops (range of 8 processes) and for 3,000 ops (best of 4 runs).
# At 310 ops, code of speed 2 ran 7 to 10 % faster than that of speed 1 in 8 of 9 processes.
#   0: no passes, code generation 0                                13..24 ms, 157..227 | 139 ms, 14
#   1: inline, SROA, instcombine, simplifycfg; code generation 2   25..41 ms, 180..240 | 279 ms, 20
#   2: the function simplification pipeline at level 1; likewise   28..49 ms, 198..256 | 290 ms, 21
#   3: LLVM's whole pipeline at level 3; code generation 3: for kernels of scalar loops
#   4: the same without the loop vectoriser
# Up to 2, the loop and SLP vectorisers and the unroller are off, because the IR already has vectors of the width that
# livegrad's loop passes chose, and only functions marked `alwaysinline` are inlined.
# Short kernels do not gain from 2: a kernel of 100 lines takes 8 ms to compile with 1, 13 ms with 2, and runs as fast.
_LONG_MODULE = 300  # lines
LOOP_SPEED, UNVECTORISED_LOOP_SPEED = 3, 4
CODE_GENERATION_LEVEL = (0, 2, 2, 3, 3)


def suitable_speed(ir_text: str) -> int:
    """The speed for a module without scalar loops."""
    return 1 if ir_text.count("\n") < _LONG_MODULE else 2


def optimize(module: Any, machine: Any, speed: int) -> None:
    """Runs the passes of a speed over a module."""
    if speed == 0:
        return
    if speed >= LOOP_SPEED:
        with whole_pipeline(machine, speed) as (builder, passes):
            passes.run(module, builder)
        return
    builder, prepare, simplify = pass_pipeline(machine, speed)
    prepare.run(module, builder)
    if simplify is not None:
        for function in module.functions:
            if not function.is_declaration:
                simplify.run(function, builder)


def has_unsafe_loads(module: Any, speed: int) -> bool:
    """Whether LLVM's loop vectoriser introduced masked loads, which kernels of scalar loops do not have otherwise.

    LLVM 22.1 may move such a load after a store to the same memory (llvm/llvm-project#215453). Such modules are
    compiled again without the vectoriser.
    """
    return speed == LOOP_SPEED and any(function.name.startswith("llvm.masked.load") for function in module.functions)


@lru_cache(maxsize=32)
def pass_pipeline(machine: Any, speed: int) -> tuple[Any, Any, Any]:
    """The pass builder, the module passes, and the passes that then run on each function (or None).

    Cached, because llvmlite 0.50 never frees a pass manager (20 KiB each). LLVM's whole module pipelines cannot be
    reused: their inliner crashes on the second run.
    """
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_interleaving = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    prepare = llvm.create_new_module_pass_manager()
    prepare.add_always_inliner_pass()
    if speed == 1:
        prepare.add_sroa_pass()
        prepare.add_instruction_combine_pass()
        prepare.add_simplify_cfg_pass()
        prepare.add_aggressive_dce_pass()
    prepare.add_global_dead_code_eliminate_pass()
    return builder, prepare, builder.getFunctionPassManager() if speed >= 2 else None


@contextmanager
def whole_pipeline(machine: Any, speed: int) -> Iterator[tuple[Any, Any]]:
    """A pass builder, and LLVM's whole pipeline for one run.

    Frees the pipeline, which llvmlite 0.50 does not (170 KiB after a run).
    """
    builder = _loop_pass_builder(machine, speed)
    passes = builder.getModulePassManager()
    try:
        yield builder, passes
    finally:
        llvm.ffi.lib.LLVMPY_DisposeNewModulePassManger(passes)
        passes.detach()


@lru_cache(maxsize=32)
def _loop_pass_builder(machine: Any, speed: int) -> Any:
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.loop_interleaving = speed == LOOP_SPEED
    options.slp_vectorization = False
    options.loop_unrolling = True
    return llvm.create_pass_builder(machine, options)
