"""`Owner`: what this peer does when the owner of the channel has signed something new.

A revoked ticket ends everything at once: links, direct connections, authorship, the place in the roster. A closed card
makes everybody leave. A card with other settings than this peer has makes this peer leave, and so does the revocation
of its own ticket. Quotas are in `quotas.py`.
"""

from typing import TYPE_CHECKING

from broadloom.protocol.events import CardChanged, ChannelClosed, LinkDownReason, Rejected, Revoked
from broadloom.protocol.identity import Role
from broadloom.protocol.owner.card import ChannelCard, SecurityLevel
from broadloom.protocol.owner.documents import OwnerDocumentError, OwnerDocuments, OwnerVerifier, VerifiedDocument
from broadloom.protocol.owner.pacer import Pacer
from broadloom.protocol.owner.quotas import QuotaEnforcer, Refusals, key_of, refusal
from broadloom.wire import PeerId
from broadloom.wire.exchange_messages import RejectReason
from broadloom.wire.owner_messages import OwnerDocument, OwnerDocumentKind

if TYPE_CHECKING:
    from broadloom.protocol.identity import Identity
    from broadloom.protocol.peer import Peer

CLOSED_LINGER_S = 2.0
"""After the channel was closed, this peer tells newcomers for this long, and then has left."""

Exclusion = tuple[RejectReason, str]


class Owner:
    def __init__(self, peer: "Peer", verifier: OwnerVerifier | None) -> None:
        self._peer = peer
        self._identity = verifier.identity if verifier is not None else None
        self._revoked: dict[str, None] = {}
        self.card: ChannelCard | None = None
        self.pacer: Pacer | None = None
        """For our own messages; None without a quota."""
        self._refusals = Refusals()
        self.documents = OwnerDocuments(peer, verifier, self._on_adopted)
        if (known := self.documents.get(OwnerDocumentKind.REVOCATION_LIST)) is not None:
            self._revoked = dict.fromkeys(known.revoked)
        if (known := self.documents.get(OwnerDocumentKind.CARD)) is not None:
            self.card = known.card
            self._use_quotas()

    # -- who is admitted

    def exclusion_of(self, identity: "Identity | None", peer_id: PeerId) -> Exclusion | None:
        """Why this member is not admitted; None if it is."""
        if identity is not None and identity.ticket_serial in self._revoked:
            return RejectReason.TICKET_REVOKED, f"the ticket {identity.ticket_serial} was revoked"
        if len(self._refusals):
            remaining_s = self._refusals.remaining_s(key_of(peer_id, identity), self._peer.runtime.now())
            if remaining_s:
                return refusal(remaining_s)
        return None

    def is_excluded(self, identity: "Identity | None", peer_id: PeerId) -> bool:
        return self.exclusion_of(identity, peer_id) is not None

    def _is_revoked(self, identity: "Identity | None", _peer_id: PeerId) -> bool:
        return identity is not None and identity.ticket_serial in self._revoked

    @property
    def excludes_this_peer(self) -> bool:
        """Whether our own ticket was revoked."""
        return self._is_revoked(self._identity, self._peer.me.peer_id)

    @property
    def is_closed(self) -> bool:
        return self.card is not None and self.card.is_closed

    @property
    def closed_text(self) -> str | None:
        """What to tell a program whose channel is closed; None if it is not."""
        if self.card is None or not self.card.is_closed:
            return None
        return "the owner has closed this channel" + (f": {self.card.text}" if self.card.text else "")

    def mismatch(self, card: ChannelCard) -> str:
        """How the settings of this peer differ from those on a card; empty if they do not."""
        level, degree = self._level(), self._peer.settings.degree
        if card.level is not level:
            return f"the card says {_describe(card.level)}, this peer uses {_describe(level)}"
        if card.degree != degree:
            return f"the card says degree={card.degree}, this peer uses degree={degree}; set ChannelSettings.degree"
        return ""

    def _level(self) -> SecurityLevel:
        if self._identity is None:
            return SecurityLevel.PLAIN
        if self._identity.ticket_serial:
            return SecurityLevel.TICKETS
        return SecurityLevel.SIGNED if self._peer.broadcaster.verifier is not None else SecurityLevel.TLS

    # -- for the parts

    def may_start(self) -> bool:
        """Whether this peer fits the card that it was given; if not, that is reported, and nothing is dialed."""
        if self.card is None:
            return True
        if self.card.is_closed:
            self._peer.emit(ChannelClosed(self.card.text))
            return False
        if mismatch := self.mismatch(self.card):
            self._peer.emit(Rejected(RejectReason.CARD_MISMATCH, mismatch))
        return not mismatch

    def on_links_changed(self) -> None:
        self.documents.on_links_changed()
        if self._revoked or len(self._refusals):
            self._close_links()  # one may have been admitted a moment before the list arrived

    def tick(self, now: float) -> None:
        self.documents.tick()
        if (quotas := self._peer.broadcaster.quotas) is not None:
            quotas.tick(now)

    def close_refused(self) -> None:
        """Members were cut off."""
        self._close_links()
        self._peer.requests.close_excluded(self.is_excluded)

    @property
    def card_message(self) -> OwnerDocument | None:
        """What a newcomer gets before the answer to its request."""
        known = self.documents.get(OwnerDocumentKind.CARD)
        return OwnerDocument(known.kind, known.document) if known is not None else None

    def on_exchange_document(self, message: OwnerDocument) -> None:
        """A member that we asked has a card. An invalid or old one is ignored: its neighbors will learn of the new
        one."""
        if message.kind is OwnerDocumentKind.CARD and self.documents.has_owner:
            try:
                self.documents.offer(message.kind, message.document)
            except OwnerDocumentError as problem:
                self._peer.trace(f"ignored a card: {problem}")

    # -- a new document is in force

    def _on_adopted(self, document: VerifiedDocument) -> None:
        if document.card is not None:
            self._on_card(document.card)
        else:
            self._on_revoked(document)

    def _on_card(self, card: ChannelCard) -> None:
        self.card = card
        self._use_quotas()
        self._peer.emit(CardChanged(card))
        if card.is_closed:
            self._leave(ChannelClosed(card.text), OwnerDocumentKind.CARD)
        elif mismatch := self.mismatch(card):
            self._leave(Rejected(RejectReason.CARD_MISMATCH, mismatch), OwnerDocumentKind.CARD)

    def _use_quotas(self) -> None:
        peer, card = self._peer, self.card
        if peer.broadcaster.quotas is not None:
            peer.broadcaster.quotas.stop()
        is_limited = card is not None and card.quotas and not card.is_closed
        peer.broadcaster.quotas = QuotaEnforcer(peer, card, self._refusals) if card and is_limited else None
        role = self._identity.role if self._identity is not None else Role.PRODUCER
        quota = card.quota_of(role) if card is not None and is_limited else None
        self.pacer = Pacer(quota, peer.runtime.now) if quota is not None else None
        peer.requests.set_quota(quota)

    def _leave(self, event: ChannelClosed | Rejected, proof: OwnerDocumentKind) -> None:
        """Leave after the neighbors got the document, so that they can verify the reason."""
        peer = self._peer
        if not peer.is_present:
            return
        peer.report_rejection(event) if isinstance(event, Rejected) else peer.emit(event)
        for link in list(peer.links):
            self.documents.send_proof(link, proof)
        peer.leave_protocol.close_links(CLOSED_LINGER_S if self.is_closed else 0.0)

    def _on_revoked(self, document: VerifiedDocument) -> None:
        added = tuple(serial for serial in document.revoked if serial not in self._revoked)
        self._revoked = dict.fromkeys(document.revoked)
        peer = self._peer
        peer.emit(Revoked(added, document.number))
        if not added:
            return
        self._close_links()
        peer.requests.close_excluded(self._is_revoked)
        if peer.broadcaster.verifier is not None:
            peer.broadcaster.verifier.recheck_all()
        peer.roster.drop_excluded(self._is_revoked)
        if self._identity is not None and self.excludes_this_peer:
            text = f"the ticket {self._identity.ticket_serial} was revoked; ask the owner of the channel for a new one"
            self._leave(Rejected(RejectReason.TICKET_REVOKED, text), OwnerDocumentKind.REVOCATION_LIST)

    def _close_links(self) -> None:
        for link in list(self._peer.links):
            exclusion = self.exclusion_of(link.identity, link.peer_id)
            if exclusion is None:
                continue
            if exclusion[0] is RejectReason.TICKET_REVOKED:
                self._peer.counters.revoked_links += 1
                self.documents.send_proof(link, OwnerDocumentKind.REVOCATION_LIST)
                link.close(LinkDownReason.ACCESS_REVOKED)
            else:
                link.close(LinkDownReason.QUOTA_EXCEEDED)


def _describe(level: SecurityLevel) -> str:
    match level:
        case SecurityLevel.PLAIN:
            return "no TLS (tls=False)"
        case SecurityLevel.TLS:
            return "a shared key without signatures"
        case SecurityLevel.SIGNED:
            return "a shared key with signatures (signed=True)"
        case SecurityLevel.TICKETS:
            return "tickets"
