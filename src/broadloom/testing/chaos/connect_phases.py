"""Where the time of one `connect` goes.

Instruments the protocol classes, so it is only for a process with a single joining peer.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from broadloom.protocol.events import LinkUp
from broadloom.protocol.membership.discovery import Discovery
from broadloom.protocol.membership.join import JoinProtocol
from broadloom.transport import connection
from broadloom.transport.tls_stream import TlsStream

if TYPE_CHECKING:
    import ssl

    from broadloom.protocol.exchange import OutgoingExchange
    from broadloom.testing.processes.peer_observer import PeerObserver
    from broadloom.wire import PeerInfo

PHASES = ("keys", "discovery", "join_request", "walk", "links", "rest")
"""In order: create keys; until a connected peer is found; until it accepts; until the first link is up; until the last
link is up; until `connect` returns."""


class ConnectPhases:
    def __init__(self) -> None:
        self._found_ns = 0
        self._accepted_ns = 0
        self._handshakes_ns: list[int] = []
        self._busy_ns = 0
        self._instrument_discovery()
        self._instrument_handshakes()

    def _instrument_discovery(self) -> None:
        found, join_via = Discovery.on_member_found, JoinProtocol.join_via

        def timed_found(discovery: Discovery, peer: "PeerInfo") -> None:
            self._found_ns = self._found_ns or time.monotonic_ns()
            found(discovery, peer)

        def timed_join_via(
            join: JoinProtocol,
            peer: "PeerInfo",
            on_done: Callable[[bool], None],
            *,
            over: "OutgoingExchange | None" = None,
        ) -> None:
            def done(accepted: bool) -> None:
                if accepted:
                    self._accepted_ns = self._accepted_ns or time.monotonic_ns()
                on_done(accepted)

            join_via(join, peer, done, over=over)

        Discovery.on_member_found = timed_found  # type: ignore[method-assign, assignment]
        JoinProtocol.join_via = timed_join_via  # type: ignore[method-assign, assignment]

    def _instrument_handshakes(self) -> None:
        recorder = self

        class TimedTls(TlsStream):
            """Measures duration and CPU time of each handshake."""

            __slots__ = ("_began_ns",)

            def __init__(self, context: "ssl.SSLContext", server_name: str | None) -> None:
                self._began_ns = time.monotonic_ns()
                super().__init__(context, server_name)

            def do_handshake(self) -> bool:
                start_ns = time.thread_time_ns()
                try:
                    done = super().do_handshake()
                finally:
                    recorder._busy_ns += time.thread_time_ns() - start_ns
                if done:
                    recorder._handshakes_ns.append(time.monotonic_ns() - self._began_ns)
                return done

        connection.TlsStream = TimedTls  # type: ignore[attr-defined]

    def phases(self, start_ns: int, observer: "PeerObserver", end_ns: int) -> dict[str, float]:
        """Return the seconds of each phase, and of all handshakes, which overlap with phases and each other."""
        links_ns = [at_ns for at_ns, event in observer.events if isinstance(event, LinkUp)] or [end_ns]
        found_ns = self._found_ns or end_ns
        marks = [
            start_ns,
            observer.created_ns,
            found_ns,
            self._accepted_ns or found_ns,
            links_ns[0],
            links_ns[-1],
            end_ns,
        ]
        for index in range(1, len(marks)):
            marks[index] = max(marks[index], marks[index - 1])  # a link may be up before the join request is answered
        durations = {name: (marks[at + 1] - marks[at]) / 1e9 for at, name in enumerate(PHASES)}
        return durations | {
            "handshakes": float(len(self._handshakes_ns)),
            "handshakes_sum": sum(self._handshakes_ns) / 1e9,
            "handshakes_busy": self._busy_ns / 1e9,
        }
