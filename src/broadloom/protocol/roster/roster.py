"""`Roster`: all members of the channel, from the records that they sign."""

from typing import TYPE_CHECKING

from broadloom.protocol.events import LinkDownReason, PeerState
from broadloom.protocol.roster.graph import MemberGraph, ReachabilityChange
from broadloom.protocol.roster.member import Member
from broadloom.protocol.roster.presence import Presence
from broadloom.protocol.roster.records import (
    RECORDS_BURST_MAX,
    RECORDS_PER_S_MAX,
    KnownRecord,
    MemberState,
    RecordVerifier,
    hash_of,
)
from broadloom.protocol.roster.sync import (
    LINK_RECORDS_BURST_MAX,
    LINK_RECORDS_PER_S_MAX,
    NeighborSync,
    RosterSync,
)
from broadloom.wire import Address, PeerId, WireError
from broadloom.wire.fields import LAYERS_MAX
from broadloom.wire.roster_messages import (
    INCARNATION_MAX,
    MemberRecord,
    RosterRecords,
    decode_record,
    encode_record,
    record_head,
)
from broadloom.wire.types import SignedRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from broadloom.protocol.identity import Identity, Signer
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Timer

FORGET_INTERVAL_S = 60.0
UNRESPONSIVE_MAX = 8
"""Silent former neighbors in one record; the latest count."""
UNRESPONSIVE_S = 60.0
"""They are listed for this long: all links of a partition time out within a few seconds."""
URGENT_REASONS = (LinkDownReason.CONNECTION_LOST, LinkDownReason.HEARTBEAT_TIMEOUT)


class Roster:
    def __init__(self, peer: "Peer", signer: "Signer | None", name: str, *, is_secondary: bool) -> None:
        self._peer = peer
        self._name = name
        self._is_secondary = is_secondary
        self._layers: tuple[int, ...] = ()
        self.is_enabled = peer.settings.roster_max > 0
        self._verifier = RecordVerifier(peer, signer)
        self._known: dict[PeerId, KnownRecord] = {}
        self._graph = MemberGraph(peer.me.peer_id)
        self._presence = Presence(peer, self._known, self._graph)
        self.sync = RosterSync(peer, self._known, self._graph, self._presence)
        self._incarnation = 0
        self._unresponsive: dict[PeerId, float] = {}
        """Former neighbors that became silent, and when."""
        self._publish_timer: Timer | None = None
        self._publish_at = 0.0
        self._published_at = float("-inf")
        self._outbox: dict[PeerId, list[Link]] = {}
        """Records to relay, and the links that have them."""
        self._flush_timer: Timer | None = None
        self._flushed_at = -peer.settings.roster_gather_s
        self._dropped_at: dict[PeerId, float] = {}
        """Members that a neighbor has dropped, and when: see `_check_stale`."""
        self._forget_at = 0.0

    # -- for the application

    def members(self) -> tuple[Member, ...]:
        """This peer and all others that can be reached, by peer id."""
        found = [known.member for known in self._known.values() if known.is_listed]
        return tuple(sorted(found, key=lambda member: member.peer_id))

    def peer_ids(self) -> list[PeerId]:
        """The ids of all members, sorted."""
        return sorted(peer_id for peer_id, known in self._known.items() if known.is_listed)

    @property
    def size(self) -> int:
        """Members whose records are known, also of some that are gone."""
        return len(self._known)

    def primary_ids(self) -> list[PeerId]:
        """The ids of all members, each program once."""
        return [each for each in self.peer_ids() if not self._known[each].record.is_secondary]

    def unreachable_ids(self) -> frozenset[PeerId]:
        """Members on the other side of a partition."""
        return frozenset(
            peer_id
            for peer_id, known in self._known.items()
            if known.state is MemberState.UNREACHABLE and known.was_partitioned and not known.record.is_secondary
        )

    @property
    def is_signing(self) -> bool:
        return self._verifier.is_signing

    def sign(self, purpose: bytes, data: bytes) -> bytes:
        """Our signature for another purpose than a record; empty on a channel without TLS."""
        return self._verifier.sign_for(purpose, data)

    def is_signed_by(self, peer_id: PeerId, purpose: bytes, data: bytes, signature: bytes) -> bool:
        """Whether a known member has signed this. On a channel without TLS there are no signatures: always true."""
        known = self._known.get(peer_id)
        return known is not None and self._verifier.verify_for(known, purpose, data, signature)

    def signed_records(self) -> list[tuple[bytes, PeerId]]:
        """What each member has signed, for checks."""
        return [(self._verifier.signed_data(known.signed), peer_id) for peer_id, known in self._known.items()]

    def get(self, peer_id: PeerId) -> Member | None:
        known = self._known.get(peer_id)
        return known.member if known is not None and known.is_listed else None

    def address_of(self, peer_id: PeerId) -> Address | None:
        """Where a member listens; also one that is unreachable at the moment."""
        known = self._known.get(peer_id)
        return known.record.address if known is not None and known.state is not MemberState.LEFT else None

    @property
    def is_complete(self) -> bool:
        """Whether all members that a neighbor knew of have been reached. The first member waits for the record of the
        second one, if there is a link."""
        return self.sync.is_complete and (not len(self._peer.links) or len(self._graph.reachable) > 1)

    def set_layers(self, layers: tuple[int, ...]) -> None:
        if layers != self._layers:
            self._layers = layers
            if self._incarnation:
                self._schedule_publish(0.0)

    # -- our own record

    def begin(self) -> None:
        """This peer is connected: from now on it receives everything, so the others may count on it."""
        if self.is_enabled and not self._incarnation:
            self._publish()

    def on_links_changed(self, reason: LinkDownReason | None) -> None:
        if not self.is_enabled:
            return
        links = self._peer.links
        for link in [each for each in self.sync.neighbors if links.get(each.peer_id) is not each]:
            self.sync.on_link_down(link)
            if reason is LinkDownReason.HEARTBEAT_TIMEOUT:
                self._unresponsive[link.peer_id] = self._peer.runtime.now()
        for link in links:
            if link not in self.sync.neighbors:
                self.sync.on_link_up(link)
                self._unresponsive.pop(link.peer_id, None)
        self._apply(self._graph.update(self._peer.me.peer_id, links.neighbors))
        if self._incarnation:
            self._schedule_publish(0.0 if reason in URGENT_REASONS else self._peer.settings.roster_publish_s)

    def _schedule_publish(self, delay_s: float) -> None:
        now = self._peer.runtime.now()
        at = max(now + delay_s, self._published_at + self._peer.settings.roster_publish_s)
        if self._publish_timer is not None:
            if self._publish_at <= at:
                return
            self._publish_timer.cancel()
        self._publish_at = at
        self._publish_timer = self._peer.runtime.call_later(at - now, self._publish)

    def _publish(self) -> None:
        self._publish_timer = None
        if self._peer.state is PeerState.CONNECTED:
            is_first = not self._incarnation
            self._sign_and_flood(is_leaving=False)
            if is_first:
                self.sync.begin()
                # Programs open their layers right after `connect`: the next record need not wait.
                self._published_at = float("-inf")

    def leave(self) -> None:
        """Flood our last record, before the links are closed."""
        if self.is_enabled and self._incarnation and not self._own.record.is_leaving:
            self._sign_and_flood(is_leaving=True)
            self._flush()

    @property
    def _own(self) -> KnownRecord:
        return self._known[self._peer.me.peer_id]

    def _sign_and_flood(self, *, is_leaving: bool) -> None:
        me, now = self._peer.me, self._peer.runtime.now()
        self._unresponsive = {each: at for each, at in self._unresponsive.items() if now - at < UNRESPONSIVE_S}
        record = MemberRecord(
            me.peer_id,
            self._incarnation + 1,
            is_leaving,
            self._is_secondary,
            me.address,
            self._name,
            tuple(sorted(self._peer.links.neighbors)),
            tuple(self._unresponsive)[-UNRESPONSIVE_MAX:],
            self._layers[:LAYERS_MAX],
        )
        own = self._known.get(me.peer_id)
        if own is None:
            own = self._known[me.peer_id] = KnownRecord(now)
            own.state, own.identity = MemberState.PRESENT, self._verifier.own_identity()
        else:
            is_refuted = self._incarnation != own.record.incarnation
            if encode_record(record)[16:] == own.signed.record[16:] and not is_refuted:
                return  # nothing has changed but the incarnation
            self.sync.remove(own)
        self._incarnation += 1
        self._published_at = now
        body = encode_record(record)
        own.record, own.signed, own.record_hash = record, self._verifier.sign(body), hash_of(body)
        if is_leaving:
            own.state = MemberState.LEFT
        else:
            self.sync.add(own)
        self._relay(me.peer_id, None)

    # -- records of others

    def on_records(self, link: "Link", message: RosterRecords) -> None:
        neighbor = self.sync.neighbors.get(link)
        for signed in message.records if neighbor is not None else ():
            assert neighbor is not None
            self._on_record(neighbor, signed)

    def _on_record(self, neighbor: NeighborSync, signed: SignedRecord) -> None:
        peer_id, incarnation = record_head(signed.record)
        known = self._known.get(peer_id)
        if known is not None and (incarnation < known.record.incarnation or signed.record == known.signed.record):
            if peer_id in self._outbox:
                self._outbox[peer_id].append(neighbor.link)
            return
        if peer_id == self._peer.me.peer_id:
            self._refute(incarnation)
            return
        now = self._peer.runtime.now()
        if not self._is_allowed(neighbor, known, now):
            self._peer.counters.roster_records_dropped += 1
            return
        record = decode_record(signed.record)
        candidate = known or KnownRecord(now)
        verified = self._verifier.verify(candidate, peer_id, signed)
        if verified is None:
            self._peer.counters.roster_records_dropped += 1
            return
        record_hash = hash_of(signed.record)
        if known is not None and incarnation == known.record.incarnation and record_hash < known.record_hash:
            return  # the member has signed two different records with one incarnation
        neighbor.credentials_sent[peer_id] = None
        self._store(candidate, record, verified, record_hash, now)
        if self.sync.on_stored(neighbor, peer_id):
            self._relay(peer_id, neighbor.link)

    def _is_allowed(self, neighbor: NeighborSync, known: KnownRecord | None, now: float) -> bool:
        """Limits the work and the memory that false members can cause."""
        if known is not None and not known.allowance.take(now, RECORDS_PER_S_MAX, RECORDS_BURST_MAX):
            return False
        if not neighbor.allowance.take(now, LINK_RECORDS_PER_S_MAX, LINK_RECORDS_BURST_MAX):
            return False
        return known is not None or len(self._known) < self._peer.settings.roster_max or self._evict()

    def _refute(self, incarnation: int) -> None:
        """Another member has published a record in our name, as anyone can on a channel without TLS."""
        if self._verifier.is_signing:
            self._peer.counters.bad_signatures += 1
            raise WireError("a record in our name that we have not signed")
        if self._incarnation and incarnation < INCARNATION_MAX:
            self._incarnation = incarnation
            self._schedule_publish(0.0)

    def _store(
        self, known: KnownRecord, record: MemberRecord, signed: SignedRecord, record_hash: int, now: float
    ) -> None:
        peer_id = record.peer_id
        is_reachable = peer_id in self._graph.reachable
        if peer_id in self._known:
            if is_reachable:
                self.sync.remove(known)
            for each in known.record.neighbors:
                if each not in record.neighbors:
                    self._dropped_at.setdefault(each, now)
        self._known[peer_id] = known
        known.record, known.signed, known.record_hash = record, signed, record_hash
        known.stored_at = now
        if is_reachable:
            self.sync.add(known)
        if record.is_leaving:
            self._presence.on_left(peer_id)
            self.sync.on_found((peer_id,))
        elif known.state is MemberState.LEFT:
            known.state = MemberState.UNREACHABLE
        self._apply(self._graph.update(peer_id, None if record.is_leaving else record.neighbors))

    def _apply(self, change: ReachabilityChange) -> None:
        for peer_id in change.reached:
            self.sync.add(self._known[peer_id])
            self._presence.on_reached(peer_id)
        for peer_id in change.lost:
            self.sync.remove(self._known[peer_id])
            self._presence.on_lost(peer_id)
        self.sync.on_found(change.reached)

    def drop_excluded(self, is_excluded: "Callable[[Identity | None, PeerId], bool]") -> None:
        """Drop members that are no longer admitted. Their records are not accepted either: the credential is verified
        again."""
        excluded = [each for each, known in self._known.items() if is_excluded(known.identity, each)]
        for peer_id in excluded:
            if peer_id != self._peer.me.peer_id:
                self._known[peer_id].check = None
                self._apply(self._graph.update(peer_id, None))

    # -- relaying

    def _relay(self, peer_id: PeerId, source: "Link | None") -> None:
        if not self.sync.neighbors:
            return
        self._outbox[peer_id] = [source] if source is not None else []
        if self._flush_timer is None:
            # The first of many is relayed at once, those that follow are gathered.
            now, gather_s = self._peer.runtime.now(), self._peer.settings.roster_gather_s
            delay_s = max(0.0, self._flushed_at + gather_s - now)
            self._flush_timer = self._peer.runtime.call_later(delay_s, self._flush)

    def _flush(self) -> None:
        self._flush_timer = None
        if self._peer.state is PeerState.LEFT:
            return
        self._flushed_at = self._peer.runtime.now()
        outbox, self._outbox = self._outbox, {}
        for neighbor in list(self.sync.neighbors.values()):
            self.sync.send_records(
                neighbor,
                [
                    peer_id
                    for peer_id, holders in outbox.items()
                    if neighbor.link not in holders and peer_id in self._known
                ],
            )

    # -- timer

    def tick(self, now: float) -> None:
        if not self.is_enabled:
            return
        self.sync.tick()
        self._check_stale(now)
        if now >= self._forget_at:
            self._forget_at = now + FORGET_INTERVAL_S
            for peer_id in [each for each, known in self._known.items() if self._is_forgotten(known, now)]:
                self._drop(peer_id)

    def _check_stale(self, now: float) -> None:
        """A dead member seems to be there while one of its neighbors goes on listing it. It is not there if most of
        its neighbors have dropped it, and it has not published that itself."""
        due_at = now - self._peer.settings.roster_stale_s
        for peer_id in [each for each, dropped_at in self._dropped_at.items() if dropped_at < due_at]:
            dropped_at = self._dropped_at.pop(peer_id)
            known = self._known.get(peer_id)
            present = self._peer.me.peer_id, *self._peer.links.neighbors  # whatever others say
            if known is None or known.stored_at > dropped_at or peer_id in present:
                continue
            listed = [each for each in known.record.neighbors if each in self._graph.reachable]
            dropped = [each for each in listed if not self._graph.lists(each, peer_id)]
            if 2 * len(dropped) > len(listed):
                self._apply(self._graph.update(peer_id, None))

    def _is_forgotten(self, known: KnownRecord, now: float) -> bool:
        return self._is_absent(known) and now - known.changed_at > self._peer.settings.roster_forget_s

    def _is_absent(self, known: KnownRecord) -> bool:
        return (
            known.state in (MemberState.UNREACHABLE, MemberState.LEFT)
            and known.record.peer_id not in self._graph.reachable
        )

    def _evict(self) -> bool:
        """Make room for one more member."""
        for peer_id, known in self._known.items():
            if self._is_absent(known) and peer_id != self._peer.me.peer_id:
                self._drop(peer_id)
                return True
        return False

    def _drop(self, peer_id: PeerId) -> None:
        self._apply(self._graph.update(peer_id, None))
        self._presence.forget(peer_id)
        self._outbox.pop(peer_id, None)
        for neighbor in self.sync.neighbors.values():
            neighbor.credentials_sent.pop(peer_id, None)
        del self._known[peer_id]
