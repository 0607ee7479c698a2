"""Context graphs: nodes declare the features that they need of their context, and are cached by exactly those.

`declare.py` reads what a function extracts, injects or modifies, `context_graph.py` holds nodes by name, `link.py`
finds what each edge must carry, `evaluate.py` computes each result once for what it needs, `cache/` keeps results.
"""

from livegrad.public_names import front_door

__getattr__, __dir__, __all__ = front_door(__name__)
