"""Signed channels in the simulator, and a hostile member: everything that a member with a valid credential can try
short of leaving the fabric.

A hostile member keeps to the rules of membership, so that it stays a neighbor. It lies about the messages of others: it
claims messages that do not exist, gives newcomers false starting positions, reports messages as expired that it holds
or does not answer, overstates the age of what it relays, drops half of it, and forges the delivery reports of others.
About the roster it lies too (`RosterLies`). Its own deliveries are not checked.
"""

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from broadloom.protocol.identity import CredentialError, Identity, SignatureCheck
from broadloom.testing.sim.node import SimNode
from broadloom.wire import PeerId
from broadloom.wire.broadcast_frame import AGE_MS_MAX, forwarded
from broadloom.wire.exchange_messages import RejectReason
from broadloom.wire.fields import BUCKET_COUNT, REPORTS_MAX
from broadloom.wire.link_messages import LastKnown, Unavailable, UnavailableReason, Want
from broadloom.wire.receipt_messages import DeliveryReport, DeliveryReports, encode_report
from broadloom.wire.roster_messages import (
    MemberRecord,
    RosterBuckets,
    RosterDigest,
    RosterRecords,
    RosterVersions,
    RosterWant,
    decode_record,
    encode_record,
)
from broadloom.wire.types import AuthorState, RecordVersion, SignedRecord, SignedReport

if TYPE_CHECKING:
    from broadloom.protocol.broadcast.plumtree import TreeState
    from broadloom.protocol.broadcast.retention import RetainedFrame
    from broadloom.protocol.link import Link
    from broadloom.protocol.roster.sync import NeighborSync

LIE_INTERVAL_S = 0.5
CLAIMED_BEYOND = (1, 2, 3, 1000)
"""How far beyond an author's last message false claims go."""
LONG_AGO_MS = 10**9
FORGERIES = 3
"""Forged records that a hostile member sends: with more, it would never have neighbors for long."""
INVENTED_MEMBERS = 8
LAST_MAX = (1 << 64) - 1


class SimSigner:
    """Signatures without keys, quick to compute. The simulated peers never forge them."""

    def __init__(self, peer_id: PeerId) -> None:
        self.credential = peer_id.to_bytes(8, "big")
        self.signature_bytes = 16

    def sign(self, data: bytes) -> bytes:
        return hashlib.blake2b(data, digest_size=self.signature_bytes, key=self.credential).digest()

    def verify_credential(self, author: PeerId, credential: bytes) -> tuple[Identity, SignatureCheck]:
        signer = SimSigner(author)
        if credential != signer.credential:
            raise CredentialError(RejectReason.PEER_ID_MISMATCH, "the credential of another peer")
        return Identity(author), lambda data, signature: signer.sign(data) == signature

    def recheck(self, identity: Identity) -> None:
        """Simulated credentials neither expire nor are they revoked."""


class HostileNode(SimNode):
    """A member that runs the protocol and lies in the messages that others cannot check by themselves."""

    is_hostile = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.victims: dict[PeerId, None] = {}
        """Every peer of the channel, also those that have not sent anything yet."""
        broadcaster = self.peer.broadcaster
        self._honest_send = broadcaster.send_to_links
        self._honest_states = broadcaster.anti_entropy._author_states
        broadcaster.send_to_links = self._relay_dishonestly  # type: ignore[method-assign]
        broadcaster.fast_path.learn = lambda *_: None  # type: ignore[method-assign]  # it would relay honestly
        broadcaster.anti_entropy._author_states = self._false_states  # type: ignore[method-assign]
        broadcaster.gap_repair.on_want = self._deny  # type: ignore[method-assign]
        self.peer._link_handlers[Want] = self._deny
        if self.peer.roster.is_enabled:
            self.roster_lies = RosterLies(self)
        self.call_later(LIE_INTERVAL_S, self._lie)

    def _relay_dishonestly(
        self,
        tree: "TreeState",
        retained: "RetainedFrame",
        frame: bytes,
        rest: memoryview | None,
        received_from: "Link | None",
        *,
        at_once: bool = False,
    ) -> None:
        if self.random.random() < 0.5:
            whole = frame if rest is None else b"".join((frame, rest))
            age_ms = self.random.choice((0, 60_000, 119_000, AGE_MS_MAX))
            self._honest_send(tree, retained, forwarded(whole, 1, age_ms), None, received_from, at_once=at_once)

    def _false_states(self, *, long_idle: bool = False) -> tuple[AuthorState, ...]:
        states = {each.author: each for each in self._honest_states(long_idle=long_idle)}
        for author in () if long_idle else self.victims:
            states.setdefault(author, AuthorState(author, 1, 0, 0))
        beyond = self.random.choice(CLAIMED_BEYOND)
        return tuple(each._replace(last_contiguous=each.last_contiguous + beyond) for each in states.values())

    def _deny(self, link: "Link", want: Want) -> None:
        if self.random.random() < 0.5:
            link.send(Unavailable(want.author, want.first, want.last, UnavailableReason.DROPPED))

    def _lie(self) -> None:
        self.call_later(LIE_INTERVAL_S, self._lie)
        windows = self.peer.broadcaster.receiver.windows
        claims = []
        for author in self.victims:
            known = windows[author].last_known if author in windows else 0
            idle_ms = self.random.choice((0, LONG_AGO_MS))
            claims.append(AuthorState(author, 1, known + self.random.choice(CLAIMED_BEYOND), idle_ms))
            for link in self.peer.links:
                link.send(Unavailable(author, known + 1, known + 3, UnavailableReason.DROPPED))
        for link in self.peer.links:
            link.send(LastKnown(tuple(claims)))
        if self.peer.reporter._authors:
            self._forge_reports(self.random.choice(list(self.peer.reporter._authors)))

    def _forge_reports(self, author: PeerId) -> None:
        """Reports in the name of all others, newer than the true ones, and of members that do not exist."""
        known = self.peer.broadcaster.receiver.windows[author].last_known
        invented = [self.random.getrandbits(64) for _ in range(INVENTED_MEMBERS)]
        forged = []
        for member in [*invented, *self.victims][:REPORTS_MAX]:
            last = known + self.random.choice((0, 1, LAST_MAX - known))
            report = DeliveryReport(member, author, 1, last, ())
            forged.append(SignedReport(encode_report(report), bytes(16)))
        for link in self.peer.links:
            link.send(DeliveryReports(tuple(forged)))


class RosterLies:
    """What a hostile member tells others about the roster: edges of its own that do not exist, none of those that do,
    old records of others, wrong digests and versions. It keeps half of what it should relay for itself. A few times it
    forges a record of another member, which costs it a link."""

    def __init__(self, node: HostileNode) -> None:
        self._node = node
        self._roster = node.peer.roster
        self._old: dict[PeerId, SignedRecord] = {}
        self._forgeries_left = FORGERIES
        self._honest_send = self._roster.sync.send_records
        self._roster.sync.send_records = self._relay_some  # type: ignore[method-assign]
        self._honest_store = self._roster._store
        self._roster._store = self._remember_first  # type: ignore[method-assign, assignment]
        self._roster._refute = lambda incarnation: None  # type: ignore[method-assign]
        node.call_later(LIE_INTERVAL_S, self._lie)

    def _relay_some(self, neighbor: "NeighborSync", peer_ids: list[PeerId], *, with_credentials: bool = False) -> None:
        me = self._node.peer.me.peer_id
        self._honest_send(
            neighbor,
            [each for each in peer_ids if each == me or self._node.random.random() < 0.5],
            with_credentials=with_credentials,
        )

    def _remember_first(self, *stored: Any) -> None:
        self._old.setdefault(stored[1].peer_id, stored[2])
        self._honest_store(*stored)

    def _lie(self) -> None:
        node, random = self._node, self._node.random
        node.call_later(2 * LIE_INTERVAL_S, self._lie)
        if not node.peer.is_member:
            return
        links = list(self._roster.sync.neighbors)
        others = list(node.victims)
        for link in links:
            match random.randrange(5):
                case 0 if self._old:
                    old = random.sample(list(self._old.values()), min(8, len(self._old)))
                    link.send(RosterRecords(tuple(old)))
                case 1:
                    link.send(RosterDigest(random.getrandbits(64)))
                case 2 if others:
                    version = RecordVersion(random.choice(others), random.choice((1, 1 << 40)), 0)
                    link.send(RosterVersions((1 << 64) - 1, random.random() < 0.5, (version,)))
                case 3:
                    link.send(RosterBuckets(tuple(random.getrandbits(64) for _ in range(BUCKET_COUNT))))
                case _:
                    link.send(RosterWant(tuple(others[:8])))
        if links and self._old and self._forgeries_left and random.random() < 0.3:
            self._forgeries_left -= 1
            random.choice(links).send(RosterRecords((self._forged(random.choice(list(self._old.values()))),)))
        # Our own record is true in one of three cases, so that the neighbors do not cut us off at once.
        claimed = random.choice((list(node.peer.links.neighbors), [], random.sample(others, min(4, len(others)))))
        self._roster._incarnation += 1
        record = MemberRecord(
            node.peer.me.peer_id, self._roster._incarnation, False, False, node.address, "", tuple(claimed), (), ()
        )
        body = encode_record(record)
        for link in links:
            link.send(RosterRecords((self._roster._verifier.sign(body),)))

    def _forged(self, old: SignedRecord) -> SignedRecord:
        """The record of another member, without neighbors and newer than all others, under the signature of an older
        one."""
        record = decode_record(old.record)
        forged = replace(record, incarnation=record.incarnation + 1000, neighbors=())
        return old._replace(record=encode_record(forged))
