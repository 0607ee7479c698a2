"""Fixtures for the tests of the run time."""

from tests.kernel_caches import without_caches

__all__ = ["without_caches"]
