"""What one peer of a real channel may know, as a story."""

import weft
from tests.channel.joined import QUICK, a_name, joined
from tests.net.lines import play, until
from weft.lab.story import Hop
from weft.web.following import Following
from weft.web.heard import Heard


def test_itself_its_neighbours_and_theirs() -> None:
    name, heard = a_name(), Heard()

    async def main() -> None:
        async with (
            joined(7, name=name) as others,
            weft.connect(name, plain=True, settings=QUICK, tape=heard) as channel,
        ):
            heard.channel = channel
            following = Following(heard, settle_s=0.0)
            await until(lambda: len(channel.status().neighbours) == 4)
            await until(lambda: len(heard.now()) >= 7)
            now = heard.now()
            assert now[channel.peer].name == "this page"
            assert len(now[channel.peer].links) == 4
            assert set(now) <= {channel.peer, *(each.peer for each in others)}
            await others[0].broadcast(b"hello")
            await channel.receive(10)
            await until(lambda: any(isinstance(each, Hop) for each in heard.changes(0)[1]))
            following.poll(1e12)
            picture = following.history.newest
            me = following.history.number_of(channel.peer)
            assert len(picture.peers) == len(heard.now())
            assert sum(me in link for link in picture.drawn_links()) == 4
            await until(lambda: bool(heard.changes(0)[1] and heard.figures()))
            assert heard.figures()[-1].missed == 0

    play(main)
