"""Windows of a server that is one participant of a channel."""

from broadloom.web.own_peer import OwnPeer
from broadloom.web.review_seats import ReviewSeats
from tests.channel.joined import connected_channels


async def test_windows_on_a_channel_share_the_participant_of_the_server() -> None:
    async with connected_channels(1) as (channel,):
        seats = ReviewSeats(OwnPeer(channel=channel, on_joined=lambda _peer: None))
        assert not seats.asks_for_name
        first, second = await seats.join("first", ""), await seats.join("second", "")
        assert first is second
        await seats.leave("first")
        assert [each.is_me for each in second.people()] == [True]
        await seats.close()
