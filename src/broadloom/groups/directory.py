"""`GroupDirectory`: all known groups and their members, as grow-only state that merges without conflicts (a CRDT).

Every member has one version counter per group, which only the member itself increments: odd when it joins, even when it
leaves. The larger version wins. Of two descriptors of the same group the smaller wins. Merging is therefore
commutative, associative and idempotent (a join-semilattice), and directories converge in any order of messages. In the
M2MC thesis, chapter 5, a member that has left can never return; here it can.

On a channel with tickets, a descriptor with the creator's proof (creator_proofs.py) wins over all others. Any member
could make up a smaller one without: of those each member keeps the first, and their content is not compared.

Each group has a hash combined from those of its parts and belongs to one of 1,024 buckets. Two members compare their
directories by bucket hashes, or by fewer, larger buckets made by folding.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from broadloom.groups.message_fields import GroupDescriptor, GroupRecord, MembershipRecord, pack_group_records
from broadloom.groups.model import GroupId, MemberId
from broadloom.groups.settings import (
    BUCKETS_MAX,
    ENTRIES_MAX,
    GROUPS_MAX,
    MEMBERS_MAX,
    MEMBERSHIPS_MAX,
    PAGE_CREDENTIALS_MAX,
    PAGE_PROOFS_MAX,
)

GROUPS_PER_BUCKET = 8
_MEMBER_KEY = Struct(">QQQ")
_RECORD_BYTES = 64
_MEMBER_RECORD_BYTES = 32
"""Approximate sizes on the wire, without description and name."""


class DirectoryChange(NamedTuple):
    group: GroupId
    is_new_group: bool
    """Its descriptor was not known before."""
    members: list[tuple[MembershipRecord | None, MembershipRecord]]
    """Old and new record of each changed member."""


class GroupEntry:
    __slots__ = ("descriptor", "hash", "members")

    def __init__(self) -> None:
        self.descriptor: GroupDescriptor | None = None
        self.members: dict[MemberId, MembershipRecord] = {}
        self.hash = 0


class GroupDirectory:
    def __init__(self, *, has_tickets: bool = False) -> None:
        self._has_tickets = has_tickets
        self.entries: dict[GroupId, GroupEntry] = {}
        self._buckets = [0] * BUCKETS_MAX
        self._folded: dict[int, tuple[int, ...]] = {}
        """Folded bucket hashes by number of buckets, until the next change."""
        self.hash = 0
        self._membership_count = 0
        self.rejected_count = 0
        """Groups and members rejected because of a limit."""

    # -- merging

    def merge(self, record: GroupRecord) -> DirectoryChange | None:
        """Returns what changed; None if nothing did. The proof of a descriptor was verified before."""
        group = record.group
        entry = self.entries.get(group)
        if entry is None:
            if len(self.entries) >= GROUPS_MAX:
                self.rejected_count += 1
                return None
            entry = self.entries[group] = GroupEntry()
        old_descriptor, descriptor = entry.descriptor, record.descriptor
        if descriptor is not None and self._wins(descriptor, old_descriptor):
            if old_descriptor is not None:
                self._toggle(group, entry, self._descriptor_hash(group, old_descriptor))
            self._toggle(group, entry, self._descriptor_hash(group, descriptor))
            entry.descriptor = descriptor
        changed: list[tuple[MembershipRecord | None, MembershipRecord]] = []
        for member_record in record.members:
            old = entry.members.get(member_record.member)
            if old is None:
                if len(entry.members) >= MEMBERS_MAX or self._membership_count >= MEMBERSHIPS_MAX:
                    self.rejected_count += 1
                    continue
                self._membership_count += 1
            elif (member_record.version, member_record.name) <= (old.version, old.name):
                continue
            else:
                self._toggle(group, entry, _member_hash(group, old))
            self._toggle(group, entry, _member_hash(group, member_record))
            entry.members[member_record.member] = member_record
            changed.append((old, member_record))
        if entry.descriptor is old_descriptor and not changed:
            return None
        return DirectoryChange(group, old_descriptor is None and entry.descriptor is not None, changed)

    def _wins(self, new: GroupDescriptor, old: GroupDescriptor | None) -> bool:
        if old is None:
            return True
        if bool(new.proof) != bool(old.proof):
            return bool(new.proof)
        return (bool(new.proof) or not self._has_tickets) and _rank(new) < _rank(old)

    def _descriptor_hash(self, group: GroupId, descriptor: GroupDescriptor) -> int:
        creator, *rest = _rank(descriptor)
        is_compared = descriptor.proof or not self._has_tickets
        encoded = repr((int(group), int(creator), *rest) if is_compared else int(group)).encode()
        return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "big")

    def _toggle(self, group: GroupId, entry: GroupEntry, part: int) -> None:
        entry.hash ^= part
        self._buckets[group % BUCKETS_MAX] ^= part
        self.hash ^= part
        self._folded.clear()

    # -- comparing

    @property
    def bucket_count(self) -> int:
        """Enough buckets that each holds only a few groups."""
        count = 1
        while count < BUCKETS_MAX and count * GROUPS_PER_BUCKET < len(self.entries):
            count *= 2
        return count

    def hash_buckets(self, bucket_count: int) -> tuple[int, ...]:
        """The hashes of `bucket_count` buckets, a power of two."""
        if bucket_count not in self._folded:
            folded = self._buckets
            while len(folded) > bucket_count:
                half = len(folded) // 2
                folded = [low ^ high for low, high in zip(folded[:half], folded[half:], strict=True)]
            self._folded[bucket_count] = tuple(folded)
        return self._folded[bucket_count]

    def differing_buckets(self, buckets: tuple[int, ...]) -> list[int]:
        """Numbers of the buckets whose hash is different here."""
        own = self.hash_buckets(len(buckets))
        return [number for number, (here, there) in enumerate(zip(own, buckets, strict=True)) if here != there]

    def groups_in(self, bucket_numbers: Iterable[int], bucket_count: int) -> list[GroupId]:
        chosen = frozenset(bucket_numbers)
        if len(chosen) == bucket_count:
            return list(self.entries)
        return [group for group in self.entries if group % bucket_count in chosen]

    def group_record(self, group: GroupId) -> GroupRecord:
        entry = self.entries[group]
        return GroupRecord(group, entry.descriptor, tuple(entry.members.values()))


def pack_pages(records: Iterable[GroupRecord], page_bytes: int) -> Iterator[bytes]:
    """Page bodies of about `page_bytes`. Large groups are split. Without records, one empty body."""
    page: list[GroupRecord] = []
    credentials: set[bytes] = set()
    size = page_count = 0
    for record in records:
        member_records: list[MembershipRecord] = []
        descriptor = record.descriptor
        size += _RECORD_BYTES
        if descriptor is not None:
            size += len(descriptor.description) + len(descriptor.proof)
            size += len(descriptor.credential) if descriptor.credential not in credentials else 0
            credentials.add(descriptor.credential)
        for member_record in record.members:
            member_records.append(member_record)
            size += _MEMBER_RECORD_BYTES + len(member_record.name)
            if size >= page_bytes or len(member_records) >= ENTRIES_MAX:
                yield pack_group_records([*page, GroupRecord(record.group, descriptor, tuple(member_records))])
                page_count += 1
                page, member_records, descriptor, size, credentials = [], [], None, _RECORD_BYTES, set()
        if member_records or descriptor is not None:
            page.append(GroupRecord(record.group, descriptor, tuple(member_records)))
        if size >= page_bytes or len(page) >= PAGE_PROOFS_MAX or len(credentials) >= PAGE_CREDENTIALS_MAX:
            yield pack_group_records(page)
            page_count += 1
            page, size, credentials = [], 0, set()
    if page or not page_count:
        yield pack_group_records(page)


def _rank(descriptor: GroupDescriptor) -> tuple[int, str, int, int, int, bool]:
    retention = descriptor.retention
    return (
        descriptor.creator,
        descriptor.description,
        retention.messages_max,
        retention.age_max_s,
        retention.bytes_max,
        retention.ids_only,
    )


def _member_hash(group: GroupId, member_record: MembershipRecord) -> int:
    encoded = _MEMBER_KEY.pack(group, member_record.member, member_record.version) + member_record.name.encode()
    return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "big")
