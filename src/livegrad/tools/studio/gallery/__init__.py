"""Live graphs that the Studio offers when it is opened without a file. Each module builds one engine.

`EXAMPLES` lists them in the order of the page. The modules are imported when an example is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from livegrad.tools.studio.scenes import Scene


@dataclass(frozen=True)
class Example:
    """An example: its name, which is that of its module, and what a card of the gallery says."""

    name: str
    title: str
    about: str

    def build(self) -> Scene:
        """Builds the engine of the example."""
        built = import_module(f"{__name__}.{self.name}").build()
        return built if isinstance(built, Scene) else Scene(built)


EXAMPLES = (
    Example("rings", "Rings", "A picture from five blocks. Turn a slider, change a formula, connect a wire."),
    Example("reaction", "Reaction and diffusion", "Two chemicals in states that last from frame to frame."),
    Example("descent", "Gradient descent", "A curve is fitted to points: the graph differentiates itself."),
    Example("gyroid", "Inside a part", "A cross-section through a gyroid in a ball, with its distance field."),
    Example("wheel", "The tour's wheel", "A part that is fitted, ray-marched and shaded in one live graph."),
)
