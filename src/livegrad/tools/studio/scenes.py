"""What a subject opens: an engine and, if it shows a part, the block that computes the part's field.

Built by `sections.py`, the gallery and `subjects.py`; the engine thread opens it.
"""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.implicit.bodies.part import Part
from livegrad.live.engine import Engine
from livegrad.live.graph.block import Block


@dataclass(frozen=True)
class PartField:
    """A part, and the block whose inputs have the names of its parameters and tables."""

    part: Part
    block: Block


@dataclass(frozen=True)
class Scene:
    """An engine to show. `field` is what its 3D view draws."""

    engine: Engine
    field: PartField | None = None
