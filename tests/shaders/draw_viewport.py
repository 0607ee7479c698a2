"""Draws a viewport shader in the browser, with the camera of `lg.render`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.implicit.bodies.rendering import _view_axes
from livegrad.implicit.shaders.viewport_shader import ViewportShader
from livegrad.implicit.shaders.viewport_text import VERTEX
from tests.shaders.browser import LINK_PROGRAM, Browser

_SCRIPT = """
({vertex, fragment, width, height, uniforms, textures}) => {
    const canvas = new OffscreenCanvas(width, height);
    const gl = canvas.getContext("webgl2", {antialias: false, preserveDrawingBuffer: true});
@LINK@
    const setters = {float: "f", int: "i", uint: "ui", bool: "i"};
    for (const {identifier, kind, size, value, count} of uniforms) {
        const at = gl.getUniformLocation(program, identifier);
        gl[`uniform${count ? 1 : size}${setters[kind]}v`](at, value);
    }
    const kinds = {
        float: [gl.R32F, gl.RED, gl.FLOAT, Float32Array],
        int: [gl.R32I, gl.RED_INTEGER, gl.INT, Int32Array],
        uint: [gl.R32UI, gl.RED_INTEGER, gl.UNSIGNED_INT, Uint32Array],
    };
    textures.forEach(({identifier, kind, width, height, pixels}, index) => {
        const [internal, format, type, View] = kinds[kind];
        const bytes = Uint8Array.from(atob(pixels), (letter) => letter.charCodeAt(0));
        gl.activeTexture(gl.TEXTURE0 + index);
        gl.bindTexture(gl.TEXTURE_2D, gl.createTexture());
        gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
        gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
        gl.texImage2D(gl.TEXTURE_2D, 0, internal, width, height, 0, format, type, new View(bytes.buffer));
        gl.uniform1i(gl.getUniformLocation(program, identifier), index);
    });
    gl.viewport(0, 0, width, height);
    const started = performance.now();
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    const pixels = new Uint8Array(width * height * 4);
    gl.readPixels(0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
    const error = gl.getError();
    if (error) throw new Error("WebGL error " + error);
    return [Array.from(pixels), performance.now() - started];
}
""".replace("@LINK@", LINK_PROGRAM)
BACKGROUND = (0.96, 0.965, 0.975)
COLOR = (0.93, 0.66, 0.28)


def view_uniforms(viewport: ViewportShader, size: tuple[int, int], direction: Any) -> dict[str, Any]:
    """The uniforms of the view that `lg.render` draws of the same box."""
    low, high = np.array(viewport.low), np.array(viewport.high)
    axes, centre = _view_axes(direction), (low + high) / 2
    ends = np.stack([low, high])
    corners = np.array([[ends[i, 0], ends[j, 1], ends[k, 2]] for i in (0, 1) for j in (0, 1) for k in (0, 1)])
    half = np.abs((corners - centre) @ axes.T).max(0)
    pixel = float(max(2 * half[0] / size[0], 2 * half[1] / size[1])) * 1.05
    right, up, forward = (axis.tolist() for axis in axes)
    return {
        "lg_size": list(size), "lg_target": centre.tolist(), "lg_right": right, "lg_up": up, "lg_forward": forward,
        "lg_pixel": pixel, "lg_low": list(viewport.low), "lg_high": list(viewport.high),
        "lg_steepness": viewport.steepness, "lg_steps": 4096, "lg_section": [0, 0, 0, 0], "lg_spacing": 0.0,
        "lg_display": 0, "lg_scale": 1.0, "lg_plate": 0.0, "lg_color": COLOR, "lg_background": BACKGROUND,
        "lg_picked": [-1, -1],
    }  # fmt: skip


def draw(
    browser: Browser,
    viewport: ViewportShader,
    size: tuple[int, int],
    direction: Any = (-0.6, 0.75, -0.5),
    *,
    canvas: Any = None,
    **changes: Any,
) -> tuple[NDArray[np.float64], float]:
    """The picture as an array of shape (height, width, 4) from 0 to 1, top row first, and the milliseconds it took.

    Changes set uniforms by name.
    """
    listed = {uniform.name: uniform for uniform in viewport.shader.uniforms}
    values = view_uniforms(viewport, size, direction)
    values |= {name: value for name, value in changes.items() if name not in listed}
    uniforms = [
        {
            "identifier": name,
            "kind": "int" if name in ("lg_steps", "lg_display") else "float",
            "size": len(np.atleast_1d(value)),
            "value": np.atleast_1d(value).tolist(),
            "count": False,
        }
        for name, value in values.items()
    ]
    for name, uniform in listed.items():
        value = np.atleast_1d(changes.get(name, uniform.value)).reshape(-1).tolist()
        identifier, kind, count = uniform.identifier, uniform.kind, uniform.is_list
        uniforms.append({"identifier": identifier, "kind": kind, "size": uniform.size, "value": value, "count": count})
    width, height = canvas or size
    arguments = {
        "vertex": VERTEX,
        "fragment": str(viewport),
        "width": width,
        "height": height,
        "uniforms": uniforms,
        "textures": viewport.to_json()["textures"],
    }
    pixels, milliseconds = browser.page.evaluate(_SCRIPT, arguments)
    picture = np.array(pixels, np.uint8).reshape(height, width, 4)[::-1]
    return picture / 255.0, milliseconds
