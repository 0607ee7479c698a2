"""Decides who may talk to the Studio: the rules on hosts, origins, tokens and permissions, without any socket.

In: the headers of a request. Out: a refusal as text, or None. Called by `server.py` for every request and upgrade.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

PROTOCOL = "livegrad.studio.1"  # the WebSocket subprotocol; the token follows as a second one
TOKEN_PREFIX = "token."
MAX_MESSAGE = 1 << 20  # bytes of a message from a page
SOCKET_PATH = "/socket"

# Scripts and styles come from this server alone; CodeMirror and Svelte set styles of elements.
CONTENT_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Permission(IntEnum):
    """What a page may do. Each level includes the ones before it.

    >>> Permission["EDIT"] < Permission.CODE
    True
    """

    VIEW = 0  # look
    TUNE = 1  # set numbers, and run the clock
    EDIT = 2  # change the graph
    CODE = 3  # write Python, which runs with the rights of the user


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reachable from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("localhost")
    (True, False, True)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass
class Gate:
    """The rules for one server. `port` is known once the server listens."""

    host: str = "127.0.0.1"
    port: int = 0
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def hosts(self) -> frozenset[str]:
        """The values of `Host` that are accepted.

        The list defeats DNS rebinding: a foreign name that resolves to this machine sends itself as host and origin.
        """
        names = {"127.0.0.1", "localhost", "[::1]"}
        if not is_loopback(self.host):
            names.add(f"[{self.host}]" if ":" in self.host else self.host)
        return frozenset(f"{name}:{self.port}" for name in names)

    def refuse_request(self, hosts: Sequence[str]) -> str | None:
        """The reason to refuse any request, or None."""
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return "unknown host"
        return None

    def refuse_socket(self, hosts: Sequence[str], origins: Sequence[str], subprotocols: Sequence[str]) -> str | None:
        """The reason to refuse a socket, or None."""
        refusal = self.refuse_request(hosts)
        if refusal is not None:
            return refusal
        # The page comes from the same host: `null` and a missing origin belong to other programs and sandboxes.
        if len(origins) != 1 or origins[0].lower() != f"http://{hosts[0].lower()}":
            return "foreign origin"
        offered = [item.strip() for line in subprotocols for item in line.split(",")]
        tokens = [item.removeprefix(TOKEN_PREFIX) for item in offered if item.startswith(TOKEN_PREFIX)]
        if PROTOCOL not in offered or len(tokens) != 1:
            return "no token"
        if not hmac.compare_digest(tokens[0].encode(), self.token.encode()):
            return "wrong token"
        return None
