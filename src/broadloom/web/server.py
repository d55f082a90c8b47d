"""Serve the pages from the event loop of the calling program.

Without a password only this machine has access, and only with the token in the address. Listening elsewhere without a
password is refused before anything is opened.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI
from nicegui import ui
from starlette.staticfiles import StaticFiles

from broadloom.errors import BroadloomError
from broadloom.web.api import data_routes, download_routes
from broadloom.web.auth import App, AuthMiddleware, is_loopback
from broadloom.web.pages import register
from broadloom.web.sources import Sources

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.testing.cluster.cluster import LocalCluster
    from broadloom.web.auction_client import AuctionClient
    from broadloom.web.delivery_site import DeliverySite
    from broadloom.web.game_client import Connect
    from broadloom.web.peer_timeline import PeerTimeline

RECONNECT_S = 20.0
"""A page that loses its connection for this long continues; after that it is rebuilt."""
STATIC = Path(__file__).parent / "static"
LOOPBACK = "127.0.0.1"
PORT = 8470
SHUTDOWN_TIMEOUT_S = 3.0
"""Time for browsers to finish their requests at shutdown."""
STARTUP_TIMEOUT_S = 30.0
LISTEN_BACKLOG = 128

_served = False


def make_app(sources: Sources, *, password: str | None, loopback_only: bool) -> AuthMiddleware:
    """Once per process: NiceGUI keeps its pages in one place."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.router.routes.extend([*data_routes(sources), *download_routes(sources)])
    app.mount("/static", StaticFiles(directory=STATIC))
    register(sources)
    # Without Tailwind, which compiles styles in the browser at every load; ours are one small file.
    ui.run_with(
        app,
        title="Broadloom",
        favicon=STATIC / "icon.svg",
        dark=None,
        language="en-US",
        tailwind=False,
        reconnect_timeout=RECONNECT_S,
        show_welcome_message=False,
    )
    return AuthMiddleware(app, password=password, loopback_only=loopback_only)


class ServeError(BroadloomError):
    """The server cannot start; the text says what to do."""


async def serve(
    *,
    cluster: "LocalCluster | None" = None,
    channel: "Channel | None" = None,
    peer_timeline: "PeerTimeline | None" = None,
    tapes_dir: Path | None = None,
    results_dir: Path | None = None,
    host: str = LOOPBACK,
    port: int = PORT,
    password: str | None = None,
    on_ready: Callable[[str], None] | None = None,
    progress: Callable[[], str] | None = None,
    delivery: "DeliverySite | None" = None,
    connect: "Connect | None" = None,
    auction_client: "AuctionClient | None" = None,
) -> None:
    """Serve the pages until canceled. Once per process.

    - `cluster`: peers that this program started; the pages may kill them. The caller closes it.
    - `channel`: a channel to follow as an ordinary peer; ignored if there is a cluster.
    - `peer_timeline`: the tape with which the channel was joined, so that messages are shown besides links.
    - `tapes_dir`: a tape or a directory of tapes to replay.
    - `results_dir`: directory of the pipeline's results (`--out`), including live tables; may not exist yet.
    - `host`, `port`: where to listen; port 0 selects a free one. Any host but loopback requires a `password`.
    - `on_ready(url)`: called once when the first page is available. Without a password, the address has a token, which
      other users of this machine do not know.
    - `connect(channel)`: joins the channel of a game as the server's own peer was joined; by default without options.
    - `progress()`: a sentence on what the pages wait for ("Spark starts: 12 s"), or empty.
    - `delivery`: a delivery service whose topics the pages show.
    - `auction_client`: the server's part in an auction on the channel; by default one with three notaries, which keeps
      sealed bids only in memory.

    Raises `ServeError` if the port is in use or the password is missing.
    """
    global _served  # noqa: PLW0603
    check(host, password)
    if _served:
        raise ServeError("the pages can be served only once per process: start another process")
    with _listen(host, port) as listening:
        _served = True
        sources = Sources(
            cluster=cluster,
            channel=channel,
            peer_timeline=peer_timeline,
            tapes_dir=tapes_dir,
            results_dir=results_dir,
            progress=progress,
            delivery=delivery,
            connect=connect,
            auction_client=auction_client,
        )
        app = make_app(sources, password=password, loopback_only=is_loopback(host))
        server = _Server(app)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        following = asyncio.create_task(sources.live.run()) if sources.live is not None else None
        try:
            async with asyncio.timeout(STARTUP_TIMEOUT_S):
                await server.listens.wait()
            if server.should_exit:
                raise ServeError("the server could not start; its log says why")
            if on_ready is not None:
                on_ready(app.address(_url(listening)))
            await asyncio.shield(serving)
        finally:
            if following is not None:
                following.cancel()
            server.should_exit = True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(serving, SHUTDOWN_TIMEOUT_S + 2)
            await sources.close()


def check(host: str, password: str | None) -> None:
    """Raise `ServeError` for everything that can be checked before opening a socket."""
    if not is_loopback(host) and not password:
        raise ServeError(
            f"anyone who can reach {host} could open the pages: set BROADLOOM_WEB_PASSWORD, or listen on {LOOPBACK}"
        )


class _Server(uvicorn.Server):
    def __init__(self, app: App) -> None:
        super().__init__(
            uvicorn.Config(
                app, log_level="warning", access_log=False, timeout_graceful_shutdown=int(SHUTDOWN_TIMEOUT_S)
            )
        )
        self.listens = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are handled by the calling program."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, number)
    except OSError as problem:
        raise ServeError(f"cannot listen at {host}: {problem.strerror or problem}") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(LISTEN_BACKLOG)
    except OSError as problem:
        listening.close()
        reason = problem.strerror or str(problem)
        raise ServeError(
            f"cannot listen at {host}:{port} ({reason}): choose another port, or 0 for a free one"
        ) from None
    listening.setblocking(False)
    return listening


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    host_name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    return f"http://{f'[{host_name}]' if ':' in host_name else host_name}:{port}/"
