"""Revocation lists over the channel, on real sockets."""

import asyncio
from pathlib import Path

import pytest

import broadloom
from broadloom import Authority, MemberLost, NotPermittedError, Rejected, RejectReason, Revoked
from broadloom.security import RevocationList, revoke_tickets
from broadloom.transport.limits import Limits, TcpTuning
from tests.channel.joined import connected_channels
from tests.channel.owned import owned_channel
from tests.support import TIMEOUT_S, eventually


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "revoked.pem"


async def test_revoked_member_is_out_everywhere_and_learns_why(path: Path) -> None:
    async with owned_channel(7) as club:
        mallory, others = club.members[3], [*club.members[:3], *club.members[4:]]
        for member in others:
            await member.wait_for_roster(20)
        await eventually(lambda: all(len(each.members()) == 7 for each in others))
        requested = others[0]
        requested.on_request(lambda request: request.data)
        assert (await mallory.request(requested.peer_id, b"still a member")).data == b"still a member"
        await mallory.broadcast(b"still a member")
        revoke_tickets(club.owner, path, [club.tickets[3].serial])
        await others[5].publish(path)
        await eventually(lambda: not mallory.status().neighbors)
        await eventually(lambda: all(mallory.peer_id not in {m.peer_id for m in each.members()} for each in others))
        (rejected,) = club.events_of(mallory, Rejected)
        assert rejected.reason is RejectReason.TICKET_REVOKED
        assert club.tickets[3].serial in rejected.text
        for member in others:
            (revoked,) = club.events_of(member, Revoked)
            assert revoked.serials == (club.tickets[3].serial,)
            assert [event.member.peer_id for event in club.events_of(member, MemberLost)] == [mallory.peer_id]
            assert mallory.peer_id not in {each.peer_id for each in member.status().neighbors}
            assert member._node.peer.broadcaster.verifier.identity_of(mallory.peer_id) is None  # type: ignore[union-attr]
        with pytest.raises(broadloom.RejectedError, match="revoked"):
            await club.join(ticket=club.tickets[3])


async def test_every_method_of_a_revoked_member_says_that_its_ticket_was_revoked(path: Path) -> None:
    async with owned_channel(3) as club:
        mallory, other = club.members[:2]
        await mallory.wait_for_roster(TIMEOUT_S)
        await mallory.broadcast(b"still a member")
        reading = asyncio.ensure_future(mallory.receive(TIMEOUT_S))
        revoke_tickets(club.owner, path, [club.tickets[0].serial])
        await other.publish(path)
        for attempt in (
            lambda: reading,
            lambda: mallory.broadcast(b"let me in"),
            lambda: mallory.broadcast(b"let me in", receipt=1),
            lambda: mallory.broadcast_json("let me in"),
            lambda: mallory.request(other.peer_id, b"let me in"),
        ):
            with pytest.raises(broadloom.AccessLostError, match=f"{club.tickets[0].serial} was revoked; ask the owner"):
                await attempt()
        with pytest.raises(broadloom.AccessLostError, match="was revoked"):
            mallory.broadcast_nowait(b"let me in")
        await other.broadcast(b"without mallory")


async def test_broadcast_of_a_lone_member_whose_ticket_others_reject_raises_until_one_accepts_it() -> None:
    async with owned_channel(1) as club:
        (member,) = club.members
        await member.broadcast(b"nobody is there")
        text = "every member says that the ticket has expired"
        member._node.peer.on_auth_rejected(RejectReason.WRONG_KEY, "another channel of this name")
        await member.broadcast(b"that concerns another channel")
        member._node.peer.on_auth_rejected(RejectReason.TICKET_EXPIRED, text)
        with pytest.raises(broadloom.AccessLostError, match=text):
            await member.broadcast(b"can nobody hear me?")
        with pytest.raises(broadloom.AccessLostError, match=text):
            member.broadcast_nowait(b"can nobody hear me?")
        newcomer = await club.join()
        await eventually(lambda: member.status().neighbors)
        await member.broadcast(b"hello")
        assert (await newcomer.receive(TIMEOUT_S)).data == b"hello"


async def test_newcomer_gets_the_list_and_rejects_the_revoked_member(path: Path) -> None:
    async with owned_channel(2) as club:
        revoke_tickets(club.owner, path, [club.tickets[1].serial])
        await club.members[0].publish(path)
        newcomer = await club.join()
        mallory = club.members[1]._node
        assert mallory.credentials is not None
        identity = mallory.credentials.identity
        await eventually(lambda: newcomer._node.peer.owner.is_excluded(identity, mallory.id))


async def test_list_in_a_file_spreads_to_members_without_one(path: Path) -> None:
    async with owned_channel(1) as club:
        revoke_tickets(club.owner, path, [])
        await club.join(
            revocation_list=path,
            settings=TcpTuning(discovery_retry_s=0.1, leave_linger_s=0.05, limits=Limits(credential_check_s=0.1)),
        )
        mallory = await club.join()
        revoke_tickets(club.owner, path, [club.tickets[2].serial])
        await eventually(lambda: club.events_of(mallory, Rejected))
        await eventually(lambda: mallory.peer_id not in {each.peer_id for each in club.members[0].status().neighbors})


async def test_newest_list_survives_a_restart_and_a_rollback_of_the_file(path: Path) -> None:
    async with owned_channel(1) as club:
        revoke_tickets(club.owner, path, [])
        old = _read(path)
        newer = path.with_name("newer.pem")
        revoke_tickets(club.owner, newer, [club.tickets[0].serial, "00000000000000aa"])
        member = await club.join(revocation_list=path)
        await member.publish(newer)
        assert _read(path) == old
        await member.leave()
        after_restart = RevocationList(path, club.owner.certificate)
        assert after_restart.is_revoked("00000000000000aa")
        with pytest.raises(NotPermittedError, match="in force"):
            await (await club.join(revocation_list=path)).publish(
                RevocationList(_copy(path, old), club.owner.certificate)
            )


def _read(path: Path) -> bytes:
    return path.read_bytes()


def _copy(path: Path, content: bytes) -> Path:
    copy = path.with_name("copy.pem")
    copy.write_bytes(content)
    return copy


async def test_list_of_another_owner_cannot_be_published(path: Path) -> None:
    stranger = Authority.generate()
    revoke_tickets(stranger, path, ["00000000000000aa"])
    async with owned_channel(1) as club:
        with pytest.raises(NotPermittedError, match="not signed by the channel's owner"):
            await club.members[0].publish(RevocationList(path, stranger.certificate))


async def test_channel_without_tickets_has_no_revocation_list(path: Path) -> None:
    owner = Authority.generate()
    revoke_tickets(owner, path, [])
    async with connected_channels(1) as (member,):
        with pytest.raises(broadloom.InvalidKeyError, match="channels with tickets"):
            await member.publish(path)
        with pytest.raises(NotPermittedError, match="does not know an owner"):
            await member.publish(RevocationList(path, owner.certificate))
