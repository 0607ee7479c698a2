"""Fixtures that these tests share with others."""

from tests.kernel_caches import without_caches

__all__ = ["without_caches"]
