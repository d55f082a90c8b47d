"""One link: a lasting line to a neighbour."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.fabric.arrears import Arrears
from weft.fabric.events import Why
from weft.fabric.seal import Identity
from weft.wire import Contact, PeerId, WireError, encode
from weft.wire.broadcast import BROADCAST
from weft.wire.calls import Refusal
from weft.wire.codec import Message
from weft.wire.errors import UnknownMessage
from weft.wire.links import CutDone, Heartbeat

if TYPE_CHECKING:
    from weft.fabric.peer import Peer
    from weft.fabric.retention import Kept
    from weft.fabric.world import Line, Timer

_HEARTBEAT = encode(Heartbeat())
_BROADCAST = BROADCAST.to_bytes(4, "big")


class Link:
    """Driven by its line; hands broadcasts to the stream and all else to the peer's handlers."""

    __slots__ = (
        "_drain_timer",
        "_heard_at",
        "_line",
        "_peer",
        "_release_timer",
        "_spoke_at",
        "above",
        "arrears",
        "brought",
        "contact",
        "draining",
        "greeted",
        "heard",
        "introduced",
        "log_start",
        "looked_up",
        "made_at",
        "neighbour",
        "reserved",
        "spoke",
        "view",
    )

    def __init__(self, peer: "Peer", line: "Line", contact: Contact) -> None:
        self._peer = peer
        self._line = line
        self.contact = contact
        self.neighbour = contact.peer
        self.reserved: int | None = None
        """The walk (or the peer that we probe) for which this edge is on offer; an edge is never offered twice."""
        self.draining = False
        """Cut: no longer one of our places, still read until the other end has said its last word."""
        self.greeted = False
        self.view: tuple[int, ...] | None = None
        """The neighbour's neighbours, as it said last."""
        self.log_start = 0
        """What we retained before this position is sent by reconciliation, all after it as it comes."""
        self.looked_up = 0
        """Messages that were looked for on this neighbour's behalf since the last tick."""
        self.brought = 0
        """Frames with broadcasts that came over this link."""
        self.arrears = Arrears(peer, self)
        """What it will get when it has read what it was sent."""
        self.above: tuple[Kept, ...] = ()
        """What we held above the marks that our greeting told."""
        self.introduced: dict[PeerId, None] = {}
        """Authors whose credential was sent over this link."""
        self.heard = True
        """Something came since the last tick."""
        self.spoke = True
        """Something was sent since the last tick."""
        self.made_at = self._heard_at = self._spoke_at = peer.world.now()
        self._drain_timer: Timer | None = None
        self._release_timer: Timer | None = None
        line.owner = self

    @property
    def is_full(self) -> bool:
        """Whether the neighbour is behind with reading: what is sent now would only wait."""
        return self._line.is_full

    @property
    def queued_bytes(self) -> int:
        """Waiting for this neighbour."""
        return self._line.queued_bytes

    @property
    def identity(self) -> Identity | None:
        """Who the neighbour has proved to be."""
        return self._line.identity

    def on_open(self) -> None:
        """Nothing: a link is made of a call, and was open before."""

    def on_frame(self, frame: bytes) -> None:
        self.heard = True
        try:
            if frame[4:8] == _BROADCAST:
                self._peer.stream.on_broadcast(self, frame)
            else:
                self._peer.on_link_frame(self, frame)
        except UnknownMessage:
            self._peer.counters.unknown += 1  # a later version may say more than we understand
        except WireError as problem:
            self._peer.counters.malformed += 1
            self._peer.note(f"hung up on {self.contact}: {problem}")
            self.hang_up(Why.PROTOCOL)

    def on_room(self) -> None:
        if self.arrears and not self.draining:
            self.arrears.pay()

    def on_lost(self, refusal: Refusal | None = None) -> None:
        self._ended(Why.LOST if refusal is None else Why.BARRED)

    def on_choked(self) -> None:
        self._peer.counters.choked += 1
        self._peer.note(f"hung up on {self.contact}, which does not read what it is sent")
        self._ended(Why.SLOW)

    def send_frame(self, frame: bytes, rest: memoryview | None = None) -> None:
        self.spoke = True
        self._line.send(frame, rest)

    def send(self, message: Message) -> None:
        self.spoke = True
        self._line.send(encode(message))

    def tick(self, now: float) -> None:
        """Keep an idle link alive, and give up one that is silent. The hot path sets flags, only this reads a clock."""
        settings = self._peer.settings
        self.looked_up = 0
        if self.heard or self._peer.deaf:
            self.heard = False
            self._heard_at = now
        elif now - self._heard_at > settings.silence_s:
            self.hang_up(Why.SILENT)
            return
        if not self.greeted and now - self.made_at > settings.silence_s:
            self.hang_up(Why.PROTOCOL)  # alive, but not a neighbour that one could learn anything from
            return
        if self.spoke:
            self.spoke = False
            self._spoke_at = now
        elif now - self._spoke_at >= settings.heartbeat_s:
            self._line.send(_HEARTBEAT)
            self._spoke_at = now

    def hang_up(self, why: Why) -> None:
        """Give the link up at once."""
        self._line.close()
        self._ended(why)

    # -- reservation: the edge is on offer to a newcomer

    def reserve(self, walk: int) -> None:
        self.release()
        self.reserved = walk
        self._release_timer = self._peer.world.after(self._peer.settings.reservation_s, self.release)

    def release(self) -> None:
        self.reserved = None
        if self._release_timer is not None:
            self._release_timer.cancel()
            self._release_timer = None

    # -- draining: the edge was cut, what is under way still counts

    def drain(self, farewell: Message) -> None:
        """Say the last word, free the place, and listen until the other end is done too."""
        self._peer.links.remove(self, Why.CUT)
        self.send(farewell)
        self._listen(self._peer.settings.drain_s, self.finish)

    def linger(self) -> None:
        """The other end leaves: free its place, but listen for a moment to what it still passes on."""
        self._peer.links.remove(self, Why.LEFT)
        self._listen(self._peer.settings.linger_s, self.acknowledge_cut)

    def _listen(self, for_s: float, then: Callable[[], None]) -> None:
        self.draining = True
        self._drain_timer = self._peer.world.after(for_s, then)

    def acknowledge_cut(self) -> None:
        """The other end said its last word; say ours and hang up behind it."""
        self.send(CutDone())
        self.finish()

    def finish(self) -> None:
        """All has been said."""
        self._line.close()
        self._ended(Why.CUT)

    def _ended(self, why: Why) -> None:
        self.release()
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None
        self.draining = False
        self._peer.links.remove(self, why)
