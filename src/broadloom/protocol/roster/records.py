"""`KnownRecord`: the newest record of one member; `RecordVerifier`: signs our records and verifies those of others."""

import hashlib
from enum import Enum, auto
from typing import TYPE_CHECKING

from broadloom.protocol.broadcast.signing import TICKET_REASONS
from broadloom.protocol.identity import CredentialError, Identity, SignatureCheck
from broadloom.protocol.roster.member import Member
from broadloom.wire import PeerId, WireError
from broadloom.wire.payload_kind import layer_mark
from broadloom.wire.roster_messages import MemberRecord
from broadloom.wire.types import RecordVersion, SignedRecord

if TYPE_CHECKING:
    from broadloom.protocol.identity import Signer
    from broadloom.protocol.peer import Peer

RECORD_PREFIX = b"broadloom roster\0"
"""Domain separation: the same key signs messages."""
RECORDS_PER_S_MAX = 4.0
RECORDS_BURST_MAX = 16.0
"""Records of one member that are accepted: an honest one keeps the pace (`roster_publish_s`)."""


class Allowance:
    """A token bucket."""

    __slots__ = ("_at", "_tokens")

    def __init__(self, tokens: float, now: float) -> None:
        self._tokens = tokens
        self._at = now

    def take(self, now: float, per_s: float, burst: float) -> bool:
        self._tokens = min(burst, self._tokens + (now - self._at) * per_s)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class MemberState(Enum):
    UNREACHABLE = auto()
    """Its record is known, but no path to it: not joined yet, or lost."""
    PRESENT = auto()
    SUSPECT = auto()
    """Not reachable for less than the grace period: links are exchanged all the time."""
    LEFT = auto()


class KnownRecord:
    """The newest record of one member, and its state here."""

    __slots__ = (
        "allowance",
        "changed_at",
        "check",
        "identity",
        "record",
        "record_hash",
        "signed",
        "state",
        "stored_at",
        "was_lost",
        "was_partitioned",
    )

    def __init__(self, now: float) -> None:
        self.record: MemberRecord
        self.signed: SignedRecord
        """With the credential."""
        self.record_hash = 0
        self.identity: Identity | None = None
        self.check: SignatureCheck | None = None
        self.state = MemberState.UNREACHABLE
        self.stored_at = self.changed_at = now
        """When the record was stored, and when the state changed."""
        self.was_lost = self.was_partitioned = False
        self.allowance = Allowance(RECORDS_BURST_MAX, now)

    @property
    def is_listed(self) -> bool:
        return self.state in (MemberState.PRESENT, MemberState.SUSPECT)

    @property
    def version(self) -> RecordVersion:
        return RecordVersion(self.record.peer_id, self.record.incarnation, self.record_hash)

    @property
    def member(self) -> Member:
        record, identity = self.record, self.identity
        is_proven = identity is not None and bool(identity.ticket_serial)
        return Member(
            peer_id=PeerId(record.peer_id),
            name=identity.name if identity is not None and is_proven else record.name,
            role=identity.role if identity is not None and is_proven else None,
            is_proven=is_proven,
            address=record.address,
            ticket_serial=identity.ticket_serial if identity is not None else "",
            layers=tuple(map(layer_mark, record.layers)),
            is_secondary=record.is_secondary,
        )


def hash_of(record: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(record, digest_size=8).digest(), "big")


class RecordVerifier:
    def __init__(self, peer: "Peer", signer: "Signer | None") -> None:
        self._peer = peer
        self._signer = signer
        self._prefix = RECORD_PREFIX + peer.channel_id

    @property
    def is_signing(self) -> bool:
        return self._signer is not None

    def sign(self, record: bytes) -> SignedRecord:
        if self._signer is None:
            return SignedRecord(record, b"", b"")
        return SignedRecord(record, self._signer.sign(self._prefix + record), self._signer.credential)

    def sign_for(self, purpose: bytes, data: bytes) -> bytes:
        return self._signer.sign(purpose + self._peer.channel_id + data) if self._signer is not None else b""

    def verify_for(self, known: KnownRecord, purpose: bytes, data: bytes, signature: bytes) -> bool:
        if self._signer is None:
            return True
        return known.check is not None and known.check(purpose + self._peer.channel_id + data, signature)

    def own_identity(self) -> Identity | None:
        """As others see us; None on a channel without TLS, and with a ticket that has just expired."""
        if self._signer is None:
            return None
        try:
            return self._signer.verify_credential(self._peer.me.peer_id, self._signer.credential)[0]
        except CredentialError:
            return None

    def signed_data(self, signed: SignedRecord) -> bytes:
        return self._prefix + signed.record

    def verify(self, known: KnownRecord, peer_id: PeerId, signed: SignedRecord) -> SignedRecord | None:
        """The record with its credential; None if it cannot be verified. Raises `WireError` for a forgery: honest
        neighbors verify what they relay."""
        if self._signer is None:
            if signed.signature or signed.credential:
                raise WireError("a signed record on a channel without TLS")
            return signed
        if known.check is None:
            if not signed.credential:
                return None
            try:
                known.identity, known.check = self._signer.verify_credential(peer_id, signed.credential)
            except CredentialError as rejected:
                self._peer.counters.bad_credentials += 1
                if rejected.reason in TICKET_REASONS:
                    return None  # clocks and revocation lists of honest peers may differ a little
                raise WireError(f"invalid credential of {peer_id:016x}: {rejected.text}") from None
            credential = signed.credential
        else:
            credential = known.signed.credential
        if not known.check(self._prefix + signed.record, signed.signature):
            self._peer.counters.bad_signatures += 1
            raise WireError(f"invalid signature of the record of {peer_id:016x}")
        return signed._replace(credential=credential)
