"""Who somebody has proved to be, and the interface to signatures. (The cryptography itself is in `security`.)"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from weft.wire import PeerId
from weft.wire.calls import Refusal

Check = Callable[[bytes, bytes], bool]
"""Whether (what was said, its signature) is the author's own word."""


class Role(Enum):
    PRODUCER = "producer"
    """May speak and listen."""
    CONSUMER = "consumer"
    """May only listen."""


class Identity(NamedTuple):
    """What a certificate says of a peer."""

    peer: PeerId
    """Derived from the certificate's key, so nobody can claim another's."""
    name: str = ""
    """As the channel's owner wrote it on the ticket; empty without tickets."""
    role: Role = Role.PRODUCER
    ticket: str = ""
    """Serial number of the ticket, in hex; empty without tickets."""
    expires_at: float | None = None
    """When the ticket ends, in seconds since 1970; None without tickets."""


class Rejected(Exception):
    """A certificate or credential that is not good; says why, for a program and for a person."""

    def __init__(self, refusal: Refusal, text: str) -> None:
        super().__init__(text)
        self.refusal = refusal
        self.text = text


class Seal(Protocol):
    """Signs a peer's own messages and checks those of others."""

    credential: bytes
    """What others need to check our signatures: our certificate, with the ticket in it."""

    def sign(self, said: bytes) -> bytes: ...

    def admit(self, author: PeerId, credential: bytes) -> tuple[Identity, Check]:
        """Who the author is and how to check its word; Rejected if the credential is not good, or not the author's."""

    def still_admits(self, identity: Identity) -> None:
        """Rejected if the ticket has expired or was revoked meanwhile."""
