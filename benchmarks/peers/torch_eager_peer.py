"""PyTorch operation by operation, without a compiler."""
# pyright: reportMissingImports=false

import torch

from benchmarks import eager_programs
from benchmarks.peers.torch_tensors import EAGER
from benchmarks.problems import Problem, Run, inputs

VERSION = torch.__version__
torch.set_num_threads(2)
torch.set_grad_enabled(False)


def build_eager(problem: Problem) -> Run:
    x, y = map(torch.from_numpy, inputs(problem))
    return eager_programs.run_of(problem.kind, problem.size, x, y, torch.maximum)


BUILDERS = {**EAGER, **dict.fromkeys(eager_programs.PROGRAMS, build_eager)}
