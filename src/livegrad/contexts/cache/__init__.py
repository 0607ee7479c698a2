"""Caches of results: interned values as exact keys, a bounded memo store, and a disk cache."""
