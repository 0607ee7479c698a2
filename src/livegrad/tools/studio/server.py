"""The server of the Studio: files and sockets, in a thread of its own.

Every request and every upgrade passes `check`. What pages send goes to the mailbox of the engine thread, and what it
sends goes to a queue for each page.
"""

from __future__ import annotations

import asyncio
import http
import itertools
from concurrent.futures import Future
from threading import Thread

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from livegrad.diagnostics import LivegradError
from livegrad.tools.studio.bundle import Bundle
from livegrad.tools.studio.engine_thread import EngineThread
from livegrad.tools.studio.gate import (
    MAX_MESSAGE,
    PROTOCOL,
    SECURITY_HEADERS,
    SOCKET_PATH,
    Gate,
    Permission,
)
from livegrad.tools.studio.mailbox import MailboxFull
from livegrad.tools.studio.page import Page, parse_message

PATIENCE = 2.0  # seconds of a frame after which pages may stop it
_MAX_UNSENT = 1000  # messages; a page that reads none of them is disconnected
_MAX_PAGES = 32
_POLICY_VIOLATION, _TOO_SLOW = 1008, 1013


class Server:
    """Serves pages until it is closed."""

    def __init__(self, gate: Gate, engine_thread: EngineThread, bundle: Bundle, permission: Permission) -> None:
        self.gate, self.permission = gate, permission
        self._engine_thread, self._bundle = engine_thread, bundle
        self._page_ids = itertools.count(1)
        self._connections: set[ServerConnection] = set()
        self._pages: set[Page] = set()
        self._loop = asyncio.new_event_loop()
        self._stopped: asyncio.Event | None = None
        self._thread = Thread(target=self._run, name="livegrad studio server", daemon=True)
        self._started: Future[int] = Future()

    def start(self) -> int:
        """Starts to listen, and returns the port."""
        self._thread.start()
        self.gate.port = self._started.result()
        return self.gate.port

    def close(self) -> None:
        """Closes all sockets, and ends the thread."""
        if self._stopped is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except OSError as error:
            self._started.set_exception(LivegradError(f"cannot listen on {self.gate.host}: {error.strerror or error}"))
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        server = serve(
            self._talk,
            self.gate.host,
            self.gate.port,
            process_request=self.check,
            subprotocols=[Subprotocol(PROTOCOL)],
            max_size=MAX_MESSAGE,
            compression=None,
            server_header=None,
        )
        async with server as listening:
            self._started.set_result(listening.sockets[0].getsockname()[1])
            watch = self._loop.create_task(self._watch_frames())
            await self._stopped.wait()
            watch.cancel()

    async def _watch_frames(self) -> None:
        """Says to pages that a frame takes long, so that they can stop it: the engine's thread cannot."""
        was_busy = False
        while True:
            await asyncio.sleep(PATIENCE / 4)
            seconds = self._engine_thread.stopper.seconds
            is_busy = seconds > PATIENCE
            if is_busy or was_busy:
                for page in list(self._pages):
                    page.tell({"type": "busy", "seconds": round(seconds, 1) if is_busy else 0})
            was_busy = is_busy

    # --- requests ---

    def check(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answers requests for files, and refuses sockets that the gate refuses."""
        headers = request.headers
        hosts = headers.get_all("Host")
        path = request.path.partition("?")[0]
        if path == SOCKET_PATH:
            origins, subprotocols = headers.get_all("Origin"), headers.get_all("Sec-WebSocket-Protocol")
            refusal = self.gate.refuse_socket(hosts, origins, subprotocols)
            if refusal is None and len(self._connections) >= _MAX_PAGES:
                refusal = "too many pages"
            return None if refusal is None else _respond(http.HTTPStatus.FORBIDDEN, f"{refusal}\n".encode())
        refusal = self.gate.refuse_request(hosts)
        if refusal is not None:
            return _respond(http.HTTPStatus.FORBIDDEN, f"{refusal}\n".encode())
        file = self._bundle.read(path)
        if file is None:
            return _respond(http.HTTPStatus.NOT_FOUND, b"not found\n")
        return _respond(http.HTTPStatus.OK, *file)

    # --- sockets ---

    async def _talk(self, connection: ServerConnection) -> None:
        """Talks with one page until it leaves."""
        queue: asyncio.Queue[str | bytes] = asyncio.Queue()

        def enqueue(message: str | bytes) -> None:
            if queue.qsize() >= _MAX_UNSENT:
                self._loop.create_task(connection.close(_TOO_SLOW, "the page reads too slowly"))
            else:
                queue.put_nowait(message)

        def send(message: str | bytes) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(enqueue, message)

        page = Page(next(self._page_ids), self.permission, send)
        writer = self._loop.create_task(_write(connection, queue))
        self._connections.add(connection)
        self._pages.add(page)
        try:
            async for text in connection:
                message = parse_message(text)
                if message.get("type") != "stop":
                    self._engine_thread.receive(page, message)
                elif page.permission >= Permission.TUNE:
                    self._engine_thread.stopper.stop()
        except (ValueError, RecursionError):
            await connection.close(_POLICY_VIOLATION, "not a message")
        except MailboxFull:
            await connection.close(_POLICY_VIOLATION, "too many messages")
        except ConnectionClosed:
            pass  # how a page leaves
        finally:
            self._connections.discard(connection)
            self._pages.discard(page)
            writer.cancel()
            self._engine_thread.leave(page)


async def _write(connection: ServerConnection, queue: asyncio.Queue[str | bytes]) -> None:
    """Sends what the queue receives."""
    try:
        while True:
            await connection.send(await queue.get())
    except ConnectionClosed:
        pass  # `_talk` ends as well


def _respond(status: http.HTTPStatus, content: bytes, kind: str = "text/plain; charset=utf-8") -> Response:
    headers = Headers(SECURITY_HEADERS)
    headers["Content-Type"], headers["Content-Length"] = kind, str(len(content))
    headers["Connection"] = "close"
    return Response(status.value, status.phrase, headers, content)
