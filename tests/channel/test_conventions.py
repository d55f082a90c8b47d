"""Conventions of the public API, the same for channels and groups."""

import pickle
from dataclasses import FrozenInstanceError, fields
from enum import Enum, IntEnum, StrEnum
from typing import Any

import pytest

import broadloom
import broadloom.groups
import broadloom.record
from broadloom.groups import GroupId, GroupMessage, GroupPublisher, Groups, MemberId, MessageId
from broadloom.wire import PeerId
from tests.channel.joined import QUICK, connected_channels, unique_name
from tests.groups.group_bus import QUICK_GROUPS

MESSAGES = [
    broadloom.Message(PeerId(7), 1, b"data", 2),
    GroupMessage(GroupId(7), MessageId(MemberId(1), 2), "Anna", None, 0, b"data"),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_messages_are_frozen_dataclasses_with_slots(message: broadloom.Message | GroupMessage) -> None:
    for field in fields(message):
        with pytest.raises(FrozenInstanceError):
            setattr(message, field.name, None)
    assert not hasattr(message, "__dict__")
    assert pickle.loads(pickle.dumps(message)) == message
    assert message.text == "data"


@pytest.mark.parametrize("kind", [PeerId, MemberId, GroupId])
def test_ids_print_as_hex(kind: type) -> None:
    number = 0xAB << 40
    found = kind(number)
    assert str(found) == f"{found}" == "0000ab0000000000"
    assert repr(found) == f"{kind.__name__}(0x0000ab0000000000)"
    assert (found, hash(found)) == (number, hash(number))


async def test_ids_that_a_program_gets_have_their_types() -> None:
    name = unique_name()
    events: list[object] = []
    async with (
        broadloom.connect(name, tls=False, settings=QUICK) as one,
        broadloom.connect(name, tls=False, settings=QUICK) as two,
        Groups(one, "Anna", settings=QUICK_GROUPS) as anna,
        Groups(two, "Ben", settings=QUICK_GROUPS) as ben,
    ):
        ben.on_event(events.append)
        club = await anna.create("club")
        await club.send_text("hello")
        info = await ben.find("club", 20)
        at_ben = await ben.join(int(info.id))
        message = await at_ben.receive(20)
        reply = await at_ben.send_text("hello yourself", reply_to=message)
        answer = await club.receive(20)
        group_ids = [club.id, info.id, at_ben.id, message.group_id, reply.group_id, *anna.joined, *ben.joined]
        member_ids = [anna.me.id, message.author, reply.author, answer.author, *(each.id for each in club.members())]
        assert answer.parent_id is not None
        member_ids += [answer.parent_id.author, *(each.author for each in club.history())]
        assert {type(each) for each in group_ids} == {GroupId}
        assert {type(each) for each in member_ids} == {MemberId}
        assert {type(each) for each in (one.peer_id, *(each.peer_id for each in one.status().neighbors))} == {PeerId}


async def test_text_instead_of_bytes_gets_the_same_message_everywhere() -> None:
    async with (
        broadloom.connect(unique_name(), tls=False, settings=QUICK) as channel,
        Groups(channel, "Anna", settings=QUICK_GROUPS) as groups,
    ):
        club = await groups.create("club")
        expected = "a message is bytes, not str; use "
        with pytest.raises(TypeError, match=expected + "broadcast_text or broadcast_json"):
            await channel.broadcast("text")  # type: ignore[call-overload]
        with pytest.raises(TypeError, match=expected + "broadcast_text or broadcast_json"):
            channel.broadcast_nowait("text")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=expected + "send_text"):
            await club.send("text")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=expected):
            GroupPublisher(club.id, "feed").encode_post("text")  # type: ignore[arg-type]


async def test_timeouts_say_what_they_waited_for_and_how_long() -> None:
    name = unique_name()
    async with (
        broadloom.connect(name, tls=False, settings=QUICK) as channel,
        Groups(channel, "Anna", settings=QUICK_GROUPS) as groups,
    ):
        club = await groups.create("club")
        with pytest.raises(TimeoutError, match=f"{name}: no message within 0.01 s"):
            await channel.receive(0.01)
        with pytest.raises(TimeoutError, match=f"{name}: no other peer connected within 0.01 s"):
            await channel.wait_for_peers(0.01)
        with pytest.raises(TimeoutError, match=f"no message in group {club.id} within 0.01 s"):
            await club.receive(0.01)


@pytest.mark.parametrize("package", [broadloom, broadloom.groups, broadloom.record])
def test_exported_enums_equal_their_documented_values(package: object) -> None:
    for name in package.__all__:  # type: ignore[attr-defined]
        kind = getattr(package, name)
        if isinstance(kind, type) and issubclass(kind, Enum):
            assert issubclass(kind, StrEnum | IntEnum), f"{name} cannot be used where its value can"


@pytest.mark.parametrize("overflow", [*broadloom.Overflow, *map(str, broadloom.Overflow)])
def test_overflow_is_an_enum_or_its_value(overflow: broadloom.Overflow | str) -> None:
    assert broadloom.ConnectOptions(overflow=overflow).overflow == overflow
    with pytest.raises(ValueError, match="overflow='later': must be one of drop_oldest, pause, leave"):
        broadloom.ConnectOptions(overflow="later")


@pytest.mark.parametrize("priority", [1.0, "high", None])
async def test_priority_of_another_type_raises_before_anything_is_sent(priority: Any) -> None:
    async with connected_channels(2) as (one, two):
        with pytest.raises(TypeError, match="priority must be a Priority"):
            one.broadcast_nowait(b"bad", priority=priority)
        assert await one.broadcast(b"good") == 1
        assert (await two.receive(timeout_s=30)).data == b"good"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("key", 5), ("tls", "yes"), ("signed", "yes"), ("port", "80"), ("timeout_s", "5"), ("settings", {}),
        ("inbox_messages_max", 1.5), ("tape", "directory"), ("bootstrap", [5]),
    ],
)  # fmt: skip
def test_option_of_wrong_type_raises_at_once(option: str, value: Any) -> None:
    with pytest.raises(TypeError, match=option if option != "bootstrap" else "address"):
        broadloom.connect("chess/club-42", **{option: value})


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan")])
def test_timeout_without_meaning_raises_at_once(timeout_s: float) -> None:
    with pytest.raises(ValueError, match="timeout_s"):
        broadloom.connect("chess/club-42", timeout_s=timeout_s)


@pytest.mark.parametrize("name", [None, 5, b"chess/club-42"])
def test_channel_name_of_wrong_type_raises_at_once(name: Any) -> None:
    with pytest.raises(TypeError, match="a channel name is text"):
        broadloom.connect(name)
