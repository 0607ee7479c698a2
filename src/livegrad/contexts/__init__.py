"""Context graphs: nodes declare the features of the context that they need, and results are cached by exactly those.

`declare.py` reads the features that a function extracts, injects or modifies; `context_graph.py` stores nodes by name;
`link.py` compiles a graph and finds the features on each edge; `evaluate.py` computes each result once per set of
needed features; `cache/` stores results.
"""

from livegrad.public_names import front_door

__getattr__, __dir__, __all__ = front_door(__name__)
