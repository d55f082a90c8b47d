"""A peer of a signed channel on a fake runtime, with signatures that a test can make for any author."""

import hashlib
from typing import Any

from broadloom.protocol import Peer, Tuning
from broadloom.protocol.identity import CredentialError, Identity, Role, SignatureCheck
from broadloom.wire import Broadcast, PeerId, decode
from broadloom.wire.broadcast_frame import BROADCAST, encode_broadcast, signed_part
from broadloom.wire.codec import number_of
from broadloom.wire.exchange_messages import LinkRequest, LinkResponse, RejectReason
from broadloom.wire.link_messages import Credential
from tests.protocol.fake_runtime import (
    CHANNEL,
    EMPTY_DIGEST,
    ME,
    NO_TIMEOUT,
    FakeConnection,
    FakeRuntime,
    hello,
    open_exchange,
    peer_info,
)

AUTHOR = 7


class FakeSigner:
    """Signatures without keys: a test can sign for any author."""

    def __init__(self, peer_id: PeerId, role: Role = Role.PRODUCER) -> None:
        self.credential = b"%d %s" % (peer_id, role.value.encode())
        self.signature_bytes = hashlib.sha256().digest_size
        self.revoked: set[PeerId] = set()

    def sign(self, data: bytes) -> bytes:
        return hashlib.sha256(self.credential + data).digest()

    def verify_credential(self, author: PeerId, credential: bytes) -> tuple[Identity, SignatureCheck]:
        peer_id, role = credential.decode().split()
        identity = Identity(int(peer_id), f"peer {peer_id}", Role(role))
        if identity.peer_id != author:
            raise CredentialError(RejectReason.PEER_ID_MISMATCH, "the credential of another peer")
        self.recheck(identity)
        signer = FakeSigner(author, identity.role)
        return identity, lambda data, signature: signer.sign(data) == signature

    def recheck(self, identity: Identity) -> None:
        if identity.peer_id in self.revoked:
            raise CredentialError(RejectReason.TICKET_REVOKED, "revoked")


def member(runtime: FakeRuntime, settings: Tuning = NO_TIMEOUT, peer_id: PeerId = ME) -> tuple[Peer, FakeSigner]:
    """A connected peer of a signed channel."""
    signer = FakeSigner(peer_id)
    peer = Peer(runtime, peer_info(peer_id), CHANNEL, (), settings, signer=signer)
    peer.start()
    peer.create_channel()
    return peer, signer


def link(peer: Peer, peer_id: PeerId, first_digest: Any = EMPTY_DIGEST) -> FakeConnection:
    connection = open_exchange(peer, hello(peer_id, signed=True), LinkRequest())
    assert connection.sent_messages(LinkResponse)
    connection.remote_sends(first_digest)
    return connection


def credential(author: PeerId = AUTHOR, role: Role = Role.PRODUCER) -> Credential:
    return Credential(author, FakeSigner(author, role).credential)


def signed(
    author: PeerId,
    sequence: int,
    *,
    role: Role = Role.PRODUCER,
    channel: bytes = CHANNEL,
    sent_at: float = FakeRuntime.START_TIME_S,
    ttl_ms: int = 0,
) -> Broadcast:
    message = Broadcast(author, sequence, 1, (b"%d" % sequence,), hops=2, ttl_ms=ttl_ms)
    return sign(message, role=role, channel=channel, sent_at=sent_at)


def sign(
    message: Broadcast,
    *,
    role: Role = Role.PRODUCER,
    channel: bytes = CHANNEL,
    sent_at: float = FakeRuntime.START_TIME_S,
) -> Broadcast:
    time = int(1000 * sent_at).to_bytes(8, "big")
    signed_data = channel + time + signed_part(encode_broadcast(message))
    return message._replace(signature=time + FakeSigner(message.author, role).sign(signed_data))


def sent_items(connection: FakeConnection) -> list[tuple[str, PeerId]]:
    """Credentials and messages in the order in which they were sent."""
    items: list[tuple[str, PeerId]] = []
    for frame in connection.sent:
        if number_of(frame) == BROADCAST:
            items.append(("message", int.from_bytes(frame[16:24], "big")))
        elif isinstance(message := decode(frame), Credential):
            items.append(("credential", message.author))
    return items
