"""Hostile members: nobody writes into another's mailbox, passes on a forged value, or takes more than its share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.errors import RefusedError
from broadloom.mailboxes import LimitReached, table
from broadloom.mailboxes.anti_entropy import with_credentials
from broadloom.mailboxes.classes import CLASSES
from broadloom.mailboxes.letterbox import Letterbox
from broadloom.mailboxes.limits import BUCKETS, REVISION_MAX, SYNC_PAGES_BURST
from broadloom.mailboxes.messages import (
    Deliver,
    Fetch,
    Fetched,
    Keep,
    KeepStatus,
    Kept,
    Page,
    PageRequest,
    Publish,
    WireLetter,
    decode,
    encode,
    message_types,
)
from broadloom.mailboxes.model import Letter
from broadloom.mailboxes.record import UNBOUND, VALID, Record, signed
from broadloom.protocol import Tuning
from broadloom.testing.sim.simulation import Simulation, SimulationSettings
from broadloom.wire.xdr import WireError
from tests.groups.sim_post_signer import SimPostSigner
from tests.mailboxes.harness import QUICK_MAILBOXES
from tests.mailboxes.sim_runtime import Disk, SimProgram


class Ticketed:
    """A simulated channel with tickets."""

    def __init__(self) -> None:
        self.sim = Simulation(3, SimulationSettings(peer=Tuning(), roster=True))
        self.names: dict[int, str] = {}

    def add(self, name: str, *, store: Disk | None = None, wait: bool = True) -> SimProgram:
        node = self.sim.add_peer()
        self.names[node.peer.me.peer_id] = name
        signer = SimPostSigner(name, self.names)
        program = SimProgram(self.sim, name, store=store, settings=QUICK_MAILBOXES, signer=signer, node=node)
        if wait:
            assert self.sim.run_until(lambda: program.is_synced, 30)
        return program

    def run(self) -> None:
        self.sim.run_for(3.0)


def bind_and_put(program: SimProgram, name: str, data: bytes, number: int = 8) -> None:
    program.office.own.bind(name, CLASSES[number], while_here=False, copies=1, letterbox=Letterbox())
    program.office.own.put(name, data, lambda _result: None)


def verified_count(program: SimProgram) -> int:
    """Signatures that it has verified."""
    assert isinstance(program.signer, SimPostSigner)
    return program.signer.verified_count


def forged(owner: str, writer: SimProgram, data: bytes, revision: int = 99, flags: int = VALID) -> Record:
    """A record in the name of another owner, signed by its real writer."""
    record = Record(owner, "plan", 8, flags, revision, writer.peer_id, 1_767_225_600_000, 0, data)
    return signed(writer.signer, record)


@pytest.mark.parametrize("flags", [VALID, UNBOUND])
def test_member_cannot_write_into_or_unbind_the_mailbox_of_another(flags: int) -> None:
    channel = Ticketed()
    anna, ben, mallory = channel.add("anna"), channel.add("ben"), channel.add("mallory")
    bind_and_put(anna, "plan", b"true")
    channel.run()
    data = b"false" if flags == VALID else b""
    mallory.broadcast(encode(Publish(((forged("anna", mallory, data, flags=flags), 0),))))
    stolen = forged("anna", mallory, data, flags=flags)._replace(writer=anna.peer_id)
    mallory.broadcast(encode(Publish(((signed(mallory.signer, stolen), 0),))))
    channel.run()
    for program in (anna, ben):
        assert program.office.fetch("plan", "anna").data == b"true"
        assert program.office.rejected_count == 2


def test_late_joiner_does_not_accept_forged_or_changed_values(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = Ticketed()
    anna, mallory = channel.add("anna"), channel.add("mallory", store=Disk())  # newcomers ask keepers first
    bind_and_put(anna, "plan", b"true")
    channel.run()
    real = anna.office.table.get("anna", "plan")
    assert real is not None
    changed = real._replace(data=b"false", revision=real.revision + 1)
    lies = [changed, forged("anna", mallory, b"false"), forged("anna", mallory, b"false")._replace(proof=b"")]

    asked: list[int] = []

    def lie(peer_id: int, message: PageRequest) -> Page:
        asked.append(peer_id)
        return Page(*with_credentials(lies), True, BUCKETS, "", "", 0)

    monkeypatch.setattr(mallory.office.anti_entropy, "on_page_request", lie)
    for name in ("carl", "dora"):
        program = channel.add(name)
        assert channel.sim.run_until(lambda program=program: program.office.table.named("plan"), 30)  # type: ignore[misc]
        assert program.office.fetch("plan", "anna").data == b"true"
        assert [each.data for each in program.office.table.named("plan")] == [b"true"]
    assert asked


def test_newcomer_is_synced_only_when_it_has_all_values_also_if_pages_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broadloom.mailboxes.anti_entropy.SYNC_PAGES_BURST", 2)
    monkeypatch.setattr("broadloom.mailboxes.anti_entropy.SYNC_PAGES_PER_S", 2.0)
    channel = Ticketed()
    anna = channel.add("anna")
    for number in range(60):
        bind_and_put(anna, f"value/{number}", bytes(16_000))
    channel.run()
    late = channel.add("carl")  # returns when it is synced
    assert len(list(late.office.table.seen())) == 60


def test_owner_confirms_its_values_to_a_newcomer_without_signatures() -> None:
    channel = Ticketed()
    anna, _keeper = channel.add("anna"), channel.add("keeper", store=Disk())
    for number in range(200):
        bind_and_put(anna, f"value/{number}", b"%d" % number)
    channel.run()
    late = channel.add("carl")
    assert len(list(late.office.table.seen())) == 200
    assert verified_count(late) < 5
    anna.kill()
    channel.run()
    last = channel.add("dora")
    assert len(list(last.office.table.seen())) == 200
    assert verified_count(last) >= 200, "nobody can confirm them any more"


@pytest.mark.parametrize("lie", ["changed", "proof", "owner"])
def test_newcomer_verifies_what_the_owner_does_not_confirm(monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    """A keeper sends changed values, or genuine ones with another proof, or confirms what it has forged itself."""
    channel = Ticketed()
    anna, mallory = channel.add("anna"), channel.add("mallory", store=Disk())
    for number in range(50):
        bind_and_put(anna, f"value/{number}", b"true")
    channel.run()
    genuine = [each for each in anna.office.table.seen() if each.owner == "anna"]
    lies = {
        "changed": [each._replace(data=b"false", revision=each.revision + 1) for each in genuine],
        "proof": [each._replace(proof=b"0" * 64) for each in genuine],
        "owner": [signed(mallory.signer, each._replace(data=b"false", writer=mallory.peer_id)) for each in genuine],
    }[lie]
    page = Page(*with_credentials(lies), True, BUCKETS, "", "", 0)
    monkeypatch.setattr(mallory.office.anti_entropy, "on_page_request", lambda _peer_id, _message: page)
    late = channel.add("carl")
    assert channel.sim.run_until(lambda: len(list(late.office.table.seen())) == 50, 60)
    assert {each.data for each in late.office.table.seen()} == {b"true"}
    assert {each.proof for each in late.office.table.seen()} == {each.proof for each in genuine}


def test_owner_that_does_not_answer_does_not_hold_up_a_newcomer(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = Ticketed()
    anna, _keeper = channel.add("anna"), channel.add("keeper", store=Disk())
    for number in range(50):
        bind_and_put(anna, f"value/{number}", b"true")
    channel.run()

    def refuse(_message: object) -> None:
        raise RefusedError("not now")

    monkeypatch.setattr(anna.office.anti_entropy.vouching, "on_confirm", refuse)
    late = channel.add("carl")
    assert len(list(late.office.table.seen())) == 50
    assert verified_count(late) >= 50


def test_older_value_of_the_owner_does_not_replace_a_newer_one() -> None:
    channel = Ticketed()
    anna, ben, mallory = channel.add("anna"), channel.add("ben"), channel.add("mallory")
    bind_and_put(anna, "plan", b"old")
    channel.run()
    old = mallory.office.table.get("anna", "plan")
    assert old is not None
    anna.office.own.put("plan", b"new", lambda _result: None)
    channel.run()
    ben.office.on_records(mallory.peer_id, [old])
    assert ben.office.fetch("plan", "anna").data == b"new"


def test_keeper_stores_nothing_that_its_owner_did_not_write() -> None:
    channel, disk = Ticketed(), Disk()
    keeper, mallory = channel.add("keeper", store=disk), channel.add("mallory")
    lie = forged("anna", mallory, b"false")
    reply = decode(keeper.office.on_request(mallory.peer_id, encode(Keep(*with_credentials([lie])))))
    assert isinstance(reply, Kept)
    assert reply.status is KeepStatus.REFUSED
    assert disk.load() == []


def test_sender_that_fills_a_mailbox_does_not_shut_out_others() -> None:
    letterbox = Letterbox(room=100)
    flood = [Letter("jobs", 1, "", b"x")] * 256
    for _ in range(10):
        letterbox.accept(CLASSES[3], 1, flood)
    assert len(letterbox) == 75
    for sender in range(2, 27):
        assert letterbox.accept(CLASSES[3], sender, [Letter("jobs", sender, "", b"y")])[0] == 1
    assert letterbox.accept(CLASSES[3], 99, [Letter("jobs", 99, "", b"y")])[0] == 0


def test_owner_with_too_many_mailboxes_is_ignored_and_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "OWNER_VALUES_MAX", 10)
    channel = Ticketed()
    ben, mallory = channel.add("ben"), channel.add("mallory")
    for number in range(30):
        record = forged("mallory", mallory, b"x", 1)._replace(name=f"plan/{number}")
        mallory.broadcast(encode(Publish(((signed(mallory.signer, record), 0),))))
    channel.run()
    assert len(ben.office.table) == 10
    assert [event for event in ben.events if isinstance(event, LimitReached)] == [
        LimitReached("mallory", "OWNER_VALUES_MAX")
    ]
    bind_and_put(ben, "mine", b"fine")
    channel.run()
    assert mallory.office.fetch("mine", "ben").data == b"fine"


def test_values_of_one_owner_are_limited_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "OWNER_VALUE_BYTES_MAX", 1000)
    found = table.MailboxTable(lambda _peer: True, 10.0)
    limits: list[tuple[str, str]] = []
    found.on_limit = lambda owner, limit: limits.append((owner, limit))
    for number in range(20):
        found.merge(Record("mallory", f"v/{number}", 8, VALID, 1, 1, 0, 0, bytes(100)), 0.0, 0)
    assert (len(found), limits[0]) == (10, ("mallory", "OWNER_VALUE_BYTES_MAX"))
    assert found.merge(Record("mallory", "v/0", 8, VALID, 2, 1, 0, 0, bytes(50)), 0.0, 0)


def test_member_gets_a_limited_number_of_pages() -> None:
    channel = Ticketed()
    ben = channel.add("ben")
    request = encode(PageRequest((0,) * BUCKETS, 0, "", "", 0))
    for _ in range(SYNC_PAGES_BURST):
        ben.office.on_request(7, request)
    with pytest.raises(RefusedError, match="too many pages"):
        ben.office.on_request(7, request)
    ben.office.on_request(8, request)


def test_value_that_is_not_fetchable_is_not_served() -> None:
    channel = Ticketed()
    anna = channel.add("anna", store=Disk())
    bind_and_put(anna, "secret", b"x", number=9)
    reply = decode(anna.office.on_request(7, encode(Fetch("anna", "secret"))))
    assert isinstance(reply, Fetched)
    assert reply.records == ()


@pytest.mark.parametrize(
    "change",
    [
        {"class_number": 14},
        {"class_number": 3},
        {"flags": 8},
        {"flags": 0},
        {"flags": VALID | UNBOUND},
        {"revision": 0},
        {"revision": REVISION_MAX},
        {"writer": 0},
        {"owner": ""},
        {"name": "a//b"},
        {"name": "a/*"},
        {"at_ms": REVISION_MAX},
    ],
)
def test_record_that_no_honest_member_sends_is_rejected(change: dict[str, int]) -> None:
    record = Record("anna", "plan", 8, VALID, 1, 7, 0, 0, b"x")._replace(**change)  # type: ignore[arg-type]
    with pytest.raises(WireError):
        decode(encode(Publish(((record, 0),))))


@given(st.binary(max_size=300), st.sampled_from(sorted(message_types())))
def test_arbitrary_bytes_are_rejected_without_another_error(data: bytes, number: int) -> None:
    for message in (data, b"BM\x01" + bytes([number]) + data):
        try:
            decode(message)
        except WireError:
            continue


RECORDS = st.builds(
    Record,
    st.text("abc", min_size=1, max_size=9),
    st.sampled_from(["a", "a/b", "ä/ö"]),
    st.just(10),
    st.just(VALID),
    st.integers(1, REVISION_MAX - 1),
    st.integers(1, (1 << 64) - 1),
    st.integers(0, 1 << 50),
    st.integers(0, 1 << 40),
    st.binary(max_size=50),
    st.binary(max_size=64),
)


@given(st.lists(st.tuples(RECORDS, st.integers(0, 2)), max_size=5), st.binary(max_size=40))
def test_messages_survive_encoding(records: list[tuple[Record, int]], data: bytes) -> None:
    for message in (
        Publish(tuple(records)),
        Page(tuple(records), (b"one", b"two"), True, 3, "owner", "name", 9),
        Deliver("jobs", (WireLetter(data, "reply", 3, False), WireLetter(b"", "", 255, True))),
    ):
        assert decode(encode(message)) == message


@given(
    st.permutations([Record("o", "n", 8, VALID, r, w, 0, 0, d) for r in (1, 2) for w in (5, 9) for d in (b"x", b"y")])
)
def test_table_does_not_depend_on_the_order_of_records(records: list[Record]) -> None:
    digests = []
    for order in (records, sorted(records)):
        found = table.MailboxTable(lambda _peer: True, 10.0)
        for record in order:
            found.merge(record, 0.0, 0)
        digests.append((found.digest, found.get("o", "n")))
    assert digests[0] == digests[1]
