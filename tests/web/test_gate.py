"""Who gets in: names of this machine only, no foreign pages, and the password first."""

import asyncio
from typing import Any

import pytest

from weft.web.gate import ATTEMPTS_PER_MIN_MAX, Gate, is_loopback
from weft.web.serve import CannotServe, serve


async def inside(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"inside"})


def ask(gate: Gate, path: str = "/", method: str = "GET", kind: str = "http", body: bytes = b"", **headers: str) -> Any:
    """Status, headers and text of an answer; of a socket that was refused, its code."""
    told: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(event: Any) -> None:
        told.append(event)

    named = [(name.encode(), value.encode()) for name, value in ({"host": "127.0.0.1:8470"} | headers).items()]
    scope = {"type": kind, "path": path, "method": method, "headers": named}
    asyncio.run(gate(scope, receive, send))
    if told[0]["type"] == "websocket.close":
        return told[0]["code"]
    return told[0]["status"], dict(told[0]["headers"]), told[1]["body"].decode()


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("a.example", False),
    ],
)
def test_what_this_machine_is_called(host: str, here: bool) -> None:
    assert is_loopback(host) is here


def test_on_this_machine_only_its_own_names_are_answered() -> None:
    gate = Gate(inside, password=None, only_here=True)
    assert ask(gate)[0] == 200
    assert ask(gate, host="localhost:1")[0] == 200
    assert ask(gate, host="[::1]:8470")[0] == 200
    status, _, text = ask(gate, host="evil.example")
    assert (status, "localhost" in text) == (403, True)


def test_pages_of_others_can_change_nothing() -> None:
    gate = Gate(inside, password=None, only_here=True)
    assert ask(gate, method="POST", origin="http://127.0.0.1:8470")[0] == 200
    assert ask(gate, method="POST", origin="http://evil.example")[0] == 403
    assert ask(gate, kind="websocket", origin="http://evil.example") == 1008


def test_nothing_is_fetched_from_elsewhere() -> None:
    policy = ask(Gate(inside, password=None, only_here=True))[1][b"content-security-policy"].decode()
    assert "default-src 'self'" in policy
    assert "http" not in policy


def test_without_the_password_there_is_only_the_door() -> None:
    gate = Gate(inside, password="open sesame", only_here=False)
    status, _, text = ask(gate, host="weft.example")
    assert (status, 'type="password"' in text, "inside" in text) == (401, True, False)
    for path in ("/data/live/whole", "/static/weft.css", "/_nicegui/x"):
        assert ask(gate, path)[0] == 401
    assert ask(gate, kind="websocket") == 1008
    assert ask(gate, "/door", "POST", body=b"password=wrong")[0] == 403
    status, headers, _ = ask(gate, "/door", "POST", body=b"password=open+sesame")
    cookie = headers[b"set-cookie"].decode()
    assert status == 303
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert ask(gate, cookie=cookie.partition(";")[0])[2] == "inside"
    assert ask(gate, cookie="weft_entry=made-up")[0] == 401


def test_guessing_is_slow() -> None:
    gate = Gate(inside, password="secret", only_here=False)
    for _ in range(ATTEMPTS_PER_MIN_MAX):
        assert ask(gate, "/door", "POST", body=b"password=guess")[0] == 403
    assert ask(gate, "/door", "POST", body=b"password=secret")[0] == 429


def test_elsewhere_is_not_served_without_a_password() -> None:
    with pytest.raises(CannotServe, match="give a password"):
        asyncio.run(serve(host="0.0.0.0", port=0))


def test_a_port_that_is_taken_is_said() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(CannotServe, match="choose another port"):
        asyncio.run(serve(port=taken.getsockname()[1]))
