"""livegrad: live, differentiable compute graphs.

Tensors are lazy and follow the Array API: `lg.asarray`, `lg.sum`, `x @ y`. Typed Python functions compile to native
code: `lg.function`, `lg.differentiable`. `lg.grad`, `lg.jit` and `lg.vmap` transform both. `lg.Engine` runs a graph of
blocks while you edit it. Parts are functions of position: `lg.load_3mf`, `lg.shapes`, `lg.render`, `lg.slice`,
`lg.mesh`.

Less common names are in groups: `lg.ir`, `lg.live`, `lg.contexts`, `lg.implicit`. `public_names.py` lists all names.
Except for the value IR and its ops, they load on first use.
"""

from livegrad import ops as ops  # eager: registers every op with the IR
from livegrad.public_names import front_door

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = front_door(__name__)
