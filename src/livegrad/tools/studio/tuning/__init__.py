"""What the Studio does with derivatives and parameters: slopes of a chosen output, pulling, fitting, presets.

`tuner.py` belongs to a session and receives the messages of pages; a thread of its own computes. `targets.py` reads
what a page has chosen, and `measures.py` differentiates it.
"""
