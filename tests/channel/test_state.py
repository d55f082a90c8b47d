"""State for late joiners on real channels."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import ModuleType, SimpleNamespace

import pytest

from broadloom import Channel, NotConnectedError, StateSnapshot, StateUnavailableError, sync
from broadloom.protocol.requests.outgoing import RequestState
from broadloom.protocol.state import server
from tests.channel.joined import connected_channels, unique_name
from tests.support import eventually, wait_until


@contextmanager
def monkeypatched(module: ModuleType, name: str, value: object) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, value)
        yield


async def offered(channel: Channel, count: int = 1) -> None:
    """This many members offer state."""
    await eventually(lambda: sum("St" in member.layers for member in channel.members()) == count)


class Log:
    """A program whose state is the log of all messages, in the order of each author."""

    def __init__(self, channel: Channel, pattern: str | None = None) -> None:
        self.channel = channel
        self.reader = channel.subscribe(pattern)
        self.entries: dict[str, list[str]] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, author: int, text: str) -> None:
        self.entries.setdefault(f"{author:016x}", []).append(text)

    async def send(self, text: str) -> None:
        await self.channel.broadcast(text.encode())
        self.add(self.channel.peer_id, text)

    def serve(self) -> None:
        self.channel.on_state("log", lambda: json.dumps(self.entries).encode(), reader=self.reader)

    def run(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        async for message in self.reader:
            self.add(message.author, message.text)

    async def fetch(self, **options: object) -> StateSnapshot:
        state = await self.channel.fetch_state("log", reader=self.reader, **options)  # type: ignore[arg-type]
        self.entries = state.json()
        self.serve()
        self.run()
        return state

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def logs(count: int, *, name: str = "", **options: object) -> AsyncIterator[list[Log]]:
    """Members that serve and read from the beginning."""
    async with connected_channels(count, name=name, **options) as channels:
        members = [Log(channel) for channel in channels]
        for member in members:
            member.serve()
            member.run()
        try:
            yield members
        finally:
            for member in members:
                await member.stop()


async def test_late_joiner_continues_exactly_after_the_state() -> None:
    name = unique_name()
    async with logs(3, name=name) as members:

        async def chatter(member: Log, label: str) -> None:
            for number in range(400):
                await member.send(f"{label} {number}")
                await asyncio.sleep(0.001)

        chatting = [asyncio.ensure_future(chatter(member, f"m{each}")) for each, member in enumerate(members)]
        await eventually(lambda: len(members[0].entries) == 3)
        async with connected_channels(2, name=name) as newcomers:
            late = [Log(channel) for channel in newcomers]
            states = await asyncio.gather(*(log.fetch() for log in late))
            assert all(state.peer_id in {member.channel.peer_id for member in members} for state in states)
            await asyncio.gather(*chatting)
            expected = {f"{m.channel.peer_id:016x}": [f"m{e} {n}" for n in range(400)] for e, m in enumerate(members)}
            await eventually(lambda: all(log.entries == expected for log in (*members, *late)))
            for log in late:
                await log.stop()


async def test_first_program_learns_that_no_member_offers_the_state() -> None:
    async with connected_channels(2) as (one, other):
        reader = one.subscribe()
        with pytest.raises(StateUnavailableError, match="no member offers it") as unavailable:
            await one.fetch_state("log", reader=reader, timeout_s=20)
        assert unavailable.value.reasons == {}
        other.on_state("another", lambda: b"x", reader=other.subscribe())
        await offered(one)
        with pytest.raises(StateUnavailableError, match="no member offers it") as unavailable:
            await one.fetch_state("log", reader=reader, timeout_s=20)
        assert unavailable.value.reasons == {}
        await other.broadcast(b"still readable")
        assert (await reader.receive(20)).text == "still readable"


async def test_state_is_made_between_two_messages() -> None:
    async with connected_channels(3) as (author, helper, newcomer):
        reader = helper.subscribe()
        handled: list[str] = []
        helper.on_state("handled", lambda: ",".join(handled).encode(), reader=reader)
        await author.broadcast_text("one")
        message = await reader.receive(20)
        own = newcomer.subscribe()
        await offered(newcomer)
        fetching = asyncio.ensure_future(newcomer.fetch_state("handled", reader=own))
        await eventually(lambda: reader._when_between is not None)  # the helper is in the middle of a message
        await author.broadcast_text("two")
        handled.append(message.text)
        await eventually(lambda: reader.unread_count)
        assert not fetching.done()
        message = await reader.receive(20)
        state = await fetching
        assert state.text == "one"
        assert state.position[author.peer_id] == 1
        assert reader.position()[author.peer_id] == 2
        assert (await own.receive(20)).text == "two"
        assert own.position()[author.peer_id] == 2


async def test_state_contains_the_newcomers_own_messages() -> None:
    async with logs(2) as (first, second):
        assert first.channel.name == second.channel.name
        async with connected_channels(1, name=first.channel.name) as (channel,):
            late = Log(channel)
            await channel.broadcast(b"before")
            state = await late.fetch()
            assert late.entries[f"{channel.peer_id:016x}"] == ["before"]
            assert state.position[channel.peer_id] == 1
            await late.stop()


async def test_large_messages_and_patterns_count_exactly() -> None:
    large = "x" * 200_000
    async with connected_channels(2) as (author, helper):
        reader = helper.subscribe("a/**")
        taken: list[str] = []
        helper.on_state("a", lambda: json.dumps(taken).encode(), reader=reader)

        async def take() -> None:
            async for message in reader:
                taken.append(message.text)

        taking = asyncio.ensure_future(take())
        await author.broadcast_text(large, topic="a/1")
        await author.broadcast_text("other", topic="b")
        async with connected_channels(1, name=author.name) as (newcomer,):
            own = newcomer.subscribe("a/**")
            await author.broadcast_text("between", topic="a/2")
            await author.broadcast_text("other", topic="b")
            state = await newcomer.fetch_state("a", reader=own)
            await author.broadcast_text("after", topic="a/3")
            got = state.json()
            while got[-1] != "after":
                got.append((await own.receive(20)).text)
            assert got == [large, "between", "after"]
            assert state.position[author.peer_id] >= 6  # every fragment has a number
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)


async def test_reader_that_overflows_during_the_fetch_gets_a_later_state() -> None:
    async with connected_channels(3) as (author, helper, newcomer):
        reader = helper.subscribe()
        taken: list[str] = []
        made: list[int] = []

        def make() -> bytes:
            if not made:  # the first state comes late: meanwhile the newcomer drops messages that it lacks
                for number in range(100):
                    author.broadcast_nowait(b"%d" % number)
            made.append(len(taken))
            return json.dumps(taken).encode() + b" " * 300_000

        helper.on_state("log", make, reader=reader)

        async def take() -> None:
            async for message in reader:
                taken.append(message.text)

        taking = asyncio.ensure_future(take())
        own = newcomer.subscribe(messages_max=10)
        await offered(newcomer)
        original = newcomer._node.peer.requests.request

        def hold_chunks(*arguments: object, **options: object) -> object:
            if made and own.dropped_count < 50:  # until messages were dropped
                asyncio.get_running_loop().call_later(0.01, lambda: hold_chunks(*arguments, **options))
                return SimpleNamespace(state=RequestState.SENT)
            return original(*arguments, **options)  # type: ignore[arg-type]

        newcomer._node.peer.requests.request = hold_chunks  # type: ignore[assignment]
        state = await newcomer.fetch_state("log", reader=own)
        assert len(made) > 1
        got = state.json()
        while len(got) < 100:
            got.append((await own.receive(20)).text)
        assert got == [str(number) for number in range(100)]
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)


async def test_helper_that_does_not_read_is_passed_over() -> None:
    async with logs(2) as (reading, _), connected_channels(1, name=reading.channel.name) as (idle,):
        reader = idle.subscribe()
        idle.on_state("log", lambda: b"stale", reader=reader)
        await reading.send("hello")
        await reader.receive(20)  # and never asks for the next one
        async with connected_channels(1, name=reading.channel.name) as (newcomer,):
            late = Log(newcomer)
            await offered(newcomer, 3)
            with monkeypatched(server, "WAIT_S", 0.2):
                state = await late.fetch(helper=idle.peer_id)
            assert state.peer_id != idle.peer_id
            assert state.json() == reading.entries
            await late.stop()


async def test_local_peers_fetch_and_serve_like_one() -> None:
    async with logs(2, local_peers=2) as members:
        for number in range(20):
            await members[number % 2].send(str(number))
        async with connected_channels(1, name=members[0].channel.name, local_peers=2) as (newcomer,):
            late = Log(newcomer)
            await late.fetch()
            for number in range(20):
                await members[number % 2].send(str(number))
            await eventually(lambda: late.entries == members[0].entries == members[1].entries)
            await late.stop()


async def test_program_that_leaves_ends_its_fetch() -> None:
    async with connected_channels(2) as (helper, newcomer):
        busy = helper.subscribe()
        busy._is_in_hand = True
        helper.on_state("log", lambda: b"", reader=busy)
        await offered(newcomer)
        fetching = asyncio.ensure_future(newcomer.fetch_state("log", reader=newcomer.subscribe()))
        await eventually(lambda: busy._when_between is not None)
        await newcomer.leave()
        with pytest.raises(NotConnectedError):
            await fetching


async def test_failing_make_is_logged_and_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with connected_channels(2) as (helper, newcomer):
        empty: dict[str, bytes] = {}
        helper.on_state("log", lambda: empty["secret"], reader=helper.subscribe())
        await offered(newcomer)
        with pytest.raises(StateUnavailableError, match="KeyError") as unavailable:
            await newcomer.fetch_state("log", reader=newcomer.subscribe(), timeout_s=1)
        assert "secret" not in str(unavailable.value)
        assert "making the state 'log' failed" in caplog.text


async def test_wrong_arguments_of_state_are_rejected() -> None:
    async with connected_channels(2) as (channel, other):
        reader = channel.subscribe()
        with pytest.raises(TypeError, match="a subscription"):
            channel.on_state("x", lambda: b"", reader=channel)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="another channel"):
            await channel.fetch_state("x", reader=other.subscribe())
        with pytest.raises(TypeError, match="text"):
            channel.on_state(b"x", lambda: b"", reader=reader)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="1 to 256 bytes"):
            await channel.fetch_state("", reader=reader)
        with pytest.raises(TypeError, match="plain function"):
            channel.on_state("x", asyncio.sleep, reader=reader)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="bytes_max"):
            await channel.fetch_state("x", reader=reader, bytes_max="1")  # type: ignore[arg-type]
        fetching = asyncio.ensure_future(channel.fetch_state("x", reader=reader))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="already fetching"):
            await channel.fetch_state("x", reader=reader)
        with pytest.raises(StateUnavailableError):
            await fetching
        reader.close()
        with pytest.raises(NotConnectedError):
            channel.on_state("x", lambda: b"", reader=reader)


async def test_state_that_was_removed_is_no_longer_offered() -> None:
    async with connected_channels(2) as (helper, newcomer):
        reader = helper.subscribe()
        remove = helper.on_state("log", lambda: b"1", reader=reader)
        await offered(newcomer)
        helper.on_state("log", lambda: [b"2", b"3"], reader=reader)
        remove()  # the first one, which was replaced
        assert (await newcomer.fetch_state("log", reader=newcomer.subscribe())).data == b"23"
        helper.on_state("log", lambda: b"4", reader=reader)  # what was made before is not shared any longer
        assert (await newcomer.fetch_state("log", reader=newcomer.subscribe())).data == b"4"
        helper.on_state("log", None, reader=reader)
        await eventually(lambda: not any("St" in member.layers for member in newcomer.members()))
        with pytest.raises(StateUnavailableError, match="no member offers"):
            await newcomer.fetch_state("log", reader=newcomer.subscribe())


def test_synchronous_programs_fetch_and_serve() -> None:
    name = unique_name()
    with sync.connect(name, tls=False) as helper, sync.connect(name, tls=False) as newcomer:
        reader = helper.subscribe()
        helper.on_state("answer", lambda: b"42", reader=reader)
        own = newcomer.subscribe()
        wait_until(lambda: any("St" in member.layers for member in newcomer.members()))
        state = newcomer.fetch_state("answer", reader=own)
        assert state.data == b"42"
        assert state.peer_id == helper.peer_id
        helper.broadcast(b"next")
        assert own.receive(20).text == "next"
        assert own.position()[helper.peer_id] == 1
        with pytest.raises(TypeError, match="a subscription"):
            newcomer.fetch_state("answer", reader=newcomer)  # type: ignore[arg-type]
