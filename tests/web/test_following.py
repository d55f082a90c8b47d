"""A live timeline, followed: in order of time, and made right when changes were dropped."""

from httpx import ASGITransport, AsyncClient
from starlette.applications import Starlette

from broadloom.testing.cluster.timeline import (
    Annotation,
    ChangeLog,
    LinkAdded,
    LinkRemoved,
    MessageHop,
    PeerAdded,
    PeerRemoved,
    PeerSnapshot,
)
from broadloom.web.api import data_routes
from broadloom.web.sources import Sources
from broadloom.web.timeline_follower import SETTLE_S, TimelineFollower


class ManualTimeline:
    """A timeline whose entries the test adds."""

    def __init__(self, changes_max: int = 1000) -> None:
        self.log = ChangeLog(changes_max)
        self.views: dict[int, PeerSnapshot] = {}

    def now(self) -> dict[int, PeerSnapshot]:
        return self.views

    def changes(self, since: int):
        return self.log.since(since)

    def set_links(self, *links: tuple[int, int], peers: int, free_slots: int = 0) -> None:
        near = {peer: tuple(b if a == peer else a for a, b in links if peer in (a, b)) for peer in range(peers)}
        self.views = {
            peer: PeerSnapshot(peer, f"p{peer}", "connected", near[peer], free_slots, 3, False) for peer in range(peers)
        }


def test_changes_are_ordered_after_the_settle_time() -> None:
    timeline = ManualTimeline()
    timeline.set_links((0, 1), peers=2)
    for change in (
        PeerAdded(100.0, 0, "p0"),
        MessageHop(100.9, 0, 1, 0, 1, 1),
        LinkAdded(100.5, 0, 1),
        PeerAdded(100.1, 1, "p1"),
    ):
        timeline.log.add(change)
    following = TimelineFollower(timeline)
    following.poll(100.6 + SETTLE_S)
    assert [entry[1] for entry in following.history.since(0, 99).entries if entry[1] != "f"] == ["c", "c", "u"]
    following.poll(101.0 + SETTLE_S)
    letters = [entry[1] for entry in following.history.since(0, 99).entries]
    assert letters.count("h") == 1
    assert following.history.stats(99)["links"] == 1


def test_reported_figures_are_recorded_when_they_change() -> None:
    timeline = ManualTimeline()
    timeline.set_links((0, 1), peers=2, free_slots=3)
    following = TimelineFollower(timeline)
    following.poll(1e12)
    assert following.history.stats(1e12)["free_slots"] == 6
    timeline.set_links((0, 1), peers=2)
    following.poll(1e12 + 5)
    assert following.history.stats(1e12 + 10)["free_slots"] == 0


def test_snapshot_is_corrected_after_dropped_changes() -> None:
    timeline = ManualTimeline(changes_max=10)
    timeline.set_links((0, 1), (1, 2), peers=3)
    following = TimelineFollower(timeline)
    for number in range(50):
        timeline.log.add(Annotation(200.0 + number, "something"))
    timeline.log.add(LinkRemoved(260.0, 0, 1))
    timeline.log.add(PeerRemoved(260.0, 2, "died"))
    timeline.set_links((0, 1), (0, 3), (3, 1), peers=4)
    following.add_external_peer(77, "this page")
    following.poll(1e12)
    picture = following.history.newest
    names = {name for name, _ in picture.peers.values()}
    assert names == {"p0", "p1", "p2", "p3", "this page"}
    assert len(picture.visible_links()) == 3
    texts = [entry[2] for entry in following.history.since(0, 1e15).entries if entry[1] == "t"]
    assert "more happened than could be followed: this is the fabric as it is now" in texts


async def test_page_that_opens_between_a_link_and_its_peer_gets_both() -> None:
    """Peers report out of order: a link may be known before the peer at its end."""
    timeline = ManualTimeline()
    timeline.log.add(PeerAdded(100.0, 0, "p0"))
    timeline.log.add(LinkAdded(100.2, 0, 1))
    timeline.log.add(PeerAdded(100.4, 1, "p1"))
    sources = Sources()
    sources.live = TimelineFollower(timeline)
    sources.live.poll(100.3 + SETTLE_S)
    transport = ASGITransport(Starlette(routes=data_routes(sources)))
    async with AsyncClient(transport=transport, base_url="http://test") as client:
        drawn = (await client.get("/data/live/snapshot")).json()
        assert [each[1] for each in drawn["peers"]] == ["p0"]
        sources.live.poll(100.5 + SETTLE_S)
        later = (await client.get("/data/live/changes", params={"since": drawn["next"]})).json()["entries"]
    links = [*drawn["links"], *(entry[2:] for entry in later if entry[1] == "u")]
    assert links == [[0, 1]]
