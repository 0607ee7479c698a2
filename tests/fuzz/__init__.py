"""Random programs, documents and edits, compared with oracles that share no code with livegrad.

Each module with a function `run_one(seed)` is a fuzzer: it makes one random case from the seed, raises an
`AssertionError` that shows how to reproduce a difference, and returns counts of what it covered. It may say which
modules it needs beyond the development environment (`NEEDS = ("jax",)`) and how many seeds an ordinary test run takes
(`SHORT = 20`).
`python -m tests.fuzz NAME --seconds 3600` runs one long; `test_fuzz.py` runs the short forms.
"""
