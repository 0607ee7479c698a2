"""Fixtures shared with the tests of other packages."""

from tests.kernel_caches import without_caches

__all__ = ["without_caches"]
