"""Caches of results: exact values as keys, a bounded memo store, and a disk cache."""
