"""Lists of groups and members: any order and repetition of the same messages ends in the same lists."""

from hypothesis import given
from hypothesis import strategies as st

from tests.groups.ether import Ether
from weft.groups.codec import Note, encode
from weft.groups.directory import Directory, pages
from weft.groups.events import GroupOffered, MemberJoined, MemberLeft, Refused
from weft.groups.fields import Charter, Roster, Stand, pack_rosters, unpack_rosters
from weft.groups.limits import BUCKETS_MAX, GROUPS_MAX
from weft.groups.messages import Listing, Standing
from weft.groups.settings import Keep

stands = st.builds(Stand, st.integers(1, 4), st.sampled_from(["", "a", "b"]), st.integers(1, 6))
charters = st.builds(
    Charter, st.integers(1, 3), st.sampled_from(["x", "y"]), st.builds(Keep, st.integers(0, 1), ids_only=st.booleans())
)
rosters = st.builds(Roster, st.integers(1, 3), st.none() | charters, st.lists(stands, max_size=3).map(tuple))


def merged(messages: list[Roster]) -> Directory:
    directory = Directory()
    for each in messages:
        directory.merge(each)
    return directory


def lists(directory: Directory) -> dict[int, object]:
    return {group: (book.charter, sorted(book.stands.values())) for group, book in directory.books.items()}


@given(st.data(), st.lists(rosters, max_size=10))
def test_any_order_and_repetition(data: st.DataObject, messages: list[Roster]) -> None:
    again = data.draw(st.lists(st.sampled_from(messages), max_size=5)) if messages else []
    other = data.draw(st.permutations([*messages, *again]))
    one, two = merged(messages), merged(other)
    assert lists(one) == lists(two)
    assert one.hash == two.hash
    assert one.fold(4) == two.fold(4)


@given(st.lists(rosters, max_size=8), st.lists(rosters, max_size=8))
def test_parts_that_meet(ours: list[Roster], theirs: list[Roster]) -> None:
    """Two partitions exchange all they know, each in its own words."""
    one, two = merged(ours), merged(theirs)
    told = [two.roster(group) for group in two.books]
    for each in [one.roster(group) for group in one.books]:
        two.merge(each)
    for each in told:
        one.merge(each)
    assert lists(one) == lists(two) == lists(merged([*ours, *theirs]))
    assert one.hash == two.hash


@given(st.lists(rosters, max_size=8), st.lists(rosters, max_size=8), st.sampled_from([1, 2, 8, BUCKETS_MAX]))
def test_hashes_tell_every_difference(ours: list[Roster], theirs: list[Roster], count: int) -> None:
    one, two = merged(ours), merged(theirs)
    differing = {
        group
        for group in {*one.books, *two.books}
        if (one.books[group].hash if group in one.books else 0) != (two.books[group].hash if group in two.books else 0)
    }
    found = one.differing(two.fold(count))
    assert {group % count for group in differing} == set(found)
    assert {*one.groups_in(found, count), *two.groups_in(found, count)} >= differing


@given(st.lists(rosters, max_size=12), st.integers(1, 400))
def test_pages_lose_nothing(messages: list[Roster], page_bytes: int) -> None:
    directory = merged(messages)
    bodies = list(pages([directory.roster(group) for group in directory.books], page_bytes))
    assert bodies, "an answer without groups is an answer"
    again = merged([roster for body in bodies for roster in unpack_rosters(body)])
    known = {group: told for group, told in lists(directory).items() if told != (None, [])}
    assert lists(again) == known


said = st.one_of(
    st.builds(Standing, st.integers(1, 3), st.integers(1, 4), st.sampled_from(["", "a"]), st.integers(1, 6)),
    st.builds(
        lambda told, lists: Listing(0, lists, False, True, 0, (), (), pack_rosters(told)),
        st.lists(rosters, max_size=3),
        st.integers(1, 1 << 63),
    ),
)


@given(st.data(), st.lists(said, max_size=10))
def test_any_order_of_the_same_messages(data: st.DataObject, notes: list[Note]) -> None:
    """The same, from the bytes on."""
    again = data.draw(st.lists(st.sampled_from(notes), max_size=5)) if notes else []
    ether = Ether()
    a, b = ether.add("a"), ether.add("b")
    for member, heard in ((a, notes), (b, data.draw(st.permutations([*notes, *again])))):
        for note in heard:
            member.participant.on_message(77, encode(note))
    assert lists(a.participant.directory) == lists(b.participant.directory)
    assert a.participant.directory.hash == b.participant.directory.hash
    assert a.participant.malformed == b.participant.malformed == 0
    for group in a.participant.directory.books:
        assert a.participant.members(group) == b.participant.members(group)


def test_who_left_may_come_back() -> None:
    """In the lists of the thesis, whoever has left once has left for ever."""
    directory = merged([Roster(1, None, (Stand(5, "e", step),)) for step in (1, 2, 3)])
    assert directory.books[1].stands[5].step % 2 == 1
    late = directory.merge(Roster(1, None, (Stand(5, "e", 2),)))
    assert late is None


def test_groups_are_limited() -> None:
    directory = merged([Roster(group, None, ()) for group in range(GROUPS_MAX + 3)])
    assert (len(directory.books), directory.refused) == (GROUPS_MAX, 3)


def test_thousands_of_groups() -> None:
    """Six thousand come in pages; who knows all but three is told of little more than three."""
    ether = Ether()
    a = ether.add("a")
    for number in range(1, 6001):
        charter = Charter(1, f"group {number}", Keep())
        a.participant.directory.merge(Roster(number, charter, (Stand(number % 50 + 1, "somebody", 1),)))
    b = ether.add("b")
    ether.run(20.0)
    assert b.participant.directory.hash == a.participant.directory.hash
    assert len(b.told(GroupOffered)) == 6000
    for number in (7001, 7002, 7003):
        a.participant.directory.merge(Roster(number, Charter(1, "new", Keep()), ()))
    begun = ether.clock.now
    b.participant.arrive()
    ether.run(20.0)
    assert b.participant.directory.hash == a.participant.directory.hash
    listed = sum(size for at, _, kind, size in ether.sent if at >= begun and kind == "Listing")
    whole = sum(size for at, _, kind, size in ether.sent if at < begun and kind == "Listing")
    assert listed < whole / 5
    assert not b.told(Refused)


def test_joins_and_leaves_are_told() -> None:
    ether = Ether()
    a, b = ether.add("a"), ether.add("b")
    group = a.participant.create("tea")
    ether.run(10.0)
    b.participant.join(group)
    ether.run(10.0)
    b.participant.leave(group)
    ether.run(10.0)
    b.participant.join(group)
    ether.run(10.0)
    assert [(type(event), event.member.name) for event in a.events if isinstance(event, MemberJoined | MemberLeft)] == [
        (MemberJoined, "b"),
        (MemberLeft, "b"),
        (MemberJoined, "b"),
    ]
    assert a.participant.members(group) == b.participant.members(group)


def test_nobody_else_decides_where_we_stand() -> None:
    ether = Ether()
    a, b = ether.add("a"), ether.add("b")
    group = a.participant.create("tea")
    ether.run(10.0)
    b.participant.discovery.merge((Roster(group, None, (Stand(a.participant.me.id, "a", 40),)),))
    b.participant.say_roster(b.participant.directory.roster(group))
    ether.run(10.0)
    assert a.participant.info(group).joined
    assert a.participant.directory.books[group].stands[a.participant.me.id].step == 41
    assert a.participant.directory.hash == b.participant.directory.hash
