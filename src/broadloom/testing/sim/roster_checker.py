"""`RosterChecker`: the guarantees of the roster in a simulation. Each counts as guarantee 9.

At every loss: the member is dead, leaving, cut off or not responding. At rest: all rosters are equal and name exactly
the living members, each record is one that its member has signed, and replaying the events gives the roster.
"""

import hashlib
from typing import TYPE_CHECKING

from broadloom.protocol.roster.member import MemberJoined, MemberLeft, MemberLost
from broadloom.testing.sim.hostile import SimSigner
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.protocol.events import Event
    from broadloom.testing.sim.node import SimNode
    from broadloom.testing.sim.simulation import Simulation

GUARANTEE = 9
SETTLED_S = 2.0
"""A link that has been up for this long must be known to everyone: publishing, flooding and grace take less."""
DISTURBED_S = 4.0
"""After a pause or a partition, frames that were held back are read first."""
GONE_S = 3.0
"""A killed process is gone from every roster after this time."""


class RecordingSigner(SimSigner):
    """Remembers what was signed, by whom."""

    def __init__(self, peer_id: PeerId, signed: dict[bytes, PeerId]) -> None:
        super().__init__(peer_id)
        self._peer_id = peer_id
        self._signed = signed

    def sign(self, data: bytes) -> bytes:
        self._signed[hashlib.blake2b(data).digest()] = self._peer_id
        return super().sign(data)


class RosterChecker:
    def __init__(self, simulation: "Simulation") -> None:
        self._simulation = simulation
        self._signed: dict[bytes, PeerId] = {}
        self._replayed: dict[SimNode, dict[PeerId, None]] = {}
        """The roster of each peer according to its events."""
        self._nodes: dict[PeerId, SimNode] = {}
        self._parts: tuple[float, dict[PeerId, int]] = -1.0, {}
        self.losses = 0

    def signer(self, peer_id: PeerId) -> RecordingSigner:
        return RecordingSigner(peer_id, self._signed)

    def on_signed(self, peer_id: PeerId, data: bytes) -> None:
        """For signers of another kind."""
        self._signed[hashlib.blake2b(data).digest()] = peer_id

    def add(self, node: "SimNode") -> None:
        self._nodes[node.peer.me.peer_id] = node

    def on_event(self, node: "SimNode", event: "Event") -> None:
        if node.is_hostile or not isinstance(event, MemberJoined | MemberLeft | MemberLost):
            return
        replayed = self._replayed.setdefault(node, {})
        peer_id = event.member.peer_id
        if isinstance(event, MemberJoined) == (peer_id in replayed):
            self._report(node, f"reported {type(event).__name__} of {peer_id:016x} twice")
        if isinstance(event, MemberJoined):
            replayed[peer_id] = None
            return
        del replayed[peer_id]
        if isinstance(event, MemberLost):
            self.losses += 1
            self._check_loss(node, self._nodes[peer_id])
        elif self._nodes[peer_id].peer.is_present and self._nodes[peer_id].is_alive:
            self._report(node, f"reported that {self._nodes[peer_id]} left, which did not")

    def _check_loss(self, node: "SimNode", lost: "SimNode") -> None:
        parts = self._settled_parts()
        here, there = parts.get(node.peer.me.peer_id), parts.get(lost.peer.me.peer_id)
        if here is not None and here == there and not self._simulation.checker.is_eclipsed(lost):
            self._report(node, f"lost {lost}, which is alive and connected to it by links that are up for long")

    def _settled_parts(self) -> dict[PeerId, int]:
        """Honest peers by the part of the fabric that they are in, counting links that everyone must know."""
        simulation = self._simulation
        now = simulation.clock.now
        if self._parts[0] != now:
            parts: dict[PeerId, int] = {}
            steady = [] if self._is_disturbed() else [node for node in simulation.nodes if _is_steady(node)]
            usable = {node.peer.me.peer_id: node for node in steady}
            for start in usable:
                if start in parts:
                    continue
                parts[start] = start
                frontier = [start]
                for peer_id in frontier:
                    for other in self._settled_neighbors(usable[peer_id], usable):
                        if other not in parts:
                            parts[other] = start
                            frontier.append(other)
            self._parts = now, parts
        return self._parts[1]

    def _is_disturbed(self) -> bool:
        network = self._simulation.network
        return self._simulation.clock.now - network.healed_at < DISTURBED_S

    def _settled_neighbors(self, node: "SimNode", usable: "dict[PeerId, SimNode]") -> list[PeerId]:
        simulation, me = self._simulation, node.peer.me.peer_id
        latest = simulation.clock.now - SETTLED_S
        found = []
        for link in node.peer.links:
            other = usable.get(link.peer_id)
            back = other.peer.links.get(me) if other is not None else None
            if other is None or back is None or max(link.linked_at, back.linked_at) > latest:
                continue
            if not (
                simulation.network.is_blocked(node.host, other.host)
                or simulation.network.is_blocked(other.host, node.host)
            ):
                found.append(link.peer_id)
        return found

    # -- at rest

    def find_problem(self, part: "list[SimNode]") -> str | None:
        """Why the rosters of honest members that are connected are not right, or None."""
        alive = {node.peer.me.peer_id: None for node in self._simulation.alive}
        hostile = {node.peer.me.peer_id: None for node in self._simulation.nodes if node.is_hostile}
        for node in part:
            roster = dict.fromkeys(node.peer.roster.peer_ids())
            missing = [other.number for other in part if other.peer.me.peer_id not in roster]
            gone = [self._nodes[each].number for each in roster if each not in alive and each not in hostile]
            if missing or gone:
                return f"the roster of {node} does not have {missing}, and has {gone}, which are gone"
        return None

    def check_at_rest(self) -> None:
        """What a converged simulation must fulfill beyond equal rosters."""
        for node in (each for each in self._simulation.alive if not each.is_hostile):
            roster, me = node.peer.roster, node.peer.me.peer_id
            replayed = sorted((*self._replayed.get(node, {}), me))
            if replayed != roster.peer_ids():
                self._report(node, "has a roster that differs from the sum of its events")
            for record, member in roster.signed_records():
                if self._signed.get(hashlib.blake2b(record).digest()) != member:
                    self._report(node, f"has a record of {member:016x} that this peer did not sign")

    def check_gone(self, node: "SimNode") -> None:
        """This process was killed `GONE_S` ago."""
        for other in self._simulation.members:
            if not other.is_hostile and not other.is_delayed and node.peer.me.peer_id in other.peer.roster.peer_ids():
                self._report(other, f"still lists {node}, which was killed {GONE_S:g} s ago")

    def _report(self, node: "SimNode", text: str) -> None:
        self._simulation.checker.report_violation(GUARANTEE, node, text)


def _is_steady(node: "SimNode") -> bool:
    return (
        node.is_connected
        and node.peer.is_present
        and not node.is_hostile
        and not node.is_delayed
        and node.clock.now - node.resumed_at > DISTURBED_S
    )
