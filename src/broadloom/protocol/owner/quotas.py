"""`QuotaEnforcer`: what receivers do with a member that sends more than the card allows.

Its frames are held back until its quota allows them; a member that is far ahead is cut off, refused for a while, and
named. Only the frames of that member are held: everything else on its links goes on. Honest members pace themselves
(`pacer.py`) and never meet any of this. Exists only while a card with quotas is in force.
"""

from typing import TYPE_CHECKING

from broadloom.protocol.broadcast.author_warnings import sent_at as signed_sent_at
from broadloom.protocol.events import QuotaExceeded
from broadloom.protocol.identity import Identity, Role
from broadloom.protocol.owner.meter import GRACE_S, SLACK_S, TOLERANCE, UNSIGNED_SLACK_S, AuthorMeter, capacity_s
from broadloom.wire import Frame, PeerId
from broadloom.wire.exchange_messages import RejectReason

if TYPE_CHECKING:
    from broadloom.protocol.link import Link
    from broadloom.protocol.owner.card import ChannelCard, Quota
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.requests.incoming import IncomingRequest
    from broadloom.wire import Broadcast

AHEAD_S_MAX = 10.0
"""A member that is further ahead of its quota is cut off."""
HELD_BYTES_MAX = 4 << 20
"""The same for one whose frames that are held back take more memory."""
REFUSED_S = 60.0
REFUSED_S_MAX = 3600.0
"""How long it is refused: at first, and at most; each time twice as long."""
REFUSALS_MAX = 1024


class Refusals:
    """Members that were cut off, and until when. Kept when the card changes."""

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, float]] = {}
        """By ticket, or by peer id without tickets: until when, and for how long."""

    def add(self, key: str, now: float) -> None:
        _, duration_s = self._until.pop(key, (0.0, REFUSED_S / 2))
        duration_s = min(REFUSED_S_MAX, 2 * duration_s)
        self._until[key] = now + duration_s, duration_s
        if len(self._until) > REFUSALS_MAX:
            del self._until[next(iter(self._until))]

    def remaining_s(self, key: str, now: float) -> float:
        refused = self._until.get(key)
        return max(0.0, refused[0] - now) if refused is not None else 0.0

    def __len__(self) -> int:
        return len(self._until)


class _Held:
    """The frames of one author that wait."""

    __slots__ = ("frames", "release_at", "size")

    def __init__(self) -> None:
        self.frames: dict[int, tuple[Link, Frame]] = {}
        """By sequence number, in the order in which they are released."""
        self.release_at = 0.0
        self.size = 0


class QuotaEnforcer:
    def __init__(self, peer: "Peer", card: "ChannelCard", refusals: Refusals) -> None:
        self._peer = peer
        self._card = card
        self._refusals = refusals
        self._since = peer.runtime.now()
        self._meters: dict[PeerId, AuthorMeter] = {}
        self._callers: dict[PeerId, tuple[float, float, int, float]] = {}
        """Tokens for direct requests in seconds of the quota, as of when, and the requests since when."""
        self._held: dict[PeerId, _Held] = {}
        self._released: Frame | None = None
        self.is_active = True

    # -- broadcasts

    def admit(self, link: "Link", message: "Broadcast", frame: Frame, now: float) -> bool:
        """Whether to process a frame now. Its signature, if any, was verified. False: it is dropped, or held back."""
        author, verifier = message.author, self._peer.broadcaster.verifier
        if frame is self._released:
            return True
        if verifier is None and link.peer_id != author:
            return True  # nobody can tell who has sent it
        identity = verifier.identity_of(author) if verifier is not None else link.identity
        quota = self._card.quota_of(identity.role if identity is not None else Role.PRODUCER)
        if quota is None or not quota.limits_broadcasts:
            return True
        if self._refusals.remaining_s(key_of(author, identity), now):
            return False
        held = self._held.get(author)
        if held is not None and message.sequence in held.frames:
            return False  # another copy
        sent_s = signed_sent_at(message) if verifier is not None else now - message.age_ms / 1000
        size = sum(map(len, message.messages))
        meter = self._meters.get(author)
        if meter is None:
            slack_s = SLACK_S if verifier is not None else UNSIGNED_SLACK_S
            self._meters[author] = AuthorMeter(quota, message.last_sequence, sent_s, now, slack_s)
            return True
        ahead_s = meter.charge(message.sequence, message.last_sequence, size, sent_s, message.age_ms / 1000, now)
        limit = quota.message_bytes_max
        if limit is not None and meter.is_counting(now) and max(map(len, message.messages)) > limit:
            self._cut(author, identity, "message_bytes", max(map(len, message.messages)), limit)
            return False
        if ahead_s <= 0 and held is None:
            return True
        self._hold(author, link, message.sequence, frame, ahead_s, now)
        if ahead_s > AHEAD_S_MAX or self._held[author].size > HELD_BYTES_MAX:
            self._cut_author(author, identity, meter, quota, now)
        return False

    def _hold(self, author: PeerId, link: "Link", sequence: int, frame: Frame, ahead_s: float, now: float) -> None:
        held = self._held.get(author)
        is_first = held is None
        if held is None:
            held = self._held[author] = _Held()
        held.frames[sequence] = link, frame
        held.size += len(frame)
        held.release_at = max(held.release_at, now + ahead_s)
        self._peer.counters.quota_held += 1
        if is_first:
            self._peer.runtime.call_later(max(ahead_s, 0.001), self._release, author)

    def _release(self, author: PeerId) -> None:
        """Process the next frame; the others follow evenly until the last one is due."""
        held = self._held.get(author)
        if held is None or not self.is_active:
            return
        sequence = next(iter(held.frames))
        link, frame = held.frames.pop(sequence)
        held.size -= len(frame)
        if held.frames:
            delay_s = max(0.001, (held.release_at - self._peer.runtime.now()) / len(held.frames))
            self._peer.runtime.call_later(delay_s, self._release, author)
        else:
            del self._held[author]
        if self._peer.links.get(link.peer_id) is link:  # else the other neighbors have it
            self._released = frame
            try:
                link.on_frame(frame)
            finally:
                self._released = None

    def _cut_author(
        self, author: PeerId, identity: Identity | None, meter: AuthorMeter, quota: "Quota", now: float
    ) -> None:
        messages_per_s, bytes_per_s = meter.measured(now)
        if quota.bytes_per_s is not None and (meter.exceeds_bytes or quota.messages_per_s is None):
            self._cut(author, identity, "bytes", bytes_per_s, quota.bytes_per_s)
        else:
            self._cut(author, identity, "messages", messages_per_s, quota.messages_per_s or 0.0)

    def _cut(self, author: PeerId, identity: Identity | None, what: str, measured: float, allowed: float) -> None:
        peer = self._peer
        self._refusals.add(key_of(author, identity), peer.runtime.now())
        self._held.pop(author, None)
        self._meters.pop(author, None)
        self._callers.pop(author, None)
        peer.counters.quota_cuts += 1
        name = identity.name if identity is not None else ""
        peer.emit(QuotaExceeded(author, name, what, round(measured, 3), allowed))
        # Later: the frame that is being handled came over one of these links.
        peer.runtime.call_soon(self._peer.owner.close_refused)

    # -- direct requests

    def admit_request(self, request: "IncomingRequest") -> bool:
        """Whether to handle a request or a one-way message of another member."""
        identity, caller, now = request.identity, request.peer_id, self._peer.runtime.now()
        quota = self._card.quota_of(identity.role if identity is not None else Role.PRODUCER)
        if quota is None or quota.requests_per_s is None or now - self._since < GRACE_S:
            return True
        full_s = capacity_s(quota, quota.requests_per_s) + SLACK_S
        level_s, at, count, since = self._callers.get(caller, (full_s, now, 0, now))
        level_s = min(full_s, level_s + TOLERANCE * (now - at)) - 1 / quota.requests_per_s
        self._callers[caller] = (level_s, now, count + 1, since) if level_s < full_s - 1 else (level_s, now, 1, now)
        if level_s < -AHEAD_S_MAX:
            self._cut(caller, identity, "requests", (count + 1) / max(1.0, now - since), quota.requests_per_s)
        return level_s >= 0

    def tick(self, now: float) -> None:
        """Forget authors that nobody remembers, and callers that are quiet for long."""
        windows = self._peer.broadcaster.receiver.windows
        for author in [each for each in self._meters if each not in windows]:
            del self._meters[author]
        before = now - self._peer.settings.retention_s
        for caller in [each for each, tokens in self._callers.items() if tokens[1] < before]:
            del self._callers[caller]

    def stop(self) -> None:
        """Another card replaces this one: what is held is processed now."""
        self._meters.clear()
        while self._held:
            for author in list(self._held):
                self._release(author)
        self.is_active = False


def key_of(peer_id: PeerId, identity: Identity | None) -> str:
    """A cut member is recognized by its ticket, whatever peer id it has next."""
    return identity.ticket_serial if identity is not None and identity.ticket_serial else f"peer {peer_id:016x}"


def refusal(remaining_s: float) -> tuple[RejectReason, str]:
    return RejectReason.QUOTA_EXCEEDED, f"this member has exceeded its quota; try again in {remaining_s:.0f} s"
