"""What this server shows: one live source (a cluster or a channel), tapes, and tables.

Pages and their data come from here only, never from a path that a browser names.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from broadloom.channel.closable import close_all
from broadloom.errors import BroadloomError
from broadloom.rules import Rules
from broadloom.web.auction_client import AuctionClient
from broadloom.web.delivery_site import DeliverySite
from broadloom.web.game_client import Connect, GameClient
from broadloom.web.group_client import GroupClient
from broadloom.web.history import FabricHistory
from broadloom.web.own_peer import OwnPeer
from broadloom.web.peer_timeline import PeerTimeline
from broadloom.web.review_seats import ReviewSeats
from broadloom.web.switch_client import SwitchClient
from broadloom.web.table_catalog import TableCatalog
from broadloom.web.timeline_follower import TimelineFollower

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.testing.cluster.cluster import LocalCluster
    from broadloom.web.tape_replay import Replay

LIVE = "live"
"""Name of the live source, besides the names of tapes."""
REPLAYS_MAX = 3
"""Tapes in memory; the least recently used is read again on demand."""


class SourceNotFoundError(BroadloomError):
    """No source has this name."""


class Sources:
    def __init__(
        self,
        *,
        cluster: "LocalCluster | None" = None,
        channel: "Channel | None" = None,
        peer_timeline: "PeerTimeline | None" = None,
        tapes_dir: Path | None = None,
        results_dir: Path | None = None,
        progress: Callable[[], str] | None = None,
        delivery: DeliverySite | None = None,
        connect: Connect | None = None,
        auction_client: AuctionClient | None = None,
    ) -> None:
        self.cluster = cluster
        self.channel = channel if cluster is None else None
        self.delivery = delivery
        self.tapes_dir = tapes_dir
        self.catalog = TableCatalog(results_dir) if results_dir is not None else None
        self.progress: Callable[[], str] = progress or (lambda: "")
        self.own_peer = OwnPeer(cluster=cluster, channel=self.channel, on_joined=self._on_joined)
        self.group_client = GroupClient(self.own_peer)
        self.switch_client = SwitchClient(self.own_peer)
        self.auction_client = auction_client or AuctionClient(self.channel)
        self.review_seats = ReviewSeats(self.own_peer)
        self.game_client = GameClient(self.own_peer, connect)
        self.live: TimelineFollower | None = None
        self._replays: OrderedDict[str, Replay] = OrderedDict()
        self._loading: dict[str, asyncio.Task[Replay]] = {}
        if cluster is not None:
            self.live = TimelineFollower(cluster)
        elif channel is not None:
            peer_timeline = peer_timeline or PeerTimeline(channel)
            self.live = TimelineFollower(peer_timeline, settle_s=0.0, sees_all=False)
        self.peer_timeline = peer_timeline

    def _on_joined(self, peer: int) -> None:
        if self.cluster is not None and self.live is not None:
            self.live.add_external_peer(peer, "this page")

    @property
    def sentence(self) -> str:
        """The live source as the pages see it."""
        if self.cluster is not None:
            return "Every peer of the local cluster, live."
        if self.channel is not None:
            return (
                f"What one peer of {self.channel.name} sees: itself, its neighbors and their neighbors. "
                "No peer sees the whole fabric."
            )
        return "No live source; these are tapes."

    @property
    def rules(self) -> Rules | None:
        """The rules with which the channel was joined."""
        found = self.channel._filter if self.channel is not None else None
        return found if isinstance(found, Rules) else None

    # -- tapes

    def tapes(self) -> dict[str, Path]:
        """Replayable tapes by name."""
        from broadloom.web.tape_replay import tapes_in

        folders = [self.tapes_dir, self.cluster.tape if self.cluster is not None else None]
        found: dict[str, Path] = {}
        for folder in folders:
            if folder is not None:
                for each in tapes_in(folder):
                    found.setdefault(_name(each, found), each)
        return found

    async def replay(self, name: str) -> "Replay":
        """A tape, read in a thread, once for all requests."""
        if name in self._replays:
            self._replays.move_to_end(name)
            return self._replays[name]
        if name not in self._loading:
            path = self.tapes().get(name)
            if path is None:
                others = ", ".join(self.tapes())
                raise SourceNotFoundError(
                    f"there is no tape {name!r}: it was deleted or renamed. Tapes here: {others or 'none'}"
                )
            self._loading[name] = asyncio.create_task(self._read(name, path))
        return await asyncio.shield(self._loading[name])

    async def _read(self, name: str, path: Path) -> "Replay":
        from broadloom.web.tape_replay import replay

        try:
            read = await asyncio.to_thread(replay, path)
        finally:
            del self._loading[name]
        self._replays[name] = read
        while len(self._replays) > REPLAYS_MAX:
            self._replays.popitem(last=False)
        return read

    def forget_replay(self, name: str) -> None:
        """Read a growing tape again at the next request."""
        self._replays.pop(name, None)

    async def close(self) -> None:
        for task in self._loading.values():
            task.cancel()
        try:
            await close_all(
                self.group_client.close(),
                self.switch_client.close(),
                self.auction_client.close(),
                self.review_seats.close(),
                self.game_client.close(),
                *([self.delivery.close()] if self.delivery is not None else []),
            )
        finally:
            await self.own_peer.close()

    # -- histories

    async def history(self, name: str) -> FabricHistory:
        if name != LIVE:
            return (await self.replay(name)).history
        if self.live is None:
            raise SourceNotFoundError("there is no live source: open a tape on the page Replay")
        self.check_live()
        return self.live.history

    def check_live(self) -> None:
        """Raise `SourceNotFoundError` if the live source is gone."""
        if self.channel is not None and self.channel.status().state == "left":
            raise SourceNotFoundError(f"this server has left the channel {self.channel.name}: start it again")


def _name(path: Path, taken: dict[str, Path]) -> str:
    """A short unused name."""
    name, number = path.name or "tape", 1
    while (name in taken and taken[name] != path) or name == LIVE:
        number += 1
        name = f"{path.name}-{number}"
    return name
