"""Signed channels: every message is checked before it is delivered or passed on, so a forgery dies at its first hop.

A neighbour is told an author's credential before the author's first message on that link; lines keep their order, so
whoever gets a message can check it. Honest peers pass on only what they have checked: a neighbour that brings a
forged message, or one of an author that may only listen, is hung up on.
"""

from typing import TYPE_CHECKING

from weft.fabric.seal import Check, Identity, Rejected, Role, Seal
from weft.wire import Broadcast, PeerId, WireError, encode
from weft.wire.broadcast import said
from weft.wire.links import Credential, Introduce, Want

if TYPE_CHECKING:
    from weft.fabric.link import Link
    from weft.fabric.peer import Peer
    from weft.fabric.stream import Stream

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

    def identity_of(self, author: PeerId) -> Identity | None:
        known = self._known.get(author)
        return known.identity if known is not None else None

    # -- our own messages

    def signed(self, message: Broadcast, frame: bytes) -> Broadcast:
        return message._replace(signature=self._seal.sign(self._peer.channel_id + said(frame)))

    # -- telling neighbours who an author is

    def introduce(self, link: "Link", author: PeerId) -> None:
        """Before the first message of this author on this link."""
        if author in link.introduced:
            return
        known = self._known.get(author)
        if known is not None:
            link.send_frame(known.frame)
        elif author == self._peer.me.peer:
            link.send_frame(self._own)
        else:
            return  # no longer admitted; the neighbour will find that out as well
        link.introduced[author] = None

    def on_introduce(self, link: "Link", wanted: Introduce) -> None:
        link.introduced.pop(wanted.author, None)
        self.introduce(link, wanted.author)
        self._stream.reconcile.on_want(link, Want(wanted.author, wanted.sequence, wanted.sequence))

    # -- being told

    def on_credential(self, _link: "Link", credential: Credential) -> None:
        author = credential.author
        if author in self._known or author == self._peer.me.peer:
            return
        if len(self._known) >= self._peer.settings.authors_max and not self._drop_one():
            self._peer.counters.authors_refused += 1
            return
        try:
            self._known[author] = _Known(credential, *self._seal.admit(author, credential.credential))
        except Rejected as rejected:
            # Clocks and revocation lists may differ a little between honest peers, so only the author is refused.
            self._peer.counters.unproven += 1
            self._peer.note(f"author {author:016x} is not admitted: {rejected.text}")

    def vouches(self, link: "Link", frame: bytes, message: Broadcast) -> bool:
        """Whether this is the word of its author, and the author may speak. WireError if the neighbour cheats."""
        known = self._known.get(message.author)
        if known is None:
            link.send(Introduce(message.author, message.sequence))
            return False
        if not known.check(self._peer.channel_id + said(frame), message.signature):
            self._peer.counters.forged += 1
            raise WireError(f"a message that {message.author:016x} did not sign")
        if known.identity.role is not Role.PRODUCER:
            self._peer.counters.forbidden += 1
            raise WireError(f"a message of {known.identity.name or message.author}, who may only listen")
        return True

    # -- forgetting

    def forget(self, author: PeerId) -> None:
        self._known.pop(author, None)

    def _drop_one(self) -> bool:
        """Somebody who never said anything."""
        for author in self._known:
            if author not in self._stream.authors:
                del self._known[author]
                return True
        return False

    def look_again(self) -> None:
        """A few credentials each time: who is no longer admitted is not listened to any more."""
        if not self._to_look_at:
            self._to_look_at = list(self._known)
        for author in self._to_look_at[-LOOKED_AGAIN:]:
            known = self._known.get(author)
            if known is None:
                continue
            try:
                self._seal.still_admits(known.identity)
            except Rejected as rejected:
                del self._known[author]
                self._peer.note(f"author {author:016x} is no longer admitted: {rejected.text}")
        del self._to_look_at[-LOOKED_AGAIN:]
