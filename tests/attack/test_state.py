"""Members that lie when they are asked for state, and callers that ask too much."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from broadloom import Channel, RefusedError, RequestError, StateUnavailableError
from broadloom.protocol.requests.incoming import IncomingRequest
from broadloom.protocol.state import fetch, server
from broadloom.protocol.state.server import CONCURRENCY, SNAPSHOTS_MAX, WAITING_MAX, chunk_hash
from broadloom.wire.state_messages import (
    CHUNK_BYTES_MAX,
    CHUNKS_MAX,
    STATE_KIND,
    STATE_LAYER,
    ChunkQuery,
    StateManifest,
    StateQuery,
    decode_state,
    encode_state,
)
from tests.channel.joined import connected_channels
from tests.channel.test_state import offered
from tests.support import eventually

Lie = Callable[[StateQuery], bytes]
CHUNK = b"chunk"


def lie(channel: Channel, manifest: Lie, chunk: bytes = CHUNK) -> list[bytes]:
    """Offer state and answer falsely; returns the queries."""
    asked: list[bytes] = []

    def on_request(incoming: IncomingRequest) -> None:
        asked.append(incoming.data)
        query = decode_state(incoming.data)
        if isinstance(query, StateQuery):
            incoming.reply(manifest(query))
        elif isinstance(query, ChunkQuery):
            incoming.reply(chunk)
        incoming.done()

    channel._node.peer.requests.handlers.set(STATE_LAYER, on_request, CONCURRENCY)
    channel._node.peer.roster.set_layers((STATE_KIND,))
    return asked


def manifest_of(
    query: StateQuery, *, position: tuple[tuple[int, int], ...] | None = None, chunks: int = 1, size: int = len(CHUNK)
) -> bytes:
    listed = tuple((chunk_hash(CHUNK) if not each else each.to_bytes(16, "big"), size) for each in range(chunks))
    return encode_state(StateManifest(query.required if position is None else position, (), listed))


@asynccontextmanager
async def liar_and_honest() -> AsyncIterator[tuple[Channel, Channel, Channel]]:
    """A liar, an honest member that offers the state too, and a newcomer."""
    async with connected_channels(3) as (liar, honest, newcomer):
        honest.on_state("x", lambda: b"true", reader=honest.subscribe())
        await offered(newcomer)
        yield liar, honest, newcomer


def too_high(query: StateQuery) -> bytes:
    return manifest_of(query, position=tuple((author, 1 << 62) for author, _ in query.required))


def too_low(query: StateQuery) -> bytes:
    return manifest_of(query, position=tuple((author, sequence - 1) for author, sequence in query.required))


def too_many_chunks(_query: StateQuery) -> bytes:
    head = (4).to_bytes(4, "big") + bytes(8)
    return head + (CHUNKS_MAX + 1).to_bytes(4, "big") + bytes(20 * (CHUNKS_MAX + 1))


LIES: dict[str, tuple[Lie, bytes, str]] = {
    "position too high": (too_high, CHUNK, "have not arrived here"),
    "position too low": (too_low, CHUNK, "lacks messages"),
    "garbage": (lambda _query: b"\xff" * 100, CHUNK, "malformed manifest"),
    "a query as manifest": (encode_state, CHUNK, "not a manifest"),
    "too many chunks": (too_many_chunks, CHUNK, "malformed manifest"),
    "too large": (lambda query: manifest_of(query, chunks=5, size=CHUNK_BYTES_MAX), CHUNK, "at most 1,000,000"),
    "chunk without size": (lambda query: manifest_of(query, size=0), CHUNK, "size of a chunk"),
    "other chunk": (manifest_of, b"other", "does not match its hash"),
    "longer chunk": (manifest_of, bytes(4 << 20), "does not match its hash|larger"),
    "chunk of another size": (lambda query: manifest_of(query, size=3), CHUNK, "does not match its hash"),
}


@pytest.mark.parametrize("kind", LIES)
async def test_newcomer_does_not_use_false_state(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest, chunk, reason = LIES[kind]
    monkeypatch.setattr(fetch, "ARRIVAL_TIMEOUT_S", 0.1)
    async with liar_and_honest() as (liar, honest, newcomer):
        lie(liar, manifest, chunk)
        reader = newcomer.subscribe()
        await honest.broadcast(b"before")
        assert (await reader.receive(20)).data == b"before"
        await offered(newcomer, 2)
        state = await newcomer.fetch_state("x", reader=reader, helper=liar.peer_id, bytes_max=1_000_000)
        assert (state.data, state.peer_id) == (b"true", honest.peer_id)
        await honest.broadcast(b"after")
        assert (await reader.receive(20)).data == b"after"
        honest.on_state("x", None, reader=honest.subscribe())
        await offered(newcomer, 1)
        with pytest.raises(StateUnavailableError, match=reason) as unavailable:
            await newcomer.fetch_state("x", reader=reader, timeout_s=0.5, bytes_max=1_000_000)
        assert list(unavailable.value.reasons) == [liar.peer_id]


async def test_slow_liar_does_not_use_up_the_time() -> None:
    async with liar_and_honest() as (liar, honest, newcomer):
        asked = lie(liar, lambda query: manifest_of(query, chunks=50))
        handler = liar._node.peer.requests.handlers._by_layer[STATE_LAYER]
        original = handler.callback

        def on_request(incoming: IncomingRequest) -> None:
            if isinstance(decode_state(incoming.data), StateQuery):
                original(incoming)
            else:
                asked.append(incoming.data)  # and never answers

        handler.callback = on_request
        await offered(newcomer, 2)
        reader = newcomer.subscribe()
        state = await newcomer.fetch_state("x", reader=reader, helper=liar.peer_id, timeout_s=2)
        assert state.peer_id == honest.peer_id
        assert len(asked) == 1 + fetch.CHUNKS_IN_FLIGHT


# -- callers


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Channel, list[Channel], list[float]]]:
    """A member with state, callers, and the times when the state was made."""
    async with connected_channels(3) as (helper, *callers):
        made: list[float] = []

        def make() -> bytes:
            made.append(asyncio.get_running_loop().time())
            return b"state %d" % len(made)

        reader = helper.subscribe()
        helper.on_state("x", make, reader=reader)

        async def read() -> None:
            async for _ in reader:
                pass

        reading = asyncio.ensure_future(read())
        for caller in callers:
            await offered(caller)
        yield helper, callers, made
        reader.close()
        await reading


async def ask(caller: Channel, helper: Channel, data: bytes) -> bytes:
    return (await caller._request(helper.peer_id, data, STATE_LAYER, 20.0, None)).data


async def test_malformed_queries_are_refused() -> None:
    async with served() as (helper, (caller, _), made):
        query = encode_state(StateQuery("x", ()))
        manifest = encode_state(StateManifest((), (), ()))
        chunk = encode_state(ChunkQuery(bytes(16)))
        for data in (b"", b"\0\0\0\1", b"\xff" * 50, query[:-1], query + b"\0", manifest, chunk):
            with pytest.raises(RefusedError):
                await ask(caller, helper, data)
        assert not made
        assert await ask(caller, helper, query)


async def test_position_from_the_future_is_refused_without_making_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WAIT_S", 0.1)
    async with served() as (helper, (caller, _), made):
        query = encode_state(StateQuery("x", ((helper.peer_id, 1 << 63), *((each, 1) for each in range(20_000)))))
        with pytest.raises(RefusedError, match="not yet taken"):
            await ask(caller, helper, query)
        assert not made


async def test_many_queries_share_few_snapshots() -> None:
    async with served() as (helper, (caller, other), made):

        async def query(number: int) -> None:
            await ask(caller, helper, encode_state(StateQuery("x", ((caller.peer_id, number),) if number else ())))

        for _ in range(200):
            await query(0)
        assert len(made) == 1
        for number in range(1, 7):  # each requires a newer state
            caller.broadcast_nowait(b"tick")
            await query(number)
        assert all(later - earlier >= 0.9 * server.SNAPSHOT_PAUSE_S for earlier, later in pairwise(made))
        held = helper._state_server.snapshots  # type: ignore[union-attr]
        assert sum(caller.peer_id in snapshot.users for snapshot in held) == 1
        assert len(held) < SNAPSHOTS_MAX
        assert (await other.fetch_state("x", reader=other.subscribe())).data == b"state %d" % len(made)


async def test_callers_beyond_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WAIT_S", 60.0)
    async with served() as (helper, (caller, _), made):
        future = encode_state(StateQuery("x", ((caller.peer_id, 1),)))
        waiting = [asyncio.ensure_future(ask(caller, helper, future)) for _ in range(WAITING_MAX + 5)]
        await eventually(lambda: sum(each.done() for each in waiting) == 5)
        refused = [each.exception() for each in waiting if each.done()]
        assert all(isinstance(each, RefusedError) and each.status == "busy" for each in refused)
        caller.broadcast_nowait(b"tick")
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert sum(isinstance(answer, RequestError) for answer in answers) == 5
        assert len(made) == 1


async def test_chunk_is_given_only_to_the_caller_of_the_manifest() -> None:
    async with served() as (helper, (caller, other), _):
        manifest = decode_state(await ask(caller, helper, encode_state(StateQuery("x", ()))))
        assert isinstance(manifest, StateManifest)
        query = encode_state(ChunkQuery(manifest.chunks[0][0]))
        assert await ask(caller, helper, query) == b"state 1"
        with pytest.raises(RefusedError, match="not held"):
            await ask(other, helper, query)


async def test_unused_snapshots_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SNAPSHOT_KEEP_S", 0.1)
    monkeypatch.setattr(server, "SNAPSHOT_SHARE_S", 0.1)
    async with served() as (helper, (caller, _), _):
        await ask(caller, helper, encode_state(StateQuery("x", ())))
        held = helper._state_server
        assert held is not None
        assert len(held.snapshots) == 1
        await eventually(lambda: not held.snapshots)
