"""`lg.optim`: optimizers, gradient transformations and schedules, all pure functions over pytrees.

`optimizer.py` has the interface and what all optimizers share, `descent.py` and `adaptive.py` the optimizers,
`wrappers.py` what is put around one, `schedules.py` learning rates, `lbfgs.py` and `minimisation.py` minimisations.
"""

from livegrad.tensors.optim.adaptive import Adafactor, Lion, Muon, RMSprop
from livegrad.tensors.optim.descent import SGD, Adam, AdamW
from livegrad.tensors.optim.lbfgs import LBFGS, Minimum
from livegrad.tensors.optim.minimisation import minimize
from livegrad.tensors.optim.optimizer import Optimizer
from livegrad.tensors.optim.schedules import (
    CosineSchedule,
    ExponentialSchedule,
    LinearSchedule,
    OneCycleSchedule,
    StepSchedule,
)
from livegrad.tensors.optim.wrappers import (
    accumulate,
    average,
    chain,
    clip_by_global_norm,
    clip_by_value,
    global_norm,
)

__all__ = [
    "LBFGS",
    "SGD",
    "Adafactor",
    "Adam",
    "AdamW",
    "CosineSchedule",
    "ExponentialSchedule",
    "LinearSchedule",
    "Lion",
    "Minimum",
    "Muon",
    "OneCycleSchedule",
    "Optimizer",
    "RMSprop",
    "StepSchedule",
    "accumulate",
    "average",
    "chain",
    "clip_by_global_norm",
    "clip_by_value",
    "global_norm",
    "minimize",
]


def __dir__() -> list[str]:
    """Lists the public names only, for tab completion."""
    return __all__
