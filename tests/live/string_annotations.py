"""Functions whose annotations are strings, some with names that exist for type checkers only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import livegrad as lg

if TYPE_CHECKING:
    from livegrad import Tensor

LABEL = "Tint"


def tinted(x: Tensor, tint: Annotated[Tensor, lg.Control(kind="colour", label=LABEL)]):
    return x * tint


def unknown_names(x: Annotated[Tensor, lg.Control(0, LIMIT)] = 1.0):  # noqa: F821  # type: ignore[name-defined]
    return x
