"""The channel card on real sockets: settings that differ, closing."""

from dataclasses import replace
from pathlib import Path

import pytest

import broadloom
from broadloom import (
    AccessLostError,
    Authority,
    CardChanged,
    ChannelCard,
    ChannelClosed,
    ChannelClosedError,
    NotPermittedError,
    Rejected,
    SecurityLevel,
    SignedCard,
)
from broadloom.security.revocation import newest_path
from tests.channel.joined import QUICK, connected_channels, unique_name
from tests.channel.owned import OwnedChannel, owned_channel
from tests.support import eventually


def signed(club: OwnedChannel, **fields: object) -> SignedCard:
    return SignedCard.sign(club.owner, ChannelCard(club.name, **fields))  # type: ignore[arg-type]


async def test_card_spreads_and_newcomers_get_it() -> None:
    async with owned_channel(6) as club:
        assert club.members[0].card is None
        card = signed(club, text="be kind")
        await club.members[2].publish(card)
        await eventually(lambda: all(member.card == card.card for member in club.members))
        assert [event.card for event in club.events_of(club.members[5], CardChanged)] == [card.card]
        newcomer = await club.join()
        assert newcomer.card == card.card  # before `connect` returns


async def test_older_card_and_another_card_with_the_same_number_are_refused() -> None:
    async with owned_channel(2) as club:
        first = signed(club, text="first")
        second = SignedCard.sign(club.owner, replace(first.card, text="second"), after=first)
        twin = SignedCard.sign(club.owner, replace(second.card, text="twin"))
        one, two = club.members
        await one.publish(second)
        await eventually(lambda: two.card == second.card)
        for other in (first, twin):
            with pytest.raises(NotPermittedError, match="in force"):
                await two.publish(other)
        assert one.card == two.card == second.card
        assert two.status().counters["owner_rollbacks"] == 1
        assert two.status().counters["owner_conflicts"] == 1
        await two.publish(second)  # again: nothing happens


async def test_members_leave_a_closed_channel_with_a_clear_error() -> None:
    async with owned_channel(6) as club:
        card = signed(club)
        await club.members[0].publish(card)
        await eventually(lambda: all(member.card for member in club.members))
        await club.members[3].publish(
            SignedCard.sign(club.owner, card.card.closed("moved to chess/club-43"), after=card)
        )
        for member in club.members:
            with pytest.raises(ChannelClosedError, match="closed this channel: moved to chess/club-43"):
                await member.receive(20)
            with pytest.raises(ChannelClosedError, match="closed this channel"):
                await member.broadcast(b"anyone?")
            assert [event.text for event in club.events_of(member, ChannelClosed)] == ["moved to chess/club-43"]
        await eventually(lambda: all(member._left.is_set() for member in club.members))


async def test_newcomer_that_meets_a_member_of_a_closed_channel_gets_the_error() -> None:
    async with owned_channel(1) as club:
        await club.members[0].publish(signed(club, state="closed", text="season is over"))
        with pytest.raises(ChannelClosedError, match="season is over"):
            await club.join()


async def test_closed_card_in_a_file_is_an_error_before_anything_is_dialed(tmp_path: Path) -> None:
    path = tmp_path / "club.card"
    async with owned_channel(0) as club:
        card = signed(club)
        card.save(path)
        member = await club.join(card=path)
        await member.publish(SignedCard.sign(club.owner, card.card.closed(), after=card))
        await eventually(member._left.is_set)
        assert SignedCard.load(newest_path(path)).card.is_closed
        with pytest.raises(ChannelClosedError, match="closed this channel"):
            await club.join(card=path)


async def test_other_degree_than_on_the_card_is_rejected() -> None:
    async with owned_channel(2) as club:
        await club.members[0].publish(signed(club))
        with pytest.raises(broadloom.RejectedError, match=r"the card says degree=4, this peer uses degree=6"):
            await club.join(settings=replace(QUICK, degree=6))
        with pytest.raises(broadloom.RejectedError, match=r"degree=6"):
            await club.join(settings=replace(QUICK, degree=6), card=signed(club))
        assert all(member.is_connected for member in club.members)


@pytest.mark.parametrize(
    ("level", "options", "text"),
    [
        ("tls", {"key": "k", "signed": True}, "a shared key without signatures, .* with signatures"),
        ("plain", {"key": "k"}, r"no TLS \(tls=False\), .* a shared key"),
        ("signed", {"tls": False}, r"with signatures .*, this peer uses no TLS"),
        ("tickets", {"tls": False}, "the card says tickets"),
    ],
)
async def test_other_security_level_than_on_the_card_is_rejected(
    level: str, options: dict[str, object], text: str
) -> None:
    async with owned_channel(0) as club:
        with pytest.raises(broadloom.RejectedError, match=text):
            await club.join(card=signed(club, level=level), **options)


async def test_card_that_does_not_fit_the_channel_cannot_be_published() -> None:
    async with owned_channel(1) as club:
        for fields in ({"degree": 5}, {"level": SecurityLevel.TLS}):
            with pytest.raises(NotPermittedError, match="the card says"):
                await club.members[0].publish(signed(club, **fields))
        with pytest.raises(NotPermittedError, match="for the channel other/one"):
            await club.members[0].publish(SignedCard.sign(club.owner, ChannelCard("other/one")))
        with pytest.raises(NotPermittedError, match="not signed by the channel's owner"):
            await club.members[0].publish(SignedCard.sign(Authority.generate(), ChannelCard(club.name)))
        assert club.members[0].is_connected


async def test_owner_of_a_channel_with_a_shared_key_closes_it_for_members_that_have_its_card() -> None:
    owner, name = Authority.generate(), unique_name()
    card = SignedCard.sign(owner, ChannelCard(name, level=SecurityLevel.SIGNED))
    options = {"tls": True, "key": "k", "signed": True}
    async with (
        connected_channels(3, name=name, card=card, **options) as members,
        connected_channels(1, name=name, **options) as (stranger,),
    ):
        await members[0].publish(SignedCard.sign(owner, card.card.closed(), after=card))
        await eventually(lambda: all(member._left.is_set() for member in members))
        assert stranger.card is None
        assert stranger.is_connected  # it does not know the owner


async def test_card_gives_bootstrap_hosts_to_members_without_any() -> None:
    async with owned_channel(1) as club:
        address = club.members[0].status().address
        newcomer = await club.join(card=signed(club, bootstrap=(address,)))
        assert [str(each) for each in newcomer._node.bootstrap.addresses] == [address]


async def test_member_with_other_settings_than_a_new_card_leaves() -> None:
    async with owned_channel(1) as club:
        other = await club.join(settings=replace(QUICK, degree=6))
        await club.members[0].publish(signed(club))
        await eventually(other._left.is_set)
        (rejected,) = club.events_of(other, Rejected)
        assert "degree=6" in rejected.text
        with pytest.raises(AccessLostError, match="degree=6"):
            await other.broadcast(b"anyone?")
        assert club.members[0].is_connected
