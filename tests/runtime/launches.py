"""Runs launches of product kernels on separate memory."""

from __future__ import annotations

import numpy as np

from livegrad.codegen.llvm.matmul.product import Launches
from livegrad.codegen.llvm.matmul.tile_shapes import TileShapes
from livegrad.runtime.cpu.native.invoke import ArgumentBlock, invoker
from livegrad.runtime.cpu.native.matmul import compiled_module
from livegrad.runtime.cpu.native.pool import threads


def run(launches: Launches, shapes: TileShapes, places: dict[str, int]) -> None:
    """Runs the launches on separate memory with arbitrary initial contents."""
    sizes = {"workspace": launches.workspace, "between": launches.between, "scratch": launches.scratch * threads()}
    memory = {name: np.full(size + 64, 0xFF, np.uint8) for name, size in sizes.items()}
    every = {name: -(-array.ctypes.data // 64) * 64 for name, array in memory.items()} | places
    for step in launches.steps:
        block = ArgumentBlock(len(step.slots))
        for index, slot in enumerate(step.slots):
            block.ints[index] = slot if isinstance(slot, int) else every[slot]
        code = compiled_module(shapes, step.kernel)
        invoker().invoke(code.addresses[step.kernel], step.total, step.grain, block.address)
