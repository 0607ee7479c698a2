"""Runs GLSL in headless Chromium, whose software WebGL 2 needs no GPU. Shared by tests and the fuzzer of shaders."""

from __future__ import annotations

import shutil
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FLAGS = [
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
]
_CHECK_WGSL = """
async (texts) => {
    const adapter = await navigator.gpu?.requestAdapter();
    if (!adapter) return null;
    const device = await adapter.requestDevice();
    const problems = [];
    for (const code of texts) {
        device.pushErrorScope("validation");
        const {messages} = await device.createShaderModule({code}).getCompilationInfo();
        await device.popErrorScope();
        problems.push(...messages.filter(({type}) => type === "error").map(({message}) => message));
    }
    return problems;
}
"""
# Expects the texts `vertex` and `fragment` and the context `gl`; leaves the program in use.
LINK_PROGRAM = """\
    const compile = (kind, text) => {
        const shader = gl.createShader(kind);
        gl.shaderSource(shader, text);
        gl.compileShader(shader);
        if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
        return shader;
    };
    const program = gl.createProgram();
    gl.attachShader(program, compile(gl.VERTEX_SHADER, vertex));
    gl.attachShader(program, compile(gl.FRAGMENT_SHADER, fragment));
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
    gl.useProgram(program);
"""
_SCRIPT = """
({vertex, fragment, width, height, columns, rows, data, tables}) => {
    const gl = (window.lgContext ??= new OffscreenCanvas(1, 1).getContext("webgl2"));
    if (!gl) throw new Error("no WebGL 2");
@LINK@
    const kinds = {
        f: [gl.R32F, gl.RED, gl.FLOAT, Float32Array],
        i: [gl.R32I, gl.RED_INTEGER, gl.INT, Int32Array],
        u: [gl.R32UI, gl.RED_INTEGER, gl.UNSIGNED_INT, Uint32Array],
    };
    const textures = [];
    const bind = (name, kind, width, height, words) => {
        const [internal, format, type, View] = kinds[kind];
        const texture = gl.createTexture();
        gl.activeTexture(gl.TEXTURE0 + textures.length);
        gl.bindTexture(gl.TEXTURE_2D, texture);
        gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
        gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
        gl.texImage2D(
            gl.TEXTURE_2D, 0, internal, width, height, 0, format, type, new View(new Uint32Array(words).buffer));
        gl.uniform1i(gl.getUniformLocation(program, name), textures.length);
        textures.push(texture);
    };
    bind("lg_inputs", "u", columns, rows, data);
    for (const {name, kind, width, height, words} of tables) bind(name, kind, width, height, words);
    const target = gl.createTexture();
    gl.activeTexture(gl.TEXTURE0 + textures.length);
    gl.bindTexture(gl.TEXTURE_2D, target);
    gl.texStorage2D(gl.TEXTURE_2D, 1, gl.RGBA32UI, width, height);
    gl.bindFramebuffer(gl.FRAMEBUFFER, gl.createFramebuffer());
    gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, target, 0);
    gl.viewport(0, 0, width, height);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    const pixels = new Uint32Array(width * height * 4);
    gl.readPixels(0, 0, width, height, gl.RGBA_INTEGER, gl.UNSIGNED_INT, pixels);
    const error = gl.getError();
    if (error) throw new Error("WebGL error " + error);
    for (const texture of [...textures, target]) gl.deleteTexture(texture);
    gl.deleteProgram(program);
    return Array.from(pixels.filter((_, index) => index % 4 === 0));
}
""".replace("@LINK@", LINK_PROGRAM)
_VERTEX = """#version 300 es
void main()
{
    gl_Position = vec4(vec2(gl_VertexID & 1, gl_VertexID >> 1) * 4.0 - 1.0, 0.0, 1.0);
}
"""


@cache
def reason_for_no_browser() -> str | None:
    """Why no browser can run here, or None if one can."""
    if find_spec("playwright") is None:
        return "playwright is not installed"
    if shutil.which("chromium") is None:
        return "chromium is not installed"
    return None


class Browser:
    """A headless Chromium with one page."""

    def __init__(self) -> None:
        from playwright.sync_api import sync_playwright  # pyright: ignore[reportMissingImports]

        self._playwright: Any = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_FLAGS)
        self.page: Any = self._browser.new_page()

    def close(self) -> None:
        self._browser.close()
        self._playwright.stop()

    def check_wgsl(self, texts: list[str]) -> list[str] | None:
        """What the browser's compiler finds wrong with shaders, or None without WebGPU. Needs a page over http."""
        return self.page.evaluate(_CHECK_WGSL, texts)

    def run_glsl(
        self, fragment: str, outputs: int, inputs: NDArray[np.uint32], tables: dict[str, NDArray[Any]]
    ) -> NDArray[np.uint32]:
        """The bits that a fragment shader computes, of shape (outputs, points), from inputs of shape (count, points).

        The shader finds its inputs in the texture `lg_inputs` and its place in `gl_FragCoord`: x is the point, y the
        output.
        """
        count, points = inputs.shape
        arguments = {
            "vertex": _VERTEX,
            "fragment": fragment,
            "width": points,
            "height": outputs,
            "columns": points,
            "rows": count,
            "data": inputs.reshape(-1).tolist(),
            "tables": [_texture(name, table) for name, table in tables.items()],
        }
        words = self.page.evaluate(_SCRIPT, arguments)
        return np.array(words, np.uint32).reshape(outputs, points)


def _texture(name: str, table: NDArray[Any]) -> dict[str, Any]:
    words, width, height = texture_words(table)
    return {"name": name, "kind": kind_of(table), "width": width, "height": height, "words": words.tolist()}


def kind_of(table: NDArray[Any]) -> str:
    """Whether the elements of a table are stored as f: floats, i: signed or u: unsigned integers."""
    return {"f": "f", "i": "i"}.get(table.dtype.kind, "u")


def texture_words(table: NDArray[Any]) -> tuple[NDArray[np.uint32], int, int]:
    """The elements of a table as 32-bit words in rows of 2048, with the width and the height."""
    dtype = {"f": np.float32, "i": np.int32, "u": np.uint32}[kind_of(table)]
    flat = np.ascontiguousarray(table, dtype).reshape(-1).view(np.uint32)
    width = 2048
    height = max(1, -(-len(flat) // width))
    return np.concatenate([flat, np.zeros(width * height - len(flat), np.uint32)]), width, height
