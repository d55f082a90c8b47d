"""`SimOwner`: the owner of a simulated channel, and the guarantees about what it signs.

Every peer has a ticket. At every step: the numbers of the documents in force never fall, a peer has no link to a member
whose ticket it knows to be revoked, and frames of a member that keeps to its quota are neither held back nor is it cut
off. At rest: all peers have the same documents.
"""

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from broadloom.protocol.events import CardChanged, QuotaExceeded, Rejected, Revoked
from broadloom.protocol.identity import CredentialError, Identity, SignatureCheck
from broadloom.protocol.owner.card import ChannelCard, SecurityLevel, decode_card, encode_card
from broadloom.protocol.owner.documents import OwnerDocumentError, VerifiedDocument
from broadloom.testing.sim.hostile import SimSigner
from broadloom.wire import PeerId
from broadloom.wire.exchange_messages import RejectReason
from broadloom.wire.owner_messages import OwnerDocumentKind, OwnerNotice

if TYPE_CHECKING:
    from broadloom.protocol.events import Event
    from broadloom.testing.sim.node import SimNode
    from broadloom.testing.sim.simulation import Simulation

DOCUMENTS, QUOTAS = "owner documents", "quotas"
"""Names of the guarantees."""
OWNER_GUARANTEE = 11
"""The number under which a simulation reports that they differ at rest."""
OUT_S = 10.0
"""A member whose ticket was revoked is out everywhere after this time."""
_OWNER_KEY = b"the owner of a simulated channel"
_SIGNATURE_BYTES, _NUMBER_BYTES, _SERIAL_DIGITS = 16, 8, 16


def sign_document(kind: OwnerDocumentKind, number: int, content: bytes, key: bytes = _OWNER_KEY) -> bytes:
    body = number.to_bytes(_NUMBER_BYTES, "big") + content
    return hashlib.blake2b(bytes([kind]) + body, digest_size=_SIGNATURE_BYTES, key=key).digest() + body


class SimOwnerVerifier:
    """One peer's knowledge of the owner. Signatures are quick to compute, and nobody but the owner has the key."""

    def __init__(self, identity: Identity) -> None:
        self.identity: Identity | None = identity
        self.revoked: dict[str, None] = {}

    def verify(self, kind: OwnerDocumentKind, document: bytes) -> VerifiedDocument:
        body = document[_SIGNATURE_BYTES:]
        number, content = int.from_bytes(body[:_NUMBER_BYTES], "big"), body[_NUMBER_BYTES:]
        if document != sign_document(kind, number, content):
            raise OwnerDocumentError("not signed by the owner")
        if kind is OwnerDocumentKind.CARD:
            return VerifiedDocument(kind, number, document, card=decode_card(content))
        text = content.decode()
        serials = tuple(text[start : start + _SERIAL_DIGITS] for start in range(0, len(text), _SERIAL_DIGITS))
        return VerifiedDocument(kind, number, document, revoked=serials)

    def adopt(self, document: VerifiedDocument) -> None:
        if document.kind is OwnerDocumentKind.REVOCATION_LIST:
            self.revoked = dict.fromkeys(document.revoked)

    def initial_documents(self) -> Iterable[VerifiedDocument]:
        return ()


class TicketSigner(SimSigner):
    """The signer of a peer that knows which tickets were revoked."""

    def __init__(self, owner: "SimOwner", peer_id: PeerId, verifier: SimOwnerVerifier) -> None:
        super().__init__(peer_id)
        self._owner = owner
        self._peer_id = peer_id
        self._verifier = verifier

    def sign(self, data: bytes) -> bytes:
        if (checker := self._owner.simulation.roster_checker) is not None:
            checker.on_signed(self._peer_id, data)
        return super().sign(data)

    def verify_credential(self, author: PeerId, credential: bytes) -> tuple[Identity, SignatureCheck]:
        _, check = super().verify_credential(author, credential)
        identity = self._owner.identities[author]
        self.recheck(identity)
        return identity, check

    def recheck(self, identity: Identity) -> None:
        if identity.ticket_serial in self._verifier.revoked:
            raise CredentialError(RejectReason.TICKET_REVOKED, "the ticket was revoked")


class SimOwner:
    def __init__(self, simulation: "Simulation") -> None:
        self.simulation = simulation
        self.identities: dict[PeerId, Identity] = {}
        self._nodes: dict[PeerId, SimNode] = {}
        self._verifiers: dict[PeerId, SimOwnerVerifier] = {}
        self._numbers: dict[tuple[SimNode, OwnerDocumentKind], int] = {}
        self._number = 0
        self.revoked: dict[str, None] = {}
        self.card: ChannelCard | None = None
        self.offenders: dict[PeerId, None] = {}
        self._stubborn: dict[SimNode, None] = {}
        self.cut_at: dict[PeerId, list[float]] = {}
        """When offenders were cut off, by each peer that did."""

    # -- for nodes

    def verifier(self, number: int, peer_id: PeerId) -> SimOwnerVerifier:
        serial = f"{number + 1:0{_SERIAL_DIGITS}x}"
        self.identities[peer_id] = Identity(peer_id, f"member {number}", ticket_serial=serial)
        self._verifiers[peer_id] = SimOwnerVerifier(self.identities[peer_id])
        return self._verifiers[peer_id]

    def signer(self, peer_id: PeerId) -> TicketSigner:
        return TicketSigner(self, peer_id, self._verifiers[peer_id])

    def add(self, node: "SimNode") -> None:
        self._nodes[node.peer.me.peer_id] = node

    # -- what the owner does, through a member

    def publish_card(self, node: "SimNode", **fields: Any) -> ChannelCard:
        self._number += 1
        settings = self.simulation.settings
        fields = {"level": SecurityLevel.TICKETS, "degree": settings.peer.degree, **fields}
        self.card = ChannelCard(settings.channel, number=self._number, **fields)
        document = sign_document(OwnerDocumentKind.CARD, self._number, encode_card(self.card))
        node.peer.owner.documents.offer(OwnerDocumentKind.CARD, document)
        return self.card

    def revoke(self, node: "SimNode", victims: "Iterable[SimNode]", *, stubborn: bool = False) -> bytes:
        """`stubborn`: the victims ignore the list."""
        self._number += 1
        for victim in victims:
            peer_id = victim.peer.me.peer_id
            self.revoked[self.identities[peer_id].ticket_serial] = None
            self.simulation.checker.unchecked_authors[peer_id] = None
            victim.is_hostile = True
            if stubborn:
                victim.peer._link_handlers[OwnerNotice] = lambda _link, _notice: None
                self._stubborn[victim] = None
        document = sign_document(OwnerDocumentKind.REVOCATION_LIST, self._number, "".join(self.revoked).encode())
        node.peer.owner.documents.offer(OwnerDocumentKind.REVOCATION_LIST, document)
        return document

    def offend(self, node: "SimNode", per_s: float) -> None:
        """Let a member ignore its quota from now on. Its own messages and deliveries are not checked any more."""
        peer_id = node.peer.me.peer_id
        node.is_hostile = True
        self.offenders[peer_id] = None
        self.simulation.checker.unchecked_authors[peer_id] = None
        self._send_too_much(node, per_s)

    def _send_too_much(self, node: "SimNode", per_s: float) -> None:
        if node.is_connected:
            node.broadcast(b"too much")
        node.call_later(1 / per_s, self._send_too_much, node, per_s)

    # -- checks at each step

    def on_event(self, node: "SimNode", event: "Event") -> None:
        if isinstance(event, Rejected) and node not in self._stubborn:
            node.call_later(0.0, node.kill)  # its program ends
        if node.is_hostile:
            return
        if isinstance(event, CardChanged):
            self._check_number(node, OwnerDocumentKind.CARD, event.card.number)
            self._watch_held(node)
        elif isinstance(event, Revoked):
            self._check_number(node, OwnerDocumentKind.REVOCATION_LIST, event.number)
            node.call_later(1.0, self._check_links, node)
        elif isinstance(event, QuotaExceeded):
            if event.peer_id not in self.offenders:
                self._report(QUOTAS, node, f"has cut off {self._nodes[event.peer_id]}, which keeps to its quota")
            self.cut_at.setdefault(event.peer_id, []).append(self.simulation.clock.now)

    def _check_number(self, node: "SimNode", kind: OwnerDocumentKind, number: int) -> None:
        if number <= self._numbers.get((node, kind), 0):
            self._report(DOCUMENTS, node, f"went back to number {number} ({kind.name.lower()})")
        self._numbers[node, kind] = number

    def _check_links(self, node: "SimNode") -> None:
        revoked = self._verifiers[node.peer.me.peer_id].revoked
        for link in node.peer.links if node.is_alive else ():
            if link.identity is not None and link.identity.ticket_serial in revoked:
                self._report(DOCUMENTS, node, f"has a link to {self._nodes[link.peer_id]}, whose ticket was revoked")

    def _watch_held(self, node: "SimNode") -> None:
        quotas = node.peer.broadcaster.quotas
        if quotas is None:
            return
        hold = quotas._hold

        def watched(author: PeerId, *rest: Any) -> None:
            if author not in self.offenders:
                self._report(QUOTAS, node, f"held back a frame of {self._nodes[author]}, which keeps to its quota")
            hold(author, *rest)

        quotas._hold = watched  # type: ignore[method-assign, assignment]

    # -- checks at rest

    def find_problem(self) -> str | None:
        """Why the documents of a connected fabric are not equal, or a revoked member is still in it."""
        honest = [node for node in self.simulation.alive if not node.is_hostile]
        for kind in OwnerDocumentKind:
            found = {node.peer.owner.documents.number(kind): node for node in honest}
            if len(found) > 1:
                numbers = ", ".join(f"{node} has {number}" for number, node in sorted(found.items()))
                return f"different documents ({kind.name.lower()}): {numbers}"
        for node in honest:
            self._check_links(node)
        return None

    def check_out(self, victim: "SimNode") -> None:
        """The ticket of this member was revoked `OUT_S` ago: it is out everywhere."""
        peer_id = victim.peer.me.peer_id
        for node in self.simulation.members:
            if node.is_hostile:
                continue
            if node.peer.links.get(peer_id) is not None:
                self._report(DOCUMENTS, node, f"has a link to {victim}, revoked {OUT_S:g} s ago")
            if peer_id in node.peer.roster.peer_ids():
                self._report(DOCUMENTS, node, f"lists {victim}, revoked {OUT_S:g} s ago")
            verifier = node.peer.broadcaster.verifier
            if verifier is not None and verifier.identity_of(peer_id) is not None:
                self._report(DOCUMENTS, node, f"accepts messages of {victim}, revoked {OUT_S:g} s ago")

    def _report(self, guarantee: str, node: "SimNode", text: str) -> None:
        self.simulation.checker.report_violation(guarantee, node, text)
