"""The parts of the delivery service without IO: directory, entries, entitlements, intake, identification."""

import base64
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.apps.delivery.directory import Directory
from broadloom.apps.delivery.entitlements import Entitlements
from broadloom.apps.delivery.entry import Entry, Offer, decode_entry
from broadloom.apps.delivery.identification import JITTER, Schedule
from broadloom.apps.delivery.intake import Intake
from broadloom.apps.delivery.messages import PresenceState
from broadloom.apps.delivery.service_keys import ServiceKeys
from broadloom.apps.delivery.subscribers import Subscription
from broadloom.protocol.identity import Identity, Role
from broadloom.protocol.owner.card import ChannelCard
from broadloom.protocol.roster.member import Member
from broadloom.security import Authority, SignedCard
from broadloom.wire import Address, PeerId

AUTHORITY = Authority.generate()


def entry(path: str, *topics: str, producers: tuple[str, ...] = ("nfl",), **offer: object) -> Entry:
    named = dict.fromkeys(topics or (path,), producers)
    made = Offer(path=path, topics=named, **offer)  # type: ignore[arg-type]
    return Entry.of(made, SignedCard.sign(AUTHORITY, ChannelCard("topic/x")), "editor", 0)


def directory(*entries: Entry) -> Directory:
    found = Directory()
    for each in entries:
        found.put(each)
    return found


NEWS = directory(
    entry("sports/nfl/scores", title="Scores of the NFL"),
    entry("sports/nfl"),
    entry("sports/chess"),
    entry("weather", "weather/berlin", "weather/paris", title="Forecasts"),
)


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("sports/nfl", ["sports/nfl"]),
        ("sports", ["sports/chess", "sports/nfl", "sports/nfl/scores"]),
        ("sports/*", ["sports/chess", "sports/nfl"]),
        ("*/berlin", ["weather/berlin"]),
        ("weather", ["weather/berlin", "weather/paris"]),
        ("opera", []),
    ],
)
def test_path_category_or_pattern_stands_for_topics(pattern: str, paths: list[str]) -> None:
    assert [topic.path for topic in NEWS.topics(pattern)] == paths


def test_search_finds_all_words_in_path_and_title() -> None:
    assert [topic.path for topic in NEWS.search("NFL score")] == ["sports/nfl/scores"]
    assert [topic.path for topic in NEWS.search("forecast ber")] == ["weather/berlin"]
    assert NEWS.search("chess opera") == []


def test_tree_names_each_category_once() -> None:
    nodes = [(depth, name, topic.path if topic else None) for depth, name, topic in NEWS.tree()]
    assert nodes == [
        (0, "sports", None),
        (1, "chess", "sports/chess"),
        (1, "nfl", "sports/nfl"),
        (2, "scores", "sports/nfl/scores"),
        (0, "weather", None),
        (1, "berlin", "weather/berlin"),
        (1, "paris", "weather/paris"),
    ]
    assert [name for _, name, _ in NEWS.tree("weather")] == ["weather", "berlin", "paris"]


def test_two_entries_with_one_topic_are_resolved_in_any_order() -> None:
    """Desks in two parts of the network may create them."""
    one, two = entry("a", "a/b", "a/c"), entry("a/b")
    for order in ((one, two), (two, one)):
        assert directory(*order).topics("a/b")[0].entry.path == "a"
    closed = directory(one, two)
    closed.put(replace(one, is_closed=True))
    assert closed.topic("a/c") is None
    assert closed.entry("a") is not None


def test_entry_survives_encoding_and_a_changed_card_is_noticed() -> None:
    made = entry("weather", "weather/berlin", plans=("visitor",), qualifications=("paid",), title="Wetter für alle")
    assert decode_entry(made.encode()) == made
    assert made.card.card.channel == "topic/x"
    document = base64.b64decode(made.card_base64)
    forged = replace(made, card_base64=base64.b64encode(document.replace(b"topic/x", b"topic/y")).decode())
    with pytest.raises(ValueError, match="not signed by the channel's owner"):
        _ = forged.card


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"path": "a//b"}, "level"),
        ({"path": "a/*"}, "allowed in patterns only"),
        ({"path": "/".join("a" * 13)}, "at most 12 levels"),
        ({"path": "a", "topics": {"b/c": ()}}, "not below a"),
        ({"path": "a", "plans": "visitor"}, "list of names"),
        ({"path": "a", "level": "tls", "plans": ["visitor"]}, "need the level tickets"),
        ({"path": "a", "identify_s": 0}, "identify_s"),
        ({"path": "a", "title": "x\n"}, "title"),
        ({"path": "a", "colour": "red"}, "not an entry"),
    ],
)
def test_offer_that_cannot_work_is_rejected(values: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Offer.parse(values)


def test_condition_that_fails_or_is_unknown_is_not_met(caplog: pytest.LogCaptureFixture) -> None:
    def failing(_name: str) -> bool:
        raise OSError("no database")

    rules = Entitlements(qualifications={"paid": failing, "adult": ["ann"]})
    paid, adult = entry("a", qualifications=("paid",)), entry("a", qualifications=("adult", "unknown"))
    assert "'paid'" in (rules.refusal_to_subscribe("ann", paid, "", Subscription()) or "")
    assert "'unknown'" in (rules.refusal_to_subscribe("ann", adult, "", Subscription()) or "")
    assert "a condition of the desk failed" in caplog.text


def identity(name: str, role: Role = Role.PRODUCER) -> Identity:
    return Identity(PeerId(1), name, role, "5e1")


def test_message_counts_if_its_producer_is_proven_and_once_during_a_renewal() -> None:
    intake = Intake(entry("weather", "weather/berlin", "weather/paris", producers=("dwd",)), ["weather/berlin"])
    assert intake.producer("weather/paris", 1, 1, identity("dwd")) is None
    assert intake.rejected_count == 0
    for false in (None, identity("mallory"), identity("dwd", Role.CONSUMER)):
        assert intake.producer("weather/berlin", 1, 2, false) is None
    assert intake.rejected_count == 3
    intake.begin_handover()
    assert [intake.producer("weather/berlin", 1, number, identity("dwd")) for number in (3, 4, 3)] == ["dwd"] * 2 + [
        None
    ]
    intake.begin_handover()
    assert intake.producer("weather/berlin", 1, 3, identity("dwd")) == "dwd"


@given(st.lists(st.tuples(st.floats(0.01, 50), st.floats(0, 1), st.sets(st.integers(1, 3))), max_size=30))
def test_every_meter_gets_every_identification_once_and_in_time(steps: list[tuple[float, float, set[int]]]) -> None:
    schedule, now, last_at = Schedule(7, ("a",), "visitor", 60.0), 0.0, None
    got: dict[int, list[str]] = {}
    for after_s, jitter, present in steps:
        meters = [Member(PeerId(each), "meter", None, True, Address("127.0.0.1", 1)) for each in sorted(present)]
        presence, waiting = schedule.due(now, meters, jitter)
        for meter in waiting:
            got.setdefault(meter.peer_id, []).append(presence.id)
            schedule.informed(meter.peer_id)
        assert (presence.state is PresenceState.START) == presence.id.endswith("-1")
        if last_at is None or presence.id != last_at[0]:
            assert last_at is None or now - last_at[1] >= 60 * (1 - JITTER)
            last_at = (presence.id, now)
        now += min(after_s, max(schedule.wait_s(now), 0.01))
    assert all(len(ids) == len(set(ids)) for ids in got.values())
    assert schedule.end().state is PresenceState.END


def test_desks_derive_the_same_keys_and_channels_differ() -> None:
    one, two = ServiceKeys(AUTHORITY, "delivery/news"), ServiceKeys(AUTHORITY, "delivery/news")
    other = ServiceKeys(AUTHORITY, "delivery/sports")
    name = one.channel_name("a/b", 0)
    assert name == two.channel_name("a/b", 0)
    assert len({name, one.channel_name("a/b", 1), one.channel_name("a/c", 0), other.channel_name("a/b", 0)}) == 4
    assert one.authority(name).certificate == two.authority(name).certificate
    assert one.authority(name).certificate != one.authority(one.channel_name("a/c", 0)).certificate
    serials = {one.serial(name, who, slot, times) for who in ("ann", "bob") for slot in (1, 2) for times in (0, 1)}
    assert len(serials) == 8
    assert one.serial(name, "ann", 1, 0) == two.serial(name, "ann", 1, 0)
    assert one.channel_key(name) != one.channel_key(one.channel_name("a/c", 0))
