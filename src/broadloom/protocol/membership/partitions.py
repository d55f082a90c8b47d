"""`Beacons` and `PartitionMerge`: detect that a fabric is partitioned, and merge its parts.

One peer of a fabric floods beacons periodically: the first to notice that none arrives, and of several the one with the
lowest id. Two peers that receive different beacons are in different parts.

Periodically each peer probes a cached peer and compares beacons. If they differ, the two link: through free slots if
they have any, else each gives up an edge (u-v and x-y become u-x and v-y), so every peer keeps its number of links.
Anti-entropy on the new links exchanges the messages. A false alarm costs no more than a swap of edges.
"""

from typing import TYPE_CHECKING

from broadloom.protocol.exchange import Exchange, IncomingExchange, OutgoingExchange
from broadloom.wire.codec import WireMessage
from broadloom.wire.exchange_messages import MergeAction, PartitionProbe, PartitionProbeResponse, RejectReason
from broadloom.wire.link_messages import Beacon, Unlink
from broadloom.wire.types import BeaconId, PeerInfo

if TYPE_CHECKING:
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer

BOOTSTRAP_SHARE_MIN = 0.05
"""Share of probes that also contact bootstrap hosts, where the channel may have been created a second time. In a small
fabric it is larger: one peer or another contacts some of them in each interval."""
MERGE_SPREAD_DELAY_S = 1.0
"""After a merge, the lower beacon spreads into the other part after this delay, so that more peers merge before both
parts look like one."""


class PartitionMerge:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._probe_at = 0.0
        self._decluster_at = 0.0
        self._unlink_allowed_at = 0.0
        self._alert_until = 0.0

    def begin(self) -> None:
        self._probe_at = self._next_probe(self._peer.runtime.now())

    def alert(self) -> None:
        """A neighbor was lost ungracefully, perhaps by a partition: probe more often for a while."""
        now = self._peer.runtime.now()
        self._alert_until = now + self._peer.settings.alert_s
        self._probe_at = min(self._probe_at, self._next_probe(now))

    @property
    def is_alert(self) -> bool:
        return self._peer.runtime.now() < self._alert_until

    def tick(self, now: float) -> None:
        if now >= self._probe_at:
            self._probe_at = self._next_probe(now)
            self._probe()
        elif now >= self._decluster_at:
            self._decluster_at = now + self._peer.settings.decluster_interval_s * (
                0.5 + self._peer.runtime.random.random()
            )
            self._decluster()

    def _next_probe(self, now: float) -> float:
        settings = self._peer.settings
        is_urgent = self.is_alert or not len(self._peer.links)
        period_s = settings.probe_interval_alert_s if is_urgent else settings.probe_interval_s
        return now + self._peer.pacing.stretched(period_s) * (0.5 + self._peer.runtime.random.random())

    # -- probes

    def _probe(self) -> None:
        peer = self._peer
        peer_info = peer.peer_cache.pick_for_probe(peer.links.neighbors)
        share = max(BOOTSTRAP_SHARE_MIN, 1 / (1 + peer.peer_cache.responsive_count))
        if peer_info is None or not len(peer.links) or peer.runtime.random.random() < share:
            self.probe_bootstrap_hosts()
        if peer_info is not None:
            self._send_probe(peer_info)

    def probe_bootstrap_hosts(self) -> None:
        self._peer.discovery.contact_bootstrap_hosts(self._send_probe)

    def _decluster(self) -> None:
        """Swap an edge inside a cluster for a random one."""
        if self._peer.pacing.is_slow:
            return  # it can wait
        clustered = self._peer.two_hop_view.clustered_link()
        peer_info = self._peer.peer_cache.pick(self._peer.links.neighbors)
        if clustered is not None and clustered.reserved_for is None and peer_info is not None:
            self._send_probe(peer_info, clustered)

    def _send_probe(self, peer_info: PeerInfo, clustered: "Link | None" = None) -> None:
        """Probe one peer. If the response is a merge, the exchange becomes a link."""
        peer, links = self._peer, self._peer.links
        if not peer.is_member or peer_info.peer_id in links:
            return
        edge = clustered or links.pick(unreserved=True)
        if edge is not None:
            edge.reserve_edge(peer_info.peer_id)  # no walk may offer it meanwhile
        peer_sample = peer.peer_cache.sample(peer.settings.peer_sample_size)
        far_end = edge.peer_info if edge is not None else None
        request = PartitionProbe(
            peer.beacons.current, links.unreserved_slots, links.neighbors, far_end, clustered is not None, peer_sample
        )

        def release() -> None:
            if edge is not None and edge.reserved_for == peer_info.peer_id:
                edge.release_edge()

        def on_response(exchange: Exchange, response: WireMessage) -> None:
            is_usable = edge is not None and links.get(edge.peer_id) is edge and edge.reserved_for == peer_info.peer_id
            release()
            if isinstance(response, PartitionProbeResponse):
                peer.peer_cache.add_all(response.peer_sample)
                self._merge_with(exchange, response, edge if is_usable else None)

        def on_failure(_reason: RejectReason | None) -> None:
            release()

        OutgoingExchange(peer, peer_info, request, on_response, on_failure)

    def _merge_with(self, exchange: Exchange, response: PartitionProbeResponse, edge: "Link | None") -> None:
        """Do our part of the merge. If we cannot, the exchange closes and the responder refills its slot."""
        peer, links = self._peer, self._peer.links
        action, remote = response.merge_action, exchange.remote
        if action is MergeAction.NONE or not peer.is_member or remote.peer_id in links:
            return
        if action in (MergeAction.PIN_RESPONDER, MergeAction.SWAP_EDGES):
            if edge is None:
                return
            edge.drain(Unlink(dial=remote if action is MergeAction.PIN_RESPONDER else response.edge, await_dial=None))
        elif links.unreserved_slots < (2 if action is MergeAction.PIN_INITIATOR else 1):
            return
        exchange.upgrade_to_link(after_partition=True)
        if action is MergeAction.PIN_INITIATOR and response.edge is not None:
            links.await_dial(response.edge, announced_by=remote.peer_id)
        peer.beacons.on_merged(response.beacon)

    def on_partition_probe(self, exchange: IncomingExchange, probe: PartitionProbe) -> None:
        """Compare beacons and choose the merge action: only the responder knows both sides."""
        peer = self._peer
        peer.peer_cache.add_all(probe.peer_sample)
        action, edge = MergeAction.NONE, None
        if peer.is_member and exchange.remote.peer_id not in peer.links:
            if not peer.links.is_reserved(exchange.remote.peer_id):
                if not peer.beacons.is_same_fabric(probe.beacon):
                    action, edge = self._choose_action(exchange.remote, probe)
                elif probe.declusters and peer.links.free_slots == 0:
                    action, edge = self._swap_edges(exchange.remote, probe)
        peer_sample = peer.peer_cache.sample(peer.settings.peer_sample_size)
        exchange.respond(
            PartitionProbeResponse(
                peer.beacons.current, action, edge.peer_info if edge is not None else None, peer_sample
            )
        )
        if action is MergeAction.NONE:
            return
        if edge is not None:
            # Rate limit: by claiming other beacons, an attacker could replace our neighbors one by one.
            self._unlink_allowed_at = peer.runtime.now() + peer.settings.probe_interval_alert_s
            # The far end of our edge links to the initiator, or to the far end of the initiator's edge.
            if action is MergeAction.PIN_INITIATOR:
                edge.drain(Unlink(dial=exchange.remote, await_dial=None))
            else:
                edge.drain(Unlink(dial=None, await_dial=probe.edge))
        link = exchange.upgrade_to_link(after_partition=True)
        link.replaced = edge.peer_info if edge is not None else None
        if action is MergeAction.PIN_RESPONDER and probe.edge is not None:
            peer.links.await_dial(probe.edge, announced_by=exchange.remote.peer_id)
        peer.beacons.on_merged(probe.beacon)

    def _choose_action(self, initiator: PeerInfo, probe: PartitionProbe) -> "tuple[MergeAction, Link | None]":
        links = self._peer.links
        if links.unreserved_slots >= 1 and probe.free_slots >= 1:
            return MergeAction.LINK, None
        if self._peer.beacons.current is None and probe.beacon is None:
            return MergeAction.NONE, None  # without any beacon there is no evidence of a partition, so no edge is cut
        edge, is_usable = self._usable_edges(initiator, probe)
        if probe.free_slots >= 2 and edge is not None:
            return MergeAction.PIN_INITIATOR, edge
        if links.unreserved_slots >= 2 and is_usable:
            return MergeAction.PIN_RESPONDER, None
        return self._swap_edges(initiator, probe)

    def _swap_edges(self, initiator: PeerInfo, probe: PartitionProbe) -> "tuple[MergeAction, Link | None]":
        edge, is_usable = self._usable_edges(initiator, probe)
        if edge is not None and is_usable and probe.edge is not None and probe.edge.peer_id != edge.peer_id:
            return MergeAction.SWAP_EDGES, edge
        return MergeAction.NONE, None

    def _usable_edges(self, initiator: PeerInfo, probe: PartitionProbe) -> "tuple[Link | None, bool]":
        """An edge that we could give up, and whether the far end of the initiator's edge could link to us."""
        links, far = self._peer.links, probe.edge
        may_unlink = self._peer.runtime.now() >= self._unlink_allowed_at
        edge = links.pick(unreserved=True) if may_unlink else None
        if edge is not None and (edge.peer_id in probe.neighbors or edge.peer_id == initiator.peer_id):
            edge = None
        if (
            edge is not None
            and edge.neighbor_list is not None
            and far is not None
            and far.peer_id in edge.neighbor_list
        ):
            edge = None  # the far ends are neighbors already
        return edge, far is not None and far.peer_id not in links and far.peer_id != self._peer.me.peer_id


class Beacons:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._current: BeaconId | None = None
        self._received_at = 0.0
        self._next_send_at = 0.0

    def begin(self) -> None:
        self._received_at = self._peer.runtime.now()
        self._next_send_at = self._takeover_at(self._received_at)

    @property
    def current(self) -> BeaconId | None:
        """The newest beacon received, unless it is outdated."""
        if self._peer.runtime.now() - self._received_at > self._timeout_s:
            return None
        return self._current

    def is_same_fabric(self, other: BeaconId | None) -> bool:
        """Whether a peer that received `other` is certainly in our fabric."""
        current = self.current
        return current is not None and other is not None and current.origin == other.origin

    def tick(self, now: float) -> None:
        """Send a beacon if we are the sender, or take over if none arrived for too long."""
        if now >= self._next_send_at:
            self._current = BeaconId(self._peer.me.peer_id, self._peer.control_flood.start(Beacon))
            self._received_at = now
            self._next_send_at = now + self._peer.settings.beacon_interval_s

    def on_beacon(self, _link: "Link", beacon: Beacon) -> None:
        current = self.current
        if (
            current is None or beacon.origin <= current.origin
        ):  # else its sender will stop when it receives the lower one
            self._adopt(BeaconId(beacon.origin, beacon.nonce))

    def on_merged(self, other: BeaconId | None) -> None:
        """Two parts are merged: spread the other beacon in ours if it is the one that continues."""
        current = self.current
        if other is not None and (current is None or other.origin < current.origin):
            self._peer.runtime.call_later(MERGE_SPREAD_DELAY_S, self._spread, other)

    def _spread(self, beacon_id: BeaconId) -> None:
        if self._peer.control_flood.flood(
            Beacon(beacon_id.origin, beacon_id.nonce, 1), beacon_id.origin, beacon_id.nonce
        ):
            self._adopt(beacon_id)

    def _adopt(self, beacon_id: BeaconId) -> None:
        if self._current is not None and beacon_id.origin != self._current.origin and self._peer.links.free_slots:
            self._peer.slot_repair.restart()  # peers of the other part may have free slots, too
        self._current = beacon_id
        self.begin()

    @property
    def _timeout_s(self) -> float:
        return self._peer.pacing.stretched(self._peer.settings.beacon_timeout_s)

    def _takeover_at(self, now: float) -> float:
        return now + self._timeout_s * (1 + self._peer.runtime.random.random())
