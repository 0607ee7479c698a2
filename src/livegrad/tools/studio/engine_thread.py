"""The thread of the Studio that owns engines: takes messages of pages, steps, and publishes.

In: messages that `server.py` has put into the mailbox. Out: messages for pages. No other thread touches sessions.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import nullcontext
from threading import Thread
from typing import Literal, NamedTuple

from livegrad.diagnostics import LivegradError, UsageError
from livegrad.live.engine import Engine
from livegrad.tools.studio.catalogue import entries
from livegrad.tools.studio.clipboard import Clipboard
from livegrad.tools.studio.edits import MAX_NAME, MessageError, require
from livegrad.tools.studio.frames import describe_error
from livegrad.tools.studio.gate import Permission
from livegrad.tools.studio.inquiries import INQUIRIES
from livegrad.tools.studio.mailbox import Mailbox
from livegrad.tools.studio.page import Page, subscribe
from livegrad.tools.studio.scenes import Scene
from livegrad.tools.studio.session import Session
from livegrad.tools.studio.sources import body_text
from livegrad.tools.studio.stopping import Stopper
from livegrad.tools.studio.subjects import Shelf, Subject
from livegrad.tools.studio.values import Json
from livegrad.tools.studio.view_requests import Exporter, export, list_exports, pick, record

PROTOCOL_VERSION = 1


class Arrival(NamedTuple):
    """A message of a page; None: the page has gone."""

    page: Page
    message: Json | None


class EngineThread:
    """Runs the engine that pages show. `shelf` lists what else they can open."""

    def __init__(self, shelf: Shelf, build: str) -> None:
        self.mailbox: Mailbox[Arrival] = Mailbox()
        self.session: Session | None = None
        self._shelf, self._build = shelf, build
        # Opened here, so that errors are those of the caller.
        self._first = None if shelf.subject is None else (shelf.subject, shelf.subject.open())
        self._pages: list[Page] = []
        self._exporter = Exporter()
        self._clipboard = Clipboard()
        self.stopper = Stopper()  # used by the server's thread
        self._is_closing = False
        self._owned: Engine | None = None  # closed with its session
        self._thread = Thread(target=self._run, name="livegrad studio", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, after the frame that it runs."""
        self._is_closing = True
        self.mailbox.wake()
        self._thread.join()

    def receive(self, page: Page, message: Json) -> None:
        """Puts a message of a page into the mailbox. Called by the server's thread."""
        key = None
        if message.get("type") == "edit":
            match message.get("ops"):
                case [{"op": "set", "pin": [str() as block, str() as pin]}] if "id" not in message:
                    key = page.id, block, pin
        elif message.get("type") == "pull" and message.get("do") == "move" and "id" not in message:
            key = page.id, "pull"
        self.mailbox.put(Arrival(page, message), key)

    def leave(self, page: Page) -> None:
        """Says that a page has gone."""
        self.mailbox.put(Arrival(page, None), ("gone", page.id), even_if_full=True)

    # --- the thread ---

    def _run(self) -> None:
        try:
            if self._first is not None:
                self._begin(*self._first)
            while not self._is_closing:
                self._turn()
        finally:
            self._close_session()
            self._exporter.close()

    def _turn(self) -> None:
        pages = [page for page in self._pages if page.is_ready]
        timeout = None if self.session is None else self.session.seconds_until_due(pages)
        for page, message in self.mailbox.take(timeout):
            self._handle(page, message)
        session = self.session
        if session is not None:
            pages = [page for page in self._pages if page.is_ready]
            session.run(pages)
            for page in pages:
                session.publish(page)

    def _handle(self, page: Page, message: Json | None) -> None:
        """Performs a message. An error goes back to the page, and ends nothing."""
        if message is None:
            self._pages = [other for other in self._pages if other is not page]
            if self.session is not None:
                self.session.tuner.leave(page)
                self.session.gestures.end(page)
            return
        try:
            kind = message.get("type")
            name = kind if isinstance(kind, str) else ""
            handler, inquiry = _HANDLERS.get(name), INQUIRIES.get(name)
            if handler is None and inquiry is None:
                raise MessageError("unknown message", found=repr(kind)[:60])
            if not page.is_ready and kind != "hello":
                raise MessageError("a page must say hello first")
            with nullcontext() if self.session is None else self.session.turn():
                if inquiry is not None:
                    answer: Json | None = inquiry(self._require_session(), page, message)
                else:
                    assert handler is not None
                    answer = handler(self, page, message)
            if "id" in message:
                page.tell({"type": "done", "id": message["id"], **(answer or {})})
        except LivegradError as error:
            page.tell({"type": "rejected", "id": message.get("id"), "error": describe_error(error)})
        except Exception as error:
            # A bug of ours or of a user's function must not end the thread, which would leave pages without answers.
            traceback.print_exc()
            what = f"{type(error).__name__}: {error}"
            page.tell({"type": "rejected", "id": message.get("id"), "error": describe_error(UsageError(what))})

    # --- messages ---

    def _hello(self, page: Page, message: Json) -> None:
        if message.get("protocol") != PROTOCOL_VERSION or message.get("build") != self._build:
            help = "reload the page"
            raise MessageError("this page belongs to another version of the Studio", help=help)
        if page not in self._pages:
            self._pages.append(page)
        page.is_ready = True
        page.tell(
            {
                "type": "welcome",
                "page": page.id,
                "permission": page.permission.name.lower(),
                "catalogue": entries(page.permission),
                "gallery": self._shelf.gallery(),
            }
        )
        self._show(page)

    def _show(self, page: Page) -> None:
        """Shows the engine, or the gallery if there is none."""
        page.forget()
        if self.session is not None:
            page.tell(self.session.snapshot())
        else:
            page.tell({"type": "gallery", "untrusted": self._shelf.untrusted()})

    def _edit(self, page: Page, message: Json) -> Json:
        operations = message.get("ops")
        if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
            raise MessageError("an edit has a list of operations")
        session = self._require_session()
        results = session.edits.apply_all(operations, page.permission)
        if any(operation.get("op") == "rewind" for operation in operations):
            session.clock.rewind()
        return {"results": results}

    def _clock(self, page: Page, message: Json) -> None:
        require(page.permission, Permission.TUNE)
        session = self._require_session()
        clock = session.clock
        if isinstance(message.get("playing"), bool):
            clock.play(message["playing"])
        if message.get("step") is True:
            clock.play(False)
            clock.step()
        rate = message.get("rate")
        if isinstance(rate, int | float):
            clock.set_rate(float(rate))
        speed, time = message.get("speed"), message.get("seek")
        if isinstance(speed, int | float):
            clock.set_speed(float(speed))
        if isinstance(time, int | float):
            session.seek(float(time))
        for other in self._pages:
            other.tell({"type": "clock", **clock.describe()})

    def _gesture(self, page: Page, message: Json) -> None:
        """Begins, commits or cancels a gesture, such as turning a slider: its edits are one entry of the history."""
        require(page.permission, Permission.TUNE)
        gestures = self._require_session().gestures
        match message.get("do"), message.get("label"):
            case "begin", str() as label if 0 < len(label) <= MAX_NAME:
                gestures.begin(page, label)
            case "commit", _:
                gestures.end(page)
            case "cancel", _:
                gestures.end(page, cancel=True)
            case what, _:
                raise MessageError("not a gesture", found=repr(what)[:60])

    def _undo(self, page: Page, message: Json) -> Json:
        return self._travel(page, "undo")

    def _redo(self, page: Page, message: Json) -> Json:
        return self._travel(page, "redo")

    def _travel(self, page: Page, direction: Literal["undo", "redo"]) -> Json:
        require(page.permission, Permission.EDIT)
        session = self._require_session()
        session.tuner.follow_travel()
        session.gestures.end()
        history = session.engine.history
        return {"label": history.undo() if direction == "undo" else history.redo()}

    def _source(self, page: Page, message: Json) -> Json:
        text = body_text(self._require_session().edits.block(message.get("block")))
        return {"kind": text.kind, "text": text.text}

    def _acknowledge(self, page: Page, message: Json) -> None:
        view = page.views.get(str(message.get("view"))) if "view" in message else None
        if view is not None:
            view.is_unacknowledged = False
        elif "view" not in message:
            page.is_unacknowledged = False

    def _subscribe(self, page: Page, message: Json) -> None:
        subscribe(page, message)

    def _choose_target(self, page: Page, message: Json) -> None:
        require(page.permission, Permission.TUNE)
        self._require_session().tuner.choose(page, message)

    def _pin(self, page: Page, message: Json) -> None:
        require(page.permission, Permission.TUNE)
        self._require_session().tuner.pin(page, message)

    def _pull(self, page: Page, message: Json) -> None:
        require(page.permission, Permission.TUNE)
        self._require_session().tuner.pull(page, message)

    def _fit(self, page: Page, message: Json) -> None:
        require(page.permission, Permission.TUNE)
        self._require_session().tuner.fit(page, message)

    def _pick(self, page: Page, message: Json) -> Json:
        return pick(self._require_session(), message)

    def _record(self, page: Page, message: Json) -> Json:
        return record(self._require_session(), page, message)

    def _list_exports(self, page: Page, message: Json) -> Json:
        return list_exports(self._require_session(), message)

    def _export(self, page: Page, message: Json) -> Json:
        return export(self._require_session(), page, message, self._exporter)

    def _preset(self, page: Page, message: Json) -> None:
        needed = Permission.TUNE if message.get("do") == "apply" else Permission.EDIT
        require(page.permission, needed)
        self._require_session().tuner.preset(page, message)

    def _compare(self, page: Page, message: Json) -> None:
        require(page.permission, Permission.TUNE)
        self._require_session().tuner.compare(page, message)

    def _animate(self, page: Page, message: Json) -> None:
        require(page.permission, Permission.TUNE)
        self._require_session().tuner.animate(page, message)

    def _show_slope(self, page: Page, message: Json) -> None:
        require(page.permission, Permission.TUNE)
        view = self._require_session().part_view
        if view is None:
            raise MessageError("there is no surface here")
        view.show_slope(message.get("parameter"))

    def _open_example(self, page: Page, message: Json) -> None:
        require(page.permission, Permission.EDIT)
        self._open(self._shelf.example(message.get("name")))
        for other in self._pages:
            self._show(other)

    def _trust(self, page: Page, message: Json) -> None:
        require(page.permission, Permission.CODE)
        self._open(self._shelf.trusted())
        for other in self._pages:
            self._show(other)

    def _restore(self, page: Page, message: Json) -> None:
        """Opens the draft of the document that is open. Its code runs after agreement, as that of any document."""
        require(page.permission, Permission.EDIT)
        draft = self._require_session().draft
        if draft is None or not draft.offers_draft:
            raise MessageError("there is no newer draft")
        subject = self._shelf.draft(draft.path)
        if subject is None:
            self._close_session()
        else:
            self._open(subject)
        for other in self._pages:
            self._show(other)

    def _leave_engine(self, page: Page, message: Json) -> None:
        require(page.permission, Permission.EDIT)
        if self._shelf.has_gallery:
            self._close_session()
        for other in self._pages:
            self._show(other)

    def _require_session(self) -> Session:
        if self.session is None:
            raise MessageError("no graph is open")
        return self.session

    def _open(self, subject: Subject) -> None:
        self._begin(subject, subject.open())

    def _begin(self, subject: Subject, scene: Scene) -> None:
        self._close_session()
        engine = scene.engine
        wake, drives = self.mailbox.wake, subject.drives
        self.session = Session(scene, subject.title, wake, self._clipboard, self.stopper, drives=drives)
        self._owned = engine if subject.is_owned else None
        if subject.is_owned:
            engine.history.clear()  # how it was built is not for the user to undo

    def _close_session(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            session.close()
            if self._owned is not None:
                self._owned.close()


_HANDLERS: dict[str, Callable[[EngineThread, Page, Json], Json | None]] = {
    "hello": EngineThread._hello,
    "edit": EngineThread._edit,
    "clock": EngineThread._clock,
    "gesture": EngineThread._gesture,
    "undo": EngineThread._undo,
    "redo": EngineThread._redo,
    "source": EngineThread._source,
    "ack": EngineThread._acknowledge,
    "subscribe": EngineThread._subscribe,
    "pick": EngineThread._pick,
    "record": EngineThread._record,
    "exports": EngineThread._list_exports,
    "export": EngineThread._export,
    "open": EngineThread._open_example,
    "trust": EngineThread._trust,
    "leave": EngineThread._leave_engine,
    "restore": EngineThread._restore,
    "target": EngineThread._choose_target,
    "pin": EngineThread._pin,
    "pull": EngineThread._pull,
    "fit": EngineThread._fit,
    "heat": EngineThread._show_slope,
    "preset": EngineThread._preset,
    "compare": EngineThread._compare,
    "animate": EngineThread._animate,
}
