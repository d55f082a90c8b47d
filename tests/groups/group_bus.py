"""A broadcast bus for tests, without a fabric, so that many members are cheap. Virtual time and adverse delays.

Messages of one author arrive in order, as on a channel, unless `in_order=False`: groups must not rely on it.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from broadloom.groups.codec import decode
from broadloom.groups.model import GroupEvent, GroupId, GroupMessage
from broadloom.groups.participant import Participant
from broadloom.groups.proofs import PostSigner
from broadloom.groups.settings import GroupSettings
from broadloom.groups.store import Store
from broadloom.testing.sim.virtual_clock import VirtualClock

Delay = Callable[[Random], float]

QUICK_GROUPS = GroupSettings(
    reply_window_s=0.2, page_timeout_s=0.4, presence_interval_s=0.5, suspicion_timeout_s=0.4, parent_request_delay_s=0.2
)
"""For tests over real sockets."""


def typical_delay(random: Random) -> float:
    """As in a fabric of a few hundred peers."""
    return 0.05 + random.expovariate(1 / 0.05)


class BusTimer:
    def __init__(self, owner: "BusMember", callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._owner, self._callback, self._args = owner, callback, args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def fire(self) -> None:
        if not self.cancelled and self._owner.is_alive:
            self._callback(*self._args)


class BusMember:
    """A runtime, its participant, and everything its application sees: events, messages received and messages sent."""

    def __init__(
        self,
        bus: "GroupBus",
        name: str,
        peer_id: int,
        store: Store | None,
        settings: GroupSettings | None,
        random: Random,
    ) -> None:
        self.bus = bus
        self.random = random
        self.peer_id = peer_id
        self.is_congested = False
        self.known_peer_count: int | None = None
        self.is_alive = True
        self.partition = 0
        self.post_signer = bus.make_signer(peer_id, name) if bus.make_signer is not None else None
        self.delivered: list[GroupMessage] = []
        self.events: list[GroupEvent] = []
        self.participant = Participant(self, name, store, settings)

    def now(self) -> float:
        return self.bus.clock.now

    def wall_time_s(self) -> float:
        return 1_767_225_600.0 + self.bus.clock.now

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> BusTimer:
        timer = BusTimer(self, callback, args)
        self.bus.clock.call_at(self.bus.clock.now + delay_s, timer.fire)
        return timer

    def verified_name(self, peer_id: int) -> str:
        return self.bus.ticket_names.get(peer_id, "")

    def broadcast(self, data: bytes) -> None:
        self.bus.transmit(self, data)

    def deliver(self, message: GroupMessage) -> None:
        self.delivered.append(message)

    def emit(self, event: GroupEvent) -> None:
        self.events.append(event)

    # -- for tests

    def events_of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def send_text(self, group: GroupId, text: str, reply_to: GroupMessage | None = None) -> GroupMessage:
        message = self.participant.post(group, text.encode(), reply_to.id if reply_to is not None else None)
        self.delivered.append(message)
        return message

    def texts(self, group: GroupId | None = None) -> list[str]:
        return [each.text for each in self.delivered if group in (None, each.group_id)]

    def tree(self, group: GroupId) -> dict[Any, Any]:
        return {each.id: each.parent_id for each in self.delivered if each.group_id == group}


class GroupBus:
    def __init__(self, seed: int = 0, delay: Delay = typical_delay, *, in_order: bool = True) -> None:
        self.random = Random(seed)
        self.clock = VirtualClock()
        self.members: list[BusMember] = []
        self.delay = delay
        self.sent: list[tuple[float, str, str, int]] = []
        """Time, sender, message type, bytes."""
        self.ticket_names: dict[int, str] = {}
        self.make_signer: Callable[[int, str], PostSigner] | None = None
        """Set before members are added: makes a channel with tickets."""
        self._peers = 0
        self._in_order = in_order
        self._latest: dict[tuple[int, int], float] = {}

    def add(
        self,
        name: str,
        store: Store | None = None,
        settings: GroupSettings | None = None,
        *,
        random: Random | None = None,
        announces: bool = True,
    ) -> BusMember:
        self._peers += 1
        member = BusMember(self, name, self._peers, store, settings, random or Random(self.random.getrandbits(64)))
        self.members.append(member)
        if announces:
            member.participant.announce()
        return member

    def transmit(self, sender: BusMember, data: bytes) -> None:
        now = self.clock.now
        self.sent.append((now, sender.participant.me.name, type(decode(data)).__name__, len(data)))
        for other in self.members:
            if other is not sender and other.is_alive and other.partition == sender.partition:
                at = now + self.delay(self.random)
                if self._in_order:
                    at = self._latest[sender.peer_id, other.peer_id] = max(
                        at, self._latest.get((sender.peer_id, other.peer_id), 0.0)
                    )
                self.clock.call_at(at, self._deliver, other, sender.peer_id, data)

    def _deliver(self, other: BusMember, peer: int, data: bytes) -> None:
        if other.is_alive:
            other.participant.on_message(peer, data)

    def run(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now + seconds)

    def go_offline(self, member: BusMember) -> None:
        member.participant.go_offline()
        self._remove(member)

    def kill(self, member: BusMember) -> None:
        self._remove(member)

    def _remove(self, member: BusMember) -> None:
        member.is_alive = False
        self.members.remove(member)

    def count(self, since: float = 0.0) -> Counter[str]:
        """Messages sent since a time, by type."""
        return Counter(kind for at, _, kind, _ in self.sent if at >= since)

    def kinds_sent_by(self, name: str, since: float = 0.0) -> list[str]:
        return [kind for at, sender, kind, _ in self.sent if sender == name and at >= since]
