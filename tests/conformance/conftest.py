"""Conformance runs in guarded memory: no kernel may touch anything beyond its buffers."""

from collections.abc import Iterator

import pytest

from tests.conformance.guarded_memory import guarding_buffers


@pytest.fixture(autouse=True)
def guarded_memory() -> Iterator[None]:
    with guarding_buffers():
        yield
