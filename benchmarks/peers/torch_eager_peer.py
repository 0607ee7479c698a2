"""PyTorch operation by operation, without a compiler."""
# pyright: reportMissingImports=false

import torch

from benchmarks.peers.torch_tensors import EAGER

VERSION = torch.__version__
torch.set_num_threads(2)
torch.set_grad_enabled(False)
BUILDERS = EAGER
