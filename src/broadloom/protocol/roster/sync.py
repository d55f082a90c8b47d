"""`RosterSync`: anti-entropy of the roster between two neighbors.

Digests ride on heartbeats. If they differ, one side sends its sums by bucket, the other one lists its records in the
buckets that differ, and each requests what it lacks: in small batches, because every record costs two verifications.
A newcomer sends no digest until it has the records of a neighbor that sends one: two newcomers would otherwise find
that they agree, and take themselves for the whole channel.
"""

from itertools import islice
from typing import TYPE_CHECKING

from broadloom.protocol.roster.records import Allowance, KnownRecord
from broadloom.wire import PeerId, WireError, encode
from broadloom.wire.fields import BUCKET_COUNT, ROSTER_RECORDS_MAX
from broadloom.wire.link_messages import Heartbeat
from broadloom.wire.roster_messages import RosterBuckets, RosterDigest, RosterRecords, RosterVersions, RosterWant
from broadloom.wire.types import RecordVersion, SignedRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.roster.graph import MemberGraph
    from broadloom.protocol.roster.presence import Presence
    from broadloom.protocol.runtime import Timer

SYNCING_S_MAX = 30.0
"""Members that return are reported when the records of all are here, and after this time in any case."""
TURN_RECORDS_MAX = 1024
"""Records that are requested from one neighbor while others wait."""
WANT_INTERVAL_S = 0.1
"""Pause between two requests for up to `ROSTER_RECORDS_MAX` records: verifying them takes 30 ms."""
INCOMPLETE_S_MAX = 2.0
"""The roster of a newcomer counts as complete this long after its last request, although records that it expects have
not come, because a neighbor is busy or members have died; or although all its neighbors are newcomers, because the
first member died or they have much to request."""
COMPLETE_S_MAX = 30.0
"""The roster of a newcomer counts as complete this long after it has connected, whatever its neighbors send or do not
send."""
FRUITLESS_MAX = 3
COMPARE_BACKOFF_S = 60.0
"""After `FRUITLESS_MAX` comparisons with a neighbor that brought nothing new (clocks, revocation lists or limits
differ), the next one follows after this time."""
COMPARES_SERVED_MAX = 4
"""Comparisons with one neighbor between two ticks."""
RECORDS_SERVED_MAX = 2048
"""Records that one neighbor can request between two ticks."""
LINK_RECORDS_PER_S_MAX = 400.0
LINK_RECORDS_BURST_MAX = 4000.0
"""New records that are accepted from one neighbor: verifying 400 takes about a tenth of a second."""
UNLISTED_MAX = 4
"""A neighbor that does not list us in its record is disconnected at this many digests after the link came up."""

_HEARTBEAT = encode(Heartbeat())
_HASH_MASK = (1 << 64) - 1
_BUCKET_SHIFT = 58
assert 1 << (64 - _BUCKET_SHIFT) == BUCKET_COUNT


class NeighborSync:
    """What the roster keeps for each link."""

    __slots__ = (
        "allowance",
        "awaits_versions",
        "compare_again_at",
        "compares_served",
        "credentials_sent",
        "digest_received",
        "digest_sent",
        "fruitless",
        "is_compared",
        "link",
        "mismatches",
        "records_served",
        "unlisted",
    )

    def __init__(self, link: "Link", now: float) -> None:
        self.link = link
        self.digest_sent = self.digest_received = 0
        self.mismatches = 0
        """Digests in a row that differed from ours."""
        self.is_compared = False
        """Whether a comparison has been started since the link came up."""
        self.fruitless = 0
        """Comparisons in a row that brought nothing new."""
        self.compare_again_at = 0.0
        self.awaits_versions = False
        self.unlisted = 0
        """Digests in a row while the neighbor's record did not list us."""
        self.compares_served = self.records_served = 0
        self.credentials_sent: dict[PeerId, None] = {}
        """Members whose credential the neighbor has."""
        self.allowance = Allowance(LINK_RECORDS_BURST_MAX, now)


class RosterSync:
    def __init__(
        self, peer: "Peer", known: dict[PeerId, KnownRecord], graph: "MemberGraph", presence: "Presence"
    ) -> None:
        self._peer = peer
        self._known = known
        self._graph = graph
        self._presence = presence
        self.neighbors: dict[Link, NeighborSync] = {}
        self._buckets = [0] * BUCKET_COUNT
        self.digest = 0
        self._digest_at_tick = 0
        self._source: NeighborSync | None = None
        """The neighbor from which records are requested."""
        self._is_requesting = False
        self._syncing_until = 0.0
        self._wanted: list[PeerId] = []
        self._listed: dict[NeighborSync, Sequence[RecordVersion]] = {}
        """What neighbors have listed that is requested next. They take turns, so that none keeps the others waiting."""
        self._requested: dict[PeerId, None] = {}
        """By a newcomer."""
        self._expected: dict[PeerId, None] | None = None
        """Members that a newcomer knows of from its neighbors, and cannot reach yet; None before one has answered."""
        self._deadline: Timer | None = None
        self._complete_at = float("inf")
        self.is_complete = False
        """Whether all members that a neighbor knows of were reached once. The first member is complete at once."""

    # -- the digest, of all members that can be reached

    def add(self, known: KnownRecord) -> None:
        self._change(known, known.record_hash)

    def remove(self, known: KnownRecord) -> None:
        self._change(known, -known.record_hash)

    def _change(self, known: KnownRecord, difference: int) -> None:
        bucket = known.record.peer_id >> _BUCKET_SHIFT
        self._buckets[bucket] = (self._buckets[bucket] + difference) & _HASH_MASK
        self.digest = (self.digest + difference) & _HASH_MASK

    # -- links

    def on_link_up(self, link: "Link") -> None:
        self.neighbors[link] = NeighborSync(link, self._peer.runtime.now())
        self._send_digest(self.neighbors[link])

    def on_link_down(self, link: "Link") -> None:
        neighbor = self.neighbors.pop(link)
        self._listed.pop(neighbor, None)
        if self._source is neighbor:
            self._source, self._wanted = None, []
            if not self._listed:
                self._expected = None

    def begin(self) -> None:
        """Our first record is published."""
        if self.neighbors:
            self._complete_at = self._peer.runtime.now() + COMPLETE_S_MAX
            self._set_deadline(INCOMPLETE_S_MAX)
        else:
            self._complete()
        for neighbor in list(self.neighbors.values()):
            if neighbor.digest_received:
                self._check(neighbor)

    def heartbeat(self, link: "Link") -> bytes:
        """What an idle link sends."""
        neighbor = self.neighbors.get(link)
        if neighbor is None or not self.is_complete:
            return _HEARTBEAT
        neighbor.digest_sent = self.digest
        return encode(RosterDigest(self.digest))

    def _send_digest(self, neighbor: NeighborSync) -> None:
        if self.is_complete:
            neighbor.digest_sent = self.digest
            neighbor.link.send(RosterDigest(self.digest))

    def tick(self) -> None:
        is_settled = self.digest == self._digest_at_tick
        self._digest_at_tick = self.digest
        for neighbor in list(self.neighbors.values()):
            neighbor.compares_served = neighbor.records_served = 0
            if is_settled and neighbor.digest_sent != self.digest:
                self._send_digest(neighbor)  # also on a link that is busy with other messages

    # -- comparing

    def on_digest(self, link: "Link", message: RosterDigest) -> None:
        neighbor = self.neighbors.get(link)
        if neighbor is None:
            return
        neighbor.digest_received = message.digest
        if self.digest:
            self._check_listed(neighbor)
            self._check(neighbor)

    def _check(self, neighbor: NeighborSync) -> None:
        if neighbor.digest_received == self.digest:
            neighbor.mismatches = neighbor.fruitless = 0
            self._complete()
            return
        neighbor.mismatches += 1
        # At first, one of the two sides begins. Later, a single mismatch is a change that is still on its way.
        begins = not neighbor.is_compared and (not self.is_complete or self._peer.me.peer_id < neighbor.link.peer_id)
        if (begins or neighbor.mismatches > 1) and self._peer.runtime.now() >= neighbor.compare_again_at:
            self._compare(neighbor)

    def _compare(self, neighbor: NeighborSync) -> None:
        neighbor.is_compared = neighbor.awaits_versions = True
        neighbor.fruitless += 1
        if neighbor.fruitless >= FRUITLESS_MAX:
            neighbor.compare_again_at = self._peer.runtime.now() + COMPARE_BACKOFF_S
        neighbor.link.send(RosterBuckets(tuple(self._buckets)))

    def _check_listed(self, neighbor: NeighborSync) -> None:
        """A member that hides its neighbors would make them unreachable: they do without it."""
        link = neighbor.link
        if link.peer_id not in self._known or self._graph.lists(link.peer_id, self._peer.me.peer_id):
            neighbor.unlisted = 0
            return
        neighbor.unlisted += 1
        if neighbor.unlisted >= UNLISTED_MAX:
            raise WireError("the neighbor does not list us in its record")

    def on_buckets(self, link: "Link", message: RosterBuckets) -> None:
        if len(message.hashes) != BUCKET_COUNT:
            raise WireError(f"{len(message.hashes)} buckets instead of {BUCKET_COUNT}")
        neighbor = self.neighbors.get(link)
        if neighbor is None or neighbor.compares_served >= COMPARES_SERVED_MAX:
            return
        neighbor.compares_served += 1
        mask = sum(1 << index for index, each in enumerate(message.hashes) if each != self._buckets[index])
        if mask:
            neighbor.awaits_versions = True
            link.send(RosterVersions(mask, False, tuple(each.version for each in self._reachable_in(mask))))

    def _reachable_in(self, mask: int) -> list[KnownRecord]:
        return [
            self._known[peer_id]
            for peer_id in self._graph.reachable
            if peer_id in self._known and mask >> (peer_id >> _BUCKET_SHIFT) & 1
        ]

    def on_versions(self, link: "Link", message: RosterVersions) -> None:
        neighbor = self.neighbors.get(link)
        if neighbor is None or not neighbor.awaits_versions:
            return
        neighbor.awaits_versions = False
        if not message.is_response:
            theirs = {version.peer_id: version for version in message.versions}
            missing = tuple(
                known.version
                for known in self._reachable_in(message.buckets)
                if (other := theirs.get(known.record.peer_id)) is None or other < known.version
            )
            if missing:
                link.send(RosterVersions(message.buckets, True, missing))
        self._expect(message.versions)
        self._listed[neighbor] = message.versions
        if not self._is_requesting:
            self._is_requesting = self._presence.is_syncing = True
            self._syncing_until = self._peer.runtime.now() + SYNCING_S_MAX
            self._request_next()

    def _needs(self, version: RecordVersion) -> bool:
        known = self._known.get(version.peer_id)
        return version.peer_id != self._peer.me.peer_id and (known is None or known.version < version)

    # -- completeness

    def _expect(self, versions: tuple[RecordVersion, ...]) -> None:
        if not self.is_complete:
            absent = (each.peer_id for each in versions if each.peer_id not in self._graph.reachable)
            room = self._peer.settings.roster_max - len(self._expected or ())
            self._expected = (self._expected or {}) | dict.fromkeys(islice(absent, max(0, room)))
            self.on_found(())

    def on_found(self, peer_ids: "Iterable[PeerId]") -> None:
        """These can be reached, or have left."""
        if self._expected is not None:
            for peer_id in peer_ids:
                self._expected.pop(peer_id, None)
            if not self._expected:
                self._complete()

    def _set_deadline(self, delay_s: float) -> None:
        """After this time the roster counts as complete, unless there is something to wait for."""
        if self._deadline is not None:
            self._deadline.cancel()
        delay_s = min(delay_s, self._complete_at - self._peer.runtime.now())
        self._deadline = self._peer.runtime.call_later(max(0.0, delay_s), self._on_deadline)

    def _on_deadline(self) -> None:
        self._deadline = None
        has_answer = self._expected is not None or not any(each.digest_received for each in self.neighbors.values())
        if (has_answer and not self._is_requesting) or self._peer.runtime.now() >= self._complete_at:
            self._complete()
        else:
            self._set_deadline(COMPLETE_S_MAX)

    def _complete(self) -> None:
        self._expected = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if not self.is_complete:
            self.is_complete = True
            self._requested.clear()
            self._peer.trace("the roster is complete")
            for neighbor in list(self.neighbors.values()):
                self._send_digest(neighbor)

    # -- requesting

    def _request_next(self) -> None:
        if not self._wanted:
            self._choose_source()
        if self._source is None:
            self._finish()
            return
        if self._peer.runtime.now() >= self._syncing_until:
            self._presence.is_syncing = False
        batch, self._wanted = self._wanted[:ROSTER_RECORDS_MAX], self._wanted[ROSTER_RECORDS_MAX:]
        if not self.is_complete:
            self._requested |= dict.fromkeys(batch)
        self._source.link.send(RosterWant(tuple(batch)))
        self._peer.runtime.call_later(WANT_INTERVAL_S, self._request_next)

    def _choose_source(self) -> None:
        self._source = None
        while self._listed and not self._wanted:
            neighbor = next(iter(self._listed))
            missing = [version for version in self._listed.pop(neighbor) if self._needs(version)]
            if missing:
                self._source, self._wanted = neighbor, [version.peer_id for version in missing[:TURN_RECORDS_MAX]]
            if len(missing) > TURN_RECORDS_MAX:
                self._listed[neighbor] = missing[TURN_RECORDS_MAX:]

    def _finish(self) -> None:
        self._requested.clear()
        self._is_requesting = self._presence.is_syncing = False
        if not self.is_complete:
            self._set_deadline(INCOMPLETE_S_MAX)

    def on_stored(self, neighbor: NeighborSync, peer_id: PeerId) -> bool:
        """A new record was stored. Whether others may need it too: all that a newcomer requests is known to them."""
        neighbor.fruitless = 0
        was_requested = peer_id in self._requested
        self._requested.pop(peer_id, None)
        return self.is_complete or not was_requested

    def on_want(self, link: "Link", message: RosterWant) -> None:
        neighbor = self.neighbors.get(link)
        if neighbor is None:
            return
        neighbor.records_served += len(message.members)
        if neighbor.records_served > RECORDS_SERVED_MAX:
            return
        self.send_records(
            neighbor, [peer_id for peer_id in message.members if peer_id in self._known], with_credentials=True
        )

    def send_records(self, neighbor: NeighborSync, peer_ids: list[PeerId], *, with_credentials: bool = False) -> None:
        """Send records, with credentials where the neighbor may lack them, or all `with_credentials`."""
        records: list[SignedRecord] = []
        for peer_id in peer_ids:
            signed = self._known[peer_id].signed
            if peer_id in neighbor.credentials_sent and not with_credentials:
                signed = signed._replace(credential=b"")
            neighbor.credentials_sent[peer_id] = None
            records.append(signed)
        for start in range(0, len(records), ROSTER_RECORDS_MAX):
            neighbor.link.send(RosterRecords(tuple(records[start : start + ROSTER_RECORDS_MAX])))
