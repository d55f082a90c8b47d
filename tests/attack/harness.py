"""A small channel of honest peers that send all the time while one of them is attacked.

Whatever the attack is, at its end each honest peer has received every message of the others once and in order, and the
links among them are unchanged. `conftest.py` checks that nothing reached the exception handler of the event loop.
"""

import asyncio
import gc
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import broadloom
from broadloom.protocol import ChannelName
from broadloom.protocol.events import LinkDown, Message
from broadloom.protocol.identity import Role
from broadloom.protocol.peer import UNGRACEFUL_REASONS
from broadloom.security import Authority, PeerCredentials, Ticket
from broadloom.wire.link_messages import Digest
from tests.attack.attacker import Attacker
from tests.support import eventually

SEND_INTERVAL_S = 0.02
"""Interval between the messages of each honest peer."""
MODES: dict[str, dict[str, Any]] = {
    "plain": {"tls": False},
    "key": {},
    "signed": {"signed": True},
    "tickets": {"has_tickets": True},
}
"""Options of `attack_harness` for the ways to connect: without TLS; with a shared key, without and with signatures; and
with tickets, which includes signatures."""
KEY = "a key that only members know"


def _in_modes(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("mode", [MODES[name] for name in names], ids=names)


all_modes = _in_modes("plain", "signed", "tickets")
tls_modes = _in_modes("key", "signed", "tickets")
both_modes = _in_modes("plain", "signed")
"""For attacks below the level at which a shared key and a ticket differ."""
signed_modes = _in_modes("signed", "tickets")


def issue_ticket(owner: Authority, name: str, role: Role = Role.PRODUCER) -> Ticket:
    return owner.issue_ticket(name, role, datetime.now(UTC) + timedelta(days=1))


def issue_tickets(owner: Authority, count: int = 3) -> list[Ticket]:
    return [issue_ticket(owner, f"member {index}") for index in range(count)]


class AttackHarness:
    """The honest peers and all messages among them."""

    def __init__(
        self,
        name: str,
        channels: Sequence[broadloom.Channel],
        options: dict[str, Any],
        owner: Authority | None = None,
    ) -> None:
        self.name = name
        self.channels = list(channels)
        self.options = options
        self.owner = owner
        """The authority of the tickets, in the mode with tickets."""
        self.hostile_ticket = issue_ticket(owner, "eve") if owner is not None else None
        """The ticket of hostile members, in the mode with tickets."""
        self.channel_id = ChannelName.parse(name).id
        self.attackers: list[Attacker] = []
        self.received: dict[int, list[Message]] = {channel.peer_id: [] for channel in channels}
        self.sent: dict[int, int] = dict.fromkeys(self.received, 0)
        self.broken_links: list[LinkDown] = []
        """Links between honest peers that ended ungracefully."""
        self.lag_s = 0.0
        """The most processor time that the event loop took between two turns. Not the time that passed: that depends on
        what else the machine does."""
        self.foreign_messages: list[Message] = []
        """Messages of authors that are not among the honest peers."""
        self._tasks: list[asyncio.Task[None]] = []
        for channel in self.channels:
            self._watch(channel)

    def _watch(self, channel: broadloom.Channel) -> None:
        received = self.received[channel.peer_id]

        def on_message(message: Message) -> None:
            (received if message.author in self.received else self.foreign_messages).append(message)

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
        """Sum over all honest peers."""
        return sum(channel.status().counters[name] for channel in self.channels)

    async def attack(self, credentials: PeerCredentials | None = None, **options: Any) -> Attacker:
        """A new connection to the victim."""
        attacker = await Attacker.dial(self.address, credentials, channel_id=self.channel_id, **options)
        self.attackers.append(attacker)
        return attacker

    def member_credentials(self) -> PeerCredentials:
        """Credentials of a new session of a hostile member, which has the key or one ticket."""
        channel = ChannelName.parse(self.name)
        if self.hostile_ticket is not None:
            return PeerCredentials.from_ticket(channel, self.hostile_ticket)
        return PeerCredentials.from_key(channel, KEY)

    def newcomer_options(self) -> dict[str, Any]:
        """Options with which an honest newcomer connects."""
        if self.owner is not None:
            return {"ticket": issue_ticket(self.owner, "newcomer")}
        return {name: value for name, value in self.options.items() if name in ("tls", "key", "signed")}

    @property
    def is_signed(self) -> bool:
        return self.options.get("signed", False) or "ticket" in self.options

    async def hostile_neighbor(
        self, credentials: PeerCredentials | None = None, digest: Digest | None = None
    ) -> Attacker:
        """A hostile member that the victim accepted as a neighbor."""
        tls = self.options.get("tls", True)
        attacker = await self.attack((credentials or self.member_credentials()) if tls else None)
        await attacker.become_neighbor(digest, signed=self.is_signed)
        return attacker

    def is_neighbor(self, attacker: Attacker, channel: broadloom.Channel | None = None) -> bool:
        status = (channel or self.victim).status()
        return attacker.peer_id in {each.peer_id for each in status.neighbors}

    # -- honest traffic

    def links(self) -> set[tuple[int, int]]:
        """Links among the honest peers."""
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
        """Wait until each honest peer has sent this many more messages."""
        before = dict(self.sent)
        await eventually(
            lambda: all(count >= before[peer] + messages for peer, count in self.sent.items()), "honest traffic"
        )

    async def _send_traffic(self, channel: broadloom.Channel) -> None:
        while True:
            self.sent[channel.peer_id] = await channel.broadcast(secrets.token_bytes(40))
            await asyncio.sleep(SEND_INTERVAL_S)

    async def _measure_lag(self) -> None:
        gc.freeze()  # a full collection of what thousands of tests before this one have left takes most of a second
        try:
            while True:
                before = time.thread_time()
                await asyncio.sleep(0.01)
                self.lag_s = max(self.lag_s, time.thread_time() - before)
        finally:
            gc.unfreeze()

    async def stop_and_check(self) -> None:
        """Stop the honest traffic; all peers must have all of it, and report nothing as missed."""
        for task in self._tasks:
            if task.done():
                task.result()  # an honest peer could not send
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await eventually(self._has_all, lambda: f"delivery of all messages: {self._received_counts()}")
        for channel in self.channels:
            for author in self.received:
                sequences = [each.sequence for each in self.received[channel.peer_id] if each.author == author]
                assert sequences == list(range(1, len(sequences) + 1)), f"{author:016x} out of order, or twice"
            assert channel.missed_count == 0

    def _has_all(self) -> bool:
        for channel in self.channels:  # a cancelled `broadcast` may have sent one more
            self.sent[channel.peer_id] = max(self.sent[channel.peer_id], channel.status().counters["sent"])
        return self._received_counts() == {
            (listener, author): count
            for listener in self.received
            for author, count in self.sent.items()
            if author != listener
        }

    def _received_counts(self) -> dict[tuple[int, int], int]:
        return {
            (listener, author): sum(each.author == author for each in received)
            for listener, received in self.received.items()
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
    count: int = 3,
    *,
    tickets: Sequence[Ticket] = (),
    has_tickets: bool = False,
    name: str = "",
    **options: Any,
) -> AsyncIterator[AttackHarness]:
    """Honest peers in a full mesh that send during the attack and are checked at its end.

    `tickets`: of the honest peers. `has_tickets`: they, and hostile members, get tickets of a new authority.
    """
    name = name or unique_name()
    owner = Authority.generate() if has_tickets else None
    if owner is not None:
        tickets = issue_tickets(owner, count)
    if not tickets and options.get("tls", True):
        options.setdefault("key", KEY)
    channels: list[broadloom.Channel] = []
    harness: AttackHarness | None = None
    try:
        for index in range(len(tickets) or count):
            peer_options = {**options, "ticket": tickets[index]} if tickets else options
            channels.append(await broadloom.connect(name, **peer_options))
        harness = AttackHarness(name, channels, {**options, "ticket": True} if tickets else options, owner)
        link_count = len(channels) * (len(channels) - 1) // 2
        await eventually(lambda: len(harness.links()) == link_count)
        initial_links = harness.links()
        harness.start_traffic()
        yield harness
        await harness.stop_and_check()
        assert not harness.broken_links, harness.broken_links
        assert harness.links() == initial_links
    finally:
        if harness is not None:
            harness.close()
        for channel in channels:
            channel.abort()
        for _ in range(3):  # aborted sockets are closed in the next turns of the loop
            await asyncio.sleep(0)
