"""Edits that a page asks for, each with the permission that it needs.

In: an operation as JSON. Out: the edit on the engine, through the same methods that programs call. Errors are
`LivegradError`s, whose texts the page shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from livegrad.diagnostics import UsageError
from livegrad.live.blocks.bodies import edit
from livegrad.live.documents.excerpt import read_excerpt
from livegrad.live.engine import Engine
from livegrad.live.graph.block import Block, Pin, State
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.sources import Setting
from livegrad.tools.studio import clipboard, restructure
from livegrad.tools.studio.catalogue import ENTRIES, make_block, unused_name
from livegrad.tools.studio.clipboard import Clipboard
from livegrad.tools.studio.controls import value_from_json
from livegrad.tools.studio.describe import Describer
from livegrad.tools.studio.gate import Permission
from livegrad.tools.studio.restructure import home_of
from livegrad.tools.studio.sources import body_text, make_function, new_expression
from livegrad.tools.studio.values import Json

MAX_NAME = 100  # characters
_MAX_HEIGHT = 1e5  # of a node, in pixels


class MessageError(UsageError):
    """A message from a page that lacks something or has the wrong form."""

    code = "message"


@dataclass(frozen=True)
class Edits:
    """The edits of one engine."""

    engine: Engine
    describer: Describer
    clipboard: Clipboard

    def apply_all(self, operations: list[Json], permission: Permission) -> list[Json]:
        """Performs operations as one entry of the history: all of them, or none if one is refused."""
        if [operation.get("op") for operation in operations] == ["set"]:
            return [self.apply(operations[0], permission)]  # without waiting for a frame
        # In this order: cancelling a gesture waits for a running frame, which may wait for the lock of the graph.
        with self.engine.history.gesture(self._label(operations)), self.engine.edits():
            return [self.apply(operation, permission) for operation in operations]

    def _label(self, operations: list[Json]) -> str:
        """What undoing these operations is called."""
        names = {operation.get("op") for operation in operations}
        if len(operations) != 1:
            (verb,) = names if len(names) == 1 else ("edit",)
            return f"{verb} {len(operations)} blocks" if verb in ("move", "remove") else f"{len(operations)} edits"
        operation = operations[0]
        pin = operation.get("to", operation.get("pin"))
        block = self.describer.find(pin[0] if isinstance(pin, list) and pin else operation.get("block"))
        listed = operation.get("blocks")
        if isinstance(listed, list):
            return f"{operation.get('op')} {len(listed)} block{'s' * (len(listed) != 1)}"
        subject = block.name if isinstance(block, Block) else operation.get("entry")
        return f"{operation.get('op')} {subject}" if isinstance(subject, str) else str(operation.get("op"))

    def apply(self, operation: Json, permission: Permission) -> Json:
        """Performs one operation and returns its result."""
        name = operation.get("op")
        needed, perform = _OPERATIONS.get(name if isinstance(name, str) else "", (None, None))
        if needed is None or perform is None:
            raise MessageError("unknown operation", found=repr(name)[:60])
        require(permission, max(needed, self._needs(operation)))
        return perform(self, operation) or {}

    def _needs(self, operation: Json) -> Permission:
        """The permission that the content of an operation needs: Python needs more than expressions."""
        match operation:
            case {"op": "add", "entry": str() as name} if name in ENTRIES:
                return ENTRIES[name].permission
            case {"op": "paste", "text": str() as text} if clipboard.python_in(read_excerpt(text)):
                return Permission.CODE
        return Permission.VIEW

    # --- what messages name ---

    def block(self, id: Any) -> Block:
        """The block with an id."""
        block = self.describer.find(id)
        if not isinstance(block, Block) or block.home is None:
            raise MessageError("this block no longer exists")
        return block

    def graph(self, id: Any) -> Graph:
        """The graph with an id; without one, that of the engine."""
        graph = self.engine.graph if id is None else self.describer.find(id)
        if not isinstance(graph, Graph):
            raise MessageError("this graph no longer exists")
        return graph

    def pin(self, reference: Any, direction: str) -> Pin:
        """The pin that `[block id, name]` means."""
        if not isinstance(reference, list) or len(reference) != 2:
            raise MessageError("not a pin", found=repr(reference)[:60])
        block = self.block(reference[0])
        pins = block.inputs if direction == "input" else block.outputs
        pin = pins.get(reference[1]) if isinstance(reference[1], str) else None
        if pin is None:
            raise MessageError(f"`{block.name}` has no {direction} `{reference[1]}`")
        return pin

    # --- operations ---

    def set(self, operation: Json) -> None:
        pin = self.pin(operation.get("pin"), "input")
        graph = home_of(pin.block)
        source = graph.source_of(pin)
        graph.set(pin, value_from_json(operation.get("value"), source.value if isinstance(source, Setting) else None))

    def connect(self, operation: Json) -> None:
        source, target = self.pin(operation.get("from"), "output"), self.pin(operation.get("to"), "input")
        home_of(target.block).connect(source, target)

    def disconnect(self, operation: Json) -> None:
        pin = self.pin(operation.get("to"), "input")
        home_of(pin.block).disconnect(pin)

    def add(self, operation: Json) -> Json:
        name = operation.get("entry")
        entry = ENTRIES.get(name if isinstance(name, str) else "")
        if entry is None:
            raise MessageError("there is no such block", found=repr(name)[:60])
        graph = self.graph(operation.get("graph"))
        block = make_block(entry, unused_name(entry.name, graph.blocks))
        position = _position(operation.get("at"))
        with graph.editing():
            block.position = position
            graph.add(block)
            self._link(block, operation)
        return {"block": self.describer.id_of(block)}

    def _link(self, block: Block, operation: Json) -> None:
        """Connects a new block with the pin from which a wire was dropped on the canvas."""
        if "from" in operation and block.inputs:
            home_of(block).connect(self.pin(operation["from"], "output"), next(iter(block.inputs.values())))
        if "to" in operation and block.outputs:
            target = self.pin(operation["to"], "input")
            home_of(target.block).connect(next(iter(block.outputs.values())), target)

    def remove(self, operation: Json) -> None:
        block = self.block(operation.get("block"))
        home_of(block).remove(block)

    def rename(self, operation: Json) -> None:
        name = operation.get("name")
        if not isinstance(name, str) or len(name) > MAX_NAME:
            raise MessageError("not a name", expected=f"at most {MAX_NAME} characters")
        self.engine.rename(self.block(operation.get("block")), name.strip())

    def move(self, operation: Json) -> None:
        self.block(operation.get("block")).position = _position(operation.get("at"))

    def set_expression(self, operation: Json) -> None:
        block, text = self.block(operation.get("block")), _text(operation)
        if body_text(block).kind != "expression":
            raise MessageError(f"`{block.name}` is not an expression")
        edit(self.engine, block, new_expression(block, text))

    def set_code(self, operation: Json) -> None:
        block, text = self.block(operation.get("block")), _text(operation)
        if body_text(block).kind not in ("expression", "code"):
            raise MessageError(f"the code of `{block.name}` cannot be edited here")
        edit(self.engine, block, make_function(block, text))

    # --- several blocks at once ---

    def blocks(self, operation: Json) -> list[Block]:
        """The blocks that `blocks` lists, all in one graph."""
        ids = operation.get("blocks")
        if not isinstance(ids, list) or not ids:
            raise MessageError("not a list of blocks")
        blocks = list(dict.fromkeys(map(self.block, ids)))
        if any(block.home is not blocks[0].home for block in blocks):
            raise MessageError("the blocks are in several graphs")
        return blocks

    def _ids(self, blocks: Iterable[Block]) -> Json:
        return {"blocks": [self.describer.id_of(block) for block in blocks]}

    def dissolve(self, operation: Json) -> None:
        restructure.dissolve(self.block(operation.get("block")))

    def insert(self, operation: Json) -> None:
        restructure.insert(self.block(operation.get("block")), self.pin(operation.get("to"), "input"))

    def slider(self, operation: Json) -> Json:
        pin = self.pin(operation.get("pin"), "input")
        return self._ids([restructure.make_slider(self.engine, pin, _position(operation.get("at")))])

    def group(self, operation: Json) -> Json:
        return self._ids([restructure.group(self.blocks(operation), _position(operation.get("at")))])

    def ungroup(self, operation: Json) -> Json:
        block = self.block(operation.get("block"))
        if not isinstance(block, Composite):
            raise MessageError(f"`{block.name}` is not a group")
        return self._ids(restructure.ungroup(self.engine, block))

    def arrange(self, operation: Json) -> None:
        sizes = operation.get("sizes")
        heights = [
            (self.describer.find(id), height) for id, height in (sizes if isinstance(sizes, dict) else {}).items()
        ]
        graph = self.graph(operation.get("graph"))
        known = {block: float(height) for block, height in heights if isinstance(height, int | float)}
        restructure.arrange(graph, {block: height for block, height in known.items() if isinstance(block, Block)})

    def duplicate(self, operation: Json) -> Json:
        positions = operation.get("at")
        blocks = self.blocks(operation)
        if not isinstance(positions, list) or len(positions) != len(blocks):
            raise MessageError("duplicates need one position each")
        return self._ids(clipboard.duplicate(blocks, list(map(_position, positions))))

    def paste(self, operation: Json) -> Json:
        """Pastes text. Python that this Studio did not write is returned, and runs when `trust` comes back with it."""
        text = _text(operation)
        excerpt = read_excerpt(text)
        python = {} if self.clipboard.has_written(text) else clipboard.python_in(excerpt)
        if python and operation.get("trust") is not True:
            return {"untrusted": python}
        at = None if operation.get("at") is None else _position(operation["at"])
        return self._ids(clipboard.paste(excerpt, self.graph(operation.get("graph")), at))

    def rewind(self, operation: Json) -> None:
        for block in self.engine.graph.blocks.values():
            if isinstance(block, State):
                self.engine.reset(block)


def require(permission: Permission, needed: Permission) -> None:
    """Raises unless a page has a permission."""
    if permission < needed:
        help = "open the Studio with more permissions"
        raise MessageError(f"this page may not {needed.name.lower()}", found=permission.name.lower(), help=help)


def _position(at: Any) -> tuple[float, float]:
    is_pair = isinstance(at, list) and len(at) == 2 and all(isinstance(number, int | float) for number in at)
    if not is_pair or not all(math.isfinite(number) for number in at):
        raise MessageError("not a position", found=repr(at)[:60])
    return float(at[0]), float(at[1])


def _text(operation: Json) -> str:
    text = operation.get("text")
    if not isinstance(text, str):
        raise MessageError("not a text", found=type(text).__name__)
    return text


_OPERATIONS: dict[str, tuple[Permission, Callable[[Edits, Json], Json | None]]] = {
    "set": (Permission.TUNE, Edits.set),
    "rewind": (Permission.TUNE, Edits.rewind),
    "connect": (Permission.EDIT, Edits.connect),
    "disconnect": (Permission.EDIT, Edits.disconnect),
    "add": (Permission.EDIT, Edits.add),
    "remove": (Permission.EDIT, Edits.remove),
    "rename": (Permission.EDIT, Edits.rename),
    "move": (Permission.EDIT, Edits.move),
    "expression": (Permission.EDIT, Edits.set_expression),
    "code": (Permission.CODE, Edits.set_code),
    "dissolve": (Permission.EDIT, Edits.dissolve),
    "insert": (Permission.EDIT, Edits.insert),
    "slider": (Permission.EDIT, Edits.slider),
    "group": (Permission.EDIT, Edits.group),
    "ungroup": (Permission.EDIT, Edits.ungroup),
    "arrange": (Permission.EDIT, Edits.arrange),
    "duplicate": (Permission.EDIT, Edits.duplicate),
    "paste": (Permission.EDIT, Edits.paste),
}
