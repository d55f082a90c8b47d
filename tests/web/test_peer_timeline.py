"""What one peer of a real channel may know, as a story."""

import broadloom
from broadloom.testing.cluster.timeline import MessageHop
from broadloom.web.peer_timeline import PeerTimeline
from broadloom.web.timeline_follower import TimelineFollower
from tests.channel.joined import QUICK, connected_channels, unique_name
from tests.transport.connections import run_test, until


def test_peer_timeline_shows_two_hops() -> None:
    name, heard = unique_name(), PeerTimeline()

    async def main() -> None:
        async with (
            connected_channels(7, name=name) as others,
            broadloom.connect(name, tls=False, settings=QUICK, tape=heard) as channel,
        ):
            heard.channel = channel
            following = TimelineFollower(heard, settle_s=0.0, sees_all=False)
            await until(lambda: len(channel.status().neighbors) == 4)
            await until(lambda: len(heard.now()) >= 7)
            now = heard.now()
            assert now[channel.peer_id].name == "this page"
            assert len(now[channel.peer_id].links) == 4
            assert set(now) <= {channel.peer_id, *(each.peer_id for each in others)}
            await others[0].broadcast(b"hello")
            await channel.receive(10)
            await until(lambda: any(isinstance(each, MessageHop) for each in heard.changes(0)[1]))
            following.poll(1e12)
            picture = following.history.newest
            me = following.history.number_of(channel.peer_id)
            assert len(picture.peers) == len(heard.now())
            assert sum(me in link for link in picture.visible_links()) == 4
            await until(lambda: bool(heard.changes(0)[1] and heard.metrics()))
            assert heard.metrics()[-1].missed == 0

    run_test(main)
