"""Who gets in: in front of every page, file and socket of the server.

Three rules. A page on this machine answers only to names of this machine, so that a foreign web site cannot have it
fetched under a name of its own. What changes anything, and every socket, must come from a page of this server. And
where there is a password, nothing but the door is to be had without it.
"""

import hmac
import ipaddress
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from weft.web.door import door_page

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "weft_entry"
ENTRIES_MAX = 256
"""Browsers that are let in at once; the oldest has to say the password again."""
ATTEMPTS_PER_MIN_MAX = 20
"""Wrong passwords of all together; beyond this everyone waits."""
FORM_BYTES_MAX = 4096

HEADERS = (
    # Nothing is fetched from anywhere else, whatever a page or a message in it says. Vue compiles its templates in the
    # browser and therefore needs 'unsafe-eval'; all text of others is escaped before it gets there.
    (
        b"content-security-policy",
        b"default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; connect-src 'self'; "
        b"object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Gate:
    """An ASGI application in front of another."""

    def __init__(self, app: App, *, password: str | None, only_here: bool) -> None:
        self.app = app
        self._password = password.encode() if password else None
        self._only_here = only_here
        self._entries: deque[str] = deque(maxlen=ENTRIES_MAX)
        self._wrong: deque[float] = deque(maxlen=ATTEMPTS_PER_MIN_MAX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        problem = self._problem(scope, headers)
        if problem:
            await _refuse(scope, send, 403, problem)
        elif self._password is None or self._has_entry(headers):
            await self.app(scope, receive, _with_headers(send))
        elif scope["type"] == "websocket":
            await _refuse(scope, send, 403, "the password is needed first")
        elif scope["path"] == "/door" and scope["method"] == "POST":
            await self._open(receive, send)
        elif scope["path"].startswith("/data/"):
            await _refuse(scope, send, 401, "the password is needed first: load the page anew")
        else:
            await _answer(send, 401, door_page())

    def _problem(self, scope: Scope, headers: dict[str, str]) -> str:
        host = headers.get("host", "")
        if self._only_here and not is_loopback(urlsplit(f"//{host}").hostname or ""):
            return "this page is for this machine only: open it as localhost, or as 127.0.0.1"
        origin = headers.get("origin")
        is_safe = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if origin is not None and not is_safe and urlsplit(origin).netloc != host:
            return "this came from a page of another server"
        return ""

    def _has_entry(self, headers: dict[str, str]) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        given = cookie.value.encode() if cookie is not None else b""
        return any(hmac.compare_digest(given, each.encode()) for each in self._entries)

    async def _open(self, receive: Receive, send: Send) -> None:
        now = time.monotonic()
        if len(self._wrong) == self._wrong.maxlen and now - self._wrong[0] < 60:
            await _answer(send, 429, door_page("Too many wrong passwords: wait a minute."))
            return
        form = await _form(receive)
        if form is None or not hmac.compare_digest(form.encode(), self._password or b""):
            self._wrong.append(now)
            await _answer(send, 403, door_page("That is not the password."))
            return
        entry = secrets.token_urlsafe(32)
        self._entries.append(entry)
        cookie = f"{COOKIE}={entry}; Path=/; HttpOnly; SameSite=Strict"
        await _answer(send, 303, "", ((b"location", b"/"), (b"set-cookie", cookie.encode())))


async def _form(receive: Receive) -> str | None:
    """The password in a form; None if it is none, or too large to be one."""
    body = b""
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return None
        body += event.get("body", b"")
        if len(body) > FORM_BYTES_MAX:
            return None
        if not event.get("more_body"):
            break
    given = parse_qs(body.decode("latin-1")).get("password")
    return given[0] if given else None


def _with_headers(send: Send) -> Send:
    async def sending(event: MutableMapping[str, Any]) -> None:
        if event["type"] == "http.response.start":
            event["headers"] = [*event.get("headers", ()), *HEADERS]
        await send(event)

    return sending


async def _refuse(scope: Scope, send: Send, status: int, why: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": why})
    else:
        await _answer(send, status, why, ((b"content-type", b"text/plain; charset=utf-8"),))


async def _answer(send: Send, status: int, text: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    named = dict([(b"content-type", b"text/html; charset=utf-8"), (b"cache-control", b"no-store"), *HEADERS, *headers])
    await send({"type": "http.response.start", "status": status, "headers": list(named.items())})
    await send({"type": "http.response.body", "body": text.encode()})
