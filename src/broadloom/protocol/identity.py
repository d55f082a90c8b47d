"""Who somebody has proved to be, and the interface to signatures. (The cryptography itself is in `security`.)"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from broadloom.wire import PeerId
from broadloom.wire.exchange_messages import RejectReason

SignatureCheck = Callable[[bytes, bytes], bool]
"""Whether (what was said, its signature) is the author's own word."""


class Role(Enum):
    PRODUCER = "producer"
    """May speak and listen."""
    CONSUMER = "consumer"
    """May only listen."""


class Identity(NamedTuple):
    """What a certificate says of a peer."""

    peer_id: PeerId
    """Derived from the certificate's key, so nobody can claim another's."""
    name: str = ""
    """As the channel's owner wrote it on the ticket; empty without tickets."""
    role: Role = Role.PRODUCER
    ticket_serial: str = ""
    """Serial number of the ticket, in hex; empty without tickets."""
    expires_at: float | None = None
    """When the ticket ends, in seconds since 1970; None without tickets."""


class CredentialError(Exception):
    """A certificate or credential that is not good; says why, for a program and for a person."""

    def __init__(self, reason: RejectReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


class Signer(Protocol):
    """Signs a peer's own messages and checks those of others."""

    credential: bytes
    """What others need to check our signatures: our certificate, with the ticket in it."""

    def sign(self, data: bytes) -> bytes: ...

    def verify_credential(self, author: PeerId, credential: bytes) -> tuple[Identity, SignatureCheck]:
        """Who the author is and how to check its word; Rejected if the credential is not good, or not the author's."""

    def recheck(self, identity: Identity) -> None:
        """Rejected if the ticket has expired or was revoked meanwhile."""
