"""The value IR: interned nodes, closed functions, types, symbolic sizes, and their text.

`node.py` is the data model, `types/` the types, `function.py` traces Python callables, `text/` prints and parses,
`verify.py` checks. `lg.ir` also exports the functions that compile and evaluate a single function.
"""

from livegrad.public_names import front_door

__getattr__, __dir__, __all__ = front_door(__name__)
