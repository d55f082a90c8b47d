"""Who gets in: names of this machine only, no foreign pages, and the password or the token first."""

import asyncio
from typing import Any

import pytest

from broadloom.web.auth import ATTEMPTS_PER_MIN_MAX, AuthMiddleware, is_loopback
from broadloom.web.server import ServeError, serve


async def inner_app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"inside"})


def request(
    middleware: AuthMiddleware,
    path: str = "/",
    method: str = "GET",
    kind: str = "http",
    body: bytes = b"",
    **headers: str,
) -> Any:
    """Status, headers and text of an answer; of a socket that was refused, its code."""
    events: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(event: Any) -> None:
        events.append(event)

    raw_headers = [(name.encode(), value.encode()) for name, value in ({"host": "127.0.0.1:8470"} | headers).items()]
    path, _, query = path.partition("?")
    scope = {"type": kind, "path": path, "query_string": query.encode(), "method": method, "headers": raw_headers}
    asyncio.run(middleware(scope, receive, send))
    if events[0]["type"] == "websocket.close":
        return events[0]["code"]
    return events[0]["status"], dict(events[0]["headers"]), events[1]["body"].decode()


def session(gate: AuthMiddleware, host: str = "127.0.0.1:8470") -> str:
    """The cookie of a browser that opened the address with the token."""
    status, headers, _ = request(gate, gate.address("/"), host=host)
    assert (status, headers[b"location"]) == (303, b"/")
    return str(headers[b"set-cookie"].decode().partition(";")[0])


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
def test_loopback_names_are_recognized(host: str, here: bool) -> None:
    assert is_loopback(host) is here


def test_loopback_server_rejects_foreign_host_names() -> None:
    gate = AuthMiddleware(inner_app, password=None, loopback_only=True)
    for host in ("127.0.0.1:8470", "localhost:1", "[::1]:8470"):
        assert request(gate, host=host, cookie=session(gate, host))[0] == 200
    for host in ("evil.example", "[", "[::1"):
        status, _, text = request(gate, host=host)
        assert (status, "localhost" in text) == (403, True)


def test_cross_origin_requests_are_rejected() -> None:
    gate = AuthMiddleware(inner_app, password=None, loopback_only=True)
    assert request(gate, method="POST", origin="http://127.0.0.1:8470", cookie=session(gate))[0] == 200
    for origin in ("http://evil.example", "http://["):
        assert request(gate, method="POST", origin=origin)[0] == 403
    assert request(gate, kind="websocket", origin="http://evil.example") == 1008


def test_content_security_policy_allows_no_other_host() -> None:
    gate = AuthMiddleware(inner_app, password=None, loopback_only=True)
    policy = request(gate, cookie=session(gate))[1][b"content-security-policy"].decode()
    assert "default-src 'self'" in policy
    assert "http" not in policy


def test_other_users_of_the_machine_need_the_token() -> None:
    gate = AuthMiddleware(inner_app, password=None, loopback_only=True)
    for path in ("/", "/?token=", "/?token=guess", "/data/live/whole", "/static/broadloom.css"):
        status, _, text = request(gate, path)
        assert (status, "inside" in text, "the address that the program printed" in text) == (401, False, True)
    assert request(gate, kind="websocket") == 1008
    assert request(gate, cookie=session(gate))[2] == "inside"
    query = gate.address("")
    assert request(gate, f"/replay{query}&at=3")[1][b"location"] == b"/replay?at=3"
    assert request(gate, f"//evil.example/{query}")[1][b"location"] == b"/evil.example/"
    assert request(gate, f"/\\evil.example/{query}")[1][b"location"] == b"/%5Cevil.example/"
    assert request(gate, f"/a\r\nset-cookie: b{query}")[1][b"location"] == b"/a%0D%0Aset-cookie%3A%20b"
    assert request(gate, f"/caf\u00e9{query}")[1][b"location"] == b"/caf%C3%A9"


def test_two_servers_on_one_machine_keep_their_sessions_apart() -> None:
    gates = [AuthMiddleware(inner_app, password=None, loopback_only=True) for _ in range(2)]
    hosts = ["127.0.0.1:1001", "127.0.0.1:1002"]
    cookies = "; ".join(session(gate, host) for gate, host in zip(gates, hosts, strict=True))
    for gate, host in zip(gates, hosts, strict=True):
        assert request(gate, host=host, cookie=cookies)[0] == 200


def test_unauthenticated_request_gets_login_page() -> None:
    gate = AuthMiddleware(inner_app, password="open sesame", loopback_only=False)
    status, _, text = request(gate, host="broadloom.example")
    assert (status, 'type="password"' in text, "inside" in text) == (401, True, False)
    for path in ("/data/live/snapshot", "/static/broadloom.css", "/_nicegui/x"):
        assert request(gate, path)[0] == 401
    assert request(gate, kind="websocket") == 1008
    assert request(gate, "/login", "POST", body=b"password=wrong")[0] == 403
    status, headers, _ = request(gate, "/login", "POST", body=b"password=open+sesame")
    cookie = headers[b"set-cookie"].decode()
    assert status == 303
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert request(gate, cookie=cookie.partition(";")[0])[2] == "inside"
    assert request(gate, cookie="broadloom_entry_8470=made-up")[0] == 401


def test_password_guessing_is_rate_limited() -> None:
    gate = AuthMiddleware(inner_app, password="secret", loopback_only=False)
    for _ in range(ATTEMPTS_PER_MIN_MAX):
        assert request(gate, "/login", "POST", body=b"password=guess")[0] == 403
    assert request(gate, "/login", "POST", body=b"password=secret")[0] == 429


def test_serving_other_hosts_requires_a_password() -> None:
    with pytest.raises(ServeError, match="set BROADLOOM_WEB_PASSWORD"):
        asyncio.run(serve(host="0.0.0.0", port=0))


def test_port_in_use_raises_serve_error() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ServeError, match="choose another port"):
        asyncio.run(serve(port=taken.getsockname()[1]))
