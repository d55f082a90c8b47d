"""A small channel of honest peers that talk all the time, while somebody attacks one of them.

Whatever the attack is, at its end each honest peer has had every message of all others once and in order, the links
among them are those of the beginning, and nothing has reached the event loop's exception handler.
"""

import asyncio
import functools
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

import broadloom
from broadloom.protocol import ChannelName
from broadloom.protocol.events import LinkDown, Message
from broadloom.protocol.peer import UNGRACEFUL_REASONS
from broadloom.security import PeerCredentials, Ticket
from broadloom.wire.link_messages import Digest
from tests.attack.attacker import Attacker

SEND_INTERVAL_S = 0.02
"""Each honest peer says something this often."""
DEADLINE_S = 15.0
MODES: dict[str, dict[str, Any]] = {"plain": {"tls": False}, "tls": {"signed": True}}
"""What `stage` is given for the two ways to connect."""
KEY = "a key that only members know"

problems: list[dict[str, Any]] = []
"""What reached the loop's exception handler."""


def async_test(attack: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Makes a test of a coroutine: with a loop of its own, in which no exception may go unheard."""

    @functools.wraps(attack)
    def test(*args: Any, **options: Any) -> None:
        problems.clear()

        async def recorded() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _loop, context: problems.append(context))
            await attack(*args, **options)

        asyncio.run(recorded())
        assert not problems, problems

    return test


async def wait_until(condition: Callable[[], Any], within_s: float | None = None, message: str = "") -> None:
    """Waits for a condition; fails after the deadline."""
    end = time.monotonic() + (within_s or DEADLINE_S)
    while not condition():
        assert time.monotonic() < end, message or "did not come about in time"
        await asyncio.sleep(0.01)


both_modes = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


class AttackHarness:
    """The honest peers, and all that is said among them."""

    def __init__(self, name: str, channels: Sequence[broadloom.Channel], options: dict[str, Any]) -> None:
        self.name = name
        self.channels = list(channels)
        self.options = options
        self.channel_id = ChannelName.parse(name).id
        self.attackers: list[Attacker] = []
        self.received: dict[int, list[Message]] = {channel.peer_id: [] for channel in channels}
        self.sent: dict[int, int] = dict.fromkeys(self.received, 0)
        self.broken_links: list[LinkDown] = []
        """Links between honest peers that ended without a word."""
        self.lag_s = 0.0
        """The longest time for which the loop was not free."""
        self.foreign_messages: list[Message] = []
        """What honest peers had from others than each other."""
        self._tasks: list[asyncio.Task[None]] = []
        for channel in self.channels:
            self._watch(channel)

    def _watch(self, channel: broadloom.Channel) -> None:
        got = self.received[channel.peer_id]

        def on_message(message: Message) -> None:
            (got if message.author in self.received else self.foreign_messages).append(message)

        def on_event(event: object) -> None:
            if (
                isinstance(event, LinkDown)
                and event.reason in UNGRACEFUL_REASONS
                and event.neighbor.peer_id in self.received
            ):
                self.broken_links.append(event)

        channel.on_message(on_message)
        channel.on_event(on_event)

    @property
    def victim(self) -> broadloom.Channel:
        return self.channels[0]

    @property
    def address(self) -> str:
        return self.victim.status().address

    def counter_total(self, name: str) -> int:
        """By all honest peers together."""
        return sum(channel.status().counters[name] for channel in self.channels)

    async def attack(self, credentials: PeerCredentials | None = None, **options: Any) -> Attacker:
        """A new line to the victim."""
        made = await Attacker.dial(self.address, credentials, channel_id=self.channel_id, **options)
        self.attackers.append(made)
        return made

    def member_credentials(self) -> PeerCredentials:
        """Somebody who has the key."""
        return PeerCredentials.from_key(ChannelName.parse(self.name), KEY)

    async def hostile_neighbor(
        self, credentials: PeerCredentials | None = None, digest: Digest | None = None
    ) -> Attacker:
        """A hostile member that the victim has taken as a neighbour."""
        tls = self.options.get("tls", True)
        made = await self.attack((credentials or self.member_credentials()) if tls else None)
        await made.become_neighbor(digest, signed=self.options.get("signed", False) or "ticket" in self.options)
        return made

    def is_neighbor(self, attacker: Attacker, channel: broadloom.Channel | None = None) -> bool:
        status = (channel or self.victim).status()
        return attacker.peer_id in {each.peer_id for each in status.neighbors}

    # -- honest traffic

    def links(self) -> set[tuple[int, int]]:
        """Among the honest."""
        honest = set(self.received)
        found = ((status.peer_id, each.peer_id) for status in self._statuses() for each in status.neighbors)
        return {(low, high) for low, high in found if low < high and high in honest}

    def _statuses(self) -> list[broadloom.Status]:
        return [channel.status() for channel in self.channels]

    def start_traffic(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._send_traffic(channel)) for channel in self.channels]
        self._tasks.append(loop.create_task(self._measure_lag()))

    async def wait_for_traffic(self, messages: int) -> None:
        """Wait until each honest peer has said so many more, in spite of everything."""
        before = dict(self.sent)
        await wait_until(
            lambda: all(said >= before[peer] + messages for peer, said in self.sent.items()), message="they fell silent"
        )

    async def _send_traffic(self, channel: broadloom.Channel) -> None:
        while True:
            self.sent[channel.peer_id] = await channel.broadcast(secrets.token_bytes(40))
            await asyncio.sleep(SEND_INTERVAL_S)

    async def _measure_lag(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            self.lag_s = max(self.lag_s, time.monotonic() - before - 0.01)

    async def stop_and_check(self, *, allow_missed: bool = False) -> None:
        """Honest traffic stops; all of it must have come to all. `allow_missed`: they may have been told otherwise."""
        for task in self._tasks:
            if task.done():
                task.result()  # an honest peer could not speak
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await wait_until(self._has_all, message=f"not all that was said has come: {self._received_counts()}")
        for channel in self.channels:
            for author in self.received:
                heard = [each.sequence for each in self.received[channel.peer_id] if each.author == author]
                assert heard == list(range(1, len(heard) + 1)), f"{author:016x} out of order, or twice"
            assert allow_missed or channel.missed_count == 0

    def _has_all(self) -> bool:
        for channel in self.channels:  # who was stopped in the middle of `broadcast` may have said one more
            self.sent[channel.peer_id] = max(self.sent[channel.peer_id], channel.status().counters["sent"])
        return self._received_counts() == {
            (listener, author): count
            for listener in self.received
            for author, count in self.sent.items()
            if author != listener
        }

    def _received_counts(self) -> dict[tuple[int, int], int]:
        return {
            (listener, author): sum(each.author == author for each in got)
            for listener, got in self.received.items()
            for author in self.received
            if author != listener
        }

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for attacker in self.attackers:
            attacker.close()
        for channel in self.channels:
            channel.abort()


def unique_name() -> str:
    return f"attack/{secrets.token_hex(8)}"


@asynccontextmanager
async def attack_harness(
    count: int = 3, *, tickets: Sequence[Ticket] = (), name: str = "", allow_missed: bool = False, **options: Any
) -> AsyncIterator[AttackHarness]:
    """Honest peers, each linked to each, that talk while the attack goes on and are examined at its end."""
    name = name or unique_name()
    if not tickets and options.get("tls", True):
        options.setdefault("key", KEY)
    channels: list[broadloom.Channel] = []
    made: AttackHarness | None = None
    try:
        for index in range(len(tickets) or count):
            given = {**options, "ticket": tickets[index]} if tickets else options
            channels.append(await broadloom.connect(name, **given))
        made = AttackHarness(name, channels, {**options, "ticket": True} if tickets else options)
        whole = len(channels) * (len(channels) - 1) // 2
        await wait_until(lambda: len(made.links()) == whole)
        at_first = made.links()
        made.start_traffic()
        yield made
        await made.stop_and_check(allow_missed=allow_missed)
        assert not made.broken_links, made.broken_links
        assert made.links() == at_first
    finally:
        if made is not None:
            made.close()
        for channel in channels:
            channel.abort()
        for _ in range(3):  # aborted sockets are closed in the next turns of the loop
            await asyncio.sleep(0)
