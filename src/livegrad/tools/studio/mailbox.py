"""The mailbox between sockets and the engine thread: ordered messages, of which numbers replace earlier ones.

A page may send a thousand numbers a second; the engine thread sees the newest of each pin. A number never overtakes
another message: it replaces only numbers that came after the last other message.
"""

from __future__ import annotations

from collections.abc import Hashable
from threading import Condition
from typing import Generic, TypeVar

Message = TypeVar("Message")
MAX_WAITING = 4096  # other messages; a page that sends more than the engine thread can take is disconnected


class MailboxFull(Exception):
    """More messages wait than a person can have caused."""


class Mailbox(Generic[Message]):
    """Messages in order.

    >>> mailbox = Mailbox()
    >>> for value in range(1000):
    ...     mailbox.put(("number", value), key="gain")
    >>> mailbox.put(("undo", None))
    >>> mailbox.put(("number", 5), key="gain")
    >>> mailbox.take(0)
    [('number', 999), ('undo', None), ('number', 5)]
    """

    def __init__(self) -> None:
        self._condition = Condition()
        self._messages: list[Message] = []
        self._replaceable: dict[Hashable, int] = {}  # the index of the newest message of each key
        self._is_awake = False

    def put(self, message: Message, key: Hashable = None, *, even_if_full: bool = False) -> None:
        """Adds a message. One with a key replaces the last one with that key."""
        with self._condition:
            index = None if key is None else self._replaceable.get(key)
            if index is not None:
                self._messages[index] = message
            else:
                if len(self._messages) >= MAX_WAITING and not even_if_full:
                    raise MailboxFull
                if key is None:
                    self._replaceable.clear()
                else:
                    self._replaceable[key] = len(self._messages)
                self._messages.append(message)
            self._condition.notify()

    def wake(self) -> None:
        """Makes a thread that waits in `take` return."""
        with self._condition:
            self._is_awake = True
            self._condition.notify()

    def take(self, timeout: float | None) -> list[Message]:
        """Removes and returns all messages. Waits for one if there is none, at most `timeout` seconds."""
        with self._condition:
            self._condition.wait_for(lambda: self._messages or self._is_awake, timeout)
            self._is_awake = False
            messages, self._messages = self._messages, []
            self._replaceable.clear()
            return messages
