"""`AuthorWarnings`: what signatures reveal about an author on a signed channel, reported once per author.

Equivocation: an author has signed two different frames with the same sequence number, so members may have received
different messages. It is noticed by every peer that gets both while it still retains the first. A wrong clock: peers
that hear an author for the first time take its messages for replayed ones and ignore them.
"""

from typing import TYPE_CHECKING

from broadloom.protocol.events import AuthorWarning, AuthorWarningReason
from broadloom.wire import Broadcast, Frame, PeerId
from broadloom.wire.broadcast_frame import decode_broadcast, is_copy, read_header, signature_of

if TYPE_CHECKING:
    from broadloom.protocol.broadcast.broadcaster import Broadcaster
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer

WARNINGS_MAX = 1024
"""Warnings remembered, so that they are not repeated; the oldest is forgotten first."""
CLOCK_SKEW_S = 300.0
"""Tolerated difference between the clocks of an author and a peer that hears of it for the first time."""
TIME_BYTES = 8
"""The signature field of a frame begins with the time of sending, in milliseconds since 1970."""


def sent_at(message: Broadcast) -> float:
    """The author's time of sending, which its signature covers, in seconds since 1970."""
    return int.from_bytes(message.signature[:TIME_BYTES], "big") / 1000


class AuthorWarnings:
    def __init__(self, peer: "Peer", broadcaster: "Broadcaster") -> None:
        self._peer = peer
        self._broadcaster = broadcaster
        self._reported: dict[tuple[PeerId, AuthorWarningReason], None] = {}

    def on_duplicate(self, link: "Link", author: PeerId, sequence: int, frame: Frame) -> None:
        """Compare a frame whose messages were received before with the first copy. If they differ, the signature
        decides whose fault it is: `verify` raises `WireError` if the neighbor has forged the frame."""
        first_copy = self._broadcaster.retention.starting_at(author, sequence)
        if first_copy is not None and is_copy(frame, first_copy.frame):
            return
        verifier = self._broadcaster.verifier
        assert verifier is not None
        if self._conflicts(frame) and verifier.verify(link, frame, message := decode_broadcast(frame)):
            self._on_equivocation(message)

    def on_overlap(self, frame: Frame, message: Broadcast) -> None:
        """The same for a frame with a valid signature that brings known and new messages."""
        if self._conflicts(frame):
            self._on_equivocation(message)

    def _conflicts(self, frame: Frame) -> bool:
        author, first, last, _, _ = read_header(frame)
        if author == self._peer.me.peer_id:
            return False
        signature = signature_of(frame)
        retained = self._broadcaster.retention.in_range(author, first, last)
        return any(signature_of(each.frame) != signature for each in retained)

    def _on_equivocation(self, message: Broadcast) -> None:
        self._peer.counters.equivocations += 1
        self._report(
            message.author,
            AuthorWarningReason.EQUIVOCATION,
            f"has signed two different messages with the number {message.sequence}: members may have received either",
        )

    def check_clock(self, message: Broadcast) -> bool:
        """Whether the first message that is heard of an author is recent enough not to be a replay."""
        age_s = self._peer.runtime.wall_time_s() - sent_at(message)
        if age_s > self._peer.settings.retention_s + CLOCK_SKEW_S:
            self._peer.counters.stale_messages += 1
            self._report(
                message.author,
                AuthorWarningReason.CLOCK,
                f"is ignored: its message was sent {age_s / 60:.0f} minutes ago by its clock. Correct the clock of its "
                "machine, or of this one, and connect again; if both are right, someone replays old messages",
            )
            return False
        if age_s < -CLOCK_SKEW_S:
            self._report(
                message.author,
                AuthorWarningReason.CLOCK,
                f"sends from the future: its clock is {-age_s / 60:.0f} minutes ahead of ours. If ours is behind, new "
                "members ignore what we send: correct the clock",
            )
        return True

    def _report(self, author: PeerId, reason: AuthorWarningReason, text: str) -> None:
        if (author, reason) in self._reported:
            return
        self._reported[author, reason] = None
        if len(self._reported) > WARNINGS_MAX:
            del self._reported[next(iter(self._reported))]
        verifier = self._broadcaster.verifier
        identity = verifier.identity_of(author) if verifier is not None else None
        name = f"{identity.name} ({author:016x})" if identity is not None and identity.name else f"{author:016x}"
        self._peer.emit(AuthorWarning(author, reason, f"{name} {text}"))
