"""What pages ask about values: pixels and points that they pick, recordings, and files to download.

In: a session and a message. Out: an answer; files follow as binary messages. Registered in `engine_thread.py`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from livegrad.diagnostics import LivegradError, UsageError
from livegrad.live.graph.block import Block, Pin
from livegrad.tools.studio.edits import MessageError, require
from livegrad.tools.studio.exports import (
    PART_EXPORTS,
    File,
    export_code,
    export_document,
    export_part,
    export_value,
)
from livegrad.tools.studio.frames import describe_error
from livegrad.tools.studio.gate import Permission
from livegrad.tools.studio.page import Page
from livegrad.tools.studio.picking import maker_of, pick_element, pick_point
from livegrad.tools.studio.pictures import pack, picture_message
from livegrad.tools.studio.recorder import ANIMATIONS, export_animation, film_program
from livegrad.tools.studio.session import Session
from livegrad.tools.studio.values import Json

_MAX_EXPORTS = 4  # of a page, at a time


class Exporter:
    """Makes files in a thread of its own, because meshes take seconds."""

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="livegrad studio export")
        self._running: dict[int, int] = {}  # how many files each page waits for

    def close(self) -> None:
        """Makes no more files."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def begin(self, page: Page, id: Any, make: Callable[[], File]) -> None:
        """Makes a file, and sends it."""
        if self._running.get(page.id, 0) >= _MAX_EXPORTS:
            raise MessageError("too many files at a time", expected=f"at most {_MAX_EXPORTS}")
        self._running[page.id] = self._running.get(page.id, 0) + 1
        self._worker.submit(self._make, page, id, make)

    def _make(self, page: Page, id: Any, make: Callable[[], File]) -> None:
        try:
            file = make()
            page.send(pack({"type": "file", "id": id, "name": file.name, "media": file.media}, file.content))
        except LivegradError as error:
            page.tell({"type": "rejected", "id": None, "error": describe_error(error)})
        except Exception as error:
            traceback.print_exc()  # a bug of ours must not end the thread
            what = f"{type(error).__name__}: {error}"
            page.tell({"type": "rejected", "id": None, "error": describe_error(UsageError(what))})
        finally:
            self._running[page.id] -= 1


def _pin(session: Session, described: Any) -> Pin:
    """An output that a page names as `[block, output]`."""
    match described:
        case [str() as id, str() as name]:
            block = session.describer.find(id)
            if isinstance(block, Block) and block.home is not None and name in block.outputs:
                return block.outputs[name]
    raise MessageError("there is no such output", found=repr(described)[:60])


# --- picking ----------------------------------------------------------------------------------------------------------


def pick(session: Session, message: Json) -> Json:
    """What is at an element of a value (`pin`, `at`), or at a point of the part (`point`)."""
    if "point" in message:
        if session.part_view is None:
            raise MessageError("this graph has no part")
        return pick_point(session.part_view.part_now(), message["point"])
    pin = _pin(session, message.get("pin"))
    value = session.value_of(pin)
    if value is None:
        raise MessageError("there is no value yet")
    element = pick_element(value, message.get("at"))
    return {"value": element, "block": session.describer.id_of(maker_of(pin))}


# --- recordings -------------------------------------------------------------------------------------------------------


def record(session: Session, page: Page, message: Json) -> Json:
    """Begins, ends or forgets the recording of an output, and shows its frames."""
    pin = _pin(session, message.get("pin"))
    match message.get("do"):
        case "start":
            require(page.permission, Permission.TUNE)
            session.recorder.start(pin)
            session.note_recordings()
        case "state":
            pass
        case "stop":
            session.recorder.stop(pin)
        case "forget":
            require(page.permission, Permission.TUNE)
            session.recorder.forget(pin)
            return {"frames": [], "running": False}
        case "show":
            frame, picture = session.recorder.recording(pin).picture(message.get("index"))
            page.send(picture_message(str(message.get("view"))[:200], frame, picture, exact=True))
        case what:
            raise MessageError("not a request for a recording", found=repr(what)[:60])
    recording = session.recorder.recording(pin)
    return {"frames": recording.frames, "running": recording.is_running}


# --- files ------------------------------------------------------------------------------------------------------------


def list_exports(session: Session, message: Json) -> Json:
    """What can be downloaded: of the graph, of a selected block, and of the part."""
    found: list[Json] = [{"what": "document", "label": "Document (.lg)", "group": "graph"}]
    block = session.describer.find(message.get("block"))
    if isinstance(block, Block):
        found.append({"what": "code", "label": "Function (Python)", "group": block.name})
    if session.part_view is not None:
        found += [{"what": what, "label": label, "group": "part"} for what, (label, _, _) in PART_EXPORTS.items()]
    films = [name for name in ANIMATIONS if name != "mp4" or film_program() is not None]
    return {"exports": found, "animations": [{"what": name, "label": ANIMATIONS[name]} for name in films]}


def export(session: Session, page: Page, message: Json, exporter: Exporter) -> Json:
    """Begins to make a file. What it needs of the engine is read here, in the engine's thread."""
    exporter.begin(page, message.get("id"), _maker(session, message))
    return {"started": True}


def _maker(session: Session, message: Json) -> Callable[[], File]:
    what = message.get("what")
    if not isinstance(what, str):
        raise MessageError("unknown kind of file", found=repr(what)[:60])
    if what == "document":
        file = export_document(session.engine, Path(session.title).stem)
        return lambda: file
    if what == "code":
        block = session.describer.find(message.get("block"))
        if not isinstance(block, Block):
            raise MessageError("there is no such block")
        code = export_code(block)
        return lambda: code
    if what in PART_EXPORTS:
        if session.part_view is None:
            raise MessageError("this graph has no part")
        part, height = session.part_view.part_now(), message.get("height")
        return lambda: export_part(part, what, height)
    pin = _pin(session, message.get("pin"))
    if what in ("npy", "csv"):
        value = session.value_of(pin)
        return lambda: export_value(pin.block.name, value, what)
    if what in ANIMATIONS:
        pictures, rate = list(session.recorder.recording(pin).pictures), session.clock.rate
        return lambda: export_animation(pin.block.name, pictures, what, rate)
    raise MessageError("unknown kind of file", found=repr(what)[:60])
