"""A participant of a meeting on a simulated peer, with the same core as in programs."""

from typing import TYPE_CHECKING

from broadloom.apps.conference.actions import Action, Arrive
from broadloom.apps.conference.core import MeetingCore
from broadloom.order import Entry, OrderEvent, Rewound, Skipped
from broadloom.protocol.roster.member import MemberLost
from broadloom.testing.sim.order_runtime import SimOrderRuntime

if TYPE_CHECKING:
    from broadloom.protocol.events import Event
    from broadloom.testing.sim.node import SimNode, SimTimer


class SimParticipant:
    def __init__(self, node: "SimNode", name: str) -> None:
        self.node = node
        self.name = name
        self.core = MeetingCore(node.peer.me.peer_id)
        self.rewound_count = 0
        self.skipped: list[Skipped] = []
        self.submitted: list[bytes] = []
        self._check_timer: SimTimer | None = None
        self.runtime = SimOrderRuntime(node, {}, from_index=1)
        self.runtime.on_entry, self.runtime.on_order_event = self._on_entry, self._on_order_event
        node.on_event = self._on_event
        self.submit(Arrive(name))

    @property
    def peer_id(self) -> int:
        return self.core.me

    @property
    def is_alive(self) -> bool:
        return self.node.is_connected

    @property
    def is_leader(self) -> bool:
        return self.core.is_leader(self.node.clock.now)

    def submit(self, action: Action) -> None:
        _, data = self.core.prepare(action, int(self.node.wall_time_s() * 1000))
        self.submitted.append(data)
        self.runtime.replica.submit(data)

    def _on_entry(self, entry: Entry) -> None:
        self.core.on_entry(entry, self.node.clock.now)
        self._check_soon()

    def _on_order_event(self, event: OrderEvent) -> None:
        if isinstance(event, Rewound):
            self.rewound_count += 1
            self.core.on_rewound(event, self.node.clock.now)
        elif isinstance(event, Skipped):
            self.skipped.append(event)
        self._check_soon()

    def _on_event(self, event: "Event") -> None:
        self.runtime.on_event(event)
        if isinstance(event, MemberLost):
            self.core.on_member_lost()
        self._check_soon()

    def _check_soon(self, delay_s: float = 0.0) -> None:
        if self._check_timer is not None:
            self._check_timer.cancel()
        self._check_timer = self.node.call_later(delay_s, self._check)

    def _check(self) -> None:
        self._check_timer = None
        if not self.is_alive:
            return
        replica = self.runtime.replica
        duties = self.core.duties(
            self.node.clock.now,
            replica.log.epoch,
            is_sequencer=replica.is_sequencing,
            is_present=lambda peer_id: self.node.peer.roster.get(peer_id) is not None,
        )
        for action in duties.actions:
            self.submit(action)
        if duties.again_in_s is not None:
            self._check_soon(duties.again_in_s)
