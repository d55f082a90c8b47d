"""`Meter`: records who is connected to which topic, and which ads are shown, to a tape. The pipeline makes bills of it.

A meter joins the channels of all topics that it is to meter. It writes identifications under the name and serial on the
ticket of the connection that they arrive on, so a forged name is never recorded. Several meters record the same facts:
the pipeline counts each once.
"""

import asyncio
import os
import random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from broadloom.apps.delivery.entry import Entry
from broadloom.apps.delivery.membership import Connection, Membership, MembershipState
from broadloom.apps.delivery.messages import (
    METER_LAYER,
    Action,
    Audience,
    AudienceQuery,
    Presence,
    PresenceState,
    decode,
    encode,
)
from broadloom.apps.delivery.service import Service
from broadloom.channel import Channel
from broadloom.channel.direct_request import DirectRequest
from broadloom.errors import BroadloomError, RefusedError
from broadloom.protocol import ChannelName
from broadloom.protocol.identity import Identity
from broadloom.protocol.owner.card import SecurityLevel
from broadloom.security import Ticket
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.record import Recorder, Tape

CONCURRENCY = 256
RETRY_S = 1.0
PRUNE_MIN = 1_000
"""Identifications in memory before those of members that are gone are looked for."""


class Meter:
    """Use it with `async with`. `ticket` is one of the directory, issued to the name `meter`; `tape` a directory, or a
    `Tape` that stays open. `patterns` select the topics."""

    def __init__(
        self,
        name: str,
        ticket: str | os.PathLike[str] | Ticket,
        tape: "Tape | str | os.PathLike[str]",
        *,
        patterns: tuple[str, ...] = ("**",),
        **options: Any,
    ) -> None:
        self.service = Service(name, ticket, **options)
        self.identification_count = 0
        self._patterns = patterns
        self._tape_given = tape
        self._memberships: dict[str, Membership] = {}
        self._follower: asyncio.Task[None] | None = None
        self._directory_changed = asyncio.Event()

    @property
    def topics(self) -> dict[str, str]:
        """The state of each entry that is metered."""
        return {path: str(each) for path, each in sorted(self._memberships.items())}

    async def __aenter__(self) -> Self:
        from broadloom.record import Tape  # needs the extra `record`

        given = self._tape_given
        self._tape = given if isinstance(given, Tape) else Tape(os.fspath(given))
        try:
            await self.service.__aenter__()
        except BaseException:
            await self._close_tape()
            raise
        layer = self.service.channel.layer(METER_LAYER, on_batch=_ignore)
        layer.on_request(self._on_audience_query, concurrency=CONCURRENCY)
        self.service._open[self] = None
        self.service.directory.on_change(self._directory_changed.set)
        self._directory_changed.set()
        self._follower = asyncio.get_running_loop().create_task(self._follow())
        return self

    def audience(self, topic: str) -> frozenset[str] | None:
        """The names of the subscribers that are connected to a topic now; None if it is not metered here."""
        return self._audiences((topic,)).get(topic)

    def _audiences(self, topics: tuple[str, ...]) -> dict[str, frozenset[str]]:
        by_connection: dict[_Connection, set[str]] = {}
        for topic in topics:
            found = self.service.directory.topic(topic)
            membership = self._memberships.get(found.entry.path) if found is not None else None
            if membership is not None and isinstance(membership.connection, _Connection):
                by_connection.setdefault(membership.connection, set()).add(topic)
        return {
            topic: names
            for connection, wanted in by_connection.items()
            for topic, names in connection.audiences(wanted).items()
        }

    def _on_audience_query(self, request: DirectRequest) -> bytes:
        """Every member of the directory may know how many there are, but not who."""
        try:
            asked = decode(AudienceQuery, request.data)
        except ValueError as problem:
            raise RefusedError(str(problem)) from None
        found = self._audiences(asked.topics)
        return encode(Audience(counts={topic: len(names) for topic, names in found.items()}))

    async def wait_until_metering(self, *paths: str, timeout_s: float = 30.0) -> None:
        """Wait until the channels of these topics are joined. Raises `TimeoutError`."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._is_metering(paths):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise TimeoutError(f"{', '.join(paths)}: not metered within {timeout_s:g} s") from None

    def _is_metering(self, paths: tuple[str, ...]) -> bool:
        topics = [topic for path in paths for topic in self.service.topics(path)]
        states = [self._memberships.get(topic.entry.path) for topic in topics]
        return bool(topics) and all(each is not None and each.state is MembershipState.CONNECTED for each in states)

    async def _follow(self) -> None:
        while True:
            await self._directory_changed.wait()
            self._directory_changed.clear()
            try:
                await self._join_new()
            except BroadloomError:
                await asyncio.sleep(random.uniform(0.5, 1) * RETRY_S)
                self._directory_changed.set()

    async def _join_new(self) -> None:
        entries = {
            topic.entry.path: topic.entry
            for pattern in self._patterns
            for topic in self.service.topics(pattern)
            if topic.entry.offer.level is SecurityLevel.TICKETS
        }
        new = [path for path in entries if path not in self._memberships]
        if not new:
            return
        for grant in await self.service._grants(Action.METER, new, "", None):
            membership = self._memberships[grant.path] = self._membership(entries[grant.path])
            membership.begin(grant)

    def _membership(self, entry: Entry) -> Membership:
        tape = _CapturingTape(self._tape)

        def make(channel: Channel) -> Connection:
            return _Connection(self, channel, entry, tape.recorder)

        return Membership(self.service, entry, Action.METER, make, tape=tape, stops_first=False)

    async def aclose(self) -> None:
        self.service._open.pop(self, None)
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)
        await asyncio.gather(*(each.end() for each in self._memberships.values()))

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
        await self.service.__aexit__(kind, problem, trace)
        await self._close_tape()

    async def _close_tape(self) -> None:
        if self._tape is not self._tape_given:
            await asyncio.to_thread(self._tape.close)


class _CapturingTape:
    """Hands a recorder to the channel, and keeps it: a meter writes rows of its own."""

    def __init__(self, tape: "Tape") -> None:
        self._tape = tape
        self.recorder: Recorder

    def observer(
        self, channel: ChannelName, me: PeerId, *, name: str = "", identity: Identity | None = None
    ) -> "Recorder":
        self.recorder = self._tape.observer(channel, me, name=name, identity=identity)
        return self.recorder


class _Connection:
    def __init__(self, meter: Meter, channel: Channel, entry: Entry, recorder: "Recorder") -> None:
        self.channel = channel
        self._meter = meter
        self._entry = entry
        self._recorder = recorder
        self._identified: dict[PeerId, Presence] = {}
        """The last identification of each member that is connected."""
        self._prune_at = PRUNE_MIN
        channel.on_message(_ignore)  # the tape has the messages
        layer = channel.layer(METER_LAYER, on_batch=_ignore)
        layer.on_request(self._on_request, concurrency=CONCURRENCY)

    def _on_request(self, request: DirectRequest) -> bytes:
        identity = request.identity
        if identity is None or not identity.ticket_serial:
            raise RefusedError("a meter records holders of tickets only")
        try:
            presence = decode(Presence, request.data)
        except ValueError as problem:
            raise RefusedError(str(problem)) from None
        if unknown := [topic for topic in presence.topics if topic not in self._entry.offer.topics]:
            raise RefusedError(f"{unknown[0]} is not a topic of {self._entry.path}")
        attributes = {"id": presence.id, "state": presence.state.value}
        for topic in presence.topics:
            self._recorder.identification(
                identity.name, request.peer_id, topic=topic, attributes=attributes, identity=identity
            )
        self._meter.identification_count += 1
        if presence.state is PresenceState.END:
            self._identified.pop(request.peer_id, None)
        else:
            self._identified[request.peer_id] = presence
            if len(self._identified) >= self._prune_at:
                self._prune_at = max(PRUNE_MIN, 2 * len(self._present()))
        return b""

    def audiences(self, topics: set[str]) -> dict[str, frozenset[str]]:
        """One pass over the members, however many topics are asked for."""
        present = self._present()
        found: dict[str, set[str]] = {topic: set() for topic in topics}
        for peer_id, each in self._identified.items():
            for topic in topics.intersection(each.topics):
                found[topic].add(present[peer_id])
        return {topic: frozenset(names) for topic, names in found.items()}

    def _present(self) -> dict[PeerId, str]:
        """The names of the members; identifications of others are forgotten."""
        present = {each.peer_id: each.name for each in self.channel.members()}
        self._identified = {peer_id: each for peer_id, each in self._identified.items() if peer_id in present}
        return present

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        await self.channel.leave()


def _ignore(_what: Any) -> None:
    pass
