"""PyTorch in the tensors suite, compiled or operation by operation."""
# pyright: reportMissingImports=false

from collections.abc import Callable
from typing import Any

import torch

from benchmarks import workloads
from benchmarks.problems import Problem, Run, inputs, preceded


def gradient(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    def derived(*arguments: Any) -> Any:
        leaves = [argument.detach().requires_grad_() for argument in arguments]
        with torch.enable_grad():
            value = function(*leaves)
        return value, torch.autograd.grad(value, leaves[:count])

    return derived


LIBRARY = workloads.Library(
    exp=torch.exp,
    sin=torch.sin,
    tanh=torch.tanh,
    sqrt=torch.sqrt,
    abs=torch.abs,
    relu=torch.relu,
    total=lambda x, axis: torch.sum(x) if axis is None else torch.sum(x, dim=axis, keepdim=True),
    highest=lambda x, axis: torch.amax(x, dim=axis, keepdim=True),
    turned=lambda x: x.transpose(-1, -2),
    gradient=gradient,
)


def eager(kind: str) -> Callable[..., Any]:
    program = workloads.program_of(kind)
    return lambda *arrays: program(LIBRARY, *arrays)


def compiled(kind: str) -> Callable[..., Any]:
    """torch.compile; a derivative is taken of the compiled function, as its users do."""
    program = workloads.program_of(kind)
    if kind.removeprefix("first_") not in ("attention_gradient", "training_step"):
        return torch.compile(lambda *arrays: program(LIBRARY, *arrays))
    library = workloads.Library(**{**LIBRARY.__dict__, "gradient": lambda f, count: gradient(torch.compile(f), count)})
    cache: dict[str, Any] = {}

    def kept(function: Callable[..., Any], count: int) -> Callable[..., Any]:
        # The inner function is new in each call and would be recompiled each time, so the first one is cached.
        return cache.setdefault("derived", library.gradient(function, count))

    whole = workloads.Library(**{**LIBRARY.__dict__, "gradient": kept})
    return lambda *arrays: program(whole, *arrays)


def build_with(make: Callable[[str], Callable[..., Any]]) -> Callable[[Problem], Run]:
    def build(problem: Problem) -> Run:
        function = make(problem.kind)
        arrays = [torch.from_numpy(array) for array in inputs(problem)]
        return lambda: function(*arrays)

    return build


def build_first(problem: Problem) -> Run:
    arrays = [torch.from_numpy(array) for array in inputs(problem)]
    return preceded(torch._dynamo.reset, lambda: compiled(problem.kind)(*arrays))


def build_small_call(problem: Problem) -> Run:
    first, second = (torch.from_numpy(array) for array in inputs(problem))
    function = torch.compile(lambda a, b: a * b + a)
    return lambda: function(first, second)


BUILDERS = {
    "small_call": build_small_call,
    **dict.fromkeys(workloads.PROGRAMS, build_with(compiled)),
    **dict.fromkeys(workloads.FIRST, build_first),
}
EAGER = dict.fromkeys(workloads.PROGRAMS, build_with(eager))
