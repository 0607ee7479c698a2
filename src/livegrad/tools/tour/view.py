"""Computes the camera and the backdrop with context nodes, which declare the features that they read.

`evaluate(animation_time=…, footprint=…, real_time=…)` returns a `View`. The animation time rotates the camera, and the
footprint is the size of the picture. No node needs `real_time`, so changing it computes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

import livegrad as lg
from livegrad.contexts.context_program import Program

Numbers = np.ndarray[Any, Any]
DISTANCE = 4.1


@dataclass(frozen=True)
class View:
    """The inputs of a picture: pixel positions, the camera, and the backdrop."""

    pixels: Numbers
    camera: Numbers
    backdrop: Numbers


@lg.contexts.context_node
def pixels(ctx: Annotated[lg.contexts.NodeContext, lg.contexts.Extract("footprint")]) -> Numbers:
    """The position of each pixel: right and up from the centre, with height 1 at the top."""
    width, height = ctx.footprint
    right = (np.arange(width) + 0.5 - width / 2) / (height / 2)
    up = (height / 2 - 0.5 - np.arange(height)) / (height / 2)
    return np.stack(np.meshgrid(right, up, indexing="xy"), -1).reshape(-1, 2).astype(np.float32)


@lg.contexts.context_node
def camera(ctx: Annotated[lg.contexts.NodeContext, lg.contexts.Extract("animation_time")]) -> Numbers:
    """The right, up and forward vectors and the eye, on an orbit of eight seconds that rises and falls."""
    turn, rise = 0.6 + ctx.animation_time * np.pi / 4, 0.72 + 0.28 * np.sin(ctx.animation_time * np.pi / 4)
    eye = DISTANCE * np.array([np.cos(turn) * np.cos(rise), np.sin(turn) * np.cos(rise), np.sin(rise)])
    forward = -eye / np.linalg.norm(eye)
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(right, forward), forward, eye]).astype(np.float32)


@lg.contexts.context_node
def backdrop(ctx: lg.contexts.NodeContext, pixels: Numbers) -> Numbers:
    """A sheet of paper, darker towards its corners. It needs no time feature, so it is computed once per size."""
    brightness = 1.0 - 0.035 * (pixels**2).sum(1, keepdims=True)
    return (brightness * np.array([0.955, 0.96, 0.975])).astype(np.float32)


@lg.contexts.context_node
def view(ctx: lg.contexts.NodeContext, pixels: Numbers, camera: Numbers, backdrop: Numbers) -> View:
    return View(pixels, camera, backdrop)


def make_view() -> Program:
    """The program that computes the view for a context."""
    graph = lg.ContextGraph(limits=lg.contexts.CacheLimits(node_entries=16))
    graph.node("pixels", pixels)
    graph.node("camera", camera)
    graph.node("backdrop", backdrop, pixels="pixels")
    graph.node("view", view, pixels="pixels", camera="camera", backdrop="backdrop")
    return graph.compile("view", root=["animation_time", "footprint", "real_time"])
