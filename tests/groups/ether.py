"""A broadcast medium for tests: no fabric beneath, so that many members cost little. Virtual time, adverse delays.

Each author's messages arrive in order, as over a channel, unless told otherwise: the groups must not rely on it.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from weft.groups.codec import decode
from weft.groups.events import GroupEvent
from weft.groups.history import Store
from weft.groups.names import GroupId, Message
from weft.groups.participant import Participant
from weft.groups.settings import Settings
from weft.sim.clock import Clock

Delay = Callable[[Random], float]


def usual(random: Random) -> float:
    """As in a fabric of a few hundred peers."""
    return 0.05 + random.expovariate(1 / 0.05)


class Timer:
    def __init__(self, owner: "EtherMember", act: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._owner, self._act, self._args = owner, act, args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def fire(self) -> None:
        if not self.cancelled and self._owner.alive:
            self._act(*self._args)


class EtherMember:
    """A medium, the participant in it, and what its application saw."""

    def __init__(
        self, ether: "Ether", name: str, peer: int, store: Store | None, settings: Settings | None, random: Random
    ) -> None:
        self.ether = ether
        self.random = random
        self.me = peer
        self.is_busy = False
        self.few: int | None = None
        self.alive = True
        self.side = 0
        self.delivered: list[Message] = []
        self.events: list[GroupEvent] = []
        self.participant = Participant(self, name, store, settings)

    def now(self) -> float:
        return self.ether.clock.now

    def wall_s(self) -> float:
        return 1_767_225_600.0 + self.ether.clock.now

    def after(self, delay_s: float, act: Callable[..., None], *args: Any) -> Timer:
        timer = Timer(self, act, args)
        self.ether.clock.at(self.ether.clock.now + delay_s, timer.fire)
        return timer

    def proven_name(self, peer: int) -> str:
        return ""

    def broadcast(self, data: bytes) -> None:
        self.ether.carry(self, data)

    def deliver(self, message: Message) -> None:
        self.delivered.append(message)

    def tell(self, event: GroupEvent) -> None:
        self.events.append(event)

    # -- for tests

    def told(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def says(self, group: GroupId, text: str, to: Message | None = None) -> Message:
        return self.participant.post(group, text.encode(), to.id if to is not None else None)

    def texts(self, group: GroupId | None = None) -> list[str]:
        return [each.text for each in self.delivered if group in (None, each.group)]

    def tree(self, group: GroupId) -> dict[Any, Any]:
        return {each.id: each.parent for each in self.delivered if each.group == group}


class Ether:
    def __init__(self, seed: int = 0, delay: Delay = usual, *, in_order: bool = True) -> None:
        self.random = Random(seed)
        self.clock = Clock()
        self.members: list[EtherMember] = []
        self.delay = delay
        self.sent: list[tuple[float, str, str, int]] = []
        """Time, who, kind, bytes."""
        self._peers = 0
        self._in_order = in_order
        self._latest: dict[tuple[int, int], float] = {}

    def add(
        self,
        name: str,
        store: Store | None = None,
        settings: Settings | None = None,
        *,
        random: Random | None = None,
        arrives: bool = True,
    ) -> EtherMember:
        self._peers += 1
        member = EtherMember(self, name, self._peers, store, settings, random or Random(self.random.getrandbits(64)))
        self.members.append(member)
        if arrives:
            member.participant.arrive()
        return member

    def carry(self, sender: EtherMember, data: bytes) -> None:
        now = self.clock.now
        self.sent.append((now, sender.participant.me.name, type(decode(data)).__name__, len(data)))
        for other in self.members:
            if other is not sender and other.alive and other.side == sender.side:
                at = now + self.delay(self.random)
                if self._in_order:
                    at = self._latest[sender.me, other.me] = max(at, self._latest.get((sender.me, other.me), 0.0))
                self.clock.at(at, self._arrive, other, sender.me, data)

    def _arrive(self, other: EtherMember, peer: int, data: bytes) -> None:
        if other.alive:
            other.participant.on_message(peer, data)

    def run(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now + seconds)

    def depart(self, member: EtherMember) -> None:
        """It disconnects in good order."""
        member.participant.depart()
        self._gone(member)

    def kill(self, member: EtherMember) -> None:
        self._gone(member)

    def _gone(self, member: EtherMember) -> None:
        member.alive = False
        self.members.remove(member)

    def count(self, since: float = 0.0) -> Counter[str]:
        """Messages by kind since a time."""
        return Counter(kind for at, _, kind, _ in self.sent if at >= since)

    def said_by(self, name: str, since: float = 0.0) -> list[str]:
        return [kind for at, who, kind, _ in self.sent if who == name and at >= since]
