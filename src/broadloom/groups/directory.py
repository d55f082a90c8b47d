"""All groups that one member knows of: what each is, and who is or was in it.

The lists are made to be merged: for each member of a group there is one counter (its step), raised by that member
alone, when it joins (odd) and when it leaves (even); of two the larger holds. Of two charters of the same group the
smaller holds.
So any order and repetition of the same messages ends in the same lists (a join-semilattice), which the lists of the
thesis do not: there, whoever has left once has left for ever.

Every group has a hash, put together from those of its parts, and falls into one of 1,024 buckets. Two members compare
their lists by the hashes of the buckets, or of fewer, larger ones made by folding.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from broadloom.groups.message_fields import GroupDescriptor, GroupRecord, MemberRecord, pack_group_records
from broadloom.groups.model import GroupId, MemberId
from broadloom.groups.settings import BUCKETS_MAX, ENTRIES_MAX, GROUPS_MAX, MEMBERS_MAX, MEMBERSHIPS_MAX

GROUPS_PER_BUCKET = 8
_MEMBER_KEY = Struct(">QQQ")
_MEMBER_RECORD_BYTES = 32
"""On the wire, about, beside the name."""


class DirectoryChange(NamedTuple):
    """What merging brought."""

    group: GroupId
    is_new_group: bool
    """Its charter was not known."""
    members: list[tuple[MemberRecord | None, MemberRecord]]
    """Before and after."""


class GroupEntry:
    """One group."""

    __slots__ = ("descriptor", "hash", "members")

    def __init__(self) -> None:
        self.descriptor: GroupDescriptor | None = None
        self.members: dict[MemberId, MemberRecord] = {}
        self.hash = 0


class GroupDirectory:
    def __init__(self) -> None:
        self.entries: dict[GroupId, GroupEntry] = {}
        self._buckets = [0] * BUCKETS_MAX
        self._folded: dict[int, tuple[int, ...]] = {}
        """Since the last change."""
        self.hash = 0
        """Of everything."""
        self._membership_count = 0
        self.rejected_count = 0
        """Groups and members over a limit."""

    # -- merging

    def merge(self, record: GroupRecord) -> DirectoryChange | None:
        """Take in what somebody knows of a group; None if it was known."""
        group = record.group
        entry = self.entries.get(group)
        if entry is None:
            if len(self.entries) >= GROUPS_MAX:
                self.rejected_count += 1
                return None
            entry = self.entries[group] = GroupEntry()
        founded = False
        descriptor = record.descriptor
        if descriptor is not None and (entry.descriptor is None or _rank(descriptor) < _rank(entry.descriptor)):
            founded = entry.descriptor is None
            if entry.descriptor is not None:
                self._toggle(group, entry, _descriptor_hash(group, entry.descriptor))
            self._toggle(group, entry, _descriptor_hash(group, descriptor))
            entry.descriptor = descriptor
        changed: list[tuple[MemberRecord | None, MemberRecord]] = []
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
        return DirectoryChange(group, founded, changed) if founded or changed else None

    def _toggle(self, group: GroupId, entry: GroupEntry, part: int) -> None:
        entry.hash ^= part
        self._buckets[group % BUCKETS_MAX] ^= part
        self.hash ^= part
        self._folded.clear()

    # -- comparing

    @property
    def bucket_count(self) -> int:
        """As many as make a difference tell a few groups only."""
        count = 1
        while count < BUCKETS_MAX and count * GROUPS_PER_BUCKET < len(self.entries):
            count *= 2
        return count

    def hash_buckets(self, bucket_count: int) -> tuple[int, ...]:
        """The hashes of so many buckets; a power of two."""
        known = self._folded.get(bucket_count)
        if known is None:
            folded = self._buckets
            while len(folded) > bucket_count:
                half = len(folded) // 2
                folded = [low ^ high for low, high in zip(folded[:half], folded[half:], strict=True)]
            known = self._folded[bucket_count] = tuple(folded)
        return known

    def differing_buckets(self, buckets: tuple[int, ...]) -> list[int]:
        """The numbers of the buckets that are not the same here."""
        mine = self.hash_buckets(len(buckets))
        return [number for number, (here, there) in enumerate(zip(mine, buckets, strict=True)) if here != there]

    def groups_in(self, bucket_numbers: Iterable[int], bucket_count: int) -> list[GroupId]:
        chosen = frozenset(bucket_numbers)
        if len(chosen) == bucket_count:
            return list(self.entries)
        return [group for group in self.entries if group % bucket_count in chosen]

    # -- telling

    def group_record(self, group: GroupId) -> GroupRecord:
        entry = self.entries[group]
        return GroupRecord(group, entry.descriptor, tuple(entry.members.values()))


def pack_pages(records: Iterable[GroupRecord], page_bytes: int) -> Iterator[bytes]:
    """Rosters as bodies of about this size; a large group is cut into several. One empty body if there are none."""
    page: list[GroupRecord] = []
    size = page_count = 0
    for record in records:
        member_records: list[MemberRecord] = []
        descriptor = record.descriptor
        size += 64 + (len(descriptor.description) if descriptor is not None else 0)
        for member_record in record.members:
            member_records.append(member_record)
            size += _MEMBER_RECORD_BYTES + len(member_record.name)
            if size >= page_bytes or len(member_records) >= ENTRIES_MAX:
                yield pack_group_records([*page, GroupRecord(record.group, descriptor, tuple(member_records))])
                page_count += 1
                page, member_records, descriptor, size = [], [], None, 64
        if member_records or descriptor is not None:
            page.append(GroupRecord(record.group, descriptor, tuple(member_records)))
        if size >= page_bytes or len(page) >= ENTRIES_MAX:
            yield pack_group_records(page)
            page_count += 1
            page, size = [], 0
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


def _member_hash(group: GroupId, member_record: MemberRecord) -> int:
    encoded = _MEMBER_KEY.pack(group, member_record.member, member_record.version) + member_record.name.encode()
    return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "big")


def _descriptor_hash(group: GroupId, descriptor: GroupDescriptor) -> int:
    encoded = repr((group, *_rank(descriptor))).encode()
    return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "big")
