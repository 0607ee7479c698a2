"""Simplifies the loop dimensions of a kernel step: drops dimensions of 1, and merges contiguous dimensions.

Most kernels then have one long dimension. All backends use the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from livegrad.schedule.plan import KernelStep

# row: the stride between consecutive short rows; near: a small stride between lanes.
StrideKind = Literal["zero", "one", "row", "any", "near -1", "near 2", "near 3", "near 4"]
# Strides at which whole vectors are loaded and shuffled.
NEAR: dict[int, StrideKind] = {-1: "near -1", 2: "near 2", 3: "near 3", 4: "near 4"}


@dataclass
class Dimensions:
    """The sizes of the domain and the inner dimensions, and the strides of each read and output along all of them."""

    domain: list[int]
    inner: list[int]
    reads: list[list[int]]
    outputs: list[list[int]]


def loop_dimensions(step: KernelStep) -> Dimensions:
    """The simplified dimensions of a step. A kernel that uses an index as a value keeps its dimensions."""
    kernel = step.kernel
    domain, inner = list(step.domain), list(step.inner)
    strides = [list(view.strides) for view in (*step.reads, *step.outputs)]
    if not kernel.uses_index:
        if not step.chunk:
            _merge(inner, strides, len(domain), len(inner), keep=1 if inner else 0)
        # The chunk dimension and the dimension that it splits must stay separate.
        chunks, rows = (domain[:1], domain[1:]) if step.chunk else ([], domain)
        _merge(rows, strides, len(chunks), len(rows), keep=0)
        domain = [*chunks, *rows]
    return Dimensions(domain, inner, strides[: len(step.reads)], strides[len(step.reads) :])


def _merge(sizes: list[int], strides: list[list[int]], offset: int, count: int, keep: int) -> None:
    position = count - 1
    while position >= 0 and len(sizes) > keep:
        if sizes[position] == 1:
            _remove(sizes, strides, offset, position)
            count -= 1
        elif position + 1 < count and all(
            access_strides[offset + position] == access_strides[offset + position + 1] * sizes[position + 1]
            for access_strides in strides
        ):
            sizes[position + 1] *= sizes[position]
            _remove(sizes, strides, offset, position)
            count -= 1
        position -= 1


def _remove(sizes: list[int], strides: list[list[int]], offset: int, position: int) -> None:
    del sizes[position]
    for access_strides in strides:
        del access_strides[offset + position]


def stride_kinds(rows: Sequence[Sequence[int]]) -> tuple[tuple[StrideKind, ...], ...]:
    """Classifies strides as far as code depends on them: zero, one element, or any other.

    >>> stride_kinds([[0, 1], [512, 1]])
    (('zero', 'one'), ('any', 'one'))
    """
    return tuple(tuple("zero" if s == 0 else "one" if s == 1 else "any" for s in row) for row in rows)


def is_transposed(kinds: Sequence[StrideKind], domain_rank: int, reading: bool) -> bool:
    """Whether an access is (almost) contiguous along the last inner dimension, but not along the lanes.

    Writes must be contiguous.

    >>> is_transposed(("any", "one"), 1, True), is_transposed(("one", "any"), 1, True)
    (True, False)
    >>> is_transposed(("any", "near 2"), 1, False)
    False
    """
    near = ("one", *NEAR.values()) if reading else ("one", NEAR[-1])
    return domain_rank > 0 and kinds[domain_rank - 1] == "any" and kinds[-1] in near
