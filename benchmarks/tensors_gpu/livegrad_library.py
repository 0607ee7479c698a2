"""livegrad as a contender: the shared programs, compiled by `lg.jit`."""

import inspect
from typing import Any

import numpy as np

import livegrad as lg
from benchmarks.machine import version
from benchmarks.tensors_gpu.namespaces import NAMESPACES
from benchmarks.tensors_gpu.program import Array, Program, Run, Sizes, Tree, map_tree, threaded
from livegrad.runtime.cpu.kernel_code import forget_kernels
from livegrad.runtime.cuda import driver as cuda
from livegrad.runtime.object_cache import CacheSettings, ObjectCache, set_default_cache


class Livegrad:
    def __init__(self, device: str) -> None:
        self.device, self.version = device, version("livegrad") or "source"
        x = self.put(np.ones((16, 16), np.float32))
        self.wait(lg.jit(lambda x: x @ x + 1.0)(x))

    def forget(self) -> None:
        forget_kernels()
        lg.clear_caches()

    def put(self, array: Array) -> Any:
        return lg.asarray(array).to(self.device).execute()

    def build(self, program: Program, sizes: Sizes, arguments: tuple[Tree, ...]) -> Run:
        namespace = NAMESPACES["livegrad"]()
        donated: dict[str, Any] = {"donate": tuple(range(program.state_count))} if self.donates(program) else {}
        function = lg.jit(lambda *trees: program.function(namespace, sizes, *trees), **donated)
        return threaded(function, program.state_count, arguments)

    def donates(self, program: Program) -> bool:
        return bool(program.state_count) and "donate" in inspect.signature(lg.jit).parameters

    def wait(self, result: Tree) -> None:
        if self.device == "cuda":
            cuda.device()
            cuda.check(cuda.driver.cuCtxSynchronize())

    def host(self, result: Tree) -> Tree:
        return map_tree(lambda x: x.numpy(), result)

    def reset_peak(self) -> None:
        if self.device == "cuda":
            cuda.check(cuda.driver.cuMemPoolSetAttribute(self.pool(), self.highest(), cuda.driver.cuuint64_t(0)))

    def peak_bytes(self) -> int | None:
        """The most memory in use in the pool that all tensors and plans are allocated from."""
        if self.device != "cuda":
            return None
        return int(cuda.check(cuda.driver.cuMemPoolGetAttribute(self.pool(), self.highest())))

    def pool(self) -> Any:
        cuda.device()
        return cuda.check(cuda.driver.cuDeviceGetDefaultMemPool(cuda.check(cuda.driver.cuCtxGetDevice())))

    def highest(self) -> Any:
        return cuda.driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_HIGH


def start(name: str, device: str) -> Livegrad:
    set_default_cache(ObjectCache(CacheSettings(None)))  # else a first call might find its code on disk
    return Livegrad(device)
