"""Opens the Studio: `lg.studio(engine)` in a program or a notebook, and `livegrad studio FILE` on the command line."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import webbrowser
from os import PathLike
from threading import Event
from types import TracebackType
from typing import Any, Literal

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.tools.studio.bundle import Bundle
from livegrad.tools.studio.gate import Gate, Permission, is_loopback

try:
    from livegrad.tools.studio.engine_thread import EngineThread
    from livegrad.tools.studio.server import Server
    from livegrad.tools.studio.subjects import Shelf, shelf_of
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("simplejpeg", "websockets"):
        raise
    raise UsageError(
        "the Studio needs packages that are not installed",
        where=caller_origin(),
        found=f"no {error.name}",
        help='pip install "livegrad[studio]"',
    ) from None

PermissionName = Literal["view", "tune", "edit", "code"]


class Studio:
    """An open Studio. `url` opens its page; anyone who has it may use the Studio. A notebook shows it in the cell,
    without a server. `close` ends it."""

    def __init__(self, shelf: Shelf, host: str, port: int, permission: Permission, *, serves: bool) -> None:
        self._bundle = Bundle()
        self._permission = permission
        self._engine_thread = EngineThread(shelf, self._bundle.build)
        self._server = Server(Gate(host, port), self._engine_thread, self._bundle, permission)
        self._is_serving = False
        self._widget: Any = None
        if serves:
            self._serve()
        self._engine_thread.start()
        self._is_closed = Event()

    def _serve(self) -> None:
        self._server.start()
        self._is_serving = True

    @property
    def url(self) -> str:
        """The address of the page. The part after `#` is the key, which browsers do not send to servers."""
        if not self._is_serving:
            self._serve()
        gate = self._server.gate
        host = f"[{gate.host}]" if ":" in gate.host else gate.host
        return f"http://{host}:{gate.port}/#{gate.token}"

    def wait(self) -> None:
        """Waits until the Studio is closed."""
        while not self._is_closed.wait(3600.0):
            pass

    def close(self) -> None:
        """Closes all pages. The engine goes on if the program created it."""
        if not self._is_closed.is_set():
            self._is_closed.set()
            if self._is_serving:
                self._server.close()
            self._engine_thread.close()
            if self._widget is not None:
                self._widget.close()

    @property
    def widget(self) -> Any:
        """The Studio as an anywidget, for notebooks that do not show it by themselves."""
        if self._widget is None:
            if not _is_installed("anywidget"):
                raise UsageError(
                    "notebooks need a package that is not installed",
                    where=caller_origin(),
                    found="no anywidget",
                    help='pip install "livegrad[notebook]"',
                )
            notebook = importlib.import_module("livegrad.tools.studio.notebook")
            self._widget = notebook.StudioWidget(self._engine_thread, self._bundle, self._permission)
        return self._widget

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """What Jupyter shows."""
        return self.widget._repr_mimebundle_(**options)

    def _display_(self) -> Any:
        """What marimo shows."""
        return self.widget

    def __enter__(self) -> Studio:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<studio at {self.url}>" if self._is_serving else "<studio in a notebook>"


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _is_notebook() -> bool:
    """Whether the program is a notebook that shows widgets. Asks only what is imported already."""
    marimo = sys.modules.get("marimo")
    if marimo is not None and marimo.running_in_notebook():
        return True
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def studio(
    what: Any = None,
    *,
    open_browser: bool | None = None,
    drive: bool = True,
    permission: PermissionName = "code",
    trust: bool = False,
    host: str = "127.0.0.1",
    port: int = 0,
) -> Studio:
    """Opens a page in the browser, or in the cell of a notebook, that shows a live engine: its graph, values, errors
    and pictures.

    `what` is an engine, a block, a function, a part, or the name of a file: a saved document, a 3MF file, or
    `program.py:name`. A typed function of a position (`p: lg.vec3`) is shown as a part. Without it, the page offers
    examples. Edits in the page and in the program appear in each other.

    The Studio runs the frames: after each edit, and continuously while its clock plays. With `drive=False` the program
    calls `engine.step()` itself. `permission` limits what pages may do: "view", "tune" (numbers), "edit" (the graph) or
    "code" (Python functions, which run with your rights). The code of a saved document runs only with `trust=True`, or
    after you have agreed in the page. `host` makes the Studio reachable from other machines, which then cannot edit
    code.

    `open_browser` says whether to open the browser. By default it does, except in Jupyter and marimo: there, the cell
    whose last line this call is shows the Studio, without a server.

    It needs the packages of `pip install "livegrad[studio]"`, and in notebooks those of `livegrad[notebook]`.

    >>> import livegrad as lg
    >>> engine = lg.Engine()
    >>> double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    >>> page = lg.studio(engine, open_browser=False)
    >>> page.url.startswith("http://127.0.0.1:")
    True
    >>> page.close()
    """
    level = _permission_of(permission, host)
    if not isinstance(port, int) or not 0 <= port < 1 << 16:
        raise UsageError("not a port", where=caller_origin(), expected="0 to 65535", found=shown(port))
    if isinstance(what, PathLike):
        what = str(what)
    in_cell = open_browser is None and _is_notebook() and _is_installed("anywidget")
    opened = Studio(shelf_of(what, drives=drive, trust=trust), host, port, level, serves=not in_cell)
    if open_browser or (open_browser is None and not in_cell):
        webbrowser.open(opened.url)
    return opened


def _permission_of(name: str, host: str) -> Permission:
    levels = {level.name.lower(): level for level in Permission}
    if name not in levels:
        expected = "one of " + ", ".join(levels)
        raise UsageError("unknown permission", where=caller_origin(), expected=expected, found=shown(name))
    level = levels[name]
    return level if is_loopback(host) else min(level, Permission.EDIT)
