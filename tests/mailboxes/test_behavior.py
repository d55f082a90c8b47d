"""What mailboxes do, the same on the simulator and on real sockets. Requirements have the numbers of US 5,517,662."""

import pytest

from broadloom.mailboxes import (
    CLASSES,
    ChangeKind,
    GoneReason,
    MailboxFullError,
    NotFetchableError,
    NotKeptError,
    NotValidError,
    Overruled,
    RevisionMismatchError,
    UnboundError,
    WrongClassError,
)
from broadloom.mailboxes.messages import WireLetter
from broadloom.mailboxes.model import Ack
from tests.mailboxes.harness import Harness, SimHarness
from tests.mailboxes.sim_runtime import Disk


async def test_mb_1_name_is_bound_to_a_class_until_it_is_rebound_or_unbound(harness: Harness) -> None:
    anna, ben = await harness.add("anna"), await harness.add("ben")
    anna.bind("jobs", 3)
    await harness.until(lambda: [each.class_number for each in ben.office.table.named("jobs")] == [3])
    anna.office.own.rebind("jobs", CLASSES[8], while_here=False, copies=1)
    await harness.until(lambda: [each.class_number for each in ben.office.table.named("jobs")] == [8])
    anna.office.own.unbind("jobs")
    await harness.until(lambda: not ben.office.table.named("jobs"))
    with pytest.raises(UnboundError, match="not bound in this program"):
        anna.put("jobs", b"1")


async def test_mb_2_owner_and_name_are_the_address_of_a_mailbox(harness: Harness) -> None:
    anna, ben, carl = [await harness.add(owner) for owner in ("anna", "ben", "carl")]
    for program, data in ((anna, b"a"), (ben, b"b")):
        program.bind("temperature", 8)
        program.put("temperature", data)
    await harness.until(lambda: len([each for each in carl.office.table.named("temperature") if each.is_valid]) == 2)
    assert carl.office.fetch("temperature", "anna").data == b"a"
    assert carl.office.fetch("temperature", "ben").data == b"b"
    assert len({anna.id, ben.id, carl.id}) == 3


async def test_mb_5_persistent_value_stays_and_each_put_replaces_it(harness: Harness) -> None:
    anna, ben = await harness.add("anna"), await harness.add("ben")
    anna.bind("temperature", 8)
    for number in range(5):
        anna.put("temperature", b"%d" % number)
    await harness.until(lambda: ben.value("temperature") == b"4")
    fetched = ben.office.fetch("temperature", None)
    anna.bind("other", 8)
    anna.put("other", b"x")
    await harness.until(lambda: ben.value("other") == b"x")
    assert ben.office.fetch("temperature", None) == fetched
    changes = [change for change in ben.changes if change.value.name == "temperature"]
    assert [change.value.data for change in changes] == [b"0", b"1", b"2", b"3", b"4"]
    revisions = [change.value.revision for change in changes]
    assert revisions == sorted(set(revisions))


async def test_mb_5_letter_in_a_persistent_mailbox_replaces_the_one_before(harness: Harness) -> None:
    anna, ben = await harness.add("anna"), await harness.add("ben")
    letterbox = anna.bind("target", 13)
    for number in range(3):
        ben.post(anna, "target", b"%d" % number)
    await harness.until(lambda: len(ben.posted) == 3)
    assert letterbox.latest is not None
    assert letterbox.latest.data == b"2"
    letter = letterbox.take()
    assert letter is not None
    assert (letter.data, letterbox.take()) == (b"2", None)
    assert letterbox.latest.data == b"2"


async def test_mb_5_nonpersistent_mailbox_is_a_queue_of_limited_length(harness: Harness) -> None:
    anna, ben = await harness.add("anna"), await harness.add("ben")
    letterbox = anna.bind("jobs", 5, room=4)
    for number in range(6):
        ben.post(anna, "jobs", b"%d" % number, timeout_s=1.0)
    await harness.until(lambda: len(letterbox) == 3)  # three quarters of the room for one sender
    taken: list[bytes] = []
    while len(taken) < 6:
        await harness.until(lambda: len(letterbox))
        letter = letterbox.take()
        assert letter is not None
        taken.append(letter.data)
    assert taken == [b"%d" % number for number in range(6)]
    await harness.until(lambda: len(ben.posted) == 6)
    assert all(posted.error is None for (posted,) in ben.posted)


async def test_mb_6_ten_letters_in_two_bursts_are_ten_calls_or_two_or_none(harness: Harness) -> None:
    anna, ben = await harness.add("anna"), await harness.add("ben")
    calls = {3: 10, 4: 10, 12: 10, 1: 2, 2: 2, 11: 2, 5: 0, 6: 0, 13: 0}
    for number, expected in calls.items():
        name = f"class {number}"
        anna.bind(name, number)
        anna.calls.clear()
        for burst in (3, 7):
            ben.posted.clear()
            for _ in range(burst):
                ben.post(anna, name, b"letter")
            await harness.until(lambda burst=burst: len(ben.posted) == burst)  # type: ignore[misc]
        assert len(anna.calls) == expected
        assert sum(map(len, anna.calls)) == (10 if expected else 0)
        if expected == 2:
            assert [len(call) for call in anna.calls] == [3, 7]


@pytest.mark.parametrize(("ack", "calls"), [(Ack.EACH, 10), (Ack.BATCH, 2)])
async def test_mb_7_transmission_is_notified_per_letter_or_per_block(harness: Harness, ack: Ack, calls: int) -> None:
    anna, ben = await harness.add("anna"), await harness.add("ben")
    letterbox = anna.bind("jobs", 5)
    then = ben.posted.append
    for burst in (3, 7):
        sent = len(letterbox)
        for _ in range(burst):
            ben.office.outbox.post(anna.id, "jobs", WireLetter(b"x", "", 0, False), ack, 5.0, then)
        await harness.until(lambda sent=sent, burst=burst: len(letterbox) == sent + burst)  # type: ignore[misc]
        await harness.until(lambda: sum(map(len, ben.posted)) == len(letterbox))
    assert len(ben.posted) == calls


async def test_mb_8_value_can_be_fetched_only_while_it_is_valid_and_the_class_allows_it(harness: Harness) -> None:
    anna, ben = await harness.add("anna"), await harness.add("ben")
    anna.bind("temperature", 8)
    await harness.until(lambda: ben.office.table.named("temperature"))
    with pytest.raises(NotValidError):
        ben.office.fetch("temperature", None)
    anna.put("temperature", b"21")
    await harness.until(lambda: ben.value("temperature") == b"21")
    anna.office.own.invalidate("temperature")
    await harness.until(lambda: ben.changes and ben.changes[-1].reason is GoneReason.INVALIDATED)
    with pytest.raises(NotValidError):
        ben.office.fetch("temperature", None)
    with pytest.raises(UnboundError):
        ben.office.fetch("pressure", None)
    anna.bind("jobs", 3)
    await harness.until(lambda: ben.office.table.named("jobs"))
    with pytest.raises(NotFetchableError):
        ben.office.fetch("jobs", None)


async def test_mb_9_fetch_is_answered_without_the_owner_s_program(harness: Harness) -> None:
    anna, ben = await harness.add("anna"), await harness.add("ben")
    anna.bind("temperature", 8)
    anna.put("temperature", b"21")
    await harness.until(lambda: ben.value("temperature") == b"21")
    answers: list[object] = []
    ben.office.fetch_fresh("temperature", "anna", 5.0, answers.append)
    await harness.until(lambda: answers)
    assert answers == [ben.office.fetch("temperature", "anna")]
    assert anna.calls == []


async def test_mb_9_late_joiner_reads_values_of_an_owner_that_is_gone(harness: Harness) -> None:
    anna, ben = await harness.add("anna"), await harness.add("ben", store=Disk())
    anna.bind("temperature", 10)
    anna.put("temperature", b"21")
    await harness.until(lambda: anna.results)
    await harness.kill(anna)
    await harness.until(lambda: not ben.office.runtime.peers())
    carl = await harness.add("carl")
    assert carl.office.fetch("temperature", "anna").data == b"21"


async def test_mb_10_letters_arrive_in_order_and_a_full_mailbox_holds_up_no_other(harness: Harness) -> None:
    anna, ben = await harness.add("anna"), await harness.add("ben")
    full, empty = anna.bind("full", 5, room=1), anna.bind("empty", 5)
    for number in range(3):
        ben.post(anna, "full", b"%d" % number, timeout_s=0.5)
    for number in range(50):
        ben.post(anna, "empty", b"%d" % number)
    await harness.until(lambda: len(ben.posted) == 53)
    assert len(full) == 1
    assert [letterbox.data for letterbox in iter(empty.take, None)] == [b"%d" % number for number in range(50)]
    errors = [posted.error for (posted,) in ben.posted if posted.error is not None]
    assert [type(error) for error in errors] == [MailboxFullError] * 2


async def test_mb_11_ring_overtakes_letters_that_wait(harness: Harness) -> None:
    anna, ben = await harness.add("anna"), await harness.add("ben")
    letterbox = anna.bind("jobs", 5)
    for number in range(3):
        ben.post(anna, "jobs", b"%d" % number)
    for priority in (1, 9, 9, 3):
        ben.ring(anna, "jobs", priority)
    await harness.until(lambda: len(ben.posted) == 7)
    letters = list(iter(letterbox.take, None))
    assert [(each.data, each.priority) for each in letters] == [
        (b"", 9), (b"", 9), (b"", 3), (b"", 1), (b"0", 0), (b"1", 0), (b"2", 0)
    ]  # fmt: skip
    assert [each.is_ring for each in letters] == [True] * 4 + [False] * 3


async def test_program_posts_to_its_own_mailbox(harness: Harness) -> None:
    anna = await harness.add("anna")
    letterbox = anna.bind("jobs", 5, room=400)
    for number in range(299):
        anna.post(anna, "jobs", b"%d" % number)
    anna.ring(anna, "jobs", 1)
    anna.post(anna, "jobs", b"too many", timeout_s=0.3)
    anna.post(anna, "nowhere", b"")
    await harness.until(lambda: len(anna.posted) == 302)
    errors = [type(posted.error) for (posted,) in anna.posted if posted.error is not None]
    assert sorted(errors, key=str) == [MailboxFullError, UnboundError]
    letters = list(iter(letterbox.take, None))
    assert letters[0].is_ring
    assert [(each.data, each.sender) for each in letters[1:]] == [(b"%d" % number, anna.id) for number in range(299)]


async def test_mb_12_arrival_is_reported_only_for_letters_in_the_mailbox(harness: Harness) -> None:
    anna, ben = await harness.add("anna"), await harness.add("ben")
    letterbox = anna.bind("jobs", 5)
    anna.bind("temperature", 8)
    ben.post(anna, "jobs", b"1")
    ben.post(anna, "nowhere", b"2")
    ben.post(anna, "temperature", b"3")
    await harness.until(lambda: len(ben.posted) == 3)
    errors = {posted.name: type(posted.error) for (posted,) in ben.posted}
    assert errors == {"jobs": type(None), "nowhere": UnboundError, "temperature": WrongClassError}
    await harness.kill(anna)
    ben.post(anna, "jobs", b"4")
    await harness.until(lambda: len(ben.posted) == 4)
    assert ben.posted[-1][0].error is not None
    assert len(letterbox) == 1


async def test_put_with_a_revision_replaces_only_that_revision(harness: Harness) -> None:
    anna, ben = await harness.add("anna"), await harness.add("ben")
    anna.bind("leader", 8)
    anna.put("leader", b"1")
    (revision,) = anna.results
    assert isinstance(revision, int)
    anna.put("leader", b"2", if_revision=revision)
    with pytest.raises(RevisionMismatchError) as mismatch:
        anna.put("leader", b"3", if_revision=revision)
    assert mismatch.value.revision == revision + 1
    await harness.until(lambda: ben.value("leader") == b"2")


async def test_value_with_a_lifetime_expires_everywhere(harness: Harness) -> None:
    anna, ben = await harness.add("anna"), await harness.add("ben")
    anna.bind("temperature", 8)
    anna.put("temperature", b"21", ttl_s=0.3)
    await harness.until(lambda: len(ben.changes) == 2)
    assert (ben.changes[-1].kind, ben.changes[-1].reason) == (ChangeKind.GONE, GoneReason.EXPIRED)
    await harness.until(lambda: not anna.office.table.named("temperature"))


async def test_value_bound_to_presence_is_gone_with_its_owner(harness: Harness) -> None:
    anna, ben = await harness.add("anna"), await harness.add("ben")
    carl = await harness.add("carl", store=Disk())
    anna.bind("cursor", 8, while_here=True)
    anna.bind("color", 8)
    anna.put("cursor", b"3,4")
    anna.put("color", b"red")
    await harness.until(lambda: all(each.value("cursor") and each.value("color") for each in (ben, carl)))
    await harness.kill(anna)
    await harness.until(lambda: not ben.value("cursor") and not carl.value("cursor"))
    assert (ben.value("color"), carl.value("color")) == (b"red", b"red")
    assert ben.changes[-1].reason is GoneReason.OWNER_GONE


@pytest.mark.parametrize("seed", range(1, 11))
async def test_value_bound_to_presence_is_gone_within_three_seconds_of_the_death_of_its_owner(seed: int) -> None:
    harness = SimHarness(seed)
    anna, *others = [await harness.add(owner) for owner in ("anna", "ben", "carl", "dora", "emil", "fred", "gina")]
    anna.bind("cursor", 8, while_here=True)
    anna.put("cursor", b"3,4")
    await harness.until(lambda: all(each.value("cursor") for each in others))
    await harness.kill(anna)
    await harness.until(lambda: not any(each.value("cursor") for each in others), within_s=3.0)
    assert {each.changes[-1].reason for each in others} == {GoneReason.OWNER_GONE}


async def test_late_joiner_has_all_values_and_bindings(harness: Harness) -> None:
    anna = await harness.add("anna")
    for number in range(1000):
        anna.bind(f"value/{number}", 8)
        anna.put(f"value/{number}", b"%d" % number * 20)
    anna.bind("jobs", 3)
    ben = await harness.add("ben")
    assert ben.value("value/999") == b"999" * 20
    assert len(list(ben.office.table.seen())) == 1001
    assert ben.office.table.digest == anna.office.table.digest


async def test_held_value_is_acknowledged_by_as_many_keepers_as_wanted(harness: Harness) -> None:
    disks = [Disk(), Disk()]
    anna = await harness.add("anna")
    await harness.add("keeper 1", store=disks[0])
    anna.bind("plan", 10, copies=2)
    anna.put("plan", b"v1")
    await harness.until(lambda: anna.results)
    (error,) = anna.results
    assert isinstance(error, NotKeptError)
    assert error.copies == 1
    await harness.add("keeper 2", store=disks[1])
    anna.put("plan", b"v2")
    await harness.until(lambda: len(anna.results) == 2)
    assert isinstance(anna.results[1], int)
    for disk in disks:
        assert [record.data for record in disk.load()] == [b"v2"]


async def test_value_survives_the_death_of_owner_and_keeper(harness: Harness) -> None:
    disk = Disk()
    anna, keeper = await harness.add("anna"), await harness.add("keeper", store=disk)
    anna.bind("plan", 10)
    anna.put("plan", b"v1")
    await harness.until(lambda: anna.results)
    await harness.kill(anna)
    await harness.kill(keeper)
    ben = await harness.add("ben")
    assert ben.value("plan") is None
    await harness.add("keeper", store=disk)
    await harness.until(lambda: ben.value("plan") == b"v1")
    again = await harness.add("anna")
    again.bind("plan", 10)
    assert again.value("plan") == b"v1"
    again.put("plan", b"v2")
    await harness.until(lambda: ben.value("plan") == b"v2")


async def test_second_program_of_an_owner_overrules_the_first_which_is_notified(harness: Harness) -> None:
    first, second = await harness.add("anna"), await harness.add("anna")
    first.bind("leader", 8)
    first.put("leader", b"first")
    await harness.until(lambda: second.value("leader") == b"first")
    second.bind("leader", 8)
    second.put("leader", b"second")
    await harness.until(lambda: first.value("leader") == b"second")
    (event,) = [event for event in first.events if isinstance(event, Overruled)]
    assert event.value is not None
    assert (event.name, event.value.writer) == ("leader", second.id)
    first.put("leader", b"first again")
    await harness.until(lambda: second.value("leader") == b"first again")


async def test_keeper_refuses_a_value_that_was_overtaken(harness: Harness) -> None:
    first, second = await harness.add("anna"), await harness.add("anna")
    await harness.add("keeper", store=Disk())
    for program in (first, second):
        program.bind("leader", 10)
    await harness.until(lambda: first.office.table.digest == second.office.table.digest)
    revision = first.office.table.last_revision("anna", "leader")
    first.put("leader", b"first", if_revision=revision)
    second.put("leader", b"second", if_revision=revision)
    await harness.until(lambda: first.results and second.results)
    kinds = sorted(type(program.results[0]).__name__ for program in (first, second))
    assert kinds == ["RevisionMismatchError", "int"]


async def test_unbound_mailbox_does_not_come_back_from_a_keeper(harness: Harness) -> None:
    disk = Disk()
    anna, keeper = await harness.add("anna"), await harness.add("keeper", store=disk)
    anna.bind("plan", 10)
    anna.put("plan", b"v1")
    await harness.until(lambda: anna.results)
    await harness.kill(keeper)
    await harness.until(lambda: not anna.office.runtime.peers())
    anna.office.own.unbind("plan")
    again = await harness.add("keeper", store=disk)
    await harness.until(lambda: again.office.table.digest == anna.office.table.digest)
    assert not again.office.table.named("plan")
