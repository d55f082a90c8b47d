"""`Presence`: turns reachability into events. A member that cannot be reached is lost after a grace period, because
links are exchanged all the time; members that are lost together, and became silent, are a partition."""

from typing import TYPE_CHECKING

from broadloom.protocol.roster.member import (
    LossCause,
    Member,
    MemberJoined,
    MemberLeft,
    MemberLost,
    Merged,
    Partitioned,
)
from broadloom.protocol.roster.records import KnownRecord, MemberState
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.roster.graph import MemberGraph
    from broadloom.protocol.runtime import Timer

RETURN_S = 1.0
"""A lost member that can be reached again is reported after this time: until both parts of a fabric have exchanged
their records, members that died meanwhile seem to be there."""
GROUPING_S = 0.25
"""Members that are lost or return within this time are reported together."""
PARTITION_S = 5.0
"""Members that become silent within this time are the other side of a partition. A single one may be a program that
hangs."""


class Presence:
    def __init__(self, peer: "Peer", known: dict[PeerId, KnownRecord], graph: "MemberGraph") -> None:
        self._peer = peer
        self._known = known
        self._graph = graph
        self._suspects: dict[PeerId, float] = {}
        """Members that cannot be reached, and when they are lost."""
        self._returning: dict[PeerId, float] = {}
        """Lost members that can be reached again, and when they are reported."""
        self._silent: dict[PeerId, float] = {}
        """Members that were lost within `PARTITION_S` because they became silent, and when."""
        self._timer: Timer | None = None
        self.is_syncing = False
        """Set by `RosterSync` while records are requested from a neighbor."""

    def on_reached(self, peer_id: PeerId) -> None:
        known = self._known[peer_id]
        if known.state is MemberState.SUSPECT:
            del self._suspects[peer_id]
            self._set(known, MemberState.PRESENT)
        elif known.state is MemberState.UNREACHABLE and known.was_lost:
            self._schedule(self._returning, peer_id, RETURN_S)
        elif known.state is MemberState.UNREACHABLE:
            self._set(known, MemberState.PRESENT)
            self._peer.emit(MemberJoined(known.member))

    def on_lost(self, peer_id: PeerId) -> None:
        known = self._known[peer_id]
        self._returning.pop(peer_id, None)
        if known.state is MemberState.PRESENT:
            self._set(known, MemberState.SUSPECT)
            self._schedule(self._suspects, peer_id, self._peer.pacing.stretched(self._peer.settings.roster_grace_s))

    def on_left(self, peer_id: PeerId) -> None:
        known = self._known[peer_id]
        was_listed = known.is_listed
        self.forget(peer_id)
        self._set(known, MemberState.LEFT)
        if was_listed:
            self._peer.emit(MemberLeft(known.member))

    def forget(self, peer_id: PeerId) -> None:
        self._suspects.pop(peer_id, None)
        self._returning.pop(peer_id, None)

    def _set(self, known: KnownRecord, state: MemberState) -> None:
        known.state = state
        known.changed_at = self._peer.runtime.now()

    def _schedule(self, waiting: dict[PeerId, float], peer_id: PeerId, delay_s: float) -> None:
        waiting[peer_id] = self._peer.runtime.now() + delay_s
        if self._timer is None:
            self._timer = self._peer.runtime.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._peer.is_present:
            return
        now = self._peer.runtime.now()
        if lost := _due(self._suspects, now):
            self._lose(lost)
        if self.is_syncing:
            self._returning = {peer_id: max(at, now + GROUPING_S) for peer_id, at in self._returning.items()}
        elif returned := _due(self._returning, now):
            self._return(returned)
        next_at = min((*self._suspects.values(), *self._returning.values()), default=None)
        if next_at is not None:
            self._timer = self._peer.runtime.call_later(max(0.0, next_at - now), self._on_timer)

    def _lose(self, peer_ids: list[PeerId]) -> None:
        unresponsive = self._unresponsive()
        is_alone = not len(self._peer.links) and len(peer_ids) > 1
        silent: list[PeerId] = []
        for component in self._components(peer_ids):
            is_silent = is_alone or any(peer_id in unresponsive for peer_id in component)
            if is_silent:
                silent += component
            for peer_id in component:
                known = self._known[peer_id]
                known.was_lost = True
                self._set(known, MemberState.UNREACHABLE)
                self._peer.emit(MemberLost(known.member, LossCause.UNREACHABLE if is_silent else LossCause.DEAD))
                self._peer.requests.on_peer_lost(peer_id)
        if silent:
            self._on_silent(silent)

    def _on_silent(self, peer_ids: list[PeerId]) -> None:
        """Report a partition as soon as it has a second member, and each member once."""
        now = self._peer.runtime.now()
        self._silent = {each: at for each, at in self._silent.items() if now - at < PARTITION_S}
        self._silent |= dict.fromkeys(peer_ids, now)
        away = [self._known[each] for each in self._silent if each in self._known and self._known[each].was_lost]
        if len(away) > 1:
            reported = [known for known in away if not known.was_partitioned]
            for known in reported:
                known.was_partitioned = True
            self._peer.emit(Partitioned(tuple(known.member for known in reported)))

    def _unresponsive(self) -> dict[PeerId, None]:
        """Members that became silent, according to those that are present."""
        return {
            each: None
            for peer_id in self._graph.reachable
            if peer_id in self._known
            for each in self._known[peer_id].record.unresponsive
        }

    def _components(self, peer_ids: list[PeerId]) -> list[list[PeerId]]:
        """Groups of lost members that are still connected to each other, as far as is known."""
        waiting = dict.fromkeys(peer_ids)
        components = []
        while waiting:
            component = [next(iter(waiting))]
            del waiting[component[0]]
            for peer_id in component:
                for each in self._graph.edges(peer_id):
                    if each in waiting:
                        del waiting[each]
                        component.append(each)
            components.append(component)
        return components

    def _return(self, peer_ids: list[PeerId]) -> None:
        merged: list[Member] = []
        for peer_id in peer_ids:
            known = self._known[peer_id]
            self._set(known, MemberState.PRESENT)
            member = known.member
            self._peer.emit(MemberJoined(member))
            if known.was_partitioned:
                merged.append(member)
            known.was_lost = known.was_partitioned = False
        if merged:
            self._peer.emit(Merged(tuple(merged)))


def _due(waiting: dict[PeerId, float], now: float) -> list[PeerId]:
    """Remove and return what is due; nothing if the first is not due yet."""
    if not waiting or min(waiting.values()) > now:
        return []
    due = [peer_id for peer_id, at in waiting.items() if at <= now + GROUPING_S]
    for peer_id in due:
        del waiting[peer_id]
    return due
