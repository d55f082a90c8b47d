"""Every way out of a program passes the rules. A new one must be added here, or the first test fails."""

import ast
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import broadloom
import broadloom.channel.sender
import broadloom.sync
from broadloom import Channel, RefusedError
from broadloom.apps.game import Play, make_game
from broadloom.errors import HeldError, NotSentError
from broadloom.groups import Groups
from broadloom.mailboxes import Mailboxes
from broadloom.rules import Rules, parse
from broadloom.rules.sync import release
from broadloom.switch import RequestFailedError, Switch
from tests.channel.joined import QUICK, connected_channels, unique_name
from tests.groups.group_bus import QUICK_GROUPS
from tests.support import eventually

SOURCE = Path(broadloom.__file__).parent
SECRET = "a secret plan"
RULES = 'IF { matches(/secret/) OR header.note("secret") } THEN { refuse "secret" }'

LOWEST = {
    "broadcaster.broadcast": {"channel/sender.py": ["_send", "broadcast"], "protocol/peer.py": ["broadcast"]},
    "requests.request": {
        "channel/layer.py": ["_start_request"],
        "channel/requester.py": ["_request_packed"],
        "protocol/state/fetch.py": ["_release", "_request"],
    },
    "_start_request": {
        "order/channel_runtime.py": ["request", "tell"],
        "switch/channel_runtime.py": ["request", "tell"],
    },
    "self._send": {"channel/sender.py": ["_broadcast_large", "_broadcast_unfiltered", "broadcast_nowait"]},
    "_broadcast_unfiltered": {
        "channel/layer.py": ["broadcast"],
        "channel/sender.py": ["_broadcast_kind", "_broadcast_outgoing"],
        "pipeline/spark_source/sink.py": ["_post"],
    },
    "_broadcast_large": {"channel/sender.py": ["_broadcast_outgoing", "_broadcast_unfiltered", "broadcast_file"]},
    "_request_packed": {"channel/requester.py": ["_request", "_tell_outgoing"]},
    "incoming.reply": {
        "channel/direct_request.py": ["reply"],
        "channel/requester.py": ["_finish"],
        "protocol/state/server.py": ["_answer", "_send_chunk"],
        "switch/core.py": ["_on_handler_copy", "on_request", "respond"],
    },
    "_filter_content": {
        "apps/game/play.py": ["_filtered", "_tell"],
        "groups/group.py": ["send"],
        "groups/groups.py": ["create"],
        "mailboxes/mailbox.py": ["put"],
        "mailboxes/mailboxes.py": ["_post"],
        "order/order.py": ["submit"],
        "pipeline/spark_source/sink.py": ["_post"],
        "switch/requester.py": ["_filtered"],
    },
}
"""Calls that send without asking the rules, and the functions that may make them: they have asked before. `broadcast`
itself sends within the bytes that flow control has granted; a channel with rules has none. And the calls that ask for
layers which keep what they send."""

FILTERING_LAYERS = {"channel/layer_runtime.py"}
"""Layers whose messages do not pass the rules, because what the application gives them has."""


def callers(called: str) -> dict[str, list[str]]:
    """The functions in which something is called, by file. The simulator and tests have no channel and no rules."""
    found: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name, text = path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8")
        if f"{called}(" not in text or (called == "self._send" and name != "channel/sender.py"):
            continue  # other classes have methods of this name
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                calls = [each for each in ast.walk(function) if isinstance(each, ast.Call)]
                if any(f".{ast.unparse(each.func)}".endswith((f".{called}", f"_{called}")) for each in calls):
                    found.setdefault(name, []).append(function.name)
    return {name: sorted(functions) for name, functions in found.items() if not name.startswith("testing/")}


def test_only_layers_that_filter_content_send_without_the_rules() -> None:
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if "_filters_content = True" in path.read_text(encoding="utf-8")
    }
    assert found == FILTERING_LAYERS


@pytest.mark.parametrize("called", LOWEST)
def test_only_functions_that_have_asked_the_rules_send(called: str) -> None:
    assert callers(called) == LOWEST[called]


async def by_receipt(channel: Channel, data: bytes) -> None:
    await channel.broadcast(data, receipt=1, timeout_s=20)


async def by_file(channel: Channel, data: bytes, directory: Path) -> None:
    path = directory / "file"
    path.write_bytes(data)
    await channel.broadcast_file(path)


async def by_nowait(channel: Channel, data: bytes) -> None:
    channel.broadcast_nowait(data)


async def to_other(channel: Channel, how: str, data: bytes, **options: Any) -> None:
    [other] = [each for each in await channel.wait_for_roster(20) if each.peer_id != channel.peer_id]
    await getattr(channel, how)(other, data, **options)


async def by_layer_request(channel: Channel, how: str, data: bytes) -> None:
    [other] = [each for each in await channel.wait_for_roster(20) if each.peer_id != channel.peer_id]
    await getattr(channel.layer("vo"), how)(other, data)


async def by_group(channel: Channel, data: bytes) -> None:
    async with Groups(channel, "Anna", settings=QUICK_GROUPS) as groups:
        club = await groups.create("club")
        try:
            await club.send(data)
        finally:
            assert not [each for each in club.history() if each.data == data], "history would send it later"


async def by_group_description(channel: Channel, data: bytes) -> None:
    async with Groups(channel, "Anna", settings=QUICK_GROUPS) as groups:
        await groups.create(data.decode())


async def by_mailbox(channel: Channel, how: str) -> None:
    async with Mailboxes(channel) as boxes:
        box = await boxes.bind("plans", keep="latest", fetch=True)
        if how == "put":
            await box.put(SECRET.encode())
        else:
            await boxes.post(channel.peer_id, "plans", SECRET.encode())


async def by_switch(channel: Channel, how: str, kind: Any = bytes) -> None:
    async with Switch(channel, session="hq") as switch:
        if how in ("request", "notify"):
            await getattr(switch, how)("save", kind(SECRET.encode()), timeout_s=20)
        else:
            async for _ in getattr(switch, how)("save", SECRET.encode(), timeout_s=20):
                pass


async def by_order(channel: Channel) -> None:
    async with broadloom.ordered(channel, "plans", mode="available") as order:
        await order.submit(SECRET.encode(), timeout_s=20)


async def by_game(channel: Channel, how: str) -> None:
    async with Play(channel, make_game("gems", 2), name=SECRET if how == "name" else "Anna", role="*") as play:
        if how == "tell":
            await play.tell("Anna", SECRET)
        else:
            await play.do(SECRET)


async def by_state(channel: Channel) -> None:
    """The program serves it when it is asked, so it learns of the refusal by its log."""
    from broadloom.channel.state import _Maker

    _Maker(channel, "plans", lambda: [b"a sec", b"ret plan"])()


WAYS: dict[str, Callable[[Channel, Path], Awaitable[object]]] = {
    "broadcast": lambda channel, _: channel.broadcast(SECRET.encode()),
    "broadcast of headers": lambda channel, _: channel.broadcast(b"", headers={"note": SECRET}),
    "broadcast, large": lambda channel, _: channel.broadcast(SECRET.encode() + bytes(200_000)),
    "broadcast with receipt": lambda channel, _: by_receipt(channel, SECRET.encode()),
    "broadcast_nowait": lambda channel, _: by_nowait(channel, SECRET.encode()),
    "broadcast_nowait, large": lambda channel, _: by_nowait(channel, SECRET.encode() + bytes(200_000)),
    "broadcast_text": lambda channel, _: channel.broadcast_text(SECRET),
    "broadcast_json": lambda channel, _: channel.broadcast_json({"plan": SECRET}),
    "broadcast_file": lambda channel, directory: by_file(channel, SECRET.encode(), directory),
    "identify": lambda channel, _: channel.identify({"plan": SECRET}),
    "advert": lambda channel, _: channel.advert(SECRET),
    "layer": lambda channel, _: channel.layer("vo").broadcast(SECRET.encode()),
    "request": lambda channel, _: to_other(channel, "request", SECRET.encode()),
    "request with headers": lambda channel, _: to_other(channel, "request", b"", headers={"note": SECRET}),
    "tell": lambda channel, _: to_other(channel, "tell", SECRET.encode()),
    "layer request": lambda channel, _: by_layer_request(channel, "request", SECRET.encode()),
    "layer tell": lambda channel, _: by_layer_request(channel, "tell", SECRET.encode()),
    "post": lambda channel, _: by_group(channel, SECRET.encode()),
    "put into a mailbox": lambda channel, _: by_mailbox(channel, "put"),
    "letter to a mailbox": lambda channel, _: by_mailbox(channel, "post"),
    "request of the switch": lambda channel, _: by_switch(channel, "request"),
    "request of the switch, as a bytearray": lambda channel, _: by_switch(channel, "request", bytearray),
    "notice of the switch": lambda channel, _: by_switch(channel, "notify"),
    "requests to all on the switch": lambda channel, _: by_switch(channel, "request_all"),
    "followed request of the switch": lambda channel, _: by_switch(channel, "follow"),
    "entry of an ordered conversation": lambda channel, _: by_order(channel),
    "action in a game": lambda channel, _: by_game(channel, "do"),
    "name of a player": lambda channel, _: by_game(channel, "name"),
    "message to a player": lambda channel, _: by_game(channel, "tell"),
    "state": lambda channel, _: by_state(channel),
    "description of a group": lambda channel, _: by_group_description(channel, SECRET.encode()),
}


async def test_every_way_out_is_refused_and_nothing_arrives(tmp_path: Path) -> None:
    seen: list[bytes] = []
    async with connected_channels(2, rules=Rules(parse(RULES))) as (author, reader):
        reader._node.deliver = lambda batch: seen.extend(batch.data)  # all layers, before anything is opened
        reader.on_request(lambda request: seen.append(request.data))
        reader.layer("vo").on_request(lambda request: seen.append(request.data))
        passed = []
        for way, send in WAYS.items():
            try:
                await send(author, tmp_path)
                passed.append(way)
            except NotSentError as refused:
                assert refused.reason.endswith("secret")  # noqa: PT017
        assert not passed
        await author.broadcast(b"the end")
        assert author._granted <= 0
        await eventually(lambda: b"the end" in seen, "the last message")
    assert not [each for each in seen if b"secret" in each]


def test_every_public_method_that_sends_is_enumerated() -> None:
    sending = {name for name in vars(Channel) | vars(broadloom.channel.sender.Sender) if name.startswith("broadcast")}
    sending |= {"identify", "advert", "request", "tell"}
    assert {each.partition(" ")[0].rstrip(",") for each in WAYS} >= sending


async def reply_plainly(request: broadloom.DirectRequest) -> bytes:
    return SECRET.encode()


def reply_at_once(request: broadloom.DirectRequest) -> bytes:
    return SECRET.encode()


async def reply_early(request: broadloom.DirectRequest) -> None:
    request.reply(SECRET.encode())


async def refuse(request: broadloom.DirectRequest) -> None:
    request.refuse(SECRET)


async def raise_refusal(request: broadloom.DirectRequest) -> bytes:
    raise RefusedError(SECRET)


@pytest.mark.parametrize("handler", [reply_plainly, reply_at_once, reply_early, refuse, raise_refusal])
async def test_replies_and_texts_of_refusals_pass_the_rules(handler: Any) -> None:
    async with connected_channels(2, rules=Rules(parse(RULES))) as (caller, callee):
        callee.on_request(handler)
        await caller.wait_for_roster(20)
        with pytest.raises(RefusedError) as refused:
            await caller.request(callee.peer_id, b"question", timeout_s=20)
        assert "secret" not in str(refused.value)
        callee.on_request(lambda request: b"public")
        assert (await caller.request(callee.peer_id, b"question", timeout_s=20)).data == b"public"


@pytest.mark.parametrize("handler", [reply_plainly, reply_at_once, reply_early, refuse, raise_refusal])
async def test_replies_of_handlers_on_the_switch_pass_the_rules(handler: Any) -> None:
    async with (
        connected_channels(2, rules=Rules(parse(RULES))) as (caller, callee),
        Switch(caller, session="hq") as asking,
        Switch(callee, session="hq") as answering,
    ):
        answering.handle("plan")(handler)
        answering.handle("public")(lambda request: b"public")
        await asking.wait_for_handler("public", timeout_s=20)
        with pytest.raises(RequestFailedError) as failed:
            await asking.request("plan", timeout_s=20)
        assert "secret" not in str(failed.value)
        assert (await asking.request("public", timeout_s=20)).data == b"public"


async def test_synchronous_channels_pass_the_rules_too(tmp_path: Path) -> None:
    rules = Rules(parse(RULES + 'IF { text("wait") } THEN { hold }'), held=tmp_path)

    def use() -> None:
        name = unique_name()
        with (
            broadloom.sync.connect(name, tls=False, settings=QUICK, rules=rules) as author,
            broadloom.sync.connect(name, tls=False, settings=QUICK) as reader,
        ):
            for send in (author.broadcast, author.broadcast_nowait):
                with pytest.raises(NotSentError):
                    send(SECRET.encode())
            author.broadcast(b"public")
            assert reader.receive(timeout_s=30).data == b"public"
            with pytest.raises(HeldError) as held:
                author.broadcast(b"wait")
            release(rules, held.value.held_id, author)
            assert reader.receive(timeout_s=30).data == b"wait"

    await asyncio.to_thread(use)
