"""`MailboxTable`: what one program knows about all mailboxes of the channel, replicated at every member.

Per mailbox it has the lasting record of the highest rank, and one record of each program that has bound the mailbox to
its presence. A record is *live* if it is bound, its value has not expired, and its writer is a member if it is bound to
presence. Of several live records the one with the highest rank is the one that applications see. Only live records are
part of the hashes by which members compare their tables. Others are kept for a while: so that an older record does not
bring an unbound mailbox back, and so that a value is back as soon as its writer is.
"""

import heapq
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING

from broadloom.mailboxes.limits import (
    BUCKETS,
    OWNER_VALUE_BYTES_MAX,
    OWNER_VALUES_MAX,
    TABLE_BYTES_MAX,
    VALUES_MAX,
)
from broadloom.mailboxes.model import GoneReason
from broadloom.mailboxes.record import Key, Record, content_hash

if TYPE_CHECKING:
    from broadloom.wire import PeerId

ABSENT_S = 600.0
"""How long a record of an absent writer is kept: as long as the roster remembers a partition."""
LASTING = 0

Slot = tuple[str, str, int]
"""Owner, name, and the writer of a record that is bound to its presence; 0 for the lasting record."""
Rank = tuple[int, int, int]


class Entry:
    __slots__ = ("bucket", "hash", "is_live", "record")

    def __init__(self, record: Record, record_hash: int, bucket: int) -> None:
        self.record = record
        self.hash = record_hash
        self.bucket = bucket
        self.is_live = False

    @property
    def rank(self) -> Rank:
        return self.record.revision, self.record.writer, self.hash


class Usage:
    """What the mailboxes of one owner take."""

    __slots__ = ("count", "data_bytes", "graves")

    def __init__(self) -> None:
        self.count = 0
        self.data_bytes = 0
        self.graves: dict[Slot, float] = {}
        """Records that are not live, oldest first, and when they are forgotten."""


class MailboxTable:
    def __init__(self, is_present: "Callable[[PeerId], bool]", tombstone_s: float) -> None:
        self._is_present = is_present
        self._tombstone_s = tombstone_s
        self._entries: dict[Slot, Entry] = {}
        self._slots: dict[Key, dict[Slot, None]] = {}
        self._seen: dict[str, dict[str, Record]] = {}
        """By name and owner: the records that applications see."""
        self._bound_to: dict[PeerId, dict[Slot, None]] = {}
        """Records that are bound to the presence of their writer."""
        self._usage: dict[str, Usage] = {}
        self._data_bytes = 0
        self._expiries: list[tuple[int, Slot, int]] = []
        self._buckets: list[dict[Slot, None]] = [{} for _ in range(BUCKETS)]
        self.hashes = [0] * BUCKETS
        self.on_seen: Callable[[Record, Record | None, bool], None] = lambda _record, _previous, _is_new: None
        """The record that applications see from now on, the one that they saw until now, and whether it was just
        written: otherwise its writer is back, or another one that counted more is gone."""
        self.on_gone: Callable[[Record, GoneReason], None] = lambda _record, _reason: None
        """The record that applications saw until now: there is none any more."""
        self.on_limit: Callable[[str, str], None] = lambda _owner, _limit: None

    def __len__(self) -> int:
        """Records, live or not."""
        return len(self._entries)

    # -- reading

    @property
    def digest(self) -> int:
        """The hash of all live records."""
        data = b"".join(each.to_bytes(8, "big") for each in self.hashes)
        return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")

    def get(self, owner: str, name: str) -> Record | None:
        """The record of this mailbox that applications see."""
        return self._seen.get(name, {}).get(owner)

    def lasting(self, owner: str, name: str) -> Record | None:
        """The live record of this mailbox that is not bound to presence."""
        entry = self._entries.get((owner, name, LASTING))
        return entry.record if entry is not None and entry.is_live else None

    def named(self, name: str) -> list[Record]:
        """The records of the mailboxes with this name, one per owner."""
        return list(self._seen.get(name, {}).values())

    def seen(self) -> Iterator[Record]:
        """The records of all mailboxes."""
        for owners in self._seen.values():
            yield from owners.values()

    def known(self, record: Record) -> Record | None:
        """The record in the place of this one, live or not."""
        entry = self._entries.get(slot_of(record))
        return entry.record if entry is not None else None

    def at(self, slot: Slot) -> Record | None:
        """The record in this place, live or not."""
        entry = self._entries.get(slot)
        return entry.record if entry is not None else None

    def last_revision(self, owner: str, name: str) -> int:
        """The highest one, also of a mailbox that was unbound; 0 if it is unknown."""
        slots = self._slots.get((owner, name), ())
        return max((self._entries[each].record.revision for each in slots), default=0)

    def bucket(self, number: int) -> list[Record]:
        """The records of one bucket by slot: live ones, and those that say that a mailbox was unbound."""
        entries = [self._entries[slot] for slot in sorted(self._buckets[number])]
        return [each.record for each in entries if each.is_live or each.record.is_unbound]

    def outranks(self, record: Record) -> bool:
        """Whether the known record in this place counts at least as much."""
        entry = self._entries.get(slot_of(record))
        if entry is None or record.revision != entry.record.revision:
            return entry is not None and record.revision < entry.record.revision
        return (record.revision, record.writer, content_hash(record)) <= entry.rank

    # -- writing

    def merge(self, record: Record, now_s: float, wall_ms: int) -> bool:
        """Enter a record; return whether it counts more than the known one. What exceeds a limit is ignored and
        reported."""
        slot = slot_of(record)
        entry = self._entries.get(slot)
        if entry is not None and record.revision < entry.record.revision:
            return False
        record_hash = content_hash(record)
        if entry is not None and (record.revision, record.writer, record_hash) <= entry.rank:
            return False
        if self._is_superseded(record) or not self._make_room(record, entry):
            return False
        if entry is None:
            bucket = blake2b("\0".join(record.key).encode(), digest_size=1).digest()[0] % BUCKETS
            entry = self._entries[slot] = Entry(record, record_hash, bucket)
            self._buckets[bucket][slot] = None
            self._slots.setdefault(record.key, {})[slot] = None
        else:
            self._detach(slot, entry)
            entry.record, entry.hash = record, record_hash
        self._attach(slot, entry)
        if slot[2] == LASTING and (record.owner, record.name, record.writer) in self._entries:
            self._forget((record.owner, record.name, record.writer))
        reason = self._why_not_live(record, wall_ms)
        if reason is None:
            self._set_live(entry)
            if record.ttl_ms:
                heapq.heappush(self._expiries, (record.at_ms + record.ttl_ms, slot, record.revision))
        else:
            self._bury(slot, now_s)
        self._refresh(record.key, reason or GoneReason.INVALIDATED, record)
        return True

    def _is_superseded(self, record: Record) -> bool:
        """A lasting record replaces what the same program has bound to its presence before."""
        lasting = self._entries.get((record.owner, record.name, LASTING))
        return (
            record.is_while_here
            and lasting is not None
            and lasting.record.writer == record.writer
            and lasting.record.revision > record.revision
        )

    def _why_not_live(self, record: Record, wall_ms: int) -> GoneReason | None:
        if record.is_unbound:
            return GoneReason.UNBOUND
        if record.ttl_ms and record.at_ms + record.ttl_ms <= wall_ms:
            return GoneReason.EXPIRED
        if record.is_while_here and not self._is_present(record.writer):
            return GoneReason.OWNER_GONE
        return None

    def _make_room(self, record: Record, entry: Entry | None) -> bool:
        usage = self._usage.get(record.owner) or Usage()
        if entry is None and usage.count >= OWNER_VALUES_MAX and usage.graves:
            self._forget(next(iter(usage.graves)))
        more = len(record.data) - (len(entry.record.data) if entry is not None else 0)
        limit = ""
        if entry is None and usage.count >= OWNER_VALUES_MAX:
            limit = "OWNER_VALUES_MAX"
        elif more > 0 and usage.data_bytes + more > OWNER_VALUE_BYTES_MAX:
            limit = "OWNER_VALUE_BYTES_MAX"
        elif entry is None and len(self._entries) >= VALUES_MAX:
            limit = "VALUES_MAX"
        elif more > 0 and self._data_bytes + more > TABLE_BYTES_MAX:
            limit = "TABLE_BYTES_MAX"
        if limit:
            self.on_limit(record.owner, limit)
        return not limit

    def _attach(self, slot: Slot, entry: Entry) -> None:
        usage = self._usage.setdefault(slot[0], Usage())
        usage.count += 1
        usage.data_bytes += len(entry.record.data)
        self._data_bytes += len(entry.record.data)
        if entry.record.is_while_here and not entry.record.is_unbound:
            self._bound_to.setdefault(entry.record.writer, {})[slot] = None

    def _detach(self, slot: Slot, entry: Entry) -> None:
        self._end_live(entry)
        usage = self._usage[slot[0]]
        usage.graves.pop(slot, None)
        usage.count -= 1
        usage.data_bytes -= len(entry.record.data)
        self._data_bytes -= len(entry.record.data)
        bound = self._bound_to.get(entry.record.writer, {})
        if bound.pop(slot, self) is None and not bound:
            del self._bound_to[entry.record.writer]

    def _set_live(self, entry: Entry) -> None:
        if not entry.is_live:
            entry.is_live = True
            self.hashes[entry.bucket] ^= entry.hash

    def _end_live(self, entry: Entry) -> None:
        if entry.is_live:
            entry.is_live = False
            self.hashes[entry.bucket] ^= entry.hash

    def _refresh(self, key: Key, reason: GoneReason, written: Record | None = None) -> None:
        """Let applications see the live record with the highest rank."""
        owner, name = key
        live = [entry for slot in self._slots.get(key, ()) if (entry := self._entries[slot]).is_live]
        best = max(live, key=lambda each: each.rank).record if live else None
        previous = self.get(owner, name)
        if best is previous:
            return
        if best is not None:
            self._seen.setdefault(name, {})[owner] = best
            self.on_seen(best, previous, best is written)
        elif previous is not None:
            del self._seen[name][owner]
            if not self._seen[name]:
                del self._seen[name]
            self.on_gone(previous, reason)

    def _bury(self, slot: Slot, now_s: float) -> None:
        graves = self._usage[slot[0]].graves
        graves.pop(slot, None)
        graves[slot] = now_s + (self._tombstone_s if slot[2] == LASTING else ABSENT_S)

    def _forget(self, slot: Slot) -> None:
        entry = self._entries[slot]
        self._detach(slot, entry)
        del self._entries[slot], self._buckets[entry.bucket][slot], self._slots[slot[:2]][slot]
        if not self._slots[slot[:2]]:
            del self._slots[slot[:2]]
        if not self._usage[slot[0]].count:
            del self._usage[slot[0]]

    # -- time and presence

    def on_member_joined(self, peer_id: "PeerId", wall_ms: int) -> None:
        for slot in list(self._bound_to.get(peer_id, ())):
            entry = self._entries[slot]
            if self._why_not_live(entry.record, wall_ms) is None:
                self._usage[slot[0]].graves.pop(slot, None)
                self._set_live(entry)
                self._refresh(entry.record.key, GoneReason.OWNER_GONE)

    def on_member_gone(self, peer_id: "PeerId", now_s: float) -> None:
        for slot in list(self._bound_to.get(peer_id, ())):
            self._end(slot, GoneReason.OWNER_GONE, now_s)

    @property
    def next_expiry_ms(self) -> int | None:
        return self._expiries[0][0] if self._expiries else None

    def expire(self, now_s: float, wall_ms: int) -> None:
        """Remove the values whose time is over."""
        while self._expiries and self._expiries[0][0] <= wall_ms:
            _, slot, revision = heapq.heappop(self._expiries)
            entry = self._entries.get(slot)
            if entry is not None and entry.record.revision == revision:
                self._end(slot, GoneReason.EXPIRED, now_s)

    def _end(self, slot: Slot, reason: GoneReason, now_s: float) -> None:
        entry = self._entries[slot]
        if entry.is_live:
            self._end_live(entry)
            self._bury(slot, now_s)
            self._refresh(entry.record.key, reason)

    def purge(self, now_s: float) -> list[Key]:
        """Forget records that are not live and have been kept long enough; return the mailboxes of lasting ones."""
        purged = []
        for usage in list(self._usage.values()):
            for slot, at_s in list(usage.graves.items()):
                if at_s <= now_s:
                    self._forget(slot)
                    if slot[2] == LASTING:
                        purged.append(slot[:2])
        return purged


def slot_of(record: Record) -> Slot:
    return record.owner, record.name, record.writer if record.is_while_here else LASTING
