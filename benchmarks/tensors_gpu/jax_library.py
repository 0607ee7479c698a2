"""JAX as a contender: the shared programs, compiled by `jax.jit`, which may reuse the memory of states."""
# pyright: reportMissingImports=false

from typing import Any

import jax
import numpy as np

from benchmarks.tensors_gpu.namespaces import NAMESPACES
from benchmarks.tensors_gpu.program import Array, Program, Run, Sizes, Tree, map_tree, threaded


class Jax:
    version = jax.__version__

    def __init__(self, device: str) -> None:
        jax.config.update("jax_default_matmul_precision", "highest")
        self.device = jax.devices(device)[0]
        x = self.put(np.ones((16, 16), np.float32))
        self.wait(jax.jit(lambda x: x @ x + 1.0)(x))

    def forget(self) -> None:
        jax.clear_caches()

    def put(self, array: Array) -> Any:
        return jax.device_put(array, self.device)

    def build(self, program: Program, sizes: Sizes, arguments: tuple[Tree, ...]) -> Run:
        namespace = NAMESPACES["jax"]()
        donated = tuple(range(program.state_count))
        function = jax.jit(lambda *trees: program.function(namespace, sizes, *trees), donate_argnums=donated)
        return threaded(function, program.state_count, arguments)

    def wait(self, result: Tree) -> None:
        jax.block_until_ready(result)

    def host(self, result: Tree) -> Tree:
        return map_tree(np.asarray, result)

    def reset_peak(self) -> None:
        """The peak of a process cannot be reset, so it includes that of the first call."""

    def peak_bytes(self) -> int | None:
        return (self.device.memory_stats() or {}).get("peak_bytes_in_use")


def start(name: str, device: str) -> Jax:
    return Jax(device)
