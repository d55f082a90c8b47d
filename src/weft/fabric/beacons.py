"""Beacons: how a peer knows which fabric it is in.

One peer of a fabric sends a beacon now and then: whoever notices that none comes; of several, the one with the lowest
id goes on. Two peers that hear different beacons are in different parts.
"""

from typing import TYPE_CHECKING

from weft.wire.links import Beacon
from weft.wire.types import BeaconMark

if TYPE_CHECKING:
    from weft.fabric.link import Link
    from weft.fabric.peer import Peer

UNITED_S = 1.0
"""After a union, the lower beacon is spread in the other part after this: time for others to unite too, so that the
parts hang together by many links."""


class Beacons:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._mark: BeaconMark | None = None
        self._heard_at = 0.0
        self._send_at = 0.0

    def begin(self) -> None:
        """This peer became a member."""
        self._heard_at = self._peer.world.now()
        self._send_at = self._patience(self._heard_at)

    @property
    def mark(self) -> BeaconMark | None:
        """The beacon of our fabric, if we have one that is recent."""
        if self._peer.world.now() - self._heard_at > self._peer.settings.beacon_lost_s:
            return None
        return self._mark

    def of_one_fabric(self, other: BeaconMark | None) -> bool:
        """Whether somebody who hears `other` is in our fabric for certain."""
        mine = self.mark
        return mine is not None and other is not None and mine.beaconer == other.beaconer

    def tick(self, now: float) -> None:
        """Our own beacon again, or, because nobody else's came, for the first time."""
        if now >= self._send_at:
            self._mark = BeaconMark(self._peer.me.peer, self._peer.floods.start(Beacon))
            self._heard_at = now
            self._send_at = now + self._peer.settings.beacon_s

    def on_beacon(self, _link: "Link", beacon: Beacon) -> None:
        mine = self.mark
        if mine is None or beacon.origin <= mine.beaconer:  # else its sender will hear of the lower one and stop
            self._adopt(BeaconMark(beacon.origin, beacon.nonce))

    def united(self, other: BeaconMark | None) -> None:
        """Two parts are one: let ours hear the other's beacon if that is the one that will go on."""
        mine = self.mark
        if other is not None and (mine is None or other.beaconer < mine.beaconer):
            self._peer.world.after(UNITED_S, self._spread, other)

    def _spread(self, mark: BeaconMark) -> None:
        if self._peer.floods.spread(Beacon(mark.beaconer, mark.nonce, 1), mark.beaconer, mark.nonce):
            self._adopt(mark)

    def _adopt(self, mark: BeaconMark) -> None:
        if self._mark is not None and mark.beaconer != self._mark.beaconer and self._peer.links.holes:
            self._peer.repair.alarm()  # new company: somebody there may have a hole as well
        self._mark = mark
        self.begin()

    def _patience(self, now: float) -> float:
        return now + self._peer.settings.beacon_lost_s * (1 + self._peer.world.random.random())
