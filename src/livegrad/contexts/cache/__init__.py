"""Caches of results: interned values as exact keys, a bounded memo store, and a disk cache.

`interned_values.py` makes keys of values, `store.py` keeps results up to limits of entries and bytes, `disk.py` does
so in files, and `describe.py` measures values and describes them in reports.
"""
