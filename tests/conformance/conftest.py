"""Conformance tests run in guarded memory: a kernel that accesses memory outside its buffers crashes."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from tests.conformance.guarded_memory import guarding_buffers


@pytest.fixture(autouse=True)
def guarded_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    params = getattr(request.node, "callspec", None)
    backend = params.params.get("backend") if params is not None else None
    with guarding_buffers() if backend is None or backend.name == "cpu" else nullcontext():
        yield
