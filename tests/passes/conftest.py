"""What the tests of passes share: derivatives that they leave in caches are dropped when a module's tests are done.

Nodes are interned, with their places: what stays alive here would show up in the texts of other tests.
"""

import gc
from collections.abc import Iterator

import pytest

from livegrad.passes.differentiate.forward import push_forward
from livegrad.passes.differentiate.linearize import linearize
from livegrad.passes.differentiate.transpose import transpose_function


@pytest.fixture(scope="module", autouse=True)
def forget_derivatives() -> Iterator[None]:
    yield
    for cached in (push_forward, linearize, transpose_function):
        cached.cache_clear()
    gc.collect()
