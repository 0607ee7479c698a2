"""PyTorch operation by operation, without a compiler."""
# pyright: reportMissingImports=false

import torch

from benchmarks import eager_programs, host_programs
from benchmarks.peers.torch_tensors import EAGER
from benchmarks.problems import Problem, Run, inputs

VERSION = torch.__version__
torch.set_num_threads(2)
torch.set_grad_enabled(False)


def build_eager(problem: Problem) -> Run:
    x, y = map(torch.from_numpy, inputs(problem))
    return eager_programs.run_of(problem.kind, problem.size, x, y, torch.maximum)


HOSTS = host_programs.Library(
    fft2=torch.fft.fft2,
    fft=torch.fft.fft,
    rfft=torch.fft.rfft,
    real=torch.real,
    log=torch.log,
    argsort=lambda x: torch.argsort(x, stable=True),
    largest=lambda x, count: torch.topk(x, count)[0],
    cholesky=torch.linalg.cholesky,
    eigvalsh=torch.linalg.eigvalsh,
)


def build_host(problem: Problem) -> Run:
    (x,), program = map(torch.from_numpy, inputs(problem)), host_programs.PROGRAMS[problem.kind]
    return lambda: program(HOSTS, x)


BUILDERS = {
    **EAGER,
    **dict.fromkeys(host_programs.PROGRAMS, build_host),
    **dict.fromkeys(eager_programs.PROGRAMS, build_eager),
}
