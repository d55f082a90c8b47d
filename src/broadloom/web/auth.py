"""Access control in front of every page, file and WebSocket.

Three rules. A server on loopback answers only to loopback host names, against DNS rebinding. Requests that change
anything, and every WebSocket, must come from a page of this server. Nothing is served without a session: a browser gets
one with the password, or, on a server without a password, with the token in the address that the server prints. The
token keeps out other users of the same machine.
"""

import hmac
import ipaddress
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from html import escape
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import SplitResult, parse_qs, quote, urlencode, urlsplit

# The login page is plain HTML, since nothing else is served before it.


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Broadloom: password</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; display: grid; place-items: center; min-height: 90vh; margin: 0 1rem; }}
form {{ display: grid; gap: .75rem; width: min(20rem, 100%); }}
h1 {{ font-size: 1.4rem; margin: 0; }}
input, button {{ font: inherit; padding: .6rem .7rem; border-radius: 6px; border: 1px solid #8a93a3; }}
button {{ background: #0b5cad; color: #fff; border-color: #0b5cad; cursor: pointer; }}
.problem {{ color: #b3410e; margin: 0; }}
@media (prefers-color-scheme: dark) {{ .problem {{ color: #ff9d6b; }} }}
</style>
</head>
<body>
<form method="post" action="/login">
<h1>Broadloom</h1>
<label for="password">Password of this server</label>
<input id="password" name="password" type="password" autocomplete="current-password" autofocus required>
{problem}
<button type="submit">Open</button>
</form>
</body>
</html>
"""


def login_page(problem: str = "") -> str:
    alert = f'<p class="problem" role="alert">{escape(problem)}</p>' if problem else ""
    return _PAGE.format(problem=alert)


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "broadloom_entry"
"""With the port: browsers send cookies to all ports of a host."""
TOKEN = "token"
SESSIONS_MAX = 256
"""Signed-in browsers; the oldest session is dropped first."""
ATTEMPTS_PER_MIN_MAX = 20
"""Wrong passwords from all clients together; beyond this everyone waits."""
FORM_BYTES_MAX = 4096

HEADERS = (
    # Nothing is fetched from other hosts, whatever a page or a message contains. Vue compiles its templates in the
    # browser and needs 'unsafe-eval'; all foreign text is escaped before.
    (
        b"content-security-policy",
        b"default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; connect-src 'self'; "
        b"object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


def _split_url(url: str) -> SplitResult:
    """Of a URL that is malformed, the host is empty."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class AuthMiddleware:
    """ASGI middleware."""

    def __init__(self, app: App, *, password: str | None, loopback_only: bool) -> None:
        self.app = app
        self._password = password.encode() if password else None
        self._token = secrets.token_urlsafe(32)
        self._loopback_only = loopback_only
        self._sessions: deque[str] = deque(maxlen=SESSIONS_MAX)
        self._failed_attempts: deque[float] = deque(maxlen=ATTEMPTS_PER_MIN_MAX)

    def address(self, url: str) -> str:
        """The address to open: with the token, if there is no password."""
        return url if self._password is not None else f"{url}?{TOKEN}={self._token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        problem = self._rejection(scope, headers)
        if problem:
            await _reject(scope, send, 403, problem)
        elif self._has_session(headers):
            await self.app(scope, receive, _with_headers(send))
        elif scope["type"] == "websocket":
            await _reject(scope, send, 403, "sign in first: reload the page")
        elif self._password is None:
            await self._check_token(scope, headers, send)
        elif scope["path"] == "/login" and scope["method"] == "POST":
            await self._log_in(headers, receive, send)
        elif scope["path"].startswith("/data/"):
            await _reject(scope, send, 401, "sign in first: reload the page")
        else:
            await _respond(send, 401, login_page())

    def _rejection(self, scope: Scope, headers: dict[str, str]) -> str:
        host = headers.get("host", "")
        if self._loopback_only and not is_loopback(_split_url(f"//{host}").hostname or ""):
            return "this page is for this machine only: open it as localhost, or as 127.0.0.1"
        origin = headers.get("origin")
        is_safe = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if origin is not None and not is_safe and not (host and _split_url(origin).netloc == host):
            return "this came from a page of another server"
        return ""

    def _has_session(self, headers: dict[str, str]) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(_cookie_name(headers))
        except CookieError:
            return False
        given = cookie.value.encode() if cookie is not None else b""
        return any(hmac.compare_digest(given, each.encode()) for each in self._sessions)

    async def _check_token(self, scope: Scope, headers: dict[str, str], send: Send) -> None:
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        given = query.pop(TOKEN, [""])[0]
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            await _reject(scope, send, 401, "open the address that the program printed: it has a token")
            return
        # Two slashes would begin the name of another host. Browsers take a backslash for a slash: it is quoted, and so
        # are line breaks.
        path = "/" + quote(scope["path"].lstrip("/"))
        await self._start_session(headers, send, path + ("?" + urlencode(query, doseq=True) if query else ""))

    async def _log_in(self, headers: dict[str, str], receive: Receive, send: Send) -> None:
        now = time.monotonic()
        if len(self._failed_attempts) == self._failed_attempts.maxlen and now - self._failed_attempts[0] < 60:
            await _respond(send, 429, login_page("Too many wrong passwords: wait a minute."))
            return
        form = await _read_password(receive)
        if form is None or not hmac.compare_digest(form.encode(), self._password or b""):
            self._failed_attempts.append(now)
            await _respond(send, 403, login_page("That is not the password."))
            return
        await self._start_session(headers, send, "/")

    async def _start_session(self, headers: dict[str, str], send: Send, location: str) -> None:
        session = secrets.token_urlsafe(32)
        self._sessions.append(session)
        cookie = f"{_cookie_name(headers)}={session}; Path=/; HttpOnly; SameSite=Strict"
        await _respond(send, 303, "", ((b"location", location.encode()), (b"set-cookie", cookie.encode())))


def session_of(headers: Mapping[str, str], cookies: Mapping[str, str]) -> str:
    """The session with which a page was opened. It is secret."""
    return cookies.get(_cookie_name(headers), "")


def _cookie_name(headers: Mapping[str, str]) -> str:
    port = headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isdecimal() else COOKIE


async def _read_password(receive: Receive) -> str | None:
    """The password from a form; None if there is none or the form is too large."""
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


async def _reject(scope: Scope, send: Send, status: int, reason: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": reason})
    else:
        await _respond(send, status, reason, ((b"content-type", b"text/plain; charset=utf-8"),))


async def _respond(send: Send, status: int, text: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    merged = dict([(b"content-type", b"text/html; charset=utf-8"), (b"cache-control", b"no-store"), *HEADERS, *headers])
    await send({"type": "http.response.start", "status": status, "headers": list(merged.items())})
    await send({"type": "http.response.body", "body": text.encode()})
