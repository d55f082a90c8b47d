"""Signed channels: every message is checked before it is delivered or passed on, so a forgery dies at its first hop.

A neighbour is told an author's credential before the author's first message on that link; lines keep their order, so
whoever gets a message can check it. Honest peers pass on only what they have checked: a neighbour that brings a
forged message, or one of an author that may only listen, is hung up on.
"""

from typing import TYPE_CHECKING

from weft.fabric.seal import Check, Identity, Rejected, Role, Seal
from weft.wire import Broadcast, PeerId, WireError, encode
from weft.wire.broadcast import said
from weft.wire.calls import Refusal
from weft.wire.links import Credential, Introduce, Want

if TYPE_CHECKING:
    from weft.fabric.link import Link
    from weft.fabric.peer import Peer
    from weft.fabric.stream import Stream

ENDED = (Refusal.EXPIRED, Refusal.REVOKED)
"""What is said of the author itself. Anybody can send nonsense in another's name; that does not count against it."""
REFUSED_MAX = 1024
"""Authors remembered that were not admitted; beyond, the first is forgotten."""
REFUSED_S = 30.0
"""So long is an author that was not admitted not heard; then its credential is asked for again."""
INTRODUCED_MAX = 256
"""Credentials asked for between two ticks."""
ROOM_PAUSE_S = 0.1
"""When nobody can be forgotten, it is not tried again for so long: it takes a look at all."""
LOOKED_AGAIN = 64
"""Credentials looked at again in each tick: tickets expire and are revoked."""


class _Known:
    __slots__ = ("check", "frame", "identity")

    def __init__(self, credential: Credential, identity: Identity, check: Check) -> None:
        self.frame = encode(credential)
        self.identity = identity
        self.check = check


class Signing:
    """The credentials of all authors of the channel, as far as this peer has heard of them."""

    def __init__(self, peer: "Peer", stream: "Stream", seal: Seal) -> None:
        self._peer = peer
        self._stream = stream
        self._seal = seal
        self._own = encode(Credential(peer.me.peer, seal.credential))
        self._known: dict[PeerId, _Known] = {}
        self._to_look_at: list[PeerId] = []
        self._refused: dict[PeerId, float] = {}
        """Authors that were not admitted, and until when they are not heard."""
        self._asked = 0
        self._look_for_room_at = 0.0

    def identity_of(self, author: PeerId) -> Identity | None:
        known = self._known.get(author)
        return known.identity if known is not None else None

    # -- our own messages

    def signed(self, message: Broadcast, frame: bytes) -> Broadcast:
        return message._replace(signature=self._seal.sign(self._peer.channel_id + said(frame)))

    # -- telling neighbours who an author is

    def can_introduce(self, author: PeerId) -> bool:
        """Not who is no longer admitted: nobody could check what it said, and would ask us again and again."""
        return author in self._known or author == self._peer.me.peer

    def introduce(self, link: "Link", author: PeerId) -> None:
        """Before the first message of this author on this link."""
        if author not in link.introduced:
            known = self._known.get(author)
            link.send_frame(known.frame if known is not None else self._own)
            link.introduced[author] = None

    def on_introduce(self, link: "Link", wanted: Introduce) -> None:
        link.introduced.pop(wanted.author, None)
        self._stream.gaps.on_want(link, Want(wanted.author, wanted.sequence, wanted.sequence))

    # -- being told

    def on_credential(self, _link: "Link", credential: Credential) -> None:
        author = credential.author
        if author in self._known or author == self._peer.me.peer:
            return
        if not self._has_room():
            self._peer.counters.authors_refused += 1
            return
        if self._is_refused(author):
            self._peer.counters.unproven += 1
            return
        try:
            self._known[author] = _Known(credential, *self._seal.admit(author, credential.credential))
        except Rejected as rejected:
            # Clocks and revocation lists may differ a little between honest peers, so only the author is refused.
            self._peer.counters.unproven += 1
            if rejected.refusal in ENDED:
                self._refuse(author, rejected.text)

    def vouches(self, link: "Link", frame: bytes, message: Broadcast) -> bool:
        """Whether this is the word of its author, and the author may speak. WireError if the neighbour cheats."""
        known = self._known.get(message.author)
        if known is None:
            if not self._is_refused(message.author) and self._asked < INTRODUCED_MAX and self._has_room():
                self._asked += 1
                link.send(Introduce(message.author, message.sequence))
            return False
        if not known.check(self._peer.channel_id + said(frame), message.signature):
            self._peer.counters.forged += 1
            raise WireError(f"a message that {message.author:016x} did not sign")
        if known.identity.role is not Role.PRODUCER:
            self._peer.counters.forbidden += 1
            raise WireError(f"a message of {known.identity.name or message.author}, who may only listen")
        return True

    def _refuse(self, author: PeerId, why: str) -> None:
        self._peer.note(f"author {author:016x} is not admitted: {why}")
        self._refused[author] = self._peer.world.now() + REFUSED_S
        if len(self._refused) > REFUSED_MAX:
            del self._refused[next(iter(self._refused))]

    def _is_refused(self, author: PeerId) -> bool:
        until = self._refused.get(author)
        if until is None or until > self._peer.world.now():
            return until is not None
        del self._refused[author]
        return False

    # -- forgetting

    def forget(self, author: PeerId) -> None:
        self._known.pop(author, None)
        for link in self._peer.links:
            link.introduced.pop(author, None)

    def _has_room(self) -> bool:
        """For one more, or room was made."""
        if len(self._known) < self._peer.settings.authors_max:
            return True
        if self._peer.world.now() < self._look_for_room_at:
            return False
        if self._drop_one() or self._stream.forget_some():
            return True
        self._look_for_room_at = self._peer.world.now() + ROOM_PAUSE_S
        return False

    def _drop_one(self) -> bool:
        """Somebody who never said anything."""
        for author in self._known:
            if author not in self._stream.authors:
                self.forget(author)
                return True
        return False

    def look_again(self) -> None:
        """A few credentials each time: who is no longer admitted is not listened to any more."""
        self._asked = 0
        if not self._to_look_at:
            self._to_look_at = list(self._known)
        for author in self._to_look_at[-LOOKED_AGAIN:]:
            known = self._known.get(author)
            if known is None:
                continue
            try:
                self._seal.still_admits(known.identity)
            except Rejected as rejected:
                self.forget(author)
                self._refuse(author, rejected.text)
        del self._to_look_at[-LOOKED_AGAIN:]
