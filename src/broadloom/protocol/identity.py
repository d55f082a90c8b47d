"""Authenticated identities and the interface to signatures. The cryptography is in `broadloom.security`."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, Protocol

from broadloom.wire import PeerId
from broadloom.wire.exchange_messages import RejectReason

SignatureCheck = Callable[[bytes, bytes], bool]
"""Whether a signature (second argument) of the author is valid for the data (first argument)."""


class Role(StrEnum):
    PRODUCER = "producer"
    """May send and receive."""
    CONSUMER = "consumer"
    """May only receive."""


class Identity(NamedTuple):
    """What a certificate states about a peer."""

    peer_id: PeerId
    """A hash of the session key and the ticket, so it cannot be forged."""
    name: str = ""
    """The name on the ticket, chosen by the owner of the channel; empty without tickets."""
    role: Role = Role.PRODUCER
    ticket_serial: str = ""
    """Serial number of the ticket in hex; empty without tickets."""
    expires_at: float | None = None
    """End of the ticket in seconds since 1970; None without tickets."""


class CredentialError(Exception):
    """A certificate or credential is invalid; `reason` is machine-readable, `text` is not."""

    def __init__(self, reason: RejectReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


class Signer(Protocol):
    """Signs the messages of one peer and verifies credentials of others."""

    credential: bytes
    """The certificate (with the ticket, if any) that others need to verify our signatures."""
    signature_bytes: int
    """Size of every signature, a multiple of 4."""

    def sign(self, data: bytes) -> bytes: ...

    def verify_credential(self, author: PeerId, credential: bytes) -> tuple[Identity, SignatureCheck]:
        """Return the identity of the author and the check of its signatures; raises `CredentialError` if the credential
        is invalid or belongs to another peer."""

    def recheck(self, identity: Identity) -> None:
        """Raise `CredentialError` if the ticket has expired or was revoked in the meantime."""
