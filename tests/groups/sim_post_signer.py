"""Channels with tickets in the simulator: signatures without keys."""

import hashlib

from broadloom.groups.proofs import SIGNATURE_BYTES
from tests.groups.group_bus import GroupBus

FOREIGN = b"of another owner"


class SimPostSigner:
    """The names on tickets serve as credentials; the simulated members never forge them."""

    def __init__(self, name: str, names: dict[int, str]) -> None:
        self.name = name
        self.credential = name.encode()
        self._names = names
        """By peer id."""
        self.verified_count = 0

    def sign(self, data: bytes) -> bytes:
        return hashlib.blake2b(data, digest_size=SIGNATURE_BYTES, key=self.credential).digest()

    def verify(
        self, credential: bytes, data: bytes, signature: bytes, _sent_at_ms: int, *, even_if_revoked: bool = False
    ) -> str | None:
        self.verified_count += 1
        signer = SimPostSigner(credential.decode(), self._names)
        return signer.name if self.accepts(credential) and signer.sign(data) == signature else None

    def accepts(self, credential: bytes) -> bool:
        return credential != FOREIGN

    def credential_of(self, peer_id: int) -> bytes:
        return self._names.get(peer_id, "").encode()


def ticketed_bus(seed: int) -> GroupBus:
    """A bus whose members have tickets with their names."""
    bus = GroupBus(seed)

    def make_signer(peer_id: int, name: str) -> SimPostSigner:
        bus.ticket_names[peer_id] = name
        return SimPostSigner(name, bus.ticket_names)

    bus.make_signer = make_signer
    return bus
