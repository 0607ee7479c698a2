"""The thresholds of the compiler and the run time, with small values for them, and a context that sets those.

A threshold says from which size on another path is worth it; it never decides whether that path is right.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from livegrad.runtime.cpu.native import matmul


@dataclass(frozen=True)
class Threshold:
    """A constant of a module, the values that it is given, and whether results keep their bits with them."""

    module: str
    name: str
    values: tuple[Any, ...]
    keeps_bits: bool = False

    def __str__(self) -> str:
        return f"{self.module.rpartition('.')[2]}.{self.name}"


def _of(module: str, keeps_bits: bool = False, **values: tuple[Any, ...]) -> tuple[Threshold, ...]:
    return tuple(Threshold(f"livegrad.{module}", name, own, keeps_bits) for name, own in values.items())


_WITH_MEMOS = (
    "livegrad.schedule",
    "livegrad.passes",
    "livegrad.codegen.llvm",
    "livegrad.compiler",
    "livegrad.runtime.cpu.native.matmul",
)
TINY, SOME = (1, 2, 3), (1, 3, 8, 20)
THRESHOLDS = (
    # What one thread does at once, and how it stores.
    *_of(
        "schedule.loops.cost_model", keeps_bits=True,
        NON_TEMPORAL_BYTES=(0, 64, 300), NON_TEMPORAL_COST=(100.0, 1000.0), ITEM_COST=(1.0, 30.0, 500.0),
        LEAST_BLOCK=(1, 2, 16), MOST_BLOCK=(1, 4, 64), CHUNK_COST=(0.0, 100.0), BRIEF_COST=(0.0, 1e12),
        PARALLEL_LOOP_COST=(0.0, 50.0),
        FEWEST_ITERATIONS=(1, 2), PRIVATE_BYTES=(0, 64), SWEPT_CHUNK=(16, 32), PEELED_NODES=(0, 10, 2000),
    ),
    # Lanes, rows and columns: they decide in which order a row is added up.
    *_of(
        "schedule.loops.cost_model",
        MANY_ROWS=SOME, TILED_ROW=(0, 4, 100), LONGEST_KEPT=(0, 4), LONGEST_FOLD=(1, 4), FEW_LANES=(0, 2),
        MOST_TRANSPOSED=(0, 1), LONG_KERNEL=(3, 10), LARGE_KERNEL=(5, 20), MANY_MATH_CALLS=(0, 1),
        MATH_SHARE=(0.0, 1.0), MANY_PORTS=(1, 2), SHORT_LOOP=(0, 4), MEDIUM_LOOP=(2, 8), LONG_LOOP=(4, 12),
        CHEAP_POINT=(0.0, 1000.0), SHORTEST_INTERLEAVED=(0, 10), FEWEST_DIVISIONS=(0, 1), MOST_PACKED=(8, 32),
        FEW_ROWS=(1000,), LONG_ROW=SOME, CHUNK=SOME, CHUNK_ACROSS=SOME, LEAST_CHUNK=TINY, WIDEST_CHUNK=(4, 100),
        LEAST_ACROSS=TINY, FOLDED_LANES=TINY, LONG_COLUMNS=SOME, MANY_ADDITIONS=SOME, ADDITIONS_EACH=(1,),
        MOST_ADDED_CHUNKS=(2, 3), SCRATCH_BYTES=(0, 64), SCRATCH_COST=(0.0, 2.0), LEAST_TILE_ROWS=(1, 2),
        MOST_TILE_ROWS=(4, 8), FEWEST_TILES=(1, 2), TILES_A_THREAD=(1,),
    ),
    *_of(
        "schedule.fuse",
        CHEAP_TO_RECOMPUTE=(0.0, 100.0), MANY_COPIES=(1, 2), WORTH_A_KERNEL=(0.0, 10.0), EXPENSIVE_SLICES=(0.0, 3.0),
        MAX_GROUP_NODES=(1, 10),
    ),
    *_of("schedule.fuse_siblings", _MOST_NODES=(1, 10), _MOST_OUTPUTS=(1, 2)),
    *_of(
        "schedule.materialise",
        _CHEAP_COST=(0.0, 100.0), _MAX_SEARCHED=(1, 4), _LONG_WINDOW=(1, 3), MOST_DEPTH=(2, 6),
    ),
    *_of("schedule.step_kinds", _SMALL_TENSOR=(0, 4)),
    *_of("schedule.partial_updates", _MOST_WRITTEN=(0.0, 0.9, 1.0)),
    *_of("schedule.special", _MOST_PARTS=(1, 2)),
    *_of("schedule.loops.split_index_sets", _LEAST_SAVED=(0.0,), _MOST_SPLITS=(0, 5), _MOST_NODES=(10, 5000)),
    *_of("passes.unroll_small_matmuls", _FEWEST_MATRICES=TINY, _FEWEST_ROWS=SOME),
    *_of("passes.unroll_small_solves", _FEWEST_MATRICES=TINY),
    *_of("passes.interchange_point_loops", _MIN_POINTS=TINY),
    *_of("passes.share_row_reductions", _MIN_ROWS=TINY, _MIN_LENGTH=TINY),
    *_of("passes.inline_calls", SMALL=(0, 10), _MIN_CALLEE=(0, 4)),
    *_of("passes.differentiate.choose_residuals", _MIN_BYTES=(0, 32), _MAX_COST=(0.0, 100.0)),
    *_of("passes.split_at_concatenations", _INSIDE=(0.0, 0.2), _MAX_REGIONS=(2, 100)),
    *_of("passes.loop_over_elements.cost", _KERNEL=(0.0, 1e6), _LOOP=(0.0, 1e6), _COPY=(0.0, 100.0)),
    *_of("passes.loop_over_elements.sink", _MAX_COST=(0.0, 1000.0)),
    *_of("passes.loop_over_elements.layout", _MIN_ACCESSES=(0.0, 1.0)),
    *_of("passes.loop_over_elements.elements", _LANES=(((3, 2), (2, 2)), ((4, 4), (2, 2)))),
    *_of("passes.loop_over_elements.products", _MAX_PRODUCTS=(0, 8)),
    *_of("passes.lower_tapes", _MAX_BYTES=(0, 100), _MAX_TAPES=(0, 1)),
    *_of("passes.interchange_elementwise_loops", _MAX_NODES=(1, 20)),
    *_of("ops.window_taps", MAX_TAPS=(0, 2)),
    *_of("codegen.llvm.masked_control", _CHEAP_BRANCH=(0.0, 1000.0)),
    *_of("codegen.llvm.polling", _SHORT_LOOP=(0.0, 100.0), _STRIP_WORK=(0.0, 10.0)),
    *_of("codegen.llvm.subroutines", LONG=(10, 40), _PIECE=(5, 20), _MOST_IN_REGISTERS=(0, 1)),
    *_of("codegen.llvm.list_scheduling", _SHORT=(0, 10), _LIVE_REGISTERS=(2, 4)),
    *_of(
        "codegen.llvm.matmul.launches",
        DEPTH=(16, 32), IN_PLACE_DEPTH=(8, 16), LONG_ROWS_DEPTH=(8,), LONG_ROW_BYTES=(64,), SHORT_LINE_BYTES=(16,),
        LEAST_ROWS=(12, 24), MOST_ROW_BYTES=(48, 96), COLUMN_BYTES=(128, 512), CHUNK=(12, 24), MOST_PANELS=(1, 2),
        FEWEST_ITEMS=(1, 2), ONE_ITEM=(1, 100), SUM_BLOCK=(4, 64),
    ),
    *_of(
        "runtime.cpu.native.matmul",
        MIN_PACKED_ROWS=(1, 8), MIN_PACKED_ROWS_ALIASED=(1, 4), MAX_WHOLE_PANEL_BYTES=(0, 256),
        TRANSPOSE_PENALTY=(0.5, 1.0), MIN_PART=(2, 8),
    ),
    *_of(
        "runtime.cpu.native.convolution",
        _DEPTH=(2, 8), _MAX_ROWS=(12, 24), _MAX_PANELS=(1, 2), _ITEM_WORK=(1, 100), _WANTED_ITEMS=(1, 4),
    ),
    *_of("runtime.cpu.tensor_loops", _INITIAL_ROWS=(1, 2)),
    *_of("runtime.cpu.host_steps", _MIN_WORK=(0.0, 10.0), _MIN_MATRIX_ROWS=(1, 2)),
    *_of("runtime.cpu.kernel_calls", _MAX_SEQUENCE=(1, 2)),
    *_of("runtime.cpu.zero_copy_state", ZERO_COPY_BYTES=(0, 16)),
    *_of("runtime.cpu.tiers", _FULL_MODULE_LINES=(1, 10)),
    *_of("lazy.execution", _MAX_NODES=(2, 5, 20), _MIN_THREAD_COST=(0.0, 10.0)),
    *_of("lazy.small_graphs", _MAX_NODES=(0, 2, 100), _MAX_BYTES=(0, 64), _MAX_DROPPED=(1, 10)),
    *_of("lazy.deferred_ops", MAX_DEPTH=(1, 2)),
    *_of("lazy.small_ops", MAX_BYTES=(0, 64)),
    *_of("lazy.layout", _MAX_COPY_BYTES=(0, 64)),
    *_of("lazy.lazy_values", MAX_GENERATIONS=(1, 2), MAX_VISITED=(1, 10), MIN_WAITING=(1, 4)),
    *_of("lazy.holders", MIN_WAITING=(1, 4)),
    *_of("lazy.truncate_history", _FEW_LEAVES=(0, 1)),
    *_of("tensors.repeated_calls", _MAX_CALLS=(1, 2), _MAX_STEPS=(1, 2)),
    *_of("tensors.sets", _MAX_COMPARISONS=(0, 2)),
)  # fmt: skip


@contextmanager
def shrunk(chosen: Mapping[Threshold, Any]) -> Iterator[None]:
    """Gives constants other values, in all modules that import them; what was computed with either is forgotten."""
    patches: list[Any] = []
    for threshold, value in chosen.items():
        before = getattr(importlib.import_module(threshold.module), threshold.name)
        for module in _modules():
            if module.__name__ == threshold.module or _imports(module, threshold, before):
                patches.append(mock.patch.object(module, threshold.name, value))
    _forget()
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()
        _forget()


def _modules() -> list[Any]:
    return [module for name, module in list(sys.modules.items()) if name.startswith("livegrad.") and module is not None]


def _imports(module: Any, threshold: Threshold, value: Any) -> bool:
    """Whether a module has imported the constant; constants of one name in other modules have other values."""
    return not threshold.name.startswith("_") and vars(module).get(threshold.name) == value


def _forget() -> None:
    """Clears the memos of pure functions, which do not know of the thresholds."""
    matmul._best_of_sizes.cache_clear()  # alone: the other memos of this module keep native code alive
    for module in _modules():
        if not module.__name__.startswith(
            ("livegrad.schedule", "livegrad.passes", "livegrad.codegen.llvm", "livegrad.compiler")
        ):
            continue
        for value in vars(module).values():
            if isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()
