"""Rules on real channels: what receivers get, copies for others, forwarding, held messages, changes of the file."""

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import broadloom
from broadloom import Channel
from broadloom.errors import HeldError, NotSentError, RulesError
from broadloom.groups import Groups
from broadloom.rules import (
    Constant,
    Encrypt,
    Outgoing,
    Refuse,
    Rule,
    Rules,
    SealingPrivateKey,
    Test,
    condition,
    load,
    parse,
)
from broadloom.rules.rules import RELOAD_INTERVAL_S
from tests.channel.joined import QUICK, connected_channels, receive_texts, unique_name
from tests.groups.group_bus import QUICK_GROUPS
from tests.small_disk import fill, small_disk
from tests.support import eventually

__all__ = ["small_disk"]

PLAN = "Plan B " * 200


def always(actions: str, **options: object) -> Rules:
    return Rules(parse(f"IF {{ true }} THEN {{ {actions} }}"), **options)  # type: ignore[arg-type]


async def test_rule_refuses_a_broadcast_and_the_channel_goes_on() -> None:
    rules = Rules(parse('RULE "keys" IF { matches(/BEGIN [A-Z ]*PRIVATE KEY/) } THEN { refuse "a private key" }'))
    async with connected_channels(2, rules=rules) as (one, two):
        with pytest.raises(NotSentError, match="a private key") as refused:
            await one.broadcast_text("-----BEGIN RSA PRIVATE KEY-----")
        assert refused.value.rule == 'rule "keys" (line 1)'
        await one.broadcast_text("Plan B")
        assert await receive_texts(two, 1) == ["Plan B"]
        (count,) = rules.counts()
        assert (count.hits, count.refused) == (1, 1)
        assert count.seconds > 0


@pytest.fixture
def key(tmp_path: Path) -> SealingPrivateKey:
    private = SealingPrivateKey.generate()
    private.save(tmp_path / "com.key")
    private.public.save(tmp_path / "com.pub")
    return private


async def test_receivers_undo_compression_and_with_the_key_encryption(tmp_path: Path, key: SealingPrivateKey) -> None:
    name = unique_name()
    rules = always('compress; encrypt for "com.pub"', directory=tmp_path)
    file = tmp_path / "plan.txt"
    file.write_text(PLAN)
    async with (
        broadloom.connect(name, tls=False, settings=QUICK, rules=rules) as author,
        broadloom.connect(name, tls=False, settings=QUICK, private_keys=[tmp_path / "com.key"]) as reader,
        broadloom.connect(name, tls=False, settings=QUICK) as stranger,
    ):
        votes: list[bytes] = []
        reader.layer("vo", lambda batch: votes.extend(batch.data))
        await author.broadcast_text(PLAN, topic="plans", headers={"subject": "s"})
        await author.broadcast_text(PLAN * 100)
        author.broadcast_nowait(PLAN.encode())
        await author.broadcast_file(file)
        await author.layer("vo").broadcast(PLAN.encode())
        messages = [await reader.receive(20) for _ in range(4)]
        assert [each.text for each in messages[:3]] == [PLAN, PLAN * 100, PLAN]
        assert messages[3].file == ("plan.txt", PLAN.encode())
        assert [each.encodings for each in messages] == [("zlib", "x25519"), ("x25519",), *[("zlib", "x25519")] * 2]
        assert not any(each.is_sealed for each in messages)
        assert (messages[0].topic, messages[0].headers) == ("plans", {"subject": "s"})
        await eventually(lambda: votes == [PLAN.encode()], "the message of the layer")
        sealed = [await stranger.receive(20) for _ in range(4)]
        assert all(each.is_sealed for each in sealed)
        assert (reader.missed_count, stranger.missed_count) == (0, 0)
        assert stranger.status().unknown_layers == {"vo": 1}
        assert all(b"Plan" not in each.data for each in sealed)
        assert sealed[0].topic == "plans"


async def test_requests_are_encoded_and_undone_too(tmp_path: Path, key: SealingPrivateKey) -> None:
    name = unique_name()
    rules = Rules(parse('IF { way("request", "tell") } THEN { compress; encrypt for "com.pub" }'), directory=tmp_path)
    async with (
        broadloom.connect(name, tls=False, settings=QUICK, rules=rules) as caller,
        broadloom.connect(name, tls=False, settings=QUICK, private_keys=[key]) as callee,
        broadloom.connect(name, tls=False, settings=QUICK) as stranger,
    ):
        for each in (callee, stranger):
            each.on_request(lambda request: request.data + request.headers["note"].encode())
        await caller.wait_for_roster(20)
        reply = await caller.request(callee.peer_id, PLAN.encode(), headers={"note": "!"}, timeout_s=20)
        assert reply.text == PLAN + "!"
        with pytest.raises(broadloom.RefusedError, match="encrypted for others"):
            await caller.request(stranger.peer_id, PLAN.encode(), timeout_s=20)


async def test_group_posts_are_changed_before_they_are_stored() -> None:
    rules = Rules(parse('IF { group("club") } THEN { redact emails }'))
    async with (
        connected_channels(2, rules=rules) as (one, two),
        Groups(one, "Anna", settings=QUICK_GROUPS) as anna,
        Groups(two, "Ben", settings=QUICK_GROUPS) as ben,
    ):
        club = await anna.create("club")
        at_ben = await ben.join((await ben.find("club", 20)).id)
        posted = await club.send_text("ask anna@example.com")
        assert posted.text == (await at_ben.receive(20)).text == "ask [redacted]"
        assert [each.text for each in club.history()] == ["ask [redacted]"]


# -- copies for others


async def test_send_goes_to_one_member_with_the_data_of_that_moment(tmp_path: Path, key: SealingPrivateKey) -> None:
    name = unique_name()
    rules = Rules(parse('IF { true } THEN { send "anna"; encrypt for "com.pub"; send "ben" }'), directory=tmp_path)
    received: dict[str, broadloom.DirectRequest] = {}
    async with (
        broadloom.connect(name, tls=False, settings=QUICK, rules=rules) as author,
        broadloom.connect(name, tls=False, settings=QUICK, name="anna") as anna,
        broadloom.connect(name, tls=False, settings=QUICK, name="ben", private_keys=[key]) as ben,
    ):
        for who, channel in (("anna", anna), ("ben", ben)):
            channel.on_request(lambda request, who=who: received.update({who: request}))  # type: ignore[misc]
        await eventually(lambda: len(author.members()) == 3, "the roster")
        await author.broadcast_text("plan", headers={"subject": "s"})
        await eventually(lambda: len(received) == 2, "both messages")
        assert {who: (each.text, each.headers["subject"], each.expects_reply) for who, each in received.items()} == {
            "anna": ("plan", "s", False), "ben": ("plan", "s", False)
        }  # fmt: skip
        assert (await anna.receive(20)).is_sealed
        file = tmp_path / "plan.txt"
        file.write_text("content")
        received.clear()
        await author.broadcast_file(file)
        await eventually(lambda: len(received) == 2, "both files")
        assert {who: each.file for who, each in received.items()} == dict.fromkeys(received, ("plan.txt", b"content"))


@pytest.mark.parametrize("member", ["nobody", "twin"])
async def test_send_to_an_unknown_or_ambiguous_name_fails_closed(member: str) -> None:
    name = unique_name()
    async with (
        broadloom.connect(name, tls=False, settings=QUICK, rules=always(f'send "{member}"')) as author,
        broadloom.connect(name, tls=False, settings=QUICK, name="twin") as reader,
        broadloom.connect(name, tls=False, settings=QUICK, name="twin"),
    ):
        await eventually(lambda: len(author.members()) == 3, "the roster")
        with pytest.raises(NotSentError, match=f"cannot send to {member}"):
            await author.broadcast(b"plan")
        assert reader.receive_nowait() is None


async def test_nothing_goes_to_anyone_if_a_later_rule_fails() -> None:
    name = unique_name()
    received: list[bytes] = []
    rules = Rules(parse('IF { true } THEN { send "anna" }\nIF { text("secret") } THEN { refuse "secret" }'))
    async with (
        broadloom.connect(name, tls=False, settings=QUICK, rules=rules) as author,
        broadloom.connect(name, tls=False, settings=QUICK, name="anna") as anna,
    ):
        anna.on_request(lambda request: received.append(request.data))
        await eventually(lambda: len(author.members()) == 2, "the roster")
        with pytest.raises(NotSentError, match="secret"):
            await author.broadcast(b"secret")
        await author.broadcast(b"public")
        await eventually(lambda: received, "the copy")
        assert received == [b"public"]


class Triangle:
    """Three channels whose rules forward to the next one, and a reader on each."""

    def __init__(self) -> None:
        self.names = [f"{letter}/{uuid4().hex}" for letter in "abc"]
        self.authors: list[Channel] = []
        self.readers: list[Channel] = []


@pytest.fixture
async def triangle() -> Triangle:
    return Triangle()


async def test_forwarding_in_a_circle_reaches_each_channel_once(triangle: Triangle) -> None:
    a, b, c = triangle.names
    text = "".join(
        f'IF {{ channel = "{here}" }} THEN {{ forward "{there}" }}\n' for here, there in ((a, b), (b, c), (c, a))
    )
    rules = Rules(parse(text))
    try:
        for name in triangle.names:
            triangle.authors.append(await broadloom.connect(name, tls=False, settings=QUICK, rules=rules))
            triangle.readers.append(await broadloom.connect(name, tls=False, settings=QUICK))
        for number, author in enumerate(triangle.authors):
            await author.broadcast_text(f"plan {number}")
        for reader in triangle.readers:
            assert sorted(await receive_texts(reader, 3)) == ["plan 0", "plan 1", "plan 2"]
            assert reader.receive_nowait() is None
        await triangle.authors[0].broadcast_text("the end")
        last = await triangle.readers[2].receive(20)
        assert (last.text, last.forwarded_from) == ("the end", (a, b))
    finally:
        for channel in (*triangle.authors, *triangle.readers):
            channel.abort()


async def test_forwarding_to_a_channel_that_was_not_joined_fails_closed() -> None:
    async with connected_channels(2, rules=always('forward "other/one"')) as (author, reader):
        with pytest.raises(NotSentError, match="cannot forward to other/one"):
            await author.broadcast(b"plan")
        assert reader.receive_nowait() is None


# -- held messages, full disks, changes of the file


async def test_released_message_passes_all_rules_but_hold(tmp_path: Path) -> None:
    rules = Rules(parse('IF { text("plan") } THEN { hold "ask"; set checked "yes" }'), held=tmp_path)
    async with connected_channels(2, rules=rules) as (author, reader):
        with pytest.raises(HeldError) as held:
            await author.broadcast_text("plan", topic="plans")
        other = Rules(parse('IF { text("plan") } THEN { hold "ask"; set checked "yes" }'), held=tmp_path)
        await other.release(held.value.held_id, author)
        message = await reader.receive(20)
        assert (message.text, message.topic, message.headers) == ("plan", "plans", {"checked": "yes"})
        assert other.held is not None
        assert other.held.list() == []
        with pytest.raises(RulesError, match="no message"):
            await other.release(held.value.held_id, author)


async def test_failed_release_keeps_the_message(tmp_path: Path) -> None:
    rules = Rules(parse("IF { true } THEN { hold }"), held=tmp_path)
    async with connected_channels(1, rules=rules) as (author,), connected_channels(1) as (other,):
        with pytest.raises(HeldError) as held:
            await author.broadcast_text("plan")
        with pytest.raises(RulesError, match="belongs to the channel"):
            await rules.release(held.value.held_id, other)
        assert rules.held is not None
        assert [each.id for each in rules.held.list()] == [held.value.held_id]


async def test_held_message_is_not_released_without_rules(tmp_path: Path) -> None:
    rules = Rules(parse("IF { true } THEN { hold; redact /secret/ }"), held=tmp_path)
    async with connected_channels(1, rules=rules) as (author,):
        with pytest.raises(HeldError) as held:
            await author.broadcast_text("a secret")
        async with broadloom.connect(author.name, tls=False) as other:
            with pytest.raises(RulesError, match="joined without rules"):
                await rules.release(held.value.held_id, other)


WRONG: Any = ("stop", "com.pub", "a", Refuse)


@pytest.mark.parametrize(
    "items",
    [
        [Rule(Constant(True), (WRONG[3],))],
        [Rule(Constant(True), (WRONG[0],))],
        [Rule(Constant(True), WRONG[0])],
        [Rule(Test("text", "contains", WRONG[2]), (Refuse(""),))],
        [Rule(Constant(True), (Encrypt(WRONG[1]),))],
        [WRONG[0]],
    ],
    ids=str,
)
def test_rules_of_a_wrong_type_are_rejected(items: Any) -> None:
    """They would let out what they were meant to stop."""
    with pytest.raises(TypeError):
        Rules(items)


def test_condition_that_would_have_to_be_awaited_is_rejected() -> None:
    with pytest.raises(TypeError, match="plain function"):

        @condition("late")
        async def late(_out: Outgoing) -> bool:
            return True


@pytest.mark.parametrize("actions", ['copy "backup"', "hold"])
async def test_nothing_is_sent_if_the_disk_is_full(small_disk: Path, actions: str) -> None:
    rules = always(actions, directory=small_disk, held=small_disk / "held")
    async with connected_channels(2) as (author, reader):
        ballast = fill(small_disk)
        author._use_filter(rules)
        for _ in range(3):
            with pytest.raises(NotSentError, match="No space left"):
                await author.broadcast(os.urandom(5000))
        author._use_filter(None)
        await author.broadcast(b"the channel goes on")
        assert (await reader.receive(20)).data == b"the channel goes on"
        ballast.unlink()
        author._use_filter(rules)
        if actions != "hold":
            await author.broadcast(b"plan")
            assert (await reader.receive(20)).data == b"plan"
            assert [each.read_bytes() for each in (small_disk / "backup").iterdir()] == [b"plan"]


def change(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1_000_000))  # whatever the resolution of the clock


async def test_changed_file_is_in_force_within_seconds_and_a_bad_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.rules"
    path.write_text('IF { text("plan") } THEN { refuse "plans" }')
    rules = load(path)
    now = 1000.0
    monkeypatch.setattr("broadloom.rules.rules.time.monotonic", lambda: now)
    async with connected_channels(2, rules=rules) as (author, reader):
        with pytest.raises(NotSentError):
            await author.broadcast(b"plan")
        change(path, 'IF { text("cost") } THEN { refuse "costs" }')
        with pytest.raises(NotSentError):
            await author.broadcast(b"plan")
        now += RELOAD_INTERVAL_S
        await author.broadcast(b"plan")
        change(path, 'IF { text("x } THEN')
        now += RELOAD_INTERVAL_S
        with pytest.raises(NotSentError, match="costs"):
            await author.broadcast(b"cost")
        assert "the old ones stay" in caplog.text
        assert "line 1, column 11" in rules.reload_error
        path.unlink()
        now += RELOAD_INTERVAL_S
        with pytest.raises(NotSentError, match="costs"):
            await author.broadcast(b"cost")
        change_back = 'IF { text("x") } THEN { stop }'
        path.write_text(change_back)
        now += RELOAD_INTERVAL_S
        await author.broadcast(b"cost")
        assert rules.reload_error == ""
        assert [(await reader.receive(20)).data for _ in range(2)] == [b"plan", b"cost"]


def test_options_of_the_wrong_type_raise_at_once(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"rules must be broadloom\.rules\.load"):
        broadloom.connect("office/hq", rules="out.rules")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="private_keys is a list"):
        broadloom.connect("office/hq", private_keys="com.key")
    with pytest.raises(broadloom.InvalidKeyError, match="cannot read the private key"):
        broadloom.connect("office/hq", private_keys=[tmp_path / "none"])
    with pytest.raises(RulesError, match="cannot read the rules"):
        load(tmp_path / "none")
