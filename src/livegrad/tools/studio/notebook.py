"""The Studio in a cell of a notebook: the page as a widget, whose messages travel over the widget's own channel.

In: an engine thread. Out: an anywidget, which Jupyter, marimo and others show. Imported when a notebook shows a Studio.
The notebook decides who may run code; the widget may do what its Studio may do.
"""

from __future__ import annotations

import itertools
from typing import Any

import anywidget
import traitlets

from livegrad.tools.studio.bundle import FOLDER, Bundle
from livegrad.tools.studio.engine_thread import EngineThread
from livegrad.tools.studio.gate import MAX_MESSAGE, Permission
from livegrad.tools.studio.mailbox import MailboxFull
from livegrad.tools.studio.page import Page, parse_message

MAX_PAGES = 32  # views of one widget
_FIRST_ID = 1 << 20  # pages of the server have smaller ids


class StudioWidget(anywidget.AnyWidget):
    """The Studio as a widget. Each place that shows it is a page of the engine thread."""

    _esm = FOLDER / "studio.js"
    build = traitlets.Unicode().tag(sync=True)
    styles = traitlets.Unicode().tag(sync=True)
    height = traitlets.Int(560).tag(sync=True)

    def __init__(self, engine_thread: EngineThread, bundle: Bundle, permission: Permission) -> None:
        super().__init__(build=bundle.build, styles=(FOLDER / "studio.css").read_text(encoding="utf-8"))
        self._engine_thread, self._permission = engine_thread, permission
        self._numbers = itertools.count(_FIRST_ID)
        self._pages: dict[str, Page] = {}
        self.on_msg(self._take_message)

    def _take_message(self, _: Any, content: Any, buffers: Any) -> None:
        """Takes a message of the front end: `page` names the place, `text` is what it says."""
        match content:
            case {"page": str() as name, "leave": True}:
                self._leave(name)
            case {"page": str() as name, "text": str() as text} if len(text) <= MAX_MESSAGE:
                self._receive(name, text)

    def _receive(self, name: str, text: str) -> None:
        page = self._pages.get(name)
        if page is None:
            if len(self._pages) >= MAX_PAGES:
                self._leave(next(iter(self._pages)))  # the oldest: a notebook that is closed says nothing
            page = Page(next(self._numbers), self._permission, lambda message: self._tell(name, message))
            self._pages[name] = page
        try:
            self._engine_thread.receive(page, parse_message(text))
        except (ValueError, RecursionError, MailboxFull):
            self._leave(name)

    def _tell(self, name: str, message: str | bytes) -> None:
        if self.comm is None or name not in self._pages:
            return
        if isinstance(message, str):
            self.send({"page": name, "text": message})
        else:
            self.send({"page": name}, [message])

    def _leave(self, name: str) -> None:
        page = self._pages.pop(name, None)
        if page is not None:
            self._engine_thread.leave(page)
