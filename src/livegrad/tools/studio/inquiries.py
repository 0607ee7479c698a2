"""What pages ask about the open graph: the text of blocks, which pins fit, the history, and why blocks ran.

In: a message and the session. Out: the answer as JSON. Called by `engine_thread.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from livegrad.live.graph.block import Block
from livegrad.tools.studio.compatibility import Fits
from livegrad.tools.studio.edits import MessageError, require
from livegrad.tools.studio.gate import Permission
from livegrad.tools.studio.page import Page
from livegrad.tools.studio.session import Session
from livegrad.tools.studio.values import Json

_MAX_TRAVEL = 1000


def _copy(session: Session, page: Page, message: Json) -> Json:
    """The text of some blocks."""
    with session.engine.graph.editing():
        return {"text": session.edits.clipboard.copy(session.edits.blocks(message))}


def _fits(session: Session, page: Page, message: Json) -> Json:
    """Which inputs an output may feed, or which outputs may feed an input, and which new blocks fit."""
    with session.engine.graph.editing():
        fits = Fits(session.engine, page.permission)
        if "from" in message:
            refused, entries = fits.of_output(session.edits.pin(message["from"], "output"))
        else:
            refused, entries = fits.of_input(session.edits.pin(message.get("to"), "input"))
    id_of = session.describer.id_of
    return {
        "refused": {f"{id_of(pin.block)}.{pin.name}": reason for pin, reason in refused.items()},
        "entries": entries,
    }


def _history(session: Session, page: Page, message: Json) -> Json:
    """The entries of the history, from the oldest to the newest."""
    entries = session.engine.history.entries
    return {"entries": [{"label": entry.label, "undone": entry.is_undone} for entry in entries]}


def _travel(session: Session, page: Page, message: Json) -> Json:
    """Undoes (or redoes, if `steps` is negative) several entries of the history."""
    require(page.permission, Permission.EDIT)
    steps = message.get("steps")
    if not isinstance(steps, int) or abs(steps) > _MAX_TRAVEL:
        raise MessageError("not a number of steps", found=repr(steps)[:60])
    session.gestures.end()
    history = session.engine.history
    for _ in range(abs(steps)):
        if (history.undo() if steps > 0 else history.redo()) is None:
            break
    return _history(session, page, message)


def _frames(session: Session, page: Page, message: Json) -> Json:
    """The last frames in which something happened, from the oldest to the newest."""
    return {"frames": session.frame_log.list(session.describer)}


def _why(session: Session, page: Page, message: Json) -> Json:
    """Why a block, or each block of a graph, ran in a frame or did not."""
    number = message.get("frame")
    frame = session.frame_log.find(number if isinstance(number, int) else None)
    if frame is None:
        raise MessageError("this frame is no longer remembered", found=repr(number)[:60])
    if "block" in message:
        blocks = [session.edits.block(message["block"])]
    else:
        blocks = list[Block](session.edits.graph(message.get("graph")).blocks.values())
    reasons = session.frame_log.reasons(frame, blocks, session.describer)
    return {"frame": frame.number, "reasons": reasons}


def _save(session: Session, page: Page, message: Json) -> Json:
    """Saves the document to the file from which it was opened. Nothing else ever writes that file."""
    require(page.permission, Permission.EDIT)
    if session.draft is None:
        raise MessageError("this graph was not opened from a document", help="engine.save(path) writes one")
    session.draft.save()
    return {}


INQUIRIES: dict[str, Callable[[Session, Page, Json], Json]] = {
    "copy": _copy,
    "fits": _fits,
    "history": _history,
    "travel": _travel,
    "frames": _frames,
    "why": _why,
    "save": _save,
}
