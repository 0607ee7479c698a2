"""PyTorch as a contender: its own ports, compiled by `torch.compile`; `torch_graphs` replays them as CUDA graphs."""
# pyright: reportMissingImports=false

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch._inductor.config
import torch._inductor.utils

from benchmarks.tensors_gpu import (
    algebra_torch,
    arrays_torch,
    attention_torch,
    images_torch,
    learning_torch,
    simulation_torch,
)
from benchmarks.tensors_gpu.program import Array, Program, Run, Sizes, Tree, map_tree

MODULES: tuple[Any, ...] = (
    algebra_torch, arrays_torch, attention_torch, images_torch, learning_torch, simulation_torch,
)  # fmt: skip
PORTS: dict[str, Callable[..., Run]] = {name: port for module in MODULES for name, port in module.PORTS.items()}


class Torch:
    version = torch.__version__

    def __init__(self, device: str, graphs: bool) -> None:
        self.device, self.graphs = torch.device(device), graphs
        self.on_gpu = self.device.type == "cuda"
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True  # chooses the fastest convolution
        torch._inductor.config.triton.cudagraphs = graphs
        torch.manual_seed(0)
        self.caches: Any = None
        self.forget()
        x = self.put(np.ones((16, 16), np.float32))
        # Importing and starting the compiler is no part of a first call.
        self.wait(torch.compile(lambda x: (x @ x + 1.0).sum())(x.requires_grad_()).backward())

    def forget(self) -> None:
        """Each program has new directories for compiled code, and nothing that was compiled before."""
        torch._dynamo.reset()
        if self.caches is not None:
            self.caches.__exit__(None, None, None)
        self.caches = torch._inductor.utils.fresh_cache()
        self.caches.__enter__()
        if self.on_gpu:
            torch.cuda.empty_cache()

    def put(self, array: Array) -> Any:
        return torch.from_numpy(np.array(array)).to(self.device)

    def build(self, program: Program, sizes: Sizes, arguments: tuple[Tree, ...]) -> Run:
        run = PORTS[program.name](sizes, *arguments)
        if not self.graphs:
            return run

        def step() -> Tree:
            torch.compiler.cudagraph_mark_step_begin()
            return run()

        return step

    def wait(self, result: Tree) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def host(self, result: Tree) -> Tree:
        return map_tree(lambda x: np.array(x.cpu()), result)  # a copy: steps update in place

    def reset_peak(self) -> None:
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()

    def peak_bytes(self) -> int | None:
        return torch.cuda.max_memory_allocated() if self.on_gpu else None


def start(name: str, device: str) -> Torch:
    return Torch(device, graphs=name == "torch_graphs")
