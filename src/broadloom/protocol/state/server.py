"""`StateServer`: answers newcomers that ask for state.

A snapshot is made between two messages of the application, so that it is the state of one position, and only when that
position includes what the newcomer requires. Newcomers that ask at the same time share a snapshot. Whatever a caller
asks, snapshots are limited in number and rate.
"""

import math
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING

from broadloom.protocol.state.stream_tracker import Position, StreamTracker, covers
from broadloom.wire import WireError
from broadloom.wire.direct_messages import RequestStatus
from broadloom.wire.state_messages import (
    CHUNK_BYTES_MAX,
    CHUNK_HASH_BYTES,
    CHUNKS_MAX,
    MISSED_RANGES_MAX,
    ChunkQuery,
    StateManifest,
    StateQuery,
    StateRelease,
    decode_state,
    encode_state,
)

if TYPE_CHECKING:
    from broadloom.protocol.requests.incoming import IncomingRequest
    from broadloom.protocol.runtime import Runtime, Timer
    from broadloom.wire import PeerId

CONCURRENCY = 64
"""Requests handled at a time. More than may wait, so that those for chunks get through."""
WAITING_MAX = 32
"""Callers that wait for a snapshot; others get BUSY."""
WAIT_S = 5.0
"""How long a caller waits until this member has taken what the caller requires. Then another member may be faster."""
POLL_S = 0.05
"""How often that is checked, while a caller waits."""
SNAPSHOTS_MAX = 4
"""Snapshots held for callers that fetch their chunks."""
SNAPSHOT_KEEP_S = 10.0
"""A snapshot is dropped if no chunk was requested for this long."""
SNAPSHOT_SHARE_S = 1.0
"""A snapshot is given to further callers for this long, and no new one is made, if it contains what they require."""
SNAPSHOT_PAUSE_S = 0.25
"""Minimum time between two snapshots, so that callers cannot keep the application busy."""


def chunk_hash(chunk: bytes) -> bytes:
    return blake2b(chunk, digest_size=CHUNK_HASH_BYTES).digest()


class _Snapshot:
    __slots__ = ("chunks", "made_at", "manifest", "name", "position", "used_at", "users")

    def __init__(self, name: str, data: bytes, position: Position, missed: Iterable[tuple[int, int, int]], now: float):
        self.name = name
        self.position = position
        self.made_at = self.used_at = now
        self.users: dict[PeerId, None] = {}
        pieces = [data[start : start + CHUNK_BYTES_MAX] for start in range(0, len(data), CHUNK_BYTES_MAX)]
        self.chunks = {chunk_hash(piece): piece for piece in pieces}
        listed = tuple((chunk_hash(piece), len(piece)) for piece in pieces)
        ranges = tuple(missed)[-MISSED_RANGES_MAX:]
        self.manifest = encode_state(StateManifest(tuple(sorted(position.items())), ranges, listed))


class _Waiting:
    __slots__ = ("deadline_at", "incoming", "required")

    def __init__(self, incoming: "IncomingRequest", required: Position, deadline_at: float) -> None:
        self.incoming = incoming
        self.required = required
        self.deadline_at = deadline_at

    def refuse(self, status: RequestStatus, text: str) -> None:
        self.incoming.refuse(status, text)
        self.incoming.done()


class StateOffer:
    """One named state of this program, and who waits for it."""

    def __init__(self, server: "StateServer", name: str, make: Callable[[], bytes], reader: StreamTracker) -> None:
        self.name = name
        self._server = server
        self._make = make
        self._reader = reader
        self._waiting: list[_Waiting] = []
        self._is_due = False
        """The reader will call `_make_snapshot`."""
        self._make_again_at = 0.0
        self._timer: Timer | None = None

    def add(self, incoming: "IncomingRequest", required: Position) -> None:
        if len(self._waiting) >= WAITING_MAX:
            incoming.refuse(RequestStatus.BUSY, f"{WAITING_MAX} members wait for this state")
            incoming.done()
            return
        incoming.on_cancel = incoming.done
        deadline_at = min(incoming.deadline_at, self._server.runtime.now() + WAIT_S)
        self._waiting.append(_Waiting(incoming, required, deadline_at))
        self._advance()

    def close(self) -> None:
        self._refuse_all(RequestStatus.NO_HANDLER, "the state is no longer offered")
        self._stop_timer()

    def _advance(self) -> None:
        """Answer whom the last snapshot serves; have another made if that serves somebody."""
        now = self._server.runtime.now()
        self._waiting = [each for each in self._waiting if not each.incoming.is_done]
        self._answer(self._server.newest(self.name, now - SNAPSHOT_SHARE_S))
        for each in self._waiting:
            if now >= each.deadline_at:
                each.refuse(RequestStatus.REFUSED, "this member has not yet taken what the caller requires")
        self._waiting = [each for each in self._waiting if not each.incoming.is_done]
        if self._waiting and not self._is_due and now >= self._make_again_at and self._serves(self._reader.position()):
            self._is_due = True
            self._reader.when_between(self._make_snapshot)
        if not self._waiting:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self._server.runtime.call_later(POLL_S, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._advance()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _serves(self, position: Position) -> bool:
        return any(covers(position, each.required) for each in self._waiting if not each.incoming.is_done)

    def _make_snapshot(self) -> None:
        self._is_due = False
        position = self._reader.position()
        if not self._serves(position):
            return  # the caller has given up; or went back, if messages given up as lost arrived after all
        now = self._server.runtime.now()
        self._make_again_at = now + SNAPSHOT_PAUSE_S
        if not self._server.has_room(now):
            self._refuse_all(RequestStatus.BUSY, f"{SNAPSHOTS_MAX} snapshots are being fetched")
            return
        try:
            data = self._make()
        except Exception as problem:
            self._refuse_all(RequestStatus.FAILED, type(problem).__name__)
            return
        if len(data) > CHUNK_BYTES_MAX * CHUNKS_MAX:
            self._refuse_all(RequestStatus.TOO_LARGE, f"the state has {len(data):,} bytes")
            return
        snapshot = _Snapshot(self.name, data, position, self._reader.missed(), now)
        self._answer(snapshot)
        self._server.add(snapshot)

    def _answer(self, snapshot: _Snapshot | None) -> None:
        if snapshot is None:
            return
        for each in self._waiting:
            if not each.incoming.is_done and covers(snapshot.position, each.required):
                snapshot.users[each.incoming.peer_id] = None
                snapshot.used_at = self._server.runtime.now()
                each.incoming.reply(snapshot.manifest)
                each.incoming.done()

    def _refuse_all(self, status: RequestStatus, text: str) -> None:
        for each in self._waiting:
            if not each.incoming.is_done:
                each.refuse(status, text)


class StateServer:
    """The states that one program offers."""

    def __init__(self, runtime: "Runtime") -> None:
        self.runtime = runtime
        self._offers: dict[str, StateOffer] = {}
        self.snapshots: list[_Snapshot] = []
        """In the order in which they were made."""
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._offers)

    def offer(self, name: str, make: Callable[[], bytes], reader: StreamTracker) -> StateOffer:
        self.withdraw(name)
        offer = self._offers[name] = StateOffer(self, name, make, reader)
        return offer

    def has(self, offer: StateOffer) -> bool:
        return self._offers.get(offer.name) is offer

    def withdraw(self, name: str) -> None:
        offer = self._offers.pop(name, None)
        if offer is None:
            return
        offer.close()
        for snapshot in self.snapshots:
            if snapshot.name == name:
                snapshot.made_at = -math.inf  # for those that are fetching it, and for nobody else

    def close(self) -> None:
        for name in list(self._offers):
            self.withdraw(name)
        self.snapshots.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_request(self, incoming: "IncomingRequest") -> None:
        """The handler of the layer."""
        try:
            message = decode_state(incoming.data)
        except WireError as problem:
            incoming.refuse(RequestStatus.REFUSED, str(problem))
            incoming.done()
            return
        match message:
            case StateQuery(name, required) if name in self._offers:
                self._release(name, incoming.peer_id)
                self._offers[name].add(incoming, dict(required))
                return
            case StateQuery(name):
                incoming.refuse(RequestStatus.NO_HANDLER, f"no state {name!r} here (channel.on_state)")
            case ChunkQuery(digest):
                self._send_chunk(incoming, digest)
            case StateRelease(name):
                self._release(name, incoming.peer_id)
            case _:
                incoming.refuse(RequestStatus.REFUSED, "not a query")
        incoming.done()

    def _send_chunk(self, incoming: "IncomingRequest", digest: bytes) -> None:
        for snapshot in self.snapshots:
            if incoming.peer_id in snapshot.users and digest in snapshot.chunks:
                snapshot.used_at = self.runtime.now()
                incoming.reply(snapshot.chunks[digest])
                return
        incoming.refuse(RequestStatus.REFUSED, "this chunk is not held: ask for the state again")

    def _release(self, name: str, caller: "PeerId") -> None:
        """A caller has one snapshot at a time, so that one caller cannot occupy all."""
        for snapshot in self.snapshots:
            if snapshot.name == name:
                snapshot.users.pop(caller, None)
        self._expire(self.runtime.now())

    def newest(self, name: str, made_since: float) -> _Snapshot | None:
        """The last snapshot of this state, if it is fresh enough to be shared."""
        for snapshot in reversed(self.snapshots):
            if snapshot.name == name:
                return snapshot if snapshot.made_at >= made_since else None
        return None

    def add(self, snapshot: _Snapshot) -> None:
        self.snapshots.append(snapshot)
        self._expire(snapshot.made_at)

    def has_room(self, now: float) -> bool:
        self._expire(now)
        return len(self.snapshots) < SNAPSHOTS_MAX

    def _expire(self, now: float) -> None:
        newest = {each.name: each for each in self.snapshots}
        self.snapshots = [
            each
            for each in self.snapshots
            if (each.users and now - each.used_at < SNAPSHOT_KEEP_S)
            or (newest[each.name] is each and now - each.made_at < SNAPSHOT_SHARE_S)
        ]
        if self.snapshots and self._timer is None:
            self._timer = self.runtime.call_later(SNAPSHOT_SHARE_S, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._expire(self.runtime.now())
