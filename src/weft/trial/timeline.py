"""Where the time of one `connect` goes: keys, search, question, walks, links, and the handshakes among all that.

Watches the classes of the fabric from outside, so it is only for a process that holds one newcomer and nothing else.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.fabric.events import LinkUp
from weft.fabric.joining import Joining
from weft.fabric.seeking import Seeking
from weft.net import line
from weft.net.tls import Tls

if TYPE_CHECKING:
    import ssl

    from weft.trial.member import Witness
    from weft.wire import Contact

PHASES = ("keys", "search", "question", "walk", "links", "rest")
"""In their order: making keys; until a connected peer was found; until it answered; until the first link came; until
the last one came; until `connect` returned."""


class Timeline:
    def __init__(self) -> None:
        self._found_ns = 0
        self._accepted_ns = 0
        self._handshakes_ns: list[int] = []
        self._busy_ns = 0
        self._watch_search()
        self._watch_handshakes()

    def _watch_search(self) -> None:
        found, join_through = Seeking.found, Joining.join_through

        def seen_found(seeking: Seeking, contact: "Contact") -> None:
            self._found_ns = self._found_ns or time.monotonic_ns()
            found(seeking, contact)

        def seen_join_through(joining: Joining, contact: "Contact", on_over: Callable[[bool], None]) -> None:
            def over(accepted: bool) -> None:
                if accepted:
                    self._accepted_ns = self._accepted_ns or time.monotonic_ns()
                on_over(accepted)

            join_through(joining, contact, over)

        Seeking.found = seen_found  # type: ignore[method-assign, assignment]
        Joining.join_through = seen_join_through  # type: ignore[method-assign, assignment]

    def _watch_handshakes(self) -> None:
        timeline = self

        class TimedTls(Tls):
            """Tells how long each handshake took, and how long this process was busy with it."""

            __slots__ = ("_began_ns",)

            def __init__(self, context: "ssl.SSLContext", server_name: str | None) -> None:
                self._began_ns = time.monotonic_ns()
                super().__init__(context, server_name)

            def shake_hands(self) -> bool:
                start_ns = time.thread_time_ns()
                try:
                    done = super().shake_hands()
                finally:
                    timeline._busy_ns += time.thread_time_ns() - start_ns
                if done:
                    timeline._handshakes_ns.append(time.monotonic_ns() - self._began_ns)
                return done

        line.Tls = TimedTls  # type: ignore[attr-defined]

    def phases(self, start_ns: int, witness: "Witness", end_ns: int) -> dict[str, float]:
        """Seconds of each phase, and what handshakes took: each overlaps with some phase, or with another."""
        links_ns = [at_ns for at_ns, event in witness.events if isinstance(event, LinkUp)] or [end_ns]
        found_ns = self._found_ns or end_ns
        marks = [start_ns, witness.made_ns, found_ns, self._accepted_ns or found_ns, links_ns[0], links_ns[-1], end_ns]
        for index in range(1, len(marks)):
            marks[index] = max(marks[index], marks[index - 1])  # a link may come before the answer does
        lasted = {name: (marks[at + 1] - marks[at]) / 1e9 for at, name in enumerate(PHASES)}
        return lasted | {
            "handshakes": float(len(self._handshakes_ns)),
            "handshakes_sum": sum(self._handshakes_ns) / 1e9,
            "handshakes_busy": self._busy_ns / 1e9,
        }
