"""The server's part in the switch: it observes only while a page is open, and keeps a bounded list."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from broadloom.channel import Channel
from broadloom.switch import HandledRequest, MessageState, RequestFailedError, Switch
from broadloom.web import switch_client
from broadloom.web.own_peer import OwnPeer
from broadloom.web.switch_client import NAMES_SHOWN_MAX, PATTERNS_SHOWN_MAX, SwitchClient
from tests.channel.joined import connected_channels
from tests.support import TIMEOUT_S, eventually


@pytest.fixture
async def client() -> AsyncIterator[tuple[SwitchClient, Channel]]:
    async with connected_channels(2) as (own, other):
        opened = SwitchClient(OwnPeer(channel=own, on_joined=lambda _peer: None))
        opened.start_joining()
        await eventually(lambda: opened.switch)
        yield opened, other
        await opened.close()


async def test_requests_are_observed_only_while_a_page_is_open(client: tuple[SwitchClient, Channel]) -> None:
    opened, other = client
    async with Switch(other) as switch:

        def is_observed() -> bool:
            return any(each.patterns for each in switch.registrations() if each.peer_id != other.peer_id)

        opened.add_view("one")
        opened.add_view("two")
        await eventually(is_observed)
        await opened.remove_view("one")
        await opened.remove_view("one")
        await switch.wait_until_complete(TIMEOUT_S)
        with pytest.raises(RequestFailedError):
            await switch.request("print", b"\xff\xfe")
        await eventually(lambda: opened.requests and next(iter(opened.requests.values())).is_ended)
        [seen] = opened.requests.values()
        assert seen.text == "(2 bytes of binary data)"
        assert [step.state for step in seen.steps] == [MessageState.SENT, MessageState.FAILED]
        assert seen.took_s is not None
        await opened.remove_view("two")
        await eventually(lambda: not is_observed())


async def test_another_session_is_observed_with_the_same_files(client: tuple[SwitchClient, Channel]) -> None:
    opened, other = client
    async with Switch(other, session="anna") as switch:
        opened.add_view("one")
        opened.observe_file("notes")
        await opened.send("before", "", None)
        await asyncio.gather(opened.observe_session("anna"), opened.observe_session("anna"))
        assert opened.switch is not None
        assert opened.switch.session == "anna"
        await eventually(lambda: [each.session for each in switch.joins("notes")] == ["anna"])
        await opened.send("after", "", None)
        assert [each.message.operation for each in opened.requests.values()] == ["before", "after"]
        opened.ignore_file("notes")
        await eventually(lambda: not switch.joins("notes"))


async def test_program_with_many_patterns_gets_a_bounded_number_of_lines(client: tuple[SwitchClient, Channel]) -> None:
    opened, other = client
    async with Switch(other) as switch:
        for number in range(PATTERNS_SHOWN_MAX + 1):
            switch.observe([f"{number}-{each}" for each in range(NAMES_SHOWN_MAX + 7)])
        await eventually(opened.program_rows)
        rows = opened.program_rows()
        assert len(rows) == PATTERNS_SHOWN_MAX
        assert all(row[0].endswith(" and 7 more") for row in rows)


async def test_only_the_newest_requests_are_kept(
    client: tuple[SwitchClient, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switch_client, "REQUESTS_MAX", 2)
    opened, other = client
    opened.add_view("one")
    async with Switch(other) as switch:

        @switch.handle("reverse")
        async def reverse(request: HandledRequest) -> bytes:
            return request.data[::-1]

        await eventually(opened.program_rows)
        for text in ("12", "34", "56"):
            await opened.send("reverse", text, None)
        assert [each.reply for each in opened.requests.values()] == ["43", "65"]
        assert [step.state for step in next(iter(opened.requests.values())).steps][-1] is MessageState.HANDLED
