"""Records of members that a test plays, for a peer on a fake runtime."""

from dataclasses import replace
from typing import Any

from broadloom.protocol import Peer, Tuning
from broadloom.protocol.roster.member import MemberEvent
from broadloom.protocol.roster.records import RECORD_PREFIX
from broadloom.wire import Address, PeerId
from broadloom.wire.roster_messages import MemberRecord, RosterRecords, decode_record, encode_record
from broadloom.wire.types import SignedRecord
from tests.protocol.fake_runtime import CHANNEL, ME, NO_TIMEOUT, FakeConnection, FakeRuntime, link, peer_info
from tests.protocol.signed_runtime import FakeSigner

HERE = Address("10.0.0.5", 4000)


def member(runtime: FakeRuntime, settings: Tuning = NO_TIMEOUT, *, plain: bool = False) -> Peer:
    """A connected peer without neighbors, whose records are signed unless the channel is plain."""
    peer = Peer(runtime, peer_info(ME), CHANNEL, (), settings, roster_signer=None if plain else FakeSigner(ME))
    peer.start()
    peer.create_channel()
    return peer


def record(peer_id: PeerId, *neighbors: PeerId, incarnation: int = 1, **fields: Any) -> MemberRecord:
    made = MemberRecord(peer_id, incarnation, False, False, HERE, "", tuple(neighbors), (), ())
    return replace(made, **fields)


def signed(made: MemberRecord, *, by: PeerId | None = None, channel: bytes = CHANNEL) -> SignedRecord:
    signer = FakeSigner(made.peer_id if by is None else by)
    body = encode_record(made)
    return SignedRecord(body, signer.sign(RECORD_PREFIX + channel + body), signer.credential)


def records(*made: MemberRecord, plain: bool = False) -> RosterRecords:
    if plain:
        return RosterRecords(tuple(SignedRecord(encode_record(each), b"", b"") for each in made))
    return RosterRecords(tuple(map(signed, made)))


def linked(runtime: FakeRuntime, peer: Peer, *neighbors: PeerId, plain: bool = False) -> list[FakeConnection]:
    """Neighbors that list us, and no one else."""
    connections = [link(peer, each) for each in neighbors]
    for each, connection in zip(neighbors, connections, strict=True):
        connection.remote_sends(records(record(each, ME), plain=plain))
    runtime.advance(0.5)
    return connections


def records_sent(connection: FakeConnection) -> list[tuple[PeerId, int]]:
    """Members and incarnations of the records that the peer sent over this connection."""
    return [
        (made.peer_id, made.incarnation)
        for message in connection.sent_messages(RosterRecords)
        for made in (decode_record(each.record) for each in message.records)
    ]


def member_events(runtime: FakeRuntime) -> list[tuple[str, Any]]:
    """Name of the event, and the id of the member, or the ids of several."""
    found: list[tuple[str, Any]] = []
    for event in runtime.events:
        if isinstance(event, MemberEvent):
            about = event[0]
            ids = tuple(each.peer_id for each in about) if isinstance(about, tuple) else about.peer_id
            found.append((type(event).__name__, ids))
    return found
