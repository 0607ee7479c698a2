"""PyTorch: torch.compile on the CPU with two threads and no caches from earlier runs."""
# pyright: reportMissingImports=false

import itertools
from collections.abc import Callable
from typing import Any

import torch

from benchmarks import sdf
from benchmarks.peers import torch_gradients, torch_tensors
from benchmarks.problems import (
    FIRST_GRADIENTS,
    GRADBENCH,
    PRIMAL,
    SDF_GRADIENTS,
    Array,
    Problem,
    Run,
    inputs,
    parameters,
    program,
)

VERSION = torch.__version__
torch.set_num_threads(2)
torch.set_grad_enabled(False)

FORMS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "sqrt": "torch.sqrt({0})",
    "abs": "torch.abs({0})",
    "min": "minimum({0}, {1})",
    "max": "maximum({0}, {1})",
    "sin": "torch.sin({0})",
    "exp": "torch.exp({0})",
    "log": "torch.log({0})",
    "tanh": "torch.tanh({0})",
    "pow": "torch.pow({0}, {1})",
}


def minimum(left: Any, right: Any) -> Any:
    return torch.clamp(left, max=right) if isinstance(right, float) else torch.minimum(left, right)


def maximum(left: Any, right: Any) -> Any:
    return torch.clamp(left, min=right) if isinstance(right, float) else torch.maximum(left, right)


def tensors(arrays: tuple[Array, ...]) -> list[Any]:
    return [torch.from_numpy(array) for array in arrays]


def sdf_function(task: sdf.Program) -> Callable[..., Any]:
    """The program as straight-line Python, which is what torch.compile traces best."""
    body = "\n".join(f"    {line}" for line in sdf.python_source(task, FORMS))
    names: dict[str, Any] = {"torch": torch, "minimum": minimum, "maximum": maximum}
    exec(f"def distance(x, y, z, p):\n{body}\n    return result\n", names)
    return names["distance"]


def compiled(problem: Problem, function: Callable[..., Any], *extra: Array) -> Run:
    arguments = tensors((*inputs(problem), *extra))
    fast = torch.compile(function, dynamic=False)
    return lambda: fast(*arguments)


def build_sdf(problem: Problem) -> Run:
    return compiled(problem, sdf_function(program(problem)), parameters(problem))


def build_softmax(problem: Problem) -> Run:
    return compiled(problem, lambda array: torch.softmax(array, dim=1))


def build_sum_of_squares(problem: Problem) -> Run:
    return compiled(problem, lambda left, right: ((left - right) ** 2).sum())


def build_call_overhead(problem: Problem) -> Run:
    return compiled(problem, lambda left, right: left * right + left)


def build_memcpy(problem: Problem) -> Run:
    (array,) = tensors(inputs(problem))
    result = torch.zeros_like(array)
    return lambda: result.copy_(array)


def build_first_call(problem: Problem) -> Run:
    """Each run compiles a function that has not been seen before."""
    arrays = tensors(inputs(problem))
    seeds = itertools.count(1)

    def run() -> Any:
        torch.compiler.reset()
        task = program(problem, next(seeds))
        return torch.compile(sdf_function(task), dynamic=False)(*arrays, torch.tensor(task.parameters))

    return run


def compile_sdf(task: sdf.Program) -> Callable[..., Any]:
    return torch.compile(sdf_function(task), dynamic=False)


def build_sdf_gradient(problem: Problem) -> Run:
    return torch_gradients.build_sdf_gradient(problem, compile_sdf)


def build_first_gradient(problem: Problem) -> Run:
    return torch_gradients.build_first_gradient(problem, compile_sdf)


BUILDERS = {
    **torch_tensors.BUILDERS,
    **dict.fromkeys(GRADBENCH, torch_gradients.build_gradbench),
    **dict.fromkeys(SDF_GRADIENTS, build_sdf_gradient),
    **dict.fromkeys([kind + PRIMAL for kind in SDF_GRADIENTS], build_sdf),
    **dict.fromkeys(FIRST_GRADIENTS, build_first_gradient),
    "sdf_algebraic": build_sdf,
    "sdf_transcendental": build_sdf,
    "softmax": build_softmax,
    "sum_of_squares": build_sum_of_squares,
    "call_overhead": build_call_overhead,
    "memcpy": build_memcpy,
    "first_call": build_first_call,
}
