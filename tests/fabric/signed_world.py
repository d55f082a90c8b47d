"""A peer of a signed channel in a fake world, with signatures that a test can make for anybody."""

import hashlib
from typing import Any

from tests.fabric.fake_world import CHANNEL, ME, NOTHING, FakeLine, FakeWorld, call, contact, hello
from weft.fabric import Peer, Settings
from weft.fabric.seal import Check, Identity, Rejected, Role
from weft.wire import Broadcast, PeerId, decode
from weft.wire.broadcast import BROADCAST, encode_broadcast, said
from weft.wire.calls import PortAnswer, PortRequest, Refusal
from weft.wire.codec import number_of
from weft.wire.links import Credential

AUTHOR = 7
PATIENT = Settings(silence_s=1e9)


class FakeSeal:
    """Anybody can make a signature of anybody, so that a test can."""

    def __init__(self, name: PeerId, role: Role = Role.PRODUCER) -> None:
        self.credential = b"%d %s" % (name, role.value.encode())
        self.withdrawn: set[PeerId] = set()

    def sign(self, said: bytes) -> bytes:
        return hashlib.sha256(self.credential + said).digest()

    def admit(self, author: PeerId, credential: bytes) -> tuple[Identity, Check]:
        name, role = credential.decode().split()
        identity = Identity(int(name), f"peer {name}", Role(role))
        if identity.peer != author:
            raise Rejected(Refusal.IMPOSTOR, "the credential of another")
        self.still_admits(identity)
        signer = FakeSeal(author, identity.role)
        return identity, lambda said, signature: signer.sign(said) == signature

    def still_admits(self, identity: Identity) -> None:
        if identity.peer in self.withdrawn:
            raise Rejected(Refusal.REVOKED, "withdrawn")


def member(world: FakeWorld, settings: Settings = PATIENT, name: PeerId = ME) -> tuple[Peer, FakeSeal]:
    """A connected peer of a signed channel."""
    seal = FakeSeal(name)
    peer = Peer(world, contact(name), CHANNEL, (), settings, seal=seal)
    peer.start()
    peer.found_channel()
    return peer, seal


def link(peer: Peer, name: PeerId, first_words: Any = NOTHING) -> FakeLine:
    line = call(peer, hello(name, signed=True), PortRequest())
    assert line.heard(PortAnswer)
    line.says(first_words)
    return line


def credential(author: PeerId = AUTHOR, role: Role = Role.PRODUCER) -> Credential:
    return Credential(author, FakeSeal(author, role).credential)


def signed(author: PeerId, sequence: int, *, role: Role = Role.PRODUCER, channel: bytes = CHANNEL) -> Broadcast:
    message = Broadcast(author, sequence, 1, (b"%d" % sequence,), hops=2)
    return message._replace(signature=FakeSeal(author, role).sign(channel + said(encode_broadcast(message))))


def story(line: FakeLine) -> list[tuple[str, PeerId]]:
    """Credentials and messages, as the other end heard them."""
    told: list[tuple[str, PeerId]] = []
    for frame in line.sent:
        if number_of(frame) == BROADCAST:
            told.append(("message", int.from_bytes(frame[16:24], "big")))
        elif isinstance(message := decode(frame), Credential):
            told.append(("credential", message.author))
    return told
