"""PyTorch's ports of `arrays`."""
# pyright: reportMissingImports=false

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.tensors_gpu.program import Run, Sizes
from benchmarks.tensors_gpu.torch_idioms import compiled


def layer_norm(s: Sizes, x: Any, weight: Any, bias: Any) -> Run:
    return compiled(lambda x, weight, bias: F.layer_norm(x, (x.shape[-1],), weight, bias), x, weight, bias)


def softmax(s: Sizes, x: Any) -> Run:
    return compiled(lambda x: torch.softmax(x, dim=-1), x)


def sum_of_squares(s: Sizes, x: Any) -> Run:
    return compiled(lambda x: torch.sum(x * x), x)


def transposed_sum(s: Sizes, x: Any) -> Run:
    return compiled(lambda x: x.T + x, x)


def cumulative_sum(s: Sizes, x: Any) -> Run:
    return compiled(lambda x: torch.cumsum(x, dim=1), x)


def sort(s: Sizes, x: Any) -> Run:
    return compiled(lambda x: torch.sort(x, dim=-1).values, x)


def gather(s: Sizes, table: Any, index: Any) -> Run:
    return compiled(lambda table, index: torch.sum(table[index] ** 2), table, index)


def fft(s: Sizes, x: Any) -> Run:
    return compiled(torch.fft.fft, x)


def normal_numbers(s: Sizes, seed: Any) -> Run:
    count, device = s.count, seed.device
    return compiled(lambda: torch.randn(count, device=device))


PORTS: dict[str, Callable[..., Run]] = {
    "layer_norm": layer_norm,
    "softmax": softmax,
    "sum_of_squares": sum_of_squares,
    "transposed_sum": transposed_sum,
    "cumulative_sum": cumulative_sum,
    "sort": sort,
    "gather": gather,
    "fft": fft,
    "normal_numbers": normal_numbers,
}
