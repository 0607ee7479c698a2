"""One page that is connected: what it shows, and what it has not received yet.

The engine thread owns the state; `send` may be called from any thread. A page gets one update, and one picture of each
view, until it acknowledges them: what happens meanwhile is merged, so that a slow page costs no memory and sees the
newest state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from livegrad.tools.studio.gate import Permission
from livegrad.tools.studio.values import Json
from livegrad.tools.studio.views import View, view_of


@dataclass(eq=False)
class Page:
    """A connected page."""

    id: int
    permission: Permission
    send: Callable[[str | bytes], None]
    is_ready: bool = False  # whether it has said hello
    is_unacknowledged: bool = False
    views: dict[str, View] = field(default_factory=dict)
    wanted: frozenset[str] = frozenset()  # blocks whose values it shows
    inspected: str | None = None  # the block whose reasons it shows
    versions: dict[str, int] = field(default_factory=dict)  # of the values that it has, by block
    operations: dict[str, Json] = field(default_factory=dict)  # changes of the graph, by block
    frame: Json | None = None  # what happened since the last update
    part_version: int = 0  # of the shader that it has; 0: none
    part_steepness: float = 0.0  # the bound that it has
    tuning_version: int = -1  # of slopes and fits that it has
    history: Json | None = None  # what undo and redo would do, as the page knows it

    def tell(self, message: Json) -> None:
        """Sends a message at once."""
        self.send(json.dumps(message, allow_nan=False))

    def change(self, operations: Iterable[Json]) -> None:
        """Notes changes of the graph; of each block, the page needs only the last one."""
        for operation in operations:
            self.operations.pop(operation["id"], None)
            self.operations[operation["id"]] = operation
            if operation["op"] == "remove":
                self.versions.pop(operation["id"], None)  # the page forgets its values; undoing brings the block back

    def note_frame(self, frame: Json) -> None:
        """Merges a frame into what the page has not received: levels are the highest since the last update."""
        if self.frame is not None:
            ran = self.frame["ran"]
            for block, level in frame["ran"].items():
                ran[block] = max(level, ran.get(block, 0))
            frame = frame | {"ran": ran, "seconds": self.frame["seconds"] | frame["seconds"]}
        self.frame = dict(frame)

    def forget(self) -> None:
        """Starts again, with a snapshot: the page shows another engine, or has reconnected."""
        self.operations.clear()
        self.versions.clear()
        self.views.clear()
        self.history, self.part_version, self.part_steepness, self.tuning_version = None, 0, 0.0, -1
        self.frame, self.is_unacknowledged, self.wanted, self.inspected = None, False, frozenset(), None

    def take_update(self, values: Json, history: Json, news: Json) -> Json | None:
        """The next update, or None if there is nothing to tell."""
        if not self.operations and self.frame is None and not values and history == self.history and not news:
            return None
        update: Json = {"type": "update", "ops": list(self.operations.values()), "values": values} | news
        if history != self.history:
            update["history"] = self.history = history
        if self.frame is not None:
            update["frame"] = self.frame
        self.operations, self.frame = {}, None
        return update


def subscribe(page: Page, message: dict[str, Any]) -> None:
    """Changes what a page shows: `blocks`, and `views` by name (see `view_of`)."""
    blocks, views = message.get("blocks"), message.get("views")
    if isinstance(blocks, list):
        page.wanted = frozenset(block for block in blocks if isinstance(block, str))
        page.versions = {block: version for block, version in page.versions.items() if block in page.wanted}
    if isinstance(views, dict):
        wanted = {name: view for name, described in views.items() if (view := view_of(described)) is not None}
        for name in page.views.keys() - wanted.keys():
            del page.views[name]
        for name, view in wanted.items():
            if name not in page.views or page.views[name].shows != view.shows:
                page.views[name] = view
    if "inspect" in message:
        page.inspected = message["inspect"] if isinstance(message["inspect"], str) else None


def parse_message(text: str | bytes) -> dict[str, Any]:
    """A message as an object; raises ValueError if it is not one.

    >>> parse_message('{"type": "hello"}')
    {'type': 'hello'}
    """
    message = json.loads(text)
    if not isinstance(message, dict):
        raise ValueError("not an object")
    return message
