"""`OwnerDocuments`: how the card and the revocation list of the owner spread, and which of them is in force.

The highest number wins, so a document never goes back to an older one. A member announces the number of what it has
over each link, once: links are reliable. A neighbor with a lower number requests the document, verifies it and
announces it on, so a forgery ends at its first hop. Without documents, no byte is sent.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broadloom.wire import WireError
from broadloom.wire.owner_messages import OwnerDocument, OwnerDocumentKind, OwnerNotice, OwnerWant

if TYPE_CHECKING:
    from broadloom.protocol.identity import Identity
    from broadloom.protocol.link import Link
    from broadloom.protocol.owner.card import ChannelCard
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Timer

WANT_TIMEOUT_S = 2.0
"""A neighbor that does not deliver what it announced within this time is passed over: the next one is asked. What it
delivers later is used all the same. A neighbor gets the same document again only after this time."""
UNDELIVERED_S = 60.0
"""It is not asked again for this time."""


class OwnerDocumentError(Exception):
    """A document is not one of this channel's owner."""


class VerifiedDocument(NamedTuple):
    """A card or a revocation list whose signature was verified."""

    kind: OwnerDocumentKind
    number: int
    document: bytes
    """As signed."""
    card: "ChannelCard | None" = None
    revoked: tuple[str, ...] = ()
    """Serial numbers of tickets, in hex."""

    @property
    def hash(self) -> bytes:
        return hashlib.sha256(self.document).digest()


class OwnerVerifier(Protocol):
    """Knows the owner of the channel. The cryptography is in `broadloom.security`."""

    identity: "Identity | None"
    """This peer as others see it; None on a channel without TLS."""

    def verify(self, kind: OwnerDocumentKind, document: bytes) -> VerifiedDocument:
        """Raises `OwnerDocumentError` if the owner has not signed it for this channel."""

    def adopt(self, document: VerifiedDocument) -> None:
        """This document is in force now: keep it for the next start, and reject revoked tickets."""

    def initial_documents(self) -> Iterable[VerifiedDocument]:
        """What is known from the start."""


class _Neighbor:
    """What is known about one link."""

    __slots__ = ("announced", "avoided_until", "sent", "wanted")

    def __init__(self) -> None:
        self.announced: dict[OwnerDocumentKind, tuple[int, bytes]] = {}
        """The highest number that the neighbor announced, and the hash."""
        self.wanted: dict[OwnerDocumentKind, tuple[int, bytes, Timer]] = {}
        """What was requested from it."""
        self.avoided_until: dict[OwnerDocumentKind, float] = {}
        self.sent: dict[OwnerDocumentKind, tuple[int, float]] = {}
        """The number of the document that it was sent last, and when."""


class OwnerDocuments:
    """`on_adopted` is called for each document that comes into force."""

    def __init__(
        self, peer: "Peer", verifier: OwnerVerifier | None, on_adopted: Callable[[VerifiedDocument], None]
    ) -> None:
        self._peer = peer
        self._verifier = verifier
        self._on_adopted = on_adopted
        self._known: dict[OwnerDocumentKind, VerifiedDocument] = {}
        self._neighbors: dict[Link, _Neighbor] = {}
        for document in verifier.initial_documents() if verifier is not None else ():
            self._known[document.kind] = document

    @property
    def has_owner(self) -> bool:
        return self._verifier is not None

    def get(self, kind: OwnerDocumentKind) -> VerifiedDocument | None:
        return self._known.get(kind)

    def number(self, kind: OwnerDocumentKind) -> int:
        """0 without a document."""
        known = self._known.get(kind)
        return known.number if known is not None else 0

    def is_sent(self, kind: OwnerDocumentKind) -> bool:
        """Whether all neighbors have our document, as far as we know."""
        number = self.number(kind)
        return all(
            max(each.sent.get(kind, (0, 0.0))[0], each.announced.get(kind, (0, b""))[0]) >= number
            for each in self._neighbors.values()
        )

    # -- documents

    def offer(self, kind: OwnerDocumentKind, data: bytes) -> VerifiedDocument:
        """A document from outside the links: a file, the application, a member that a newcomer asks. Raises
        `OwnerDocumentError` if it is not valid or not the newest."""
        if self._verifier is None:
            raise OwnerDocumentError("this peer does not know an owner of the channel")
        known = self._known.get(kind)
        if known is not None and known.document == data:
            return known
        document = self._verifier.verify(kind, data)
        if not self._adopt(document):
            raise OwnerDocumentError(
                f"number {document.number} is not higher than number {self.number(kind)}, which is in force"
            )
        return document

    def _adopt(self, document: VerifiedDocument) -> bool:
        known = self._known.get(document.kind)
        if known is not None and document.number <= known.number:
            if document.number < known.number:
                self._peer.counters.owner_rollbacks += 1
            elif document.document != known.document:
                self._report_conflict(document.kind, document.number)
            return document.document == known.document
        assert self._verifier is not None
        self._known[document.kind] = document
        self._verifier.adopt(document)
        notice = _notice_of(document)
        for link, neighbor in list(self._neighbors.items()):
            self._cancel_if_obsolete(neighbor, document)
            if neighbor.announced.get(document.kind, (0, b""))[0] < document.number:
                link.send(notice)
        self._on_adopted(document)
        return True

    def _report_conflict(self, kind: OwnerDocumentKind, number: int) -> None:
        self._peer.counters.owner_conflicts += 1
        self._peer.trace(f"there are two different documents ({kind.name.lower()}) with number {number}")

    # -- links

    def on_links_changed(self) -> None:
        if self._verifier is None:
            return
        links = self._peer.links
        for link in [each for each in self._neighbors if links.get(each.peer_id) is not each]:
            neighbor = self._neighbors.pop(link)
            for _, _, timer in neighbor.wanted.values():
                timer.cancel()
            for kind in neighbor.announced:
                self._request(kind)
        for link in links:
            if link not in self._neighbors:
                self._neighbors[link] = _Neighbor()
                for document in self._known.values():
                    link.send(_notice_of(document))

    def send_proof(self, link: "Link", kind: OwnerDocumentKind) -> None:
        """Send a document that the neighbor has not requested, before its link is closed for that reason."""
        document = self._known[kind]
        link.send(_notice_of(document))
        link.send(OwnerDocument(kind, document.document))

    def on_notice(self, link: "Link", notice: OwnerNotice) -> None:
        neighbor = self._neighbors.get(link)
        if neighbor is None:
            return
        kind, number = notice.kind, notice.document_number
        known = self._known.get(kind)
        if known is not None and number <= known.number:
            if number == known.number and notice.hash != known.hash:
                self._report_conflict(kind, number)
            return
        neighbor.announced[kind] = number, notice.hash
        self._request(kind)

    def _request(self, kind: OwnerDocumentKind) -> None:
        """Request each newer document that was announced from one of the neighbors that have it."""
        now, number = self._peer.runtime.now(), self.number(kind)
        requested = [each.wanted[kind][:2] for each in self._neighbors.values() if kind in each.wanted]
        for link, neighbor in list(self._neighbors.items()):
            announced = neighbor.announced.get(kind)
            if announced is None or announced[0] <= number or announced in requested or kind in neighbor.wanted:
                continue
            if neighbor.avoided_until.get(kind, 0.0) > now:
                continue
            requested.append(announced)
            timer = self._peer.runtime.call_later(WANT_TIMEOUT_S, self._on_timeout, link, kind)
            neighbor.wanted[kind] = *announced, timer
            link.send(OwnerWant(kind, announced[0]))

    def _on_timeout(self, link: "Link", kind: OwnerDocumentKind) -> None:
        neighbor = self._neighbors.get(link)
        if neighbor is not None and neighbor.wanted.pop(kind, None) is not None:
            self._peer.counters.owner_undelivered += 1
            neighbor.avoided_until[kind] = self._peer.runtime.now() + UNDELIVERED_S
            self._request(kind)

    def _cancel_if_obsolete(self, neighbor: _Neighbor, document: VerifiedDocument) -> None:
        wanted = neighbor.wanted.get(document.kind)
        if wanted is not None and wanted[0] <= document.number:
            wanted[2].cancel()
            del neighbor.wanted[document.kind]

    def on_want(self, link: "Link", want: OwnerWant) -> None:
        neighbor, document = self._neighbors.get(link), self._known.get(want.kind)
        if neighbor is None or document is None or document.number < want.document_number:
            return
        now = self._peer.runtime.now()
        number, sent_at = neighbor.sent.get(want.kind, (0, 0.0))
        if number < document.number or now - sent_at >= WANT_TIMEOUT_S:
            neighbor.sent[want.kind] = document.number, now
            link.send(OwnerDocument(want.kind, document.document))

    def on_document(self, link: "Link", message: OwnerDocument) -> None:
        neighbor = self._neighbors.get(link)
        if neighbor is None or self._verifier is None:
            return
        number, announced_hash = neighbor.announced.get(message.kind, (0, b""))
        if (wanted := neighbor.wanted.pop(message.kind, None)) is not None:
            number, announced_hash, timer = wanted
            timer.cancel()
        elif number <= self.number(message.kind) or hashlib.sha256(message.document).digest() != announced_hash:
            return  # not announced, or no longer needed
        try:
            document = self._verifier.verify(message.kind, message.document)
        except OwnerDocumentError as problem:
            self._peer.counters.owner_forgeries += 1
            raise WireError(f"a document that the owner has not signed: {problem}") from None
        if document.number < number or (document.number == number and document.hash != announced_hash):
            self._peer.counters.owner_rollbacks += document.number < number
            raise WireError("another document than the one that was announced")
        neighbor.avoided_until.pop(message.kind, None)  # it was slow, if it was passed over
        self._adopt(document)

    def tick(self) -> None:
        """Neighbors that did not deliver are asked again after a while."""
        for kind in OwnerDocumentKind if self._neighbors else ():
            if any(kind in each.avoided_until for each in self._neighbors.values()):
                self._request(kind)


def _notice_of(document: VerifiedDocument) -> OwnerNotice:
    return OwnerNotice(document.kind, document.number, document.hash)
