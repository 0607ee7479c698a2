"""Context nullification and precise caching: graphs whose nodes declare what they need of their context.

`declare.py` reads what a function extracts, injects or modifies, `context_graph.py` holds nodes by name, `link.py`
finds what each edge must carry, `evaluate.py` computes each result once for what it needs, `cache/` keeps results.
"""

from livegrad.public_names import front_door

__getattr__, __dir__, __all__ = front_door(__name__)
