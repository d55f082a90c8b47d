"""`Identifier`: tells the meters of a channel that a subscriber is here: at once, at an interval, and on leaving.

Identifications are direct requests to meters, not broadcasts: consumers may not broadcast, and 100,000 subscribers
would cost every member 28 messages a second at an interval of an hour. The connection is authenticated with the
subscriber's ticket, so a meter knows the name, whatever the identification says.
"""

import asyncio
import random
from contextlib import suppress

from broadloom.apps.delivery.entitlements import METER
from broadloom.apps.delivery.messages import METER_LAYER, Presence, PresenceState, encode
from broadloom.channel import Channel
from broadloom.errors import BroadloomError, NotConnectedError
from broadloom.protocol.roster.member import Member
from broadloom.wire import PeerId

METER_POLL_S = 0.5
"""How often an identifier looks for new meters, at the longest."""
JITTER = 0.1
"""Identifications come up to this part of the interval early, so that those of many subscribers spread out."""
ANSWER_S = 5.0
END_S = 1.0
"""Time for the last identification when leaving."""


class Schedule:
    """When to identify to whom. It has no IO."""

    def __init__(self, peer_id: int, topics: tuple[str, ...], plan: str, interval_s: float) -> None:
        self._peer_id = peer_id
        self._topics = topics
        self._plan = plan
        self._interval_s = interval_s
        self._number = 0
        self._due_at = 0.0
        self._informed: dict[PeerId, None] = {}
        """Meters that have the current identification."""

    def due(self, now: float, meters: list[Member], jitter: float) -> tuple[Presence, list[Member]]:
        """The current identification, and the meters that do not have it yet. `jitter` is from 0 to 1."""
        if now >= self._due_at:
            self._number += 1
            self._due_at = now + self._interval_s * (1 - JITTER * jitter)
            self._informed = {}
        waiting = [each for each in meters if each.peer_id not in self._informed]
        return self._presence(PresenceState.START if self._number == 1 else PresenceState.HERE), waiting

    def informed(self, meter: PeerId) -> None:
        self._informed[meter] = None

    def wait_s(self, now: float) -> float:
        return max(0.0, min(self._due_at - now, METER_POLL_S))

    def end(self) -> Presence:
        self._number += 1
        return self._presence(PresenceState.END)

    def _presence(self, state: PresenceState) -> Presence:
        return Presence(id=f"{self._peer_id:016x}-{self._number}", state=state, topics=self._topics, plan=self._plan)


class Identifier:
    def __init__(self, channel: Channel, topics: tuple[str, ...], plan: str, interval_s: float) -> None:
        self._channel = channel
        self._layer = channel.layer(METER_LAYER)
        self._schedule = Schedule(channel.peer_id, topics, plan, interval_s)

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        try:
            await self._channel.wait_for_roster(ANSWER_S)
        except TimeoutError:
            pass  # meters that are missing now are found later
        except NotConnectedError:
            return
        while True:
            presence, meters = self._schedule.due(clock(), self._meters(), random.random())
            for meter in meters:
                if await self._tell(meter, presence, ANSWER_S):
                    self._schedule.informed(meter.peer_id)
            await asyncio.sleep(self._schedule.wait_s(clock()))

    async def end(self) -> None:
        """Tell the meters that are here that the subscriber leaves. One that does not answer sees it in the roster."""
        presence = self._schedule.end()
        with suppress(TimeoutError, NotConnectedError):  # it may have joined only a moment ago
            await self._channel.wait_for_roster(END_S)
        await asyncio.gather(*(self._tell(meter, presence, END_S) for meter in self._meters()))

    def _meters(self) -> list[Member]:
        return [
            each
            for each in self._channel.members()
            if each.is_proven and each.name == METER and METER_LAYER in each.layers
        ]

    async def _tell(self, meter: Member, presence: Presence, timeout_s: float) -> bool:
        try:
            await self._layer.request(meter, encode(presence), timeout_s=timeout_s)
        except BroadloomError:
            return False
        return True
