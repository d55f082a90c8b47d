"""Directories converge: any order and repetition of the same messages gives the same directory."""

from hypothesis import given
from hypothesis import strategies as st

from broadloom.groups.codec import GroupWireMessage, encode
from broadloom.groups.directory import GroupDirectory, pack_pages
from broadloom.groups.message_fields import (
    GroupDescriptor,
    GroupRecord,
    MembershipRecord,
    pack_group_records,
    unpack_group_records,
)
from broadloom.groups.messages import DirectoryPage, MembershipChange
from broadloom.groups.model import GroupDiscovered, LimitReached, MemberJoined, MemberLeft
from broadloom.groups.settings import BUCKETS_MAX, GROUPS_MAX, RetentionPolicy
from tests.groups.group_bus import GroupBus

member_records = st.builds(MembershipRecord, st.integers(1, 4), st.sampled_from(["", "a", "b"]), st.integers(1, 6))
descriptors = st.builds(
    GroupDescriptor,
    st.integers(1, 3),
    st.sampled_from(["x", "y"]),
    st.builds(RetentionPolicy, st.integers(0, 1), ids_only=st.booleans()),
    st.just(b""),
    st.just(b""),
)
group_records = st.builds(
    GroupRecord, st.integers(1, 3), st.none() | descriptors, st.lists(member_records, max_size=3).map(tuple)
)


def merge_all(messages: list[GroupRecord]) -> GroupDirectory:
    directory = GroupDirectory()
    for each in messages:
        directory.merge(each)
    return directory


def directory_contents(directory: GroupDirectory) -> dict[int, object]:
    return {group: (entry.descriptor, sorted(entry.members.values())) for group, entry in directory.entries.items()}


@given(st.data(), st.lists(group_records, max_size=10))
def test_directories_converge_in_any_order_with_duplicates(data: st.DataObject, messages: list[GroupRecord]) -> None:
    again = data.draw(st.lists(st.sampled_from(messages), max_size=5)) if messages else []
    other = data.draw(st.permutations([*messages, *again]))
    one, two = merge_all(messages), merge_all(other)
    assert directory_contents(one) == directory_contents(two)
    assert one.hash == two.hash
    assert one.hash_buckets(4) == two.hash_buckets(4)


@given(st.lists(group_records, max_size=8), st.lists(group_records, max_size=8))
def test_directories_converge_after_partition(ours: list[GroupRecord], theirs: list[GroupRecord]) -> None:
    """Two partitions exchange their complete directories."""
    one, two = merge_all(ours), merge_all(theirs)
    records = [two.group_record(group) for group in two.entries]
    for each in [one.group_record(group) for group in one.entries]:
        two.merge(each)
    for each in records:
        one.merge(each)
    assert directory_contents(one) == directory_contents(two) == directory_contents(merge_all([*ours, *theirs]))
    assert one.hash == two.hash


@given(
    st.lists(group_records, max_size=8), st.lists(group_records, max_size=8), st.sampled_from([1, 2, 8, BUCKETS_MAX])
)
def test_bucket_hashes_find_every_difference(ours: list[GroupRecord], theirs: list[GroupRecord], count: int) -> None:
    one, two = merge_all(ours), merge_all(theirs)
    differing = {
        group
        for group in {*one.entries, *two.entries}
        if (one.entries[group].hash if group in one.entries else 0)
        != (two.entries[group].hash if group in two.entries else 0)
    }
    found = one.differing_buckets(two.hash_buckets(count))
    assert {group % count for group in differing} == set(found)
    assert {*one.groups_in(found, count), *two.groups_in(found, count)} >= differing


@given(st.lists(group_records, max_size=12), st.integers(1, 400))
def test_pages_contain_every_record(messages: list[GroupRecord], page_bytes: int) -> None:
    directory = merge_all(messages)
    bodies = list(pack_pages([directory.group_record(group) for group in directory.entries], page_bytes))
    assert bodies, "an empty reply is a reply"
    again = merge_all([record for body in bodies for record in unpack_group_records(body)])
    known = {group: entry for group, entry in directory_contents(directory).items() if entry != (None, [])}
    assert directory_contents(again) == known


directory_messages = st.one_of(
    st.builds(MembershipChange, st.integers(1, 3), st.integers(1, 4), st.sampled_from(["", "a"]), st.integers(1, 6)),
    st.builds(
        lambda records, hash_: DirectoryPage(0, hash_, False, True, 0, (), (), pack_group_records(records)),
        st.lists(group_records, max_size=3),
        st.integers(1, 1 << 63),
    ),
)


@given(st.data(), st.lists(directory_messages, max_size=10))
def test_participants_converge_in_any_message_order(data: st.DataObject, messages: list[GroupWireMessage]) -> None:
    """The same with encoded messages."""
    again = data.draw(st.lists(st.sampled_from(messages), max_size=5)) if messages else []
    bus = GroupBus()
    a, b = bus.add("a"), bus.add("b")
    for member, received in ((a, messages), (b, data.draw(st.permutations([*messages, *again])))):
        for message in received:
            member.participant.on_message(77, encode(message))
    assert directory_contents(a.participant.directory) == directory_contents(b.participant.directory)
    assert a.participant.directory.hash == b.participant.directory.hash
    assert a.participant.malformed_messages == b.participant.malformed_messages == 0
    for group in a.participant.directory.entries:
        assert a.participant.members(group) == b.participant.members(group)


def test_member_rejoins_after_leaving() -> None:
    """Unlike in the thesis."""
    directory = merge_all([GroupRecord(1, None, (MembershipRecord(5, "e", version),)) for version in (1, 2, 3)])
    assert directory.entries[1].members[5].version % 2 == 1
    late = directory.merge(GroupRecord(1, None, (MembershipRecord(5, "e", 2),)))
    assert late is None


def test_groups_over_limit_are_rejected() -> None:
    directory = merge_all([GroupRecord(group, None, ()) for group in range(GROUPS_MAX + 3)])
    assert (len(directory.entries), directory.rejected_count) == (GROUPS_MAX, 3)


def test_sync_of_6000_groups_transfers_only_differences() -> None:
    """A member that misses three of them receives little more than three."""
    bus = GroupBus()
    a = bus.add("a")
    for number in range(1, 6001):
        descriptor = GroupDescriptor(1, f"group {number}", RetentionPolicy())
        a.participant.directory.merge(GroupRecord(number, descriptor, (MembershipRecord(number % 50 + 1, "Anna", 1),)))
    b = bus.add("b")
    bus.run(20.0)
    assert b.participant.directory.hash == a.participant.directory.hash
    assert len(b.events_of(GroupDiscovered)) == 6000
    for number in (7001, 7002, 7003):
        a.participant.directory.merge(GroupRecord(number, GroupDescriptor(1, "new", RetentionPolicy()), ()))
    started_at = bus.clock.now
    b.participant.announce()
    bus.run(20.0)
    assert b.participant.directory.hash == a.participant.directory.hash
    update_bytes = sum(size for at, _, kind, size in bus.sent if at >= started_at and kind == "DirectoryPage")
    first_sync_bytes = sum(size for at, _, kind, size in bus.sent if at < started_at and kind == "DirectoryPage")
    assert update_bytes < first_sync_bytes / 5
    assert not b.events_of(LimitReached)


def test_membership_changes_emit_events() -> None:
    bus = GroupBus()
    a, b = bus.add("a"), bus.add("b")
    group = a.participant.create("tea")
    bus.run(10.0)
    b.participant.join(group)
    bus.run(10.0)
    b.participant.leave(group)
    bus.run(10.0)
    b.participant.join(group)
    bus.run(10.0)
    assert [(type(event), event.member.name) for event in a.events if isinstance(event, MemberJoined | MemberLeft)] == [
        (MemberJoined, "b"),
        (MemberLeft, "b"),
        (MemberJoined, "b"),
    ]
    assert a.participant.members(group) == b.participant.members(group)


def test_member_refutes_forged_membership_record() -> None:
    bus = GroupBus()
    a, b = bus.add("a"), bus.add("b")
    group = a.participant.create("tea")
    bus.run(10.0)
    b.participant.directory_sync.merge((GroupRecord(group, None, (MembershipRecord(a.participant.me.id, "a", 40),)),))
    b.participant.send_record(b.participant.directory.group_record(group))
    bus.run(10.0)
    assert a.participant.info(group).is_joined
    assert a.participant.directory.entries[group].members[a.participant.me.id].version == 41
    assert a.participant.directory.hash == b.participant.directory.hash
