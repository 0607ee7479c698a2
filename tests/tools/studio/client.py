"""A page without a browser: speaks the protocol of the Studio over a socket."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from typing import Any

from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from livegrad.tools.studio.gate import PROTOCOL
from livegrad.tools.studio.open_studio import Studio

TIMEOUT = 20.0  # of a test that hangs; nothing depends on it
Json = dict[str, Any]


def open_socket(
    studio: Studio, *, origin: str | None = "", token: str | None = None, host: str | None = None
) -> ClientConnection:
    """Opens a socket as a page would, or as an attacker would."""
    gate = studio._server.gate
    address = f"127.0.0.1:{gate.port}"
    protocols = [PROTOCOL] + ([] if token == "" else [f"token.{gate.token if token is None else token}"])
    manager = connect(
        f"ws://{host or address}/socket",
        origin=None if origin is None else Origin(origin or f"http://{address}"),
        subprotocols=[Subprotocol(name) for name in protocols],
        sock=socket.create_connection(("127.0.0.1", gate.port)),  # whatever the name resolves to
        open_timeout=TIMEOUT,
        max_size=None,
        compression=None,
    )
    return manager.__enter__()


class TestPage:
    """A page that follows the graph as the browser's page does."""

    __test__ = False

    def __init__(self, studio: Studio, *, acknowledges: bool = True) -> None:
        self.socket = open_socket(studio)
        self.acknowledges = acknowledges
        self.entries: dict[str, Json] = {}
        self.values: dict[str, Json] = {}
        self.frame: Json = {}
        self.snapshot: Json = {}
        self.welcome: Json = {}
        self.pictures: list[tuple[Json, bytes]] = []
        self.updates: list[Json] = []
        self.history: Json = {}
        self.part: Json = {}
        self.steepness = 0.0
        self.tuning: Json = {}
        self.messages: list[Json] = []
        self._next_id = 0
        self.send({"type": "hello", "protocol": 1, "build": studio._server._bundle.build})
        self.wait(lambda: bool(self.snapshot) or any(message["type"] == "gallery" for message in self.messages))

    def __enter__(self) -> TestPage:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, message: Json) -> None:
        self.socket.send(json.dumps(message))

    def receive(self) -> Json:
        """Receives one message and applies it."""
        data = self.socket.recv(timeout=TIMEOUT)
        if isinstance(data, bytes):
            (length,) = struct.unpack_from("<I", data)
            message = json.loads(data[4 : 4 + length])
            self.pictures.append((message, data[4 + length :]))
            if self.acknowledges and "view" in message:
                self.send({"type": "ack", "view": message["view"]})
            return message
        message = json.loads(data)
        self.messages.append(message)
        match message["type"]:
            case "welcome":
                self.welcome = message
            case "snapshot":
                self.snapshot, self.entries, self.frame = message, dict(message["entries"]), message["frame"]
            case "update":
                self._update(message)
        return message

    def _update(self, message: Json) -> None:
        self.updates.append(message)
        for operation in message["ops"]:
            if operation["op"] == "put":
                self.entries[operation["id"]] = operation["value"]
            else:
                self.entries.pop(operation["id"], None)  # it may have come and gone between two updates
        self.values |= message["values"]
        self.frame = message.get("frame", self.frame)
        self.history = message.get("history", self.history)
        self.part = message.get("part", self.part)
        self.steepness = message.get("steepness", self.steepness)
        self.tuning = message.get("tuning", self.tuning)
        if self.acknowledges:
            self.send({"type": "ack"})

    def wait(self, condition: Callable[[], Any]) -> None:
        """Receives messages until a condition holds."""
        while not condition():
            self.receive()

    def ask(self, message: Json) -> Json:
        """Sends a message and returns its answer."""
        self._next_id += 1
        self.send({**message, "id": self._next_id})
        while True:
            answer = self.receive()
            if answer.get("type") in ("done", "rejected") and answer.get("id") == self._next_id:
                return answer

    def edit(self, *ops: Json) -> Json:
        return self.ask({"type": "edit", "ops": list(ops)})

    def id(self, name: str) -> str:
        """The id of a block. Waits for it."""
        self.wait(lambda: any(entry.get("name") == name for entry in self.entries.values()))
        return next(id for id, entry in self.entries.items() if entry.get("name") == name)

    def block(self, name: str) -> Json:
        return self.entries[self.id(name)]

    def input(self, block: str, name: str) -> Json:
        return next(input for input in self.block(block)["inputs"] if input["name"] == name)

    def subscribe(self, *blocks: str, **views: tuple[str, str]) -> None:
        shown = {name: [self.id(block), output] for name, (block, output) in views.items()}
        self.send({"type": "subscribe", "blocks": [self.id(block) for block in blocks], "views": shown})

    def wait_for_value(self, block: str, value: Any, output: str = "result") -> None:
        """Waits until a block has a value."""
        self.wait(lambda: ((self.values.get(self.id(block)) or {}).get(output) or {}).get("value") == value)
