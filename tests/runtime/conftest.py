"""Fixtures that these tests share with others."""

from tests.kernel_caches import settled_code, without_caches

__all__ = ["settled_code", "without_caches"]
