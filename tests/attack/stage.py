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

import weft
from tests.attack.attacker import Attacker
from weft.fabric import ChannelName
from weft.fabric.events import LinkDown, Message
from weft.fabric.peer import TORN
from weft.security import Membership, Ticket
from weft.wire.links import Greeting

TALK_S = 0.02
"""Each honest peer says something this often."""
DEADLINE_S = 15.0
MODES: dict[str, dict[str, Any]] = {"plain": {"plain": True}, "tls": {"signed": True}}
"""What `stage` is given for the two ways to connect."""
KEY = "a key that only members know"

problems: list[dict[str, Any]] = []
"""What reached the loop's exception handler."""


def over_sockets(attack: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
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


async def eventually(holds: Callable[[], Any], within_s: float | None = None, what: str = "") -> None:
    """Waits for a condition; fails after the deadline."""
    end = time.monotonic() + (within_s or DEADLINE_S)
    while not holds():
        assert time.monotonic() < end, what or "did not come about in time"
        await asyncio.sleep(0.01)


both_modes = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


class Stage:
    """The honest peers, and all that is said among them."""

    def __init__(self, name: str, channels: Sequence[weft.Channel], options: dict[str, Any]) -> None:
        self.name = name
        self.channels = list(channels)
        self.options = options
        self.channel_id = ChannelName.parse(name).id
        self.attackers: list[Attacker] = []
        self.got: dict[int, list[Message]] = {channel.peer: [] for channel in channels}
        self.said: dict[int, int] = dict.fromkeys(self.got, 0)
        self.torn: list[LinkDown] = []
        """Links between honest peers that ended without a word."""
        self.lag_s = 0.0
        """The longest time for which the loop was not free."""
        self.strangers_heard: list[Message] = []
        """What honest peers had from others than each other."""
        self._talking: list[asyncio.Task[None]] = []
        for channel in self.channels:
            self._watch(channel)

    def _watch(self, channel: weft.Channel) -> None:
        got = self.got[channel.peer]

        def on_message(message: Message) -> None:
            (got if message.author in self.got else self.strangers_heard).append(message)

        def on_event(event: object) -> None:
            if isinstance(event, LinkDown) and event.why in TORN and event.neighbour.peer in self.got:
                self.torn.append(event)

        channel.on_message(on_message)
        channel.on_event(on_event)

    @property
    def victim(self) -> weft.Channel:
        return self.channels[0]

    @property
    def address(self) -> str:
        return self.victim.status().address

    def counted(self, name: str) -> int:
        """By all honest peers together."""
        return sum(channel.status().counters[name] for channel in self.channels)

    async def attack(self, membership: Membership | None = None, **options: Any) -> Attacker:
        """A new line to the victim."""
        made = await Attacker.dial(self.address, membership, channel_id=self.channel_id, **options)
        self.attackers.append(made)
        return made

    def member(self) -> Membership:
        """Somebody who has the key."""
        return Membership.from_key(ChannelName.parse(self.name), KEY)

    async def neighbour(self, membership: Membership | None = None, greeting: Greeting | None = None) -> Attacker:
        """A hostile member that the victim has taken as a neighbour."""
        plain = self.options.get("plain", False)
        made = await self.attack(None if plain else membership or self.member())
        await made.become_neighbour(greeting, signed=self.options.get("signed", False) or "ticket" in self.options)
        return made

    def is_neighbour(self, attacker: Attacker, channel: weft.Channel | None = None) -> bool:
        status = (channel or self.victim).status()
        return f"{attacker.peer:016x}" in {each.peer for each in status.neighbours}

    # -- honest traffic

    def links(self) -> set[tuple[str, str]]:
        """Among the honest."""
        honest = {f"{peer:016x}" for peer in self.got}
        found = ((status.peer, each.peer) for status in self._statuses() for each in status.neighbours)
        return {(low, high) for low, high in found if low < high and high in honest}

    def _statuses(self) -> list[weft.Status]:
        return [channel.status() for channel in self.channels]

    def begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._talking = [loop.create_task(self._talk(channel)) for channel in self.channels]
        self._talking.append(loop.create_task(self._measure()))

    async def talk_goes_on(self, messages: int) -> None:
        """Wait until each honest peer has said so many more, in spite of everything."""
        before = dict(self.said)
        await eventually(
            lambda: all(said >= before[peer] + messages for peer, said in self.said.items()), what="they fell silent"
        )

    async def _talk(self, channel: weft.Channel) -> None:
        while True:
            self.said[channel.peer] = await channel.broadcast(secrets.token_bytes(40))
            await asyncio.sleep(TALK_S)

    async def _measure(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            self.lag_s = max(self.lag_s, time.monotonic() - before - 0.01)

    async def end(self, *, may_miss: bool = False) -> None:
        """Honest traffic stops; all of it must have come to all. `may_miss`: they may have been told otherwise."""
        for task in self._talking:
            if task.done():
                task.result()  # an honest peer could not speak
            task.cancel()
        await asyncio.gather(*self._talking, return_exceptions=True)
        await eventually(self._has_all, what=f"not all that was said has come: {self._account()}")
        for channel in self.channels:
            for author in self.got:
                heard = [each.sequence for each in self.got[channel.peer] if each.author == author]
                assert heard == list(range(1, len(heard) + 1)), f"{author:016x} out of order, or twice"
            assert may_miss or channel.missed == 0

    def _has_all(self) -> bool:
        for channel in self.channels:  # who was stopped in the middle of `broadcast` may have said one more
            self.said[channel.peer] = max(self.said[channel.peer], channel.status().counters["sent"])
        return self._account() == {
            (listener, author): count
            for listener in self.got
            for author, count in self.said.items()
            if author != listener
        }

    def _account(self) -> dict[tuple[int, int], int]:
        return {
            (listener, author): sum(each.author == author for each in got)
            for listener, got in self.got.items()
            for author in self.got
            if author != listener
        }

    def close(self) -> None:
        for task in self._talking:
            task.cancel()
        for attacker in self.attackers:
            attacker.close()
        for channel in self.channels:
            channel.vanish()


def unique_name() -> str:
    return f"attack/{secrets.token_hex(8)}"


@asynccontextmanager
async def stage(
    count: int = 3, *, tickets: Sequence[Ticket] = (), name: str = "", may_miss: bool = False, **options: Any
) -> AsyncIterator[Stage]:
    """Honest peers, each linked to each, that talk while the attack goes on and are examined at its end."""
    name = name or unique_name()
    if not tickets and not options.get("plain"):
        options.setdefault("key", KEY)
    channels: list[weft.Channel] = []
    made: Stage | None = None
    try:
        for index in range(len(tickets) or count):
            given = {**options, "ticket": tickets[index]} if tickets else options
            channels.append(await weft.connect(name, **given))
        made = Stage(name, channels, {**options, "ticket": True} if tickets else options)
        whole = len(channels) * (len(channels) - 1) // 2
        await eventually(lambda: len(made.links()) == whole)
        at_first = made.links()
        made.begin()
        yield made
        await made.end(may_miss=may_miss)
        assert not made.torn, made.torn
        assert made.links() == at_first
    finally:
        if made is not None:
            made.close()
        for channel in channels:
            channel.vanish()
        for _ in range(3):  # aborted sockets are closed in the next turns of the loop
            await asyncio.sleep(0)
