"""The rules that keep strangers out of the Studio: each test attacks one."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

import livegrad as lg
from livegrad.tools.studio.gate import MAX_MESSAGE, Gate, Permission, is_loopback
from livegrad.tools.studio.mailbox import MAX_WAITING
from livegrad.tools.studio.open_studio import Studio, _permission_of
from tests.tools.studio.client import TIMEOUT, TestPage, open_socket


@pytest.fixture
def engine() -> lg.Engine:
    engine = lg.Engine()
    engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    return engine


@pytest.fixture
def studio(engine: lg.Engine) -> Iterator[Studio]:
    with lg.studio(engine, open_browser=False) as opened:
        yield opened


def get(studio: Studio, path: str = "/", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", studio._server.gate.port, timeout=TIMEOUT)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def refused(studio: Studio, **options: str | None) -> str:
    with pytest.raises(InvalidStatus) as raised:
        open_socket(studio, **options)  # type: ignore[arg-type]
    assert raised.value.response.status_code == 403
    return (raised.value.response.body or b"").decode().strip()


def read_to_the_end(socket: ClientConnection) -> None:
    while True:
        socket.recv(timeout=TIMEOUT)


def test_it_listens_on_this_machine_alone(studio):
    listening = studio.url.removeprefix("http://").partition("/")[0]
    assert listening.startswith("127.0.0.1:")
    outside = [info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    for address in outside:
        if not is_loopback(str(address)):
            with pytest.raises(OSError):
                socket.create_connection((str(address), studio._server.gate.port), timeout=5)


def test_a_foreign_host_is_refused_even_if_it_resolves_to_this_machine(studio):
    port = studio._server.gate.port
    # DNS rebinding: the browser believes that both names are the attacker's.
    assert refused(studio, host=f"evil.test:{port}", origin=f"http://evil.test:{port}") == "unknown host"
    assert get(studio, Host=f"evil.test:{port}").status == 403
    assert get(studio, Host="127.0.0.1").status == 403  # another port
    assert get(studio, Host=f"localhost:{port}").status == 200


def test_a_foreign_origin_is_refused(studio):
    assert refused(studio, origin="http://evil.test") == "foreign origin"
    assert refused(studio, origin=f"http://127.0.0.1:{studio._server.gate.port + 1}") == "foreign origin"
    assert refused(studio, origin=f"https://127.0.0.1:{studio._server.gate.port}") == "foreign origin"


def test_a_null_or_missing_origin_is_refused(studio):
    assert refused(studio, origin="null") == "foreign origin"
    assert refused(studio, origin=None) == "foreign origin"


def test_a_missing_or_wrong_token_is_refused(studio):
    assert refused(studio, token="") == "no token"
    assert refused(studio, token="x" * 43) == "wrong token"
    assert refused(studio, token=studio._server.gate.token[:-1]) == "wrong token"


def test_two_headers_are_refused_where_one_is_expected():
    gate = Gate(port=80)
    host, origin, protocols = "127.0.0.1:80", "http://127.0.0.1:80", [f"livegrad.studio.1, token.{gate.token}"]
    assert gate.refuse_socket([host], [origin], protocols) is None
    assert gate.refuse_socket([host, "evil.test"], [origin], protocols) == "unknown host"
    assert gate.refuse_socket([], [origin], protocols) == "unknown host"
    assert gate.refuse_socket([host], [origin, "http://evil.test"], protocols) == "foreign origin"
    assert gate.refuse_socket([host], [origin], [f"{protocols[0]}, token.x"]) == "no token"
    assert gate.refuse_socket([host], ["http://localhost:80"], protocols) == "foreign origin"


def test_tokens_have_256_bits_and_differ():
    tokens = {Gate().token for _ in range(8)}
    assert len(tokens) == 8
    assert all(len(token) == 43 for token in tokens)
    assert tokens.isdisjoint(repr(Gate(token=token)) for token in tokens)


def test_pages_set_no_cookies_and_forbid_foreign_content(studio):
    for path in ("/", "/studio.js", "/studio.css", "/nothing"):
        response = get(studio, path)
        headers = {name.lower(): value for name, value in response.getheaders()}
        assert "set-cookie" not in headers
        assert "access-control-allow-origin" not in headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "script-src" not in policy  # so that 'self' holds for scripts
        assert headers["x-content-type-options"] == "nosniff"
    page = get(studio).read().decode()
    assert studio._server.gate.token not in page
    assert "<script>" not in page


@pytest.mark.parametrize(
    "path",
    [
        "/../open_studio.py",
        "/%2e%2e/server.py",
        "//etc/passwd",
        "/build.txt",
        "/bundle/studio.js",
        "/studio.js/",
        "/\\",
    ],
)
def test_requests_reach_only_listed_files(studio, path):
    assert get(studio, path).status == 404


def test_only_get_is_answered(studio):
    connection = http.client.HTTPConnection("127.0.0.1", studio._server.gate.port, timeout=TIMEOUT)
    connection.request("POST", "/", body=b"x")
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        connection.getresponse()


def test_other_machines_cannot_edit_code():
    assert _permission_of("code", "127.0.0.1") is Permission.CODE
    assert _permission_of("code", "0.0.0.0") is Permission.EDIT
    assert _permission_of("view", "192.168.1.5") is Permission.VIEW


LEVELS = {"view": 0, "tune": 1, "edit": 2, "code": 3}


@pytest.mark.parametrize("permission", LEVELS)
def test_each_permission_allows_its_edits_and_no_more(engine, permission):
    with lg.studio(engine, open_browser=False, permission=permission) as studio, TestPage(studio) as page:
        double = page.id("double")
        attempts = [
            (1, {"type": "edit", "ops": [{"op": "set", "pin": [double, "x"], "value": 5}]}),
            (1, {"type": "clock", "playing": False}),
            (2, {"type": "edit", "ops": [{"op": "add", "entry": "number", "at": [0, 0]}]}),
            (2, {"type": "edit", "ops": [{"op": "expression", "block": double, "text": "x * 3"}]}),
            (2, {"type": "edit", "ops": [{"op": "move", "block": double, "at": [1, 2]}]}),
            (2, {"type": "edit", "ops": [{"op": "rename", "block": double, "name": "triple"}]}),
            (3, {"type": "edit", "ops": [{"op": "code", "block": double, "text": "def f(x=1.0):\n    return x"}]}),
            (3, {"type": "edit", "ops": [{"op": "add", "entry": "function", "at": [0, 0]}]}),
            (3, {"type": "trust"}),
        ]
        for needed, message in attempts:
            answer = page.ask(message)
            may = LEVELS[permission] >= needed
            if message["type"] == "trust" and may:
                assert answer["error"]["message"] == "no document waits for trust"
            else:
                assert answer["type"] == ("done" if may else "rejected"), (message, answer)
            if not may:
                assert answer["error"]["message"].startswith("this page may not")


def test_an_expression_of_a_page_that_may_not_write_code_runs_no_python(engine):
    with lg.studio(engine, open_browser=False, permission="edit") as studio, TestPage(studio) as page:
        double = page.id("double")
        for text in (
            "__import__('os').system('true')",
            "open('/etc/passwd')",
            "x.__class__",
            "(lambda: x)()",
            "[y for y in x]",
            "9 ** 9 ** 9",
            "x if x else eval",
            "f'{x}'",
            "sin.__globals__",
            "(y := x)",
        ):
            assert page.edit({"op": "expression", "block": double, "text": text})["type"] == "rejected", text
        assert engine.graph.blocks["double"].body.specialize is not None
        assert page.ask({"type": "source", "block": double})["text"] == "x * 2.0"


def test_opening_a_document_runs_nothing_until_the_page_trusts_it(tmp_path):
    witness = tmp_path / "ran"
    engine = lg.Engine()
    engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    path = tmp_path / "scene.lg"
    engine.save(path)
    text = path.read_text()
    assert "recorded = lambda" in text
    evil = f"recorded = (__import__('pathlib').Path({str(witness)!r}).touch(), lambda x=None: x * 2.0)[1]"
    path.write_text(text.replace("recorded = lambda x=None: x * 2.0", evil))
    with lg.studio(str(path), open_browser=False) as studio, TestPage(studio) as page:
        gallery = page.messages[-1]
        assert gallery["type"] == "gallery"
        assert "pathlib" in gallery["untrusted"]["functions"]["double"]
        assert page.edit({"op": "rewind"})["error"]["message"] == "no graph is open"
        assert not witness.exists()
        page.ask({"type": "trust"})
        assert page.snapshot["title"] == "scene.lg"
        assert witness.exists()


def test_examples_are_named_by_a_list(studio, tmp_path):
    with lg.studio(open_browser=False) as gallery, TestPage(gallery) as page:
        for name in ("../subjects", "os", None, ["rings"], "rings.py", ""):
            answer = page.ask({"type": "open", "name": name})
            assert answer["error"]["message"] == "there is no such example"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "1", '"hello"', "[" * 100_000, b"\xff\xfe", '{"type": "hello"', "{}" * 2]
)
def test_a_malformed_message_ends_its_page_alone(studio, text):
    with TestPage(studio) as other:
        socket = open_socket(studio)
        socket.send(text)
        with pytest.raises(ConnectionClosed) as raised:
            read_to_the_end(socket)
        assert raised.value.rcvd is not None
        assert raised.value.rcvd.code == 1008
        assert other.edit({"op": "set", "pin": [other.id("double"), "x"], "value": 1.5})["type"] == "done"


def test_an_oversized_message_ends_its_page_alone(studio):
    with TestPage(studio) as other:
        socket = open_socket(studio)
        with contextlib.suppress(ConnectionClosed):  # the server may close it before everything is sent
            socket.send(json.dumps({"type": "hello", "padding": "x" * MAX_MESSAGE}))
        with pytest.raises(ConnectionClosed):
            read_to_the_end(socket)
        assert other.edit({"op": "set", "pin": [other.id("double"), "x"], "value": 1.5})["type"] == "done"


@pytest.mark.parametrize(
    "message",
    [
        {"type": "explode"},
        {"type": ["edit"]},
        {},
        {"type": "edit"},
        {"type": "edit", "ops": 5},
        {"type": "edit", "ops": [5]},
        {"type": "edit", "ops": [{}]},
        {"type": "edit", "ops": [{"op": {}}]},
        {"type": "edit", "ops": [{"op": "set"}]},
        {"type": "edit", "ops": [{"op": "set", "pin": ["b1"], "value": 1}]},
        {"type": "edit", "ops": [{"op": "set", "pin": [{}, []], "value": 1}]},
        {"type": "edit", "ops": [{"op": "remove", "block": None}]},
        {"type": "edit", "ops": [{"op": "add", "entry": [], "at": [0, 0]}]},
        {"type": "edit", "ops": [{"op": "add", "entry": "number", "at": ["a", 0]}]},
        {"type": "edit", "ops": [{"op": "add", "entry": "number", "at": [float("inf"), 0]}]},
        {"type": "edit", "ops": [{"op": "add", "entry": "number", "at": [0, 0], "graph": 7}]},
        {"type": "source", "block": 5},
        {"type": "open", "name": "rings"},
    ],
)
def test_a_wrong_message_is_rejected_and_changes_nothing(studio, engine, message):
    with TestPage(studio) as page:
        before = list(engine.graph.blocks)
        assert page.ask(message)["type"] == "rejected"
        assert list(engine.graph.blocks) == before
        assert page.edit({"op": "set", "pin": [page.id("double"), "x"], "value": 1.5})["type"] == "done"


@pytest.mark.parametrize("value", [None, "x", {}, [1, 2], [[1]], 10**400, "1e3", "\x00"])
def test_values_of_another_type_are_rejected(studio, engine, value):
    with TestPage(studio) as page:
        answer = page.edit({"op": "set", "pin": [page.id("double"), "x"], "value": value})
        assert answer["type"] == "rejected"
        assert engine.step().ok
        assert float(engine.read(engine.graph.blocks["double"])) == 8.0


def test_a_page_must_say_hello_with_the_build_of_the_server(studio):
    socket = open_socket(studio)
    socket.send(json.dumps({"type": "edit", "id": 1, "ops": []}))
    assert json.loads(socket.recv(timeout=TIMEOUT))["error"]["message"] == "a page must say hello first"
    socket.send(json.dumps({"type": "hello", "id": 2, "protocol": 1, "build": "another"}))
    answer = json.loads(socket.recv(timeout=TIMEOUT))
    assert answer["error"]["help"] == "reload the page"
    socket.close()


def test_a_thousand_numbers_in_a_burst_leave_the_newest(studio, engine):
    with TestPage(studio) as page:
        page.subscribe("double")
        for value in range(1000):
            page.send({"type": "edit", "ops": [{"op": "set", "pin": [page.id("double"), "x"], "value": value}]})
        page.wait_for_value("double", 1998.0)
        assert page.input("double", "x")["value"] == 999.0


def test_a_page_that_reads_nothing_costs_no_memory(studio, engine):
    with TestPage(studio, acknowledges=False) as slow, TestPage(studio) as page:
        for value in range(200):
            assert page.edit({"op": "set", "pin": [page.id("double"), "x"], "value": value})["type"] == "done"
        pages = {other.id: other for other in studio._engine_thread._pages}
        waiting = pages[slow.welcome["page"]]
        assert waiting.is_unacknowledged
        assert len(waiting.operations) <= 1
        while not slow.updates:
            slow.receive()
        assert len(slow.updates) == 1


def test_more_messages_than_a_person_can_cause_end_the_page(studio):
    release, entered = threading.Event(), threading.Event()
    session = studio._engine_thread.session
    with TestPage(studio) as page:
        session = studio._engine_thread.session
        assert session is not None
        step = session._step

        def wait(*arguments, **named):
            entered.set()
            release.wait(TIMEOUT)
            return step(*arguments, **named)

        session._step = wait  # type: ignore[method-assign]
        page.send({"type": "clock", "step": True})
        assert entered.wait(TIMEOUT)
        with contextlib.suppress(ConnectionClosed):
            for _ in range(MAX_WAITING + 100):
                page.send({"type": "source", "block": "b1"})
        with pytest.raises(ConnectionClosed):
            read_to_the_end(page.socket)
        release.set()
    with TestPage(studio) as page:
        assert page.edit({"op": "rewind"})["type"] == "done"
